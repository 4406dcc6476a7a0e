"""The listening socket, TLS and HTTP: granian, run inside this process, so that a new certificate loses nothing.

granian by itself renews a certificate with a new worker process: reservations, metrics and the view of the cluster
would start anew, and connections that have just come are dropped when the old one ends (measured: 42 of 65,053
requests in eight changes). Here each certificate gets a listener of its own on the same socket. A new one answers
within a millisecond; the old one is kept from accepting, answers what its connections still ask with
`Connection: close`, and ends when a client that keeps connections has given them up by itself.
"""

import logging
import os
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from granian._granian import CallbackScheduler, RSGIWorker, WorkerSignal
from granian.http import HTTP1Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]

from server.connections import cut_all, open_files, unaccepted
from server.gateway import Gateway
from server.tls import Identity, TlsError

BACKLOG = 1024
"""Connections that wait to be accepted: a burst of pods is not turned away while the server starts."""

MAX_CONNECTIONS = 2048
"""Connections whose handshake is done; more wait. An API server keeps 25 idle ones at most (client-go, transport)."""

HEADER_BYTES = 64 * 1024
"""Of a request's line and headers, which are kept while the rest is waited for; an API server sends some 500."""

KEEP_ALIVE_SECONDS = 120
"""An idle connection is kept for this long: longer than the 90 s of an API server (apimachinery, util/net/http.go),
so that a server never closes a connection that a client is about to use. granian has one time for this and for
headers: one that has sent half of its headers is as good as an idle one, and holds no thread."""

RETIRE_SECONDS = 100.0
"""How long an old listener keeps idle connections: as above, until the client has closed them itself."""

SETTLE_SECONDS = 0.5
"""At the end, for handshakes under way and for the requests that follow them."""

MAX_FILES = 4096
"""Files that may be open before no more connections are taken: granian begins handshakes without bound, and where it
cannot open another file, it tries again and again and does nothing else. At most half of what the system allows."""

LEFT = 0.75
"""How much of that may be open for connections to be taken again."""

KEPT_FILES = 8
"""For granian to open when it cannot open any other."""

GUARD_SECONDS = 0.05
"""How often open files are counted: meanwhile some 1,500 connections can come."""

WAKE_SECONDS, WAKE_TRIES = 0.1, 3
"""For a connection to ourselves."""

SPARE_FILES = 32
"""That must be free for a new certificate: granian ends the process where it cannot open the few that it needs."""

ACCEPT_SECONDS = 0.2
"""At the end, for connections that wait to be accepted: they would be reset, and the requests on them lost."""

LOOK_SECONDS = 0.001
"""How often it is looked whether any wait."""

LOOPBACK = "127.0.0.1"

TRY_SECONDS = 30
"""For a process to begin, serve and end, on a busy machine."""

MAX_SAID = 500
"""Characters of what a process said when it ended."""

IO_THREADS = 8
"""Of granian, for files that it does not serve here."""

_worker: Any = RSGIWorker  # its type stub is of an earlier version

_log = logging.getLogger(__name__)


class Front:
    """Answers connections to a listening socket, through a gateway that is started."""

    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        self._gateway = gateway
        self._listener = listener
        self._lock = Lock()
        self._listeners: list[_Listener] = []
        self._draining = False
        self._stopping = Event()
        self._silent = _silent()
        self._kept = [os.dup(self._silent.fileno()) for _ in range(KEPT_FILES)]
        self._guard = Thread(target=self._watch_files, name="front-guard", daemon=True)
        listener.listen(BACKLOG)

    def serve(self, identity: Identity) -> None:
        """Answer new connections as `identity`; those that are open go on as they are. Raises TlsError.

        What OpenSSL takes and granian's TLS library does not ends the process: see `try_out`.
        """
        with self._lock:
            if self._stopping.is_set():
                return
            self._refuse_without_files()
            started = _Listener(self._gateway, self._listener, identity)
            started.closing = self._draining
            self._listeners.append(started)
            retired = self._listeners[:-1]
            if not retired:
                self._guard.start()
        for old in retired:
            if old.accepting:
                old.stop_accepting(self._silent)
                Thread(target=self._retire, args=(old,), name="front-retire", daemon=True).start()

    def drain(self) -> None:
        """Go on answering, each connection once more."""
        with self._lock:
            self._draining = True
            for listener in self._listeners:
                listener.closing = True

    def stop(self, grace_seconds: float, settle_seconds: float = SETTLE_SECONDS) -> bool:
        """Take no more connections, answer what is under way; whether all of it was, within the grace period."""
        end = monotonic() + grace_seconds
        port = self._listener.getsockname()[1]
        with self._lock:
            self._stopping.set()
            listeners = tuple(self._listeners)
        if self._guard.is_alive():
            self._guard.join()  # it would want to run in just that moment
        accepted = min(end, monotonic() + ACCEPT_SECONDS)
        while unaccepted(self._listener) and monotonic() < accepted:
            Event().wait(LOOK_SECONDS)
        # From here to the close there should be nothing that takes time.
        for listener in listeners:
            listener.stop_accepting(self._silent)
        self._listener.close()
        Event().wait(min(settle_seconds, grace_seconds))
        for listener in listeners:
            listener.end()
        for listener in listeners:
            listener.wait(max(end - monotonic(), 0.0))
        self._silent.close()
        _close(self._kept)
        done = all(listener.wait(0.0) for listener in listeners)
        if not done:
            _log.warning("ended with %d connections open", cut_all(port))
        return done

    def _refuse_without_files(self) -> None:
        """Raise TlsError where the process may hardly open any more files."""
        spare: list[int] = []
        try:
            spare.extend(os.dup(self._listener.fileno()) for _ in range(SPARE_FILES))
        except OSError as error:
            raise TlsError(f"the certificate cannot be served: {error.strerror}") from None
        finally:
            _close(spare)

    def _watch_files(self) -> None:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # However few may be, what is open without any connection is none too many.
        most = max(min(MAX_FILES, allowed // 2), open_files() + SPARE_FILES)
        while not self._stopping.wait(GUARD_SECONDS):
            if open_files() > most:
                self._hold(most * LEFT)

    def _hold(self, most: float) -> None:
        """Take no connections until fewer files are open than `most`: what is open goes on, others wait.

        Where no file can be opened at all, granian does not even see that handshakes have failed.
        """
        self._accept_from(self._silent)
        _close(self._kept)
        _log.warning("no more connections are taken: %d files are open", open_files())
        while open_files() > most and not self._stopping.wait(GUARD_SECONDS):
            self._accept_from(self._silent)  # a listener for a new certificate too
        with suppress(OSError):  # others were quicker: next time, then
            self._kept.extend(os.dup(self._silent.fileno()) for _ in range(KEPT_FILES))
        self._accept_from(self._listener)
        with suppress(OSError):  # the end of the server closes the socket
            self._wake()
        _log.warning("connections are taken again")

    def _accept_from(self, other: socket.socket) -> None:
        for listener in tuple(self._listeners):
            listener.accept_from(other)

    def _wake(self) -> None:
        """Let granian see who waits: it looks when somebody comes. Raises OSError."""
        address = self._listener.getsockname()[:2]
        for _ in range(WAKE_TRIES):
            if not unaccepted(self._listener):
                return
            try:
                socket.create_connection(address, WAKE_SECONDS).close()
            except TimeoutError:
                # There is no room to wait: the one who has waited longest leaves it.
                self._listener.accept()[0].close()

    def _retire(self, listener: "_Listener") -> None:
        if not self._stopping.wait(RETIRE_SECONDS):
            listener.end()
            listener.wait(None)
        with self._lock:
            if not self._stopping.is_set():
                self._listeners.remove(listener)


class _Listener:
    """One granian on a duplicate of the listening socket, with one certificate."""

    def __init__(self, gateway: Gateway, listener: socket.socket, identity: Identity) -> None:
        self._gateway = gateway
        self._lock = Lock()
        self._ended = False
        self._done = Event()
        self._signal = WorkerSignal()
        self._signal.add_cb(self._done.set)
        self.accepting = True
        self.closing = False
        """Whether every answer is the last one of its connection."""
        with _files(identity) as (certificate, key, client_ca, _):
            descriptor = os.dup(listener.fileno())  # which granian closes when it ends
            worker = _worker(
                worker_id=1,
                sock=(None, SocketHolder(descriptor, False, BACKLOG)),  # type: ignore[call-arg]
                ipc=None,
                threads=1,
                blocking_threads=IO_THREADS,
                py_threads=1,
                backpressure=MAX_CONNECTIONS,
                http_mode="1",  # which is what an API server speaks to webhooks
                http1_opts=HTTP1Settings(header_read_timeout=KEEP_ALIVE_SECONDS * 1000, max_buffer_size=HEADER_BYTES),
                ssl_enabled=True,
                ssl_cert=certificate,
                ssl_key=key,
                ssl_protocol_min="tls1.2",
                ssl_ca=client_ca,
                ssl_client_verify=client_ca is not None,
            )
            loop = _Now()
            worker.serve_mtr(_Scheduler(loop, self._take), loop, self._signal)
        self._descriptor = descriptor

    def stop_accepting(self, silent: socket.socket) -> None:
        """Leave new connections to other listeners; a handshake that has begun is finished."""
        with self._lock:
            if self._accept_from(silent):
                self.accepting = False
                self.closing = True

    def accept_from(self, other: socket.socket) -> None:
        """Accept connections to another socket from now on, where it still accepts any."""
        with self._lock:
            self._accept_from(other)

    def _accept_from(self, other: socket.socket) -> bool:
        """granian cannot be told this: the descriptor that it accepts from is replaced by a duplicate of `other`."""
        accepting = self.accepting and not self._ended
        if accepting:
            os.dup2(other.fileno(), self._descriptor, inheritable=False)
        return accepting

    def end(self) -> None:
        """Close idle connections, and each other one with its answer."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._signal.set()

    def wait(self, seconds: float | None) -> bool:
        """Wait until every connection is closed; whether they are."""
        return self._done.wait(seconds)

    def _take(self, watcher: Any) -> None:
        self._gateway.take(watcher, self._is_closing)

    def _is_closing(self) -> bool:
        return self.closing


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _silent() -> socket.socket:
    """A listening socket where nobody connects. TCP too: granian may not yet have looked at what it was given."""
    silent = socket.create_server((LOOPBACK, 0))
    silent.setblocking(False)
    return silent


class _Scheduler(CallbackScheduler):
    """Has granian call `schedule` for each request."""

    def __new__(cls, loop: "_Now", _schedule: Callable[[Any], None]) -> "_Scheduler":
        scheduler: _Scheduler = super().__new__(cls, loop, None, None, None, None)  # type: ignore[call-arg]
        return scheduler

    def __init__(self, _loop: "_Now", schedule: Callable[[Any], None]) -> None:
        self._schedule_fn = schedule


class _Now:
    """In place of an event loop: what becomes due is done at once, in the thread where it does."""

    def call_soon(self, callback: Callable[..., object], *arguments: object, context: object = None) -> None:  # noqa: ARG002
        callback(*arguments)

    call_soon_threadsafe = call_soon


@contextmanager
def _files(identity: Identity) -> Iterator[tuple[str, str, str | None, Sequence[int]]]:
    """Names of files that granian can read for now, and their descriptors: a key never lies on a disk."""
    descriptors: list[int] = []

    def file(content: bytes) -> str:
        descriptor = os.memfd_create("gpu-rules-tls")
        descriptors.append(descriptor)
        with os.fdopen(os.dup(descriptor), "wb") as writable:
            writable.write(content)
        return f"/proc/self/fd/{descriptor}"

    try:
        certificate, key = file(identity.certificate), file(identity.key)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            raise TlsError(f"the certificate cannot be served: {error}") from None
        yield certificate, key, None if identity.client_ca is None else file(identity.client_ca), descriptors
    finally:
        _close(descriptors)


def try_out(identity: Identity) -> None:
    """Serve `identity` in a process of its own: what its TLS library does not take ends that one. Raises TlsError."""
    with _files(identity) as (certificate, key, client_ca, descriptors):
        line = [sys.executable, "-P", "-m", "server.front", certificate, key, *([client_ca] if client_ca else [])]
        try:
            done = subprocess.run(  # noqa: S603 - ourselves
                line,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=TRY_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TlsError("the certificate cannot be served: trying it out took too long") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())[:MAX_SAID]
        raise TlsError(f"the certificate cannot be served: {said}")


def _serve_once(certificate: str, key: str, client_ca: str | None = None) -> None:
    def content(name: str) -> bytes:
        return Path(name).read_bytes()

    with socket.create_server((LOOPBACK, 0)) as listener:
        gateway = Gateway(
            lambda *_: [b""], receive_seconds=TRY_SECONDS, most_bytes=0, slow_threads=1, address=(LOOPBACK, 0)
        )
        front = Front(gateway, listener)
        not_after = datetime.max.replace(tzinfo=UTC)
        trusted = None if client_ca is None else content(client_ca)
        front.serve(
            Identity(certificate=content(certificate), key=content(key), client_ca=trusted, not_after=not_after)
        )
        front.stop(TRY_SECONDS, 0)


if __name__ == "__main__":
    _serve_once(*sys.argv[1:])
