"""Decision log: one line of JSON for each decision, with its trace.

A line holds the messages and actions of rules. A message expression may quote any field of the pod, so its result is
logged only if that is enabled; so is the request. The thread that answers a request encodes the line; one other thread
writes. When the queue is full, lines are dropped and counted, so that requests never wait for the log.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple

import orjson
from msgspec.structs import replace

from rules_engine.model.json.lenient import as_mapping, controller_reference, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Freshness
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Action, Decision, Step
from rules_engine.model.rules.recorded_request import reduce_request
from server.http.admission_record import AdmissionRecord

MAX_QUEUED = 4096
"""Queued lines: a third of a second at the highest rate of decisions."""

MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""Bytes of lines that are queued or being written; MAX_QUEUED ordinary lines take 10 MiB."""

MAX_LINE_BYTES = 30 * 1024
"""Bytes of a line: Fluent Bit stops reading a file with a line over 32 kB by default (in_tail, Buffer_Max_Size)."""

MAX_REASONS_BYTES = 20 * 1024
"""Bytes of patch and trace in a line. The rest of MAX_LINE_BYTES holds six texts of MAX_TEXT, however escaped."""

MAX_PARTS = MAX_REASONS_BYTES // 20
"""Operations, amounts, attempts and texts that are encoded in full: more of them never fit MAX_REASONS_BYTES."""

MAX_TEXT = 256
"""Characters of a name, and of any text in a truncated trace: a Kubernetes name has at most 253."""

MAX_ITEMS = 8
"""Items of each list in a truncated trace."""

IDLE_SECONDS = 0.1
"""Polling interval while the queue is empty, and how long a file is kept open, as log rotation may move it."""

GATHER_SECONDS = 0.005
"""Time for which lines are gathered: frequent writes delay requests more than few large ones."""


class Line(NamedTuple):
    """A line in parts: many lines share the last two, which are then in memory once.

    `truncated`: parts of the decision were omitted. `unrecorded`: so was its request.
    """

    parts: tuple[bytes, bytes, bytes]
    truncated: bool
    unrecorded: bool = False

    @property
    def size(self) -> int:
        """Bytes of the line."""
        return sum(map(len, self.parts))


LINES_PER_WRITE = 1024 // 3
"""Lines written by one call: as many parts as the system accepts (IOV_MAX)."""

STOP_SECONDS = 2.0
"""Timeout for writing the queued lines at shutdown."""

_log = logging.getLogger(__name__)


class DecisionLog:
    """Observer that writes a line for each decision to a file, or to standard output if the path is None.

    `messages`: results of message expressions are logged, too. `requests`: so are requests of pods.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        messages: bool = False,
        requests: bool = False,
        max_queued: int = MAX_QUEUED,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        self._path = path
        self._messages = messages
        self._requests = requests
        self._max_queued = max_queued
        self._max_queued_bytes = max_queued_bytes
        self._process = token_hex(4)
        self._numbers = count(1)
        self._views = _Views()
        self._lock = Lock()
        self._waiting: list[Line] = []
        self._bytes = 0
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="decision-log", daemon=True)
        self._failing = False
        self._torn = False
        """The last line was written only in part."""
        self.sent = 0
        """Lines written."""
        self.dropped = 0
        """Lines dropped because the queue was full or the file could not be written."""
        self.truncated = 0
        """Lines with omitted parts."""
        self.unrecorded = 0
        """Lines without a request, for which it was too long."""

    def start(self) -> None:
        """Start writing. Raises OSError if the file cannot be opened for writing."""
        with self._open_file():
            self._thread.start()

    def stop(self) -> None:
        """Write the queued lines and stop."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def __call__(self, record: AdmissionRecord) -> None:
        """Queue the line of an admission record; a record without a decision is not logged."""
        decision = record.decision
        if decision is None:
            return
        # Checked without the lock: each thread that answers requests may exceed the bound by one line.
        if len(self._waiting) >= self._max_queued or self._bytes >= self._max_queued_bytes:
            with self._lock:
                self.dropped += 1
            return
        id_ = f"{self._process}-{next(self._numbers)}"
        view = self._views.number(record.cluster)
        at = datetime.now(UTC)
        encoded = encode_line(
            record, decision, id=id_, at=at, view=view, messages=self._messages, requests=self._requests
        )
        with self._lock:
            self._waiting.append(encoded)
            self._bytes += encoded.size
            self.truncated += encoded.truncated
            self.unrecorded += encoded.unrecorded

    def _run(self) -> None:
        pause = IDLE_SECONDS
        while not self._stopping.wait(pause):
            pause = self._write_queued()
        self._write_queued()

    def _write_queued(self) -> float:
        """Write queued lines for IDLE_SECONDS at most; return the seconds to wait before the next call."""
        if not self._waiting:
            return IDLE_SECONDS
        lines: list[Line] = []
        until = monotonic() + IDLE_SECONDS
        try:
            with self._open_file() as descriptor:
                lines = self._take_lines()
                while lines:
                    part = lines[:LINES_PER_WRITE]
                    self._write(descriptor, [piece for line in part for piece in line.parts])
                    self.sent += len(part)
                    del lines[:LINES_PER_WRITE]
                    self._release(part)
                    if not lines and monotonic() < until:
                        self._stopping.wait(GATHER_SECONDS)
                        lines = self._take_lines()
        except OSError as error:
            lines += self._take_lines()
            self._release(lines)
            with self._lock:
                self.dropped += len(lines)
            if not self._failing:
                _log.error("the decision log cannot be written: %s", error.strerror or error)
            self._failing = True
            return IDLE_SECONDS
        self._failing = False
        return GATHER_SECONDS

    def _take_lines(self) -> list[Line]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    def _release(self, lines: list[Line]) -> None:
        """Subtract the size of these lines from the queued bytes."""
        size = sum([line.size for line in lines])
        with self._lock:
            self._bytes -= size

    def _write(self, descriptor: int, parts: list[bytes]) -> None:
        """Write all parts with one vectored call, which releases the GIL and copies nothing. Raises OSError."""
        if self._torn:
            parts.insert(0, b"\n")
        count = os.writev(descriptor, parts)
        if count < sum(map(len, parts)):
            content = memoryview(b"".join(parts))
            while count < len(content):
                self._torn = content[count - 1] != ord("\n")
                count += os.write(descriptor, content[count:])
        self._torn = False

    @contextmanager
    def _open_file(self) -> Iterator[int]:
        """Open a descriptor for a short time, as log rotation may move the file. Raises OSError."""
        if self._path is None:
            yield sys.stdout.fileno()
            return
        # Opening a named pipe without a reader would block for ever.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o640)
        try:
            os.set_blocking(descriptor, True)
            yield descriptor
        finally:
            os.close(descriptor)


def encode_line(
    record: AdmissionRecord,
    decision: Decision,
    *,
    id: str,
    at: datetime,
    view: int,
    messages: bool = False,
    requests: bool = False,
) -> Line:
    """Encode the line of a decision; empty members are omitted.

    `view` numbers the views of the cluster that this process has used, from 1. `messages` and `requests`: as in
    DecisionLog. A request that is too long is left out.
    """
    request, served, cluster = record.request, record.served, record.cluster
    members: dict[str, object] = {"time": at, "id": id, "seconds": round(record.seconds, 6)}
    names = {"uid": record.uid or "", "pod": record.pod, "user": record.user}
    controlling = None
    if request is not None:
        members["namespace"] = ""
        names["namespace"] = _pod_namespace(request.object, request.namespace)
        controlling = pod_owner(request.object)
    truncated = _set_names(members, names, controlling)
    grounds = _encode_grounds(
        record.endpoint,
        request and request.operation,
        record.dry_run,
        record.outcome,
        served and (served.digest, served.generation),
        cluster and (view, cluster.freshness),
    )
    reasons = (_reasons_with_messages if messages else _reasons_without_messages)(decision)
    truncated += reasons.truncated
    if truncated:
        members["truncated"] = truncated
    begin = orjson.dumps(members, option=orjson.OPT_UTC_Z)[:-1]
    unrecorded = False
    if requests and request is not None and (request.is_pod or request.is_resize):
        recorded = _encode_request(request, MAX_LINE_BYTES - len(begin) - len(grounds) - len(reasons.text))
        unrecorded = not recorded
        begin += recorded
    return Line((begin, grounds, reasons.text), bool(truncated), unrecorded)


def _encode_request(request: AdmissionRequest, room: int) -> bytes:
    """Encode the recorded members of a request in `room` bytes; b"" if it is too long."""
    try:
        reduced, left_out = reduce_request(request.raw)
        encoded = b"," + orjson.dumps({"request": reduced, "leftOut": left_out})[1:-1]
    except (orjson.JSONEncodeError, RecursionError):  # nested too deeply, as no pod of an API server is
        return b""
    return encoded if len(encoded) <= room else b""


def _set_names(members: dict[str, object], names: Mapping[str, str], owner: Mapping[str, str] | None) -> list[str]:
    """Add names, which may be as long as a request, to the members of a line; return the members that were cut."""
    cut = []
    for member, name in names.items():
        if len(name) > MAX_TEXT:
            cut.append(member)
        if name:
            members[member] = _truncate_text(name)
    if owner is not None:
        members["owner"] = {member: _truncate_text(name) for member, name in owner.items()}
        if max(map(len, owner.values())) > MAX_TEXT:
            cut.append("owner")
    return cut


@lru_cache(maxsize=64)
def _encode_grounds(
    endpoint: str,
    operation: str | None,
    dry_run: bool,
    outcome: str,
    rules: tuple[str, int] | None,
    inventory: tuple[int, Freshness] | None,
) -> bytes:
    """Return the middle of a line, which many lines share."""
    members: dict[str, object] = {"endpoint": endpoint, "dryRun": dry_run, "outcome": outcome}
    if operation is not None:
        members["operation"] = operation
    if rules is not None:
        members["rules"] = {"digest": rules[0], "generation": rules[1]}
    if inventory is not None:
        members["inventory"] = {"version": inventory[0], "freshness": inventory[1].value}
    return b"," + orjson.dumps(members)[1:-1]


class _Reasons(NamedTuple):
    """The end of a line, and the truncated members."""

    text: bytes
    truncated: tuple[str, ...]


def _reasons_without_messages(decision: Decision) -> _Reasons:
    """Encode the members of a line that only the decision determines, without results of message expressions."""
    return _encode_reasons(decision, [step.static or step for step in decision.trace])


def _reasons_with_messages(decision: Decision) -> _Reasons:
    """Encode the members of a line that only the decision determines."""
    return _encode_reasons(decision, decision.trace)


def _encode_reasons(decision: Decision, trace: Sequence[Step]) -> _Reasons:
    """Encode status, trace and patch, truncated to MAX_REASONS_BYTES."""
    members: dict[str, object] = {}
    if decision.refusal is not None:
        # The message is omitted, since it quotes the pod.
        members["status"] = {"code": decision.refusal.code, "reason": decision.refusal.reason}
    # Part of a patch would be another patch: it is logged whole or not at all.
    without_patch = {"patch": None} if decision.patch else {}
    parts = sum(map(_count_parts, trace))
    if parts <= MAX_PARTS:
        members["trace"] = [step.to_json() for step in trace]
        if parts + len(decision.patch) <= MAX_PARTS:
            ending = _encode_ending({**members, "patch": [operation.to_json() for operation in decision.patch]})
            if len(ending) <= MAX_REASONS_BYTES:
                return _Reasons(ending, ())
        ending = _encode_ending(members)
        if len(ending) <= MAX_REASONS_BYTES:
            return _Reasons(ending, tuple(without_patch))
    cut: dict[str, None] = {**without_patch}
    ending = _encode_ending({**members, "trace": [_shorten_step(step, cut) for step in trace]})
    if len(ending) > MAX_REASONS_BYTES:
        ending = _encode_ending({**members, "trace": _outline_trace(trace)})
        cut["trace"] = None
    return _Reasons(ending, tuple(cut))


def _encode_ending(members: Mapping[str, object]) -> bytes:
    """Encode the end of a line; empty lists are omitted."""
    present = {name: value for name, value in members.items() if value}
    return b"," + orjson.dumps(present)[1:] + b"\n" if present else b"}\n"


def _count_parts(step: Step) -> int:
    attempts = sum([1 + len(resource.attempts) for resource in step.resources])
    texts = len(step.annotations) + len(step.notes) + len(step.warnings) + len(step.fields)
    return 1 + len(step.requests) + len(step.amounts) + texts + attempts


def _shorten_step(step: Step, cut: dict[str, None]) -> Json:
    """Return a step with truncated lists and texts; the names of truncated members are added to `cut`."""
    lists = {
        "requests": step.requests,
        "resources": step.resources,
        "amounts": step.amounts,
        "notes": step.notes,
        "warnings": step.warnings,
    }
    cut.update((name, None) for name, items in lists.items() if len(items) > MAX_ITEMS)
    if len(step.annotations) > MAX_ITEMS:
        cut["annotations"] = None
    if any(len(resource.attempts) > MAX_ITEMS for resource in step.resources):
        cut["attempts"] = None
    if len(step.fields) > MAX_ITEMS:
        cut["furtherFields"] = None
    brief = replace(
        step,
        resources=tuple([replace(it, attempts=it.attempts[:MAX_ITEMS]) for it in step.resources[:MAX_ITEMS]]),
        requests=step.requests[:MAX_ITEMS],
        amounts=step.amounts[:MAX_ITEMS],
        notes=step.notes[:MAX_ITEMS],
        warnings=step.warnings[:MAX_ITEMS],
        annotations=dict(islice(step.annotations.items(), MAX_ITEMS)),
        fields=step.fields[:MAX_ITEMS],
    )
    members = brief.to_json()
    for name, value in members.items():
        members[name] = short = _cut_texts(value)
        if short != value:
            cut[name] = None
    return members


def _cut_texts(value: Json) -> Json:
    if isinstance(value, str):
        return _truncate_text(value)
    if isinstance(value, list):
        return [_cut_texts(item) for item in value]
    if isinstance(value, dict):
        return {_truncate_text(name): _cut_texts(item) for name, item in value.items()}
    return value


def _truncate_text(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


_WITHOUT_EFFECT = frozenset({Action.SKIP, Action.PASS})


def _outline_trace(trace: Sequence[Step]) -> Json:
    """Return rule, action and reason of as many steps as fit, steps with an effect first."""
    left = MAX_REASONS_BYTES - MAX_TEXT  # for the status and the brackets around the list
    kept: dict[int, Json] = {}
    for number in sorted(range(len(trace)), key=lambda number: trace[number].action in _WITHOUT_EFFECT):
        step = trace[number]
        members: dict[str, Json] = {
            "rule": _truncate_text(step.rule),
            "action": step.action.value,
            "reason": _truncate_text(step.reason),
        }
        if step.audit:
            members["audit"] = True
        left -= len(orjson.dumps(members)) + 1
        if left < 0:
            break
        kept[number] = members
    return [kept[number] for number in sorted(kept)]


def pod_owner(pod: Json) -> dict[str, str] | None:
    """Return kind and name of a pod's controller."""
    reference = controller_reference(pod) or {}
    kind, name = reference.get("kind"), reference.get("name")
    return {"kind": kind, "name": name} if isinstance(kind, str) and isinstance(name, str) else None


def _pod_namespace(pod: Json, otherwise: str) -> str:
    return text_member(as_mapping(as_mapping(pod).get("metadata")), "namespace") or otherwise


class _Views:
    """Numbers the views of the cluster: a view is the same as long as its nodes are."""

    def __init__(self) -> None:
        self._last: Cluster | None = None
        self._number = 0

    def number(self, cluster: Cluster | None) -> int:
        last = self._last
        if cluster is not None and (last is None or cluster.nodes is not last.nodes):
            self._last = cluster
            self._number += 1
        return self._number
