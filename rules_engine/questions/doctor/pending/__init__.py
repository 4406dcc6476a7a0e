"""GPU pods that are not scheduled, each with its causes in the order in which they must go."""

from rules_engine.questions.doctor.pending.pods import PendingPod, pending_pods

__all__ = ["PendingPod", "pending_pods"]
