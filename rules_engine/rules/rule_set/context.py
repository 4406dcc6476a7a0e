"""The context that rules are evaluated in: a request, a pod, a view of the cluster, and the CEL variables."""

from collections.abc import Callable, Mapping, Set
from typing import ClassVar

from msgspec import Struct, field, structs

from rules_engine.cluster.nodes import ABSENT, NodeQuery, Offered, capacity_of, node_index_of
from rules_engine.cluster.nodes.offers import Reach
from rules_engine.language.cel import Budget, EvaluationError, LazyScope, NamedProgram, Type, types
from rules_engine.model.json.edits import Edits
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod, changes_placement
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.rule import Mode, Rule


class UnknownClusterError(EvaluationError):
    """An expression reads what is not known of the cluster."""


class Context(Struct, frozen=True, kw_only=True):
    """One request at one stage of its evaluation: `pod` includes the changes of earlier rules.

    The budgets change: they count the cost of all expressions of the request. Rules in audit mode have their
    own budget, so that their cost cannot fail a rule that enforces. `reach` is computed on first use. `given`: the
    resources that rules may give to pods of a namespace, or move. `foresee` returns what later kinds will change of the
    pod's placement, which its reach takes into account.
    """

    request: AdmissionRequest
    pod: Pod
    cluster: Cluster
    budget: Budget
    audit_budget: Budget
    reach: Reach
    given: Callable[[str], Set[str]] = lambda _namespace: frozenset()
    foresee: "Callable[[Context], Edits] | None" = None

    @property
    def namespace(self) -> str:
        """The pod's namespace, else the request's: a pod made by a controller has none yet."""
        return self.pod.namespace or self.request.namespace

    @property
    def display(self) -> str:
        """The pod's name in messages; a pod without a name has its generateName."""
        generated = text_member(as_mapping(self.pod.original.get("metadata")), "generateName")
        return f"{self.namespace}/{self.pod.name or self.request.name or generated}"

    def edited(self, edits: Edits, reach: Reach | None = None) -> "Context":
        """Return the context with edits of the pod. `reach`: of the edited pod, if it is known."""
        pod = self.pod.edited(edits)
        if reach is None:
            reach = Reach(pod, self.cluster, self.reach.found) if changes_placement(edits) else self.reach
        after = structs.replace(self, pod=pod, reach=reach)
        return after if self.foresee is None else after.foreseeing(self.foresee)

    def foreseeing(self, foresee: "Callable[[Context], Edits] | None") -> "Context":
        """Return the context with another view of later kinds."""
        change = None if foresee is None else lambda: self.pod.edited(foresee(self))
        reach = Reach(self.pod, self.cluster, self.reach.found, change)
        return structs.replace(self, foresee=foresee, reach=reach)

    def budget_of(self, rule: Rule) -> Budget:
        """Return the budget that a rule's expressions spend."""
        return self.audit_budget if rule.mode is Mode.AUDIT else self.budget

    def namespace_labels(self) -> Mapping[str, str]:
        """Return the labels of the pod's namespace. Raises UnknownClusterError if it is not found."""
        labels = self.cluster.namespace_labels(self.namespace)
        if labels is None:
            raise UnknownClusterError(f"namespace {self.namespace!r} not found")
        return labels


class ExpressionScope(LazyScope):
    """The values of names in one rule's expressions, in one context."""

    __slots__ = ("_context", "_rule")

    def __init__(self, context: Context, rule: Rule, variables: Mapping[str, NamedProgram]) -> None:
        super().__init__(variables, context.budget_of(rule))
        self._context = context
        self._rule = rule

    def _compute(self, name: str) -> object:
        context = self._context
        match name:
            case "object":
                return context.pod.raw
            case "oldObject":
                return context.request.old_object
            case "request":
                return context.request.raw
            case "namespaceObject":
                labels = dict(context.namespace_labels())
                return {"metadata": {"name": context.namespace, "labels": labels}}
            case "params":
                return self._rule.params
            case "cluster":
                return ClusterFunctions(context.cluster)
            case "requested":
                return RequestedAmounts(context.pod)
        return super()._compute(name)


class RequestedAmounts(Struct, frozen=True):
    """CEL's `requested`: what the containers of a pod request together, each by its limit, else its request."""

    pod: Pod
    cel_type: ClassVar[Type] = types.REQUESTED

    @property
    def cost(self) -> int:
        return len(self.pod.containers)

    def amount(self, resource: str) -> int:
        """Return the amount of a resource, rounded up, without the overhead, which the API server adds."""
        amounts = [each.limit_or_request(resource) for each in self.pod.containers]
        nanos = self.pod.aggregate([0 if amount is None else amount.nanos for amount in amounts])
        return -(-nanos // NANOS)


class ClusterFunctions(Struct, frozen=True):
    """CEL's `cluster`. Amounts are whole numbers, rounded down; for an unknown cluster they are errors."""

    cluster: Cluster
    _cached_amounts: dict[tuple[Offered, str], tuple[int, int]] = field(default_factory=dict)
    """Cached amounts by resource: an expression may loop over all resources that a pod names."""

    def allocatable(self, resource: str) -> int:
        """Return the largest amount that one node has, in use or not."""
        return self._amounts(resource, Offered.ALLOCATABLE)[0] // NANOS

    def available(self, resource: str) -> int:
        """Return the largest amount that one node has free."""
        return self._amounts(resource, Offered.AVAILABLE)[0] // NANOS

    def total(self, resource: str) -> int:
        """Return the sum over all nodes, in use or not."""
        return self._amounts(resource, Offered.ALLOCATABLE)[1] // NANOS

    def _amounts(self, resource: str, offered: Offered) -> tuple[int, int]:
        """Return the largest amount that one node offers, and the sum over all nodes, in nanos."""
        cluster = self.cluster
        if not cluster.known:
            raise UnknownClusterError(cluster.freshness.unknown)
        if problem := cluster.unread_problem(resource):
            raise UnknownClusterError(problem)
        if resource not in node_index_of(cluster).resources:
            # Not cached: a pod may name any number of resources that do not exist.
            return 0, 0
        largest_and_sum = self._cached_amounts.get((offered, resource))
        if largest_and_sum is None:
            capacity = capacity_of(cluster, NodeQuery(offered=offered, resources=(resource,)))
            amounts = [(0 if amount == ABSENT else amount, count) for (amount,), count in capacity.classes.counts()]
            largest = max((amount for amount, _ in amounts), default=0)
            largest_and_sum = self._cached_amounts[offered, resource] = (
                largest,
                sum(amount * count for amount, count in amounts),
            )
        return largest_and_sum
