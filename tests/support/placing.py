"""Model of node affinity and taints: one node and one pod at a time, slow and simple."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from rules_engine.cluster.nodes.groups import Groups
from rules_engine.model.kubernetes.cluster import Node, Taint
from rules_engine.model.kubernetes.placement import NodeExpression, NodeTerm, Placement, Toleration


def requiring(*terms: Any) -> dict[str, Any]:
    """Return fields of a Pod's spec with these node selector terms."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """Return a node selector term of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def takes(node: Node, placement: Placement) -> bool:
    """Return True if the scheduler's node affinity and taint filters accept the node."""
    if placement.node_name:
        return placement.node_name == node.name
    return (
        all(node.labels.get(key) == value for key, value in placement.node_selector)
        and (placement.terms is None or any(_matches(term, node) for term in placement.terms))
        and all(
            any(_tolerates(toleration, taint) for toleration in placement.tolerations)
            for taint in node.taints
            if taint.effect in ("NoSchedule", "NoExecute")
        )
    )


def _matches(term: NodeTerm, node: Node) -> bool:
    if not term.expressions and not term.fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(e, node.labels) for e in term.expressions) and all(_holds(f, fields) for f in term.fields)


def _holds(expression: NodeExpression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    texts = (value or "", *expression.values)
    left, *rights = map(parse_int, texts)
    if len(rights) != 1 or left is None or rights[0] is None:
        return False
    return left > rights[0] if expression.operator == "Gt" else left < rights[0]


def parse_int(text: str) -> int | None:
    """Return what strconv.ParseInt(text, 10, 64) of Go returns, or None for an error."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or set(digits) - set("0123456789"):
        return None
    number = int(text)
    return number if -(2**63) <= number <= 2**63 - 1 else None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return True if a toleration matches a taint. No effect or key matches all; the default operator is Equal."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    # An empty key is only allowed with Exists.
    return toleration.operator in ("", "Equal") and bool(toleration.key) and toleration.value == taint.value


@contextmanager
def lookups() -> Iterator[list[int]]:
    """Count the lookups in groups of nodes."""
    counted = [0]
    look_up: Callable[[Groups[str], str], int] = Groups.__getitem__

    def counting(groups: Groups[str], key: str) -> int:
        counted[0] += 1
        return look_up(groups, key)

    with patch.object(Groups, "__getitem__", counting):
        yield counted
