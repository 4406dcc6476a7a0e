"""Decisions of both endpoints under one rule set. Decisions on repeated requests are cached."""

from rules_engine.evaluation import DecisionCache, RuleSet
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint
from rules_engine.model.rules.decision import Decision


class Decisions:
    """The decisions of pods under one rule set.

    The last mutation is cached: a live pod is first mutated to check its reconstruction, then to get its outcome.
    """

    def __init__(self, rule_set: RuleSet) -> None:
        self._mutate = _Endpoint(rule_set, Endpoint.MUTATE)
        self._validate = _Endpoint(rule_set, Endpoint.VALIDATE)
        self._last: tuple[AdmissionRequest, Cluster, Decision, Json] | None = None

    def mutate_request(self, request: AdmissionRequest, cluster: Cluster) -> tuple[Decision, Json]:
        """Return the decision of /mutate, and the pod after its patch."""
        last = self._last
        if last is None or last[0] is not request or last[1] is not cluster:
            decision = self._mutate(request, cluster)
            last = self._last = request, cluster, decision, decision.result
        return last[2:]

    def validate_request(self, request: AdmissionRequest, cluster: Cluster) -> Decision:
        """Return the decision of /validate."""
        return self._validate(request, cluster)


class _Endpoint:
    """The decisions of one endpoint, cached from the second request with a view onward.

    Most live pods on nodes have a view of their own, without the pod itself: a decision cached for it would never be
    used. The last two views are kept, since views without one pod alternate with the view of all pods.
    """

    def __init__(self, rule_set: RuleSet, endpoint: Endpoint) -> None:
        self._cached = DecisionCache(rule_set, endpoint)
        self._last: Cluster | None = None
        self._before: Cluster | None = None

    def __call__(self, request: AdmissionRequest, cluster: Cluster) -> Decision:
        """Return the decision."""
        is_repeated = cluster is self._last or cluster is self._before
        if cluster is not self._last:
            self._last, self._before = cluster, self._last
        return self._cached(request, cluster) if is_repeated else self._cached.decide(request, cluster)
