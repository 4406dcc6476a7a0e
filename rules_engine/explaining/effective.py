"""`gpu-rules effective`: the rules that can apply in a namespace, with the location of each setting."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from rules_engine.evaluation.rule_set import globs
from rules_engine.kinds import KINDS, Kind
from rules_engine.kinds.overlap import always_first, contradictory_key, precedence_basis
from rules_engine.loading.fields import camel_case
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import LabelRequirement, LabelSelector, Mode, Rule, RuleId, Setting, field_setting
from rules_engine.report.documents import location_members

Labels = Mapping[str, str]

MAX_PRECEDING = 10
"""Earlier rules listed for a rule that decide some of its pods; rules that decide all of them are always listed.
Without a limit, the output for n rules of one resource would have n² lines."""

_NOT_SETTINGS = frozenset({"name", "description"})
"""Scalar fields of a rule that do not change its decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preceding:
    """An earlier rule that decides `resources` before a later rule: `always`, or if the pod matches its conditions.

    `by`: the field that decides the order, priority or name.
    """

    rule: Rule
    resources: tuple[str, ...]
    by: str
    always: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveRule:
    """A rule that can apply in the namespace, with its settings there."""

    rule: Rule
    endpoint: Endpoint
    settings: tuple[Setting, ...]
    preceded_by: tuple[Preceding, ...]
    more_preceding: bool
    """True if more than MAX_PRECEDING earlier rules may decide; the others are omitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRule:
    """A rule that cannot apply in the namespace, since the field at `location` excludes it."""

    rule: Rule
    field: str
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveRules:
    """The rules that can apply in a namespace, in the order of evaluation, and all others.

    `labels`: the labels of the namespace; `pod_labels`: the labels of the pods; None: unknown, so any are possible.
    """

    namespace: str
    labels: Labels | None
    pod_labels: Labels | None
    rules: tuple[EffectiveRule, ...]
    others: tuple[OtherRule, ...]

    def to_json(self) -> dict[str, Json]:
        """Return the view for `--output json`; schemas/output/effective.json describes it."""
        return {
            "namespace": self.namespace,
            "labels": None if self.labels is None else {**self.labels},
            "podLabels": None if self.pod_labels is None else {**self.pod_labels},
            "rules": [_rule_json(rule) for rule in self.rules],
            "others": [
                {"rule": other.rule.id, "field": other.field, "source": location_members(other.location)}
                for other in self.others
            ],
        }


def effective_rules(
    rules: Sequence[Rule],
    namespace: str,
    *,
    labels: Labels | None = None,
    pod_labels: Labels | None = None,
    kinds: Sequence[Kind] = KINDS,
) -> EffectiveRules:
    """Return the rules that can apply in a namespace. If labels are unknown, rules for any labels can apply.

    The label with the namespace's name is always known.
    """
    all_labels = None if labels is None else {**labels, NAMESPACE_NAME_LABEL: namespace}
    applicable: list[EffectiveRule] = []
    others: list[OtherRule] = []
    for kind in kinds:
        earlier = _EarlierRules()
        for rule in sorted((rule for rule in rules if rule.kind == kind.name), key=lambda rule: rule.order):
            other = _find_exclusion(rule, namespace, all_labels, pod_labels)
            if other is not None:
                others.append(other)
                continue
            inside = _NamespaceRule(rule, namespace, all_labels, pod_labels)
            preceding, more = earlier.preceding(inside)
            applicable.append(
                EffectiveRule(
                    rule=rule,
                    endpoint=kind.endpoint,
                    settings=(*_rule_settings(rule), *kind.effective(rule, namespace)),
                    preceded_by=preceding,
                    more_preceding=more,
                )
            )
            if rule.mode is Mode.ENFORCE:
                earlier.add(inside, preceding)
    return EffectiveRules(
        namespace=namespace, labels=all_labels, pod_labels=pod_labels, rules=tuple(applicable), others=tuple(others)
    )


def _find_exclusion(rule: Rule, namespace: str, labels: Labels | None, pod_labels: Labels | None) -> OtherRule | None:
    """Return the rule with the first field that excludes it; None if it can apply."""
    match = rule.match
    by_name = {NAMESPACE_NAME_LABEL: namespace}
    checks = (
        ("spec", "mode", rule.mode is Mode.OFF),
        ("match", "namespaces", not globs.matches_any(match.namespaces, namespace)),
        ("match", "excludeNamespaces", globs.matches_any(match.exclude_namespaces, namespace)),
        ("match", "namespaceSelector", not _can_match(match.namespace_selector, labels, by_name)),
        ("match", "objectSelector", not _can_match(match.object_selector, pod_labels, {})),
    )
    for owner, field, excludes in checks:
        if excludes:
            path = field if owner == "spec" else f"{owner}.{field}"
            return OtherRule(rule=rule, field=path, location=rule.origin.get((owner, field), rule.location))
    return None


def _can_match(selector: LabelSelector, labels: Labels | None, certain: Labels) -> bool:
    """Return True if a selector matches the labels or, if they are unknown, any labels that include `certain`."""
    if labels is not None:
        return selector.matches(labels)
    return contradictory_key(selector) is None and all(
        requirement.matches(certain) for requirement in selector.requirements if requirement.key in certain
    )


class _EarlierRules:
    """Enforcing rules of one kind in the order of evaluation, by the resources that they decide."""

    def __init__(self) -> None:
        self._rules: dict[str, dict[RuleId, _NamespaceRule]] = {}
        self._unconditional: dict[tuple[str, LabelRequirement | None], list[_NamespaceRule]] = {}
        """Rules without conditions, by resource and one requirement of their selectors.

        A rule covers only later rules with all its requirements, so they are found by any one of them."""

    def add(self, inside: "_NamespaceRule", preceding: Sequence[Preceding]) -> None:
        """Add a rule for its resources, except for resources that earlier rules always decide."""
        decided = {resource for first in preceding if first.always for resource in first.resources}
        for resource in inside.resources:
            if resource not in decided:
                self._rules.setdefault(resource, {})[inside.rule.id] = inside
                if not inside.rule.match_conditions:
                    requirement = next(iter(inside.requirements), None)
                    self._unconditional.setdefault((resource, requirement), []).append(inside)

    def preceding(self, later: "_NamespaceRule") -> tuple[tuple[Preceding, ...], bool]:
        """Return the earlier rules that decide resources of a later rule, and True if some are omitted."""
        certain = {resource: first for resource in later.resources if (first := self._certain(resource, later))}
        preceding = {first.rule.id: first for first in certain.values()}
        always, limit, more = {*preceding}, len(preceding) + MAX_PRECEDING, False
        for resource in later.resources:
            for id_, earlier in self._rules.get(resource, {}).items():
                if earlier is certain.get(resource):
                    break
                if id_ in preceding or earlier.is_disjoint(later):
                    continue
                if len(preceding) == limit:
                    more = True
                    break
                preceding[id_] = earlier
        return tuple(
            Preceding(
                rule=earlier.rule,
                resources=tuple(
                    resource
                    for resource in later.resources
                    if id_ in self._rules.get(resource, ())
                    and (resource not in certain or earlier.rule.order <= certain[resource].rule.order)
                ),
                by=precedence_basis(earlier.rule, later.rule),
                always=id_ in always,
            )
            for id_, earlier in sorted(preceding.items(), key=lambda item: item[1].rule.order)
        ), more

    def _certain(self, resource: str, later: "_NamespaceRule") -> "_NamespaceRule | None":
        """Return the first rule that always decides a resource before a later rule."""
        firsts = [
            next((earlier for earlier in self._unconditional.get((resource, key), ()) if earlier.covers(later)), None)
            for key in (None, *later.requirements)
        ]
        return min(filter(None, firsts), key=lambda earlier: earlier.rule.order, default=None)


class _NamespaceRule:
    """A rule that can apply in the namespace, without the parts of its match that are certain to match there.

    This leaves what depends on the pod, so that `always_first` compares two rules within the namespace.
    """

    def __init__(self, rule: Rule, namespace: str, labels: Labels | None, pod_labels: Labels | None) -> None:
        every, match = LabelSelector(), rule.match
        interests = rule.interests
        self.rule = replace(
            rule,
            match=replace(
                match,
                namespaces=(namespace,),
                exclude_namespaces=(),
                namespace_selector=match.namespace_selector if labels is None else every,
                object_selector=match.object_selector if pod_labels is None else every,
            ),
        )
        self.resources = tuple(sorted(interests.resources or ()))
        self.annotation = interests.annotation

    @property
    def requirements(self) -> tuple[LabelRequirement, ...]:
        match = self.rule.match
        return (*match.namespace_selector.requirements, *match.object_selector.requirements)

    def is_disjoint(self, other: "_NamespaceRule") -> bool:
        """Return True if the rules need different values of one annotation, so that no pod matches both."""
        left, right = self.annotation, other.annotation
        return left is not None and right is not None and left[0] == right[0] and left != right

    def covers(self, later: "_NamespaceRule") -> bool:
        """Return True if the rule decides every request that both it and a later rule match."""
        return self.annotation in (None, later.annotation) and always_first(self.rule, later.rule)


def _rule_settings(rule: Rule) -> Iterator[Setting]:
    """Yield the settings common to all kinds of rules, which are the same in every namespace."""
    origin = rule.origin
    for field, value in _match_fields(rule):
        place = origin.get(("match", field))
        if place is not None or field == "namespaces":
            yield field_setting(f"match.{field}", value, place)
    for field, value in _scalar_fields(rule):
        if value != "" or ("spec", field) in origin:
            yield field_setting(field, value, origin.get(("spec", field)))
    for name, value in rule.params.items():
        yield field_setting(f"params.{name}", value, origin.get(("params", name)))
    for field, expressions in (("variables", rule.variables), ("matchConditions", rule.match_conditions)):
        for index, item in enumerate(expressions):
            yield Setting(
                name=f"{field}.{item.name}",
                value=item.expression.text,
                field=f"{field}[{index}].expression",
                location=item.expression.location,
            )


def _match_fields(rule: Rule) -> tuple[tuple[str, Json], ...]:
    match = rule.match
    return (
        ("namespaces", [*match.namespaces]),
        ("excludeNamespaces", [*match.exclude_namespaces]),
        ("namespaceSelector", str(match.namespace_selector)),
        ("objectSelector", str(match.object_selector)),
        ("resources", [*match.resources]),
        ("operations", [operation.value for operation in match.operations]),
    )


def _scalar_fields(rule: Rule) -> Iterator[tuple[str, Json]]:
    """Yield the scalar fields, by their names in YAML."""
    for field in dataclasses.fields(rule):
        value = getattr(rule, field.name)
        if field.init and field.name not in _NOT_SETTINGS and isinstance(value, Enum | str | int):
            yield camel_case(field.name), value.value if isinstance(value, Enum) else value


def _rule_json(item: EffectiveRule) -> dict[str, Json]:
    rule = item.rule
    return {
        "rule": rule.id,
        "source": location_members(rule.location),
        "endpoint": item.endpoint.name.lower(),
        "description": rule.description,
        "settings": [_setting_json(setting) for setting in item.settings],
        "morePreceding": item.more_preceding,
        "precededBy": [
            {
                "rule": first.rule.id,
                "source": location_members(first.rule.location),
                "resources": [*first.resources],
                "by": first.by,
                "always": first.always,
            }
            for first in item.preceded_by
        ],
    }


def _setting_json(setting: Setting) -> dict[str, Json]:
    overridden = setting.overrides
    return {
        "name": setting.name,
        "value": setting.value,
        "field": setting.field,
        "source": None if setting.location is None else location_members(setting.location),
        "inherited": setting.inherited,
        "overrides": None if overridden is None else _setting_json(overridden),
    }
