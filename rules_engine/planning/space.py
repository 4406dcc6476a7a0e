"""All candidates, without those that offer the same devices as another one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, product
from math import comb

from rules_engine.loading.kubernetes.inventory import HOSTNAME
from rules_engine.model.gpu.placements import Layout
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.planning.cluster import Candidate, NodePlan, count_devices

MAX_LISTED = 20_000
"""Candidates that are listed, to compute the bound of each: that takes some 100 µs."""


class Space:
    """All candidates. The plans of nodes that differ only in their names are in order: the nodes are interchangeable.

    Plans that offer the same devices are one: 12,870 plans of eight cards with nine layouts offer 1,815 different
    numbers of devices. `listed`: iteration yields all candidates; otherwise there are too many.
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
            if len(self._plans) > MAX_LISTED:
                break
        self._plans = sorted(self._plans)
        self.listed = len(self._plans) <= MAX_LISTED and self._count(len(self._plans)) <= MAX_LISTED

    @property
    def size(self) -> int:
        """The number of candidates: len() has no numbers of more than 63 bits."""
        return self._count(len(self._plans) if self.listed else comb(len(self._layouts) + self._cards - 1, self._cards))

    def _count(self, plans: int) -> int:
        return comb(plans + self._nodes - 1, self._nodes) if self._interchangeable else plans**self._nodes

    def __iter__(self) -> Iterator[Candidate]:
        if self._interchangeable:
            return combinations_with_replacement(self._plans, self._nodes)
        return product(self._plans, repeat=self._nodes)

    def uniform(self) -> Sequence[Candidate]:
        """Return the candidates whose cards all have one layout."""
        return [self._candidate([[layout] * self._cards] * self._nodes) for layout in self._layouts]

    def neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield the candidates that differ in the layout of one card."""
        for number, plan in enumerate(candidate):
            for old in dict.fromkeys(plan):
                rest = [*plan]
                rest.remove(old)
                for layout in self._layouts:
                    if layout != old:
                        yield self._candidate([*candidate[:number], [*rest, layout], *candidate[number + 1 :]])

    def _candidate(self, plans: Sequence[Sequence[Layout]]) -> Candidate:
        """Return the candidate that offers the devices of some plans."""
        known = map(self._plan, plans)
        return tuple(sorted(known) if self._interchangeable else known)

    def _plan(self, layouts: Sequence[Layout]) -> NodePlan:
        devices = (len(layouts), *map(sum, zip(*map(self._offers.__getitem__, layouts), strict=True)))
        plan = self._known.get(devices)
        if plan is None:
            plan = self._known[devices] = tuple(sorted(layouts))
        return plan
