"""GPU pods that are not scheduled: the scheduler's message, and the first reason that is true."""

from rules_engine.diagnosis.pending.pods import pending_pods

__all__ = ["pending_pods"]
