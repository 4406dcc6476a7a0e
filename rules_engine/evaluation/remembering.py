"""Decisions that are given again: rules are asked once for pods that they cannot tell apart."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

from rules_engine.cel import Budget
from rules_engine.evaluation.compiled import AnyCompiled, RuleSet
from rules_engine.evaluation.decide import mutate, validate
from rules_engine.evaluation.reads import Reads
from rules_engine.model.admission import AdmissionRequest
from rules_engine.model.cluster import UNKNOWN_CLUSTER, Cluster
from rules_engine.model.decision import Action, Decision, Step

MAX_DECISIONS = 256
"""That are remembered at once, the oldest forgotten first: four megabytes at most."""

_REPEATABLE = frozenset({Action.SKIP, Action.KEEP, Action.PASS, Action.CHANGE})
"""What says nothing that is different for another pod. A denial names the pod, and so may a validation's message; what
could not be evaluated may succeed with more time."""


class Decide(Protocol):
    """`mutate` or `validate`."""

    def __call__(
        self,
        rule_set: RuleSet,
        request: AdmissionRequest,
        cluster: Cluster,
        *,
        indexed: bool = False,
        budget: Callable[[], Budget] = Budget,
    ) -> Decision: ...


class Remembering:
    """One endpoint of a rule set. Safe for use from several threads.

    A decision is given again while the view of the cluster is the same: what changes there may change any of them.
    """

    __slots__ = ("_decide", "_lock", "_reads", "_rule_set", "_table")

    def __init__(self, decide: Decide, rule_set: RuleSet, rules: Sequence[AnyCompiled]) -> None:
        self._decide = decide
        self._rule_set = rule_set
        self._reads = Reads(rules)
        self._lock = Lock()
        self._table: tuple[Cluster, dict[bytes, Decision]] = (UNKNOWN_CLUSTER, {})

    @classmethod
    def mutations(cls, rule_set: RuleSet) -> "Remembering":
        return cls(mutate, rule_set, (*rule_set.ladders, *rule_set.injections))

    @classmethod
    def validations(cls, rule_set: RuleSet) -> "Remembering":
        return cls(validate, rule_set, rule_set.validations)

    def __call__(
        self, request: AdmissionRequest, cluster: Cluster, *, budget: Callable[[], Budget] = Budget
    ) -> Decision:
        """What the endpoint decides; with fewer steps, as rules that the pod cannot meet are not asked."""
        key = self._reads.key(request) if self._reads.repeats and request.is_pod else None
        if key is not None:
            seen, decisions = self._table
            known = decisions.get(key) if seen is cluster else None
            if known is not None:
                return Decision(
                    trace=known.trace, patch=known.patch, edits=known.edits, object=request.object, remembered=True
                )
        decision = self._decide(self._rule_set, request, cluster, indexed=True, budget=budget)
        if key is not None and decision.refusal is None and _repeatable(decision.trace):
            self._keep(key, cluster, decision)
        return decision

    def _keep(self, key: bytes, cluster: Cluster, decision: Decision) -> None:
        kept = Decision(trace=decision.trace, patch=decision.patch, edits=decision.edits)
        with self._lock:
            if self._table[0] is not cluster:
                self._table = (cluster, {})
            decisions = self._table[1]
            if len(decisions) >= MAX_DECISIONS:
                del decisions[next(iter(decisions))]
            decisions[key] = kept


def _repeatable(trace: Sequence[Step]) -> bool:
    return all(step.action in _REPEATABLE for step in trace)
