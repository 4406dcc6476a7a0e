"""Objects of a live cluster, listed page by page and reduced to the members that a diagnosis reads."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, sleep
from types import MappingProxyType
from typing import BinaryIO, TypeVar

from rules_engine.diagnosis.reading.reduction import NotAnObjectError, Page, Reducer, whole_objects
from rules_engine.loading.files import without_garbage_collection
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import API_GROUPS, DIAGNOSED_RESOURCES, ClusterObjects
from rules_engine.model.kubernetes.kept_fields import Kept
from rules_engine.model.kubernetes.native_objects import OFFERS
from server.cluster.connection import ANSWER_SECONDS, ApiError, Cause, Connection, api_path
from server.cluster.paging import Paging
from server.doctor.finding_events import COMPONENT
from server.timing import Backoff, random

SELECTORS: Mapping[str, str] = {"Event": f"source!={COMPONENT}"}
"""Field selectors by kind. Without this one, the Events of findings would be findings themselves."""

MAX_READ_BYTES = 4 * 1024 * 1024 * 1024
"""Bytes of all lists of one diagnosis: five times the objects of the largest cluster that Kubernetes supports."""

MAX_LISTS = 3
"""Times that a list is begun: its pages expire after five minutes (etcd's compaction)."""

MAX_TRIES = 5
"""Times that a page is requested while the API server is overloaded or the connection ends."""

LEAST_SECONDS = 0.1
"""Timeout of a page that is requested when the time is over."""

_ABSENT = frozenset({Cause.FORBIDDEN, Cause.MISSING})
"""Causes for which a diagnosis goes on without a kind."""

_RETRIED = frozenset({Cause.THROTTLED, Cause.BROKEN})

T = TypeVar("T")

_log = logging.getLogger(__name__)

Progress = Callable[[str, int], None]
"""A function that gets a collection, and how many of its objects are read so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObjects:
    """The objects of a cluster; `unread`: why a kind could not be read."""

    objects: ClusterObjects
    unread: Mapping[str, str]


class Listing:
    """Reader of a whole cluster, within a time limit."""

    def __init__(
        self,
        connection: Connection,
        kept: Mapping[str, Kept],
        *,
        seconds: float,
        progress: Progress = lambda _collection, _objects: None,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], object] = sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._kept = kept
        self._seconds = seconds
        self._progress = progress
        self._clock = clock
        self._wait = wait
        self._now = now
        self._end = 0.0
        self._left = 0

    def read(self) -> ListedObjects:
        """List all kinds of a diagnosis. Raises ApiError, also if nodes or pods may not be listed."""
        objects: dict[str, list[dict[str, Json]]] = {}

        def collect(kind: str, collection: str) -> None:
            of_kind: list[dict[str, Json]] = []
            for page in self._pages(kind, collection, Reducer(kind, self._kept.get(kind, {})).read_page):
                of_kind += page
                self._progress(collection, len(of_kind))
            objects[kind] = of_kind

        with without_garbage_collection():
            unread = self._list_all(DIAGNOSED_RESOURCES, collect)
            cluster = ClusterObjects(objects, absent=frozenset(unread), now=self._now())
        return ListedObjects(objects=cluster, unread=unread)

    def write(self, kinds: Mapping[str, str], file: BinaryIO) -> Mapping[str, str]:
        """Write the objects of some kinds, by their collections, to a file as one list in JSON, as kubectl prints it.

        It is a NodeList, although each item has a kind: a List without nodes does not show whether they were listed.

        Return why a kind could not be read. Raises ApiError as `read` does, and OSError.
        """
        file.write(b'{"apiVersion": "v1", "kind": "NodeList", "items": [')
        begin = file.tell()

        def append(kind: str, collection: str) -> None:
            start, count = file.tell(), 0
            version = f"{API_GROUPS[kind]}/v1".removeprefix("/")
            try:
                for page in self._pages(kind, collection, lambda body: whole_objects(body, version, kind)):
                    for item in page:
                        file.write(b"\n" if file.tell() == begin else b",\n")
                        file.write(item)
                    count += len(page)
                    self._progress(collection, count)
            except ApiError:
                file.seek(start)
                file.truncate()
                raise

        unread = self._list_all(kinds, append)
        file.write(b"]}\n")
        return unread

    def _list_all(self, kinds: Mapping[str, str], list_kind: Callable[[str, str], None]) -> Mapping[str, str]:
        """List each kind by a function, again if its pages expire; return why a kind could not be read."""
        self._end = self._clock() + self._seconds
        self._left = MAX_READ_BYTES
        unread: dict[str, str] = {}
        for kind, collection in kinds.items():
            for attempt in range(MAX_LISTS):
                try:
                    list_kind(kind, collection)
                    break
                except ApiError as error:
                    if error.cause is Cause.GONE and attempt < MAX_LISTS - 1:
                        continue
                    if error.cause is Cause.MISSING and kind == OFFERS:
                        break  # not an API of this cluster: no native rule reads offers
                    message = f"cannot list {collection}: {error}"
                    if error.cause not in _ABSENT:
                        raise ApiError(error.cause, message) from None
                    unread[kind] = message
                    break
        if denied := [unread[kind] for kind in ("Node", "Pod") if kind in unread]:
            raise ApiError(Cause.FORBIDDEN, "; ".join(denied))
        return MappingProxyType(unread)

    def _pages(self, kind: str, collection: str, page_of: Callable[[bytes], Page[T]]) -> Iterator[tuple[T, ...]]:
        path = api_path(collection, group=API_GROUPS[kind])
        query = {"fieldSelector": SELECTORS[kind]} if kind in SELECTORS else {}
        pages = Paging(self._connection, path, query, lambda: self._clock() > self._end)
        following = True
        while following:
            body = self._body(pages)
            try:
                page = page_of(body)
            except NotAnObjectError as error:
                raise ApiError(Cause.MALFORMED, f"list: {error}") from None
            if not page.resource_version:
                raise ApiError(Cause.MALFORMED, "list: resourceVersion missing")
            yield page.objects
            following = pages.follow(len(body), len(page.objects), page.next)

    def _body(self, pages: Paging) -> bytes:
        """Get the next page within the limits of the diagnosis. Raises ApiError."""
        backoff = Backoff(self._clock, random)
        tries = 1
        while True:
            try:
                body = pages.get(min(ANSWER_SECONDS, max(LEAST_SECONDS, self._end - self._clock())))
                break
            except ApiError as error:
                if error.cause is Cause.TIMED_OUT and self._clock() >= self._end:
                    raise self._timeout_error() from None
                pause = backoff.seconds(error.retry_after_seconds)
                if error.cause not in _RETRIED or tries == MAX_TRIES or self._clock() + pause > self._end:
                    raise
                _log.info("the list is continued in %.1f s: %s", pause, error)
            self._wait(pause)
            tries += 1
        self._left -= len(body)
        if self._left < 0:
            raise ApiError(Cause.TOO_LARGE, f"the lists are larger than {MAX_READ_BYTES} bytes")
        if self._clock() > self._end:
            raise self._timeout_error()
        return body

    def _timeout_error(self) -> ApiError:
        return ApiError(Cause.TIMED_OUT, f"the cluster was not read in {self._seconds:g} s")
