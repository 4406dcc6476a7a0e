"""GPU capacity that is free while pods wait for it, but in pieces too small for them."""

from collections import Counter, defaultdict
from collections.abc import Set
from fractions import Fraction
from math import lcm

from rules_engine.accelerators.resources import card_share, is_gpu
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.questions.simulate.record import NOT_ADMITTED, Record
from rules_engine.questions.simulate.usage import distinct_admissions, run_time, time_span

_DeviceAmounts = tuple[tuple[str, int], ...]
"""GPU devices of a pod: resources with their amounts in nanos."""


def stranded_card_time(record: Record) -> Fraction:
    """Return the GPU capacity stranded by fragmentation, as cards multiplied by milliseconds.

    At each moment, it is the cards of waiting pods whose GPU devices fit on no node. The smallest pods count first, as
    long as the free cards of all nodes, in one piece, would suffice for them. A MIG device is its share of a card;
    cards of different vendors do not add up. Only GPU devices count: a pod whose devices fit on a node waits for
    another reason, such as cpu or taints. States of nodes do not count.
    """
    devices: dict[int, _DeviceAmounts] = {
        id(each): tuple(sorted((name, amount) for name, amount in each.given.items() if amount and is_gpu(name)))
        for each in distinct_admissions(record.pods)
    }
    changes: list[tuple[Milliseconds, _DeviceAmounts, str, int]] = []
    waiting_kinds: set[_DeviceAmounts] = set()
    for pod in record.pods:
        kind = devices[id(pod.admitted)]
        if not kind or pod.state in NOT_ADMITTED:
            continue
        start, end = run_time(pod, record)
        if pod.bound is not None and start < end:
            changes += ((start, kind, pod.node, 1), (end, kind, pod.node, -1))
        arrived, left = max(pod.arrived, 0), time_span(record) if pod.bound is None else pod.bound
        if arrived < left:
            waiting_kinds.add(kind)
            changes += ((arrived, kind, "", 1), (left, kind, "", -1))
    if not waiting_kinds:
        return Fraction()
    changes.sort(key=lambda change: change[0])
    state = _Snapshot(record, waiting_kinds, {name for kind in devices.values() for name, _ in kind})
    total = at = 0
    for time, kind, node, sign in changes:
        # Between two changes the state is constant.
        if time != at:
            total += state.stranded() * (time - at)
            at = time
        if node:
            state.hold(node, kind, sign)
        else:
            state.waiting[kind] += sign
    return Fraction(total + state.stranded() * (time_span(record) - at), state.scale * NANOS)


class _Snapshot:
    """Free devices and waiting pods at a moment. Cards are whole numbers of 1/`scale` of a card's nanos."""

    def __init__(self, record: Record, kinds: Set[_DeviceAmounts], held: Set[str]) -> None:
        self.waiting: Counter[_DeviceAmounts] = Counter()
        names = held | {name for node in record.nodes for name in node.allocatable if is_gpu(name)}
        self.scale = lcm(*(card_share(name).denominator for name in names))
        self._cards = {name: int(card_share(name) * self.scale) for name in names}
        self._sizes = {kind: sum(self._cards[name] * amount for name, amount in kind) for kind in kinds}
        self._kinds = sorted(kinds, key=lambda kind: (self._sizes[kind], kind))
        self._free: dict[str, Counter[str]] = {node.name: Counter() for node in record.nodes}
        self._free_cards: Counter[str] = Counter()
        """Free cards by vendor."""
        self._fitting = dict.fromkeys(kinds, 0)
        """The number of nodes on which each kind fits."""
        for node in record.nodes:
            self.hold(
                node.name, tuple((name, each.nanos) for name, each in node.allocatable.items() if is_gpu(name)), -1
            )

    def hold(self, node: str, devices: _DeviceAmounts, sign: int) -> None:
        """Take devices of a node, or free them with the sign -1."""
        free = self._free[node]
        self._count_node(free, -1)
        for name, amount in devices:
            free[name] -= sign * amount
        self._count_node(free, 1)

    def _count_node(self, free: Counter[str], sign: int) -> None:
        for name, amount in free.items():
            self._free_cards[_vendor(name)] += sign * self._cards[name] * max(amount, 0)
        for kind in self._kinds:
            if all(free[name] >= amount for name, amount in kind):
                self._fitting[kind] += sign

    def stranded(self) -> int:
        """Return the stranded cards."""
        stranded: defaultdict[str, int] = defaultdict(int)
        for kind in self._kinds:
            if self.waiting[kind] and not self._fitting[kind]:
                vendor = _vendor(kind[0][0])
                size = self._sizes[kind]
                left = self._free_cards[vendor] - stranded[vendor]
                stranded[vendor] += size * min(self.waiting[kind], left // size)
        return sum(stranded.values())


def _vendor(resource: str) -> str:
    return resource.partition("/")[0]
