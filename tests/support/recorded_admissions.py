"""An admission webhook for tests with a real API server: it records requests as they come, and may inject into pods."""

import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from rules_engine.model.json.patch import Json
from tests.support.certificates import certified
from tests.support.real import Kube

Patch = Callable[[Any], Sequence[Json]]
"""A function that returns the JSON Patch of a request."""


class AdmissionRecorder:
    """The requests of all pods of a test run, in the order in which they came."""

    def __init__(self, patch: Patch) -> None:
        self.requests: list[Any] = []
        self._patch = patch

    def answer(self, review: Any) -> Json:
        request = review["request"]
        self.requests.append(request)
        response: dict[str, Json] = {"uid": request["uid"], "allowed": True}
        if patch := [*self._patch(request)]:
            response |= {"patchType": "JSONPatch", "patch": b64encode(json.dumps(patch).encode()).decode()}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def nothing(_request: Any) -> Sequence[Json]:
    return ()


@contextmanager
def recording(kube: Kube, folder: Path, order: str, patch: Patch = nothing) -> Iterator[AdmissionRecorder]:
    """Let the API server call a recorder for pods of the test run, among the mutating webhooks in order of `order`."""
    recorder = AdmissionRecorder(patch)
    authority = certified(f"ca-{order}", ca=True)
    certificate, key = certified(f"recorder-{order}", authority).write(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.dumps(recorder.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        name = f"{order}-{kube.name}"
        configuration = {
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": "recorder.gpurules.io",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {
                        "url": f"https://localhost:{server.server_port}/",
                        "caBundle": b64encode(authority.certificate).decode(),
                    },
                    "rules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                    ],
                    "namespaceSelector": {"matchExpressions": []},
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                }
            ],
        }
        kube.narrow([configuration])
        kube.admission.create_mutating_webhook_configuration(configuration)
        try:
            yield recorder
        finally:
            kube.admission.delete_mutating_webhook_configuration(name)
            server.shutdown()
