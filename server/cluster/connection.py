"""HTTP client of the API server. The `kubernetes` package loads configuration and credentials, as kubectl does."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from threading import Lock
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import orjson

from rules_engine.model.kubernetes.names import MAX_LABEL, is_label, is_subdomain
from rules_engine.model.problems.problem import did_you_mean
from rules_engine.model.problems.source import escape_controls

if TYPE_CHECKING:
    import urllib3
    from kubernetes.client import Configuration

CONNECT_SECONDS = 10.0
"""Timeout to connect; a firewall that drops packets is noticed only by it."""

READ_SECONDS = 60.0
"""Timeout between two bytes of a list: the API server's own timeout of a request (apiserver, --request-timeout)."""

ANSWER_SECONDS = 120.0
"""Timeout of a whole response other than a watch: twice the API server's own timeout of a request. Without it, one byte
a minute would block a list, or the renewal of the certificate, for ever."""

MAX_OBJECT_BYTES = 16 * 1024 * 1024
"""Maximum size of an object or watch event: ten times the largest object in etcd (1.5 MiB, --max-request-bytes)."""

MAX_MESSAGE_CHARACTERS = 512
"""Maximum length of an API server's error message in logs and `/readyz`; most have 200 characters."""

_CHUNK_BYTES = 256 * 1024

_IMPORTING = Lock()
"""Serializes the import of the kubernetes package: its imports are circular; a second thread would see part of it."""


class Cause(Enum):
    """Cause of a failed call; a label value of metrics."""

    CONFIGURATION = "configuration"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed-out"
    BROKEN = "broken"
    """The connection ended before the response did."""
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    GONE = "gone"
    """The resource version is too old: HTTP 410, in a watch also as an event."""
    WENT_BACK = "went-back"
    """The resource version is older than a previous one: etcd was restored or emptied."""
    THROTTLED = "throttled"
    CONFLICT = "conflict"
    """The object was changed since it was read."""
    MISSING = "missing"
    INVALID = "invalid"
    """The API server rejects the object, or no object can have the name and nothing was sent."""
    REFUSED = "refused"
    """Any other status."""
    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    """The response exceeds the limit on its size."""


_CAUSES = {
    401: Cause.UNAUTHORIZED,
    403: Cause.FORBIDDEN,
    404: Cause.MISSING,
    409: Cause.CONFLICT,
    410: Cause.GONE,
    422: Cause.INVALID,
    429: Cause.THROTTLED,
}


RENEWAL_CAUSES = frozenset({Cause.UNAUTHORIZED, Cause.UNREACHABLE, Cause.CONFIGURATION})
"""Causes after which configuration and credentials are read again: token, certificate or address may have changed."""


class ApiError(Exception):
    """A failed call to the API server; `retry_after_seconds` is its Retry-After."""

    def __init__(self, cause: Cause, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.retry_after_seconds = retry_after_seconds

    @classmethod
    def of_status(cls, code: int, message: str, retry_after_seconds: float | None = None) -> "ApiError":
        """Create the error for an HTTP status, or for the Status of an ERROR event."""
        return cls(_CAUSES.get(code, Cause.REFUSED), f"{code}: {_one_line(message)}", retry_after_seconds)


def parse_object(body: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object; `what` begins the message of the ApiError if `body` is not one."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(Cause.MALFORMED, f"{what}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ApiError(Cause.MALFORMED, f"{what}: not a JSON object")
    return document


def api_path(
    resource: str, *, group: str = "", version: str = "v1", namespace: str | None = None, name: str | None = None
) -> str:
    """Return the path of a resource's objects, or of one. `group` "": the core group.

    An API server decodes a quoted slash, so a namespace must be an RFC 1123 label, and a name a subdomain.
    Raises ApiError otherwise.
    """
    if namespace is not None and not is_label(namespace):
        raise ApiError(Cause.INVALID, f"{namespace[:MAX_LABEL]!r} is not a valid namespace")
    if name is not None and not is_subdomain(name):
        raise ApiError(Cause.INVALID, f"{name[:MAX_LABEL]!r} is not a valid object name")
    prefix = ["apis", group, version] if group else ["api", version]
    within = [] if namespace is None else ["namespaces", namespace]
    segments = [*prefix, *within, resource, *([] if name is None else [name])]
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


@dataclass(frozen=True, slots=True)
class Access:
    """URL, connection pool and current authentication headers of an API server."""

    url: str
    pool: "urllib3.PoolManager"
    headers: Callable[[], Mapping[str, str]]


DEFAULT_KUBECONFIG = "~/.kube/config"

Configure = Callable[["Configuration"], None]
"""Function that fills in a Configuration of the kubernetes package."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Mount path of a pod's credentials."""


def missing_in_cluster(folder: Path = SERVICE_ACCOUNT) -> str | None:
    """Return the missing variable or token of a pod's service account, or None. It does not appear later."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        if not os.environ.get(name):
            return f"this is not a pod of a cluster: {name} is not set"
    token = folder / "token"
    if not token.exists():
        return f"the pod has no token of a service account (automountServiceAccountToken): {token} does not exist"
    return None


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> Configure:
    """Configure from the service account of the pod; its token is reread when it is rotated."""

    def configure(configuration: "Configuration") -> None:
        missing = missing_in_cluster(folder)
        if missing is not None:
            raise ApiError(Cause.CONFIGURATION, missing)
        from kubernetes.config.incluster_config import InClusterConfigLoader

        loader = InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt"))  # type: ignore[no-untyped-call]
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]

    return configure


def load_kubeconfig(configuration: "Configuration", paths: str = "", context: str | None = None) -> None:
    """Configure from a context, by default the current one, of files: by default KUBECONFIG, or ~/.kube/config."""
    from kubernetes import config

    paths = paths or os.environ.get("KUBECONFIG", "")
    files = paths or DEFAULT_KUBECONFIG
    if not any(Path(file).expanduser().exists() for file in files.split(os.pathsep) if file):
        hint = "" if paths else ", and KUBECONFIG is not set"
        raise ApiError(Cause.CONFIGURATION, f"kubeconfig {files} not found{hint}")
    try:
        contexts, _ = config.list_kube_config_contexts(files)  # type: ignore[no-untyped-call]
        names = [each["name"] for each in contexts]
        if context is not None and context not in names:
            raise config.ConfigException(f"no context '{context}'{did_you_mean(context, names)}")
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=files,
            context=context,
            client_configuration=configuration,
            persist_config=False,  # kubectl uses the file too
        )
    except Exception as error:
        # ConfigException, and errors of unreadable files and broken YAML: some name no file, some have several lines.
        is_explained = isinstance(error, config.ConfigException | OSError)
        text = " ".join(str(error).split()) if is_explained else f"it is not a kubeconfig ({type(error).__name__})"
        raise ApiError(Cause.CONFIGURATION, f"kubeconfig {files}: {text}") from None


def context_namespace(paths: str = "", context: str | None = None) -> str:
    """Return the namespace of a context of files, chosen as for `load_kubeconfig`; "" if it has none."""
    from kubernetes import config

    files = paths or os.environ.get("KUBECONFIG", "") or DEFAULT_KUBECONFIG
    try:
        contexts, current = config.list_kube_config_contexts(files)  # type: ignore[no-untyped-call]
        named = next((each for each in contexts if each["name"] == context), current)
        return str(named["context"].get("namespace") or "")
    except Exception:  # in a pod there is no file; otherwise it is reported when it is loaded
        return ""


def as_kubectl(folder: Path = SERVICE_ACCOUNT, *, file: str = "", context: str | None = None) -> Configure:
    """Configure as kubectl does: from a kubeconfig, and in a pod without one from its service account."""

    def configure(configuration: "Configuration") -> None:
        has_file = (
            bool(file or context or os.environ.get("KUBECONFIG")) or Path(DEFAULT_KUBECONFIG).expanduser().exists()
        )
        if not has_file and missing_in_cluster(folder) is None:
            in_cluster(folder)(configuration)
        else:
            load_kubeconfig(configuration, file, context)

    return configure


class Connection:
    """Client of an API server; safe for use from several threads. Every call raises ApiError."""

    def __init__(self, configure: Configure) -> None:
        self._configure = configure
        self._lock = Lock()
        self._access: Access | None = None

    def get(
        self, path: str, query: Mapping[str, str], limit: int = MAX_OBJECT_BYTES, seconds: float = ANSWER_SECONDS
    ) -> bytes:
        """Get a whole body of at most `limit` bytes; `seconds` is the timeout of each step, and of the body."""
        with self._open(path, query, min(READ_SECONDS, seconds)) as answer:
            return b"".join(answer.parts(limit, seconds))

    def object(self, path: str) -> dict[str, Any]:
        """Get one object."""
        return parse_object(self.get(path, {}), path)

    def watch(self, path: str, query: Mapping[str, str], read_seconds: float) -> "ApiResponse":
        """Open a streaming response; `read_seconds` is the timeout between two reads."""
        return self._open(path, query, read_seconds)

    def send(
        self,
        method: str,
        path: str,
        content_type: str,
        body: bytes,
        query: Mapping[str, str] = MappingProxyType({}),
        seconds: float = READ_SECONDS,
    ) -> bytes:
        """Send a request that changes an object; return the whole body. `seconds` is the timeout of each step."""
        with self._open(path, query, seconds, method, content_type, body) as answer:
            return b"".join(answer.parts(MAX_OBJECT_BYTES))

    def renew(self) -> None:
        """Read configuration and credentials again before the next call."""
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
    ) -> "ApiResponse":
        import urllib3

        access = self._current_access()
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
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, read_seconds), read=read_seconds),
            )
        except Exception as error:
            raise _api_error(error) from None
        answer = ApiResponse(response)
        if response.status not in (200, 201):
            with answer:
                raise answer.refusal()
        return answer

    def _current_access(self) -> Access:
        with self._lock:
            if self._access is None:
                self._access = _create_access(self._configure)
            return self._access


class ApiResponse:
    """A response being read; closing it releases its connection."""

    def __init__(self, response: "urllib3.BaseHTTPResponse") -> None:
        self._response = response

    def __enter__(self) -> "ApiResponse":
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def interrupt(self) -> None:
        """Interrupt a read in another thread: it raises a BROKEN error, or sees the end of the response."""
        try:
            self._response.shutdown()
        except (OSError, RuntimeError, ValueError):
            return  # already ended

    def parts(self, limit: int, seconds: float = ANSWER_SECONDS) -> Iterator[bytes]:
        """Yield the body in chunks, at most `limit` bytes within `seconds`. Raises ApiError."""
        end = monotonic() + seconds
        left = limit
        while part := self._read():
            left -= len(part)
            if left < 0:
                raise ApiError(Cause.TOO_LARGE, f"the response is larger than {limit} bytes")
            if monotonic() > end:
                raise ApiError(Cause.TIMED_OUT, f"the response takes longer than {seconds:g} s")
            yield part

    def lines(self) -> Iterator[bytes]:
        """Yield each line as it arrives, and b"" for bytes that end none. Raises ApiError.

        Bytes after the last newline are dropped.
        """
        incomplete = bytearray()  # bytes would be copied for each small chunk of a large event
        while part := self._read():
            first, *others = part.split(b"\n")
            incomplete += first
            if others:
                yield bytes(incomplete)
                *lines, last = others
                yield from lines
                incomplete = bytearray(last)
            else:
                yield b""
            if len(incomplete) > MAX_OBJECT_BYTES:
                raise ApiError(Cause.MALFORMED, f"an event is larger than {MAX_OBJECT_BYTES} bytes")

    def refusal(self) -> ApiError:
        """Return the error of a response whose status is not 200 or 201."""
        code = self._response.status
        try:
            message = parse_object(b"".join(self.parts(_CHUNK_BYTES)), "status").get("message")
        except ApiError:
            message = None
        if not isinstance(message, str):
            message = self._response.reason or "no reason given"
        return ApiError.of_status(code, message, _retry_after_seconds(self._response.headers.get("Retry-After")))

    def _read(self) -> bytes:
        try:
            return self._response.read1(_CHUNK_BYTES)
        except Exception as error:
            raise _api_error(error, Cause.BROKEN) from None


def _create_access(configure: Configure) -> Access:
    with _IMPORTING:
        from kubernetes.client import Configuration
        from kubernetes.client.rest import RESTClientObject

    try:
        configuration = Configuration()
        configure(configuration)
        pool = RESTClientObject(configuration).pool_manager
    except Exception as error:
        # ConfigException, and errors of unreadable files and broken YAML.
        raise ApiError(Cause.CONFIGURATION, str(error) or type(error).__name__) from None

    def headers() -> Mapping[str, str]:
        # Called for each request: the package rereads a service account's token once a minute.
        try:
            token = configuration.auth_settings().get("BearerToken")
        except Exception as error:
            raise ApiError(Cause.CONFIGURATION, str(error) or type(error).__name__) from None
        return {token["key"]: str(token["value"])} if token else {}

    return Access(str(configuration.host), pool, headers)


def _api_error(error: Exception, otherwise: Cause = Cause.UNREACHABLE) -> ApiError:
    """Convert an error of urllib3, http.client or the socket."""
    from urllib3.exceptions import NewConnectionError
    from urllib3.exceptions import TimeoutError as HttpTimeoutError

    # In urllib3, a refused connection is a kind of timeout.
    if isinstance(error, HttpTimeoutError | TimeoutError) and not isinstance(error, NewConnectionError):
        return ApiError(Cause.TIMED_OUT, _one_line(str(error)) or "timed out")
    return ApiError(otherwise, _one_line(str(error)) or type(error).__name__)


def _one_line(text: str) -> str:
    """Return a server's text for logs, `/readyz` and terminals: of limited length, without control characters."""
    return escape_controls(" ".join(text[: 2 * MAX_MESSAGE_CHARACTERS].split()))[:MAX_MESSAGE_CHARACTERS]


def _retry_after_seconds(text: str | None) -> float | None:
    """Parse a Retry-After in seconds; the API server sends no dates."""
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 9 else None
