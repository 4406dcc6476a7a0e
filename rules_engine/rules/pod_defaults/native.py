"""PodDefaults stay with the webhook."""

from typing import NoReturn

from rules_engine.rules.native.policy import PolicyScope, StaysError
from rules_engine.rules.pod_defaults.evaluation import CompiledPodDefaults


def translate_pod_defaults(_: CompiledPodDefaults, __: PolicyScope) -> NoReturn:
    """Raise StaysError: members are merged by name, and PriorityClasses are read."""
    raise StaysError("PodDefaults merge members by name, which is not translated")
