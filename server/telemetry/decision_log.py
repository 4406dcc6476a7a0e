"""Decision log: one line of JSON for each decision, with its trace.

A line holds the messages and actions of rules. A message expression may quote any field of the pod, so its result is
logged only if that is enabled; so is the request. The thread that answers a request encodes the line; one other thread
writes. When the queue is full, lines are dropped and counted, so that requests never wait for the log.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import FileIO
from itertools import count
from logging.handlers import QueueListener, WatchedFileHandler
from pathlib import Path
from queue import SimpleQueue
from secrets import token_hex
from threading import Lock, Thread
from typing import Any, NamedTuple

import orjson

from rules_engine.model.json.lenient import as_mapping, controller_reference, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.rules.decision import Action, Decision, Step
from rules_engine.model.rules.logged_decision import reduce_request
from rules_engine.server.http.admission_record import AdmissionRecord

MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""Bytes of lines that are queued or being written: some 10,000 ordinary lines."""

MAX_LINE_BYTES = 30 * 1024
"""Bytes of a line: Fluent Bit stops reading a file with a line over 32 kB by default (in_tail, Buffer_Max_Size)."""

MAX_TEXT = 256
"""Characters of a name, and of any text in an outlined trace: a Kubernetes name has at most 253."""

STOP_SECONDS = 2.0
"""Timeout for writing the queued lines at shutdown."""

_log = logging.getLogger(__name__)


class DecisionLog(QueueListener):
    """Observer that writes a line for each decision to a file, or to standard output if the path is None.

    `messages`: results of message expressions are logged, too. `requests`: so are requests of pods.
    `sent`: lines written. `dropped`: because the queue was full or the file could not be written. `truncated`: lines
    with omitted parts. `unrecorded`: lines without a request, for which it was too long.
    """

    def __init__(self, path: Path | None, *, messages: bool = False, requests: bool = False) -> None:
        super().__init__(SimpleQueue[bytes]())
        self._path = path
        self._messages = messages
        self._requests = requests
        self._process = token_hex(4)
        self._numbers = count(1)
        self._nodes: Sequence[Node] | None = None
        self._view = 0
        self._lock = Lock()
        self._bytes = 0
        self._failing = False
        self.sent = self.dropped = self.truncated = self.unrecorded = 0

    def start(self) -> None:
        """Start writing. Raises OSError if the file cannot be opened for writing."""
        self._handler = (
            _LineHandler(_UnbufferedFile(1, "w", closefd=False)) if self._path is None else _File(self._path)
        )
        super().start()

    def stop(self) -> None:
        """Write the queued lines, for STOP_SECONDS at most, and stop."""
        # QueueListener.stop waits without a timeout.
        ending = Thread(target=self._end, name="decision-log-end", daemon=True)
        ending.start()
        ending.join(STOP_SECONDS)

    def _end(self) -> None:
        super().stop()
        self._handler.close()

    def __call__(self, record: AdmissionRecord) -> None:
        """Queue the line of an admission record. One without a decision of rules, or a refusal, is not logged."""
        decision = record.decision
        if decision is None or (record.served is None and decision.refusal is None):
            return
        if record.cluster is not None and record.cluster.nodes is not self._nodes:
            self._nodes = record.cluster.nodes
            self._view += 1
        line = encode_line(
            record,
            decision,
            id=f"{self._process}-{next(self._numbers)}",
            at=datetime.now(UTC),
            view=self._view,
            messages=self._messages,
            requests=self._requests,
        )
        with self._lock:
            if self._bytes + len(line.text) > MAX_QUEUED_BYTES:
                self.dropped += 1
                return
            self._bytes += len(line.text)
            self.truncated += line.truncated
            self.unrecorded += line.unrecorded
        self.queue.put_nowait(line.text)

    def handle(self, record: bytes) -> None:  # type: ignore[override]
        """Write a line; lines are queued, not LogRecords, which would take twice the memory."""
        try:
            # Not by Handler.handle, whose lock `logging` takes at exit: the write may wait for a full pipe.
            self._handler.emit(logging.makeLogRecord({"msg": record.decode()}))
            self._failing = False
        except OSError as error:
            if not self._failing:
                _log.error("the decision log cannot be written: %s", error.strerror or error)
            self._failing = True
        with self._lock:
            self._bytes -= len(record)
            self.sent += not self._failing
            self.dropped += self._failing


class _UnbufferedFile(FileIO):
    """A file without a buffer, whose lock would let the exit wait for a write to a full pipe."""

    _torn = False  # the last line was written only in part

    def write(self, text: str) -> int:  # type: ignore[override]
        """Write a line, after the end of one that was written only in part. Raises OSError."""
        unwritten = b"\n" * self._torn + text.encode()
        while unwritten:
            count = os.write(self.fileno(), unwritten)
            self._torn = unwritten[count - 1] != ord("\n")
            unwritten = unwritten[count:]
        return len(text)


class _LineHandler(logging.StreamHandler[Any]):
    """Handler of whole lines; errors reach the listener, which counts them."""

    terminator = ""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the name that logging calls
        raise


class _File(_LineHandler, WatchedFileHandler):
    def _open(self) -> Any:
        # Opening a named pipe without a reader would block for ever.
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o640)
        os.set_blocking(descriptor, True)
        return _UnbufferedFile(descriptor, "w")


class Line(NamedTuple):
    """A line. `truncated`: parts of the decision were omitted. `unrecorded`: so was its request."""

    text: bytes
    truncated: bool
    unrecorded: bool


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
    DecisionLog. A decision that is too long for a line has no patch and an outlined trace; a request is left out.
    """
    request, served, cluster = record.request, record.served, record.cluster
    names, truncated = _line_names(record)
    grounds = {
        "endpoint": record.endpoint,
        "dryRun": record.dry_run,
        "outcome": record.outcome,
        "operation": request and request.operation,
        "rules": served and {"digest": served.digest, "generation": served.generation},
        "inventory": cluster and {"version": view, "freshness": cluster.freshness.value},
        # The message is omitted, since it quotes the pod.
        "status": decision.refusal and {"code": decision.refusal.code, "reason": decision.refusal.reason},
    }

    def encode(reasons: Mapping[str, Json], recorded: Mapping[str, Json]) -> bytes:
        begin = {"time": at, "id": id, "seconds": round(record.seconds, 6), **names, "truncated": truncated or None}
        members = {**begin, **recorded, **grounds, **reasons}
        present = {name: value for name, value in members.items() if value is not None}
        return orjson.dumps(present, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE)

    trace = decision.trace if messages else [step.static or step for step in decision.trace]
    reasons: dict[str, Json] = {
        "trace": [step.to_json() for step in trace] or None,
        "patch": [operation.to_json() for operation in decision.patch] or None,
    }
    line = encode(reasons, {})
    if len(line) > MAX_LINE_BYTES:
        # Part of a patch would be another patch.
        truncated += ["patch", "trace"] if decision.patch else ["trace"]
        room = MAX_LINE_BYTES - len(encode({"trace": []}, {}))
        reasons = {"trace": _outline_trace(trace, room)}
        line = encode(reasons, {})
    if not requests or request is None or not (request.is_pod or request.is_resize):
        return Line(line, bool(truncated), unrecorded=False)
    try:
        reduced, left_out = reduce_request(request.raw)
        recorded = encode(reasons, {"request": reduced, "leftOut": [*left_out]})
    except (orjson.JSONEncodeError, RecursionError):  # nested too deeply, as no pod of an API server is
        return Line(line, bool(truncated), unrecorded=True)
    unrecorded = len(recorded) > MAX_LINE_BYTES
    return Line(line if unrecorded else recorded, bool(truncated), unrecorded)


def _line_names(record: AdmissionRecord) -> tuple[dict[str, Json], list[str]]:
    """Return names, which may be as long as a request, and the members that were truncated."""
    whole: dict[str, Json] = {"uid": record.uid or None, "pod": record.pod or None, "user": record.user or None}
    if (request := record.request) is not None:
        metadata = as_mapping(as_mapping(request.object).get("metadata"))
        namespace = text_member(metadata, "namespace") or request.namespace
        whole = {"namespace": namespace, **whole, "owner": pod_owner(request.object)}
    names = {member: _truncate(name) for member, name in whole.items()}
    return names, [member for member, name in whole.items() if names[member] != name]


def _truncate(name: Json) -> Json:
    if isinstance(name, dict):
        return {part: _truncate(text) for part, text in name.items()}
    return name[: MAX_TEXT - 1] + "…" if isinstance(name, str) and len(name) > MAX_TEXT else name


def _outline_trace(trace: Sequence[Step], room: int) -> Json:
    """Return rule, action and reason of as many steps as fit into `room` bytes, steps with an effect first."""
    kept: dict[int, Json] = {}
    for number in sorted(range(len(trace)), key=lambda number: trace[number].action in (Action.SKIP, Action.PASS)):
        step = trace[number]
        members: dict[str, Json] = {
            "rule": _truncate(step.rule),
            "action": step.action.value,
            "reason": _truncate(step.reason),
            **({"audit": True} if step.audit else {}),
        }
        room -= len(orjson.dumps(members)) + 1
        if room < 0:
            break
        kept[number] = members
    return [kept[number] for number in sorted(kept)]


def pod_owner(pod: Json) -> Json:
    """Return kind and name of a pod's controller."""
    reference = controller_reference(pod) or {}
    kind, name = reference.get("kind"), reference.get("name")
    return {"kind": kind, "name": name} if isinstance(kind, str) and isinstance(name, str) else None
