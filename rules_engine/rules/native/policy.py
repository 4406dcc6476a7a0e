"""Translations of rules into policies of the API server, and the choice of the rules that are exported."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rules_engine.cluster.nodes import NodeQuery
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import FailurePolicy, Mode, Operation, Rule
from rules_engine.rules.overlap import may_share_pods
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.rule_set import RuleSet


class StaysError(Exception):
    """A rule cannot be translated, for the reason in the message. `location`: the field that prevents it."""

    def __init__(self, reason: str, location: Location | None = None) -> None:
        super().__init__(reason)
        self.location = location


@dataclass(frozen=True, slots=True)
class Variable:
    """A named expression of a policy."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCheck:
    """A validation of a policy; `message_expression` is "" if it has none."""

    expression: str
    message: str
    message_expression: str = ""
    reason: str = "Invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A translated rule.

    `mutation`: a JSON Patch expression; "" for a rule that changes nothing. `checks` deny pods, `warnings` warn: a
    policy that changes pods cannot. All read `variables`, and hold for pods that the rule does not apply to.
    `changes`, `denies` and `warns` are match conditions, which are true for every pod that the rule may change, for
    which a check may fail, or that it may warn of; they may rely on at most ADDED_CONTAINERS. `query`: the nodes of
    which the rule reads offers. `allocatable` and `total`: resources of which its checks read amounts of all nodes.
    """

    rule: Rule
    prefix: str
    variables: tuple[Variable, ...]
    mutation: str = ""
    changes: str = ""
    checks: tuple[NativeCheck, ...] = ()
    denies: str = ""
    warnings: tuple[NativeCheck, ...] = ()
    warns: str = ""
    is_stable: bool = False
    """True if nothing that ladders change affects whether this ladder applies to a pod."""
    check_variables: tuple[Variable, ...] = ()
    """Variables of earlier rules that the checks read, too."""
    actions: tuple[str, ...] = ("Deny",)
    operations: tuple[Operation, ...] = (Operation.CREATE,)
    query: NodeQuery | None = None
    allocatable: frozenset[str] = frozenset()
    total: frozenset[str] = frozenset()

    @property
    def reads_offers(self) -> bool:
        return bool(self.query or self.allocatable or self.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyScope:
    """The surroundings of a translation: the prefix of its variables, and the exported rules before it.

    `strict`: an error denies the pod, whatever the failurePolicy of the rule.
    """

    prefix: str
    before: tuple[Translation, ...] = ()
    rules: tuple[Rule, ...] = ()
    """All rules that change pods."""
    strict: bool = False


@dataclass(frozen=True, slots=True)
class StayingRule:
    """A rule that stays with the webhook, with the reason and the place of its cause."""

    rule: Rule
    reason: str
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRules:
    """The rules of a rule set that are exported, in the order of evaluation, and all others."""

    exported: tuple[Translation, ...] = ()
    staying: tuple[StayingRule, ...] = ()
    failure_policy: FailurePolicy = FailurePolicy.FAIL
    """The failurePolicy of the mutating policy."""

    @property
    def exported_ids(self) -> frozenset[str]:
        return frozenset(each.rule.id for each in self.exported)

    @property
    def mutations(self) -> tuple[Translation, ...]:
        return tuple(each for each in self.exported if each.mutation)

    def remaining(self, rule_set: RuleSet) -> RuleSet:
        """Return the rules that the webhook evaluates."""
        return rule_set.without(self.exported_ids)


def translate_rules(rule_set: RuleSet) -> NativeRules:
    """Translate the rules that the API server can evaluate itself, without changing a decision.

    A mutating policy is called before every webhook: a rule that changes pods is exported only if all rules before it
    that may change the same pods are.
    """
    rules = tuple(each.rule for each in rule_set.rules_at(Endpoint.MUTATE) if _enforces(each.rule))
    strict = any(each.failure_policy is FailurePolicy.FAIL for each in rules) or not rules
    exported: list[Translation] = []
    staying: list[StayingRule] = []
    used: set[str] = set()
    for group in rule_set.kinds:
        mutating = group.kind.endpoint is Endpoint.MUTATE
        for compiled in group.rules:
            rule = compiled.rule
            scope = PolicyScope(prefix=_unique_prefix(rule, used), before=tuple(exported), rules=rules, strict=strict)
            try:
                # A kind that always stays has a better reason than the order.
                if mutating and not rule.interests.writes:
                    _check_order(compiled, scope, [each.rule for each in staying])
                exported.append(group.kind.native(compiled, scope))
            except StaysError as error:
                staying.append(StayingRule(rule, str(error), error.location or rule.location))
    return NativeRules(
        exported=tuple(exported),
        staying=tuple(staying),
        failure_policy=FailurePolicy.FAIL if strict else FailurePolicy.IGNORE,
    )


def variables_of(translations: Iterable[Translation]) -> tuple[Variable, ...]:
    """Return the variables that the checks of these rules read, each once."""
    return tuple(dict.fromkeys(item for each in translations for item in (*each.check_variables, *each.variables)))


def _enforces(rule: Rule) -> bool:
    return rule.mode is Mode.ENFORCE


def _unique_prefix(rule: Rule, used: set[str]) -> str:
    """Return the prefix of a rule's variables: rules share policies."""
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", rule.kind).split()[-1].lower()
    prefix = f"{word}_{re.sub('[^a-z0-9]', '_', rule.name)}_"
    while prefix in used:
        prefix += "_"
    used.add(prefix)
    return prefix


def _check_order(compiled: CompiledRule[Rule], scope: PolicyScope, staying: Sequence[Rule]) -> None:
    rule = compiled.rule
    if not _enforces(rule):
        raise StaysError("mode: Audit: policies that change pods have no such mode", rule.origin.get(("spec", "mode")))
    for earlier in staying:
        if _enforces(earlier) and may_share_pods(earlier, rule):
            raise StaysError(f"{earlier.id} is evaluated before it, and stays with the webhook")
    for later in scope.rules:
        if later.interests.writes and may_share_pods(later, rule):
            raise StaysError(f"it decides with the pod as {later.id}, which stays with the webhook, will change it")
    if scope.strict and rule.failure_policy is FailurePolicy.IGNORE and rule.expressions:
        place = rule.origin.get(("spec", "failurePolicy"))
        raise StaysError(
            "failurePolicy: Ignore, while a rule of the same policy has Fail, and its expressions may fail", place
        )
