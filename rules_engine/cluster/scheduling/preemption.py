"""Preemption: the choice of pods of lower priority that end so that a pod can run.

Source: pkg/scheduler/framework/preemption/preemption.go, plugins/defaultpreemption/default_preemption.go.
Two differences: victims end at once, and with more than MAX_DRY_RUNS nodes the candidates are not a random sample.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec.structs import replace

from rules_engine.cluster.nodes import NodeSet, node_set, numbers_of, union
from rules_engine.cluster.scheduling.amounts import PODS, FreeAmounts
from rules_engine.cluster.scheduling.choice import NodeChoice
from rules_engine.cluster.scheduling.disruption_budgets import DisruptionBudgets
from rules_engine.cluster.scheduling.requirements import Requirements
from rules_engine.cluster.scheduling.schedulable_pod import Bound, BoundPod, SchedulablePod
from rules_engine.cluster.scheduling.scheduler import KubeScheduler
from rules_engine.cluster.scheduling.scheduling import Filter, Scheduling
from rules_engine.model.kubernetes.devices import Claim

MAX_DRY_RUNS = 100
"""Nodes whose victims are determined for a pod, and again as many where more than resources depends on the victims:
there it takes some runs of all filters. The scheduler looks for 100 candidates, or a tenth of the nodes. The nodes are
chosen among the nodes with the lowest priority of victims."""

CACHED_PRIORITIES = 16
"""Priorities for which the amounts that nodes have free without the pods up to them are cached: 0.4 MB each for a
resource, with 5,000 nodes. Clusters have a few PriorityClasses."""

_LEAST_PRIORITY = -(2**31)

CandidateKey = tuple[int, int, int, int, int]
"""Order of candidates: victims that exceed a PodDisruptionBudget, highest priority of a victim, sum of their
priorities, their number, and minus the earliest start of the victims with the highest priority. The lowest is the best
one."""


class Preemption:
    """The pods of each node by priority, with the resources that they use, from which victims are chosen."""

    def __init__(self, scheduler: KubeScheduler, choice: NodeChoice, budgets: DisruptionBudgets) -> None:
        """Take a scheduler without bound pods. Each change is made to the scheduler before this."""
        self._scheduler = scheduler
        self._choice = choice
        self._budgets = budgets
        self._protected: NodeSet = 0
        """The nodes that have, or had, pods with a budget."""
        self._pods: list[dict[str, BoundPod]] = [{} for _ in scheduler.nodes]
        """The pods of each node by name."""
        self._used: list[dict[int, dict[str, int]]] = [{} for _ in scheduler.nodes]
        """The amounts that pods use on each node, by their priority."""
        self._every = (1 << len(scheduler.nodes)) - 1
        self._having: dict[int, NodeSet] = {}
        """The nodes with pods of a priority."""
        self._free: dict[int, dict[str, FreeAmounts]] = {}
        """Free amounts of nodes without their pods up to a priority, by resource."""

    def bind(self, pod: BoundPod) -> None:
        """Add a pod to its node."""
        self._pods[pod.node][pod.name] = pod
        self._count(pod, 1)
        if self._budgets.of(pod.pod.requirements):
            self._protected |= 1 << pod.node

    def release(self, pod: BoundPod) -> None:
        """Remove a pod from its node."""
        del self._pods[pod.node][pod.name]
        self._count(pod, -1)

    def _count(self, pod: BoundPod, sign: int) -> None:
        bit, priority = 1 << pod.node, pod.pod.priority
        used = self._used[pod.node].setdefault(priority, {})
        for resource, amount in pod.pod.amounts:
            used[resource] = used.get(resource, 0) + sign * amount
            for limit, by_resource in self._free.items():
                if priority > limit and resource in by_resource:
                    by_resource[resource].change(pod.node, -sign * amount)
        if used[PODS]:
            self._having[priority] = self._having.get(priority, 0) | bit
        else:
            del self._used[pod.node][priority]
            self._having[priority] ^= bit
        self._budgets.count_running(pod, sign)

    def _lower(self, pod: SchedulablePod, number: int) -> Sequence[BoundPod]:
        """Return the pods of a node below the priority of a pod, the most important ones first."""
        pods = self._pods[number].values()
        return sorted([other for other in pods if other.pod.priority < pod.priority], key=_importance_order)

    def forget(self) -> None:
        """Clear the cache, since the allocatable amounts of a node have changed."""
        self._free.clear()

    def has_room(self, pod: SchedulablePod, number: int, *, preempts: bool) -> bool:
        """Return True if a node has the resources for a pod; if it `preempts`, pods of lower priority do not count."""
        below, free = pod.priority if preempts else _LEAST_PRIORITY, self._scheduler.free
        return all(
            amount <= free(number, resource) or amount <= self._free_below(number, below, resource)
            for resource, amount in pod.amounts
        )

    def fitting(self, pod: SchedulablePod, number: int, *, preempts: bool) -> int:
        """Return how many pods a node has room for; if it `preempts`, pods of lower priority do not count."""
        below = pod.priority if preempts else _LEAST_PRIORITY
        return min(self._free_below(number, below, resource) // amount for resource, amount in pod.amounts)

    def find(self, name: str, pod: SchedulablePod) -> Bound | None:
        """Return the node and the victims for a pod that no node can run; None if preemption does not help.

        Raises CostExceeded.
        """
        lower = sorted(priority for priority, nodes in self._having.items() if nodes and priority < pod.priority)
        if not lower:
            return None
        # Nodes that have a pod of lower priority, and room for the pod once all such pods are gone.
        candidates = self._nodes_with_room(pod, lower[-1]) & union([self._having[priority] for priority in lower])
        if not candidates:
            return None
        scheduling = self._scheduler.answer(pod.requirements)
        # Victims do not free their devices and volumes: their claims live until the pods are gone, or longer.
        without_volumes, without_devices = [
            union([*scheduling.excluded.get(name, {}).values()])
            for name in (Filter.VOLUME_BINDING, Filter.DYNAMIC_RESOURCES)
        ]
        resolvable = scheduling.resolvable | (without_devices if pod.frees_devices else 0)
        candidates &= resolvable & ~without_volumes
        having_devices = self._scheduler.devices.having(pod.requirements, candidates)
        other_filters = nodes_needing_all_filters(pod.requirements, scheduling)
        if pod.frees_devices:
            other_filters |= candidates & ~having_devices
        else:
            candidates = having_devices
        victims_by_node: dict[int, tuple[BoundPod, ...]] = {}
        keys: dict[int, CandidateKey] = {}
        # Where resources alone decide, the victims follow from amounts; elsewhere a dry run is needed.
        by_amounts = self._lowest_victims(pod, lower, candidates & ~(other_filters | self._protected))
        for number in numbers_of(self._choice.first(name, by_amounts, MAX_DRY_RUNS)):
            victims_by_node[number] = victims = self._victims(pod, number, {})
            keys[number] = _candidate_key(victims, {})
        others = candidates & (other_filters | self._protected)
        while others:
            several = self._choice.first(name, others, MAX_DRY_RUNS)
            others ^= several
            for number in numbers_of(several):
                spared = self._budgets.exceeding(self._lower(pod, number))
                find_victims = self._dry_run if other_filters >> number & 1 else self._victims
                if victims := find_victims(pod, number, spared):
                    victims_by_node[number] = victims
                    keys[number] = _candidate_key(victims, spared)
            # Like the scheduler, look on for a node whose victims exceed no budget.
            if not keys or not all(exceeding for exceeding, *_ in keys.values()):
                break
        if not keys:
            return None
        best = min(keys.values())
        chosen = self._choice.choose_node(name, node_set([number for number, key in keys.items() if key == best]))
        return Bound(chosen, victims_by_node[chosen])

    def _lowest_victims(self, pod: SchedulablePod, lower: Sequence[int], among: NodeSet) -> NodeSet:
        """Return the nodes of `among` where the highest priority of a victim is the lowest.

        Resources alone decide there: a pod of higher priority than needed never is a victim.
        """
        if not among:
            return 0
        # The higher the priority of the pods that may end, the more nodes have room: hence the bisection.
        position = bisect_left(lower, True, key=lambda priority: bool(among & self._nodes_with_room(pod, priority)))
        return among & self._nodes_with_room(pod, lower[position])

    def _nodes_with_room(self, pod: SchedulablePod, priority: int) -> NodeSet:
        """Return the nodes that have the resources for a pod without their pods up to a priority."""
        if priority not in self._free and len(self._free) >= CACHED_PRIORITIES:
            self._free.clear()
        by_resource = self._free.setdefault(priority, {})
        nodes = self._every
        for resource, amount in pod.amounts:
            if not nodes:
                break
            free = by_resource.get(resource)
            if free is None:
                left = [self._free_below(number, priority + 1, resource) for number in range(len(self._used))]
                free = by_resource[resource] = FreeAmounts(dict(enumerate(left)), self._every)
            nodes &= ~free.below(amount)
        return nodes

    def _free_below(self, number: int, priority: int, resource: str) -> int:
        """Return what a node has free of a resource without its pods below a priority."""
        free = self._scheduler.free(number, resource)
        for other, used in self._used[number].items():
            if other < priority:
                free += used.get(resource, 0)
        return free

    def _victims(self, pod: SchedulablePod, number: int, spared: Mapping[str, BoundPod]) -> tuple[BoundPod, ...]:
        """Return the victims on a node where the pod fits without the pods below its priority.

        Resources alone decide there. `spared`: pods that stay rather than others.
        """
        left = {resource: self._free_below(number, pod.priority, resource) - amount for resource, amount in pod.amounts}
        victims = []
        # Pods stay as long as they fit together with the pod.
        for other in self._reprieve_order(pod, number, spared):
            used = [(resource, amount) for resource, amount in other.pod.amounts if resource in left]
            for resource, amount in used:
                if amount > left[resource]:
                    victims.append(other)
                    break
            else:
                for resource, amount in used:
                    left[resource] -= amount
        return tuple(sorted(victims, key=_importance_order))

    def _reprieve_order(self, pod: SchedulablePod, number: int, spared: Mapping[str, BoundPod]) -> Iterable[BoundPod]:
        """Return the pods below the priority of a pod in the order in which they may stay: the most important first."""
        lower = self._lower(pod, number)
        return [*spared.values(), *(other for other in lower if other.name not in spared)]

    def _dry_run(self, pod: SchedulablePod, number: int, spared: Mapping[str, BoundPod]) -> tuple[BoundPod, ...]:
        """Return a node's victims by all filters; none if the pod cannot run there. Raises CostExceeded."""
        waiting = deque(self._reprieve_order(pod, number, spared))
        victims: list[BoundPod] = []
        released: dict[str, Sequence[Claim]] = {}
        # All pods of lower priority leave, then return one by one while the pod still fits.
        for other in waiting:
            self._leave(other, pod, released)
        try:
            if not self._fits(pod, number):
                return ()
            while waiting:
                other = waiting.popleft()
                self._return(other, pod, released)
                if not self._fits(pod, number):
                    self._leave(other, pod, released)
                    victims.append(other)
            return tuple(sorted(victims, key=_importance_order))
        finally:
            # Undone even if the comparison budget ends the dry run.
            for other in (*victims, *waiting):
                self._return(other, pod, released)

    def _leave(self, victim: BoundPod, pod: SchedulablePod, released: dict[str, Sequence[Claim]]) -> None:
        self._scheduler.release(victim.node, _dry_run_requirements(victim))
        if pod.frees_devices:
            released[victim.name] = self._scheduler.devices.release(victim.name)

    def _return(self, victim: BoundPod, pod: SchedulablePod, released: Mapping[str, Sequence[Claim]]) -> None:
        self._scheduler.bind(victim.node, _dry_run_requirements(victim))
        if pod.frees_devices:
            requirements = victim.pod.requirements
            self._scheduler.devices.bind(victim.name, victim.node, requirements, released[victim.name])

    def _fits(self, pod: SchedulablePod, number: int) -> bool:
        nodes = self._scheduler.feasible_without_devices(pod.requirements) & 1 << number
        return bool(self._scheduler.devices.having(pod.requirements, nodes) if pod.frees_devices else nodes)


def _dry_run_requirements(victim: BoundPod) -> Requirements:
    """Return the footprint that a dry run subtracts, even if topology spread did not count it.

    Source: podtopologyspread, updateWithPod.
    """
    return replace(victim.pod.requirements, terminating=False)


def _importance_order(pod: BoundPod) -> tuple[int, int, str]:
    return -pod.pod.priority, pod.start, pod.name


def _candidate_key(victims: Sequence[BoundPod], spared: Container[str]) -> CandidateKey:
    """Return the order of a candidate by its victims, the most important one first; `spared`: exceed a budget."""
    first = victims[0]
    # None counts less than 0, so that few victims of negative priority are better than many.
    total = sum(victim.pod.priority - _LEAST_PRIORITY for victim in victims)
    exceeding = sum(victim.name in spared for victim in victims)
    return exceeding, first.pod.priority, total, len(victims), -first.start


def nodes_needing_all_filters(pod: Requirements, scheduling: Scheduling) -> NodeSet:
    """Return the nodes on which more than resources may depend on the victims.

    On others, resources alone keep the pod away: pods that end there take no port, add no anti-affinity, and do not
    increase the skew of their own domain. They may be the pods to which the pod has affinity.
    """
    if pod.affinity:
        return scheduling.every
    filters = (Filter.NODE_PORTS, Filter.POD_TOPOLOGY_SPREAD, Filter.INTER_POD_AFFINITY)
    return union([nodes for name in filters for nodes in scheduling.excluded.get(name, {}).values()])
