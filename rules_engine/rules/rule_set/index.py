"""Index of rules: the rules that may apply to a pod are found without evaluating the others.

Rules are numbered in their order, and a set of them is an int: bit n stands for rule n. Each criterion of rules
(operation, namespace, labels, GPU type, GPU resource) has a table from values to such sets; their intersection is what
may apply to a pod. Only rules that would be skipped are excluded, and only by criteria that precede any that can fail:
a decision is the same with and without the index, but for the steps of the rules that it excludes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeAlias

from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.rules.rule import ConditionKind, Match, Mode, Rule
from rules_engine.rules.rule_set import globs
from rules_engine.rules.rule_set.compiled import CompiledRule

MAX_NAMESPACES = 4096
"""Namespaces whose rules are cached: more than most clusters have, at an eighth of a kilobyte for 1,000 rules."""

Positions: TypeAlias = int
"""A set of rules: bit n stands for the n-th."""

Fact: TypeAlias = str | tuple[str, str]
"""A fact about a pod: a resource or a label's key, or a label or annotation with its value."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Rules by one criterion: a pod must have one of a rule's facts."""

    indifferent: Positions
    by_fact: Mapping[Fact, Positions]

    @classmethod
    def of(cls, required: Iterable[frozenset[Fact] | None]) -> "Demands":
        """Index each rule's facts, in order; None: the rule does not have the criterion."""
        indifferent = 0
        by_fact: dict[Fact, Positions] = {}
        for position, facts in enumerate(required):
            if facts is None:
                indifferent |= 1 << position
            else:
                for fact in facts:
                    by_fact[fact] = by_fact.get(fact, 0) | 1 << position
        return cls(indifferent, by_fact)

    def met(self, facts: Iterable[Fact]) -> Positions:
        """Return the rules whose criterion these facts meet."""
        positions = self.indifferent
        if self.by_fact:
            for fact in facts:
                positions |= self.by_fact.get(fact, 0)
        return positions


class RuleIndex:
    """Compiled rules of one kind in their order, indexed by the pods they may apply to. It never changes."""

    __slots__ = ("_annotations", "_compiled", "_in_namespace", "_labels", "_operations", "_resources", "given")

    def __init__(self, compiled: Sequence[CompiledRule[Rule]]) -> None:
        rules = [item.rule for item in compiled]
        self._compiled = tuple(compiled)
        self._operations = Demands.of(
            frozenset(operation.value for operation in rule.match.operations) for rule in rules
        )
        self._labels = Demands.of(map(_label_facts, rules))
        self._annotations = Demands.of(map(_annotation_facts, rules))
        self._resources = Demands.of(_resource_facts(rules))
        matches = tuple(rule.match for rule in rules)
        self._in_namespace = in_namespace = lru_cache(MAX_NAMESPACES)(partial(_rules_in_namespace, matches))
        gives = [rule.interests.gives if rule.mode is Mode.ENFORCE else frozenset[str]() for rule in rules]
        self.given: Callable[[str], frozenset[str]] = lru_cache(MAX_NAMESPACES)(
            lambda namespace: frozenset[str]().union(*[gives[each] for each in _positions_in(in_namespace(namespace))])
        )
        """The resources that rules which match a namespace give or move, without rules in audit mode."""

    def candidates(self, pod: Pod, namespace: str, operation: str) -> Sequence[CompiledRule[Rule]]:
        """Return the rules that may apply to the pod, in their order."""
        positions = self._in_namespace(namespace) & self._operations.met([operation])
        positions &= self._labels.met([*pod.labels, *pod.labels.items()])
        positions &= self._annotations.met(pod.annotations.items())
        positions &= self._resources.met(pod.resources)
        return [self._compiled[position] for position in _positions_in(positions)]


def _positions_in(remaining: Positions) -> Iterable[int]:
    while remaining:
        lowest = remaining & -remaining
        yield lowest.bit_length() - 1
        remaining ^= lowest


def _rules_in_namespace(matches: Iterable[Match], namespace: str) -> Positions:
    positions = 0
    for position, match in enumerate(matches):
        if globs.matches_any(match.namespaces, namespace) and not globs.matches_any(
            match.exclude_namespaces, namespace
        ):
            positions |= 1 << position
    return positions


def _label_facts(rule: Rule) -> frozenset[Fact] | None:
    """Return the facts of the first requirement for a label; the others are left to the selector itself."""
    for requirement in rule.match.object_selector.requirements:
        if requirement.operator is ConditionKind.IN:
            return frozenset((requirement.key, value) for value in requirement.values)
        if requirement.operator is ConditionKind.EXISTS:
            return frozenset({requirement.key})
    return None


def _annotation_facts(rule: Rule) -> frozenset[Fact] | None:
    annotation = rule.interests.annotation
    return None if annotation is None or _matching_can_fail(rule) else frozenset({annotation})


def _resource_facts(rules: Sequence[Rule]) -> Iterable[frozenset[Fact] | None]:
    """Yield, per rule, the resources of which a pod must name one: its own, and ones that other rules move to them."""
    beside: dict[str, set[str]] = {}
    for rule in rules:
        if rule.interests.moves:
            for name in rule.interests.resources or ():
                beside.setdefault(name, set()).update(rule.interests.resources or ())
    for rule in rules:
        resources = rule.interests.resources
        if resources is None or _matching_can_fail(rule):
            yield None
        else:
            yield frozenset[Fact](resources).union(*(beside.get(name, ()) for name in resources))


def _matching_can_fail(rule: Rule) -> bool:
    """Return True if matching can fail: such an error precedes the resources and annotations of the rule's kind."""
    return bool(rule.match_conditions or rule.match.namespace_selector)
