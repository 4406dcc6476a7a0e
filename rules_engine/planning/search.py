"""Search for the best candidate: all of them in the order of their bounds, or walks among neighbours."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from random import Random

from rules_engine.planning.cluster import Candidate
from rules_engine.planning.space import Space
from rules_engine.simulation.figures import Key

MAX_PLAYS = 3_000
"""Candidates that are all simulated, without those whose bound is no better than the best play."""

STEPS = 3
"""Random steps from the best candidate to the start of the next walk."""


class _StoppedError(Exception):
    """The end of a search before it is complete."""


@dataclass(slots=True)
class Search:
    """A search. `play` returns the key of a candidate's figures; KeyboardInterrupt from it ends the search.

    `bound` returns a key that no play of the candidate surpasses. `expired`: the search ends after its first play.
    `simulated`: the keys of all candidates that were simulated. `interrupted`: a play was.
    """

    space: Space
    play: Callable[[Candidate], Key]
    bound: Callable[[Candidate], Key]
    expired: Callable[[], bool]
    random: Random
    simulated: dict[Candidate, Key] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def ranked(self) -> Sequence[Candidate]:
        """The candidates that were simulated, the best first."""
        return sorted(self.simulated, key=lambda candidate: (self.simulated[candidate], candidate))

    def run(self, least: Key) -> Key:
        """Play candidates; return a key that no candidate surpasses. `least` is such a key before any play."""
        remaining: Sequence[tuple[Key, Candidate]] | None = None
        try:
            for candidate in self.space.uniform():
                self._attempt(candidate)
            if self.space.listed:
                remaining = self._promising(self.space)
                if len(remaining) <= MAX_PLAYS:
                    for key, candidate in remaining:
                        if key >= self._best:
                            break
                        self._attempt(candidate)
                    return self._best
            self._walk(least)
        except KeyboardInterrupt:
            self.interrupted = True
        except _StoppedError:
            pass
        if remaining is None:
            return least
        keys = (key for key, candidate in remaining if candidate not in self.simulated)
        return min(self._best, next(keys, self._best))

    @property
    def _best(self) -> Key:
        return min(self.simulated.values())

    def _attempt(self, candidate: Candidate) -> Key:
        if candidate not in self.simulated:
            self._check()
            self.simulated[candidate] = self.play(candidate)
        return self.simulated[candidate]

    def _check(self) -> None:
        if self.simulated and self.expired():
            raise _StoppedError

    def _promising(self, candidates: Iterable[Candidate]) -> Sequence[tuple[Key, Candidate]]:
        """Return the candidates that may be better than the best, the most promising first, with their bounds."""
        best = self._best
        keyed: list[tuple[Key, Candidate]] = []
        for each in candidates:
            self._check()
            if each not in self.simulated and (key := self.bound(each)) < best:
                keyed.append((key, each))
        self.random.shuffle(keyed)  # many have the same bound
        return sorted(keyed, key=itemgetter(0))

    def _walk(self, least: Key) -> None:
        """Walk to better neighbours, first from the best candidate, then from near it."""
        current = self.ranked[0]
        while self._best > least and len(self.simulated) < self.space.size:
            self._check()
            near = self._promising(self.space.neighbours(current))
            better = next((each for _, each in near if self._attempt(each) < self.simulated[current]), None)
            if better is None:
                current = self.ranked[0]
                for _ in range(STEPS):
                    current = self.random.choice([*self.space.neighbours(current)])
                self._attempt(current)
            else:
                current = better
