"""Problems between rules that are each valid alone, and between tests and rules.

Each warning holds for every pod and cluster: a line has no effect, or two rules conflict. If that depends on the pod
or the cluster, there is no warning.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from rules_engine.kinds import KINDS, Kind
from rules_engine.kinds.overlap import any_wider, contradictory
from rules_engine.model.json.lenient import items, mapping
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, did_you_mean, warning
from rules_engine.model.rules.rule import Mode, Rule, RuleId
from rules_engine.model.rules.rule_test import Audited, Case, Decider, Diagnosis


def analyse(rules: Sequence[Rule], kinds: Sequence[Kind] = KINDS) -> Iterator[Problem]:
    """Yield warnings about rules that are loaded together."""
    live = _live(rules)
    for rule in live:
        yield from _matches_nothing(rule)
    for kind in kinds:
        yield from kind.analyse([rule for rule in live if rule.kind == kind.name])


def analyse_on(cluster: Cluster, rules: Sequence[Rule], kinds: Sequence[Kind] = KINDS) -> Iterator[Problem]:
    """Yield warnings about rules that can't work on this cluster."""
    live = _live(rules)
    for kind in kinds:
        yield from kind.analyse_on([rule for rule in live if rule.kind == kind.name], cluster)


def _live(rules: Sequence[Rule]) -> Sequence[Rule]:
    return sorted((rule for rule in rules if rule.mode is not Mode.OFF), key=lambda rule: rule.order)


def analyse_case(case: Case, rules: Sequence[Rule]) -> Iterator[Problem]:
    """Yield problems of expectations that `rules` can never meet, and of claims of the pod that no rule reads."""
    known: Mapping[RuleId, Rule] = {rule.id: rule for rule in rules}
    yield from _unseen_claims(case, rules)
    for expect in (case.expect, *case.expect_on.values()):
        for decider in expect.decided_by or ():
            yield from _decider(decider, known, Mode.ENFORCE, "it never decides")
        for audited in expect.audited or ():
            yield from _decider(audited, known, Mode.AUDIT, "only rules in mode Audit are audited")


def analyse_diagnosis(diagnosis: Diagnosis, reasons: Collection[str]) -> Iterator[Problem]:
    """Yield problems of a diagnosis that names other reasons than those of the Diagnostics, `reasons`."""
    if not reasons:
        message = "there is no Diagnostic among the rules, so nothing can be found"
        yield Problem(
            code=Code.UNKNOWN_REASON,
            message=message,
            location=diagnosis.location,
            length=max(1, len(diagnosis.name)),
        )
        return
    named = {**{found.reason: found.location for found in diagnosis.expect}, **diagnosis.reason_locations}
    for reason, location in named.items():
        if reason not in reasons:
            message = f"no Diagnostic has the reason '{reason}'{did_you_mean(reason, reasons)}"
            yield Problem(code=Code.UNKNOWN_REASON, message=message, location=location, length=max(1, len(reason)))
    for found in diagnosis.expect:
        if diagnosis.reasons is not None and found.reason not in diagnosis.reasons:
            message = f"'{found.reason}' is not one of the diagnosis' reasons, so it is not compared"
            yield Problem(code=Code.UNKNOWN_REASON, message=message, location=found.location, length=len(found.reason))


def _unseen_claims(case: Case, rules: Sequence[Rule]) -> Iterator[Problem]:
    """Warn of a pod that requests devices by Dynamic Resource Allocation, which no rule reads."""
    claims = items(mapping(mapping(case.pod).get("spec")).get("resourceClaims"))
    if claims and not any("claims" in source.text.lower() for rule in rules for source in rule.expressions.values()):
        message = (
            "this pod requests devices by spec.resourceClaims, which no rule reads: ladders and injections count "
            "extended resources only"
        )
        yield warning(Code.UNSEEN_CLAIMS, message, case.location, case.name)


def _decider(decider: Decider | Audited, known: Mapping[RuleId, Rule], mode: Mode, otherwise: str) -> Iterator[Problem]:
    rule = known.get(decider.rule)
    if rule is None:
        message = f"rule '{decider.rule}' not found{did_you_mean(decider.rule, known)}"
        yield _error(Code.UNKNOWN_RULE, message, decider)
        return
    if rule.mode is not mode:
        message = f"{rule.id} is in mode {rule.mode.value}: {otherwise}"
        yield warning(Code.IDLE_RULE, message, decider.location, decider.rule)
    if decider.rung is None:
        return
    if decider.rung not in rule.rung_resources:
        rungs = rule.rung_resources
        none = f" '{decider.rung}'{did_you_mean(decider.rung, rungs)}" if rungs else "s"
        message = f"{rule.id} has no rung{none}"
        yield _error(Code.UNKNOWN_RUNG, message, decider)


def _matches_nothing(rule: Rule) -> Iterator[Problem]:
    excluded = rule.match.exclude_namespaces
    if all(any_wider(excluded, name) for name in rule.match.namespaces):
        message = f"{rule.id} matches no pod: excludeNamespaces excludes all its namespaces"
        yield warning(Code.MATCHES_NOTHING, message, rule.location, rule.name)
        return
    for field, selector in (
        ("namespaceSelector", rule.match.namespace_selector),
        ("objectSelector", rule.match.object_selector),
    ):
        key = contradictory(selector)
        if key is not None:
            message = f"{rule.id} matches no pod: no label '{key}' meets all requirements of {field}"
            yield warning(Code.MATCHES_NOTHING, message, rule.origin.get(("match", field), rule.location), field)


def _error(code: Code, message: str, decider: Decider | Audited) -> Problem:
    return Problem(code=code, message=message, location=decider.location, length=max(1, len(decider.rule)))
