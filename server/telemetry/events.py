"""Kubernetes Events on fallbacks and denials, for users who look at their Job rather than at metrics.

The pod does not exist yet, or never will: the Event refers to its controller, else to the pod by name or generateName.
Messages of rules are only in the response of the API server; the Event names the pod, the user, rules, resources and
reasons. Needs `create` on `admission_events` in every namespace.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from secrets import token_hex
from threading import Thread
from time import monotonic

import orjson

from rules_engine.model.json.lenient import as_mapping, controller_reference, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.names import MAX_SUBDOMAIN, is_label, is_subdomain
from rules_engine.model.rules.decision import Action
from rules_engine.server.cluster.connection import ApiError, Connection, api_path
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.timing import rfc3339

MAX_QUEUED = 256
"""Queued Events: as many as an API server should have to accept from one client at once."""

BURST = 25
PER_SECOND = 1.0
"""Rate limit of this process: a burst of a Job's size, then one a second (client-go, tools/record: 25 and fewer)."""

NAMESPACE_BURST = 10
NAMESPACE_PER_SECOND = 0.2
"""Events of one namespace: the denials of one tenant leave room for the Events of others."""

MAX_NAMESPACES = 1024
"""Namespaces with a rate limit of their own; beyond it, the least recently used one is forgotten."""

QUIET_SECONDS = 300.0
"""Default time in which an equal Event is not sent again: controllers retry for ever."""

MAX_SENT = 1024
"""Sent Events that are kept for this comparison; beyond it, the oldest is forgotten."""

STOP_SECONDS = 2.0
"""Timeout for the pending call at shutdown."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An Event of core/v1; `about` is its involvedObject, an ObjectReference in `namespace`.

    Pods of one controller differ in the `pod` and in nothing else: their Events are equal. An object of the cluster has
    no namespace; its Event is in `default`, as the API server requires (apis/core/validation/events.go).
    """

    namespace: str
    about: tuple[tuple[str, str], ...]
    type: str
    reason: str
    message: str
    pod: str = field(default="", compare=False)
    user: str = field(default="", compare=False)
    component: str = "gpu-rules"
    of_cluster: bool = False

    def to_json(self, at: datetime, suffix: str) -> dict[str, Json]:
        """Return the object to create (core/v1, Event)."""
        about: dict[str, Json] = dict(self.about)
        who = (("pod", self.pod), ("user", self.user))
        subject = ", ".join(f"{what} {name}" for what, name in who if name)
        time = rfc3339(at)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "namespace": self.namespace,
                "name": f"{text_member(about, 'name')[: MAX_SUBDOMAIN - len(suffix) - 1].rstrip('.-*')}.{suffix}",
            },
            "involvedObject": about if self.of_cluster else {**about, "namespace": self.namespace},
            "type": self.type,
            "reason": self.reason,
            "message": _truncate_text(f"{subject}: {self.message}" if subject else self.message, MAX_MESSAGE),
            "source": {"component": self.component},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }


class _TokenBucket:
    """A token bucket, of which callers take from `left`."""

    def __init__(self, burst: int, per_second: float, now: float) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self.left = self._burst
        self._counted_at = now

    def has_one(self, now: float) -> bool:
        """Return True if one can be taken."""
        self.left = min(self._burst, self.left + (now - self._counted_at) * self._per_second)
        self._counted_at = now
        return self.left >= 1


class Events:
    """Observer that sends Events; Events over a limit are dropped and counted.

    `quiet_seconds`: an Event equal to one sent within this time is not sent.
    """

    def __init__(
        self, connection: Connection, *, quiet_seconds: float = QUIET_SECONDS, clock: Callable[[], float] = monotonic
    ) -> None:
        self._connection = connection
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._queue: SimpleQueue[Event | None] = SimpleQueue()
        self._sent_at: OrderedDict[Event, float] = OrderedDict()
        self._allowance = _TokenBucket(BURST, PER_SECOND, clock())
        self._namespaces: OrderedDict[str, _TokenBucket] = OrderedDict()
        self._thread = Thread(target=self._run, name="events", daemon=True)
        self._failing = False
        self.sent = 0
        self.dropped = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Drop the queued Events and stop."""
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def __call__(self, record: AdmissionRecord) -> None:
        """Queue the Events of an admission record."""
        for event in admission_events(record):
            self.add(event)

    def add_new(self, events: Iterable[Event]) -> None:
        """Queue Events that were not sent lately, so that a thousand lasting findings leave room for a new one.

        Of each namespace, at most as many as may be sent at once: more would crowd out other namespaces.
        """
        now = self._clock()
        queued: Counter[str] = Counter()
        for event in events:
            if not self._is_new(event, now):
                continue
            if queued[event.namespace] < NAMESPACE_BURST:
                queued[event.namespace] += 1
                self.add(event)
            else:
                self.dropped += 1

    def add(self, event: Event) -> None:
        """Queue an Event; another thread sends it."""
        if self._queue.qsize() >= MAX_QUEUED:
            self.dropped += 1
        else:
            self._queue.put(event)

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            now = self._clock()
            if self._is_new(event, now) and self._send(event, now):
                # Only now: a dropped Event is sent when it occurs again.
                self._sent_at[event] = now
                self._sent_at.move_to_end(event)
                if len(self._sent_at) > MAX_SENT:
                    self._sent_at.popitem(last=False)

    def _is_new(self, event: Event, now: float) -> bool:
        before = self._sent_at.get(event)
        return before is None or now - before >= self._quiet_seconds

    def _send(self, event: Event, now: float) -> bool:
        """Send an Event. Return True if it was sent."""
        allowances = (self._allowance, self._of_namespace(event.namespace, now))
        if not all(allowance.has_one(now) for allowance in allowances):
            self.dropped += 1
            return False
        for allowance in allowances:
            allowance.left -= 1
        body = orjson.dumps(event.to_json(datetime.now(UTC), token_hex(8)))
        try:
            path = api_path("events", namespace=event.namespace)
            self._connection.send("POST", path, "application/json", body)
        except ApiError as error:
            self.dropped += 1
            if not self._failing:
                _log.warning("Events cannot be sent: %s", error)
            self._failing = True
            return False
        self.sent += 1
        self._failing = False
        return True

    def _of_namespace(self, namespace: str, now: float) -> _TokenBucket:
        bucket = self._namespaces.get(namespace)
        if bucket is None:
            bucket = self._namespaces[namespace] = _TokenBucket(NAMESPACE_BURST, NAMESPACE_PER_SECOND, now)
            if len(self._namespaces) > MAX_NAMESPACES:
                self._namespaces.popitem(last=False)
        self._namespaces.move_to_end(namespace)
        return bucket


def admission_events(record: AdmissionRecord) -> Iterator[Event]:
    """Yield the Event of a denial, or else of all fallbacks of a pod; none for a dry run or steps in audit mode.

    None for a namespace or a name that no object can have (RFC 1123).
    """
    request, decision = record.request, record.decision
    if request is None or decision is None or record.dry_run:
        return
    fallbacks = [
        f"{resource.resource} → {resource.to} ({step.rule})"
        for step in decision.trace
        if step.action is Action.CHANGE and not step.audit
        for resource in step.resources
        if resource.to is not None
    ]
    denials = [f"{step.rule} ({step.reason})" for step in decision.trace if step.denies]
    if not (denials or (fallbacks and decision.patch)):
        return
    reference = _involved_object(request.object, record.pod)
    namespace = text_member(as_mapping(as_mapping(request.object).get("metadata")), "namespace") or request.namespace
    if reference is None or not is_label(namespace):
        return
    if denials:
        type, reason, message = "Warning", "GPURulesDenied", f"denied by {', '.join(denials)}"
    else:
        type, reason, message = "Normal", "GPUFallback", f"given other GPUs than requested: {', '.join(fallbacks)}"
    yield Event(
        namespace=namespace,
        about=reference,
        type=type,
        reason=reason,
        message=_truncate_text(message, MAX_MESSAGE),
        pod=_truncate_text(record.pod, MAX_SUBDOMAIN),
        user=_truncate_text(record.user, MAX_SUBDOMAIN),
    )


def _involved_object(pod: Json, name: str) -> tuple[tuple[str, str], ...] | None:
    """Return a reference to a pod's controller, else to the pod; None without a valid name."""
    named = {**as_mapping(as_mapping(pod).get("metadata")), "apiVersion": "v1", "kind": "Pod", "name": name}
    members = {
        key: text_member(controller_reference(pod) or named, key) for key in ("apiVersion", "kind", "name", "uid")
    }
    # The pod may have no name but a generateName yet.
    if not is_subdomain(members["name"].removesuffix("*").rstrip("-.")):
        return None
    return tuple((key, _truncate_text(value, MAX_SUBDOMAIN)) for key, value in members.items() if value)


MAX_MESSAGE = 1024
"""Characters of an Event's message (apis/core/validation/events.go, NoteLengthLimit)."""


def _truncate_text(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
