"""The decision log: what was decided for each request and why, a line of JSON each.

A line holds what rules say and did, never the pod: no environment value, and no annotation that no rule names. The
thread that answers a request takes out what is needed; one other thread writes, and what it cannot keep up with is
dropped and counted rather than waited for.
"""

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from secrets import token_hex
from threading import Event, Thread
from time import time
from typing import Any

import orjson

from rules_engine.evaluation import RuleSet
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import Action, Decision, Step
from rules_engine.model.lenient import controller, mapping, objects, text
from rules_engine.model.patch import Json, Operation
from server.exchange import Exchange

MAX_QUEUED = 8192
"""Decisions that wait to be written: two seconds of the most that a server decides, a few kilobytes each."""

GATHER_SECONDS = 0.01
"""How long lines are gathered before they are written together: a thread that wakes for each would cost more, and one
that has many to write holds requests up."""

MAX_WRITTEN = 64
"""Decisions whose text is kept, since they may be given again."""

STOP_SECONDS = 2.0
"""For what is left at the end."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a line says. `view` numbers the views of the cluster that this process has decided on, from 1.

    `private`: texts of the pod that no message may quote.
    """

    number: int
    at: float
    exchange: Mapping[str, Json]
    trace: tuple[Step, ...]
    patch: tuple[Operation, ...]
    private: tuple[str, ...] = ()


class DecisionLog:
    """An observer that writes a line for each decision to a file, or to standard output where the path is None."""

    def __init__(self, path: Path | None, *, max_queued: int = MAX_QUEUED) -> None:
        self._path = path
        self._max_queued = max_queued
        self._process = token_hex(4)
        self._numbers = count(1)
        self._views = _Views()
        self._queue: SimpleQueue[Entry] = SimpleQueue()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="decision-log", daemon=True)
        self._failing = False
        self._texts: dict[int, tuple[tuple[Step, ...], orjson.Fragment | None, orjson.Fragment | None]] = {}
        """By the identity of a trace, which is kept so that no other has it: what is written of it and of its patch."""
        self.sent = 0
        """Lines that were written."""
        self.dropped = 0
        """Lines that were lost: the queue was full, or the file could not be written."""

    def start(self) -> None:
        """Begin to write. Raises OSError where the file cannot be written at all."""
        self._write(b"")
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
        # As many threads as answer requests may pass at once: the bound is that much softer, and costs no lock.
        if self._queue.qsize() >= self._max_queued:
            self.dropped += 1
            return
        self._queue.put(
            Entry(
                number=next(self._numbers),
                at=time(),
                exchange=described(exchange, self._views.number(exchange.cluster)),
                trace=decision.trace,
                patch=decision.patch,
                private=private_texts(exchange, decision),
            )
        )

    def _run(self) -> None:
        while not self._stopping.wait(GATHER_SECONDS):
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        lines = [self._text(entry) for entry in self._waiting()]
        if not lines:
            return
        try:
            self._write(b"\n".join(lines) + b"\n")
        except OSError as error:
            self.dropped += len(lines)
            if not self._failing:
                _log.error("the decision log cannot be written: %s", error.strerror)
            self._failing = True
        else:
            self.sent += len(lines)
            self._failing = False

    def _text(self, entry: Entry) -> bytes:
        id_ = f"{self._process}-{entry.number}"
        if entry.private:
            return orjson.dumps(line(entry, id_, _patch(entry), _trace(entry)))
        known = self._texts.get(id(entry.trace))
        if known is None:
            if len(self._texts) >= MAX_WRITTEN:
                self._texts.clear()
            known = self._texts[id(entry.trace)] = (entry.trace, _written(_patch(entry)), _written(_trace(entry)))
        return orjson.dumps(line(entry, id_, *known[1:]))

    def _waiting(self) -> Iterator[Entry]:
        while True:
            try:
                yield self._queue.get_nowait()
            except Empty:
                return

    def _write(self, content: bytes) -> None:
        if self._path is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
            return
        # Opened each time: whoever rotates logs may move the file away.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def described(exchange: Exchange, view: int) -> dict[str, Json]:
    """What a line says besides the decision itself."""
    request, served, cluster = exchange.request, exchange.served, exchange.cluster
    refusal = exchange.decision.refusal if exchange.decision is not None else None
    return {
        "uid": exchange.uid,
        "endpoint": exchange.endpoint,
        "operation": request.operation if request is not None else None,
        "namespace": _namespace(request.object, request.namespace) if request is not None else None,
        "owner": owner(request.object) if request is not None else None,
        "dryRun": exchange.dry_run,
        "outcome": exchange.outcome,
        # Why a pod could not be read is not said: the reason quotes it.
        "status": {"code": refusal.code, "reason": refusal.reason} if refusal is not None else None,
        "rules": {"digest": served.digest, "generation": served.generation} if served is not None else None,
        "inventory": {"version": view, "freshness": cluster.freshness.value} if cluster is not None else None,
        "seconds": round(exchange.seconds, 6),
    }


def line(entry: Entry, id: str, patch: object, trace: object) -> dict[str, Any]:
    """An entry as it is written; members that say nothing are left out."""
    at = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    members: dict[str, Any] = {
        "time": at,
        "id": id,
        **entry.exchange,
        "patch": patch,
        "trace": trace,
    }
    return {name: value for name, value in members.items() if value not in (None, [])}


def _written(parts: list[Json]) -> orjson.Fragment | None:
    return orjson.Fragment(orjson.dumps(parts)) if parts else None


def _patch(entry: Entry) -> list[Json]:
    return [operation.to_json() for operation in entry.patch]


def _trace(entry: Entry) -> list[Json]:
    return [_step(step, entry.private) for step in entry.trace]


def owner(pod: Json) -> dict[str, Json] | None:
    """Kind and name of the controller that a pod belongs to."""
    reference = controller(pod) or {}
    kind, name = reference.get("kind"), reference.get("name")
    return {"kind": kind, "name": name} if isinstance(kind, str) and isinstance(name, str) else None


QUOTING = frozenset({Action.DENY, Action.WARN, Action.RECORD})
"""What a Validation does with a message that an expression may have made of the pod."""


def private_texts(exchange: Exchange, decision: Decision) -> tuple[str, ...]:
    """The environment values of the pod, where a message may quote them; the longest first."""
    quoting = {step.rule for step in decision.trace if step.message and step.action in QUOTING}
    if exchange.served is None or exchange.request is None or not quoting & _with_expressions(exchange.served.rule_set):
        return ()
    return tuple(sorted(set(_environment(exchange.request.object)), key=len, reverse=True))


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
