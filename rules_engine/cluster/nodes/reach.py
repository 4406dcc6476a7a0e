"""The nodes that a pod may run on, by the scheduler's filters for node affinity and taints.

Source: k8s.io/component-helpers/scheduling/corev1 (nodeaffinity), k8s.io/api/core/v1 (Toleration.ToleratesTaint).
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from rules_engine.cluster.nodes.groups import NodeSet, union
from rules_engine.cluster.nodes.node_index import NodeIndex
from rules_engine.cluster.nodes.places import NO_LABEL, Label, Places
from rules_engine.language.cel import Budget
from rules_engine.model.kubernetes.cluster import Taint
from rules_engine.model.kubernetes.placement import NodeExpression, NodeTerm, Placement, Toleration, parse_label_integer

NODE_NAME = "metadata.name"
"""The only field of a node that node affinity may match."""

Known: TypeAlias = dict[int, tuple[NodeExpression, NodeSet]]
"""Expressions, and the nodes that they match, by the expression's id: it is kept, so that no other one gets its id."""


def matching_nodes(index: NodeIndex, placement: Placement, budget: Budget, known: Known | None = None) -> NodeSet:
    """Return the nodes that the pod may run on.

    Each label, expression, value and toleration of the pod is looked up once, and costs a unit of the budget, as does
    each taint of the cluster. `known`: expressions of other placements of the pod, to which its own are added.
    Raises CostExceeded.
    """
    if placement.node_name:
        # The pod bypasses the scheduler.
        budget.spend(1)
        return index.by_name.values[placement.node_name]
    return _NodeSearch(index, placement, budget, {} if known is None else known).find_nodes()


def select_nodes(
    index: NodeIndex, node_selector: tuple[tuple[str, str], ...], terms: tuple[NodeTerm, ...] | None
) -> NodeSet:
    """Return the nodes that a nodeSelector and terms of node affinity select, whatever their taints."""
    placement = Placement(node_name="", node_selector=node_selector, terms=terms, tolerations=())
    # Without a limit: the size of a placement is bounded.
    return _NodeSearch(index, placement, Budget(sys.maxsize), {}).select_nodes()


def nodes_with_labels(index: NodeIndex, labels: Iterable[tuple[str, str | None]]) -> NodeSet:
    """Return the nodes that have all labels; None: nodes without the label."""
    nodes = index.every
    for key, value in labels:
        label = index.places.labels.get(key, NO_LABEL)
        nodes &= ~label.present if value is None else label.values[value]
    return nodes


class _NodeSearch:
    """The search for one pod's nodes."""

    def __init__(self, index: NodeIndex, placement: Placement, budget: Budget, known: Known) -> None:
        self._index = index
        self._known = known
        self._places: Places = index.places
        self._placement = placement
        self._budget = budget
        self._numbers: dict[int, _NumericValues] = {}
        """Numbers by the id of their label; the index keeps all labels alive."""

    def find_nodes(self) -> NodeSet:
        selected = self.select_nodes()
        return selected & ~self._repelled_nodes(self._placement.tolerations) if selected else 0

    def select_nodes(self) -> NodeSet:
        placement, labels = self._placement, self._places.labels
        self._budget.spend(1 + len(placement.node_selector))
        nodes = self._index.every
        for key, value in placement.node_selector:
            nodes &= nodes and labels.get(key, NO_LABEL).values[value]
        if nodes and placement.terms is not None:
            nodes &= self._affine(placement.terms)
        return nodes

    def _affine(self, terms: Sequence[NodeTerm]) -> NodeSet:
        nodes = 0
        for term in terms:
            self._budget.spend(1)
            matched = self._index.every
            for expression in term.expressions:
                matched &= self._holding(expression, self._places.labels.get(expression.key, NO_LABEL))
            for field in term.fields:
                matched &= self._holding(field, self._index.by_name if field.key == NODE_NAME else NO_LABEL)
            nodes |= matched
        return nodes

    def _holding(self, expression: NodeExpression, label: Label) -> NodeSet:
        """Return the nodes that an expression matches: like a label selector's, plus Gt and Lt on whole numbers."""
        self._budget.spend(1)
        if id(expression) not in self._known:
            self._known[id(expression)] = expression, self._look_up(expression, label)
        return self._known[id(expression)][1]

    def _look_up(self, expression: NodeExpression, label: Label) -> NodeSet:
        self._budget.spend(len(expression.values))
        match expression.operator:
            case "In":
                return _nodes_with_value(label, expression.values)
            case "NotIn":
                return self._index.every & ~_nodes_with_value(label, expression.values)
            case "Exists":
                return label.present
            case "DoesNotExist":
                return self._index.every & ~label.present
            case _:
                return self._compare_numbers(expression, label)

    def _compare_numbers(self, expression: NodeExpression, label: Label) -> NodeSet:
        bound = parse_label_integer(expression.values[0]) if len(expression.values) == 1 else None
        if bound is None:
            return 0
        numbers = self._numbers.get(id(label))
        if numbers is None:
            self._budget.spend(len(label.values.members))
            numbers = self._numbers[id(label)] = _NumericValues(label)
        self._budget.spend(min(len(label.values.members), STRIDE))
        return numbers.above(bound) if expression.operator == "Gt" else numbers.below(bound)

    def _repelled_nodes(self, tolerations: Sequence[Toleration]) -> NodeSet:
        """Return the nodes with a taint that is not tolerated."""
        taints = self._places.taints
        self._budget.spend(1 + len(tolerations) + len(taints.members))
        tolerated = Tolerated(tolerations)
        return union([taints[taint] for taint in taints.members if not tolerated.includes(taint)])


def _nodes_with_value(label: Label, values: Sequence[str]) -> NodeSet:
    return union([label.values[value] for value in values])


class Tolerated:
    """The taints that tolerations tolerate, by key: a lookup costs the same for any number of them."""

    def __init__(self, tolerations: Sequence[Toleration]) -> None:
        self._whole: set[tuple[str, str]] = set()
        """Keys and effects that are tolerated with any value; "" stands for all of them."""
        self._equal: set[tuple[str, str, str]] = set()
        """Keys, values and effects; an empty key is only allowed with Exists."""
        for toleration in tolerations:
            if toleration.operator == "Exists":
                self._whole.add((toleration.key, toleration.effect))
            elif toleration.operator in ("", "Equal") and toleration.key:
                self._equal.add((toleration.key, toleration.value, toleration.effect))

    def includes(self, taint: Taint) -> bool:
        key, value, effect = taint.key, taint.value, taint.effect
        whole, equal = self._whole, self._equal
        return (
            (key, effect) in whole
            or (key, "") in whole
            or ("", effect) in whole
            or ("", "") in whole
            or (key, value, effect) in equal
            or (key, value, "") in equal
        )


STRIDE = 16
"""Values between two stored sets: an expression reads at most this many values beyond a stored set."""


class _NumericValues:
    """A label's values that are whole numbers, in order, and the nodes with each of them or a larger one."""

    def __init__(self, label: Label) -> None:
        pairs = sorted(
            (number, value) for value in label.values.members if (number := parse_label_integer(value)) is not None
        )
        self._values = label.values
        self._keys = [value for _, value in pairs]
        self._numbers = [number for number, _ in pairs]
        starts = range(0, len(pairs) + STRIDE, STRIDE)
        from_start = [0]
        for start, end in reversed([*pairwise(starts)]):
            from_start.append(from_start[-1] | self._between(start, end))
        self._from_start = from_start[::-1]
        """The nodes with the n-th multiple of STRIDE or a later value."""
        self._all = self._from_start[0]

    def above(self, bound: int) -> NodeSet:
        return self._from(bisect_right(self._numbers, bound))

    def below(self, bound: int) -> NodeSet:
        # A node has one value of a label.
        return self._all & ~self._from(bisect_left(self._numbers, bound))

    def _from(self, first: int) -> NodeSet:
        rounded = -(-first // STRIDE)
        return self._from_start[rounded] | self._between(first, rounded * STRIDE)

    def _between(self, first: int, end: int) -> NodeSet:
        return union([self._values[key] for key in self._keys[first:end]])
