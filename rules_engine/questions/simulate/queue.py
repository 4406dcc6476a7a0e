"""Waiting pods, ordered by priority, then by arrival, as in kube-scheduler's queue.

Equal waiting pods form one group: if one cannot run, no other can. A group is tried again only after a change that may
help it.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.cluster.scheduling.cycle import SchedulablePod, SchedulingCycle
from rules_engine.questions.simulate.arrivals import ArrivedPod

_QueuePosition = tuple[int, int]
"""A place in the queue: the priority, negative, and the number of the pod."""

_ACTIVE = -1
"""The number of the source of active groups; the sources of families have the other numbers."""


class _DemandFamily(Struct, eq=False):
    """Groups that need the same amount of their scarcest resource, in queue order.

    `probe`: a pod that needs only that amount. Most releases leave no room for most families; checking the probe shows
    this at once, however many groups a family has.
    """

    probe: SchedulablePod
    groups: list[tuple[_QueuePosition, "_WaitingGroup"]]


class _WaitingGroup(Struct, eq=False):
    """Equal waiting pods, in the order of their arrival."""

    pod: SchedulablePod
    family: _DemandFamily
    pods: deque[ArrivedPod]

    @property
    def place(self) -> _QueuePosition:
        return -self.pod.requirements.priority, self.pods[0].number


class Queue:
    """The waiting pods of a scheduling cycle. The caller reports every change of the cycle."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        self._groups: dict[int, _WaitingGroup] = {}
        """By the identity of the pod, which the group keeps alive."""
        self._families: dict[object, _DemandFamily] = {}
        self._selective: dict[int, _WaitingGroup] = {}
        """The groups with topology spread, pod affinity or anti-affinity."""
        self._freed: set[int] = set()
        """Nodes that pods have left, or whose state has changed, since the groups were tried."""
        self._active: dict[int, _WaitingGroup] = {}
        """Groups to try on all nodes: new groups, and groups that a change may help on other nodes than its own."""

    @property
    def has_candidates(self) -> bool:
        """True if a waiting pod may be able to run now."""
        return bool((self._freed or self._active) and self._groups)

    def is_waiting(self, pod: SchedulablePod) -> bool:
        """Return True if an equal pod waits: unless the queue has candidates, this pod has to wait as well."""
        return id(pod) in self._groups

    def add(self, waiting: ArrivedPod, *, tried: bool = True) -> None:
        """Add a pod that cannot run now, or that was not tried yet."""
        pod = waiting.pod
        group = self._groups.get(id(pod))
        if group is not None:
            group.pods.append(waiting)
            return
        group = self._groups[id(pod)] = _WaitingGroup(pod, self._family_of(pod), deque((waiting,)))
        insort(group.family.groups, (group.place, group), key=itemgetter(0))
        if is_selective(pod):
            self._selective[id(pod)] = group
        if not tried:
            self._active[id(pod)] = group

    def on_bind(self, pod: SchedulablePod) -> None:
        """Activate the groups that a bound pod may help: their placement depends on other pods."""
        self._activate(pod, self._selective.values(), left=False)

    def on_release(self, pod: SchedulablePod, node: int) -> None:
        """Activate the groups that a pod may help that has left its node."""
        self._freed.update((node, *self._cycle.devices.neighbours(node)))
        groups = self._groups if pod.requirements.anti_affinity else self._selective
        self._activate(pod, groups.values(), left=True)

    def on_node_change(self, node: int) -> None:
        """Activate the groups that a changed state of a node may help."""
        self._freed.add(node)
        self._active.update(self._selective)

    def flush(self, attempt: Callable[[ArrivedPod], bool]) -> None:
        """Run waiting pods until none can run, always the first in the queue that can.

        `attempt` runs a pod and reports its changes to this queue; it returns False if the pod cannot run.
        """
        while self.has_candidates:
            freed, active = self._freed, self._active
            self._freed, self._active = set(), {}
            failed: set[int] = set()
            sources = [self._with_room(family, sorted(freed), failed) for family in self._families.values()]
            heap = [(group.place, _ACTIVE, group) for group in active.values() if group.pods]
            # Of each family only the first group; the next one is read when this one is taken from the heap.
            for number, source in enumerate(sources):
                heap += [(group.place, number, group) for group in islice(source, 1)]
            heapify(heap)
            while heap:
                place, number, group = heappop(heap)
                # Pods that ran meanwhile may have filled the nodes, and a group whose first pod ran has another place.
                is_open = number == _ACTIVE or any(self._cycle.may_fit(group.pod, node) for node in freed)
                if is_open and group.pods and group.place == place and id(group.pod) not in failed:
                    if not attempt(group.pods[0]):
                        failed.add(id(group.pod))
                    elif self._take_first(group) and number == _ACTIVE:
                        heappush(heap, (group.place, number, group))
                if number != _ACTIVE:
                    for following in islice(sources[number], 1):
                        heappush(heap, (following.place, number, following))
                if self.has_candidates:
                    # Groups that failed before, and precede this one, may be able to run now.
                    self._freed |= freed
                    self._active = {**active, **self._active}
                    break
        self._freed, self._active = set(), {}

    def waiting(self) -> Iterator[tuple[SchedulablePod, Iterable[ArrivedPod]]]:
        """Yield the waiting pods by group."""
        for group in self._groups.values():
            yield group.pod, group.pods

    def _with_room(self, family: _DemandFamily, nodes: list[int], failed: Set[int]) -> Iterator[_WaitingGroup]:
        """Yield the groups of a family, in queue order, for which freed nodes may have room when they are read.

        Until the next change, nodes only get fuller. When its first pod runs, a group moves back in the queue, and is
        yielded again.
        """
        cycle, groups = self._cycle, family.groups
        last: _QueuePosition = (-sys.maxsize, 0)
        nodes = [number for number in nodes if groups and cycle.may_fit(family.probe, number)]
        while nodes:
            position = bisect_right(groups, last, key=itemgetter(0))
            if position == len(groups):
                return
            last, group = groups[position]
            if id(group.pod) not in failed:
                allowed = cycle.scheduler.allowed(group.pod.requirements.placement)
                if any(allowed >> number & 1 and cycle.may_fit(group.pod, number) for number in nodes):
                    yield group
                    nodes = [number for number in nodes if cycle.may_fit(family.probe, number)]

    def _family_of(self, pod: SchedulablePod) -> _DemandFamily:
        resource, _ = pod.amounts[0]
        # Nodes and pods differ in cpu and memory, so no amount of these would cover many groups.
        scarce = pod.amounts[:1] if "/" in resource else pod.amounts[-1:]
        key = (scarce, pod.priority, pod.preempts)
        family = self._families.get(key)
        if family is None:
            family = self._families[key] = _DemandFamily(replace(pod, amounts=scarce), [])
        return family

    def _take_first(self, group: _WaitingGroup) -> bool:
        """Remove the first pod of a group; return True if there are others."""
        groups = group.family.groups
        del groups[bisect_left(groups, group.place, key=itemgetter(0))]
        group.pods.popleft()
        if group.pods:
            insort(groups, (group.place, group), key=itemgetter(0))
            return True
        del self._groups[id(group.pod)]
        self._selective.pop(id(group.pod), None)
        self._active.pop(id(group.pod), None)
        return False

    def _activate(self, pod: SchedulablePod, groups: Iterable[_WaitingGroup], *, left: bool) -> None:
        for group in groups:
            if _may_help(group.pod, pod, left=left):
                self._active[id(group.pod)] = group


def is_selective(pod: SchedulablePod) -> bool:
    """Return True if other pods may help a pod by more than room: by their place."""
    requirements = pod.requirements
    return bool(requirements.spread or requirements.affinity or requirements.anti_affinity)


def _may_help(waiting: SchedulablePod, other: SchedulablePod, *, left: bool) -> bool:
    """Return True if a pod that was bound, or has left, may help a waiting pod by more than the room on its node."""
    labels, requirements = other.requirements.labels, waiting.requirements
    selectors = [term.selector for term in (*requirements.affinity, *requirements.anti_affinity)]
    selectors += [constraint.selector for constraint in requirements.spread]
    if any(selector is not None and selector.matches(labels) for selector in selectors):
        return True
    return left and any(term.matches_labels(requirements.labels) for term in other.requirements.anti_affinity)
