"""Model of kube-scheduler: filters with the message for a pod that no node can run, scores, and preemption."""

from rules_engine.cluster.scheduling.requirements import DEFAULT_SCHEDULER
from rules_engine.cluster.scheduling.scheduler import KubeScheduler, scheduler_of
from rules_engine.cluster.scheduling.scheduling import Filter, Scheduling

__all__ = ["DEFAULT_SCHEDULER", "Filter", "KubeScheduler", "Scheduling", "scheduler_of"]
