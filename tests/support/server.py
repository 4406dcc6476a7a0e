"""Builders for the server's tests: AdmissionReviews, calls of the WSGI application, real servers on loopback."""

import http.client
import io
import json
import os
import signal
import ssl
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from flask import Flask

from rules_engine.server.http.admission import AdmissionEndpoint
from rules_engine.server.http.admission_record import Callers, Observer
from rules_engine.server.http.app import create_app
from rules_engine.server.http.limits import REQUEST_SECONDS
from rules_engine.server.state import ServerState
from tests.support.evaluation import limited

ROOT = Path(__file__).parents[2]
UID = "3a7e1f0c-6d1b-4a55-9d53-6f1d0f3c2b11"
PATIENCE_SECONDS = 300
"""Timeout of anything that a test waits for: only a hang meets it, also on a busy machine."""

LADDER = """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: mig}
spec:
  rungs:
    - {resource: nvidia.com/mig-2g.20gb}
    - {resource: nvidia.com/gpu, assume: true}
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: no-latest}
spec:
  validations:
    - expression: "object.spec.containers.all(c, !has(c.image) || !c.image.endsWith(':latest'))"
      message: an image must have a tag
"""


MIG_POD = limited({"nvidia.com/mig-2g.20gb": "1"})


def review(object: Any = None, **request: Any) -> dict[str, Any]:
    """Build an AdmissionReview of a pod at CREATE; keyword arguments set members of the request, `...` removes them."""
    members = {
        "uid": UID,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "ml",
        "operation": "CREATE",
        "userInfo": {"username": "system:admin"},
        "object": limited() if object is None else object,
        "dryRun": False,
        **request,
    }
    present = {name: value for name, value in members.items() if value is not ...}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": present}


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP response; the body is JSON, except for HEAD."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def response(self) -> dict[str, Any]:
        """Check the envelope and return the AdmissionReview's response."""
        assert (self.body["apiVersion"], self.body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response: dict[str, Any] = self.body["response"]
        return response

    @property
    def patch(self) -> list[dict[str, Any]]:
        patch: list[dict[str, Any]] = json.loads(b64decode(self.response["patch"], validate=True))
        return patch


def application(
    state: ServerState,
    *,
    callers: Callers = Callers.AUTHENTICATED,
    observers: Sequence[Observer] = (),
    request_seconds: float = REQUEST_SECONDS,
) -> Flask:
    """Build the admission server as a WSGI application."""
    return create_app(
        state, AdmissionEndpoint(state, callers=callers, observers=observers), request_seconds=request_seconds
    )


def call(
    app: Callable[..., Iterable[bytes]],
    path: str,
    body: bytes | Any = b"",
    *,
    method: str = "POST",
    content_type: str | None = "application/json",
    length: str | None = "",
    terminated: bool = True,
    query: str = "",
) -> Answer:
    """Call a WSGI application. `length` None sends no Content-Length, "" the right one.

    `terminated`: whether the server knows where a body without a length ends.
    """
    stream = io.BytesIO(body) if isinstance(body, bytes) else body
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "SCRIPT_NAME": "",
        "QUERY_STRING": query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "443",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "https",
        "wsgi.input": stream,
        "wsgi.errors": sys.stderr,
    }
    if terminated:
        environ["wsgi.input_terminated"] = True
    if length is not None:
        environ["CONTENT_LENGTH"] = length or str(len(body))
    if content_type is not None:
        environ["CONTENT_TYPE"] = content_type
    seen: list[tuple[str, list[tuple[str, str]]]] = []
    parts = app(environ, lambda status, headers, exc_info=None: seen.append((status, headers)))
    content = b"".join(parts)
    [(status, headers)] = seen
    found = {name.lower(): value for name, value in headers}
    return Answer(int(status.split()[0]), found, json.loads(content) if method != "HEAD" else content)


def command(*arguments: str | Path, module: str = "rules_engine.server") -> list[str]:
    """Return the command line of `gpu-rules` from this working tree."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_RULES_")}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, **more}


@dataclass(slots=True)
class Running:
    """Running server process."""

    process: subprocess.Popen[bytes]
    url: str
    ca: Path
    log: Path
    client: tuple[Path, Path] | None = None
    """Client certificate and key of requests."""

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if self.client is not None:
            context.load_cert_chain(*self.client)
        return context

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self.port, context=self.context(), timeout=PATIENCE_SECONDS)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        """Send one request on a new connection."""
        connection = self.connect()
        try:
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # the server may respond before it has read everything
                connection.request(method, path, body, headers or {"Content-Type": "application/json"}, **more)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, json.loads(response.read()))
        finally:
            connection.close()

    def stop(self, number: int) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)

    def logged(self) -> str:
        return self.log.read_text()


@contextmanager
def started(
    folder: Path,
    *arguments: str | Path,
    prefix: Sequence[str] = (),
    module: str = "rules_engine.server",
    **variables: str,
) -> Iterator[Running]:
    """Run `gpu-rules serve` on a free port; yield it once it is ready, and stop it afterwards."""
    ready, theirs = os.pipe()
    log = folder / "server.log"
    given = {"--tls-cert", "--tls-dir", "--tls-bootstrap"}.intersection(arguments)
    tls = () if given else ("--tls-dir", folder / "tls")
    line = command("serve", "--listen", "127.0.0.1:0", "--ready-fd", str(theirs), *tls, *arguments, module=module)
    with os.fdopen(ready, encoding="ascii") as readable:
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*prefix, *line], env=environment(**variables), pass_fds=[theirs], stderr=stderr, stdout=stderr
            )
        try:
            os.close(theirs)
            url = readable.readline().strip()
            assert url, log.read_text()
            yield Running(process, url, folder / "tls" / "ca.crt", log)
            # A regular end also writes coverage data.
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
            process.wait(PATIENCE_SECONDS)


def certificate_files(
    folder: Path, begin: datetime, end: datetime, key: CertificateIssuerPrivateKeyTypes | None = None
) -> tuple[Path, Path]:
    """Write a self-signed certificate for localhost and its key."""
    folder.mkdir(exist_ok=True)
    key = key or ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # With several trusted certificates, each needs a name of its own.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"localhost {serial % 10**9}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else SHA256())
    )
    files = folder / "given.crt", folder / "given.key"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files
