"""Waiting pods, ordered by priority, then by arrival, as in kube-scheduler's queue.

Equal waiting pods form one group: if one cannot run, no other can. A group is tried again only after a change that may
help it.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter, itemgetter
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.cel import CostExceeded
from rules_engine.evaluation.nodes import NodeSet
from rules_engine.scheduling import Filter, Scheduling
from rules_engine.scheduling.cycle import SchedulablePod, SchedulingCycle
from rules_engine.simulation.arrivals import ArrivedPod

_STATIC_FILTERS = (Filter.NODE_UNSCHEDULABLE, Filter.NODE_NAME, Filter.TAINT_TOLERATION, Filter.NODE_AFFINITY)
"""Filters whose result changes only with the state of nodes."""


_Place = tuple[int, int]
"""A place in the queue: the priority, negative, and the number of the pod."""


class _Family(Struct, eq=False):
    """Shapes that need the same amount of their scarcest resource. Only waiting shapes are listed, in queue order.

    `probe`: a pod that needs only that amount. Most releases leave no room for most families; checking the probe shows
    this at once, however many shapes a family has.
    """

    probe: SchedulablePod
    shapes: list[tuple[_Place, "_Shape"]]


class _Shape(Struct, eq=False):
    """Groups that need the same amounts on the same nodes, in queue order.

    `pod`: one of their pods. `allowed`: the nodes that pass the static filters, computed when the queue had seen
    `changes` changes of nodes.
    """

    pod: SchedulablePod
    family: _Family
    groups: list[tuple[_Place, "_Group"]]
    allowed: NodeSet = 0
    changes: int = -1


class _Group(Struct, eq=False):
    """Equal waiting pods, in the order of their arrival."""

    pod: SchedulablePod
    shape: _Shape
    pods: deque[ArrivedPod]

    @property
    def place(self) -> _Place:
        return -self.pod.requirements.priority, self.pods[0].number


class Queue:
    """The waiting pods of a scheduling cycle. The caller reports every change of the cycle."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        self._groups: dict[int, _Group] = {}
        """By the identity of the pod, which the group keeps alive."""
        self._shapes: dict[object, _Shape] = {}
        self._families: dict[object, _Family] = {}
        self._changes = 0
        """The number of changes of nodes."""
        self._selective: dict[int, _Group] = {}
        """The groups with topology spread, pod affinity or anti-affinity."""
        self._freed: set[int] = set()
        """Nodes that pods have left, or whose state has changed, since the groups were tried."""
        self._active: dict[int, _Group] = {}
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
        group = self._groups[id(pod)] = _Group(pod, self._shape_of(pod), deque((waiting,)))
        _insert_group(group)
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
        self._changes += 1

    def flush(self, attempt: Callable[[ArrivedPod], bool]) -> None:
        """Run waiting pods until none can run, always the first in the queue that can.

        `attempt` runs a pod and reports its changes to this queue; it returns False if the pod cannot run.
        """
        while self.has_candidates:
            freed, active = self._freed, self._active
            self._freed, self._active = set(), {}
            failed: set[int] = set()
            active_groups = _Active(group for group in active.values() if group.pods)
            candidates = [*self._open_families(sorted(freed)), active_groups]
            while (group := _first_candidate(candidates, failed)) is not None:
                if attempt(group.pods[0]):
                    self._take_first(group)
                else:
                    failed.add(id(group.pod))
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

    def _open_families(self, freed: list[int]) -> Iterator["_Candidates"]:
        """Yield the families for which freed nodes may have room."""
        may_fit = self._cycle.may_fit
        for family in self._families.values():
            if family.shapes and (nodes := [number for number in freed if may_fit(family.probe, number)]):
                yield _Open(self._cycle, family, nodes, self._allowed)

    def _allowed(self, shape: _Shape) -> NodeSet:
        if shape.changes != self._changes:
            try:
                shape.allowed = _nodes_allowed_statically(self._cycle.explain(shape.pod))
            except CostExceeded:
                shape.allowed = _ALL_NODES
            shape.changes = self._changes
        return shape.allowed

    def _shape_of(self, pod: SchedulablePod) -> _Shape:
        requirements = pod.requirements
        requests = frozenset(requirements.requests.items())
        key = (requirements.placement, requirements.node_names, requirements.priority, pod.preempts, requests)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _Shape(pod, self._family_of(pod), [])
        return shape

    def _family_of(self, pod: SchedulablePod) -> _Family:
        resource, _ = pod.amounts[0]
        # Nodes and pods differ in cpu and memory, so no amount of these would cover many shapes.
        scarce = pod.amounts[:1] if "/" in resource else pod.amounts[-1:]
        key = (scarce, pod.priority, pod.preempts)
        family = self._families.get(key)
        if family is None:
            family = self._families[key] = _Family(replace(pod, amounts=scarce), [])
        return family

    def _take_first(self, group: _Group) -> None:
        """Remove the first pod of a group."""
        _remove_group(group)
        group.pods.popleft()
        if group.pods:
            _insert_group(group)
        else:
            del self._groups[id(group.pod)]
            self._selective.pop(id(group.pod), None)
            self._active.pop(id(group.pod), None)

    def _activate(self, pod: SchedulablePod, groups: Iterable[_Group], *, left: bool) -> None:
        for group in groups:
            if _may_help(group.pod, pod, left=left):
                self._active[id(group.pod)] = group


_ALL_NODES: NodeSet = -1
"""The set of all nodes, whatever their number."""


def _nodes_allowed_statically(scheduling: Scheduling) -> NodeSet:
    allowed = scheduling.every if scheduling.by_name is None else scheduling.by_name
    for name in _STATIC_FILTERS:
        for nodes in scheduling.excluded.get(name, {}).values():
            allowed &= ~nodes
    return allowed


class _Candidates(Protocol):
    """Groups that a change may help. Until the next such change, nodes only get fuller."""

    def first(self, failed: Set[int]) -> _Group | None:
        """Return the first group in the queue that may be able to run and has not failed."""


class _Open:
    """A family with the freed nodes that may have room for it.

    Its shapes are examined one by one, in queue order: usually the first ones take all the room.
    """

    def __init__(
        self, cycle: SchedulingCycle, family: _Family, nodes: list[int], allowed: Callable[[_Shape], NodeSet]
    ) -> None:
        self._cycle = cycle
        self._family = family
        self._nodes = nodes
        self._allowed = allowed
        self._seen: dict[int, _Seen] = {}
        """The examined shapes, by identity."""
        self._last: _Place = (-sys.maxsize, 0)
        """The place of the last examined shape at that time."""
        self._heap: list[tuple[_Place, int]] = []
        """Examined shapes with room, by the place of the first group that has not failed."""

    def first(self, failed: Set[int]) -> _Group | None:
        """Return the first group in the queue that may be able to run and has not failed."""
        if not _has_room(self._cycle, self._family.probe, self._nodes):
            return None
        heap = self._heap
        while True:
            unseen = self._next_unseen()
            if unseen is not None and (not heap or unseen[0] < heap[0][0]):
                self._look_at(*unseen)
                continue
            if not heap:
                return None
            place, identity = heap[0]
            group = self._next_of(self._seen[identity], failed)
            if group is None:
                heappop(heap)
            elif group.place != place:
                heapreplace(heap, (group.place, identity))
            else:
                return group

    def _next_unseen(self) -> tuple[_Place, _Shape] | None:
        shapes = self._family.shapes
        # An examined shape moves behind when its first pod runs, so it may come again.
        for position in range(bisect_right(shapes, self._last, key=itemgetter(0)), len(shapes)):
            if id(shapes[position][1]) not in self._seen:
                return shapes[position]
        return None

    def _look_at(self, place: _Place, shape: _Shape) -> None:
        self._last = place
        allowed = self._allowed(shape)
        nodes = [number for number in self._nodes if allowed >> number & 1]
        self._seen[id(shape)] = _Seen(shape, nodes)
        if _has_room(self._cycle, shape.pod, nodes):
            heappush(self._heap, (place, id(shape)))

    def _next_of(self, seen: "_Seen", failed: Set[int]) -> _Group | None:
        groups = seen.shape.groups
        while seen.position < len(groups) and id(groups[seen.position][1].pod) in failed:
            seen.position += 1
        if seen.position == len(groups) or not _has_room(self._cycle, seen.shape.pod, seen.nodes):
            return None
        return groups[seen.position][1]


class _Seen(Struct, eq=False):
    """A shape with the freed nodes that may have room for it.

    `position`: of its first group that has not failed.
    """

    shape: _Shape
    nodes: list[int]
    position: int = 0


class _Active:
    """Groups that may be able to run on any node."""

    def __init__(self, groups: Iterable[_Group]) -> None:
        self._heap = [(group.place, group) for group in groups]
        heapify(self._heap)

    def first(self, failed: Set[int]) -> _Group | None:
        """Return the first group in the queue that may be able to run and has not failed."""
        heap = self._heap
        while heap:
            place, group = heap[0]
            if not group.pods or id(group.pod) in failed:
                heappop(heap)
            elif group.place != place:
                heapreplace(heap, (group.place, group))
            else:
                return group
        return None


def _first_candidate(candidates: Iterable[_Candidates], failed: Set[int]) -> _Group | None:
    groups = [candidate.first(failed) for candidate in candidates]
    return min(filter(None, groups), key=attrgetter("place"), default=None)


def _has_room(cycle: SchedulingCycle, pod: SchedulablePod, nodes: list[int]) -> bool:
    """Return True if a node may have room for a pod; trailing nodes without room are removed from `nodes`."""
    while nodes and not cycle.may_fit(pod, nodes[-1]):
        nodes.pop()
    return bool(nodes)


def _insert_group(group: _Group) -> None:
    """Add a group to its shape; its place is the shape's place in the family if it is the first group."""
    shape, place = group.shape, group.place
    groups, shapes = shape.groups, shape.family.shapes
    if not groups or place < groups[0][0]:
        if groups:
            del shapes[bisect_left(shapes, groups[0][0], key=itemgetter(0))]
        insort(shapes, (place, shape), key=itemgetter(0))
    insort(groups, (place, group), key=itemgetter(0))


def _remove_group(group: _Group) -> None:
    """Undo an `_insert_group`."""
    shape, place = group.shape, group.place
    groups, shapes = shape.groups, shape.family.shapes
    position = bisect_left(groups, place, key=itemgetter(0))
    del groups[position]
    if not position:
        del shapes[bisect_left(shapes, place, key=itemgetter(0))]
        if groups:
            insort(shapes, (groups[0][0], shape), key=itemgetter(0))


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
