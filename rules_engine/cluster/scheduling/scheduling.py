"""The filters of kube-scheduler, and their answer for one pod: the nodes that each of them excludes, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from rules_engine.cluster.nodes import NodeSet, numbers_of, union
from rules_engine.cluster.scheduling import scheduling as reasons


class Filter(StrEnum):
    """The filters, in the order of kube-scheduler's default profile, without the other filters for volumes."""

    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_NAME = "NodeName"
    TAINT_TOLERATION = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    NODE_PORTS = "NodePorts"
    NODE_RESOURCES_FIT = "NodeResourcesFit"
    VOLUME_BINDING = "VolumeBinding"
    POD_TOPOLOGY_SPREAD = "PodTopologySpread"
    INTER_POD_AFFINITY = "InterPodAffinity"
    DYNAMIC_RESOURCES = "DynamicResources"


Excluded = Mapping[str, NodeSet]
"""The nodes that a filter excludes, by reason. NodeResourcesFit alone gives a node several reasons."""


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """The answer for one pod.

    `nodes`: the names of all nodes, by number. `excluded`: the nodes that each filter excludes on its own; only
    DynamicResources is limited to nodes that pass the others. Filters that exclude no node are left out. `rejected`:
    why a filter rejects the pod before it looks at any node, or "". `failure`: why DynamicResources fails on a node,
    which ends the attempt to schedule the pod on any, or "". `by_name`: the nodes that required node affinity leaves,
    or None if it names no nodes. `waiting_for`: the resources that keep the pod from every otherwise suitable node: the
    ones of which each node has too little or, if there are none, all of which some node has too little; `pods` is the
    number of a node's pods. `not_modelled`: what the pod uses that other filters read: such filters may exclude further
    nodes.
    """

    nodes: Sequence[str] = field(repr=False)
    excluded: Mapping[Filter, Excluded]
    rejected: str = ""
    failure: str = ""
    by_name: NodeSet | None = None
    waiting_for: tuple[str, ...]
    not_modelled: tuple[str, ...]

    @property
    def every(self) -> NodeSet:
        return (1 << len(self.nodes)) - 1

    @cached_property
    def passing(self) -> NodeSet:
        """The nodes that pass all filters."""
        if self.failure:
            return 0
        return self.every & ~union([nodes for by_reason in self.excluded.values() for nodes in by_reason.values()])

    @property
    def feasible(self) -> int:
        """The number of nodes that pass all filters."""
        return self.passing.bit_count()

    @property
    def feasible_nodes(self) -> tuple[str, ...]:
        """The names of the nodes that pass all filters."""
        return self.names(self.passing)

    @cached_property
    def failing(self) -> Mapping[Filter, Excluded]:
        """The nodes by the first filter that excludes them, and its reasons, among the nodes that filters look at."""
        left = 0 if self.rejected or self.failure else self.every if self.by_name is None else self.by_name
        by_filter = {}
        for name in Filter:
            first = {
                why: remaining for why, nodes in self.excluded.get(name, {}).items() if (remaining := nodes & left)
            }
            if first:
                by_filter[name] = first
            for nodes in first.values():
                left &= ~nodes
        return by_filter

    @property
    def resolvable(self) -> NodeSet:
        """The nodes that could run the pod if others ended there: not UnschedulableAndUnresolvable."""
        resolvable = 0
        for name in (
            Filter.NODE_PORTS,
            Filter.NODE_RESOURCES_FIT,
            Filter.POD_TOPOLOGY_SPREAD,
            Filter.INTER_POD_AFFINITY,
        ):
            for why, nodes in self.failing.get(name, {}).items():
                if why not in (reasons.NO_TOPOLOGY, reasons.NO_AFFINE_POD):
                    resolvable |= nodes
        return resolvable

    @cached_property
    def nodes_by_reason(self) -> Mapping[str, NodeSet]:
        """The nodes by the reasons of the first filter that excludes them, in the words of Kubernetes 1.36."""
        by_reason = {why: nodes for excluded in self.failing.values() for why, nodes in excluded.items()}
        if self.by_name is not None and (others := self.every & ~self.by_name):
            by_reason[reasons.NOT_NAMED] = others
        return by_reason

    @property
    def reasons(self) -> Mapping[str, int]:
        """The number of nodes for each reason, as kube-scheduler counts them; empty if the pod is rejected before."""
        return {why: nodes.bit_count() for why, nodes in self.nodes_by_reason.items()}

    def message(self) -> str:
        """Return the filters' part of the scheduler's message; "" if a node passes all filters."""
        if self.failure:
            return self.failure
        if not self.nodes:
            return reasons.NO_NODES
        if self.feasible:
            return ""
        counted = sorted(f"{count} {why}" for why, count in self.reasons.items())
        return f"0/{len(self.nodes)} nodes are available: {self.rejected or ', '.join(counted)}."

    def names(self, nodes: NodeSet) -> tuple[str, ...]:
        """Return the names of a set of nodes, in the order of the cluster's nodes."""
        return tuple([self.nodes[number] for number in numbers_of(nodes)])


NO_NODES = "no nodes available to schedule pods"
"""The message in a cluster without nodes."""

UNSCHEDULABLE = "node(s) were unschedulable"
OTHER_NAME = "node(s) didn't match the requested node name"
TAINTED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT = "pod affinity terms conflict"
PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"
OTHER_VOLUME_NODE = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
VOLUME_NODE_REASONS = (OTHER_VOLUME_NODE, NO_VOLUME)
UNBOUND_CLAIMS = "pod has unbound immediate PersistentVolumeClaims"
NOT_SPREAD = "node(s) didn't match pod topology spread constraints"
NO_TOPOLOGY = f"{NOT_SPREAD} (missing required label)"
NO_AFFINE_POD = "node(s) didn't match pod affinity rules"
OWN_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
NO_DEVICES = "cannot allocate all claims"
CLAIM_ELSEWHERE = "resourceclaim not available on the node"
CLAIM_IN_USE = "resourceclaim in use"
INVALID_POOLS = "invalid resource pools were encountered"

FAILURE_START = 'running "DynamicResources" filter plugin: '
"""The start of the message about a filter that failed on a node."""
