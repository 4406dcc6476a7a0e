"""`list`: rules and their digest, or the rules that can apply in a namespace, with the place of each setting."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Literal

from msgspec import Meta

from rules_engine.cluster.read.loader import LoadResult
from rules_engine.language.fields import camel_case
from rules_engine.model.json.output import Output
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.problems.problem import Problem, sort_problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.finding import FindingSeverity
from rules_engine.model.rules.rule import LabelSelector, Mode, Rule, Setting, field_setting
from rules_engine.report.answer import Answer
from rules_engine.rules.diagnostic.evaluation import compile_diagnostics
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.kinds import KINDS, sort_rules
from rules_engine.rules.overlap import contradictory_key
from rules_engine.rules.rule_set import globs
from rules_engine.rules.rule_set.compiled import RuleKind
from rules_engine.rules.sources.documents import DIAGNOSTIC
from rules_engine.rules.sources.load import RULES
from rules_engine.rules.sources.rule_files import has_errors, no_rules_problem
from rules_engine.rules.sources.rule_sources import RuleSource, load_sources

Labels = Mapping[str, str]

_NOT_SETTINGS = frozenset({"name", "description"})
"""Scalar fields of a rule that do not change its decisions."""

ExcludingField = Literal[
    "mode", "match.namespaces", "match.excludeNamespaces", "match.namespaceSelector", "match.objectSelector"
]


class ListedRule(Output, frozen=True, kw_only=True):
    """A rule; with a namespace, its settings there."""

    kind: str
    name: str
    mode: Mode
    priority: int
    source: Location
    endpoint: Annotated[Literal["mutate", "validate"], Meta(description="That evaluates the rule.")]
    description: str
    settings: Annotated[tuple[Setting, ...] | None, Meta(description="In the namespace. Null without --namespace.")]


class ExcludedRule(Output, frozen=True, kw_only=True):
    """A rule that cannot apply in the namespace."""

    rule: Annotated[str, Meta(description="Kind and name.")]
    field: Annotated[ExcludingField, Meta(description="The first field that excludes it.")]
    source: Annotated[Location, Meta(description="Of that field.")]


class ListedDiagnostic(Output, frozen=True, kw_only=True):
    """A Diagnostic."""

    name: str
    for_each: Annotated[str, Meta(description="The kind of objects that it is evaluated on.")]
    reason: Annotated[str, Meta(description="Of its findings.")]
    severity: FindingSeverity
    source: Location


class RuleList(Answer, frozen=True, kw_only=True):
    """The rules of sources; with a namespace, those that can apply there."""

    digest: Annotated[str, Meta(description="As a server with these rules reports it.")]
    namespace: Annotated[str | None, Meta(description="Null without --namespace.")]
    labels: Annotated[Labels | None, Meta(description="Of the namespace. Null: not known, so any are possible.")]
    pod_labels: Annotated[Labels | None, Meta(description="Of the pods. Null: not known, so any are possible.")]
    rules: Annotated[tuple[ListedRule, ...], Meta(description="Those of a kind are in order of evaluation.")]
    excluded: Annotated[tuple[ExcludedRule, ...], Meta(description="Rules that cannot apply in the namespace.")]
    diagnostics: Annotated[tuple[ListedDiagnostic, ...], Meta(description="By name. Empty with --namespace.")]


def load_listed(sources: Sequence[RuleSource]) -> tuple[LoadResult, Sequence[Problem]]:
    """Load and compile rules and Diagnostics, and return all problems; it is a problem if there are none."""
    files = load_sources(sources, (*RULES, DIAGNOSTIC))
    loaded = files.loaded
    diagnostics = loaded.of(Diagnostic)
    _, diagnostic_problems = compile_diagnostics((*diagnostics, *loaded.of(Diagnostic, valid=False)))
    problems = sort_problems((*files.problems, *diagnostic_problems), loaded.files)
    if not (loaded.rules or diagnostics or has_errors(problems)):
        problems = (*problems, no_rules_problem(sources))
    return loaded, problems


def list_rules(
    loaded: LoadResult,
    *,
    problems: Sequence[Problem] = (),
    namespace: str | None = None,
    labels: Labels | None = None,
    pod_labels: Labels | None = None,
    kinds: Sequence[RuleKind] = KINDS,
) -> RuleList:
    """List all rules, also those that are Off, and Diagnostics; or the rules that can apply in a namespace.

    If labels are unknown, rules for any labels can apply. The label with the namespace's name is always known.
    """
    all_labels = None if labels is None or namespace is None else {**labels, NAMESPACE_NAME_LABEL: namespace}
    diagnostics = loaded.of(Diagnostic) if namespace is None else ()
    listed: list[ListedRule] = []
    excluded: list[ExcludedRule] = []
    kind_of = {kind.name: kind for kind in kinds}
    for rule in sort_rules(loaded.rules, kinds):
        exclusion = None if namespace is None else _find_exclusion(rule, namespace, all_labels, pod_labels)
        if exclusion is None:
            kind = kind_of[rule.kind]
            settings = None if namespace is None else (*_rule_settings(rule), *kind.effective(rule, namespace))
            listed.append(
                ListedRule(
                    kind=rule.kind,
                    name=rule.name,
                    mode=rule.mode,
                    priority=rule.priority,
                    source=rule.location,
                    endpoint="mutate" if kind.endpoint is Endpoint.MUTATE else "validate",
                    description=rule.description,
                    settings=settings,
                )
            )
        else:
            excluded.append(exclusion)
    return RuleList(
        problems=tuple(problems),
        digest=loaded.digest,
        namespace=namespace,
        labels=all_labels,
        pod_labels=pod_labels,
        rules=tuple(listed),
        excluded=tuple(excluded),
        diagnostics=tuple(
            ListedDiagnostic(
                name=each.name, for_each=each.for_each, reason=each.reason, severity=each.severity, source=each.location
            )
            for each in sorted(diagnostics, key=lambda diagnostic: diagnostic.name)
        ),
    )


def _find_exclusion(
    rule: Rule, namespace: str, labels: Labels | None, pod_labels: Labels | None
) -> ExcludedRule | None:
    """Return the rule with the first field that excludes it; None if it can apply."""
    match = rule.match
    by_name = {NAMESPACE_NAME_LABEL: namespace}
    checks: tuple[tuple[ExcludingField, bool], ...] = (
        ("mode", rule.mode is Mode.OFF),
        ("match.namespaces", not globs.matches_any(match.namespaces, namespace)),
        ("match.excludeNamespaces", globs.matches_any(match.exclude_namespaces, namespace)),
        ("match.namespaceSelector", not _can_match(match.namespace_selector, labels, by_name)),
        ("match.objectSelector", not _can_match(match.object_selector, pod_labels, {})),
    )
    for field, excludes in checks:
        if excludes:
            owner, _, name = field.rpartition(".")
            source = rule.origin.get((owner or "spec", name), rule.location)
            return ExcludedRule(rule=rule.id, field=field, source=source)
    return None


def _can_match(selector: LabelSelector, labels: Labels | None, certain: Labels) -> bool:
    """Return True if a selector matches the labels or, if they are unknown, any labels that include `certain`."""
    if labels is not None:
        return selector.matches(labels)
    return contradictory_key(selector) is None and all(
        requirement.matches(certain) for requirement in selector.requirements if requirement.key in certain
    )


def _rule_settings(rule: Rule) -> Iterator[Setting]:
    """Yield the settings common to all kinds of rules, which are the same in every namespace."""
    origin = rule.origin
    for each in dataclasses.fields(rule.match):
        name, given = camel_case(each.name), getattr(rule.match, each.name)
        place = origin.get(("match", name))
        if place is not None or name == "namespaces":
            value: Json = str(given)
            if not isinstance(given, LabelSelector):
                value = [item.value if isinstance(item, Enum) else item for item in given]
            yield field_setting(f"match.{name}", value, place)
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


def _scalar_fields(rule: Rule) -> Iterator[tuple[str, Json]]:
    """Yield the scalar fields, by their names in YAML."""
    for field in dataclasses.fields(rule):
        value = getattr(rule, field.name)
        if field.init and field.name not in _NOT_SETTINGS and isinstance(value, Enum | str | int):
            yield camel_case(field.name), value.value if isinstance(value, Enum) else value
