"""The explanation of why a pod is not scheduled: a finding without the name of the pod."""

from dataclasses import dataclass

from rules_engine.diagnosis.reasons import PendingReason
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A reason that is true for a pod; `missing`: the resources that more of the cluster's devices would help with."""

    reason: PendingReason
    severity: FindingSeverity
    message: str
    cause: str
    certainty: Certainty = Certainty.CERTAIN
    evidence: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    missing: tuple[str, ...] = ()

    def about(self, pod: ObjectName, evidence: tuple[str, ...] = (), remedies: tuple[Remedy, ...] = ()) -> Finding:
        """Return the finding about a pod, with evidence and remedies of its own."""
        return Finding(
            reason=self.reason,
            severity=self.severity,
            object=pod,
            message=self.message,
            certainty=self.certainty,
            cause=self.cause,
            evidence=(*self.evidence, *evidence),
            remedies=(*remedies, *self.remedies),
        )
