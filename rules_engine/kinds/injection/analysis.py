"""Problems of injections that are valid each on their own."""

from collections.abc import Iterator, Sequence

from rules_engine.evaluation.rule_set.globs import is_glob
from rules_engine.kinds.injection.problem_codes import InjectionCode
from rules_engine.kinds.injection.value import Entry, ResourceInjection
from rules_engine.kinds.overlap import always_first, covers, may_match, precedence
from rules_engine.model.problems import Problem, warning
from rules_engine.model.rules import Mode
from rules_engine.model.source import Location


def analyse(injections: Sequence[ResourceInjection]) -> Iterator[Problem]:
    """Yield warnings about injections that are loaded together, in the order of evaluation."""
    for injection in injections:
        yield from _unused_entries(injection)
    by_resource: dict[str, list[ResourceInjection]] = {}
    for injection in injections:
        by_resource.setdefault(injection.gpu_resource, []).append(injection)
    for rivals in by_resource.values():
        yield from _shadowed(rivals)
    for one in injections:
        for resource in _given(one):
            for other in by_resource.get(resource, ()):
                yield from _second_pass(one, other)


def _given(injection: ResourceInjection) -> frozenset[str]:
    """Return the resources that an injection injects in some namespace."""
    entries = (injection.default, *injection.namespaces.values())
    return frozenset(name for entry in entries for name, amount in entry.coefficients.items() if amount)


def _shadowed(injections: Sequence[ResourceInjection]) -> Iterator[Problem]:
    """Warn of injections of one GPU resource that can never apply; once each, with the first that precedes it."""
    for index, later in enumerate(injections):
        for earlier in injections[:index]:
            if _same_type(earlier, later) and always_first(earlier, later):
                message = (
                    f"{later.id} never injects anything: {earlier.id} ({earlier.location}) matches the same pods and "
                    f"comes first by {precedence(earlier, later)}"
                )
                yield warning(InjectionCode.UNREACHABLE_INJECTION, message, later.location, later.name)
                break


def _unused_entries(injection: ResourceInjection) -> Iterator[Problem]:
    for namespace, entry in injection.namespaces.items():
        if not may_match(injection.match, namespace):
            message = f"this entry is never used: {injection.id} does not match the namespace '{namespace}'"
            yield warning(InjectionCode.UNUSED_ENTRY, message, entry.location, namespace)


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
        place = giving.origin.get(("coefficients", other.gpu_resource), giving.location)
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
