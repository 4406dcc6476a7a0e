"""`explain --from-log`: the decisions that a server recorded for a pod in its decision log.

A log may be truncated, rotated or mixed with other lines, so a line that is not a decision is skipped and counted.
Only MAX_RECORDS lines are kept in memory, whatever the size of the log.
"""

import heapq
import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from rules_engine.loading import STDIN
from rules_engine.loading.files import standard_input
from rules_engine.loading.log_lines import log_lines
from rules_engine.model.json.lenient import Object, as_mapping, as_string_map, object_items, string_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.pod_defaults import is_generated_name
from rules_engine.model.problems.source import Field, Location
from rules_engine.model.rules.decision import (
    Action,
    Amount,
    Attempt,
    ContainerRequest,
    Decision,
    Refusal,
    ResourceDecision,
    Step,
)
from rules_engine.model.rules.rule import RuleId

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


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """A decision in the log: the members of its line, and the parts of the decision that the line has."""

    members: Object
    decision: Decision

    @property
    def endpoint(self) -> str:
        return text_member(self.members, "endpoint")

    @property
    def title(self) -> str:
        """Time, user and rules of the request."""
        rules = as_mapping(self.members.get("rules"))
        by = f" by {user}" if (user := text_member(self.members, "user")) else ""
        digest = f", rules {name[:12]}" if (name := text_member(rules, "digest")) else ""
        dry_run = ", dry run" if self.members.get("dryRun") is True else ""
        return f"at {text_member(self.members, 'time')}{by}{digest}{dry_run}"

    @property
    def pod(self) -> str:
        return f"{text_member(self.members, 'namespace')}/{text_member(self.members, 'pod')}"

    @property
    def truncated(self) -> tuple[str, ...]:
        """The members that the server shortened or omitted."""
        return tuple(string_items(self.members.get("truncated")))

    @property
    def outcome(self) -> str:
        return text_member(self.members, "outcome")

    @property
    def message(self) -> str:
        """The message of a denial; "" if the pod was allowed."""
        return self.decision.status.message if self.decision.status is not None else ""

    @property
    def patch(self) -> Iterator[str]:
        """The operations of the patch, a line each. There is no diff: few logs have the pod, and none has all of it."""
        for operation in object_items(self.members.get("patch")):
            value = f" {json.dumps(operation['value'], ensure_ascii=False)}" if "value" in operation else ""
            yield f"{text_member(operation, 'op')} {text_member(operation, 'path')}{value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDecisions:
    """The newest decisions for a pod, the newest first.

    `found` counts all decisions for the pod, `decisions` all decisions in the log, `unread` the lines
    that the server did not write.
    """

    records: tuple[LoggedDecision, ...]
    found: int
    decisions: int
    unread: int

    def to_json(self) -> dict[str, Json]:
        """Return the document of `explain --from-log --output json`: the lines as they were logged."""
        return {"found": self.found, "decisions": [dict(record.members) for record in self.records]}


def read_log(path: Path, pod: PodName) -> LoggedDecisions:
    """Read the decisions for a pod from a decision log. Raises OSError if the log cannot be read."""
    newest: list[tuple[str, int, Object]] = []
    matches = decisions = unread = 0
    with nullcontext(standard_input()) if path == STDIN else path.open("rb") as file:
        for line in log_lines(file):
            if line is not None and not line.strip():
                continue
            members = None if line is None else _parse_line(line)
            if members is None:
                unread += 1
                continue
            decisions += 1
            if text_member(members, "namespace") == pod.namespace and pod.matches(text_member(members, "pod")):
                matches += 1  # also the order of decisions of one time: heapq must not compare the members
                heapq.heappush(newest, (text_member(members, "time"), matches, members))
                if len(newest) > MAX_RECORDS:
                    heapq.heappop(newest)
    records = tuple(LoggedDecision(members, _read_decision(members)) for _, _, members in sorted(newest, reverse=True))
    return LoggedDecisions(records=records, found=matches, decisions=decisions, unread=unread)


def _parse_line(line: bytes) -> Object | None:
    """Return the members of a line; None if the server did not write it."""
    try:
        members = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict):
        return None
    return members if isinstance(members.get("endpoint"), str) and "outcome" in members else None


def _read_decision(members: Object) -> Decision:
    status = as_mapping(members.get("status"))
    refusal = (
        Refusal(_int_member(status, "code"), text_member(status, "reason"), text_member(status, "reason"))
        if status
        else None
    )
    return Decision(trace=tuple(map(_read_step, object_items(members.get("trace")))), refusal=refusal)


def _read_step(members: Object) -> Step:
    places = [members, *object_items(members.get("furtherFields"))]
    action = text_member(members, "action")
    return Step(
        rule=RuleId(text_member(members, "rule")),
        location=_read_location(members),
        action=Action(action) if action in _ACTIONS else Action.KEEP,
        reason=text_member(members, "reason"),
        message=text_member(members, "message"),
        audit=members.get("audit") is True,
        code=_int_member(members, "code"),
        warnings=tuple(string_items(members.get("warnings"))),
        requests=tuple(
            ContainerRequest(text_member(item, "container"), text_member(item, "resource"), _int_member(item, "count"))
            for item in object_items(members.get("requests"))
        ),
        resources=tuple(map(_read_resource, object_items(members.get("resources")))),
        amounts=tuple(map(_read_amount, object_items(members.get("amounts")))),
        annotations=as_string_map(members.get("annotations")),
        notes=tuple(string_items(members.get("notes"))),
        fields=tuple(field for place in places if (field := _read_field(place)) is not None),
    )


_ACTIONS = frozenset(action.value for action in Action)


def _read_resource(members: Object) -> ResourceDecision:
    return ResourceDecision(
        resource=text_member(members, "resource"),
        to=text_member(members, "to") or None,
        reason=text_member(members, "reason"),
        attempts=tuple(
            Attempt(
                text_member(item, "resource"),
                item.get("taken") is True,
                text_member(item, "reason"),
                _read_field(item),
            )
            for item in object_items(members.get("attempts"))
        ),
    )


def _read_amount(members: Object) -> Amount:
    return Amount(
        container=text_member(members, "container"),
        resource=text_member(members, "resource"),
        before=text_member(members, "before") or None,
        after=text_member(members, "after"),
        field=_read_field(members),
    )


def _read_field(members: Object) -> Field | None:
    path = text_member(members, "field")
    return Field(path, _read_location(members)) if path else None


def _read_location(members: Object) -> Location:
    """Return the location in `source`, where the name of the file may contain colons."""
    source = text_member(members, "source")
    place = _PLACE.fullmatch(source)
    return Location(place[1], int(place[2]), int(place[3])) if place else Location(source or "<log>", 1, 1)


_PLACE = re.compile(r"(.+):([0-9]{1,9}):([0-9]{1,9})", re.DOTALL)


def _int_member(members: Object, name: str) -> int:
    value = members.get(name)
    return value if isinstance(value, int) else 0
