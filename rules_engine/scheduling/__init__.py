"""Model of kube-scheduler: filters with the message for a pod that no node can run, scores, and preemption."""

from rules_engine.scheduling.message import messages_agree, parse_recorded_message
from rules_engine.scheduling.post_filter import PostFilter
from rules_engine.scheduling.reasons import Wording
from rules_engine.scheduling.requirements import DEFAULT_SCHEDULER
from rules_engine.scheduling.scheduler import Scheduler, scheduler_of
from rules_engine.scheduling.scheduling import Filter, Scheduling

__all__ = [
    "DEFAULT_SCHEDULER",
    "Filter",
    "PostFilter",
    "Scheduler",
    "Scheduling",
    "Wording",
    "messages_agree",
    "parse_recorded_message",
    "scheduler_of",
]
