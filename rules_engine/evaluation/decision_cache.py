"""Decision cache: rules are evaluated once for pods with equal fingerprints."""

from collections.abc import Callable, Sequence
from sys import getsizeof
from threading import Lock

from rules_engine.cel import Budget
from rules_engine.evaluation.decide import mutate, validate
from rules_engine.evaluation.fingerprint import Encode, Fingerprint, marshal_value
from rules_engine.evaluation.rule_set.rule_set import RuleSet
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint
from rules_engine.model.rules.decision import Action, Decision, Step

MAX_BYTES = 4 * 1024 * 1024
"""Memory of one endpoint's cache, as estimated; the oldest decisions are evicted first."""

MAX_DECISION_BYTES = MAX_BYTES // 32
"""Memory of one cached decision: many times the size of an ordinary one."""

_OBJECT_BYTES = 320
"""Estimated memory of an operation, a step or a part of one, with its short texts and derived values."""

_REPEATABLE = frozenset({Action.SKIP, Action.KEEP, Action.PASS, Action.CHANGE})
"""Actions whose steps are equal for equal fingerprints. Other decisions are not cached: a denial names the pod, and so
may a validation's message; an expression that failed may succeed with more time."""


class DecisionCache:
    """The decision cache of one endpoint of a rule set. Safe for use from several threads.

    Decisions are cached for one view of the cluster: another view may change any of them.
    `encode` serializes fingerprints, which is much of the work: there are faster ones than the default.
    """

    __slots__ = ("_bytes", "_decide", "_fingerprint", "_lock", "_rule_set", "_table")

    def __init__(self, rule_set: RuleSet, endpoint: Endpoint, encode: Encode = marshal_value) -> None:
        self._decide = mutate if endpoint is Endpoint.MUTATE else validate
        self._rule_set = rule_set
        self._fingerprint = Fingerprint(rule_set.rules_at(endpoint), encode)
        self._lock = Lock()
        self._table: tuple[Cluster, dict[bytes, tuple[Decision, int]]] = (UNKNOWN_CLUSTER, {})
        """The view of the cluster, and by fingerprint each decision with its estimated memory. One tuple, because
        readers take no lock: they must never see the decisions of one view beside another view."""
        self._bytes = 0

    def __call__(
        self, request: AdmissionRequest, cluster: Cluster, *, budget: Callable[[], Budget] = Budget
    ) -> Decision:
        """Return the endpoint's decision; rules that the index excludes are not evaluated and leave no step."""
        key = self._fingerprint.key(request) if self._fingerprint.repeats and request.is_pod else None
        if key is not None:
            view, decisions = self._table
            # By identity: a view never changes, and comparing nodes would cost more than the evaluation.
            entry = decisions.get(key) if view is cluster else None
            if entry is not None:
                cached_decision, _ = entry
                return Decision(
                    trace=cached_decision.trace,
                    patch=cached_decision.patch,
                    edits=cached_decision.edits,
                    object=request.object,
                    cached=True,
                    derived=cached_decision.derived,
                )
        # Outside the lock: two threads may evaluate equal pods at once, and get equal decisions.
        decision = self.decide(request, cluster, budget=budget)
        if key is not None and decision.refusal is None and _is_repeatable(decision.trace):
            self._keep(key, cluster, decision)
        return decision

    def decide(self, request: AdmissionRequest, cluster: Cluster, *, budget: Callable[[], Budget] = Budget) -> Decision:
        """Return the decision without the cache."""
        return self._decide(self._rule_set, request, cluster, indexed=True, budget=budget)

    def _keep(self, key: bytes, cluster: Cluster, decision: Decision) -> None:
        size = _estimate_bytes(key, decision)
        if size > MAX_DECISION_BYTES:
            return
        # Without `object`, which is the pod of one request; each hit gets its own.
        stripped = Decision(trace=decision.trace, patch=decision.patch, edits=decision.edits, derived={})
        with self._lock:
            if self._table[0] is not cluster:
                self._table, self._bytes = (cluster, {}), 0
            decisions = self._table[1]
            if key in decisions:
                return
            self._bytes += size
            # The oldest first, not the least recently used, so that a hit does not change the table and needs no lock.
            while self._bytes > MAX_BYTES:
                _, released = decisions.pop(next(iter(decisions)))
                self._bytes -= released
            decisions[key] = stripped, size


def _estimate_bytes(key: bytes, decision: Decision) -> int:
    """Return the estimated memory of a cached decision, in bytes."""
    objects = len(decision.patch) + sum(map(len, decision.edits.values()))
    size = len(key)
    for step in decision.trace:
        objects += 1 + len(step.requests) + len(step.amounts) + len(step.annotations)
        objects += sum(1 + len(resource.attempts) for resource in step.resources)
        names = [request.container for request in step.requests] + [amount.container for amount in step.amounts]
        size += sum(map(getsizeof, (step.message, *step.notes, *step.warnings, *names)))
    return size + _OBJECT_BYTES * (1 + objects)


def _is_repeatable(trace: Sequence[Step]) -> bool:
    return all(step.action in _REPEATABLE for step in trace)
