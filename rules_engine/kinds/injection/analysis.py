"""Problems of injections that are valid each on their own."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rules_engine.evaluation.rule_set.globs import is_glob
from rules_engine.kinds.injection.problem_codes import InjectionCode
from rules_engine.kinds.injection.value import Entry, ResourceInjection
from rules_engine.kinds.overlap import Earlier, always_first, covers, may_match, precedence
from rules_engine.kinds.resource_names import name_warnings
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.problems.problem import Problem, warning
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import Mode

_FIELD = "coefficients"


def analyse(injections: Sequence[ResourceInjection]) -> Iterator[Problem]:
    """Yield warnings about injections that are loaded together, in the order of evaluation."""
    for injection in injections:
        yield from _unused_entries(injection)
        yield from _unused_default(injection)
        place = injection.origin.get(("spec", "gpuResource"), injection.location)
        yield from name_warnings(injection.gpu_resource, (), place, "gpuResource")
        for entry in (injection.default, *injection.namespaces.values()):
            for name in entry.coefficients.keys() - entry.inherited.keys():
                yield from name_warnings(name, (), entry.origin["coefficients", name], name)
    by_resource: dict[str, list[ResourceInjection]] = {}
    for injection in injections:
        by_resource.setdefault(injection.gpu_resource, []).append(injection)
    for rivals in by_resource.values():
        yield from _shadowed(rivals)
    for one in injections:
        for resource in _given(one):
            for other in by_resource.get(resource, ()):
                yield from _second_pass(one, other)


def analyse_on(injections: Sequence[ResourceInjection], cluster: Cluster) -> Iterator[Problem]:
    """Yield warnings about coefficients that no node of a cluster has for one GPU, in use or not."""
    for injection in injections:
        nodes = [node for node in cluster.nodes if node.allocatable.get(injection.gpu_resource)]
        reported: set[Location] = set()
        for namespace in dict.fromkeys((None, *injection.namespaces)):
            if nodes and _is_used(injection, namespace):
                for problem in _exceeding(injection, namespace, nodes):
                    if problem.location not in reported:
                        reported.add(problem.location)
                        yield problem


def _exceeding(injection: ResourceInjection, namespace: str | None, nodes: Sequence[Node]) -> Iterator[Problem]:
    """Warn of the coefficients of one entry that no node with the GPU resource has, alone or together."""
    entry = _entry(injection, namespace)
    exceeded = [_exceeded(entry, node) for node in nodes]
    if not all(exceeded):
        return
    gpu = injection.gpu_resource
    everywhere = exceeded[0].intersection(*exceeded)
    for name in everywhere:
        most = max(node.allocatable[name] for node in nodes)
        message = f"one {gpu} gets {entry.coefficients[name]} of {name}, and no node with {gpu} has more than {most}"
        yield warning(InjectionCode.EXCEEDS_NODES, message, entry.origin.get((_FIELD, name), entry.location), name)
    if not everywhere:
        names = " and ".join(sorted(frozenset[str]().union(*exceeded)))
        message = f"no node with {gpu} has the {names} that one {gpu} gets: each has too little of one of them"
        yield warning(InjectionCode.EXCEEDS_NODES, message, entry.location, namespace or _FIELD)


def _exceeded(entry: Entry, node: Node) -> frozenset[str]:
    """Return the resources of which a node has less than one GPU gets. One that it does not list is not known."""
    has = node.allocatable
    return frozenset(name for name, amount in entry.coefficients.items() if name in has and has[name] < amount)


def _given(injection: ResourceInjection) -> frozenset[str]:
    """Return the resources that an injection injects in some namespace."""
    entries = (injection.default, *injection.namespaces.values())
    return frozenset(name for entry in entries for name, amount in entry.coefficients.items() if amount)


def _shadowed(injections: Sequence[ResourceInjection]) -> Iterator[Problem]:
    """Warn of injections of one GPU resource that can never apply; once each, with the first that precedes it."""
    before = Earlier[ResourceInjection]()
    for later in injections:
        rivals = before.matching(later.match.namespaces[0])
        first = next((item for item in rivals if _same_type(item, later) and always_first(item, later)), None)
        if first is None:
            yield from _shadowed_entries(later, before)
        else:
            message = (
                f"{later.id} never injects anything: {first.id} ({first.location}) matches the same pods and "
                f"comes first by {precedence(first, later)}"
            )
            yield warning(InjectionCode.UNREACHABLE_INJECTION, message, later.location, later.name)
        before.add(later)


def _shadowed_entries(later: ResourceInjection, before: Earlier[ResourceInjection]) -> Iterator[Problem]:
    """Warn of entries for a namespace in which an earlier injection applies to each pod."""
    for namespace, entry in later.namespaces.items():
        if not may_match(later.match, namespace):
            continue
        there = replace(later, match=replace(later.match, namespaces=(namespace,), exclude_namespaces=()))
        for earlier in before.matching(namespace):
            if _same_type(earlier, later) and always_first(earlier, there):
                message = (
                    f"this entry is never used: in the namespace '{namespace}' {earlier.id} ({earlier.location}) "
                    f"matches the same pods and comes first by {precedence(earlier, later)}"
                )
                yield warning(InjectionCode.UNUSED_ENTRY, message, entry.location, namespace)
                break


def _unused_entries(injection: ResourceInjection) -> Iterator[Problem]:
    for namespace, entry in injection.namespaces.items():
        if not may_match(injection.match, namespace):
            message = f"this entry is never used: {injection.id} does not match the namespace '{namespace}'"
            yield warning(InjectionCode.UNUSED_ENTRY, message, entry.location, namespace)


def _unused_default(injection: ResourceInjection) -> Iterator[Problem]:
    """Warn of coefficients for all namespaces that no namespace has: each that is matched has an entry of its own."""
    default = injection.default
    if not default or _is_used(injection, None):
        return
    inherited = {place for entry in injection.namespaces.values() for place in entry.origin.values()}
    if inherited.isdisjoint(default.origin.values()):
        field = _FIELD if default.coefficients else "annotations"
        place = injection.origin.get(("spec", field), injection.location)
        message = f"these {field} are never used: each namespace that {injection.id} matches has an entry of its own"
        yield warning(InjectionCode.UNUSED_DEFAULT, message, place, field)


def _second_pass(one: ResourceInjection, other: ResourceInjection) -> Iterator[Problem]:
    """Warn of an injected resource that is another's GPU resource: a second admission would deny the pod for both."""
    enforced = one.mode is Mode.ENFORCE and other.mode is Mode.ENFORCE
    sure = not (one.match_conditions or other.match_conditions)
    overlap = covers(one.match, other.match) or covers(other.match, one.match)
    if not (enforced and sure and overlap and _same_type(other, one)):
        return
    reported: set[Location] = set()
    for namespace in dict.fromkeys((None, *one.namespaces, *other.namespaces)):
        if not (_is_used(one, namespace) and _is_used(other, namespace)):
            continue
        giving, counting = _entry(one, namespace), _entry(other, namespace)
        place = giving.origin.get((_FIELD, other.gpu_resource), giving.location)
        if giving.coefficients.get(other.gpu_resource) and counting and place not in reported:
            reported.add(place)
            message = (
                f"{other.gpu_resource} is the GPU resource of {other.id} ({other.location}): a pod that gets it here "
                "is denied for different GPU resources when it is admitted again"
            )
            yield warning(InjectionCode.INJECTION_CONFLICT, message, place, other.gpu_resource)


def _entry(injection: ResourceInjection, namespace: str | None) -> Entry:
    return injection.default if namespace is None else injection.entry(namespace)


def _is_used(injection: ResourceInjection, namespace: str | None) -> bool:
    """Return True if an injection may match pods of a namespace, or (None) of one without an entry of its own."""
    if namespace is not None:
        return may_match(injection.match, namespace)
    return any(is_glob(name) or name not in injection.namespaces for name in injection.match.namespaces)


def _same_type(wide: ResourceInjection, narrow: ResourceInjection) -> bool:
    """Return True if `wide` applies to every GPU type that `narrow` applies to."""
    if wide.gpu_type is None:
        return True
    return (wide.gpu_type_annotation, wide.gpu_type) == (narrow.gpu_type_annotation, narrow.gpu_type)
