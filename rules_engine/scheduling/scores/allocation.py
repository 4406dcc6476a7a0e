"""Scores of a node's resources: NodeResourcesFit and NodeResourcesBalancedAllocation, and a ranking of nodes by both.

They depend on amounts only, so that nodes in equal states have equal scores.

Source: plugins/noderesources (resource_allocation.go, least_allocated.go, most_allocated.go, balanced_allocation.go).
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rules_engine.evaluation.nodes import NodeSet, numbers_of
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.rules.simulation import SchedulerOptions, Strategy
from rules_engine.scheduling.amounts import NATIVE, allocatable_amounts
from rules_engine.scheduling.scores.partition import MAX_SCORE, Partition

Amounts: TypeAlias = tuple[int, ...]
"""Amounts of a pod or on a node: requested cpu and memory, the same with amounts for containers that request none, and
requests of the other resources that are scored."""

CPU, MEMORY, NON_ZERO_CPU, NON_ZERO_MEMORY, OTHERS = range(5)

MAX_STATES = 20_000
"""States of nodes that have a number: each takes 300 bytes."""

MAX_CACHED_SCORES = 10_000
"""States whose scores are cached for pods of equal amounts: nodes with equal pods have few. Each takes 60 bytes."""

_State: TypeAlias = tuple[Amounts, Amounts]
"""The allocatable amounts of a node, and the used amounts."""


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

    def amounts(self, requests: Mapping[str, int], non_zero: Mapping[str, int]) -> Amounts:
        """Return a pod's amounts; `non_zero`: requests with amounts for containers that request none."""
        others = [non_zero.get(name, 0) for name in ("cpu", "memory", *self.others)]
        return (requests.get("cpu", 0), requests.get("memory", 0), *others)

    def allocatable(self, node: Node) -> Amounts:
        """Return a node's amounts."""
        amounts = allocatable_amounts(node)
        cpu, memory = amounts.get("cpu", 0), amounts.get("memory", 0)
        return (cpu, memory, cpu, memory, *[amounts.get(name, 0) for name in self.others])

    def fit(self, allocatable: Amounts, used: Sequence[int], pod: Amounts) -> int:
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
    def balanced(allocatable: Amounts, used: Sequence[int], pod: Amounts) -> int:
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
        self.bits = [1 << number for number in range(len(nodes))]
        """Each node as a set."""
        self.every = (1 << len(nodes)) - 1
        self.allocatable = [scores.allocatable(node) for node in nodes]
        self.used = [[0] * (OTHERS + len(scores.others)) for _ in nodes]
        self._numbers: dict[_State, int] = {}
        self._made = 0
        self.states: dict[int, _State] = {}
        """The states of nodes, by number."""
        self.members: dict[int, NodeSet] = {}
        """The nodes in each state."""
        self.current: list[int] = []
        """The number of each node's state."""
        for number in range(len(nodes)):
            self.current.append(self._join_state(number))
        self._changes: list[int] = []
        self._dropped = 0

    @property
    def moment(self) -> int:
        """The number of changes until now."""
        return self._dropped + len(self._changes)

    def add(self, node: int, amounts: Amounts, sign: int) -> None:
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

    def changes_since(self, moment: int) -> Sequence[int] | None:
        """Return the nodes that changed since a moment, possibly repeated; None if it is too long ago."""
        if moment < self._dropped:
            return None
        return self._changes[moment - self._dropped :]

    def _record_change(self, node: int) -> None:
        before = self.current[node]
        left = self.members[before] ^ self.bits[node]
        if left:
            self.members[before] = left
        else:
            del self.members[before], self.states[before]
        self.current[node] = self._join_state(node)
        self._changes.append(node)
        if len(self._changes) > 2 * len(self.bits):
            # A ranking that has not read these changes is made anew.
            dropped = len(self.bits)
            del self._changes[:dropped]
            self._dropped += dropped

    def _join_state(self, node: int) -> int:
        state = self.allocatable[node], tuple(self.used[node])
        number = self._numbers.get(state)
        if number is None:
            if len(self._numbers) >= MAX_STATES:
                self._numbers.clear()
            number = self._numbers[state] = self._made
            self._made += 1
        self.states[number] = state
        self.members[number] = self.members.get(number, 0) | self.bits[node]
        return number


class Ranking:
    """The nodes by the sum of both scores for pods of equal amounts. Changes are applied when it is read."""

    def __init__(self, states: NodeStates, pod: Amounts) -> None:
        self._states = states
        self._pod = pod
        self._scores: dict[int, int] = {}
        """Scores by the number of a state."""
        self._moment = -1
        self._sets = [0] * (2 * MAX_SCORE + 1)
        """The nodes by score."""
        self._placed = 0
        """The nodes that are in one of the sets."""
        self._seen: list[int] = []
        """The state by which each of them was placed."""
        self._stale = 0
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
        changed = states.changes_since(self._moment) if self._moment >= 0 else None
        most = len(states.members)
        if changed is None or len(changed) > 4 * most or len(self._scores) > MAX_CACHED_SCORES:
            self._reset()
            changed = ()
        self._moment = states.moment
        left = self._stale & nodes
        if left.bit_count() + len(changed) > 2 * most:
            self._reset()
            self._place_by_state(nodes)
            return
        if left:
            self._stale ^= left
            self._place(numbers_of(left))
        if changed:
            here, bits = [], states.bits
            for node in dict.fromkeys(changed):
                if nodes & bits[node]:
                    here.append(node)
                else:
                    self._stale |= bits[node]
            self._place(here)

    def _reset(self) -> None:
        states = self._states
        if len(self._scores) > MAX_CACHED_SCORES:
            self._scores.clear()
        self._sets = [0] * len(self._sets)
        self._placed, self._stale = 0, states.every
        self._seen = states.current.copy()

    def _place(self, nodes: Sequence[int]) -> None:
        """Move nodes to the sets of their scores, one by one."""
        current, seen, sets, bits = self._states.current, self._seen, self._sets, self._states.bits
        scores, placed = self._scores, self._placed
        for node in nodes:
            state, bit = current[node], bits[node]
            score = scores.get(state)
            if score is None:
                score = self._score(state)
            if placed & bit:
                before = scores[seen[node]]
                seen[node] = state
                if before == score:
                    continue
                sets[before] ^= bit
            else:
                placed |= bit
                seen[node] = state
            sets[score] |= bit
        self._placed = placed

    def _place_by_state(self, nodes: NodeSet) -> None:
        """Place nodes that are not placed yet."""
        sets = self._sets
        for state, members in self._states.members.items():
            to_place = members & nodes
            if to_place:
                sets[self._score(state)] |= to_place
        self._placed |= nodes
        self._stale &= ~nodes

    def _score(self, state: int) -> int:
        score = self._scores.get(state)
        if score is None:
            allocatable, used = self._states.states[state]
            scores, pod = self._states.scores, self._pod
            score = self._scores[state] = scores.fit(allocatable, used, pod) + scores.balanced(allocatable, used, pod)
        return score


def scores_by_node(states: NodeStates, pod: Amounts, nodes: NodeSet) -> tuple[dict[int, int], dict[int, int] | None]:
    """Return the scores of NodeResourcesFit and of NodeResourcesBalancedAllocation; None: the plugin is skipped."""
    scores, numbers = states.scores, numbers_of(nodes)
    fit = {node: scores.fit(states.allocatable[node], states.used[node], pod) for node in numbers}
    if not pod[CPU] and not pod[MEMORY]:
        return fit, None
    return fit, {node: scores.balanced(states.allocatable[node], states.used[node], pod) for node in numbers}
