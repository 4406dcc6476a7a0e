"""Problems between rules that are each valid alone, and between tests and rules.

Each warning holds for every pod and cluster: a line has no effect, or two rules conflict. If that depends on the pod
or the cluster, there is no warning.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from rules_engine.evaluation.rule_set.globs import matches
from rules_engine.model.json.lenient import items, mapping
from rules_engine.model.problems import Problem, Severity, did_you_mean
from rules_engine.model.rules import (
    AnyRule,
    Direction,
    Entry,
    FallbackLadder,
    Match,
    Mode,
    OptOut,
    ResourceInjection,
    Rule,
    RuleId,
    Validation,
    WhenExhausted,
)
from rules_engine.model.ruletest import Case, Decider
from rules_engine.model.source import Location


def analyse(rules: Sequence[AnyRule]) -> Iterator[Problem]:
    """Yield warnings about rules that are loaded together."""
    live = sorted((rule for rule in rules if rule.mode is not Mode.OFF), key=lambda rule: rule.order)
    ladders = [rule for rule in live if isinstance(rule, FallbackLadder)]
    injections = [rule for rule in live if isinstance(rule, ResourceInjection)]
    for rule in live:
        yield from _matches_nothing(rule)
    for ladder in ladders:
        yield from _idle_rungs(ladder)
    for earlier, later in combinations(ladders, 2):
        yield from _taken_resources(earlier, later)
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


def analyse_case(case: Case, rules: Sequence[AnyRule]) -> Iterator[Problem]:
    """Yield problems of expectations that `rules` can never meet, and of claims of the pod that no rule reads."""
    known: Mapping[RuleId, AnyRule] = {rule.id: rule for rule in rules}
    yield from _unseen_claims(case, rules)
    for decider in case.expect.decided_by or ():
        yield from _decider(decider, known)


def _unseen_claims(case: Case, rules: Sequence[AnyRule]) -> Iterator[Problem]:
    """Warn of a pod that requests devices by Dynamic Resource Allocation, which no rule reads."""
    claims = items(mapping(mapping(case.pod).get("spec")).get("resourceClaims"))
    if claims and not any("claims" in text.lower() for rule in rules for text in _expressions(rule)):
        message = (
            "this pod requests devices by spec.resourceClaims, which no rule reads: ladders and injections count "
            "extended resources only"
        )
        yield _problem("unseen-claims", message, case.location, case.name)


def _expressions(rule: AnyRule) -> Iterator[str]:
    """Yield the expressions that may change a decision."""
    yield from (named.expression.text for named in (*rule.variables, *rule.match_conditions))
    match rule:
        case FallbackLadder(rungs=rungs):
            yield from (rung.when.text for rung in rungs if rung.when is not None)
        case Validation(validations=checks):
            yield from (check.expression.text for check in checks)
        case _:
            pass


def _decider(decider: Decider, known: Mapping[RuleId, AnyRule]) -> Iterator[Problem]:
    rule = known.get(decider.rule)
    if rule is None:
        message = f"rule '{decider.rule}' not found{did_you_mean(decider.rule, known)}"
        yield _problem("unknown-rule", message, decider.location, decider.rule, Severity.ERROR)
        return
    if rule.mode is not Mode.ENFORCE:
        message = f"{rule.id} is in mode {rule.mode.value}: it never decides"
        yield _problem("idle-rule", message, decider.location, decider.rule)
    if decider.rung is None:
        return
    if not isinstance(rule, FallbackLadder):
        message = f"{rule.id} has no rungs: only a FallbackLadder has"
        yield _problem("unknown-rung", message, decider.location, decider.rule, Severity.ERROR)
        return
    rungs = [rung.resource for rung in rule.rungs]
    if decider.rung not in rungs:
        message = f"{rule.id} has no rung '{decider.rung}'{did_you_mean(decider.rung, rungs)}"
        yield _problem("unknown-rung", message, decider.location, decider.rule, Severity.ERROR)


def _matches_nothing(rule: Rule) -> Iterator[Problem]:
    excluded = rule.match.exclude_namespaces
    if all(_any_wider(excluded, name) for name in rule.match.namespaces):
        message = f"{rule.id} matches no pod: excludeNamespaces excludes all its namespaces"
        yield _problem("matches-nothing", message, rule.location, rule.name)


def _idle_rungs(ladder: FallbackLadder) -> Iterator[Problem]:
    if len(ladder.rungs) == 1 and ladder.when_exhausted is WhenExhausted.KEEP:
        rung = ladder.rungs[0]
        message = f"a ladder with one rung moves nothing: it has no other rung for {rung.resource}"
        yield _problem("single-rung", message, rung.location, rung.resource)
        return
    for index, rung in enumerate(ladder.rungs):
        if rung.when is not None and not _sources(ladder, index):
            message = (
                f"this is never evaluated: with direction {ladder.direction.value} nothing moves to {rung.resource}"
            )
            yield _problem("unused-when", message, rung.when.location, rung.when.text.partition("\n")[0])


def _sources(ladder: FallbackLadder, index: int) -> int:
    """Return the number of rungs that may move to the rung at `index`."""
    above, below = index, len(ladder.rungs) - index - 1
    return {Direction.DOWN: above, Direction.UP: below, Direction.DOWN_THEN_UP: above + below}[ladder.direction]


def _targets(ladder: FallbackLadder, index: int) -> int:
    """Return the number of rungs that the rung at `index` may move to."""
    above, below = index, len(ladder.rungs) - index - 1
    return {Direction.DOWN: below, Direction.UP: above, Direction.DOWN_THEN_UP: above + below}[ladder.direction]


def _taken_resources(earlier: FallbackLadder, later: FallbackLadder) -> Iterator[Problem]:
    """Warn of rungs of a later ladder whose requests an earlier one always decides."""
    if not _always_first(earlier, later):
        return
    named = {rung.resource for rung in earlier.rungs}
    for index, rung in enumerate(later.rungs):
        # No warning for a rung that cannot move anyway.
        if rung.resource in named and not rung.assume and _targets(later, index):
            message = (
                f"requests for {rung.resource} are decided by {earlier.id} ({earlier.location}) instead, "
                f"which comes first by {_precedence(earlier, later)}"
            )
            yield _problem("unreachable-rung", message, rung.location, rung.resource)


def _given(injection: ResourceInjection) -> frozenset[str]:
    """Return the resources that an injection injects in some namespace."""
    entries = (injection.default, *injection.namespaces.values())
    return frozenset(name for entry in entries for name, amount in entry.coefficients.items() if amount)


def _shadowed(injections: Sequence[ResourceInjection]) -> Iterator[Problem]:
    """Warn of injections of one GPU resource that can never apply; once each, with the first that precedes it."""
    for index, later in enumerate(injections):
        for earlier in injections[:index]:
            if _same_type(earlier, later) and _always_first(earlier, later):
                message = (
                    f"{later.id} never injects anything: {earlier.id} ({earlier.location}) matches the same pods and "
                    f"comes first by {_precedence(earlier, later)}"
                )
                yield _problem("unreachable-injection", message, later.location, later.name)
                break


def _unused_entries(injection: ResourceInjection) -> Iterator[Problem]:
    for namespace, entry in injection.namespaces.items():
        if not _may_match(injection.match, namespace):
            message = f"this entry is never used: {injection.id} does not match the namespace '{namespace}'"
            yield _problem("unused-entry", message, entry.location, namespace)


def _second_pass(one: ResourceInjection, other: ResourceInjection) -> Iterator[Problem]:
    """Warn of an injected resource that is another's GPU resource: a second admission would deny the pod for both."""
    enforced = one.mode is Mode.ENFORCE and other.mode is Mode.ENFORCE
    sure = not (one.match_conditions or other.match_conditions)
    overlap = _covers(one.match, other.match) or _covers(other.match, one.match)
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
            yield _problem("injection-conflict", message, place, other.gpu_resource)


def _entry(injection: ResourceInjection, namespace: str | None) -> Entry:
    return injection.default if namespace is None else injection.entry(namespace)


def _is_used(injection: ResourceInjection, namespace: str | None) -> bool:
    """Return True if an injection may match pods of a namespace, or (None) of one without an entry of its own."""
    if namespace is not None:
        return _may_match(injection.match, namespace)
    return any(_is_glob(name) or name not in injection.namespaces for name in injection.match.namespaces)


def _same_type(wide: ResourceInjection, narrow: ResourceInjection) -> bool:
    """Return True if `wide` applies to every GPU type that `narrow` applies to."""
    if wide.gpu_type is None:
        return True
    return (wide.gpu_type_annotation, wide.gpu_type) == (narrow.gpu_type_annotation, narrow.gpu_type)


def _always_first(earlier: FallbackLadder | ResourceInjection, later: FallbackLadder | ResourceInjection) -> bool:
    """Return True if the earlier rule always decides the requests that it shares with the later one."""
    if earlier.mode is not Mode.ENFORCE or earlier.match_conditions or not _covers(earlier.match, later.match):
        return False
    # A pod that opts out of the earlier one alone is decided by the later one. (So is one that makes an expression of a
    # rule fail which is ignored then; no author relies on that.)
    return earlier.opt_out is OptOut.FORBIDDEN or later.opt_out is OptOut.ALLOWED


def _precedence(earlier: Rule, later: Rule) -> str:
    return "name" if earlier.priority == later.priority else "priority"


def _may_match(match: Match, namespace: str) -> bool:
    included = any(matches(pattern, namespace) for pattern in match.namespaces)
    return included and not any(matches(pattern, namespace) for pattern in match.exclude_namespaces)


def _covers(wide: Match, narrow: Match) -> bool:
    """Return True if `wide` certainly matches every pod that `narrow` matches."""
    included = all(_any_wider(wide.namespaces, name) for name in narrow.namespaces)
    left_in = all(
        _any_wider(narrow.exclude_namespaces, excluded)
        or not any(_is_glob(name) or _is_wider(excluded, name) for name in narrow.namespaces)
        for excluded in wide.exclude_namespaces
    )
    selected = all(
        set(broad.requirements) <= set(strict.requirements)
        for broad, strict in (
            (wide.namespace_selector, narrow.namespace_selector),
            (wide.object_selector, narrow.object_selector),
        )
    )
    return included and left_in and selected


def _any_wider(patterns: Sequence[str], name: str) -> bool:
    return any(_is_wider(pattern, name) for pattern in patterns)


def _is_wider(pattern: str, name: str) -> bool:
    """Return True if a glob certainly matches all that `name`, a name or a glob, matches."""
    return pattern in ("*", name) or (not _is_glob(name) and matches(pattern, name))


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


def _problem(code: str, message: str, location: Location, text: str, severity: Severity = Severity.WARNING) -> Problem:
    return Problem(code=code, message=message, location=location, length=max(1, len(text)), severity=severity)
