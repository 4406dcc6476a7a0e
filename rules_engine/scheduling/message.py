"""kube-scheduler's recorded message for a pod that no node can run, and its comparison with the recomputed answer.

Source: pkg/scheduler/framework/types.go (FitError), pkg/scheduler/scheduler.go (ErrNoNodesAvailable).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rules_engine.scheduling.reasons import FAILURE_START, NO_NODES, ONE_TAINT, Wording
from rules_engine.scheduling.scheduling import Scheduling

MAX_CHARACTERS = 20_000
"""Characters of a recorded message that are read; the API server keeps conditions of up to 32,768."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMessage:
    """A message that the scheduler wrote.

    `reasons`: the number of nodes for each reason; empty if a filter rejected the pod before it looked at any node, for
    which `rejected` is the reason, or if a filter failed. `claims`: the plugin for claims took part in its end.
    """

    nodes: int
    reasons: Mapping[str, int]
    rejected: str = ""
    failed: bool = False
    claims: bool = True

    @property
    def wording(self) -> Wording:
        return Wording.EACH_TAINT if any(why.startswith(ONE_TAINT) for why in self.reasons) else Wording.ALL_TAINTS


_HEAD = re.compile(r"0/([0-9]{1,9}) nodes are available: ?")
_COUNTED = re.compile(r"([0-9]{1,9}) (.+)")


def parse_recorded_message(text: str) -> RecordedMessage | None:
    """Read a recorded message; None if it is not one of the scheduler's filters."""
    text = text[:MAX_CHARACTERS].strip()
    if text == NO_NODES:
        return RecordedMessage(nodes=0, reasons={})
    if text.startswith(FAILURE_START):
        return RecordedMessage(nodes=0, reasons={}, failed=True)
    head = _HEAD.match(text)
    if head is None:
        return None
    # The part about preemption begins after a full stop and a space; names of resources have full stops alone.
    reasons, _, end = text[head.end() :].partition(". ")
    reasons, claims = reasons.removesuffix("."), not end.startswith("preemption:")
    parts = [_COUNTED.fullmatch(part) for part in re.split(r", (?=[0-9]{1,9} )", reasons)]
    counts: dict[str, int] = {}
    for part in parts:
        if part is None:
            return RecordedMessage(nodes=int(head[1]), reasons={}, rejected=reasons, claims=claims)
        counts[part[2]] = int(part[1])
    return RecordedMessage(nodes=int(head[1]), reasons=counts, claims=claims)


def messages_agree(recorded: RecordedMessage, scheduling: Scheduling) -> bool:
    """Return True if a recorded message counts what the recomputed answer counts.

    Failures agree: which of several the scheduler records depends on the order in which it looks at nodes.
    """
    if recorded.failed or scheduling.failure:
        return recorded.failed and bool(scheduling.failure)
    return (
        recorded.nodes == len(scheduling.nodes)
        and not (recorded.nodes and scheduling.feasible)
        and recorded.rejected == scheduling.rejected
        and recorded.reasons == scheduling.counts(recorded.wording)
    )
