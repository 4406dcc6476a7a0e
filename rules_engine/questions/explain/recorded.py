"""`explain --from-log`: the decisions that a server recorded for a pod in its decision log.

A log may be truncated, rotated or mixed with other lines, so a line that is not a decision is skipped and counted.
Only MAX_RECORDS decisions are kept in memory, whatever the size of the log.
"""

import heapq
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from rules_engine.model.json.output import SparseOutput
from rules_engine.model.kubernetes.api_defaults import is_generated_name
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.decision import denial_message
from rules_engine.model.rules.logged_decision import LoggedOperation, LoggedStatus, LoggedStep
from rules_engine.questions.decision_log import DecisionLogReader
from rules_engine.report.answer import Answer

MAX_RECORDS = 100
"""Decisions that are shown, the newest ones. A pod gets fewer, even if its Job recreates it for a day."""


@dataclass(frozen=True, slots=True)
class PodName:
    """Namespace and name of a pod. A name may also be a generateName, with or without `*` at its end."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def matches(self, logged: str) -> bool:
        """Return True if a name in the log is the pod's name, or its generateName followed by `*`."""
        prefix = logged.removesuffix("*")
        if prefix == logged:
            return logged == self.name
        return self.name.removesuffix("*") == prefix or is_generated_name(self.name, prefix)


class LoggedOwner(SparseOutput, frozen=True, kw_only=True):
    """The controller of a pod."""

    kind: str
    name: str


class LoggedRules(SparseOutput, frozen=True, kw_only=True):
    """The active rules."""

    digest: str
    generation: Annotated[int, Meta(description="Counts the changes of rules since the start of the process.")]


class LoggedInventory(SparseOutput, frozen=True, kw_only=True):
    """The view of the cluster."""

    version: Annotated[int, Meta(description="Counts the views since the start of the process.")]
    freshness: Annotated[str, Meta(description="As at /readyz, such as fresh or stale.")]


class LogLine(SparseOutput, frozen=True, kw_only=True):
    """A line of the decision log. Empty members are absent, and all that could not be known."""

    time: Annotated[str, Meta(description="Of the decision, in UTC.")]
    id: Annotated[str, Meta(description="Of process and decision.")] = ""
    seconds: Annotated[float, Meta(description="From the end of the request's body to the decision.")] = 0
    namespace: str = ""
    uid: Annotated[str, Meta(description="Of the request, as in the API server's audit log.")] = ""
    pod: Annotated[str, Meta(description="Name of the pod, or its generateName and `*`.")] = ""
    user: Annotated[str, Meta(description="Of the request.")] = ""
    owner: LoggedOwner | None = None
    truncated: Annotated[tuple[str, ...], Meta(description="Members that were shortened or left out.")] = ()
    request: Annotated[dict[str, Any] | None, Meta(description="With --decision-log-requests.")] = None
    left_out: Annotated[tuple[str, ...], Meta(description="Members of the request that were left out.")] = ()
    endpoint: Annotated[str, Meta(description="mutate or validate.")]
    dry_run: Annotated[bool, Meta(description="Nothing was persisted.")]
    outcome: Annotated[str, Meta(description="Allowed, Changed, Denied or Invalid.")]
    operation: str = ""
    rules: LoggedRules | None = None
    inventory: LoggedInventory | None = None
    status: Annotated[LoggedStatus | None, Meta(description="Of a pod that could not be read.")] = None
    trace: Annotated[tuple[LoggedStep, ...], Meta(description="The step of each rule, in order of evaluation.")] = ()
    patch: tuple[LoggedOperation, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Distinct warnings for the user, as of a Decision."""
        return tuple(dict.fromkeys(text for step in self.trace if not step.audit for text in step.warnings))

    @property
    def message(self) -> str:
        """The message of the denial; "" if the pod was allowed."""
        if self.status is not None:
            return self.status.message or self.status.reason
        return denial_message((step.rule, step.message) for step in self.trace if step.denies)


class LoggedDecisions(Answer, frozen=True, kw_only=True):
    """The decisions for a pod in a decision log."""

    decisions: Annotated[tuple[LogLine, ...], Meta(description=f"The newest {MAX_RECORDS}, the newest first.")]
    found: Annotated[int, Meta(description="All decisions for the pod.")]
    logged: Annotated[int, Meta(description="All decisions in the log.")]


def read_log(path: Path, pod: PodName) -> LoggedDecisions:
    """Read the decisions for a pod from a decision log. An error is a log that cannot be read, or has no decision."""
    newest: list[tuple[str, int, LogLine]] = []
    found, problems = 0, Problems()
    log = DecisionLogReader(path, LogLine, problems)
    for line in log:
        if line.namespace == pod.namespace and pod.matches(line.pod):
            found += 1  # also the order of decisions of one time: heapq must not compare the lines
            heapq.heappush(newest, (line.time, found, line))
            if len(newest) > MAX_RECORDS:
                heapq.heappop(newest)
    decisions = tuple(line for _, _, line in sorted(newest, reverse=True))
    return LoggedDecisions(decisions=decisions, found=found, logged=log.decisions, problems=(*problems.items,))
