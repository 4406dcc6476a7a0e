"""Nodes that are alike, as one: a large cluster has thousands of nodes of a few kinds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rules_engine.diagnosis.report import Amounts, GpuNode


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes with the same card, state, capacity and allocatable amounts; `resources`: the sums of their amounts."""

    nodes: tuple[GpuNode, ...]
    resources: Mapping[str, Amounts]

    @property
    def product(self) -> str:
        return self.nodes[0].product

    @property
    def state(self) -> str:
        """The state of each of the nodes, or "" if they accept pods."""
        return state(self.nodes[0])


def node_groups(nodes: Iterable[GpuNode]) -> tuple[NodeGroup, ...]:
    """Return the groups of nodes that are alike, in the order of their first nodes."""
    found: dict[tuple[object, ...], list[GpuNode]] = {}
    for node in nodes:
        shape = tuple((resource, each.capacity, each.allocatable) for resource, each in node.resources.items())
        found.setdefault((node.product, state(node), shape), []).append(node)
    return tuple(NodeGroup(nodes=tuple(alike), resources=_sums(alike)) for alike in found.values())


def state(node: GpuNode) -> str:
    """Return the state of a node, or "" if it accepts pods."""
    return ", ".join([*([] if node.ready else ["NotReady"]), *(["cordoned"] if node.cordoned else [])])


def _sums(nodes: Sequence[GpuNode]) -> Mapping[str, Amounts]:
    return {resource: _sum([node.resources[resource] for node in nodes]) for resource in nodes[0].resources}


def _sum(amounts: Sequence[Amounts]) -> Amounts:
    allocated = [each.allocated for each in amounts if each.allocated is not None]
    return Amounts(
        capacity=sum(each.capacity for each in amounts),
        allocatable=sum(each.allocatable for each in amounts),
        allocated=sum(allocated) if len(allocated) == len(amounts) else None,
    )
