"""Nodes whose cards get layouts, and the simulations of a workload on them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

from rules_engine.cluster.read.inventory import HOSTNAME, node_object
from rules_engine.model.gpu_resources import is_gpu
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.cluster_objects import requests_of
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.mig import MIG_RESOURCE, Layout, device_resource
from rules_engine.model.rules.simulation import Simulation

WHOLE_CARD = "nvidia.com/gpu"

CONFIG_LABEL = "nvidia.com/mig.config"
"""The label of a node by which NVIDIA's mig-manager chooses one of the configurations of nvidia-mig-parted."""

NEW_NODE = {"cpu": Quantity.of(128), "memory": Quantity.parse("1Ti")}
"""Amounts of a new node: a usual server with eight cards."""

NodePlan = tuple[Layout, ...]
"""The layouts of a node's cards, in order; (): a whole card."""

Candidate = tuple[NodePlan, ...]
"""The layouts of the planned nodes, in their order."""


def count_devices(candidate: Candidate) -> Counter[str]:
    """Return the numbers of devices that nodes offer, by resource."""
    layouts = (layout for plan in candidate for layout in plan)
    return Counter(name for layout in layouts for name in (map(device_resource, layout) if layout else [WHOLE_CARD]))


def name_configs(candidate: Candidate) -> Mapping[NodePlan, str]:
    """Return the name of each configuration of a node."""
    return {plan: f"plan-{number}" for number, plan in enumerate(dict.fromkeys(candidate), 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster:
    """A load on a cluster with nodes that get layouts.

    `base`: the simulation without these nodes; `nodes`: without their GPUs; `left_out`: pods with GPUs on them.
    """

    base: Simulation
    nodes: Sequence[Node]
    left_out: int

    def simulation_on(self, candidate: Candidate) -> Simulation:
        """Return the simulation on a candidate: the nodes have its devices, and the label of their configuration."""
        names, base = name_configs(candidate), self.base
        nodes = [
            replace(
                node,
                labels={**node.labels, CONFIG_LABEL: names[plan]},
                allocatable={
                    **node.allocatable,
                    **{name: Quantity.of(number) for name, number in count_devices((plan,)).items()},
                },
            )
            for node, plan in zip(self.nodes, candidate, strict=True)
        ]
        objects = base.objects.with_objects({"Node": [*base.objects.nodes, *map(node_object, nodes)]})
        return replace(base, cluster=replace(base.cluster, nodes=(*base.cluster.nodes, *nodes)), objects=objects)


def _is_planned(resource: str) -> bool:
    return is_gpu(resource) and resource.startswith("nvidia.com/")


def plan_cluster(
    simulation: Simulation, kept: Collection[str], new: int, amounts: Mapping[str, Quantity]
) -> PlannedCluster:
    """Return the cluster with the nodes to plan: those with NVIDIA's GPUs that are not kept, or `new` ones instead.

    Without such nodes there is one new node. The nodes have `amounts` in place of their own. Pods with GPUs on planned
    nodes are left out: a card must be idle when its layout changes.
    """
    objects = simulation.objects
    replaced = {
        node.name
        for node in objects.empty_nodes
        if node.name not in kept and any(_is_planned(name) and amount for name, amount in node.allocatable.items())
    }
    pods = [pod for pod in objects.pods if pod.node_name not in replaced or not any(map(is_gpu, requests_of(pod)))]
    objects = objects.with_objects({"Pod": pods})
    nodes = [node for node in objects.view.nodes if node.name in replaced]
    others = [node for node in objects.nodes if node.name not in replaced]
    if new or not nodes:
        taken = {node.name for node in others}
        names = (name for number in count(1) if (name := f"gpu-{number}") not in taken)
        nodes = [Node(name=name, labels={HOSTNAME: name}, allocatable=NEW_NODE) for name in islice(names, new or 1)]
    return PlannedCluster(
        base=replace(
            simulation,
            objects=objects.with_objects({"Node": others}),
            cluster=replace(
                simulation.cluster, nodes=tuple(node for node in simulation.cluster.nodes if node.name not in replaced)
            ),
        ),
        nodes=[
            replace(
                node,
                labels={key: value for key, value in node.labels.items() if not key.startswith(MIG_RESOURCE)},
                allocatable={
                    **{name: each for name, each in node.allocatable.items() if not _is_planned(name)},
                    **amounts,
                },
            )
            for node in nodes
        ],
        left_out=len(simulation.objects.pods) - len(pods),
    )
