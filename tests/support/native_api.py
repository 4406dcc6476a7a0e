"""An API server in memory for the writer of policies: get, list by label, apply, replace, delete; and a clock.

As in the real one, a write of a changed spec increments metadata.generation, a replacement with an older
resourceVersion is a conflict, and an instance exists only while its definition does.
"""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import count
from typing import Any

import orjson

from rules_engine.model.kubernetes.native_objects import SLOT_LABEL
from server.cluster.connection import ApiError, Cause

Object = dict[str, Any]
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpuoffers.gpurules.io"
OFFERS = "/apis/gpurules.io/v1/gpuoffers"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class NativeApi:
    """A Connection to an API server. `refuse` gets method, path and body of each write, and may raise ApiError."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[tuple[str, str]] = []
        """Method and path of each write but those of Leases and dry runs."""
        self.refuse: Callable[[str, str, Object], None] = lambda method, path, body: None
        self.unreachable = False
        self._numbers = count(1)

    def get(self, path: str, query: Mapping[str, str], **_: Any) -> bytes:
        self._reach()
        if path in self.objects:
            return orjson.dumps(self.objects[path])
        collection = [each for name, each in self.objects.items() if name.rpartition("/")[0] == path]
        if "labelSelector" not in query or (path == OFFERS and DEFINITION not in self.objects):
            raise ApiError.of_status(404, f"{path} not found")
        selected = re.fullmatch(rf"{SLOT_LABEL} in \((.*)\)", query["labelSelector"])
        assert selected is not None
        names = selected[1].split(",")
        items = [each for each in collection if each["metadata"].get("labels", {}).get(SLOT_LABEL) in names]
        if path != OFFERS:  # only items that are custom resources have a type
            items = [{name: each[name] for name in each.keys() - {"apiVersion", "kind"}} for each in items]
        return orjson.dumps({"items": items})

    def send(
        self,
        method: str,
        path: str,
        content_type: str,
        body: bytes,
        query: Mapping[str, str] | None = None,
        seconds: float = 0,
    ) -> bytes:
        self._reach()
        document: Object = orjson.loads(body)
        dry = (query or {}).get("dryRun") == "All"
        self.refuse(method, path, document)
        before = self.objects.get(path)
        if method == "DELETE":
            if before is None:
                raise ApiError.of_status(404, "gone")
            self.writes.append((method, path))
            self.delete(path)
            return b"{}"
        if path.startswith(OFFERS) and DEFINITION not in self.objects:
            raise ApiError.of_status(404, "no such kind")
        if method == "PUT":
            assert content_type == "application/json"
            if before is None or document["metadata"].get("resourceVersion") != before["metadata"]["resourceVersion"]:
                raise ApiError(Cause.CONFLICT, "409: changed")
        else:
            assert (method, content_type) == ("PATCH", "application/apply-patch+yaml")
            assert (query or {}).get("fieldManager")
        stored = deepcopy(document)
        metadata = stored["metadata"]
        old = (before or {}).get("metadata", {})
        changed = {key: value for key, value in (before or {}).items() if key != "metadata"} != {
            key: value for key, value in stored.items() if key != "metadata"
        }
        metadata["uid"] = old.get("uid") or f"uid-{next(self._numbers)}"
        metadata["generation"] = old.get("generation", 0) + changed
        metadata["resourceVersion"] = str(next(self._numbers))
        if not dry:
            self.objects[path] = stored
            if "/leases/" not in path:
                self.writes.append((method, path))
        return orjson.dumps(stored)

    def edit(self, path: str, change: Callable[[Object], None]) -> None:
        """Change an object as somebody else."""
        document = self.objects[path]
        change(document)
        document["metadata"]["generation"] += 1
        document["metadata"]["resourceVersion"] = str(next(self._numbers))

    def delete(self, path: str) -> None:
        del self.objects[path]
        if path == DEFINITION:
            self.objects = {name: each for name, each in self.objects.items() if not name.startswith(OFFERS)}

    def named(self, plural: str) -> dict[str, Object]:
        """Return the policies or bindings of a collection, by name."""
        prefix = f"{ADMISSION}/{plural}/"
        return {path.removeprefix(prefix): each for path, each in self.objects.items() if path.startswith(prefix)}

    def renew(self) -> None:
        """Do nothing: there are no credentials."""

    def _reach(self) -> None:
        if self.unreachable:
            raise ApiError(Cause.TIMED_OUT, "timed out")


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
