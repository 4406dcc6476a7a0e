"""Preemption: the pods of lower priority that are released so that a pod can run.

Source: pkg/scheduler/framework/preemption/preemption.go, plugins/defaultpreemption/default_preemption.go.
PodDisruptionBudgets are not modelled. Two differences: victims end at once, and the candidates are not a random sample
of the nodes.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from rules_engine.evaluation.nodes import NodeSet, node_set, numbers_of
from rules_engine.scheduling.amounts import PODS, FreeAmounts
from rules_engine.scheduling.choice import Choice
from rules_engine.scheduling.requirements import Requirements
from rules_engine.scheduling.schedulable_pod import Bound, BoundPod, SchedulablePod
from rules_engine.scheduling.scheduler import Scheduler
from rules_engine.scheduling.scheduling import Filter, Scheduling

MAX_DRY_RUNS = 100
"""Nodes on which preemption is tried, of those where more than resources depends on the victims: each takes some runs
of all filters. There is no such bound where resources alone decide. The scheduler looks for 100 candidates, or a tenth
of the nodes."""

CACHED_RANKINGS = 32
"""Rankings of nodes that are cached, by priority and amounts: a megabyte each with 5,000 nodes."""

CACHED_PRIORITIES = 8
"""Priorities for which the nodes with enough resources are cached: some 200 kilobytes each for a resource, with 5,000
nodes."""

_LEAST_PRIORITY = -(2**31)

Key = tuple[int, int, int, int]
"""Order of candidates: highest priority of a victim, sum of their priorities, their number, and minus the earliest
start of those with the highest priority. The lowest is the best one."""

Amounts = tuple[tuple[str, int], ...]


class Preemption:
    """The pods of each node by priority, with the resources that they use, from which victims are chosen."""

    def __init__(self, scheduler: Scheduler, choice: Choice) -> None:
        """Take a scheduler without bound pods. Each change is made to the scheduler before this."""
        self._scheduler = scheduler
        self._choice = choice
        self._nodes = [_NodeUse() for _ in scheduler.nodes]
        self._every = (1 << len(self._nodes)) - 1
        self._having: dict[int, NodeSet] = {}
        """The nodes with pods of a priority."""
        self._free: dict[int, dict[str, FreeAmounts]] = {}
        """What nodes have free without their pods below a priority, by resource."""
        self._rankings: dict[tuple[int, Amounts], _Ranking] = {}

    def bind(self, pod: BoundPod) -> None:
        """Add a pod to its node."""
        if self._nodes[pod.node].add(pod) == 1:
            priority = pod.pod.priority
            self._having[priority] = self._having.get(priority, 0) | 1 << pod.node
        self._changed(pod, -1)

    def release(self, pod: BoundPod) -> None:
        """Remove a pod from its node."""
        if not self._nodes[pod.node].remove(pod):
            priority = pod.pod.priority
            left = self._having[priority] ^ 1 << pod.node
            if left:
                self._having[priority] = left
            else:
                del self._having[priority]
        self._changed(pod, 1)

    def forget(self) -> None:
        """Drop what is cached, since the allocatable amounts of a node have changed."""
        self._free.clear()
        self._rankings.clear()

    def has_room(self, pod: SchedulablePod, number: int, *, preempts: bool) -> bool:
        """Return True if a node has the resources for a pod, if it `preempts` without the pods of lower priority."""
        below = pod.priority if preempts else _LEAST_PRIORITY
        free, used = self._scheduler.free, self._nodes[number].used
        # Loops, since this is called for each group of waiting pods when a node changes.
        for resource, amount in pod.amounts:
            left = free(number, resource)
            if amount > left:
                for priority, amounts in used.items():
                    if priority < below:
                        left += amounts.get(resource, 0)
                if amount > left:
                    return False
        return True

    def find(self, name: str, pod: SchedulablePod) -> Bound | None:
        """Return the node and the victims for a pod that no node can run; None if preemption does not help.

        Raises CostExceeded.
        """
        candidates = self._lower(pod.priority)
        for resource, amount in pod.amounts:
            if not candidates:
                return None
            candidates &= ~self._free_of(pod.priority, resource).below(amount)
        if not candidates:
            return None
        scheduling = self._scheduler.schedule(pod.requirements)
        candidates &= scheduling.resolvable
        other_filters = _needing_all_filters(pod.requirements, scheduling)
        found: list[tuple[Key, NodeSet]] = []
        if by_resources := candidates & ~other_filters:
            found.append(self._ranking(pod).best(by_resources))
        tried = {}
        for number in self._choice.first(name, candidates & other_filters, MAX_DRY_RUNS):
            victims = self._dry_run(pod, number)
            if victims:
                tried[number] = victims
                found.append((_key(victims), 1 << number))
        if not found:
            return None
        best = min(key for key, _ in found)
        nodes = 0
        for key, equal in found:
            if key == best:
                nodes |= equal
        chosen = self._choice.lowest(name, nodes)
        return Bound(chosen, tried.get(chosen) or self._victims(pod, chosen))

    def _lower(self, priority: int) -> NodeSet:
        found = 0
        for other, nodes in self._having.items():
            if other < priority:
                found |= nodes
        return found

    def _free_below(self, number: int, priority: int, resource: str) -> int:
        """Return what a node has free of a resource without its pods below a priority."""
        found = self._scheduler.free(number, resource)
        for other, used in self._nodes[number].used.items():
            if other < priority:
                found += used.get(resource, 0)
        return found

    def _free_of(self, priority: int, resource: str) -> FreeAmounts:
        by_resource = self._free.get(priority)
        if by_resource is None:
            if len(self._free) >= CACHED_PRIORITIES:
                self._free.clear()
            by_resource = self._free[priority] = {}
        found = by_resource.get(resource)
        if found is None:
            free = {number: self._free_below(number, priority, resource) for number in range(len(self._nodes))}
            found = by_resource[resource] = FreeAmounts(free, self._every)
        return found

    def _ranking(self, pod: SchedulablePod) -> "_Ranking":
        key = pod.priority, pod.amounts
        found = self._rankings.pop(key, None)
        if found is None:
            if len(self._rankings) >= CACHED_RANKINGS:
                del self._rankings[next(iter(self._rankings))]
            found = _Ranking(partial(self._victims, pod), len(self._nodes))
        self._rankings[key] = found
        return found

    def _victims(self, pod: SchedulablePod, number: int) -> tuple[BoundPod, ...]:
        """Return the victims on a node where the pod fits without the pods below its priority.

        Resources alone decide there.
        """
        left = {resource: self._free_below(number, pod.priority, resource) - amount for resource, amount in pod.amounts}
        found = []
        for other in self._nodes[number].lower(pod.priority):
            used = [(resource, amount) for resource, amount in other.pod.amounts if resource in left]
            for resource, amount in used:
                if amount > left[resource]:
                    found.append(other)
                    break
            else:
                for resource, amount in used:
                    left[resource] -= amount
        return tuple(found)

    def _dry_run(self, pod: SchedulablePod, number: int) -> tuple[BoundPod, ...]:
        """Return the victims on a node, found by all filters; none if the pod cannot run there. Raises CostExceeded."""
        scheduler, requirements = self._scheduler, pod.requirements
        waiting = deque(self._nodes[number].lower(pod.priority))
        victims: list[BoundPod] = []
        for other in waiting:
            scheduler.release(number, other.pod.requirements)
        try:
            if not scheduler.feasible(requirements) >> number & 1:
                return ()
            while waiting:
                other = waiting.popleft()
                scheduler.bind(number, other.pod.requirements)
                if not scheduler.feasible(requirements) >> number & 1:
                    scheduler.release(number, other.pod.requirements)
                    victims.append(other)
            return tuple(victims)
        finally:
            for other in (*victims, *waiting):
                scheduler.bind(number, other.pod.requirements)

    def _changed(self, pod: BoundPod, sign: int) -> None:
        for priority, by_resource in self._free.items():
            if pod.pod.priority >= priority:
                for resource, amount in pod.pod.amounts:
                    if resource in by_resource:
                        by_resource[resource].change(pod.node, sign * amount)
        for ranking in self._rankings.values():
            ranking.stale.add(pod.node)


class _NodeUse:
    """The pods of one node."""

    __slots__ = ("pods", "used")

    def __init__(self) -> None:
        self.pods: dict[str, BoundPod] = {}
        self.used: dict[int, dict[str, int]] = {}
        """Amounts by the priority of the pods that use them."""

    def add(self, pod: BoundPod) -> int:
        """Add a pod, and return the number of pods with its priority."""
        self.pods[pod.name] = pod
        return self._use(pod, 1)

    def remove(self, pod: BoundPod) -> int:
        """Remove a pod, and return the number of pods with its priority."""
        del self.pods[pod.name]
        left = self._use(pod, -1)
        if not left:
            del self.used[pod.pod.priority]
        return left

    def _use(self, pod: BoundPod, sign: int) -> int:
        used = self.used.setdefault(pod.pod.priority, {})
        for resource, amount in pod.pod.amounts:
            used[resource] = used.get(resource, 0) + sign * amount
        return used[PODS]

    def lower(self, priority: int) -> Sequence[BoundPod]:
        """Return the pods below a priority, the most important ones first."""
        return sorted([pod for pod in self.pods.values() if pod.pod.priority < priority], key=_importance)


class _Ranking:
    """The nodes by the victims of pods with one priority and equal amounts; nodes in `stale` have changed since."""

    __slots__ = ("_keys", "_nodes", "_of", "_victims", "stale")

    def __init__(self, victims: Callable[[int], Sequence[BoundPod]], count: int) -> None:
        """Take the number of nodes, and a function that returns the victims on a node."""
        self._victims = victims
        self._keys: list[Key] = []
        self._nodes: dict[Key, NodeSet] = {}
        self._of: dict[int, Key] = {}
        self.stale = set(range(count))

    def best(self, among: NodeSet) -> tuple[Key, NodeSet]:
        """Return the lowest key of some nodes, which all have victims, and those of them that have it."""
        for number in numbers_of(node_set([*self.stale]) & among):
            self._update(number)
        key = next(key for key in self._keys if self._nodes[key] & among)
        return key, self._nodes[key] & among

    def _update(self, number: int) -> None:
        self.stale.remove(number)
        before = self._of.pop(number, None)
        if before is not None:
            left = self._nodes[before] ^ 1 << number
            if left:
                self._nodes[before] = left
            else:
                del self._nodes[before]
                del self._keys[bisect_left(self._keys, before)]
        key = self._of[number] = _key(self._victims(number))
        if key not in self._nodes:
            insort(self._keys, key)
        self._nodes[key] = self._nodes.get(key, 0) | 1 << number


def _importance(pod: BoundPod) -> tuple[int, int, str]:
    return -pod.pod.priority, pod.start, pod.name


def _key(victims: Sequence[BoundPod]) -> Key:
    """Return the order of a candidate by its victims, of which the most important one is the first."""
    first = victims[0]
    # None counts less than 0, so that few victims of negative priority are better than many.
    total = sum(victim.pod.priority - _LEAST_PRIORITY for victim in victims)
    return first.pod.priority, total, len(victims), -first.start


def _needing_all_filters(pod: Requirements, scheduling: Scheduling) -> NodeSet:
    """Return the nodes on which more than resources may depend on the victims.

    On others, resources alone keep the pod away: pods that end there take no port, add no anti-affinity, and do not
    increase the skew of their own domain. They may be those to which the pod has affinity.
    """
    if pod.affinity:
        return scheduling.every
    found = 0
    for name in (Filter.NODE_PORTS, Filter.POD_TOPOLOGY_SPREAD, Filter.INTER_POD_AFFINITY):
        for nodes in scheduling.excluded.get(name, {}).values():
            found |= nodes
    return found
