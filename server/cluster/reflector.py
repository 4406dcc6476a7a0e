"""One collection of the API server, mirrored as an informer does: list, then watch from where the list ended.

Source: Kubernetes API concepts, "Efficient detection of changes"; k8s.io/client-go/tools/cache (reflector.go).
"""

import gc
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import random
from threading import Event
from time import monotonic
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import orjson

from rules_engine.model.lenient import Object, mapping
from rules_engine.model.patch import Json
from server.cluster.backoff import Backoff
from server.cluster.connection import MENDED_BY_NEW_CREDENTIALS, Answer, ApiError, Cause, Connection
from server.cluster.reading import UnreadableError

T = TypeVar("T")

PAGE_OBJECTS = 500
"""Objects in one page of a list at most, as kubectl asks for."""

FIRST_PAGE_OBJECTS = 50
"""Objects in the first page: how large they are is not known yet."""

PAGE_BYTES = 2 * 1024 * 1024
"""What a page is to be of: read, it takes several times as much, which Python hardly ever gives back."""

SHORTEST_WATCH_SECONDS = 1.0
"""A watch that ends sooner, without an event, is a failure: asking again at once would be a load of its own."""

SILENCE_SECONDS = 5.0
"""How much longer than it was asked to last a watch may be silent before its connection counts as half-open."""

MAX_REMEMBERED_DELETIONS = 4096
"""Deleted objects whose version is kept, so that an event that comes late does not bring them back."""

_log = logging.getLogger(__name__)


class Sink(Protocol[T]):
    """Where objects go."""

    def read(self, raw: Object) -> T:
        """The little that is kept of an object. Raises UnreadableError."""

    def key(self, found: T) -> str:
        """What tells an object from all others of its collection: the very text that the sink itself keeps."""

    def replace(self, found: Iterable[T]) -> None:
        """These are all objects that there are; they come a page at a time.

        When that fails, which may be at any object, everything stays as it was.
        """

    def put(self, found: T) -> None:
        """An object that is new or has changed."""

    def remove(self, found: T) -> None:
        """An object that is gone."""


@dataclass(frozen=True, slots=True)
class Collection:
    """What is listed and watched: its plural name, its path and what narrows it."""

    name: str
    path: str
    query: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a collection is doing. `contact` is when it was last known to be current, by the reflector's clock.

    `counts`: lists, watches, events, ignored (events that are late or double), bookmarks, unreadable (objects), and
    failures by their Cause.
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
        self._versions = _Versions()
        self._synced = False
        self._contact = 0.0
        self._failure: str | None = None
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
        self._versions = _Versions()  # nothing is watched until the list has come
        self._sink.replace(self._listed())
        self._reached()
        self._synced = True

    def _listed(self) -> Iterator[T]:
        """What is kept of each object; at the end it is known where a watch begins."""
        query = {**self._collection.query, "limit": str(FIRST_PAGE_OBJECTS)}
        metadata = yield from self._listed_page(query)
        while following := metadata.get("continue"):
            query["continue"] = str(following)
            metadata = yield from self._listed_page(query)
        version = metadata.get("resourceVersion")
        if not isinstance(version, str) or not version:
            raise ApiError(Cause.MALFORMED, "a list without a resourceVersion")
        self._version = version

    def _listed_page(self, query: dict[str, str]) -> Generator[T, None, Object]:
        """One page, of which nothing is left in memory but what is kept; its metadata.

        How many objects the next is to have is written into the query.
        """
        body = self._connection.get(self._collection.path, query)
        with _uncollected():
            metadata, items = _page(body)
            for item in items:
                if isinstance(item, dict):
                    found = self._read(item)
                    if found is not None:
                        self._versions.advance(self._sink.key(found), item)
                        yield found
        if items:
            query["limit"] = str(max(1, min(PAGE_OBJECTS, PAGE_BYTES * len(items) // len(body))))
        if self._stopping.is_set():
            raise ApiError(Cause.BROKEN, "stopped")
        return metadata

    def _watch(self) -> None:
        self._counts["watches"] += 1
        begun = self._clock()
        # Not all at the same moment: neither the replicas, nor the collections of one of them.
        seconds = max(1, round(self._watch_seconds * (1 - self._random() / 4)))
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
            self._reached()
            for line in answer.lines():
                if self._stopping.is_set():
                    return
                if line.strip():
                    kind = self._take(line)
                    self._reached()
                    self._counts[kind] += 1
                    seen = True
        self._answer = None
        if not seen and self._clock() - begun < SHORTEST_WATCH_SECONDS:
            raise ApiError(Cause.BROKEN, "the watch ended as soon as it began")
        self._reached()

    def _take(self, line: bytes) -> str:
        """One event; what it counts as."""
        kind, object = _event(line)
        if kind == "ERROR":
            code = object.get("code")
            message = object.get("message")
            text = message if isinstance(message, str) else "the watch failed"
            raise _WatchError.of_status(code if isinstance(code, int) else 0, text)
        version = _version(object)
        if kind == "BOOKMARK":
            self._version = version
            return "bookmarks"
        found = self._read(object)
        if found is not None:
            gone = kind == "DELETED"
            if not self._versions.advance(self._sink.key(found), object, gone=gone):
                return "ignored"
            if gone:
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

    def _reached(self) -> None:
        self._contact = self._clock()
        if self._failure is not None:
            _log.warning("%s: current again", self._collection.name)
            self._failure = None

    def _failed(self, error: ApiError) -> float:
        """Note a failure and how to go on; the seconds to wait."""
        self._answer = None
        message = f"cannot list and watch {self._collection.name}: {error}"
        if message != self._failure:
            _log.warning("%s", message)
            self._failure = message
        self._counts[error.cause.value] += 1  # so that whoever sees the count sees the message
        if error.cause in (Cause.GONE, Cause.MALFORMED) or isinstance(error, _WatchError):
            self._version = ""
        if error.cause in MENDED_BY_NEW_CREDENTIALS:
            self._connection.renew()
        return self._backoff.seconds(error.retry_after_seconds)


class _WatchError(ApiError):
    """An ERROR event: the API server cannot go on from where it was asked to."""


class _Versions:
    """The latest version of each object, to tell news from what comes late or twice.

    Versions are compared as numbers, per object (KEP-5504); those that are none are always news.
    """

    def __init__(self) -> None:
        self._present: dict[str, int] = {}
        self._deleted: OrderedDict[str, int] = OrderedDict()

    def advance(self, key: str, object: Object, *, gone: bool = False) -> bool:
        """Whether an object is news."""
        text = mapping(object.get("metadata")).get("resourceVersion")
        if not isinstance(text, str) or not (text.isascii() and text.isdigit()):
            return True
        version = int(text)
        if version <= max(self._present.get(key, -1), self._deleted.get(key, -1)):
            return False
        if gone:
            self._present.pop(key, None)
            self._deleted[key] = version
            if len(self._deleted) > MAX_REMEMBERED_DELETIONS:
                self._deleted.popitem(last=False)
        else:
            self._present[key] = version
        return True


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
    try:
        page = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(Cause.MALFORMED, f"the answer is not JSON: {error}") from None
    if isinstance(page, dict):
        metadata, items = page.get("metadata"), page.get("items")
        # An empty list may be null.
        if isinstance(metadata, dict) and isinstance(items, list | None):
            return metadata, items or ()
    raise ApiError(Cause.MALFORMED, "the answer is no list")


def _event(line: bytes) -> tuple[str, Object]:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ApiError(Cause.MALFORMED, f"an event is not JSON: {error}") from None
    if isinstance(event, dict):
        kind, object = event.get("type"), event.get("object")
        if kind in _EVENTS and isinstance(object, dict):
            return kind, object
    raise ApiError(Cause.MALFORMED, "an event without a known type and an object")


_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


def _version(object: Object) -> str:
    version = mapping(object.get("metadata")).get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise ApiError(Cause.MALFORMED, "an event without a resourceVersion")
    return version
