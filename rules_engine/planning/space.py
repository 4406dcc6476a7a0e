"""All candidates, without those that offer the same devices as another one; and those that are simulated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, product
from math import comb
from random import Random

from rules_engine.cluster.read.inventory import HOSTNAME
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.mig import Layout
from rules_engine.planning.cluster import Candidate, NodePlan, count_devices
from rules_engine.simulation.figures import Key

MAX_TRIED = 200
"""Candidates that are simulated at most: each takes 10 ms or more, and a search is as good after some 50."""

MAX_COUNTED = 20_000
"""Plans of one node that are listed, to count those that differ; more are all counted."""

STEPS = 3
"""Random steps from the best candidate to the start of the next walk."""


def rank(keys: Mapping[Candidate, Key]) -> Sequence[Candidate]:
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

    def choose(self, keys: Mapping[Candidate, Key], random: Random) -> Iterator[Candidate]:
        """Yield all candidates in a random order; without end those of walks to better neighbours if they are too many.

        The caller adds the key of a candidate to `keys` before it takes the next one. No candidate is yielded twice.
        """
        yield from (self._candidate([[layout] * self._cards] * self._nodes) for layout in self._layouts)
        if self.size <= MAX_TRIED:
            rest = [each for each in self if each not in keys]
            random.shuffle(rest)
            yield from rest
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
                # Where all neighbours are known, the next walk starts farther away.
                current = rank(keys)[0] if near else current
                for _ in range(STEPS):
                    current = random.choice([*self._neighbours(current)])
                if current not in keys:
                    yield current

    def _neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
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
