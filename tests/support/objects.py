"""A stand-in API server for single objects: GET, PUT and JSON Patch with resourceVersion, over HTTP."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from jsonpatch import JsonPatchException

from tests.support.patching import apply_rfc_6902

Object = dict[str, Any]


class Objects:
    """Objects by path. `refuse` maps a path to the status of all its responses."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._version = 1
        self._objects: dict[str, Object] = {}
        self.refuse: dict[str, int] = {}
        self.conflicts = 0
        self.url = ""

    def put(self, path: str, object: Object) -> None:
        with self._lock:
            self._store(path, object)

    def get(self, path: str) -> Object:
        with self._lock:
            return json.loads(json.dumps(self._objects[path]))  # type: ignore[no-any-return]

    def delete(self, path: str) -> None:
        with self._lock:
            del self._objects[path]

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Object]:
        with self._lock:
            if path in self.refuse:
                return self.refuse[path], {"message": "as the test wants it"}
            found = self._objects.get(path)
            if found is None:
                return 404, {"message": f"{path} not found"}
            if method == "PUT":
                new = json.loads(body)
                if new["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                    self.conflicts += 1
                    return 409, {"message": "the object has been modified"}
                self._store(path, new)
            elif method == "PATCH":
                try:
                    self._store(path, apply_rfc_6902(found, json.loads(body)))
                except JsonPatchException as error:
                    return 422, {"message": str(error)}
            return 200, self._objects[path]

    def _store(self, path: str, object: Object) -> None:
        self._version += 1
        metadata = {**object.get("metadata", {}), "resourceVersion": str(self._version)}
        self._objects[path] = {**object, "metadata": metadata}


@contextmanager
def objects() -> Iterator[Objects]:
    kept = Objects()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # it would delay each body by 40 ms

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, document = kept.answer(self.command, self.path.partition("?")[0], body)
            content = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_PATCH = _answer  # noqa: N815 - http.server's names

        def log_message(self, format: str, *arguments: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
