"""HTTP to the API server; configuration and authentication are the `kubernetes` package's, as kubectl has them."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import orjson

from rules_engine.model.names import MAX_LABEL, is_label, is_subdomain

if TYPE_CHECKING:
    import urllib3
    from kubernetes.client import Configuration

CONNECT_SECONDS = 10.0
"""For a connection to stand: also the longest that an API server behind a firewall that drops packets is waited for."""

READ_SECONDS = 60.0
"""Between two bytes of a list: the API server's own bound on a request (apiserver, --request-timeout)."""

ANSWER_SECONDS = 120.0
"""For a whole answer that is no watch: twice the API server's own bound on a request. Else a byte a minute would hold a
list, or the renewal of the certificate, for ever."""

MAX_OBJECT_BYTES = 16 * 1024 * 1024
"""One object, or one event of a watch: ten times the largest object that etcd takes (1.5 MiB, --max-request-bytes)."""

MAX_MESSAGE_CHARACTERS = 512
"""Of what an API server says of a failure: it goes into logs and `/readyz`. Most of its messages have 200."""

_CHUNK_BYTES = 256 * 1024

_IMPORTING = Lock()
"""The kubernetes package imports itself in a circle: two threads that import it at once see parts of it."""


class Cause(Enum):
    """Why a call failed: a closed set, for metrics."""

    CONFIGURATION = "configuration"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed-out"
    BROKEN = "broken"
    """The connection ended before the answer did."""
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    GONE = "gone"
    """The resource version is too old: HTTP 410, in a watch also as an event."""
    WENT_BACK = "went-back"
    """The resource version is older than one before it: etcd was restored or emptied."""
    THROTTLED = "throttled"
    CONFLICT = "conflict"
    """Somebody else has changed the object since it was read."""
    MISSING = "missing"
    INVALID = "invalid"
    """The API server refuses what was sent, or it was not sent: no object can have the name."""
    REFUSED = "refused"
    """Any other status."""
    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    """The answer has more bytes than are read of it."""


_CAUSES = {
    401: Cause.UNAUTHORIZED,
    403: Cause.FORBIDDEN,
    404: Cause.MISSING,
    409: Cause.CONFLICT,
    410: Cause.GONE,
    422: Cause.INVALID,
    429: Cause.THROTTLED,
}


MENDED_BY_NEW_CREDENTIALS = frozenset({Cause.UNAUTHORIZED, Cause.UNREACHABLE, Cause.CONFIGURATION})
"""A token, a certificate or an address that was replaced since they were read."""


class ApiError(Exception):
    """A call to the API server that failed; `retry_after_seconds` is what the server asked to wait."""

    def __init__(self, cause: Cause, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.retry_after_seconds = retry_after_seconds

    @classmethod
    def of_status(cls, code: int, message: str, retry_after_seconds: float | None = None) -> "ApiError":
        """What an HTTP status, or the Status of an ERROR event, says."""
        said = " ".join(message[: 2 * MAX_MESSAGE_CHARACTERS].split())[:MAX_MESSAGE_CHARACTERS]
        return cls(_CAUSES.get(code, Cause.REFUSED), f"{code}: {said}", retry_after_seconds)


def parse_object(body: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object; `what` begins the message of the ApiError if `body` is not one."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(Cause.MALFORMED, f"{what}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ApiError(Cause.MALFORMED, f"{what}: not a JSON object")
    return document


def api_path(resource: str, *, group: str = "", namespace: str | None = None, name: str | None = None) -> str:
    """Return the path of a resource's objects, or of one, in version v1. `group` "": the core group.

    An API server takes a quoted slash for a slash, so a namespace must be an RFC 1123 label, and a name a subdomain.
    Raises ApiError otherwise.
    """
    if namespace is not None and not is_label(namespace):
        raise ApiError(Cause.INVALID, f"{namespace[:MAX_LABEL]!r} is no name of a namespace")
    if name is not None and not is_subdomain(name):
        raise ApiError(Cause.INVALID, f"{name[:MAX_LABEL]!r} is no name of an object")
    prefix = ["apis", group, "v1"] if group else ["api", "v1"]
    within = [] if namespace is None else ["namespaces", namespace]
    segments = [*prefix, *within, resource, *([] if name is None else [name])]
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


@dataclass(frozen=True, slots=True)
class Access:
    """How the API server is reached: its URL, connections that trust it, and fresh headers that it trusts."""

    url: str
    pool: "urllib3.PoolManager"
    headers: Callable[[], Mapping[str, str]]


Configure = Callable[["Configuration"], None]
"""Fills in a Configuration of the kubernetes package."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its credentials."""


def missing_in_cluster(folder: Path = SERVICE_ACCOUNT) -> str | None:
    """Return what a process lacks to reach the API server as a pod does. It does not come later."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        if not os.environ.get(name):
            return f"this is not a pod of a cluster: {name} is not set"
    token = folder / "token"
    if not token.exists():
        return f"the pod has no token of a service account (automountServiceAccountToken): {token} does not exist"
    return None


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> Configure:
    """The service account of the pod that we run in; its token is read again as it is renewed."""

    def configure(configuration: "Configuration") -> None:
        missing = missing_in_cluster(folder)
        if missing is not None:
            raise ApiError(Cause.CONFIGURATION, missing)
        from kubernetes.config.incluster_config import InClusterConfigLoader

        loader = InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt"))  # type: ignore[no-untyped-call]
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]

    return configure


def kubeconfig(configuration: "Configuration") -> None:
    """The current context of KUBECONFIG, or of ~/.kube/config."""
    from kubernetes import config

    named = os.environ.get("KUBECONFIG")
    files = named or "~/.kube/config"
    if not any(Path(file).expanduser().exists() for file in files.split(os.pathsep) if file):
        unnamed = "" if named else ", and KUBECONFIG names no other"
        raise ApiError(Cause.CONFIGURATION, f"there is no kubeconfig {files}{unnamed}")
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=files,
            client_configuration=configuration,
            persist_config=False,  # a file that others use as well
        )
    except Exception as error:
        # ConfigException, and whatever unreadable files and broken YAML raise: not all say where, some in lines.
        said = " ".join(str(error).split()) or type(error).__name__
        raise ApiError(Cause.CONFIGURATION, f"kubeconfig {files}: {said}") from None


class Connection:
    """The API server; safe for use from several threads. Every method raises ApiError."""

    def __init__(self, configure: Configure) -> None:
        self._configure = configure
        self._lock = Lock()
        self._access: Access | None = None

    def get(self, path: str, query: Mapping[str, str], limit: int = MAX_OBJECT_BYTES) -> bytes:
        """A whole answer, `limit` bytes at most."""
        with self._open(path, query, READ_SECONDS) as answer:
            return b"".join(answer.parts(limit))

    def object(self, path: str) -> dict[str, Any]:
        """Get one object."""
        return parse_object(self.get(path, {}), path)

    def watch(self, path: str, query: Mapping[str, str], read_seconds: float) -> "Answer":
        """An answer that goes on; `read_seconds` is how long it may be silent."""
        return self._open(path, query, read_seconds)

    def send(self, method: str, path: str, content_type: str, body: bytes) -> bytes:
        """Change something; the whole answer."""
        with self._open(path, {}, READ_SECONDS, method, content_type, body) as answer:
            return b"".join(answer.parts(MAX_OBJECT_BYTES))

    def renew(self) -> None:
        """Read configuration and credentials anew at the next call."""
        with self._lock:
            self._access = None

    def _open(
        self,
        path: str,
        query: Mapping[str, str],
        read_seconds: float,
        method: str = "GET",
        content_type: str | None = None,
        body: bytes | None = None,
    ) -> "Answer":
        import urllib3

        access = self._accessed()
        headers = {"Accept": "application/json", "User-Agent": "gpu-rules", **access.headers()}
        if content_type is not None:
            headers["Content-Type"] = content_type
        try:
            response = access.pool.request(
                method,
                f"{access.url}{path}?{urlencode(query)}",
                body=body,
                headers=headers,
                preload_content=False,
                retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=read_seconds),
            )
        except Exception as error:
            raise _failure(error) from None
        answer = Answer(response)
        if response.status not in (200, 201):
            with answer:
                raise answer.refusal()
        return answer

    def _accessed(self) -> Access:
        with self._lock:
            if self._access is None:
                self._access = _access(self._configure)
            return self._access


class Answer:
    """A response that is being read; closing it lets go of its connection."""

    def __init__(self, response: "urllib3.BaseHTTPResponse") -> None:
        self._response = response

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def interrupt(self) -> None:
        """End a read that another thread waits in: it gets a BROKEN failure, or the end of the answer."""
        try:
            self._response.shutdown()
        except (OSError, RuntimeError, ValueError):
            return  # it has ended by itself

    def parts(self, limit: int) -> Iterator[bytes]:
        """The body as it comes, `limit` bytes and ANSWER_SECONDS at most. Raises ApiError."""
        end = monotonic() + ANSWER_SECONDS
        left = limit
        while part := self._read():
            left -= len(part)
            if left < 0:
                raise ApiError(Cause.TOO_LARGE, f"the answer has more than {limit} bytes")
            if monotonic() > end:
                raise ApiError(Cause.TIMED_OUT, f"the answer takes more than {ANSWER_SECONDS:g} s")
            yield part

    def lines(self) -> Iterator[bytes]:
        """Every line as it comes, and b"" where something came that ends none. Raises ApiError.

        What follows the last end of a line is left out.
        """
        begun = bytearray()  # bytes would be copied for each of the small parts that a large event may come in
        while part := self._read():
            first, *others = part.split(b"\n")
            begun += first
            if others:
                yield bytes(begun)
                *lines, last = others
                yield from lines
                begun = bytearray(last)
            else:
                yield b""
            if len(begun) > MAX_OBJECT_BYTES:
                raise ApiError(Cause.MALFORMED, f"an event is larger than {MAX_OBJECT_BYTES} bytes")

    def refusal(self) -> ApiError:
        """What an answer with another status than 200 says."""
        code = self._response.status
        try:
            message = parse_object(b"".join(self.parts(_CHUNK_BYTES)), "status").get("message")
        except ApiError:
            message = None
        if not isinstance(message, str):
            message = self._response.reason or "no reason given"
        return ApiError.of_status(code, message, _seconds(self._response.headers.get("Retry-After")))

    def _read(self) -> bytes:
        try:
            return self._response.read1(_CHUNK_BYTES)
        except Exception as error:
            raise _failure(error, Cause.BROKEN) from None


def _access(configure: Configure) -> Access:
    with _IMPORTING:
        from kubernetes.client import Configuration
        from kubernetes.client.rest import RESTClientObject

    try:
        configuration = Configuration()
        configure(configuration)
        pool = RESTClientObject(configuration).pool_manager
    except Exception as error:
        # ConfigException, and whatever unreadable files and broken YAML raise behind it.
        raise ApiError(Cause.CONFIGURATION, str(error) or type(error).__name__) from None

    def headers() -> Mapping[str, str]:
        # Asked for at every call: the package reads a service account's token again once a minute.
        token = configuration.auth_settings().get("BearerToken")
        return {token["key"]: str(token["value"])} if token else {}

    return Access(str(configuration.host), pool, headers)


def _failure(error: Exception, otherwise: Cause = Cause.UNREACHABLE) -> ApiError:
    """Whatever reading from a connection may raise: urllib3's, http.client's and the socket's own errors."""
    from urllib3.exceptions import NewConnectionError
    from urllib3.exceptions import TimeoutError as HttpTimeoutError

    # A refused connection is a timeout to urllib3.
    if isinstance(error, HttpTimeoutError | TimeoutError) and not isinstance(error, NewConnectionError):
        return ApiError(Cause.TIMED_OUT, str(error) or "timed out")
    return ApiError(otherwise, str(error) or type(error).__name__)


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; the API server writes no dates."""
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 9 else None
