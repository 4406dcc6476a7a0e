"""The decision log: what was decided for each request and why, a line of JSON each.

A line holds what rules say and did, never the pod: no environment value, and no annotation that no rule names. The
thread that answers a request makes the line; one other thread writes, and what it cannot keep up with is dropped and
counted rather than waited for.
"""

import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, count
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock, Thread
from time import time
from typing import TypeAlias

import orjson

from rules_engine.evaluation import RuleSet
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import Action, Decision, Step
from rules_engine.model.lenient import controller, mapping, objects, text
from rules_engine.model.patch import Json
from server.exchange import Exchange

MAX_QUEUED = 4096
"""Lines that wait to be written, of kilobytes each at most: a third of a second of the most that a server decides."""

GATHER_SECONDS = 0.1
"""How long lines are gathered before they are written: whenever that thread wakes, requests wait for it."""

TOGETHER = 256
"""Lines that are written at once: requests wait while they are put together, and each time that thread goes on."""

Line: TypeAlias = tuple[bytes, bytes]
"""In two parts: many lines have the same second one, which is most of them and need be in memory only once."""

STOP_SECONDS = 2.0
"""For what is left at the end."""

_log = logging.getLogger(__name__)


class DecisionLog:
    """An observer that writes a line for each decision to a file, or to standard output where the path is None."""

    def __init__(self, path: Path | None, *, max_queued: int = MAX_QUEUED) -> None:
        self._path = path
        self._max_queued = max_queued
        self._process = token_hex(4)
        self._numbers = count(1)
        self._views = _Views()
        self._lock = Lock()
        self._waiting: list[Line] = []
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="decision-log", daemon=True)
        self._failing = False
        self.sent = 0
        """Lines that were written."""
        self.dropped = 0
        """Lines that were lost: the queue was full, or the file could not be written."""

    def start(self) -> None:
        """Begin to write. Raises OSError where the file cannot be written at all."""
        with self._opened():
            self._thread.start()

    def stop(self) -> None:
        """Write what is left."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def __call__(self, exchange: Exchange) -> None:
        """Take note of an exchange; one without a decision is none of the log's."""
        decision = exchange.decision
        if decision is None:
            return
        # As many threads as answer requests may pass at once: the bound is that much softer.
        if len(self._waiting) >= self._max_queued:
            with self._lock:
                self.dropped += 1
            return
        id_ = f"{self._process}-{next(self._numbers)}"
        written = line(exchange, decision, id=id_, at=time(), view=self._views.number(exchange.cluster))
        with self._lock:
            self._waiting.append(written)

    def _run(self) -> None:
        while not self._stopping.wait(GATHER_SECONDS):
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        with self._lock:
            lines, self._waiting = self._waiting, []
        if not lines:
            return
        written = 0
        try:
            with self._opened() as descriptor:
                for begin in range(0, len(lines), TOGETHER):
                    part = lines[begin : begin + TOGETHER]
                    _write(descriptor, b"".join(chain.from_iterable(part)))
                    written += len(part)
        except OSError as error:
            with self._lock:
                self.dropped += len(lines) - written
            if not self._failing:
                _log.error("the decision log cannot be written: %s", error.strerror)
            self._failing = True
        else:
            self._failing = False
        self.sent += written

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor to write to. Raises OSError. Opened each time: whoever rotates logs may move the file away."""
        if self._path is None:
            yield sys.stdout.fileno()
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def line(exchange: Exchange, decision: Decision, *, id: str, at: float, view: int) -> Line:
    """What is written of a decision; members that say nothing are left out.

    `at` is a Unix time. `view` numbers the views of the cluster that this process has decided on, from 1.
    """
    request, served, cluster, refusal = exchange.request, exchange.served, exchange.cluster, decision.refusal
    second, part = divmod(at, 1)
    time = f"{_second(second)}.{int(part * 1000):03}Z"
    members: dict[str, object] = {"time": time, "id": id, "uid": exchange.uid, "endpoint": exchange.endpoint}
    if request is not None:
        members["operation"] = request.operation
        members["namespace"] = _namespace(request.object, request.namespace)
        if (controlling := owner(request.object)) is not None:
            members["owner"] = controlling
    members["dryRun"] = exchange.dry_run
    members["outcome"] = exchange.outcome
    if refusal is not None:
        # Why a pod could not be read is not said: the reason quotes it.
        members["status"] = {"code": refusal.code, "reason": refusal.reason}
    if served is not None:
        members["rules"] = {"digest": served.digest, "generation": served.generation}
    if cluster is not None:
        members["inventory"] = {"version": view, "freshness": cluster.freshness.value}
    members["seconds"] = round(exchange.seconds, 6)
    private = private_texts(exchange, decision)
    return orjson.dumps(members)[:-1], _why(decision, private) if private else decision.once(_why)


@lru_cache(maxsize=4)
def _second(at: float) -> str:
    """A time in UTC as RFC 3339 has it, but for its zone: the same for many lines."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").removesuffix("+00:00")


def _why(decision: Decision, private: Sequence[str] = ()) -> bytes:
    """The end of a line: what follows from the decision alone."""
    members: dict[str, object] = {}
    if decision.patch:
        members["patch"] = [operation.to_json() for operation in decision.patch]
    if decision.trace:
        members["trace"] = [_step(step, private) for step in decision.trace]
    return b"," + orjson.dumps(members)[1:] + b"\n" if members else b"}\n"


def owner(pod: Json) -> dict[str, Json] | None:
    """Kind and name of the controller that a pod belongs to."""
    reference = controller(pod) or {}
    kind, name = reference.get("kind"), reference.get("name")
    return {"kind": kind, "name": name} if isinstance(kind, str) and isinstance(name, str) else None


QUOTING = frozenset({Action.DENY, Action.WARN, Action.RECORD})
"""What a Validation does with a message that an expression may have made of the pod."""


def private_texts(exchange: Exchange, decision: Decision) -> tuple[str, ...]:
    """The environment values of the pod, where a message may quote them; the longest first."""
    quoting = decision.once(_quoting)
    if exchange.served is None or exchange.request is None or not quoting:
        return ()
    if not quoting & _with_expressions(exchange.served.rule_set):
        return ()
    return tuple(sorted(set(_environment(exchange.request.object)), key=len, reverse=True))


def _quoting(decision: Decision) -> frozenset[str]:
    """The rules that said something."""
    return frozenset(step.rule for step in decision.trace if step.message and step.action in QUOTING)


def _with_expressions(rule_set: RuleSet) -> set[str]:
    """The rules whose messages are made by expressions."""
    return {
        validation.rule.id
        for validation in rule_set.validations
        if any(check.message is not None for check in validation.checks)
    }


def _environment(pod: Json) -> Iterator[str]:
    spec = mapping(mapping(pod).get("spec"))
    for member in ("containers", "initContainers", "ephemeralContainers"):
        for container in objects(spec.get(member)):
            for variable in objects(container.get("env")):
                value = text(variable, "value")
                if value:
                    yield value


SHORT = 4
"""Characters below which a value is only found where it stands by itself: else single letters would be cut out."""


def _step(step: Step, private: Sequence[str]) -> dict[str, Json]:
    members = step.to_json()
    if private and step.action in QUOTING:
        for name in ("message", "warnings"):
            if name in members:
                members[name] = _without(members[name], private)
    return members


def _without(texts: Json, private: Sequence[str]) -> Json:
    if isinstance(texts, list):
        return [_without(text, private) for text in texts]
    text = str(texts)
    for value in private:
        if len(value) >= SHORT:
            text = text.replace(value, "[environment]")
        else:
            text = re.sub(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])", "[environment]", text)
    return text


def _namespace(pod: Json, otherwise: str) -> str:
    return text(mapping(mapping(pod).get("metadata")), "namespace") or otherwise


class _Views:
    """Numbers the clusters that were decided on: what is known of it is the same as long as its nodes are."""

    def __init__(self) -> None:
        self._last: Cluster | None = None
        self._number = 0

    def number(self, cluster: Cluster | None) -> int:
        last = self._last
        if cluster is not None and (last is None or cluster.nodes is not last.nodes):
            self._last = cluster
            self._number += 1
        return self._number
