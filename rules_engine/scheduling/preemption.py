"""Preemption: the pods of lower priority that are released so that a pod can run.

Source: pkg/scheduler/framework/preemption/preemption.go, plugins/defaultpreemption/default_preemption.go.
PodDisruptionBudgets are not modelled. Two differences: victims end at once, and the candidates are not a random sample
of the nodes.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from rules_engine.evaluation.nodes import NodeSet, node_set, numbers_of
from rules_engine.model.cluster import Node
from rules_engine.scheduling.amounts import PODS, counted
from rules_engine.scheduling.choice import Choice
from rules_engine.scheduling.requirements import Requirements
from rules_engine.scheduling.schedulable_pod import Bound, BoundPod, SchedulablePod
from rules_engine.scheduling.scheduling import Filter, Scheduling

MAX_DRY_RUNS = 100
"""Nodes of a pod with constraints on other pods or with host ports on which preemption is tried: each takes some runs
of all filters. Other pods have no such bound. The scheduler finds 100 candidates, or a tenth of the nodes."""

CACHED_RANKINGS = 32
"""Rankings of nodes that are cached, by priority and amounts: a megabyte each with 5,000 nodes."""

CACHED_PRIORITIES = 8
"""Priorities for which the nodes with enough resources are cached: 700 bytes each and for each amount of a resource,
with 5,000 nodes."""

CACHED_AMOUNTS = 256
"""Amounts of one resource whose nodes are cached."""

_LEAST_PRIORITY = -(2**31)
_UNBOUNDED = sys.maxsize

Key = tuple[int, int, int, int]
"""Order of candidates: highest priority of a victim, sum of their priorities, their number, and minus the earliest
start of those with the highest priority. The lowest is the best one."""

Amounts = tuple[tuple[str, int], ...]


class Filters(Protocol):
    """The scheduler's filters on bound pods that change."""

    def bind(self, pod: BoundPod) -> None: ...

    def release(self, pod: BoundPod) -> None: ...

    def feasible(self, pod: Requirements) -> NodeSet: ...

    def schedule(self, pod: Requirements) -> Scheduling: ...


class Preemption:
    """The resources of nodes by the priority of the pods that use them, from which victims are chosen."""

    def __init__(self, nodes: Sequence[Node], choice: Choice) -> None:
        """Take the nodes without their pods."""
        self._choice = choice
        self._nodes = [_NodeUse(_allocatable(node)) for node in nodes]
        self._having: dict[int, NodeSet] = {}
        """The nodes with pods of a priority."""
        self._lacking: dict[int, dict[str, _Lacking]] = {}
        """The nodes that lack resources even without their pods below a priority, by resource."""
        self._rankings: dict[tuple[int, Amounts], _Ranking] = {}

    def bind(self, pod: BoundPod) -> None:
        """Add a pod to its node."""
        use = self._nodes[pod.node]
        if use.add(pod) == 1:
            priority = pod.pod.priority
            self._having[priority] = self._having.get(priority, 0) | 1 << pod.node
        self._changed(pod, -1)

    def release(self, pod: BoundPod) -> None:
        """Remove a pod from its node. Raises KeyError if it is not bound."""
        use = self._nodes[pod.node]
        if not use.remove(pod):
            priority = pod.pod.priority
            left = self._having[priority] ^ 1 << pod.node
            if left:
                self._having[priority] = left
            else:
                del self._having[priority]
        self._changed(pod, 1)

    def change_node(self, number: int, node: Node) -> None:
        """Take another state of a node."""
        if self._nodes[number].allocate(_allocatable(node)):
            self._lacking.clear()
            self._rankings.clear()

    def has_room(self, pod: SchedulablePod, number: int, *, preempts: bool) -> bool:
        """Return True if a node has the resources for a pod, if it `preempts` without the pods of lower priority."""
        use = self._nodes[number]
        below = pod.priority if preempts else _LEAST_PRIORITY
        return all(amount <= use.free_below(below, resource) for resource, amount in pod.amounts)

    def find(self, name: str, pod: SchedulablePod, filters: Filters) -> Bound | None:
        """Return the node and the victims for a pod that no node can run; None if preemption does not help."""
        candidates = self._lower(pod.priority)
        for resource, amount in pod.amounts:
            if not candidates:
                return None
            candidates &= ~self._lacking_for(pod.priority, resource).below(amount)
        if not candidates:
            return None
        scheduling = filters.schedule(pod.requirements)
        candidates &= scheduling.resolvable
        of_pods = _depending_on_pods(pod.requirements, scheduling)
        found: list[tuple[Key, NodeSet]] = []
        if simple := candidates & ~of_pods:
            found.append(self._ranking(pod).best(simple))
        tried = {}
        for number in self._choice.first(name, candidates & of_pods, MAX_DRY_RUNS):
            victims = self._dry_run(pod, number, filters)
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
        return Bound(chosen, tried.get(chosen) or self._nodes[chosen].victims(pod))

    def _lower(self, priority: int) -> NodeSet:
        found = 0
        for other, nodes in self._having.items():
            if other < priority:
                found |= nodes
        return found

    def _lacking_for(self, priority: int, resource: str) -> "_Lacking":
        by_resource = self._lacking.get(priority)
        if by_resource is None:
            if len(self._lacking) >= CACHED_PRIORITIES:
                self._lacking.clear()
            by_resource = self._lacking[priority] = {}
        found = by_resource.get(resource)
        if found is None:
            found = by_resource[resource] = _Lacking([use.free_below(priority, resource) for use in self._nodes])
        return found

    def _ranking(self, pod: SchedulablePod) -> "_Ranking":
        key = pod.priority, pod.amounts
        found = self._rankings.pop(key, None)
        if found is None:
            if len(self._rankings) >= CACHED_RANKINGS:
                del self._rankings[next(iter(self._rankings))]
            found = _Ranking(pod, self._nodes)
        self._rankings[key] = found
        return found

    def _dry_run(self, pod: SchedulablePod, number: int, filters: Filters) -> tuple[BoundPod, ...]:
        """Return the victims on a node; none if the pod cannot run there."""
        waiting = deque(self._nodes[number].lower(pod.priority))
        victims: list[BoundPod] = []
        for other in waiting:
            filters.release(other)
        try:
            if not filters.feasible(pod.requirements) >> number & 1:
                return ()
            while waiting:
                other = waiting.popleft()
                filters.bind(other)
                if not filters.feasible(pod.requirements) >> number & 1:
                    filters.release(other)
                    victims.append(other)
            return tuple(victims)
        finally:
            for other in (*victims, *waiting):
                filters.bind(other)

    def _changed(self, pod: BoundPod, sign: int) -> None:
        number, use = pod.node, self._nodes[pod.node]
        for priority, by_resource in self._lacking.items():
            if pod.pod.priority >= priority:
                for resource, amount in pod.pod.amounts:
                    if resource in by_resource:
                        free = use.free_below(priority, resource)
                        by_resource[resource].move(number, free - sign * amount, free)
        for ranking in self._rankings.values():
            ranking.stale.add(number)


class _NodeUse:
    """The resources of one node and the pods that use them."""

    __slots__ = ("allocatable", "free", "pods", "used")

    def __init__(self, allocatable: Mapping[str, int]) -> None:
        self.allocatable = allocatable
        self.free = {**allocatable}
        self.pods: dict[str, BoundPod] = {}
        self.used: dict[int, dict[str, int]] = {}
        """Amounts by the priority of the pods that use them."""

    def allocate(self, allocatable: Mapping[str, int]) -> bool:
        """Take other allocatable amounts; return False if they are the same."""
        if allocatable == self.allocatable:
            return False
        self.allocatable, self.free = allocatable, {**allocatable}
        for used in self.used.values():
            for resource, amount in used.items():
                self.free[resource] = self.free.get(resource, 0) - amount
        return True

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
        free = self.free
        for resource, amount in pod.pod.amounts:
            used[resource] = used.get(resource, 0) + sign * amount
            free[resource] = free.get(resource, 0) - sign * amount
        return used[PODS]

    def free_below(self, priority: int, resource: str) -> int:
        """Return the free amount of a resource without the pods below a priority."""
        found = self.free.get(resource, 0)
        for other, used in self.used.items():
            if other < priority:
                found += used.get(resource, 0)
        return found

    def lower(self, priority: int) -> Sequence[BoundPod]:
        """Return the pods below a priority, the most important ones first."""
        return sorted([pod for pod in self.pods.values() if pod.pod.priority < priority], key=_importance)

    def victims(self, pod: SchedulablePod) -> tuple[BoundPod, ...]:
        """Return the pods to release for a pod that fits without those of lower priority, if resources alone decide."""
        left = {resource: self.free_below(pod.priority, resource) - amount for resource, amount in pod.amounts}
        found = []
        for other in self.lower(pod.priority):
            used = [(resource, amount) for resource, amount in other.pod.amounts if resource in left]
            for resource, amount in used:
                if amount > left[resource]:
                    found.append(other)
                    break
            else:
                for resource, amount in used:
                    left[resource] -= amount
        return tuple(found)


class _Lacking:
    """The nodes with less of a resource than an amount, for each amount that was asked for."""

    __slots__ = ("_amounts", "_free", "_nodes")

    def __init__(self, free: list[int]) -> None:
        """Take the free amount of each node."""
        self._free = free
        self._amounts: list[int] = []
        self._nodes: list[NodeSet] = []

    def below(self, amount: int) -> NodeSet:
        """Return the nodes with less than an amount."""
        position = bisect_left(self._amounts, amount)
        if position == len(self._amounts) or self._amounts[position] != amount:
            if len(self._amounts) >= CACHED_AMOUNTS:
                self._amounts.clear()
                self._nodes.clear()
                position = 0
            self._amounts.insert(position, amount)
            self._nodes.insert(position, node_set([number for number, free in enumerate(self._free) if free < amount]))
        return self._nodes[position]

    def move(self, number: int, before: int, after: int) -> None:
        """Take another free amount of a node."""
        self._free[number] = after
        first, last = sorted((bisect_right(self._amounts, before), bisect_right(self._amounts, after)))
        for position in range(first, last):
            self._nodes[position] ^= 1 << number


class _Ranking:
    """The nodes by the victims of pods with one priority and equal amounts; nodes in `stale` have changed since."""

    __slots__ = ("_keys", "_nodes", "_of", "_pod", "_uses", "stale")

    def __init__(self, pod: SchedulablePod, uses: Sequence[_NodeUse]) -> None:
        self._pod = pod
        self._uses = uses
        self._keys: list[Key] = []
        self._nodes: dict[Key, NodeSet] = {}
        self._of: dict[int, Key] = {}
        self.stale = set(range(len(uses)))

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
        key = self._of[number] = _key(self._uses[number].victims(self._pod))
        if key not in self._nodes:
            insort(self._keys, key)
        self._nodes[key] = self._nodes.get(key, 0) | 1 << number


def _allocatable(node: Node) -> Mapping[str, int]:
    found = {**counted({name: amount.nanos for name, amount in node.allocatable.items()})}
    limit = node.allocatable.get(PODS)
    found[PODS] = limit.whole if limit is not None else _UNBOUNDED if node.allocatable else 0
    return found


def _importance(pod: BoundPod) -> tuple[int, int, str]:
    return -pod.pod.priority, pod.start, pod.name


def _key(victims: Sequence[BoundPod]) -> Key:
    """Return the order of a candidate by its victims, of which the most important one is the first."""
    first = victims[0]
    # None counts less than 0, so that few victims of negative priority are better than many.
    total = sum(victim.pod.priority - _LEAST_PRIORITY for victim in victims)
    return first.pod.priority, total, len(victims), -first.start


def _depending_on_pods(pod: Requirements, scheduling: Scheduling) -> NodeSet:
    """Return the nodes on which more than resources depends on the other pods."""
    if pod.ports or pod.spread or pod.affinity or pod.anti_affinity:
        return scheduling.every
    found = 0
    for nodes in scheduling.excluded.get(Filter.INTER_POD_AFFINITY, {}).values():
        found |= nodes
    return found
