"""Objects of a live cluster, listed page by page, without values that are never kept."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, sleep
from types import MappingProxyType

from msgspec import Raw, Struct, field
from msgspec.json import Decoder, encode

from rules_engine.language.files import without_garbage_collection
from rules_engine.model.json.lenient import Object, decode_lenient, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import (
    API_KINDS,
    AUTOSCALER_STATUS,
    FINDINGS,
    STATUS_NAME,
    ApiKind,
    ClusterObjects,
)
from rules_engine.model.kubernetes.removed_values import remove_values
from rules_engine.server.cluster.connection import ANSWER_SECONDS, ApiError, Cause, Connection, api_path
from rules_engine.server.cluster.paging import Paging
from rules_engine.server.timing import Backoff, random

_SELECTORS: Mapping[str, str] = {
    "Event": f"source!={FINDINGS}",
    AUTOSCALER_STATUS: f"metadata.name={STATUS_NAME.name}",
}
"""Field selectors by kind."""

MAX_READ_BYTES = 4 * 1024 * 1024 * 1024
"""Bytes of all lists: five times the objects of the largest cluster that Kubernetes supports."""

MAX_LISTS = 3
"""Times that a list is begun: its pages expire after five minutes (etcd's compaction)."""

MAX_TRIES = 5
"""Times that a page is requested while the API server is overloaded or the connection ends."""

MAX_SHARED = 10_000
"""Cached values. Values that differ in each object fill the cache, which is then cleared."""

MAX_SHARED_BYTES = 4096
"""Longest cached value, in JSON."""

LEAST_SECONDS = 0.1
"""Timeout of a page that is requested when the time is over."""

_FATAL = frozenset({Cause.CONFIGURATION, Cause.UNREACHABLE, Cause.UNAUTHORIZED, Cause.TIMED_OUT, Cause.TOO_LARGE})
"""Causes that no other kind escapes; for others, such as a broken API of one kind, the kind is absent."""

_RETRIED = frozenset({Cause.THROTTLED, Cause.BROKEN})

_log = logging.getLogger(__name__)

ListProgress = Callable[[str, int], None]
"""A function that gets a collection, and how many of its objects are read so far."""


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    next: str = field(name="continue", default="")


class _ListPage(Struct):
    """One page of a list; its items stay text until they are decoded one by one."""

    items: list[Raw] | None = None
    metadata: _ListMeta = field(default_factory=_ListMeta)


_decoder = Decoder(_ListPage)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObjects:
    """The objects of a cluster; `unread`: why a kind could not be read, or only in one namespace."""

    objects: ClusterObjects
    unread: Mapping[str, ApiError]

    def warnings(self, *, missing: bool = True) -> Iterator[str]:
        """Yield what was not read, in one line if it may not be. `missing`: also kinds that the API server lacks."""
        forbidden = [kind for kind, error in self.unread.items() if error.cause is Cause.FORBIDDEN]
        for kind, error in self.unread.items():
            if kind not in forbidden and (missing or error.cause is not Cause.MISSING):
                yield _list_error(kind, error)
        partial = self.objects.partial
        absent = ", ".join(API_KINDS[kind].resource for kind in forbidden if kind not in partial)
        parts = [f"cannot list {absent}"] if absent else []
        read = ", ".join(API_KINDS[kind].resource for kind in partial)
        parts += [f"only {read} of namespace {namespace} are read" for namespace in {*partial.values()}]
        if forbidden:
            yield f"{'; '.join(parts)}: {self.unread[forbidden[0]]}"


class Listing:
    """Reader of a whole cluster, within a time limit."""

    def __init__(
        self,
        connection: Connection,
        *,
        seconds: float,
        progress: ListProgress = lambda _collection, _objects: None,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], object] = sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._seconds = seconds
        self._progress = progress
        self._clock = clock
        self._wait = wait
        self._now = now
        self._end = 0.0
        self._left = 0
        self._groups: list[Object] = []

    def read(
        self,
        kinds: Iterable[str],
        *,
        whole: bool = False,
        needed: Collection[str] = ("Node", "Pod"),
        namespace: str = "",
    ) -> ListedObjects:
        """List the objects of some kinds. Raises ApiError, also if one of the `needed` kinds cannot be listed.

        `whole`: with the values that are never kept. `namespace`: that of kinds that may be listed in one namespace
        only; with it, a needed kind that may not be listed is no error.
        """
        self._end = self._clock() + self._seconds
        self._left = MAX_READ_BYTES
        self._groups = []
        objects: dict[str, list[dict[str, Json]]] = {}
        unread: dict[str, ApiError] = {}
        partial: dict[str, str] = {}
        with without_garbage_collection():
            for kind in kinds:
                try:
                    objects[kind] = self._list_any(kind, whole=whole)
                except ApiError as error:
                    if error.cause in _FATAL:
                        raise ApiError(error.cause, _list_error(kind, error)) from None
                    unread[kind] = error
                    if namespace and API_KINDS[kind].namespaced and error.cause is Cause.FORBIDDEN:
                        with suppress(ApiError):
                            objects[kind] = self._list_any(kind, whole=whole, namespace=namespace)
                            partial[kind] = namespace
        # If nothing was listed, every failure counts: an empty answer would look like an empty cluster.
        nothing = all(API_KINDS[kind].optional for kind in objects)
        allowed = {kind for kind, error in unread.items() if namespace and error.cause is Cause.FORBIDDEN}
        if missing := [kind for kind in unread if kind in {*needed} - allowed or nothing]:
            raise ApiError(unread[missing[0]].cause, "; ".join(_list_error(kind, unread[kind]) for kind in missing))
        absent = frozenset(API_KINDS) - objects.keys()
        listed = ClusterObjects(objects, absent=absent, partial=partial, now=self._now())
        return ListedObjects(objects=listed, unread=MappingProxyType(unread))

    def _list_any(self, kind: str, *, whole: bool, namespace: str | None = None) -> list[dict[str, Json]]:
        """List the objects of a kind in the first of its versions; none if it is optional and missing."""
        for version in self._versions(API_KINDS[kind]):
            try:
                return self._list(kind, version, whole=whole, namespace=namespace)
            except ApiError as error:
                if error.cause is not Cause.MISSING or not API_KINDS[kind].optional:
                    raise
        return []

    def _versions(self, kind: ApiKind) -> Sequence[str]:
        """Return the versions of a kind. Of an optional one, the API server has none if its API is not installed.

        Everybody may read its groups, but is forbidden, without rights, to list even what it does not have.
        """
        if not (kind.optional and kind.group):
            return [kind.version]
        self._groups = self._groups or object_items(self._connection.object("/apis").get("groups"))
        versions = (group.get("versions") for group in self._groups if group.get("name") == kind.group)
        return [text_member(version, "version") for each in versions for version in object_items(each)]

    def _list(self, kind: str, version: str, *, whole: bool, namespace: str | None) -> list[dict[str, Json]]:
        """List the objects of a kind, again if its pages expire; `namespace`: only its own."""
        attempt = 1
        while True:
            objects: list[dict[str, Json]] = []
            shared = _SharedValues()
            try:
                for page in self._pages(kind, version, whole=whole, namespace=namespace):
                    for each in page:
                        shared.share(each)
                    objects += page
                    self._progress(API_KINDS[kind].resource, len(objects))
            except ApiError as error:
                if error.cause is not Cause.GONE or attempt == MAX_LISTS:
                    raise
                attempt += 1
            else:
                return objects

    def _pages(
        self, kind: str, version: str, *, whole: bool, namespace: str | None
    ) -> Iterator[Sequence[dict[str, Json]]]:
        resource, _, _ = API_KINDS[kind].resource.partition(".")
        if kind == AUTOSCALER_STATUS:
            namespace = STATUS_NAME.namespace
        path = api_path(resource, group=API_KINDS[kind].group, version=version, namespace=namespace)
        query = {"fieldSelector": _SELECTORS[kind]} if kind in _SELECTORS else {}
        pages = Paging(self._connection, path, query, lambda: self._clock() > self._end)
        following = True
        while following:
            body = self._body(pages)
            try:
                page = _decoder.decode(body)
                objects = [_read_object(item, kind, whole=whole) for item in page.items or ()]
            except (ValueError, RecursionError) as error:
                raise ApiError(Cause.MALFORMED, f"list: {str(error) or type(error).__name__}") from None
            if not page.metadata.resource_version:
                raise ApiError(Cause.MALFORMED, "list: resourceVersion missing")
            yield objects
            following = pages.follow(len(body), len(objects), page.metadata.next)

    def _body(self, pages: Paging) -> bytes:
        """Get the next page within the limits. Raises ApiError."""
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


def _list_error(kind: str, error: ApiError) -> str:
    return f"cannot list {API_KINDS[kind].resource}: {error}"


class _SharedValues:
    """Values that objects share: thousands of pods have the same containers, labels and tolerations."""

    def __init__(self) -> None:
        self._values: dict[bytes, Json] = {}

    def share(self, value: dict[str, Json]) -> None:
        """Replace members of an object by equal ones of earlier objects."""
        for part in ("metadata", "spec", "status"):
            members = value.get(part)
            if isinstance(members, dict):
                members |= {name: self._shared(member) for name, member in members.items()}

    def _shared(self, value: Json) -> Json:
        key = encode(value) if isinstance(value, dict | list) else b""
        if not key or len(key) > MAX_SHARED_BYTES:
            return value
        if len(self._values) >= MAX_SHARED:
            self._values.clear()
        return self._values.setdefault(key, value)


def _read_object(item: Raw, kind: str, *, whole: bool) -> dict[str, Json]:
    """Read an object. Raises ApiError, ValueError and RecursionError."""
    value = decode_lenient(item)
    if not isinstance(value, dict):
        raise ApiError(Cause.MALFORMED, "list: an item is not an object")
    return value if whole else remove_values(value, kind)
