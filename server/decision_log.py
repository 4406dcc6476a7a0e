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
from time import monotonic
from typing import TypeAlias

import orjson

from rules_engine.model.cluster import Cluster, Freshness
from rules_engine.model.decision import Action, Decision, Step
from rules_engine.model.lenient import controller, mapping, objects, strings, text
from rules_engine.model.patch import Json
from server.exchange import Exchange

MAX_QUEUED = 4096
"""Lines that wait to be written, of kilobytes each at most: a third of a second of the most that a server decides."""

IDLE_SECONDS = 0.1
"""How often lines are looked for while there are none, and how long a file is kept open: it may be moved away."""

GATHER_SECONDS = 0.005
"""How long lines are gathered while there are some: what is written at once holds up requests, the more the longer."""

Line: TypeAlias = tuple[bytes, bytes, bytes]
"""In parts: many lines have the last two in common, which are most of them and need be in memory only once."""

Private: TypeAlias = Sequence[tuple[str, str]]
"""Texts that are not to be written, the longest first, and what is written in the place of each."""

TOGETHER = 1024 // 3
"""Lines that are written at once: as many parts as the system takes (IOV_MAX)."""

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
        self._torn = False
        """The last line was written in part only."""
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
        written = line(exchange, decision, id=id_, at=datetime.now(UTC), view=self._views.number(exchange.cluster))
        with self._lock:
            self._waiting.append(written)

    def _run(self) -> None:
        pause = IDLE_SECONDS
        while not self._stopping.wait(pause):
            pause = self._write_for_a_while()
        self._write_for_a_while()

    def _write_for_a_while(self) -> float:
        """Write what waits and what comes; how many seconds to wait before the next time."""
        lines = self._taken()
        if not lines:
            return IDLE_SECONDS
        until = monotonic() + IDLE_SECONDS
        try:
            with self._opened() as descriptor:
                while lines:
                    part = lines[:TOGETHER]
                    self._write(descriptor, list(chain.from_iterable(part)))
                    self.sent += len(part)
                    del lines[:TOGETHER]
                    if not lines and monotonic() < until:
                        self._stopping.wait(GATHER_SECONDS)
                        lines = self._taken()
        except OSError as error:
            with self._lock:
                self.dropped += len(lines)
            if not self._failing:
                _log.error("the decision log cannot be written: %s", error.strerror or error)
            self._failing = True
            return IDLE_SECONDS
        self._failing = False
        return GATHER_SECONDS

    def _taken(self) -> list[Line]:
        with self._lock:
            lines, self._waiting = self._waiting, []
        return lines

    def _write(self, descriptor: int, parts: list[bytes]) -> None:
        """Write all of it, without Python's lock and without putting it together under it. Raises OSError."""
        if self._torn:
            parts.insert(0, b"\n")
        written = os.writev(descriptor, parts)
        if written < sum(map(len, parts)):
            content = b"".join(parts)
            while written < len(content):
                self._torn = content[written - 1 : written] != b"\n"
                written += os.write(descriptor, content[written:])
        self._torn = False

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor to write to, for a short while: whoever rotates logs may move the file away. Raises OSError."""
        if self._path is None:
            yield sys.stdout.fileno()
            return
        # A named pipe that nobody reads from would be waited for without an end.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o640)
        try:
            os.set_blocking(descriptor, True)
            yield descriptor
        finally:
            os.close(descriptor)


def line(exchange: Exchange, decision: Decision, *, id: str, at: datetime, view: int) -> Line:
    """What is written of a decision; members that say nothing are left out.

    `view` numbers the views of the cluster that this process has decided on, from 1.
    """
    request, served, cluster = exchange.request, exchange.served, exchange.cluster
    members: dict[str, object] = {"time": at, "id": id, "uid": exchange.uid, "seconds": round(exchange.seconds, 6)}
    if request is not None:
        members["namespace"] = _namespace(request.object, request.namespace)
        if (controlling := owner(request.object)) is not None:
            members["owner"] = controlling
    grounds = _grounds(
        exchange.endpoint,
        request and request.operation,
        exchange.dry_run,
        exchange.outcome,
        served and (served.digest, served.generation),
        cluster and (view, cluster.freshness),
    )
    private = private_texts(exchange, decision)
    why = _why(decision, private) if private else decision.once(_why)
    return orjson.dumps(members, option=orjson.OPT_UTC_Z)[:-1], grounds, why


@lru_cache(maxsize=64)
def _grounds(
    endpoint: str,
    operation: str | None,
    dry_run: bool,
    outcome: str,
    rules: tuple[str, int] | None,
    inventory: tuple[int, Freshness] | None,
) -> bytes:
    """The middle of a line, which many have in common."""
    members: dict[str, object] = {"endpoint": endpoint, "dryRun": dry_run, "outcome": outcome}
    if operation is not None:
        members["operation"] = operation
    if rules is not None:
        members["rules"] = {"digest": rules[0], "generation": rules[1]}
    if inventory is not None:
        members["inventory"] = {"version": inventory[0], "freshness": inventory[1].value}
    return b"," + orjson.dumps(members)[1:-1]


def _why(decision: Decision, private: Private = ()) -> bytes:
    """The end of a line: what follows from the decision alone."""
    members: dict[str, object] = {}
    if decision.refusal is not None:
        # Why a pod could not be read is not said: the reason quotes it.
        members["status"] = {"code": decision.refusal.code, "reason": decision.refusal.reason}
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


def private_texts(exchange: Exchange, decision: Decision) -> Private:
    """What a message may quote of the pod, and of what it was, that no rule names: of environment and annotations."""
    quoting = decision.once(_quoting)
    if exchange.served is None or exchange.request is None or not quoting:
        return ()
    rules = [rule for id, rule in exchange.served.quotable.items() if id in quoting]
    if not rules:
        return ()
    named = {name for rule in rules for name in rule.named}
    values: dict[str, str] = {}
    for pod in (exchange.request.object, exchange.request.old_object):
        if any(rule.others for rule in rules):
            annotations = strings(mapping(mapping(pod).get("metadata")).get("annotations"))
            values.update((value, "[annotation]") for name, value in annotations.items() if name not in named)
        values.update((value, "[environment]") for value in _environment(pod))
    values.pop("", None)
    return sorted(values.items(), key=lambda value: len(value[0]), reverse=True)


def _quoting(decision: Decision) -> frozenset[str]:
    """The rules that said something."""
    return frozenset(step.rule for step in decision.trace if step.message and step.action in QUOTING)


def _environment(pod: Json) -> Iterator[str]:
    spec = mapping(mapping(pod).get("spec"))
    for member in ("containers", "initContainers", "ephemeralContainers"):
        for container in objects(spec.get(member)):
            for variable in objects(container.get("env")):
                yield text(variable, "value")


SHORT = 4
"""Characters below which a value is only found where it stands by itself: else single letters would be cut out."""


def _step(step: Step, private: Private) -> dict[str, Json]:
    members = step.to_json()
    if private and step.action in QUOTING:
        for name in ("message", "warnings"):
            if name in members:
                members[name] = _without(members[name], private)
    return members


def _without(texts: Json, private: Private) -> Json:
    if isinstance(texts, list):
        return [_without(text, private) for text in texts]
    text = str(texts)
    for value, instead in private:
        if len(value) >= SHORT:
            text = text.replace(value, instead)
        else:
            text = re.sub(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])", instead, text)
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
