"""Problems of valid injections, alone, together and on a cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, warning
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import Mode
from rules_engine.rules.entries import warn_of_entries
from rules_engine.rules.injection.value import InjectionCode, InjectionEntry, ResourceInjection
from rules_engine.rules.overlap import EarlierRules, always_first, covers_match, may_match, precedence_basis
from rules_engine.rules.resource_names import name_warnings

_COEFFICIENTS = "coefficients"


def analyse(injections: Sequence[ResourceInjection]) -> Iterator[Problem]:
    """Yield warnings about injections that are loaded together, in the order of evaluation."""
    for injection in injections:
        yield from warn_of_entries(injection)
        place = injection.origin.get(("spec", "gpuResource"), injection.location)
        yield from name_warnings(injection.gpu_resource, (), place, "gpuResource")
        for entry in injection.entries:
            for name in entry.coefficients.keys() - entry.inherited.keys():
                yield from name_warnings(name, (), entry.origin["coefficients", name], name)
    by_resource: dict[str, list[ResourceInjection]] = {}
    for injection in injections:
        by_resource.setdefault(injection.gpu_resource, []).append(injection)
    for rivals in by_resource.values():
        yield from _warn_unreachable(rivals)
    for giver in injections:
        for resource in _nonzero_resources(giver):
            for counter in by_resource.get(resource, ()):
                yield from _warn_second_pass(giver, counter)


def analyse_on(injections: Sequence[ResourceInjection], cluster: Cluster) -> Iterator[Problem]:
    """Yield warnings about coefficients that no node of a cluster has for one GPU, in use or not."""
    for injection in injections:
        nodes = [node for node in cluster.nodes if node.allocatable.get(injection.gpu_resource)]
        reported: set[Location] = set()
        for namespace in dict.fromkeys((None, *injection.namespaces)):
            if nodes and injection.may_apply(namespace):
                for problem in _warn_exceeding(injection, namespace, nodes):
                    if problem.location not in reported:
                        reported.add(problem.location)
                        yield problem


def _warn_exceeding(injection: ResourceInjection, namespace: str | None, nodes: Sequence[Node]) -> Iterator[Problem]:
    """Warn of the coefficients of one entry that no node with the GPU resource has, alone or together."""
    entry = _entry_in(injection, namespace)
    exceeded = [_scarce_resources(entry, node) for node in nodes]
    if not all(exceeded):
        return
    gpu = injection.gpu_resource
    everywhere = exceeded[0].intersection(*exceeded)
    for name in everywhere:
        most = max(node.allocatable[name] for node in nodes)
        message = f"one {gpu} gets {entry.coefficients[name]} of {name}, and no node with {gpu} has more than {most}"
        yield warning(
            InjectionCode.EXCEEDS_NODES, message, entry.origin.get((_COEFFICIENTS, name), entry.location), name
        )
    if not everywhere:
        names = " and ".join(sorted(frozenset[str]().union(*exceeded)))
        message = f"no node with {gpu} has the {names} that one {gpu} gets: each has too little of one of them"
        yield warning(InjectionCode.EXCEEDS_NODES, message, entry.location, namespace or _COEFFICIENTS)


def _scarce_resources(entry: InjectionEntry, node: Node) -> frozenset[str]:
    """Return the resources of which a node has less than one GPU gets. Resources that it does not list are ignored."""
    present = node.allocatable
    return frozenset(name for name, amount in entry.coefficients.items() if name in present and present[name] < amount)


def _nonzero_resources(injection: ResourceInjection) -> frozenset[str]:
    """Return the resources that an injection injects in any namespace."""
    entries = injection.entries
    return frozenset(name for entry in entries for name, amount in entry.coefficients.items() if amount)


def _warn_unreachable(injections: Sequence[ResourceInjection]) -> Iterator[Problem]:
    """Warn once of each injection of one GPU resource that can never apply, with the first that always precedes it."""
    before = EarlierRules[ResourceInjection]()
    for later in injections:
        rivals = before.matching(later.match.namespaces[0])
        first = next((item for item in rivals if _same_type(item, later) and always_first(item, later)), None)
        if first is None:
            yield from _warn_unreachable_entries(later, before)
        else:
            message = (
                f"{later.id} never injects anything: {first.id} ({first.location}) matches the same pods and "
                f"comes first by {precedence_basis(first, later)}"
            )
            yield warning(InjectionCode.UNREACHABLE_INJECTION, message, later.location, later.name)
        before.add(later)


def _warn_unreachable_entries(later: ResourceInjection, before: EarlierRules[ResourceInjection]) -> Iterator[Problem]:
    """Warn of entries for a namespace in which an earlier injection applies to each pod."""
    for namespace, entry in later.namespaces.items():
        if not may_match(later.match, namespace):
            continue
        only_there = replace(later, match=replace(later.match, namespaces=(namespace,), exclude_namespaces=()))
        for earlier in before.matching(namespace):
            if _same_type(earlier, later) and always_first(earlier, only_there):
                message = (
                    f"this entry is never used: in the namespace '{namespace}' {earlier.id} ({earlier.location}) "
                    f"matches the same pods and comes first by {precedence_basis(earlier, later)}"
                )
                yield warning(Code.UNUSED_ENTRY, message, entry.location, namespace)
                break


def _warn_second_pass(giver: ResourceInjection, counter: ResourceInjection) -> Iterator[Problem]:
    """Warn if `giver` injects the GPU resource of `counter`: a second admission would deny the pod for both."""
    enforced = giver.mode is Mode.ENFORCE and counter.mode is Mode.ENFORCE
    unconditional = not (giver.match_conditions or counter.match_conditions)
    overlap = covers_match(giver.match, counter.match) or covers_match(counter.match, giver.match)
    if not (enforced and unconditional and overlap and _same_type(counter, giver)):
        return
    reported: set[Location] = set()
    for namespace in dict.fromkeys((None, *giver.namespaces, *counter.namespaces)):
        if not (giver.may_apply(namespace) and counter.may_apply(namespace)):
            continue
        giving, counting = _entry_in(giver, namespace), _entry_in(counter, namespace)
        place = giving.origin.get((_COEFFICIENTS, counter.gpu_resource), giving.location)
        if giving.coefficients.get(counter.gpu_resource) and counting and place not in reported:
            reported.add(place)
            message = (
                f"{counter.gpu_resource} is the GPU resource of {counter.id} ({counter.location}): a pod that gets it "
                "here is denied for different GPU resources when it is admitted again"
            )
            yield warning(InjectionCode.INJECTION_CONFLICT, message, place, counter.gpu_resource)


def _entry_in(injection: ResourceInjection, namespace: str | None) -> InjectionEntry:
    return injection.default if namespace is None else injection.entry(namespace)


def _same_type(wide: ResourceInjection, narrow: ResourceInjection) -> bool:
    """Return True if `wide` applies to every GPU type that `narrow` applies to."""
    if wide.gpu_type is None:
        return True
    return (wide.gpu_type_annotation, wide.gpu_type) == (narrow.gpu_type_annotation, narrow.gpu_type)
