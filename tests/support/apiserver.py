"""A small API server over real HTTP, with the semantics that list and watch rely on, and faults on demand.

As in the real one, all objects share one resourceVersion; the pages of a list are of one version, and continue tokens
expire; watches begin at a version, arrive in chunks, have bookmarks and time out; expired versions get 410; an object
that leaves a field selector is deleted from its watches; there are bearer tokens, permissions and Status bodies. Each
object has its apiVersion and kind, except in lists of kinds that are not custom resources.
"""

import json
import re
import socket
import ssl
import struct
import time
from base64 import b64encode
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Condition, Event, Thread
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import orjson

from rules_engine.model.kubernetes.cluster_objects import API_KINDS, plain_kind

Object = dict[str, Any]
COLLECTIONS = ("nodes", "pods", "namespaces")
"""Collections that a server watches."""
KINDS = {each.resource: kind for kind, each in API_KINDS.items()}
PATHS = {
    f"/api{'s' if each.group else ''}/{each.api_version}/{each.resource.partition('.')[0]}": each.resource
    for each in API_KINDS.values()
} | {
    "/api/v1/namespaces/kube-system/configmaps": "configmaps",
    "/apis/resource.k8s.io/v1beta2/devicetaintrules": "devicetaintrules",
    "/apis/resource.k8s.io/v1alpha3/devicetaintrules": "devicetaintrules",
}
"""Collections by path."""

GROUPS = {
    "groups": [
        {"name": each.group, "versions": [{"version": each.version}]} for each in API_KINDS.values() if each.optional
    ]
}
"""The API groups that only some clusters have."""

PATIENCE_SECONDS = 300
"""Timeout of anything that a test waits for on a busy machine."""


@dataclass(frozen=True)
class Status:
    """Fault: a response with this status."""

    code: int
    message: str = "as the test wants it"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Body:
    """Fault: a response with these bytes; with a larger `promised` length, it ends too soon."""

    data: bytes
    promised: int | None = None
    code: int = 200


class Reset:
    """Fault: the connection is reset without a response."""


class Silence:
    """Fault: the request is read and never answered."""


class Nothing:
    """No fault for one request."""


Fault = Status | Body | Reset | Silence | Nothing


class End:
    """Make an open watch end as if it timed out."""


@dataclass(frozen=True)
class Request:
    """Request of a client."""

    collection: str
    query: Mapping[str, str]
    token: str | None

    @property
    def watches(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass
class _Watch:
    """Open watch, with the queue of what to send."""

    collection: str
    select: Callable[[Object], bool]
    queue: "SimpleQueue[bytes | Fault | End]"
    since: int
    """Version above which events and bookmarks are sent (cache_watcher.go)."""


class ApiServer:
    """A cluster of all objects that are listed. Every method may be called while clients read."""

    def __init__(self, *, first_version: int = 1000) -> None:
        self.changed = Condition()
        self.version = first_version
        self.objects: dict[str, dict[str, Object]] = {name: {} for name in KINDS}
        self.requests: list[Request] = []
        self.tokens: set[str] | None = None
        """Accepted bearer tokens; None: no authentication."""
        self.forbidden: set[str] = set()
        """Collections and paths of objects that are answered with 403."""
        self.single: dict[str, Object] = {"/apis": GROUPS}
        """Objects by path, for get and replace only."""
        self.events: list[tuple[str, Object]] = []
        """Created Events, with their namespaces."""
        self.gone_as_status = False
        """True if a watch from an expired version gets status 410 rather than an ERROR event; both occur."""
        self._oldest = first_version
        self._log: dict[str, deque[tuple[int, str, Object, Object | None]]] = defaultdict(deque)
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._faults: dict[tuple[str, bool], deque[Fault]] = defaultdict(deque)
        self._watches: list[_Watch] = []
        self._over = Event()
        self._http: ThreadingHTTPServer | None = None
        self._port = 0
        self._context: ssl.SSLContext | None = None

    # Changes of the cluster.

    def put(self, collection: str, object: Object, *, announce: bool = True) -> Object:
        """Create or change an object, which gets a new version; with `announce` False, watches get no event."""
        with self.changed:
            self.version += 1
            kind = plain_kind(KINDS[collection])
            stored = {"apiVersion": _version_of(collection), "kind": kind, **deepcopy(object)}
            metadata = stored.setdefault("metadata", {})
            metadata["resourceVersion"] = str(self.version)
            old = self.objects[collection].get(_key(stored))
            self.objects[collection][_key(stored)] = stored
            if announce:
                self.announce(collection, "ADDED" if old is None else "MODIFIED", stored, old)
            return stored

    def delete(self, collection: str, name: str, namespace: str = "") -> None:
        with self.changed:
            self.version += 1
            gone = deepcopy(self.objects[collection].pop(f"{namespace}/{name}"))
            gone["metadata"]["resourceVersion"] = str(self.version)
            self.announce(collection, "DELETED", gone, None)

    def compact(self) -> None:
        """Delete the history: requests for an older version get 410, also pages of older lists."""
        with self.changed:
            self.version += 1
            self._oldest = self.version
            self._pages.clear()
            self._log.clear()

    def restore(self, version: int, **objects: list[Object]) -> None:
        """Behave like an etcd restored from a backup: an older version, other objects, and no history."""
        with self.changed:
            self._log.clear()
            self._pages.clear()
            self.version = self._oldest = version
            self.objects = {name: {} for name in KINDS}
        for collection, found in objects.items():
            for item in found:
                self.put(collection, item, announce=False)

    def fail(self, collection: str, *faults: Fault, watch: bool = False) -> None:
        """Add faults for the next lists (or watches), one each."""
        self._faults[collection, watch].extend(faults)

    def mend(self, collection: str) -> None:
        """Remove the faults of the next lists."""
        with self.changed:
            self._faults[collection, False].clear()

    def send(self, collection: str, *events: bytes | Fault | End) -> None:
        """Send bytes, or a fault, on the open watches of a collection."""
        with self.changed:
            for watch in self._watches:
                if watch.collection == collection:
                    for event in events:
                        watch.queue.put(event)

    def event(self, collection: str, kind: str, object: Object) -> None:
        """Send an event that is not in the history on open watches."""
        self.send(collection, _line(kind, object))

    def bookmark(self, collection: str) -> None:
        self.send(collection, self._bookmark(collection))

    def end_watches(self, collection: str) -> None:
        with self.changed:
            for watch in self._watches:
                if watch.collection == collection:
                    watch.queue.put(End())

    # Conditions to wait for.

    def wait_for(self, holds: Callable[[], Any]) -> None:
        """Wait for a condition that changes with requests or watches."""
        with self.changed:
            assert self.changed.wait_for(holds, PATIENCE_SECONDS), "it never came"

    def lists(self, collection: str) -> list[Request]:
        """Return lists: first pages only, without checks of the resourceVersion."""
        lists = [r for r in self.requests if r.collection == collection and not r.watches]
        return [r for r in lists if "continue" not in r.query and r.query.get("limit") != "1"]

    def watches(self, collection: str) -> list[Request]:
        return [r for r in self.requests if r.collection == collection and r.watches]

    def watching(self, collection: str) -> int:
        """Number of open watches."""
        return sum(watch.collection == collection for watch in self._watches)

    # Start and stop.

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://localhost:{self._port}"

    def start(self, context: ssl.SSLContext | None = None) -> Self:
        """Listen on loopback; after `stop`, on the same port again."""
        http = _Server(("127.0.0.1", self._port), type("Handler", (_Handler,), {"api": self}))
        if context is not None:
            self._context = context
            http.socket = context.wrap_socket(http.socket, server_side=True)
        self._http, self._port = http, http.server_port
        self._over = Event()
        Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop, and close every open connection."""
        assert self._http is not None
        self._http.shutdown()
        self._http.server_close()
        with self.changed:
            self._over.set()
            for watch in self._watches:
                watch.queue.put(Reset())

    def kubeconfig(
        self, folder: Path, user: Mapping[str, Any] | None = None, cluster: Mapping[str, Any] | None = None
    ) -> Path:
        """Write a kubeconfig for this server, with additional fields of its user and cluster."""
        return kubeconfig(folder, self.url, user, cluster)

    # Responses.

    def answer_single(self, handler: "_Handler", path: str, token: str | None) -> None:
        with self.changed:
            self.requests.append(Request(path, {}, token))
            self.changed.notify_all()
            faults = self._faults[path, False]
            fault = faults.popleft() if faults else None
            found = deepcopy(self.single.get(path))
        if fault is not None and not isinstance(fault, Nothing):
            self._meet(handler, fault)
        elif self.tokens is not None and token not in self.tokens:
            handler.status(Status(401, "Unauthorized"))
        elif path in self.forbidden:
            handler.status(Status(403, f'{path} is forbidden: User "system:serviceaccount:gpu:rules" cannot get it'))
        elif found is None:
            handler.status(Status(404, f"{path} not found"))
        else:
            handler.json(200, found)

    def replace_single(self, handler: "_Handler", path: str, object: Object) -> None:
        """Replace an object of `single`, unless it was changed since the client read it."""
        with self.changed:
            self.requests.append(Request(path, {}, None))
            faults = self._faults[path, False]
            fault = faults.popleft() if faults else None
            found = self.single.get(path)
            version = (found or {}).get("metadata", {}).get("resourceVersion")
            if isinstance(fault, Status):
                status: Status | None = fault
            elif path in self.forbidden or found is None:
                status = Status(404 if found is None else 403, f"{path} cannot be updated")
            elif object["metadata"].get("resourceVersion") != version:
                status = Status(409, "the object has been modified; please apply your changes to the latest version")
            else:
                status = None
                self.version += 1
                object["metadata"]["resourceVersion"] = str(self.version)
                self.single[path] = object
            self.changed.notify_all()
        if status is None:
            handler.json(200, object)
        else:
            handler.status(status)

    def apply(self, handler: "_Handler", path: str, object: Object) -> None:
        """Create or replace a custom resource by server-side apply; the same content gets no new version."""
        parent, _, name = path.rpartition("/")
        collection = PATHS[parent]
        with self.changed:
            self.requests.append(Request(path, {}, None))
            faults = self._faults[path, False]
            fault = faults.popleft() if faults else None
            stored = deepcopy(self.objects[collection].get(f"/{name}"))
            (stored or {"metadata": {}})["metadata"].pop("resourceVersion", None)
            if not isinstance(fault, Status) and stored != object:
                self.put(collection, object)
            self.changed.notify_all()
        if isinstance(fault, Status):
            handler.status(fault)
        else:
            handler.json(200, object)

    def create_event(self, handler: "_Handler", path: str, event: Object) -> None:
        found = re.fullmatch(r"/api/v1/namespaces/([^/]+)/events", path)
        if found is None or event["metadata"]["namespace"] != found[1]:
            handler.status(Status(404, f"{path} not found"))
            return
        with self.changed:
            self.events.append((found[1], event))
            self.changed.notify_all()
        handler.json(201, event)

    def answer(self, handler: "_Handler", collection: str, query: dict[str, str], token: str | None) -> None:
        watch = query.get("watch") == "true"
        with self.changed:
            if self._over.is_set():
                handler.reset()  # on a connection that was open before
                return
            self.requests.append(Request(collection, query, token))
            self.changed.notify_all()
            faults = self._faults[collection, watch]
            fault = faults.popleft() if faults else None
        if fault is not None and not isinstance(fault, Nothing):
            self._meet(handler, fault)
        elif self.tokens is not None and token not in self.tokens:
            handler.status(Status(401, "Unauthorized"))
        elif collection in self.forbidden:
            message = (
                f'{collection} is forbidden: User "system:serviceaccount:gpu:rules" cannot '
                f'{"watch" if watch else "list"} resource "{collection}" in API group "" at the cluster scope'
            )
            handler.status(Status(403, message))
        elif watch:
            self._watch(handler, collection, query)
        else:
            self._list(handler, collection, query)

    def _meet(self, handler: "_Handler", fault: Fault) -> None:
        match fault:
            case Status():
                handler.status(fault)
            case Body():
                handler.send_response(fault.code)
                handler.send_header("Content-Type", "application/json")
                handler.send_header("Content-Length", str(fault.promised or len(fault.data)))
                handler.send_header("Connection", "close")
                handler.end_headers()
                handler.wfile.write(fault.data)
                handler.close_connection = True
            case Silence():
                self._over.wait(PATIENCE_SECONDS)
                handler.close_connection = True
            case Reset():
                handler.reset()

    def _list(self, handler: "_Handler", collection: str, query: dict[str, str]) -> None:
        with self.changed:
            token = query.get("continue")
            if token is not None:
                if token not in self._pages:
                    handler.status(Status(410, "The provided continue parameter is too old"))
                    return
                version, items = self._pages[token]
            else:
                select = _selector(query.get("fieldSelector", ""))
                version = self.version
                items = [object for _, object in sorted(self.objects[collection].items()) if select(object)]
            limit = int(query.get("limit", "0")) or len(items)
            page, rest = items[:limit], items[limit:]
            metadata: Object = {"resourceVersion": str(version)}
            if rest:
                metadata["continue"] = b64encode(f"{version}/{_key(rest[0])}".encode()).decode()
                metadata["remainingItemCount"] = len(rest)
                self._pages[metadata["continue"]] = (version, rest)
        custom = API_KINDS[KINDS[collection]].optional and collection != "configmaps"
        typed = () if custom else ("apiVersion", "kind")
        listed = [{name: member for name, member in item.items() if name not in typed} for item in page]
        head = {
            "kind": f"{plain_kind(KINDS[collection])}List",
            "apiVersion": _version_of(collection),
            "metadata": metadata,
        }
        handler.json(200, {**head, "items": listed or None})

    def _watch(self, handler: "_Handler", collection: str, query: dict[str, str]) -> None:
        seconds = float(query.get("timeoutSeconds", "300"))
        bookmarks = query.get("allowWatchBookmarks") == "true"
        select = _selector(query.get("fieldSelector", ""))
        since = int(query["resourceVersion"])
        watch = _Watch(collection, select, SimpleQueue(), since)
        with self.changed:
            if since < self._oldest and self.gone_as_status:
                handler.status(Status(410, f"too old resource version: {since} ({self._oldest})"))
                return
            if since < self._oldest:
                gone = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}
                watch.queue.put(_line("ERROR", gone))
                watch.queue.put(End())
            for version, kind, new, old in self._log[collection]:
                if version > since:
                    _send(watch, kind, new, old)
            self._watches.append(watch)
            if self._over.is_set():
                watch.queue.put(Reset())
            self.changed.notify_all()
        try:
            self._stream(handler, watch, seconds, bookmarks=bookmarks)
        finally:
            self._close(watch)

    def _close(self, watch: _Watch) -> None:
        with self.changed:
            if watch in self._watches:
                self._watches.remove(watch)
                self.changed.notify_all()

    def _stream(self, handler: "_Handler", watch: _Watch, seconds: float, *, bookmarks: bool) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        end = time.monotonic() + seconds
        while True:
            try:
                item = watch.queue.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                if bookmarks and self.version > watch.since:
                    with self.changed:
                        line = self._bookmark(watch.collection)
                    handler.chunk(line)
                item = End()
            match item:
                case bytes():
                    handler.chunk(item)
                case End():
                    self._close(watch)
                    handler.chunk(b"")
                    return
                case Silence():
                    self._over.wait(PATIENCE_SECONDS)
                    handler.close_connection = True
                    return
                case _:
                    handler.reset()
                    return

    def announce(self, collection: str, kind: str, new: Object, old: Object | None) -> None:
        """Add a change to the history and to open watches; the caller holds `changed`."""
        self._log[collection].append((self.version, kind, new, old))
        for watch in self._watches:
            if watch.collection == collection and self.version > watch.since:
                _send(watch, kind, new, old)

    def _bookmark(self, collection: str) -> bytes:
        object = {"kind": KINDS[collection], "apiVersion": "v1", "metadata": {"resourceVersion": str(self.version)}}
        return _line("BOOKMARK", object)


@contextmanager
def api_server(context: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    """Run an API server until the block ends."""
    server = ApiServer().start(context)
    try:
        yield server
    finally:
        server.stop()


def kubeconfig(
    folder: Path, url: str, user: Mapping[str, Any] | None = None, cluster: Mapping[str, Any] | None = None
) -> Path:
    """Write a kubeconfig for a URL, with additional fields of its user and cluster."""
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "me", "user": dict(user or {})}],
    }
    path.write_text(json.dumps(content))
    return path


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of disconnected clients."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it would delay each body by 40 ms
    api: ApiServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        collection = PATHS.get(parts.path)
        authorization = self.headers.get("Authorization", "")
        token = authorization.split(" ", 1)[1].strip() if " " in authorization else None
        if collection is None:
            self.api.answer_single(self, parts.path, token)
            return
        self.api.answer(self, collection, dict(parse_qsl(parts.query)), token)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.api.create_event(self, urlsplit(self.path).path, orjson.loads(body))

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path, query = urlsplit(self.path)[2:4]
        assert self.headers["Content-Type"] == "application/apply-patch+yaml"
        assert dict(parse_qsl(query)) == {"fieldManager": "gpu-rules", "force": "true"}
        self.api.apply(self, path, orjson.loads(body))

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.api.replace_single(self, urlsplit(self.path).path, orjson.loads(body))

    def json(self, code: int, document: Object, headers: Mapping[str, str] | None = None) -> None:
        body = orjson.dumps(document)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def status(self, status: Status) -> None:
        document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": status.message,
            "code": status.code,
        }
        self.json(status.code, document, status.headers)

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def reset(self) -> None:
        """Close the connection with RST, not FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _version_of(collection: str) -> str:
    return API_KINDS[KINDS[collection]].api_version


def _key(object: Object) -> str:
    metadata = object.get("metadata") or {}
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _line(kind: str, object: Object) -> bytes:
    return orjson.dumps({"type": kind, "object": object}) + b"\n"


def _send(watch: _Watch, kind: str, new: Object, old: Object | None) -> None:
    """Send a change on a watch: an object that enters its selection is ADDED, one that leaves it is DELETED."""
    is_in, was_in = watch.select(new), old is not None and watch.select(old)
    if kind == "DELETED":
        sent = "DELETED" if is_in else None
    elif is_in:
        sent = "MODIFIED" if was_in else "ADDED"
    else:
        sent = "DELETED" if was_in else None
    if sent is not None:
        watch.queue.put(_line(sent, new))


def _selector(text: str) -> Callable[[Object], bool]:
    """Evaluate a field selector of `a.b=c` and `a.b!=c`, joined by commas."""
    terms = [
        (path.rstrip("!"), value, path.endswith("!"))
        for path, _, value in (t.partition("=") for t in text.split(",") if t)
    ]

    def at(object: Any, path: str) -> str:
        if path == "source":  # of an Event (pkg/registry/core/event/strategy.go)
            path = "source.component"
        for name in path.split("."):
            object = object.get(name) if isinstance(object, dict) else None
        return object if isinstance(object, str) else ""

    return lambda item: all((at(item, path) == value) != negated for path, value, negated in terms)


# Objects as the API writes them.


def node(name: str, allocatable: Mapping[str, Any] | None = None, **more: Any) -> Object:
    """Build a node, Ready by default."""
    labels = {"kubernetes.io/hostname": name, **more.get("labels", {})}
    spec = {key: more[key] for key in ("taints", "unschedulable") if key in more}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": labels},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "64", "memory": "263Gi", **{k: str(v) for k, v in (allocatable or {}).items()}},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True" if more.get("ready", True) else "False"},
            ],
        },
    }


def bound(name: str, node: str = "", amounts: Mapping[str, Any] | None = None, **more: Any) -> Object:
    """Build a pod, pending if it has no node."""
    resources = {key: str(value) for key, value in (amounts or {}).items()}
    spec: Object = {
        "containers": [{"name": "main", "image": "app:1", "resources": {"limits": resources, "requests": resources}}],
        **more.get("spec", {}),
    }
    if node:
        spec["nodeName"] = node
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": more.get("namespace", "ml"), "uid": more.get("uid", f"uid-of-{name}")},
        "spec": spec,
        "status": {"phase": more.get("phase", "Running" if node else "Pending")},
    }


def namespace(name: str, **labels: str) -> Object:
    return {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}
