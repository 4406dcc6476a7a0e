"""Scores of a node's resources: NodeResourcesFit and NodeResourcesBalancedAllocation, and a ranking of nodes by both.

They depend on amounts only, so that nodes in equal states have equal scores.

Source: plugins/noderesources (resource_allocation.go, least_allocated.go, most_allocated.go, balanced_allocation.go).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TypeAlias

from rules_engine.cluster.nodes import NodeSet, node_set, numbers_of
from rules_engine.cluster.scheduling.amounts import NATIVE, allocatable_amounts
from rules_engine.cluster.scheduling.scores.partition import MAX_SCORE, Partition
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.rules.simulation import SchedulerOptions, Strategy

ScoredAmounts: TypeAlias = tuple[int, ...]
"""Amounts of a pod or on a node: requested cpu and memory, the same with amounts for containers that request none, and
requests of the other resources that are scored."""

CPU, MEMORY, NON_ZERO_CPU, NON_ZERO_MEMORY, OTHERS = range(5)

MAX_STATES = 20_000
"""States of nodes that have a number: each takes 300 bytes."""

MAX_CACHED_SCORES = 10_000
"""States whose scores are cached for pods of equal amounts: nodes with equal pods have few. Each takes 60 bytes."""


class AllocationScores:
    """The two plugins' scores by options of the scheduler."""

    def __init__(self, options: SchedulerOptions) -> None:
        self._most = options.scoring is Strategy.MOST_ALLOCATED
        self.others = tuple(name for name in options.resources if name not in ("cpu", "memory"))
        """The scored resources besides cpu and memory."""
        positions = {"cpu": NON_ZERO_CPU, "memory": NON_ZERO_MEMORY}
        positions.update((name, OTHERS + number) for number, name in enumerate(self.others))
        # Resources that not every node has are scored only for pods that request them.
        self._weights = [(positions[name], name not in NATIVE, weight) for name, weight in options.resources.items()]

    def amounts(self, requests: Mapping[str, int], non_zero: Mapping[str, int]) -> ScoredAmounts:
        """Return a pod's amounts; `non_zero`: requests with amounts for containers that request none."""
        others = [non_zero.get(name, 0) for name in ("cpu", "memory", *self.others)]
        return (requests.get("cpu", 0), requests.get("memory", 0), *others)

    def allocatable(self, node: Node) -> ScoredAmounts:
        """Return a node's amounts."""
        amounts = allocatable_amounts(node)
        cpu, memory = amounts.get("cpu", 0), amounts.get("memory", 0)
        return (cpu, memory, cpu, memory, *[amounts.get(name, 0) for name in self.others])

    def fit(self, allocatable: ScoredAmounts, used: Sequence[int], pod: ScoredAmounts) -> int:
        """Return the score of NodeResourcesFit."""
        most, total, weights = self._most, 0, 0
        for position, if_requested, weight in self._weights:
            capacity, requested = allocatable[position], pod[position]
            if not capacity or (if_requested and not requested):
                continue
            requested += used[position]
            weights += weight
            if most:
                total += weight * (min(requested, capacity) * MAX_SCORE // capacity)
            elif requested < capacity:
                total += weight * ((capacity - requested) * MAX_SCORE // capacity)
        return total // weights if weights else 0

    @staticmethod
    def balanced(allocatable: ScoredAmounts, used: Sequence[int], pod: ScoredAmounts) -> int:
        """Return the score of NodeResourcesBalancedAllocation; 0 for a pod that requests neither cpu nor memory."""
        more_cpu, more_memory, all_cpu, all_memory = pod[CPU], pod[MEMORY], allocatable[CPU], allocatable[MEMORY]
        if not more_cpu and not more_memory:
            return 0
        if not all_cpu or not all_memory:
            # There is no deviation with less than two resources.
            return MAX_SCORE // 2 + MAX_SCORE // 4
        cpu, memory = used[CPU], used[MEMORY]
        before = _balance_percent(cpu / all_cpu, memory / all_memory)
        after = _balance_percent((cpu + more_cpu) / all_cpu, (memory + more_memory) / all_memory)
        return MAX_SCORE // 2 + (MAX_SCORE // 2 + after - before) // 2


def _balance_percent(cpu: float, memory: float) -> int:
    if cpu > 1.0 or memory > 1.0:
        cpu, memory = min(cpu, 1.0), min(memory, 1.0)
    # Floats in the scheduler's order.
    return int((1 - abs((cpu - memory) / 2)) * MAX_SCORE)


class NodeStates:
    """The amounts of nodes. Each combination has a number, so that scores are computed once for equal nodes."""

    def __init__(self, nodes: Sequence[Node], scores: AllocationScores) -> None:
        self.scores = scores
        self.allocatable = [scores.allocatable(node) for node in nodes]
        self.used = [[0] * (OTHERS + len(scores.others)) for _ in nodes]
        self._numbers = defaultdict[tuple[ScoredAmounts, ScoredAmounts], int](count().__next__)
        """Numbers of states: the allocatable amounts of a node, and the used ones."""
        self.current = [0] * len(nodes)
        """The number of each node's state."""
        self.changes: list[int] = []
        """The nodes in the order of their changes, the first of which is that each exists."""
        for number in range(len(nodes)):
            self._record_change(number)

    def add(self, node: int, amounts: ScoredAmounts, sign: int) -> None:
        """Add amounts to what is used on a node, or subtract them."""
        used = self.used[node]
        for position, amount in enumerate(amounts):
            if amount:
                used[position] += sign * amount
        self._record_change(node)

    def change(self, number: int, node: Node) -> None:
        """Replace a node's allocatable amounts."""
        self.allocatable[number] = self.scores.allocatable(node)
        self._record_change(number)

    def _record_change(self, node: int) -> None:
        if len(self._numbers) >= MAX_STATES:
            self._numbers.clear()
        self.current[node] = self._numbers[self.allocatable[node], tuple(self.used[node])]
        self.changes.append(node)


class Ranking:
    """The nodes by the sum of both scores for pods of equal amounts. Changes are applied when it is read."""

    def __init__(self, states: NodeStates, pod: ScoredAmounts) -> None:
        self._states = states
        self._pod = pod
        self._scores: dict[int, int] = {}
        """Scores by the number of a state."""
        self._read = 0
        """The number of changes that were read."""
        self._sets = [0] * (2 * MAX_SCORE + 1)
        """The nodes by score."""
        self._placed: list[int | None] = [None] * len(states.current)
        """The score by which each node is in one of the sets; None: it is in none."""
        self._stale: NodeSet = 0
        """The nodes that have changed since, or were not placed: a node is placed when it is read."""

    def top(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes with the highest score, among at least one node."""
        self._follow(nodes)
        return next(best for members in reversed(self._sets) if (best := members & nodes))

    def top_with(self, others: Partition, nodes: NodeSet) -> NodeSet:
        """Return the nodes with the highest sum of this score and another."""
        self._follow(nodes)
        best_score, best_nodes = -1, 0
        for other in sorted(others, reverse=True):
            nodes_of_other = others[other]
            for score in range(len(self._sets) - 1, max(best_score - other, 0) - 1, -1):
                matching = self._sets[score] & nodes_of_other
                if matching:
                    best_nodes = best_nodes | matching if other + score == best_score else matching
                    best_score = other + score
                    break
        return best_nodes

    def _follow(self, nodes: NodeSet) -> None:
        """Place nodes by their present states."""
        states = self._states
        self._stale |= node_set([*{*states.changes[self._read :]}])
        self._read = len(states.changes)
        to_place = self._stale & nodes
        self._stale ^= to_place
        for node in numbers_of(to_place):
            before, score, bit = self._placed[node], self._score(node), 1 << node
            if before is not None:
                self._sets[before] ^= bit
            self._sets[score] |= bit
            self._placed[node] = score

    def _score(self, node: int) -> int:
        states = self._states
        state = states.current[node]
        score = self._scores.get(state)
        if score is None:
            if len(self._scores) >= MAX_CACHED_SCORES:
                self._scores.clear()
            amounts = states.allocatable[node], states.used[node], self._pod
            score = self._scores[state] = states.scores.fit(*amounts) + states.scores.balanced(*amounts)
        return score
