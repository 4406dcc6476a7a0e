"""Paged reads of a list, which may be hostile or endless: pages are sized by bytes, and bounded in size and number."""

from collections.abc import Callable, Mapping

from rules_engine.server.cluster.connection import ANSWER_SECONDS, ApiError, Cause, Connection

PAGE_OBJECTS = 500
"""Maximum number of objects in a page of a list, as in kubectl."""

FIRST_PAGE_OBJECTS = 50
"""Objects in the first page, when their size is unknown."""

PAGE_BYTES = 2 * 1024 * 1024
"""Intended size of a page. Parsed, it takes several times as much memory, which Python rarely returns to the system."""

MAX_PAGE_BYTES = 4 * PAGE_BYTES
"""Maximum size of a page of several objects; a larger page is requested again with fewer objects. Anybody who may
create pods can create 50 of 1.5 MiB in a row, whose parsed JSON would take a gigabyte."""

MAX_OBJECTS = 500_000
"""Maximum number of objects in a list, where a page counts as at least one: three times the pods of the largest cluster
that Kubernetes supports. Without it, an endless list would exhaust the memory."""


class Paging:
    """Reads the pages of one list, in order. `is_stopped`: no page is requested again once it returns True."""

    def __init__(
        self, connection: Connection, path: str, query: Mapping[str, str], is_stopped: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._path = path
        self._query = {**query, "limit": str(FIRST_PAGE_OBJECTS)}
        self._is_stopped = is_stopped
        self._objects = 0

    def get(self, seconds: float = ANSWER_SECONDS) -> bytes:
        """Get the next page; one that is too large is requested again with fewer objects. Raises ApiError.

        `seconds`: the timeout of a request.
        """
        while (limit := int(self._query["limit"])) > 1:
            try:
                return self._connection.get(self._path, self._query, MAX_PAGE_BYTES, seconds)
            except ApiError as error:
                if error.cause is not Cause.TOO_LARGE or self._is_stopped():
                    raise
            self._query["limit"] = str(max(1, limit // 8))
        return self._connection.get(self._path, self._query, seconds=seconds)

    def follow(self, size: int, objects: int, following: str) -> bool:
        """Prepare for the page after one of `size` bytes; return False if that page was the last.

        `following` is its continue token. Raises ApiError for a list with too many objects.
        """
        if objects:
            self._query["limit"] = str(max(1, min(PAGE_OBJECTS, PAGE_BYTES * objects // size)))
        self._objects += max(1, objects)
        if not following:
            return False
        if self._objects > MAX_OBJECTS:
            raise ApiError(Cause.TOO_LARGE, f"list: more than {MAX_OBJECTS} objects")
        self._query["continue"] = following
        return True
