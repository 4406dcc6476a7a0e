"""Pods that wait for a node: by priority, then by arrival, as kube-scheduler's queue orders them.

Equal waiting pods are one group: where one of them cannot run, the others cannot either. A group is tried again only
after a change that may help it.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from heapq import heapify, heappop, heapreplace
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from rules_engine.evaluation.nodes import NodeSet, node_set
from rules_engine.scheduling import Filter
from rules_engine.scheduling.cycle import SchedulablePod, SchedulingCycle

_STATIC = (Filter.NODE_UNSCHEDULABLE, Filter.NODE_NAME, Filter.TAINT_TOLERATION, Filter.NODE_AFFINITY)
"""Filters whose answer changes only with the state of nodes."""


class Waiting(Protocol):
    """A pod that waits; `number` counts the pods by their arrival."""

    @property
    def number(self) -> int: ...

    @property
    def pod(self) -> SchedulablePod: ...


W = TypeVar("W", bound=Waiting)


_Place = tuple[int, int]
"""A place in the queue: the priority, negative, and the number of the pod."""


class _Shape(Struct, eq=False):
    """Groups that need the same amounts on the same nodes, in the order of the queue.

    `pod` is one of their pods. `allowed`: the nodes on which they may run, whatever runs there; None: not known.
    """

    pod: SchedulablePod
    groups: list["tuple[_Place, _Group[Any]]"]
    allowed: NodeSet | None = None


class _Group(Struct, Generic[W], eq=False):
    """Equal waiting pods, in the order of their arrival."""

    pod: SchedulablePod
    shape: _Shape
    pods: deque[W]

    @property
    def place(self) -> _Place:
        return -self.pod.requirements.priority, self.pods[0].number


class Queue(Generic[W]):
    """The waiting pods of a scheduling cycle; it is told every change of the cycle."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        self._groups: dict[int, _Group[W]] = {}
        """By the identity of their pod, which the group keeps alive."""
        self._shapes: dict[object, _Shape] = {}
        self._selective: dict[int, _Group[W]] = {}
        """The groups with topology spread, pod affinity or anti-affinity."""
        self._freed: set[int] = set()
        """Nodes that pods have left or whose state has changed, since the groups were tried."""
        self._near: dict[int, _Group[W]] = {}
        """Groups that were not tried, and those that a change may help on other nodes than its own."""

    @property
    def stirred(self) -> bool:
        """True if some waiting pod may be able to run now."""
        return bool((self._freed or self._near) and self._groups)

    def is_waiting(self, pod: SchedulablePod) -> bool:
        """Return True if an equal pod waits: unless the queue is stirred, this one has to wait as well."""
        return id(pod) in self._groups

    def add(self, waiting: W, *, tried: bool = True) -> None:
        """Add a pod that cannot run now, or one that was not tried yet."""
        pod = waiting.pod
        group = self._groups.get(id(pod))
        if group is not None:
            group.pods.append(waiting)
            return
        group = self._groups[id(pod)] = _Group(pod, self._shape_of(pod), deque((waiting,)))
        _insert(group)
        if _is_selective(pod):
            self._selective[id(pod)] = group
        if not tried:
            self._near[id(pod)] = group

    def bound(self, pod: SchedulablePod) -> None:
        """Note that a pod was bound: that may help those that depend on where others run."""
        self._note(pod, self._selective.values(), left=False)

    def released(self, pod: SchedulablePod, node: int) -> None:
        """Note that a pod has left its node."""
        self._freed.add(node)
        groups = self._groups if pod.requirements.anti_affinity else self._selective
        self._note(pod, groups.values(), left=True)

    def changed(self, node: int) -> None:
        """Note that the state of a node has changed."""
        self._freed.add(node)
        self._near.update(self._selective)
        for shape in self._shapes.values():
            shape.allowed = None

    def flush(self, attempt: Callable[[W], bool]) -> None:
        """Run waiting pods until none can: always the first one in the queue that can.

        `attempt` runs a pod and tells this queue all that it changes; False: the pod cannot run.
        """
        while self.stirred:
            freed, near = self._freed, self._near
            self._freed, self._near = set(), {}
            round_: _Round[W] = _Round(self._cycle, self._open(freed), near.values())
            while (group := round_.next()) is not None:
                if not attempt(group.pods[0]):
                    round_.failed.add(id(group.pod))
                    continue
                self._take_first(group)
                if self.stirred:
                    # Groups that failed before, and come first, may be able to run now.
                    self._freed |= freed
                    self._near = {**near, **self._near}
                    break
        self._freed, self._near = set(), {}

    def waiting(self) -> Iterator[tuple[SchedulablePod, Iterable[W]]]:
        """Yield the waiting pods by group."""
        for group in self._groups.values():
            yield group.pod, group.pods

    def _open(self, freed: Set[int]) -> Iterator["_Open"]:
        """Yield the shapes that may run on freed nodes, as far as their state decides."""
        numbers = sorted(freed)
        nodes = node_set(numbers)
        for shape in self._shapes.values():
            if shape.groups and (some := self._allowed(shape) & nodes):
                yield _Open(shape, [number for number in numbers if some >> number & 1])

    def _allowed(self, shape: _Shape) -> NodeSet:
        if shape.allowed is None:
            found = self._cycle.explain(shape.pod)
            allowed = found.every if found.by_name is None else found.by_name
            for name in _STATIC:
                for nodes in found.excluded.get(name, {}).values():
                    allowed &= ~nodes
            shape.allowed = allowed
        return shape.allowed

    def _shape_of(self, pod: SchedulablePod) -> _Shape:
        found = pod.requirements
        requests = frozenset(found.requests.items())
        key = (found.placement, found.node_names, found.priority, pod.preempts, requests)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _Shape(pod, [])
        return shape

    def _take_first(self, group: _Group[W]) -> None:
        """Remove the first pod of a group."""
        groups = group.shape.groups
        del groups[bisect_left(groups, group.place, key=_place)]
        group.pods.popleft()
        if group.pods:
            _insert(group)
        else:
            del self._groups[id(group.pod)]
            self._selective.pop(id(group.pod), None)
            self._near.pop(id(group.pod), None)

    def _note(self, pod: SchedulablePod, groups: Iterable[_Group[W]], *, left: bool) -> None:
        for group in groups:
            if _concerns(group.pod, pod, left=left):
                self._near[id(group.pod)] = group


class _Open(Struct, eq=False):
    """A shape, the freed nodes that may have room for it, and the position of the next of its groups to try."""

    shape: _Shape
    nodes: list[int]
    position: int = 0


class _Round(Generic[W]):
    """The groups that a change may help, in the order of the queue. Meanwhile nodes only get fuller."""

    def __init__(self, cycle: SchedulingCycle, opened: Iterable[_Open], near: Iterable[_Group[W]]) -> None:
        self._cycle = cycle
        self._near = {group.place: group for group in near if group.pods}
        self._open = dict(enumerate(opened))
        self._heap = [(found.shape.groups[0][0], number) for number, found in self._open.items()]
        self._heap += [(place, _NEAR) for place in self._near]
        heapify(self._heap)
        self.failed: set[int] = set()
        """Groups that cannot run, by the identity of their pod."""

    def next(self) -> _Group[W] | None:
        """Return the next group to try. It is returned again unless it has failed or its pods are all gone."""
        heap = self._heap
        while heap:
            place, number = heap[0]
            group = self._near_at(place) if number == _NEAR else self._open_at(self._open[number])
            if group is None:
                heappop(heap)
            elif group.place != place:
                if number == _NEAR:
                    self._near[group.place] = group
                heapreplace(heap, (group.place, number))
            else:
                return group
        return None

    def _near_at(self, place: _Place) -> _Group[W] | None:
        group = self._near[place]
        return group if group.pods and id(group.pod) not in self.failed else None

    def _open_at(self, found: _Open) -> _Group[W] | None:
        groups = found.shape.groups
        while found.position < len(groups) and id(groups[found.position][1].pod) in self.failed:
            found.position += 1
        if found.position == len(groups):
            return None
        while found.nodes and not self._cycle.may_fit(found.shape.pod, found.nodes[-1]):
            found.nodes.pop()
        return groups[found.position][1] if found.nodes else None


_NEAR = -1
"""In place of the number of a shape: a group of its own."""


def _place(entry: tuple[_Place, _Group[Any]]) -> _Place:
    return entry[0]


def _insert(group: _Group[Any]) -> None:
    insort(group.shape.groups, (group.place, group), key=_place)


def _is_selective(pod: SchedulablePod) -> bool:
    found = pod.requirements
    return bool(found.spread or found.affinity or found.anti_affinity)


def _concerns(waiting: SchedulablePod, other: SchedulablePod, *, left: bool) -> bool:
    """Return False if a pod that was bound, or has left, changes nothing for a waiting one but the room on its node."""
    labels, own = other.requirements.labels, waiting.requirements
    selectors = [term.selector for term in (*own.affinity, *own.anti_affinity)]
    selectors += [constraint.selector for constraint in own.spread]
    if any(selector is not None and selector.matches(labels) for selector in selectors):
        return True
    return left and any(term.matches_labels(own.labels) for term in other.requirements.anti_affinity)
