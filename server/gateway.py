"""Between granian and the WSGI application: one thread answers requests one after the other, and waits for nothing.

granian tells of a request when its headers are there, and of its body when that is; both in the same thread. So a
client that sends slowly holds no thread, and threads do not take Python's lock away from each other: with one of them a
server answers half as many requests again as with several, and the slowest in a fifth of the time (bench/server.py).
What turns out to take long is begun again in a thread of its own, and so is a large body. A listener that is retired
with its certificate has such a thread too while it lasts.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from threading import Event, Lock, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import OptExcInfo
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

ARRIVED = "gpurules.arrived"
"""In an environ: when the headers were there (time.perf_counter)."""

PATIENT_UNTIL = "gpurules.patient_until"
"""In an environ: when the application is to raise TakesLonger (time.perf_counter); absent: it may take its time."""

PATIENCE_SECONDS = 0.01
"""How long one request may hold up the others: many times what an ordinary one takes, even on a busy machine."""

LARGE_BYTES = 64 * 1024
"""A body that is larger is rare, takes milliseconds to read, and counts as LARGE_BODIES_BYTES says."""

LARGE_BODIES_BYTES = 32 * 1024 * 1024
"""Of all large bodies that are being received or decided: connections are many, and read JSON is ten times as large."""

STALE_SECONDS = 1.0
"""A large body that has not come by then makes room for another: an API server sends all of it at once."""

_log = logging.getLogger(__name__)


class TakesLonger(BaseException):
    """The application has begun something that holds up other requests: it is called again where it does not.

    No Exception, so that nothing which absorbs errors absorbs this.
    """


class BusyError(Exception):
    """There is no room for one more now."""


class Gateway:
    """Calls a WSGI application for what granian brings (RSGI), and gives granian the answers.

    `receive_seconds`: for a body to come; when it has not, the application gets an empty one, and its answer ends the
    connection. `most_bytes`: of a body that is kept; twice as much is read, since a client that is still sending would
    miss the answer. `slow_threads`: for what takes long. `address`: host and port that are listened on.
    """

    def __init__(
        self,
        application: "WSGIApplication",
        *,
        receive_seconds: float,
        most_bytes: int,
        slow_threads: int,
        address: tuple[str, int],
    ) -> None:
        self.application = application
        self.most_bytes = most_bytes
        self.slow = ThreadPoolExecutor(slow_threads, "slow-request")
        self.environ = _ENVIRONMENT | {"SERVER_NAME": address[0], "SERVER_PORT": str(address[1])}
        self._receive_seconds = receive_seconds
        self._lock = Lock()
        self._receiving: dict[_Request, None] = {}
        self.large_bytes = 0
        """Of all large bodies that are being received or decided."""
        self._stopping = Event()

    def start(self) -> None:
        Thread(target=self._end_late, name="gateway", daemon=True).start()

    def stop(self) -> None:
        """When no request is under way any more, or none that is waited for."""
        self._stopping.set()
        self.slow.shutdown(wait=False, cancel_futures=True)

    def take(self, watcher: Any, closing: Callable[[], bool]) -> None:
        """Answer the request of a `granian.CallbackWatcherHTTP`, now or later. `closing`: whether its connection ends.

        Never raises: granian would leave the exception to whatever the thread does next.
        """
        try:
            _Request(self, watcher, closing).receive()
        except Exception:
            _log.exception("unexpected error while a request was received")
            watcher.proto.response_bytes(500, [("Connection", "close")], b"")

    def receiving(self, request: "_Request") -> None:
        """A request's body is waited for, from now on: the oldest come first."""
        with self._lock:
            self._receiving[request] = None

    def received(self, request: "_Request") -> None:
        """It is waited for no more."""
        with self._lock:
            self._receiving.pop(request, None)

    def reserve(self, size: int) -> bool:
        """Make room for a large body of `size` bytes; whether there is any."""
        if self._reserve(size):
            return True
        stale = perf_counter() - STALE_SECONDS
        with self._lock:
            waiting = [request for request in self._receiving if request.large_bytes and request.begun <= stale]
        for request in waiting:
            request.make_room()
            if self._reserve(size):
                return True
        return False

    def release(self, size: int) -> None:
        """Give back what was reserved."""
        with self._lock:
            self.large_bytes -= size

    def _reserve(self, size: int) -> bool:
        with self._lock:
            if self.large_bytes + size > LARGE_BODIES_BYTES:
                return False
            self.large_bytes += size
            return True

    def _end_late(self) -> None:
        pause = self._receive_seconds
        while not self._stopping.wait(pause):
            pause = self._give_up_late()

    def _give_up_late(self) -> float:
        """Wait no more for those that are late; how many seconds later the next one may be."""
        end = perf_counter() - self._receive_seconds
        with self._lock:
            waiting = list(self._receiving)
        late = [request for request in waiting if request.begun <= end]
        for request in late:
            request.give_up()
        # None that begins from now on is late earlier than that.
        return waiting[len(late)].begun - end if len(late) < len(waiting) else self._receive_seconds


class _Request:
    """One request, from its headers to its answer.

    granian calls back in its one thread; where a future is given up, the callback comes in the thread that does so. A
    future knows whom to call back, and granian's are unknown to the garbage collector: none is kept when it has.
    """

    __slots__ = (
        "_closing", "_future", "_gateway", "_given_up", "_held", "_kept", "_left", "_parts", "_protocol", "_scope",
        "begun", "large_bytes",
    )  # fmt: skip

    def __init__(self, gateway: Gateway, watcher: Any, closing: Callable[[], bool]) -> None:
        self.begun = perf_counter()
        self._gateway = gateway
        self._closing = closing
        self._protocol = watcher.proto
        self._scope = watcher.scope
        self._future: Any = None
        self._given_up = False
        self._parts: list[bytes] | None = None
        """Of a large body; None: there is no room for it."""
        self.large_bytes = 0
        """What is reserved."""

    def receive(self) -> None:
        """Wait for the body, if there is one."""
        headers = self._scope.headers
        length = headers.get("content-length")
        chunked = "transfer-encoding" in headers
        if length is None and not chunked:
            self._answer(b"")
        elif not chunked and int(length) <= LARGE_BYTES:
            self._gateway.receiving(self)
            self._wait_for(self._protocol(), self._whole)
        else:
            self._receive_parts(None if chunked else int(length))

    def give_up(self) -> None:
        """Do not wait for the body any more."""
        self._given_up = True
        future = self._future
        if future is not None:
            future.cancel()

    def make_room(self) -> None:
        """As `give_up`, and the client is told to try again."""
        self._parts = None
        self.give_up()

    def _receive_parts(self, length: int | None) -> None:
        """Receive a body that is large, or may become so: what is too much of it is read, and not kept."""
        most = self._gateway.most_bytes
        self._held = 0
        self._kept = most + 1 if length is None else length if length <= most else 0
        self._parts = []
        self._reserve(LARGE_BYTES if length is None else self._kept)
        self._left = 2 * most if length is None else min(length, 2 * most)
        self._gateway.receiving(self)
        aiter(self._protocol)
        self._wait_for(anext(self._protocol), self._part)

    def _reserve(self, size: int) -> None:
        """Make room for so much of the body altogether; where there is none, nothing of it is kept."""
        if self._gateway.reserve(size - self.large_bytes):
            self.large_bytes = size
        else:
            self._parts = None

    def _wait_for(self, future: Any, then: Callable[[Any], None]) -> None:
        self._future = future
        future.add_done_callback(then)
        if self._given_up:
            future.cancel()

    def _whole(self, future: Any) -> None:
        self._future = None
        self._gateway.received(self)
        self._answer(_result(future))

    def _part(self, future: Any) -> None:
        self._future = None
        part = _result(future)
        self._left -= len(part)
        parts = self._parts
        if self._kept > 0 and parts is not None:
            kept = part[: self._kept]
            parts.append(kept)
            self._kept -= len(kept)
            self._held += len(kept)
            if self._held > self.large_bytes:
                self._reserve(max(min(2 * self.large_bytes, self._held + self._kept), self._held))
        if part and self._left > 0:
            self._wait_for(anext(self._protocol), self._part)
            return
        self._gateway.received(self)
        parts = self._parts
        if parts is None:
            self._answer(None)
        else:
            self._answer(b"" if self._given_up else b"".join(parts))

    def _answer(self, body: bytes | None) -> None:
        """Have the application answer, None standing for a body there is no room for."""
        if body is None or len(body) <= LARGE_BYTES:
            environ = self._environ(body)
            environ[PATIENT_UNTIL] = perf_counter() + PATIENCE_SECONDS
            try:
                self._call(environ)
            except TakesLonger:
                pass
            else:
                return
        try:
            self._gateway.slow.submit(self._call, self._environ(body))
        except RuntimeError:  # the server ends, and waits for nobody any more
            self._protocol.response_bytes(503, [("Connection", "close")], b"")

    def _call(self, environ: "WSGIEnvironment") -> None:
        start = _Start()
        try:
            content = _joined(self._gateway.application(environ, start))
        except Exception:
            _log.exception("unexpected error in the application")
            start, content = _Start(), b""
        if self.large_bytes:
            self._gateway.release(self.large_bytes)
        headers = start.headers
        if self._given_up or self._closing():
            headers = [*headers, ("Connection", "close")]
        self._protocol.response_bytes(start.status, headers, content)

    def _environ(self, body: bytes | None) -> "WSGIEnvironment":
        """The request as PEP 3333 says."""
        scope = self._scope
        environ = self._gateway.environ | {
            "REQUEST_METHOD": scope.method,
            "PATH_INFO": scope.path,
            "QUERY_STRING": scope.query_string,
            "REMOTE_ADDR": scope.client.rpartition(":")[0].strip("[]"),
            "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
            "wsgi.input": _Full() if body is None else BytesIO(body),
            ARRIVED: self.begun,
        }
        if not environ["PATH_INFO"].isascii():
            environ["PATH_INFO"] = environ["PATH_INFO"].encode().decode("latin-1")
        for name, value in scope.headers.items():
            key = _KEYS.get(name) or f"HTTP_{name.upper().replace('-', '_')}"
            environ[key] = f"{environ[key]},{value}" if key in environ else value
        return environ


def _result(future: Any) -> bytes:
    """What came; nothing where the client has gone, or was given up."""
    if future.cancelled():
        return b""
    try:
        content: bytes = future.result()
    except Exception as error:
        error.__traceback__ = None  # the future keeps the error, and this frame the future
        return b""
    return content


class _Full:
    """The body of a request there is no room for."""

    def read(self, _size: int = -1) -> bytes:
        raise BusyError


class _Start:
    """`start_response` of one request."""

    __slots__ = ("headers", "status")

    def __init__(self) -> None:
        self.status = 500
        self.headers: Sequence[tuple[str, str]] = []

    def __call__(
        self, status: str, headers: list[tuple[str, str]], _exc_info: "OptExcInfo | None" = None
    ) -> Callable[[bytes], object]:
        self.status = int(status[:3])
        self.headers = headers
        return _write


def _write(_content: bytes) -> None:
    raise NotImplementedError("answers are returned, not written")


def _joined(body: Iterable[bytes]) -> bytes:
    if type(body) is list and len(body) == 1:
        return body[0]  # type: ignore[no-any-return]
    try:
        return b"".join(body)
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()


_KEYS = {
    "content-type": "CONTENT_TYPE",
    "content-length": "CONTENT_LENGTH",
    "host": "HTTP_HOST",
    "user-agent": "HTTP_USER_AGENT",
    "accept": "HTTP_ACCEPT",
    "accept-encoding": "HTTP_ACCEPT_ENCODING",
}
"""Of headers that are usual, or that an environ calls otherwise."""

_ENVIRONMENT: dict[str, Any] = {
    "SCRIPT_NAME": "",
    "wsgi.errors": sys.stderr,
    "wsgi.input_terminated": True,
    "wsgi.multiprocess": False,
    "wsgi.multithread": True,
    "wsgi.run_once": False,
    "wsgi.url_scheme": "https",
    "wsgi.version": (1, 0),
}
