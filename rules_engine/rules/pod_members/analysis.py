"""Comparison of labels and tolerations with the nodes of a cluster."""

from collections.abc import Collection, Iterator, Sequence

from rules_engine.cluster.nodes import Tolerated
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.placement import Toleration
from rules_engine.model.problems.problem import did_you_mean


def label_hint(key: str, value: str, nodes: Sequence[Node], others: Collection[tuple[str, str | None]] = ()) -> str:
    """Return a clause with the nearest label of a node, apart from some others; "" if none is near."""
    near = {item for node in nodes for item in node.labels.items() if key in item or value in item}
    return did_you_mean(f"{key}={value}", map("=".join, near.difference(others)))


def useless_tolerations(tolerations: Sequence[Toleration], nodes: Sequence[Node]) -> Iterator[Toleration]:
    """Yield the tolerations that tolerate no taint of any node."""
    taints = {taint for node in nodes for taint in node.taints}
    return (each for each in tolerations if not any(map(Tolerated((each,)).includes, taints)))
