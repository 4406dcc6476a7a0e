"""Reflector of one collection, as in an informer: list, then watch from the resourceVersion of the list.

Source: Kubernetes API concepts, "Efficient detection of changes"; k8s.io/client-go/tools/cache (reflector.go).

Why it is more than a loop of list and watch:
- a full list is expensive for the API server, so a failed watch is resumed from the last resourceVersion if possible;
- a restored etcd shows as silence, not as an error, so a watch without events is followed by a check of the version;
- a half-open connection, or a server that sends only headers, must not keep a view fresh: only a list, an event, a
  bookmark or the regular end of a watch counts as contact;
- anybody who may create pods decides how large a list is: pages are sized by bytes, read one at a time, and bounded.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from threading import Event
from time import monotonic
from types import MappingProxyType
from typing import Generic, TypeVar

from rules_engine.language.files import without_garbage_collection
from rules_engine.model.json.lenient import Object, as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.server.cluster.connection import (
    RENEWAL_CAUSES,
    ApiError,
    ApiResponse,
    Cause,
    Connection,
    parse_object,
)
from rules_engine.server.cluster.paging import Paging
from rules_engine.server.cluster.reading import UnreadableError
from rules_engine.server.cluster.source import Health
from rules_engine.server.timing import Backoff, random

T = TypeVar("T")

SHORTEST_WATCH_SECONDS = 1.0
"""A watch that ends sooner without an event counts as a failure, so that the retry is delayed."""

SILENCE_SECONDS = 5.0
"""Time after the timeout of a watch until its connection counts as half-open."""

FIRST_WATCH_SECONDS = 1.0
"""Duration of the first watch after a failure: without changes, only its end shows that the API server is back."""

RELIST_SECONDS = 10.0
"""Minimum interval between two lists that follow an expired version without a delay, or that `relist` asks for."""

MAX_VERSION_CHARACTERS = 128
"""Maximum length of a resourceVersion: etcd's have at most 19 digits, and Python parses up to 4,300."""

QUIET_SECONDS = 120.0
"""Minimum interval between log lines about the same recurring failure, so that it does not fill the log."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sink(Generic[T]):
    """Receiver of a collection's objects."""

    read: Callable[[Object], T]
    """Return the fields of an object that are kept. Raises UnreadableError."""

    replace: Callable[[Iterable[T]], None]
    """Replace all objects by a list, which arrives a page at a time.

    The iterable may raise at any object; everything then stays as it was.
    """

    put: Callable[[T], None]
    """Add or update an object."""

    remove: Callable[[T], None]
    """Remove an object."""

    forget: Callable[[Object], None] | None = None
    """Remove an object that was changed, or deleted, and cannot be read."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A resource to list and watch: its plural name, path and query.

    `older`: paths of older versions. If there are some, an API server that has none of them has no objects.
    """

    name: str
    path: str
    query: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    older: tuple[str, ...] = ()


class _FailureLog:
    """The current failure of a collection. Its first occurrence and its end are logged, others are not."""

    def __init__(self, collection: str, clock: Callable[[], float]) -> None:
        self.message: str | None = None
        """Message of the current failure, None if there is none."""
        self._collection = collection
        self._clock = clock
        self.cause: Cause | None = None
        """Cause of the current failure."""
        self._key = ""
        """Key of the last logged failure."""
        self._logged_at = 0.0
        self._end_logged = True

    def begin(self, error: ApiError) -> None:
        """Record a failure. It is logged unless it continues the last one, or repeats it within QUIET_SECONDS."""
        message = f"cannot list and watch {self._collection}: {error}"
        # Messages about versions differ each time, so the cause is compared instead.
        key = error.cause.value if error.cause in _EXPIRED else message
        now = self._clock()
        if key != self._key or (self._end_logged and now - self._logged_at >= QUIET_SECONDS):
            _log.warning("%s", message)
            self._key, self._logged_at, self._end_logged = key, now, False
        self.message, self.cause = message, error.cause

    def end(self) -> None:
        """Record the end of the failure, if there is one."""
        self.message = self.cause = None
        if not self._end_logged:
            _log.warning("%s: current again", self._collection)
            self._end_logged = True


class Reflector(Generic[T]):
    """Keeps a sink in step with a collection until stopped; `run` needs a thread of its own.

    After a failure the sink keeps its objects, and the reflector retries: with a watch from the last resourceVersion if
    that is still valid, else with a new list.
    Every response may be hostile or endless: each is bounded in bytes, time and objects before it is parsed.
    """

    def __init__(
        self,
        collection: Collection,
        sink: Sink[T],
        connection: Connection,
        *,
        watch_seconds: float,
        silence_seconds: float = SILENCE_SECONDS,
        clock: Callable[[], float] = monotonic,
        random: Callable[[], float] = random,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._collection = collection
        self._path = collection.path
        self._sink = sink
        self._connection = connection
        self._watch_seconds = watch_seconds
        self._silence_seconds = silence_seconds
        self._clock = clock
        self._random = random
        self._stopping = Event()
        self._wait = wait or self._stopping.wait
        self._backoff = Backoff(clock, random)
        self._answer: ApiResponse | None = None
        self._version = ""
        """resourceVersion at which the next watch begins; empty if a list is needed first.

        It is set once the sink has received the object, or all of a list, and not before: a watch that resumes here may
        repeat an event, but misses none.
        """
        self.contact = -inf
        """Time at which the collection was last known to be current; -inf before its first list."""
        self._failure = _FailureLog(collection.name, clock)
        self._watch_failed = False
        """True from the failure of a watch until the next one receives something: a list does not reset it."""
        self._relist_at = 0.0
        """Time from which an expired version leads to a list without a delay; infinite until its watch receives
        something, so that no API server can demand lists without end."""
        self._relisting = False
        """True from `relist` until its list begins."""
        self._relisted_at = -inf
        self._counts: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return self._collection.name

    @property
    def synced(self) -> bool:
        return self.contact > -inf

    @property
    def cause(self) -> Cause | None:
        """Cause of the current failure; None if there is none."""
        return self._failure.cause

    @property
    def health(self) -> Health:
        return Health(
            name=self._collection.name,
            synced=self.synced,
            contact=self.contact,
            failure=self._failure.message,
            counts=MappingProxyType(dict(self._counts)),
        )

    def run(self) -> None:
        """List and watch until stopped."""
        while not self._stopping.is_set():
            try:
                self._advance()
            except ApiError as error:
                if self._stopping.is_set():
                    return
                # `relist` interrupted the watch: this is not a failure.
                if self._relisting:
                    continue
                seconds = self._record_failure(error)
                if seconds > 0:
                    self._wait(seconds)
            except Exception:
                # A bug must not end the thread: the view would go stale for good.
                _log.exception("unexpected error while reading %s", self._collection.name)
                self._version = ""
                self._wait(self._backoff.seconds())

    def relist(self) -> None:
        """List again soon: the sink reads more of each object than before."""
        self._relisting = True
        answer = self._answer
        if answer is not None:
            answer.interrupt()

    def stop(self) -> None:
        """Stop soon: a pending read is interrupted."""
        self._stopping.set()
        answer = self._answer
        if answer is not None:
            answer.interrupt()

    def _advance(self) -> None:
        if self._relisting and self._version:
            self._version = ""
            # However often classes change, there is at most one such list in RELIST_SECONDS.
            self._wait(max(0.0, self._relisted_at + RELIST_SECONDS - self._clock()))
            self._relisted_at = self._clock()
        if not self._version:
            self._relisting = False
            self._list()
        if self._version:
            self._watch()
        else:
            self._wait(self._watch_seconds)

    def _list(self) -> None:
        """List the collection in the newest version that the API server has; without any, there are no objects."""
        self._counts["lists"] += 1
        for path in (self._collection.path, *self._collection.older):
            self._path = path
            try:
                self._sink.replace(self._list_objects())
                break
            except ApiError as error:
                if error.cause is not Cause.MISSING or not self._collection.older:
                    raise
        else:
            self._sink.replace(())
        # After a failed watch, only another watch shows that the failure is over.
        self._record_contact(ends_failure=not (self._watch_failed and self._version))

    def _list_objects(self) -> Iterator[T]:
        """Yield each object of a list as read by the sink, then set the version at which a watch begins."""
        pages = Paging(self._connection, self._path, self._collection.query, self._stopping.is_set)
        metadata = yield from self._list_page(pages)
        while metadata.get("continue"):
            metadata = yield from self._list_page(pages)
        # The request names no resourceVersion, so the list is the latest state of etcd. Its version counts even if
        # it is older than ours: etcd was restored, and the view follows it.
        self._version = _read_version(metadata, "list")

    def _list_page(self, pages: Paging) -> Generator[T, None, Object]:
        """Yield the objects of one page and return its metadata.

        The parsed page is released before the next is requested.
        """
        body = pages.get()
        with without_garbage_collection():
            metadata, items = _parse_page(body)
            for item in items:
                if isinstance(item, dict):
                    parsed = self._read(item)
                    if parsed is not None:
                        yield parsed
        if self._stopping.is_set():
            raise ApiError(Cause.BROKEN, "stopped")
        pages.follow(len(body), len(items), str(metadata.get("continue") or ""))
        return metadata

    def _watch(self) -> None:
        self._counts["watches"] += 1
        start = self._clock()
        # Jitter, so that replicas and collections do not reconnect in step.
        longest = inf if self._failure.message is None else FIRST_WATCH_SECONDS
        seconds = max(1, round(min(longest, self._watch_seconds) * (1 - self._random() / 4)))
        query = {
            **self._collection.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        seen = False
        with self._connection.watch(self._path, query, seconds + self._silence_seconds) as answer:
            self._answer = answer
            # A stop or a relist just before had no response to interrupt.
            if self._stopping.is_set() or self._relisting:
                return
            # Headers do not count as contact: a server that sends nothing after them would count as current for ever.
            for line in answer.lines():
                if self._stopping.is_set():
                    return
                if line.strip():
                    kind = self._process_event(line)
                    self._record_contact()
                    self._counts[kind] += 1
                    seen = True
                elif self._clock() - start > seconds + self._silence_seconds:
                    raise ApiError(Cause.TIMED_OUT, "the watch sends no events and does not end")
        self._answer = None
        if not seen:
            if self._clock() - start < SHORTEST_WATCH_SECONDS:
                raise ApiError(Cause.BROKEN, "the watch ended at once")
            self._check_version()
        self._record_contact()

    def _check_version(self) -> None:
        """Compare the API server's resourceVersion with the view's. Raises ApiError if it is older.

        This detects an etcd that was restored. A watch from a future version is silent and ends like any other: the API
        server sends no event and no bookmark that is not newer (k8s.io/apiserver, pkg/storage/cacher/cache_watcher.go).
        """
        self._counts["checks"] += 1
        metadata, _ = _parse_page(self._connection.get(self._path, {**self._collection.query, "limit": "1"}))
        self._compare_version(_read_version(metadata, "list"))

    def _compare_version(self, version: str) -> bool:
        """Return True if a version equals the view's. Raises ApiError if it is older.

        The versions of one collection are ordered as numbers (KEP-5504). A version that is not a number counts as
        newer: a wrong guess that it is older would cost a list for each event.
        """
        ours, theirs = _version_number(self._version), _version_number(version)
        if ours is not None and theirs is not None and theirs < ours:
            raise ApiError(Cause.WENT_BACK, f"the resourceVersion went back from {ours} to {theirs}")
        return version == self._version

    def _process_event(self, line: bytes) -> str:
        """Process one event; return the kind that it is counted as."""
        kind, object = _parse_event(line)
        if kind == "ERROR":
            code = object.get("code")
            message = object.get("message")
            text = message if isinstance(message, str) else "watch failed"
            raise _ResumeError.of_status(code if isinstance(code, int) else 0, text)
        version = _read_version(as_mapping(object.get("metadata")), "watch event")
        is_current = self._compare_version(version)
        if kind == "BOOKMARK":
            self._version = version
            return "bookmarks"
        # A number identifies one change of one object, so this event was processed before: its change is in the view.
        # Equal versions that are not numbers prove nothing.
        if is_current and _version_number(version) is not None:
            return "ignored"
        parsed = self._read(object)
        if parsed is not None:
            if kind == "DELETED":
                self._sink.remove(parsed)
            else:
                self._sink.put(parsed)
        elif self._sink.forget is not None:
            self._sink.forget(object)
        self._version = version
        return "events"

    def _read(self, raw: Object) -> T | None:
        try:
            return self._sink.read(raw)
        except UnreadableError as error:
            if not self._counts["unreadable"]:
                _log.warning("%s: object skipped, further ones are not logged: %s", self._collection.name, error)
            self._counts["unreadable"] += 1
            return None

    def _record_contact(self, *, ends_failure: bool = True) -> None:
        """Record contact with the API server: a list, an event, a bookmark, or the end of a watch."""
        now = self._clock()
        if ends_failure:
            if self._relist_at == inf:
                self._relist_at = now + RELIST_SECONDS
            self._watch_failed = False
            self._failure.end()
        self.contact = now  # after the failure: a thread that sees the collection current sees no failure

    def _record_failure(self, error: ApiError) -> float:
        """Record a failure and choose list or watch for the retry; return the delay in seconds."""
        self._answer = None
        self._failure.begin(error)
        self._watch_failed = self._watch_failed or bool(self._version)
        self._counts[error.cause.value] += 1  # after the message: a thread that sees the count sees both
        expired = bool(self._version) and (error.cause in _EXPIRED or isinstance(error, _ResumeError))
        # Another version of the API server may have the collection under another path.
        if expired or error.cause in _NEEDS_LIST or (error.cause is Cause.MISSING and self._collection.older):
            self._version = ""
        if error.cause in RENEWAL_CAUSES:
            self._connection.renew()
        if expired and self._clock() >= self._relist_at:
            self._relist_at = inf
            return 0.0
        if error.cause is Cause.UNREACHABLE:
            return self._backoff.unreachable_seconds()
        return self._backoff.seconds(error.retry_after_seconds)


_EXPIRED = frozenset({Cause.GONE, Cause.WENT_BACK})
"""Failures of a watch that a list ends: the API server is well, and does not have the version."""

_NEEDS_LIST = _EXPIRED | {Cause.MALFORMED, Cause.TOO_LARGE}
"""Failures after which a watch cannot resume from its version."""


class _ResumeError(ApiError):
    """An ERROR event: the API server cannot resume a watch from its version."""


def _parse_page(body: bytes) -> tuple[Object, Sequence[Json]]:
    page = parse_object(body, "list")
    metadata, items = page.get("metadata"), page.get("items")
    # The items of an empty list may be null.
    if isinstance(metadata, dict) and isinstance(items, list | None):
        return metadata, items or ()
    raise ApiError(Cause.MALFORMED, "list: metadata or items missing")


def _parse_event(line: bytes) -> tuple[str, Object]:
    event = parse_object(line, "watch event")
    kind, object = event.get("type"), event.get("object")
    if kind in _EVENTS and isinstance(object, dict):
        return kind, object
    raise ApiError(Cause.MALFORMED, "watch event: unknown type, or no object")


_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


def _read_version(metadata: Object, what: str) -> str:
    """Return the resourceVersion. Raises ApiError if it is missing or too long."""
    version = metadata.get("resourceVersion")
    if not isinstance(version, str) or not 0 < len(version) <= MAX_VERSION_CHARACTERS:
        raise ApiError(Cause.MALFORMED, f"{what}: resourceVersion missing or too long")
    return version


def _version_number(version: str) -> int | None:
    """Return a version as a number, or None if it is not numeric."""
    return int(version) if version.isascii() and version.isdigit() else None
