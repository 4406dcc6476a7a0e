"""Which of many rules a pod can meet at all, found without asking every one of them.

Rules are numbered in their order, and a set of them is an int: bit n stands for rule n. Each question that a rule asks
(operation, namespace, labels, GPU type, GPU resource) has a table from answers to such sets; what all questions leave
over is what a pod can meet. Only rules that would be skipped are left out, and only by questions that come before
anything of theirs that can fail: a decision is the same with and without, but for the steps of the skipped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Protocol, TypeAlias, TypeVar

from rules_engine.evaluation.rule_set import globs
from rules_engine.model.pod import Pod
from rules_engine.model.rules import ConditionKind, FallbackLadder, Match, ResourceInjection, Rule

MAX_NAMESPACES = 4096
"""Namespaces whose rules are remembered: more than most clusters have, at an eighth of a kilobyte for 1,000 rules."""

Positions: TypeAlias = int
"""A set of rules: bit n stands for the n-th."""

Fact: TypeAlias = str | tuple[str, str]
"""Something that holds of a pod: a resource or a label's key, or a label or annotation with its value."""


class HasRule(Protocol):
    """A rule, compiled."""

    @property
    def rule(self) -> Rule: ...


C = TypeVar("C", bound=HasRule)


@dataclass(frozen=True, slots=True)
class Demands:
    """Rules by the facts that one question asks of a pod: one of a rule's facts has to hold."""

    indifferent: Positions
    by_fact: Mapping[Fact, Positions]

    @classmethod
    def of(cls, asked: Iterable[frozenset[Fact] | None]) -> "Demands":
        """Each rule's facts in turn; None where it does not ask."""
        indifferent = 0
        by_fact: dict[Fact, Positions] = {}
        for position, facts in enumerate(asked):
            if facts is None:
                indifferent |= 1 << position
            else:
                for fact in facts:
                    by_fact[fact] = by_fact.get(fact, 0) | 1 << position
        return cls(indifferent, by_fact)

    def met(self, facts: Iterable[Fact]) -> Positions:
        """The rules whose question is answered well by these facts."""
        found = self.indifferent
        if self.by_fact:
            for fact in facts:
                found |= self.by_fact.get(fact, 0)
        return found


class Index(Generic[C]):
    """Compiled rules of one kind in their order, and how those that a pod can meet are found. It never changes."""

    __slots__ = ("_annotations", "_compiled", "_in_namespace", "_labels", "_operations", "_resources")

    def __init__(self, compiled: Sequence[C]) -> None:
        rules = [item.rule for item in compiled]
        self._compiled = tuple(compiled)
        self._operations = Demands.of(
            frozenset(operation.value for operation in rule.match.operations) for rule in rules
        )
        self._labels = Demands.of(map(_label_facts, rules))
        self._annotations = Demands.of(map(_annotation_facts, rules))
        self._resources = Demands.of(_resource_facts(rules))
        matches = tuple(rule.match for rule in rules)
        self._in_namespace = lru_cache(MAX_NAMESPACES)(lambda namespace: _in_namespace(matches, namespace))

    @property
    def operations(self) -> frozenset[Fact]:
        """Those that some rule is to be asked at."""
        return frozenset(self._operations.by_fact)

    def meeting(self, pod: Pod, namespace: str, operation: str) -> Sequence[C]:
        """The rules that the pod can meet, in their order."""
        found = self._in_namespace(namespace) & self._operations.met([operation])
        found &= self._labels.met([*pod.labels, *pod.labels.items()])
        found &= self._annotations.met(pod.annotations.items())
        found &= self._resources.met(pod.resources)
        return [self._compiled[position] for position in _positions(found)]


def _positions(found: Positions) -> Iterable[int]:
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


def _in_namespace(matches: Iterable[Match], namespace: str) -> Positions:
    found = 0
    for position, match in enumerate(matches):
        if globs.in_any(match.namespaces, namespace) and not globs.in_any(match.exclude_namespaces, namespace):
            found |= 1 << position
    return found


def _label_facts(rule: Rule) -> frozenset[Fact] | None:
    """What the first requirement that asks for a label asks; the selector itself sees to the others."""
    for requirement in rule.match.object_selector.requirements:
        if requirement.operator is ConditionKind.IN:
            return frozenset((requirement.key, value) for value in requirement.values)
        if requirement.operator is ConditionKind.EXISTS:
            return frozenset({requirement.key})
    return None


def _annotation_facts(rule: Rule) -> frozenset[Fact] | None:
    if not isinstance(rule, ResourceInjection) or rule.gpu_type is None or _can_fail(rule):
        return None
    return frozenset({(rule.gpu_type_annotation, rule.gpu_type)})


def _resource_facts(rules: Sequence[Rule]) -> Iterable[frozenset[Fact] | None]:
    """What a pod has to ask for; for a ladder also what other ladders could bring onto its rungs, since they ask it."""
    ladders = [rule for rule in rules if isinstance(rule, FallbackLadder)]
    beside: dict[str, set[str]] = {}
    for ladder in ladders:
        names = {rung.resource for rung in ladder.rungs}
        for name in names:
            beside.setdefault(name, set()).update(names)
    for rule in rules:
        if _can_fail(rule):
            yield None
        elif isinstance(rule, FallbackLadder):
            yield frozenset[Fact]().union(*(beside[rung.resource] for rung in rule.rungs))
        elif isinstance(rule, ResourceInjection):
            yield frozenset({rule.gpu_resource})
        else:
            yield None


def _can_fail(rule: Rule) -> bool:
    """Whether asking if a rule applies can be an error, which has to be heard before its type and resource are."""
    return bool(rule.match_conditions or rule.match.namespace_selector)
