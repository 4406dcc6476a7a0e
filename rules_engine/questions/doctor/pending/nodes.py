"""The nodes of a cluster as pods that wait see them: amounts and labels, by sets of nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

from rules_engine.cluster.gpu_nodes import gpus_of
from rules_engine.cluster.nodes import NO_LABEL, NodeSet, node_set, numbers_of
from rules_engine.cluster.scheduling import KubeScheduler
from rules_engine.cluster.scheduling.amounts import nanos_of
from rules_engine.cluster.scheduling.obstacles import ObstacleSearch
from rules_engine.cluster.scheduling.scheduler import make_scheduler, never_ends
from rules_engine.cluster.state_taints import state_of
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.kubernetes.cluster import Taint
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, requests_of
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.wording import MAX_JOINED, join_names
from rules_engine.questions.doctor.drivers import drivers_of
from rules_engine.questions.doctor.gpu_objects import device_amounts, is_device, parse_timestamp
from rules_engine.questions.doctor.pending.conflicts import Conflicts
from rules_engine.questions.doctor.wording import since_clause

MAX_CACHED = 1_000
"""Cached amounts by resource, and by resource and nodes: some 100 KiB each with 5,000 nodes."""

Amounts = Sequence[tuple[int, int]]
"""Amounts of a resource by node number, in nanos: with only the pods that never end, and free now."""


class PendingNodes:
    """The nodes of a cluster, by number. `capacities`: the devices in the capacity of each, in whole units."""

    def __init__(self, objects: ClusterObjects, scheduler: KubeScheduler) -> None:
        self.scheduler = scheduler
        self.lasting = make_scheduler(objects, lasting=True)
        self.search = ObstacleSearch(scheduler, self.lasting)
        self.drivers = drivers_of(objects)
        self.every: NodeSet = scheduler.index.every
        self._objects = objects
        self.conflicts = Conflicts(objects, scheduler)
        self.amounts = lru_cache(MAX_CACHED)(self._read_amounts)
        self.offering = lru_cache(MAX_CACHED)(
            lambda resource, nanos=1: node_set(
                [at for at, (most, _) in enumerate(self.amounts(resource)) if most >= nanos]
            )
        )
        """Return the nodes that have at least an amount of a resource, in nanos; by default, any."""
        self.total = lru_cache(MAX_CACHED)(self._sum_amounts)
        """Return the sum of what nodes have free of a resource, or of what they have."""
        self.largest = lru_cache(MAX_CACHED)(self._find_largest)
        """Return the largest amount that one of the nodes has, and the name of the first such node."""
        self.names = lru_cache(MAX_CACHED)(
            lambda nodes: tuple([self.scheduler.nodes[number].name for number in numbers_of(nodes)])
        )
        """Return the names of nodes, in order of the nodes."""
        self.pods_with = lru_cache(MAX_CACHED)(self._find_pods)
        """Return what pods on a node request that hold one of some resources and end some time, in nanos, by name."""

    @cached_property
    def capacities(self) -> Sequence[Mapping[str, int]]:
        return [
            {
                **device_amounts(as_mapping(node.status.get("capacity"))),
                **{name: most for name, (most, _) in self.drivers.offered(view).items() if is_device(name)},
            }
            for node, view in zip(self._objects.nodes, self.drivers.view.nodes, strict=True)
        ]

    @cached_property
    def allocatable(self) -> Mapping[str, int]:
        """The sums of what nodes have of resources, in nanos, with what pods hold that never end."""
        totals = Counter[str]()
        for node in self.scheduler.nodes:
            totals.update({name: amount.nanos for name, amount in node.allocatable.items()})
        return totals

    @cached_property
    def products(self) -> frozenset[str]:
        """The products that devices of drivers or labels of the nodes name."""
        return frozenset(gpus.product for node in self._objects.nodes if (gpus := gpus_of(node)))

    def _read_amounts(self, resource: str) -> Amounts:
        amounts = [
            (
                nanos_of(resource, self.lasting.free(number, resource)),
                nanos_of(resource, self.scheduler.free(number, resource)),
            )
            for number in range(len(self.scheduler.nodes))
        ]
        for number in numbers_of(self.drivers.nodes_by_resource.get(resource, 0)):
            most, used = self.drivers.offered(self.drivers.view.nodes[number]).get(resource, (0, 0))
            amounts[number] = most * NANOS, (most - used) * NANOS
        return [(max(lasting, 0), max(free, 0)) for lasting, free in amounts]

    def has(self, resource: str) -> bool:
        """Return True if nodes have any of a resource, also if pods that never end hold all of it."""
        return bool(self.allocatable.get(resource) or self.offering(resource))

    def _sum_amounts(self, resource: str, nodes: NodeSet, *, free: bool = True) -> int:
        amounts = self.amounts(resource)
        return sum(amounts[number][free] for number in numbers_of(nodes))

    def _find_largest(self, resource: str, nodes: NodeSet, *, free: bool = True) -> tuple[int, str]:
        amounts = self.amounts(resource)
        best = max(numbers_of(nodes), key=lambda number: amounts[number][free])
        return amounts[best][free], self.scheduler.nodes[best].name

    def resources(self, nodes: NodeSet, *, free: bool = False) -> Mapping[str, int]:
        """Return the total of each resource that nodes have, or have free."""
        names = {name for node in self.drivers.view.nodes for name in node.allocatable}
        totals = {
            name: self.total(name, nodes, free=free) for name in sorted(names - self.drivers.devices.second_names)
        }
        return {name: total for name, total in totals.items() if total}

    def with_label(self, key: str, value: str) -> NodeSet:
        """Return the nodes with a label of this value."""
        return self.scheduler.index.places.labels.get(key, NO_LABEL).values[value]

    def values_of(self, key: str, among: NodeSet) -> Sequence[str]:
        """Return the values of a label on some nodes, in order."""
        values = self.scheduler.index.places.labels.get(key, NO_LABEL).values
        return sorted(value for value in values.members if values[value] & among)

    def list(self, nodes: NodeSet) -> str:
        """Return the first names of nodes, and the number of the others."""
        return join_names(self.names(nodes)[:MAX_JOINED], of=nodes.bit_count())

    def least_lacking(self, requested: Mapping[str, int], names: Sequence[str], nodes: NodeSet) -> int:
        """Return the number of the node that lacks the least of some resources of a request."""
        return min(
            numbers_of(nodes),
            key=lambda number: sum(max(requested[name] - self.amounts(name)[number][1], 0) for name in names),
        )

    def _find_pods(self, gpus: tuple[str, ...], number: int) -> Mapping[str, Mapping[str, int]]:
        requests = {
            f"{pod.namespace}/{pod.name}": requests_of(pod)
            for pod in self._objects.pods_on(self.scheduler.nodes[number].name)
            if not never_ends(pod)
        }
        return {name: amounts for name, amounts in requests.items() if any(amounts.get(each) for each in gpus)}

    def states(self, taints: Mapping[Taint, NodeSet], nodes: NodeSet) -> Iterator[str]:
        """Yield the states behind taints of nodes, each with its time, for the first nodes."""
        for number in numbers_of(nodes)[:MAX_JOINED]:
            node = self._objects.nodes[number]
            for state in {state_of(taint.key): None for taint, having in taints.items() if having >> number & 1}:
                if state is not None:
                    since = parse_timestamp(node.condition(state.condition), "lastTransitionTime")
                    yield f"{node.name} {state.state}{since_clause(since)}"
