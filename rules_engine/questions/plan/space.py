"""The cluster to plan, all candidates for its nodes that offer different devices, and the simulated candidates."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, count, islice, product
from math import comb
from random import Random

from rules_engine.accelerators.catalogue import MIG_RESOURCE
from rules_engine.accelerators.mig import Layout, device_resource
from rules_engine.accelerators.resources import WHOLE_GPU, is_gpu
from rules_engine.cluster.read.inventory import HOSTNAME, node_object
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.cluster_objects import requests_of
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.simulation import Simulation
from rules_engine.questions.simulate.figures import FigureKey

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
    return Counter(name for layout in layouts for name in (map(device_resource, layout) if layout else [WHOLE_GPU]))


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
    """Return the cluster with the nodes to plan: nodes with NVIDIA's GPUs that are not kept, or `new` nodes instead.

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


MAX_TRIED = 200
"""Candidates that are simulated at most: each takes 10 ms or more, and a search is as good after some 50."""

MAX_COUNTED = 20_000
"""Plans of one node that are listed, to count the different ones; more plans are counted without comparison."""

STEPS = 3
"""Random steps from the best candidate to the start of the next walk."""


def rank(keys: Mapping[Candidate, FigureKey]) -> Sequence[Candidate]:
    """Return candidates, the best first."""
    return sorted(keys, key=lambda candidate: (keys[candidate], candidate))


class Space:
    """All candidates. The plans of nodes that differ only in their names are in order: the nodes are interchangeable.

    Plans that offer the same devices are one: 12,870 plans of eight cards with nine layouts offer 1,815 different
    numbers of devices.
    """

    def __init__(self, nodes: Sequence[Node], cards: int, layouts: Sequence[Layout]) -> None:
        self._layouts = sorted(layouts)
        self._cards = cards
        self._nodes = len(nodes)
        first, *others = (replace(node, name="", labels={**node.labels, HOSTNAME: ""}) for node in nodes)
        self._interchangeable = all(node == first for node in others)
        offers = {layout: count_devices(((layout,),)) for layout in layouts}
        names = sorted({name for offer in offers.values() for name in offer})
        self._offers = {layout: tuple(offer[name] for name in names) for layout, offer in offers.items()}
        """Numbers of devices of each layout, by resource."""
        self._known: dict[tuple[int, ...], NodePlan] = {}
        """The plan for numbers of devices, after the number of cards."""
        self._plans: Sequence[NodePlan] = [()]
        for _ in range(cards):
            longer = (self._plan([*plan, layout]) for plan in self._plans for layout in self._layouts)
            self._plans = [*dict.fromkeys(longer)]
            if len(self._plans) > MAX_COUNTED:
                break
        self._plans = sorted(self._plans)

    @property
    def size(self) -> int:
        """The number of candidates: len() has no numbers of more than 63 bits."""
        plans = len(self._plans)
        if plans > MAX_COUNTED:
            plans = comb(len(self._layouts) + self._cards - 1, self._cards)
        return comb(plans + self._nodes - 1, self._nodes) if self._interchangeable else plans**self._nodes

    def __iter__(self) -> Iterator[Candidate]:
        if self._interchangeable:
            return combinations_with_replacement(self._plans, self._nodes)
        return product(self._plans, repeat=self._nodes)

    def choose(self, keys: Mapping[Candidate, FigureKey], random: Random) -> Iterator[Candidate]:
        """Yield all candidates in a random order; if they are too many, walk to better neighbours without end.

        The caller adds the key of a candidate to `keys` before it takes the next one. No candidate is yielded twice.
        """
        yield from (self._candidate([[layout] * self._cards] * self._nodes) for layout in self._layouts)
        if self.size <= MAX_TRIED:
            untried = [each for each in self if each not in keys]
            random.shuffle(untried)
            yield from untried
            return
        current = rank(keys)[0]
        while True:
            near = [each for each in dict.fromkeys(self._neighbours(current)) if each not in keys]
            random.shuffle(near)
            for each in near:
                yield each
                if keys[each] < keys[current]:
                    current = each
                    break
            else:
                # If all neighbours are known already, the next walk starts farther away.
                current = rank(keys)[0] if near else current
                for _ in range(STEPS):
                    current = random.choice([*self._neighbours(current)])
                if current not in keys:
                    yield current

    def _neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield the candidates that differ in the layout of one card."""
        for number, plan in enumerate(candidate):
            for old in dict.fromkeys(plan):
                other_layouts = [*plan]
                other_layouts.remove(old)
                for layout in self._layouts:
                    if layout != old:
                        yield self._candidate([*candidate[:number], [*other_layouts, layout], *candidate[number + 1 :]])

    def _candidate(self, plans: Sequence[Sequence[Layout]]) -> Candidate:
        """Return the candidate that offers the devices of some plans."""
        node_plans = map(self._plan, plans)
        return tuple(sorted(node_plans) if self._interchangeable else node_plans)

    def _plan(self, layouts: Sequence[Layout]) -> NodePlan:
        devices = (len(layouts), *map(sum, zip(*map(self._offers.__getitem__, layouts), strict=True)))
        plan = self._known.get(devices)
        if plan is None:
            plan = self._known[devices] = tuple(sorted(layouts))
        return plan
