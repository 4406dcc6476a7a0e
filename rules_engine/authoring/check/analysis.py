"""Problems between rules that are valid on their own, and between tests and rules.

A warning is given only if it is right for every pod and cluster: a line has no effect, or two rules conflict.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set

from rules_engine.cluster.devices.offers import cluster_view
from rules_engine.model.json.lenient import as_list, as_mapping
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, did_you_mean, warning
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import Mode, Rule, RuleId
from rules_engine.model.rules.rule_test import Case, ExpectedAudit, ExpectedDiagnosis, ExpectedRule
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.overlap import any_wider, contradictory_key
from rules_engine.rules.rule_set.compiled import RuleKind


def analyse_rules(rules: Sequence[Rule], kinds: Sequence[RuleKind] = KINDS) -> Iterator[Problem]:
    """Yield warnings about rules that are loaded together."""
    live = _active_rules(rules)
    for rule in live:
        yield from _matches_nothing(rule)
    for kind in kinds:
        yield from kind.analyse([rule for rule in live if rule.kind == kind.name])


def analyse_on_cluster(objects: ClusterObjects, rules: Sequence[Rule]) -> Iterator[Problem]:
    """Yield warnings about rules that cannot work on this cluster, or against its ResourceQuotas."""
    live = _active_rules(rules)
    cluster, limited = cluster_view(objects), _limited_resources(objects)
    for kind in KINDS:
        of_kind = [rule for rule in live if rule.kind == kind.name]
        yield from kind.analyse_on(of_kind, cluster)
        yield from kind.analyse_quotas(of_kind, cluster, limited)


def _limited_resources(objects: ClusterObjects) -> Mapping[str, Set[str]]:
    """Return the names in `hard` of all quotas of a namespace, by namespace."""
    names: dict[str, set[str]] = {}
    for item in objects.of("ResourceQuota"):
        names.setdefault(item.namespace, set()).update(as_mapping(item.spec.get("hard")))
    # A quota on the devices of a DeviceClass may limit any resource.
    return {each: names[each] for each in sorted(names) if ".deviceclass.resource.k8s.io/" not in " ".join(names[each])}


def _active_rules(rules: Sequence[Rule]) -> Sequence[Rule]:
    return sorted((rule for rule in rules if rule.mode is not Mode.OFF), key=lambda rule: rule.order)


def analyse_case(case: Case, rules: Sequence[Rule]) -> Iterator[Problem]:
    """Yield problems of expectations that `rules` can never meet, and of resource claims that no rule reads."""
    by_id: Mapping[RuleId, Rule] = {rule.id: rule for rule in rules}
    yield from _claim_warnings(case, rules)
    for expect in (case.expect, *case.expect_on.values()):
        for decider in expect.decided_by or ():
            yield from _decider_problems(decider, by_id, Mode.ENFORCE, "it never decides")
        for audited in expect.audited or ():
            yield from _decider_problems(audited, by_id, Mode.AUDIT, "only rules in mode Audit are audited")


def analyse_diagnosis(diagnosis: ExpectedDiagnosis, reasons: Collection[str]) -> Iterator[Problem]:
    """Yield the reasons in a diagnosis that are not among the `reasons` of Diagnostics, or are not compared."""
    if not reasons:
        message = "there is no Diagnostic among the rules, so nothing can be found"
        yield _error(Code.UNKNOWN_REASON, message, diagnosis.location, diagnosis.name)
        return
    locations = {**{finding.reason: finding.location for finding in diagnosis.expect}, **diagnosis.reason_locations}
    for reason, location in locations.items():
        if reason not in reasons:
            message = f"no Diagnostic has the reason '{reason}'{did_you_mean(reason, reasons)}"
            yield _error(Code.UNKNOWN_REASON, message, location, reason)
    for finding in diagnosis.expect:
        if diagnosis.reasons is not None and finding.reason not in diagnosis.reasons:
            message = f"'{finding.reason}' is not one of the diagnosis' reasons, so it is not compared"
            yield _error(Code.UNKNOWN_REASON, message, finding.location, finding.reason)


def _claim_warnings(case: Case, rules: Sequence[Rule]) -> Iterator[Problem]:
    """Warn about a pod that requests devices by Dynamic Resource Allocation, if no rule reads its claims."""
    claims = as_list(as_mapping(as_mapping(case.pod).get("spec")).get("resourceClaims"))
    if claims and not any("claims" in source.text.lower() for rule in rules for source in rule.expressions.values()):
        message = (
            "this pod requests devices by spec.resourceClaims, which no rule reads: ladders and injections count "
            "extended resources only"
        )
        yield warning(Code.UNSEEN_CLAIMS, message, case.location, case.name)


def _decider_problems(
    decider: ExpectedRule | ExpectedAudit, rules: Mapping[RuleId, Rule], mode: Mode, otherwise: str
) -> Iterator[Problem]:
    rule = rules.get(decider.rule)
    if rule is None:
        message = f"rule '{decider.rule}' not found{did_you_mean(decider.rule, rules)}"
        yield _error(Code.UNKNOWN_RULE, message, decider.location, decider.rule)
        return
    if rule.mode is not mode:
        message = f"{rule.id} is in mode {rule.mode.value}: {otherwise}"
        yield warning(Code.IDLE_RULE, message, decider.location, decider.rule)
    rungs = rule.rung_names
    if decider.rung is not None and decider.rung not in rungs:
        unknown = f" '{decider.rung}'{did_you_mean(decider.rung, rungs)}" if rungs else "s"
        message = f"{rule.id} has no rung{unknown}"
        yield _error(Code.UNKNOWN_RUNG, message, decider.location, decider.rule)


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
        key = contradictory_key(selector)
        if key is not None:
            message = f"{rule.id} matches no pod: no label '{key}' meets all requirements of {field}"
            yield warning(Code.MATCHES_NOTHING, message, rule.origin.get(("match", field), rule.location), field)


def _error(code: Code, message: str, location: Location, text: str) -> Problem:
    return Problem(code=code, message=message, location=location, length=max(1, len(text)))
