"""One collection of the API server, mirrored as an informer does: list, then watch from where the list ended.

Source: Kubernetes API concepts, "Efficient detection of changes"; k8s.io/client-go/tools/cache (reflector.go).
"""

import gc
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import random
from threading import Event
from time import monotonic
from types import MappingProxyType
from typing import Generic, TypeVar

from rules_engine.model.json.lenient import Object, mapping
from rules_engine.model.json.patch import Json
from server.cluster.backoff import Backoff
from server.cluster.connection import MENDED_BY_NEW_CREDENTIALS, Answer, ApiError, Cause, Connection, parse_object
from server.cluster.reading import UnreadableError

T = TypeVar("T")

PAGE_OBJECTS = 500
"""Objects in one page of a list at most, as kubectl asks for."""

FIRST_PAGE_OBJECTS = 50
"""Objects in the first page: how large they are is not known yet."""

PAGE_BYTES = 2 * 1024 * 1024
"""What a page is to be of: read, it takes several times as much, which Python hardly ever gives back."""

MAX_PAGE_BYTES = 4 * PAGE_BYTES
"""What is read of a page of several objects before fewer are asked for: anybody who may create pods can make 50 of
1.5 MiB stand together, whose JSON would take a gigabyte."""

MAX_OBJECTS = 500_000
"""Objects of a list, where a page counts as one at least: three times the pods of the largest cluster that Kubernetes
supports. Else a list without end would fill the memory."""

SHORTEST_WATCH_SECONDS = 1.0
"""A watch that ends sooner, without an event, is a failure: asking again at once would be a load of its own."""

SILENCE_SECONDS = 5.0
"""How much longer than it was asked to last a watch may be silent before its connection counts as half-open."""

FIRST_WATCH_SECONDS = 1.0
"""How long a watch lasts after a failure: where nothing changes, its end is the first word of the API server."""

MAX_VERSION_CHARACTERS = 128
"""Of a resourceVersion: those of etcd have 19 digits at most. Python reads numbers of up to 4,300 digits."""

QUIET_SECONDS = 120.0
"""Between two lines on the same failure when it ends and comes back: a cycle of any length must not fill the log."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Generic[T]):
    """Receiver of a collection's objects."""

    read: Callable[[Object], T]
    """Return the fields of an object that are kept. Raises UnreadableError."""

    replace: Callable[[Iterable[T]], None]
    """Replace all objects by those of a list, which come a page at a time.

    The iterable may raise at any object; everything then stays as it was.
    """

    put: Callable[[T], None]
    """Add or update an object."""

    remove: Callable[[T], None]
    """Remove an object."""


@dataclass(frozen=True, slots=True)
class Collection:
    """What is listed and watched: its plural name, its path and what narrows it."""

    name: str
    path: str
    query: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a collection is doing. `contact` is when it was last known to be current, by the reflector's clock.

    `counts`: lists, watches, events, ignored (events that come twice), bookmarks, checks (of the resourceVersion),
    unreadable (objects), and failures by their Cause.
    """

    name: str
    synced: bool
    contact: float
    failure: str | None
    counts: Mapping[str, int]


class Reflector(Generic[T]):
    """Keeps a sink as the collection is, until it is stopped; `run` is for a thread of its own.

    Whatever goes wrong, the sink keeps what it has, and the reflector tries again: from where it was if it knows where
    that is, else with a new list.
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
        self._sink = sink
        self._connection = connection
        self._watch_seconds = watch_seconds
        self._silence_seconds = silence_seconds
        self._clock = clock
        self._random = random
        self._stopping = Event()
        self._wait = wait or self._stopping.wait
        self._backoff = Backoff(clock, random)
        self._answer: Answer | None = None
        self._version = ""
        """Where the next watch begins; empty: what there is has to be listed first."""
        self._synced = False
        self._contact = 0.0
        self._failure: str | None = None
        self._watch_failed = False
        """True from the failure of a watch until a watch has word: a list in between does not end it."""
        self._logged = ""
        """The last failure that was logged, as it is told from others."""
        self._logged_at = 0.0
        self._end_logged = True
        self._counts: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return self._collection.name

    @property
    def synced(self) -> bool:
        return self._synced

    @property
    def contact(self) -> float:
        """When the collection was last known to be current."""
        return self._contact

    @property
    def health(self) -> Health:
        return Health(
            name=self._collection.name,
            synced=self._synced,
            contact=self._contact,
            failure=self._failure,
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
                self._wait(self._failed(error))
            except Exception:
                # Our bug: said aloud, and no reason to leave everybody with a view that nobody renews.
                _log.exception("unexpected error while %s were read", self._collection.name)
                self._version = ""
                self._wait(self._backoff.seconds())

    def stop(self) -> None:
        """End, soon: a read that is waiting is interrupted."""
        self._stopping.set()
        answer = self._answer
        if answer is not None:
            answer.interrupt()

    def _advance(self) -> None:
        if not self._version:
            self._list()
        self._watch()

    def _list(self) -> None:
        self._counts["lists"] += 1
        self._sink.replace(self._listed())
        self._reached(ends_failure=not self._watch_failed)
        self._synced = True

    def _listed(self) -> Iterator[T]:
        """What is kept of each object; at the end it is known where a watch begins."""
        query = {**self._collection.query, "limit": str(FIRST_PAGE_OBJECTS)}
        metadata, count = yield from self._listed_page(query)
        while following := metadata.get("continue"):
            if count > MAX_OBJECTS:
                raise ApiError(Cause.TOO_LARGE, f"a list of more than {MAX_OBJECTS} objects")
            query["continue"] = str(following)
            metadata, more = yield from self._listed_page(query)
            count += more
        # A list asks for no version, so it has the latest (a consistent read), also where that is older than before.
        self._version = _version(metadata, "a list")

    def _listed_page(self, query: dict[str, str]) -> Generator[T, None, tuple[Object, int]]:
        """One page, of which nothing is left in memory but what is kept; its metadata, and what counts of MAX_OBJECTS.

        How many objects the next is to have is written into the query.
        """
        body = self._page_body(query)
        with _uncollected():
            metadata, items = _page(body)
            for item in items:
                if isinstance(item, dict):
                    found = self._read(item)
                    if found is not None:
                        yield found
        if items:
            query["limit"] = str(max(1, min(PAGE_OBJECTS, PAGE_BYTES * len(items) // len(body))))
        if self._stopping.is_set():
            raise ApiError(Cause.BROKEN, "stopped")
        return metadata, max(1, len(items))

    def _page_body(self, query: dict[str, str]) -> bytes:
        """Get a page; one that is too large is asked for again, of fewer objects. Raises ApiError."""
        while (limit := int(query["limit"])) > 1:
            try:
                return self._connection.get(self._collection.path, query, MAX_PAGE_BYTES)
            except ApiError as error:
                if error.cause is not Cause.TOO_LARGE or self._stopping.is_set():
                    raise
            query["limit"] = str(max(1, limit // 8))
        return self._connection.get(self._collection.path, query)

    def _watch(self) -> None:
        self._counts["watches"] += 1
        begun = self._clock()
        # Not all at the same moment: neither the replicas, nor the collections of one of them.
        longest = self._watch_seconds if self._failure is None else min(FIRST_WATCH_SECONDS, self._watch_seconds)
        seconds = max(1, round(longest * (1 - self._random() / 4)))
        query = {
            **self._collection.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        seen = False
        with self._connection.watch(self._collection.path, query, seconds + self._silence_seconds) as answer:
            self._answer = answer
            if self._stopping.is_set():
                return
            # Headers are no word: a server that sends nothing after them would count as current for ever.
            for line in answer.lines():
                if self._stopping.is_set():
                    return
                if line.strip():
                    kind = self._take(line)
                    self._reached()
                    self._counts[kind] += 1
                    seen = True
                elif self._clock() - begun > seconds + self._silence_seconds:
                    raise ApiError(Cause.TIMED_OUT, "the watch has no events and does not end")
        self._answer = None
        if not seen:
            if self._clock() - begun < SHORTEST_WATCH_SECONDS:
                raise ApiError(Cause.BROKEN, "the watch ended as soon as it began")
            self._check_version()
        self._reached()

    def _check_version(self) -> None:
        """Compare the API server's resourceVersion with ours. Raises ApiError if it is older.

        A watch from a version that is yet to come is silent and ends like any other: the API server sends no event and
        no bookmark that is not newer (k8s.io/apiserver, pkg/storage/cacher/cache_watcher.go).
        """
        self._counts["checks"] += 1
        metadata, _ = _page(self._connection.get(self._collection.path, {**self._collection.query, "limit": "1"}))
        self._compare(_version(metadata, "a list"))

    def _compare(self, version: str) -> bool:
        """Return True if a version is that of the view. Raises ApiError if it is older.

        Versions are compared as numbers (KEP-5504); others are newer. Those of one collection come in order.
        """
        ours, theirs = _number(self._version), _number(version)
        if ours is not None and theirs is not None and theirs < ours:
            raise ApiError(Cause.WENT_BACK, f"the resourceVersion went back from {ours} to {theirs}")
        return version == self._version

    def _take(self, line: bytes) -> str:
        """One event; what it counts as."""
        kind, object = _event(line)
        if kind == "ERROR":
            code = object.get("code")
            message = object.get("message")
            text = message if isinstance(message, str) else "the watch failed"
            raise _WatchError.of_status(code if isinstance(code, int) else 0, text)
        version = _version(mapping(object.get("metadata")), "an event")
        known = self._compare(version)
        if kind == "BOOKMARK":
            self._version = version
            return "bookmarks"
        if known and _number(version) is not None:
            return "ignored"
        found = self._read(object)
        if found is not None:
            if kind == "DELETED":
                self._sink.remove(found)
            else:
                self._sink.put(found)
        self._version = version
        return "events"

    def _read(self, raw: Object) -> T | None:
        try:
            return self._sink.read(raw)
        except UnreadableError as error:
            if not self._counts["unreadable"]:
                _log.warning("%s: left out, as all further ones like it: %s", self._collection.name, error)
            self._counts["unreadable"] += 1
            return None

    def _reached(self, *, ends_failure: bool = True) -> None:
        """Record word of the API server: a list, an event, a bookmark, or the end of a watch."""
        self._contact = self._clock()
        if self._failure is not None and ends_failure:
            self._failure = None
            self._watch_failed = False
            if not self._end_logged:
                _log.warning("%s: current again", self._collection.name)
                self._end_logged = True

    def _failed(self, error: ApiError) -> float:
        """Note a failure and how to go on; the seconds to wait."""
        self._answer = None
        message = f"cannot list and watch {self._collection.name}: {error}"
        # The messages of these name versions, so no two are the same.
        logged = error.cause.value if error.cause in (Cause.GONE, Cause.WENT_BACK) else message
        now = self._clock()
        if logged != self._logged or (self._end_logged and now - self._logged_at >= QUIET_SECONDS):
            _log.warning("%s", message)
            self._logged, self._logged_at, self._end_logged = logged, now, False
        self._failure = message
        self._watch_failed = self._watch_failed or bool(self._version)
        self._counts[error.cause.value] += 1  # so that whoever sees the count sees the message
        if error.cause in _NOT_FOLLOWED or isinstance(error, _WatchError):
            self._version = ""
        if error.cause in MENDED_BY_NEW_CREDENTIALS:
            self._connection.renew()
        return self._backoff.seconds(error.retry_after_seconds)


_NOT_FOLLOWED = frozenset({Cause.GONE, Cause.WENT_BACK, Cause.MALFORMED, Cause.TOO_LARGE})
"""Failures after which no watch can go on from where it was."""


class _WatchError(ApiError):
    """An ERROR event: the API server cannot go on from where it was asked to."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector, which would go through a page of 100,000 parts again and again as it grows.

    Where several do this at once, the one that began still ends it.
    """
    began = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if began:
            gc.enable()


def _page(body: bytes) -> tuple[Object, Sequence[Json]]:
    page = parse_object(body, "list")
    metadata, items = page.get("metadata"), page.get("items")
    # The items of an empty list may be null.
    if isinstance(metadata, dict) and isinstance(items, list | None):
        return metadata, items or ()
    raise ApiError(Cause.MALFORMED, "list: metadata or items missing")


def _event(line: bytes) -> tuple[str, Object]:
    event = parse_object(line, "watch event")
    kind, object = event.get("type"), event.get("object")
    if kind in _EVENTS and isinstance(object, dict):
        return kind, object
    raise ApiError(Cause.MALFORMED, "watch event: unknown type, or no object")


_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


def _version(metadata: Object, of: str) -> str:
    """Return the resourceVersion. Raises ApiError if there is none, or one that is too long to be any."""
    version = metadata.get("resourceVersion")
    if not isinstance(version, str) or not 0 < len(version) <= MAX_VERSION_CHARACTERS:
        raise ApiError(Cause.MALFORMED, f"{of} without a resourceVersion")
    return version


def _number(version: str) -> int | None:
    """Return a version as a number, None if it is none."""
    return int(version) if version.isascii() and version.isdigit() else None
