"""GPU pods that are not scheduled, each with the first reason that is true."""

from rules_engine.questions.doctor.pending.pods import PendingPod, pending_pods

__all__ = ["PendingPod", "pending_pods"]
