"""The resources that nodes offer to one pod, as one ladder counts them."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from rules_engine.cluster.nodes import (
    ABSENT,
    Capacity,
    Demand,
    NodeQuery,
    NodeSet,
    Offered,
    capacity_of,
    matching_nodes,
    node_index_of,
    node_index_with_places,
    nodes_with_labels,
    numbers_of,
)
from rules_engine.cluster.nodes.reach import Known
from rules_engine.language.cel import Budget, CostExceeded, EvaluationError
from rules_engine.model.json.strict import TooLargeError
from rules_engine.model.kubernetes.cluster import Cluster, Node, Served
from rules_engine.model.kubernetes.devices import MAX_CLAIM_DEVICES
from rules_engine.model.kubernetes.placement import Placement
from rules_engine.model.kubernetes.pod import NO_AMOUNTS, Pod
from rules_engine.model.kubernetes.quantity import NANOS, Quantity

AMOUNTS_PER_UNIT = 4
"""Comparisons of amounts for one unit of the budget: of nodes with a demand, or of containers."""

UNITS_PER_NODE = 4
"""Cost of a node whose drivers are tried: so many µs."""


class UnknownOfferError(Exception):
    """It is unknown whether a node offers amounts, for the reason in the message."""


class CostlyOfferError(UnknownOfferError):
    """It takes too long to say which devices of drivers fit together."""


class Reach:
    """The nodes that a pod may run on; they are searched on first use, once per request and placement.

    `found`: nodes by placement; the edited pods of a request share it. `changed` returns the pod as it will be placed.
    """

    __slots__ = ("_changed", "_cluster", "_error", "_known", "_nodes", "_placement", "_pod", "found")

    def __init__(
        self,
        pod: Pod,
        cluster: Cluster,
        found: "dict[Placement, NodeSet] | None" = None,
        changed: Callable[[], Pod] | None = None,
    ) -> None:
        self._pod = pod
        self._changed = changed
        self.found = {} if found is None else found
        self._cluster = cluster
        self._nodes: NodeSet | None = None
        self._placement: Placement | None = None
        self._known: Known = {}
        self._error: EvaluationError | None = None

    def moved(self, placement: Placement) -> "Reach":
        """Return the pod's reach with another placement, most of whose expressions are the same values."""
        reach = Reach(self._pod, self._cluster, self.found)
        reach._placement, reach._known = placement, self._known
        return reach

    @property
    def placement(self) -> Placement:
        """The pod's placement. Raises PodError if it is malformed, EvaluationError if it is too large."""
        if self._error is not None:
            raise self._error
        if self._placement is None:
            try:
                self._placement = (self._pod if self._changed is None else self._changed()).placement
            except TooLargeError as error:
                self._error = EvaluationError(str(error))
                raise self._error from None
        return self._placement

    def nodes(self, budget: Budget) -> NodeSet:
        """Return the nodes. Raises PodError and EvaluationError as `placement` does."""
        nodes = self._nodes
        if nodes is None:
            placement = self.placement
            nodes = self.found.get(placement)
            if nodes is None:
                # Not cached if it fails: the error is due to this budget, and the next rule may have another budget.
                index = node_index_with_places(self._cluster)
                nodes = matching_nodes(index, placement, budget, self._known)
            self._nodes = self.found[placement] = nodes
        return nodes


class Offers:
    """The amounts that nodes offer to one ladder's pod; with a `pool`, nodes with these labels, None: without it.

    `others`: the pod's requests of resources that the ladder does not have, of which a node must offer all.
    """

    __slots__ = ("_budget", "_capacity", "_cluster", "_others", "_pool", "_query", "_reach")

    def __init__(
        self,
        query: NodeQuery,
        reach: Reach,
        cluster: Cluster,
        budget: Budget,
        pool: Sequence[tuple[str, str | None]] = (),
        others: Demand = NO_AMOUNTS,
    ) -> None:
        # One capacity for all pods with other requests: they may name any combination of resources.
        self._query = query.with_resources(node_index_of(cluster).extended) if others else query
        self._others = others
        self._reach = reach
        self._pool = pool
        self._cluster = cluster
        self._budget = budget
        self._capacity: Capacity | None = None

    def cover(self, demand: Demand) -> bool:
        """Return True if one node that counts offers all of `demand`, and the pod's other requests.

        Raises PodError and EvaluationError as Reach does, if the ladder counts only nodes that the pod may run on,
        CostExceeded if the budget does not cover comparisons and searches, and UnknownOfferError.
        """
        among = self._find_nodes()
        demand = {**self._others, **demand}
        covered = self._has_amounts(demand, among) and self._is_served(demand, among)
        for resource in demand:
            # Amounts of device plugins do not depend on drivers.
            problem = self._cluster.unread_problem(resource)
            if problem and (not covered or resource in node_index_of(self._cluster).served):
                raise UnknownOfferError(problem)
        return covered

    def excluding_request(self, demand: Demand) -> str:
        """Return the pod's other request that no node offers together with `demand`; "" if no node offers `demand`.

        By amounts: whether devices of drivers fit together is not tried.
        """
        among = self._find_nodes()
        if not self._others or not self._has_amounts(demand, among):
            return ""
        for name, nanos in self._others.items():
            if not self._has_amounts({name: nanos, **demand}, among):
                return f"{Quantity(nanos)} of {name}"
        together = self._has_amounts({**self._others, **demand}, among)
        return "" if together else "the pod's other resources"

    def _has_amounts(self, demand: Demand, among: NodeSet | None) -> bool:
        capacity = self._find_capacity()
        self._budget.spend(len(capacity.classes.members) * (1 + len(self._others)) // AMOUNTS_PER_UNIT)
        # No node has a resource that the query lacks.
        known = not self._others or demand.keys() <= {*self._query.resources}
        return known and capacity.covers(demand, among)

    def _find_capacity(self) -> Capacity:
        if self._capacity is None:
            self._capacity = capacity_of(self._cluster, self._query)
        return self._capacity

    def _find_nodes(self) -> NodeSet | None:
        """Return the nodes that the pod may run on, of the pool; None if neither matters."""
        among = self._reach.nodes(self._budget) if self._query.by_pod else None
        if not self._pool:
            return among
        self._budget.spend(len(self._pool))
        pool = nodes_with_labels(node_index_with_places(self._cluster), self._pool)
        return pool if among is None else pool & among

    def failure(self, demand: Demand) -> str:
        """Return why one node makes the scheduler reject a pod that needs `demand` on all nodes; "" if none does.

        Raises the errors of `cover` except UnknownOfferError.
        """
        demand = {**self._others, **demand}
        _, uncertain = self._find_uncertain(demand, self._find_nodes())
        free = self._query.offered is Offered.AVAILABLE
        for node, counts, _, answer in self._answers(demand, uncertain):
            if node.service is not None and answer is Served.GIVEN_UP:
                return f"on node {node.name}, {node.service.failure(counts, free=free)}"
        return ""

    def _is_served(self, demand: Demand, among: NodeSet | None) -> bool:
        """Return True if one node can serve all amounts at once, devices of drivers included."""
        names, uncertain = self._find_uncertain(demand, among)
        if not names or (len(names) == 1 and not uncertain):
            return True
        answers = set[Served]()
        try:
            for _, _, fits, answer in self._answers(demand, uncertain):
                if answer is Served.GIVEN_UP:
                    return False
                if fits:
                    answers.add(answer)
            offering = 0 if Served.YES in answers else self._find_capacity().covering(demand, among) & ~uncertain
            for _, _, _, answer in self._answers(demand, offering):
                answers.add(answer)
                if answer is Served.YES:
                    break
        except CostExceeded as error:
            raise CostExceeded(f"{self._too_long(demand)}: {error.message}") from None
        if Served.UNKNOWN in answers and Served.YES not in answers:
            raise self._too_long(demand)
        return Served.YES in answers

    def _find_uncertain(self, demand: Demand, among: NodeSet | None) -> tuple[Sequence[str], NodeSet]:
        """Return the resources that drivers may serve, and the nodes that may make the scheduler give up the pod."""
        index = node_index_of(self._cluster)
        names = [name for name in demand if name in index.served]
        few = sum(demand[name] for name in names) <= MAX_CLAIM_DEVICES * NANOS
        nodes = (index.uncertain if few else index.every) if names else 0
        return names, nodes if among is None else nodes & among

    def _answers(self, demand: Demand, nodes: NodeSet) -> Iterator[tuple[Node, Mapping[str, int], bool, Served]]:
        """Yield each node that counts, what its drivers would serve, whether it offers each amount, and the answer."""
        index = node_index_of(self._cluster)
        free = self._query.offered is Offered.AVAILABLE
        by_shape: dict[Hashable, Served] = {}
        self._budget.spend(nodes.bit_count() // AMOUNTS_PER_UNIT)
        for number in numbers_of(nodes):
            self._budget.spend(UNITS_PER_NODE)
            node = index.nodes[number]
            if self._query.counts(node):
                offered = dict(zip(self._query.resources, self._query.class_of(node), strict=True))
                lacking = {name for name, nanos in demand.items() if offered.get(name, ABSENT) < nanos}
                own = node.service.resources if node.service else frozenset[str]()
                counts = {name: nanos // NANOS for name, nanos in demand.items() if name in own}
                answer = Served.YES
                # Drivers are tried only where the node offers all other amounts.
                if node.service and counts and lacking <= own:
                    shape = node.service.shape(free=free)
                    if shape not in by_shape:
                        by_shape[shape] = node.service.serve(counts, self._budget.spend, free=free)
                    answer = by_shape[shape]
                yield node, counts, not lacking, answer

    def _too_long(self, demand: Demand) -> CostlyOfferError:
        names, _ = self._find_uncertain(demand, None)
        amounts = " and ".join(f"{demand[name] // NANOS} of {name}" for name in names)
        return CostlyOfferError(f"it takes too long to say which devices fit together: {amounts}")
