"""Nodes by label and by taint: the properties by which pods choose nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from rules_engine.cluster.nodes.groups import Groups, NodeSet, NumberedUpdate, node_set
from rules_engine.model.json.patch import EMPTY
from rules_engine.model.kubernetes.cluster import Node, Taint

REPELLING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep a pod off a node; PreferNoSchedule does not."""


@dataclass(frozen=True, slots=True)
class Label:
    """The nodes that have a label, and the nodes with each of its values."""

    present: NodeSet
    values: Groups[str]

    def after(self, moves: Iterable[tuple[int, str | None, str | None]]) -> "Label":
        """Return the label after its value has changed on some nodes; None: a node does not have it."""
        present = self.present
        changed = []
        for number, left, joined in moves:
            bit = 1 << number
            present = present & ~bit if joined is None else present | bit
            changed.append((number, () if left is None else (left,), () if joined is None else (joined,)))
        return Label(present, self.values.after(changed))


NO_LABEL = Label(0, Groups({}))
"""A label that no node has."""


@dataclass(frozen=True, slots=True)
class Places:
    """Nodes by label and value, and by each taint that repels pods."""

    labels: Mapping[str, Label]
    taints: Groups[Taint]

    @classmethod
    def of(cls, nodes: Mapping[int, Node]) -> Self:
        labels: dict[str, dict[str, list[int]]] = {}
        taints: dict[Taint, list[int]] = {}
        for number, node in nodes.items():
            for key, value in node.labels.items():
                values = labels.get(key)
                if values is None:
                    values = labels[key] = {}
                members = values.get(value)
                if members is None:
                    members = values[value] = []
                members.append(number)
            for taint in _repelling_taints(node):
                taints.setdefault(taint, []).append(number)
        present = {
            key: node_set([each for numbers in values.values() for each in numbers]) for key, values in labels.items()
        }
        return cls({key: Label(present[key], Groups.of(values)) for key, values in labels.items()}, Groups.of(taints))

    def after(self, moves: Iterable[NumberedUpdate]) -> "Places":
        """Return the places after nodes have changed; most changes affect neither labels nor taints."""
        relabelled: dict[str, list[tuple[int, str | None, str | None]]] = {}
        repelling = []
        for number, old, new in moves:
            before, after = old.labels if old else EMPTY, new.labels if new else EMPTY
            if before != after:
                for key in before.keys() | after.keys():
                    left, joined = before.get(key), after.get(key)
                    if left != joined:
                        relabelled.setdefault(key, []).append((number, left, joined))
            lost, gained = _repelling_taints(old), _repelling_taints(new)
            if lost != gained:
                repelling.append((number, lost, gained))
        labels = self.labels
        if relabelled:
            changed = {key: labels.get(key, NO_LABEL).after(moved) for key, moved in relabelled.items()}
            labels = {key: label for key, label in {**labels, **changed}.items() if label.present}
        return Places(labels, self.taints.after(repelling) if repelling else self.taints)


def _repelling_taints(node: Node | None) -> frozenset[Taint]:
    return frozenset([taint for taint in node.taints if taint.effect in REPELLING_EFFECTS]) if node else _NO_TAINTS


_NO_TAINTS = frozenset[Taint]()
