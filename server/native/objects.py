"""The objects of an installation in the cluster: policies, bindings, offers and their definition."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import API_GROUPS
from rules_engine.model.kubernetes.native_objects import NATIVE_RESOURCES, OFFERS, SLOT_LABEL
from server.cluster.connection import ApiError, Cause, Connection, api_path

FIELD_MANAGER = "gpu-rules"

SECONDS = 5.0
"""Timeout of a call: less than the time for which a Lease that is not renewed is held."""

COLLECTIONS: Mapping[str, tuple[str, str]] = {
    "CustomResourceDefinition": ("apiextensions.k8s.io", "customresourcedefinitions"),
    **{kind: (API_GROUPS[kind], collection) for kind, collection in NATIVE_RESOURCES.items()},
    "ClusterRole": ("rbac.authorization.k8s.io", "clusterroles"),
}
"""Group and collection of each kind. They are deleted in this order."""

Key = tuple[str, str]
"""Kind and name of an object."""

Objects = Mapping[Key, dict[str, Any]]


def key_of(document: Mapping[str, Any]) -> Key:
    return str(document["kind"]), str(as_mapping(document["metadata"])["name"])


def slot_of(document: Object) -> str:
    """Return the slot that an object belongs to by its label; "" if it has none."""
    return text_member(as_mapping(as_mapping(document.get("metadata")).get("labels")), SLOT_LABEL)[-1:]


class ObjectStore:
    """Reader and writer of objects. An object that somebody else changed is replaced, all others are left alone.

    The API server counts the changes of a spec (metadata.generation): one that differs from the answer to the last
    write is a change by somebody else. Every call may raise ApiError.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._written: dict[Key, tuple[bytes, Json, Json]] = {}
        """Last written content, with the uid and generation that it got."""

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None if it or its collection does not exist."""
        try:
            return parse(self._connection.get(_path(kind, name), {}, seconds=SECONDS))
        except ApiError as error:
            if error.cause is Cause.MISSING:
                return None
            raise

    def list(self, slots: Iterable[str], kinds: Iterable[str]) -> dict[Key, dict[str, Any]]:
        """Return the objects of these kinds with one of these labels of slots."""
        query = {"labelSelector": f"{SLOT_LABEL} in ({','.join(slots)})"}
        stored: dict[Key, dict[str, Any]] = {}
        for kind in kinds:
            try:
                listed = parse(self._connection.get(_path(kind), query, seconds=SECONDS))
            except ApiError as error:
                if kind == OFFERS and error.cause is Cause.MISSING:
                    continue
                raise
            for item in object_items(listed.get("items")):
                document = {**item, "kind": kind}
                stored[key_of(document)] = document
        return stored

    def put(self, document: dict[str, Json], stored: dict[str, Any] | None, *, dry_run: bool = False) -> bool:
        """Create or replace an object unless it is as written last. Return True if something was sent.

        It is created by server-side apply: a role can permit this by name, unlike POST.
        """
        key, content = key_of(document), orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        found = as_mapping((stored or {}).get("metadata"))
        wanted = as_mapping(document["metadata"])
        same = all(found.get(name) == wanted.get(name) for name in ("labels", "annotations", "ownerReferences"))
        if stored and same and self._written.get(key) == (content, found.get("uid"), found.get("generation")):
            return False
        query = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        try:
            if stored is None:
                answer = self._patch(document, query)
            else:
                version = {"metadata": {**wanted, "resourceVersion": found.get("resourceVersion")}}
                body = orjson.dumps({**document, **version})
                answer = parse(self._connection.send("PUT", _path(*key), "application/json", body, query, SECONDS))
        except ApiError as error:
            if error.cause is Cause.CONFLICT:
                return True  # changed meanwhile: the next check sees the change
            raise
        if not dry_run:
            metadata = as_mapping(answer.get("metadata"))
            self._written[key] = content, metadata.get("uid"), metadata.get("generation")
        return True

    def apply(self, document: dict[str, Json]) -> dict[str, Any] | None:
        """Create or change an object by server-side apply; return it as stored, or None if its kind is not served."""
        try:
            return self._patch(document, {"fieldManager": FIELD_MANAGER})
        except ApiError as error:
            if error.cause is Cause.MISSING:
                return None
            raise

    def _patch(self, document: dict[str, Json], query: Mapping[str, str]) -> dict[str, Any]:
        media, query = "application/apply-patch+yaml", {**query, "force": "true"}
        body, path = orjson.dumps(document), _path(*key_of(document))
        return parse(self._connection.send("PATCH", path, media, body, query, SECONDS))

    def delete(self, *keys: Key) -> None:
        """Delete objects, bindings before policies."""
        for kind, name in sorted(keys, key=lambda key: [*COLLECTIONS].index(key[0])):
            try:
                self._connection.send("DELETE", _path(kind, name), "application/json", b"{}", seconds=SECONDS)
            except ApiError as error:
                if error.cause is not Cause.MISSING:
                    raise


def parse(body: bytes) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(body)
    return document


def _path(kind: str, name: str | None = None) -> str:
    group, collection = COLLECTIONS[kind]
    return api_path(collection, group=group, name=name)
