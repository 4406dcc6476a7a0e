"""Where a pod may run: nodeSelector, required node affinity and tolerations, as the scheduler reads them.

Source: k8s.io/component-helpers/scheduling/corev1 (nodeaffinity), k8s.io/api/core/v1 (Toleration.ToleratesTaint).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Self

from rules_engine.model.cluster import Node, Taint
from rules_engine.model.patch import Json, pointer
from rules_engine.model.reading import Path, PodError, items, mapping, string, strings
from rules_engine.model.record import record

PLACEMENT_MEMBERS = ("affinity", "nodeName", "nodeSelector", "tolerations")
"""What of a Pod's spec says where it may run."""

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_REPELLING = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep a pod off a node; PreferNoSchedule does not."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


@record(kw_only=True)
class Toleration:
    """A toleration; "" stands for an absent member."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """An empty effect or key stands for all of them; the default operator is Equal."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator == "Exists":
            return True
        # An empty key is only allowed with Exists.
        return self.operator in ("", "Equal") and bool(self.key) and self.value == taint.value


@record()
class NodeRequirement:
    """One expression of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...]

    def holds(self, labels: Mapping[str, str]) -> bool:
        """As for label selectors, with Gt and Lt on whole numbers besides."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return self._compares(value or "")

    def _compares(self, value: str) -> bool:
        texts = (value, *self.values)
        if len(texts) != 2 or not all(map(_INTEGER.fullmatch, texts)):
            return False
        left, right = map(int, texts)
        return left > right if self.operator == "Gt" else left < right


@record()
class NodeTerm:
    """A node selector term: all of its expressions and fields hold; an empty one matches no node."""

    expressions: tuple[NodeRequirement, ...]
    fields: tuple[NodeRequirement, ...]

    def matches(self, node: Node) -> bool:
        if not self.expressions and not self.fields:
            return False
        fields = {"metadata.name": node.name}
        return all(e.holds(node.labels) for e in self.expressions) and all(f.holds(fields) for f in self.fields)


@record(kw_only=True)
class Placement:
    """What a pod demands of its node; `terms` None: no required affinity, which is not the same as no term."""

    node_name: str
    node_selector: tuple[tuple[str, str], ...]
    terms: tuple[NodeTerm, ...] | None
    tolerations: tuple[Toleration, ...]

    @classmethod
    def parse(cls, spec: Mapping[str, Json]) -> Self:
        """Read a Pod's spec. Raises PodError."""
        affinity, selector = spec.get("affinity"), spec.get("nodeSelector")
        return cls(
            node_name=string(spec.get("nodeName"), ("spec", "nodeName")),
            node_selector=() if selector is None else tuple(strings(selector, ("spec", "nodeSelector")).items()),
            terms=None if affinity is None else _terms(affinity),
            tolerations=tuple(_tolerations(spec.get("tolerations"))),
        )

    def matches(self, node: Node) -> bool:
        """Whether the scheduler's node affinity and taint filters would let the pod onto the node."""
        if self.node_name:
            return self.node_name == node.name
        return (
            all(node.labels.get(key) == value for key, value in self.node_selector)
            and (self.terms is None or any(term.matches(node) for term in self.terms))
            and all(self._tolerates(taint) for taint in node.taints if taint.effect in _REPELLING)
        )

    def _tolerates(self, taint: Taint) -> bool:
        return any(toleration.tolerates(taint) for toleration in self.tolerations)


def _tolerations(raw: Json) -> Iterator[Toleration]:
    at: Path = ("spec", "tolerations")
    for index, item in enumerate(items(raw, at)):
        here = (*at, index)
        members = mapping(item, here)
        key, operator, value, effect = [
            text if type(text := members.get(name, "")) is str else string(text, (*here, name))
            for name in ("key", "operator", "value", "effect")
        ]
        yield Toleration(key=key, operator=operator, value=value, effect=effect)


def _terms(affinity: Json) -> tuple[NodeTerm, ...] | None:
    """The terms of required node affinity."""
    at: Path = ("spec", "affinity")
    for name in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        affinity = mapping(affinity, at).get(name)
        at = (*at, name)
    if affinity is None:
        return None
    listed = items(mapping(affinity, at).get("nodeSelectorTerms"), (*at, "nodeSelectorTerms"))
    return tuple(_term(term, (*at, "nodeSelectorTerms", index)) for index, term in enumerate(listed))


def _term(raw: Json, at: Path) -> NodeTerm:
    members = mapping(raw, at)
    expressions, fields = (
        tuple(
            _requirement(item, (*at, name, index)) for index, item in enumerate(items(members.get(name), (*at, name)))
        )
        for name in ("matchExpressions", "matchFields")
    )
    return NodeTerm(expressions, fields)


def _requirement(raw: Json, at: Path) -> NodeRequirement:
    members = mapping(raw, at)
    operator = string(members.get("operator"), (*at, "operator"))
    if operator not in _OPERATORS:
        raise PodError(pointer(*at, "operator"), f"must be one of {', '.join(sorted(_OPERATORS))}")
    values = items(members.get("values"), (*at, "values"))
    return NodeRequirement(
        string(members.get("key"), (*at, "key")),
        operator,
        tuple(string(value, (*at, "values", index)) for index, value in enumerate(values)),
    )
