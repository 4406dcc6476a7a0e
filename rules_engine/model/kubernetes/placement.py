"""Placement of a pod: nodeSelector, required node affinity and tolerations, as the scheduler reads them.

A pod may be as large as a request, so these readers bound all that they read, and with it the cost of a decision.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Self

from msgspec import Struct

from rules_engine.model.json.patch import Json, json_pointer
from rules_engine.model.json.strict import (
    JsonPath,
    PodError,
    TooLargeError,
    json_type,
    read_list,
    read_mapping,
    read_string,
    read_string_map,
)

PLACEMENT_MEMBERS = ("affinity", "nodeName", "nodeSelector", "tolerations")
"""Members of a Pod's spec that restrict its nodes."""

MAX_TERMS = 1_000
"""Node selector terms of one pod: people write a handful. Each is a few set operations over all nodes, some 10 µs."""

MAX_REQUIREMENTS = 10_000
"""Labels of the nodeSelector, expressions and their values together: each is a look-up or two, about a microsecond. A
pod that lists the names of 5,000 nodes is below this bound."""

MAX_TOLERATIONS = 1_000
"""Tolerations of one pod: ten times what the largest add-ons write."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")
"""A decimal integer in the value of a label, which has 63 characters at most."""

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_NODE_SELECTOR: JsonPath = ("spec", "nodeSelector")
TERM_MEMBERS = ("matchExpressions", "matchFields")


class Toleration(Struct, frozen=True, kw_only=True):
    """A toleration; "" stands for an absent member."""

    key: str
    operator: str
    value: str
    effect: str


class NodeExpression(Struct, frozen=True, dict=True):
    """One expression of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...]

    @cached_property
    def distinct(self) -> frozenset[str]:
        """The values, for lookups: there may be thousands."""
        return frozenset(self.values)


class NodeTerm(Struct, frozen=True):
    """A node selector term: all of its expressions and fields hold; an empty term matches no node."""

    expressions: tuple[NodeExpression, ...]
    fields: tuple[NodeExpression, ...]


class Placement(Struct, frozen=True, kw_only=True):
    """A pod's requirements of its node. `terms` None: no required affinity; an empty tuple matches no node."""

    node_name: str
    node_selector: tuple[tuple[str, str], ...]
    terms: tuple[NodeTerm, ...] | None
    tolerations: tuple[Toleration, ...]

    @property
    def size(self) -> int:
        """The number of labels, expressions, values and tolerations."""
        expressions = [each for term in self.terms or () for each in (*term.expressions, *term.fields)]
        values = sum(len(each.values) for each in expressions)
        return len(self.node_selector) + len(self.tolerations) + len(expressions) + values

    @classmethod
    def parse(cls, spec: Mapping[str, Json]) -> Self:
        """Read a Pod's spec. Raises PodError, and TooLargeError beyond the bounds of this module."""
        affinity, node_selector = spec.get("affinity"), spec.get("nodeSelector")
        count = _RequirementCount("labels of the nodeSelector, expressions and values of required node affinity")
        count.add(len(read_mapping(node_selector, _NODE_SELECTOR)), _NODE_SELECTOR)
        return cls(
            node_name=read_string(spec.get("nodeName"), ("spec", "nodeName")),
            node_selector=tuple(read_string_map(node_selector, _NODE_SELECTOR).items()),
            terms=None if affinity is None else _read_required_terms(affinity, count),
            tolerations=tuple(_read_tolerations(spec.get("tolerations"))),
        )


def parse_label_integer(value: str) -> int | None:
    """Return the integer of 64 bits that Gt and Lt compare, or None (apimachinery/pkg/labels/selector.go)."""
    if not _INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None


class PreferredTerm(Struct, frozen=True):
    """A term of preferred node affinity: it adds its weight to the score of the nodes that it matches."""

    weight: int
    term: NodeTerm


def read_preferred_terms(spec: Mapping[str, Json]) -> tuple[PreferredTerm, ...] | None:
    """Return a Pod's terms of preferred node affinity; None if it has none. Terms that match no node are left out.

    Raises PodError, and TooLargeError beyond the bounds of this module.
    """
    at: JsonPath = ("spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
    value: Json = spec.get("affinity")
    for depth, name in enumerate(("nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"), 2):
        value = read_mapping(value, at[:depth]).get(name)
    raw_terms = read_list(value, at)
    if len(raw_terms) > MAX_TERMS:
        raise TooLargeError(at, len(raw_terms), "terms of preferred node affinity", MAX_TERMS)
    count = _RequirementCount("expressions and values of preferred node affinity")
    terms = [_read_preferred_term(raw, (*at, index), count) for index, raw in enumerate(raw_terms)]
    scored = [term for term in terms if term.weight and (term.term.expressions or term.term.fields)]
    return tuple(scored) if terms else None


def _read_preferred_term(raw: Json, at: JsonPath, count: "_RequirementCount") -> PreferredTerm:
    members = read_mapping(raw, at)
    weight = members.get("weight", 0)
    if type(weight) is not int:
        raise PodError(json_pointer(*at, "weight"), f"must be an integer, not {json_type(weight)}")
    return PreferredTerm(weight, _read_term(members.get("preference"), (*at, "preference"), count))


class _RequirementCount:
    """Count of a pod's requirements, or preferences, bounded by MAX_REQUIREMENTS."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._total = 0

    def add(self, more: int, path: JsonPath) -> None:
        """Add requirements. Raises TooLargeError if there are too many in all."""
        self._total += more
        if self._total > MAX_REQUIREMENTS:
            raise TooLargeError(path, self._total, self._noun, MAX_REQUIREMENTS)


def _read_tolerations(raw: Json) -> Iterator[Toleration]:
    at: JsonPath = ("spec", "tolerations")
    tolerations = read_list(raw, at)
    if len(tolerations) > MAX_TOLERATIONS:
        raise TooLargeError(at, len(tolerations), "tolerations", MAX_TOLERATIONS)
    for index, item in enumerate(tolerations):
        here = (*at, index)
        members = read_mapping(item, here)
        key, operator, value, effect = [
            text if type(text := members.get(name, "")) is str else read_string(text, (*here, name))
            for name in ("key", "operator", "value", "effect")
        ]
        yield Toleration(key=key, operator=operator, value=value, effect=effect)


def _read_required_terms(affinity: Json, count: _RequirementCount) -> tuple[NodeTerm, ...] | None:
    at: JsonPath = ("spec", "affinity")
    for name in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        affinity = read_mapping(affinity, at).get(name)
        at = (*at, name)
    if affinity is None:
        return None
    return _read_terms(affinity, at, "terms of required node affinity", count)


def read_node_terms(raw: Json, path: JsonPath) -> tuple[NodeTerm, ...]:
    """Read the terms of a node selector. Raises PodError, and TooLargeError beyond the bounds of this module."""
    count = _RequirementCount("expressions and values of a node selector")
    return _read_terms(raw, path, "terms of a node selector", count)


def _read_terms(raw: Json, path: JsonPath, noun: str, count: _RequirementCount) -> tuple[NodeTerm, ...]:
    at: JsonPath = (*path, "nodeSelectorTerms")
    terms = read_list(read_mapping(raw, path).get("nodeSelectorTerms"), at)
    if len(terms) > MAX_TERMS:
        raise TooLargeError(at, len(terms), noun, MAX_TERMS)
    # Empty terms match no node: they are left out.
    return tuple(
        term
        for index, raw in enumerate(terms)
        if (term := _read_term(raw, (*at, index), count)).expressions or term.fields
    )


def _read_term(raw: Json, at: JsonPath, count: _RequirementCount) -> NodeTerm:
    members = read_mapping(raw, at)
    return NodeTerm(*[_read_expressions(members.get(name), (*at, name), count) for name in TERM_MEMBERS])


def _read_expressions(raw: Json, at: JsonPath, count: _RequirementCount) -> tuple[NodeExpression, ...]:
    expressions = read_list(raw, at)
    count.add(len(expressions), at)
    return tuple(_read_expression(item, (*at, index), count) for index, item in enumerate(expressions))


def _read_expression(raw: Json, at: JsonPath, count: _RequirementCount) -> NodeExpression:
    members = read_mapping(raw, at)
    operator = read_string(members.get("operator"), (*at, "operator"))
    if operator not in _OPERATORS:
        raise PodError(json_pointer(*at, "operator"), f"must be one of {', '.join(sorted(_OPERATORS))}")
    values = read_list(members.get("values"), (*at, "values"))
    count.add(len(values), (*at, "values"))
    return NodeExpression(
        read_string(members.get("key"), (*at, "key")),
        operator,
        tuple(read_string(value, (*at, "values", index)) for index, value in enumerate(values)),
    )
