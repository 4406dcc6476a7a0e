"""The server as processes: one that supervises, and one worker that answers.

The supervisor reads the rules, so that what is wrong with them is said once, binds the address and passes both on to
the worker. granian does the TLS and HTTP.
"""

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread, Timer
from types import FrameType
from typing import Any

from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.log import LogLevels
from granian.net import SocketHolder  # type: ignore[attr-defined]
from granian.server import MPServer

from server import tls
from server.app import create_app
from server.prepare import Prepared, Sources, UnusableError, prepare
from server.state import State

BACKLOG = 1024
"""Connections that wait to be accepted: a burst of pods is not turned away while the worker starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `gpu-rules serve` is told. `certificate` and `key` come together or not at all."""

    sources: Sources
    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    tls_folder: Path | None = None
    threads: int
    max_concurrent: int
    drain_seconds: float
    grace_seconds: int
    ready_fd: int | None = None


class StartError(Exception):
    """Why the server cannot start, as it is to be printed."""


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Raises StartError, before anything is served."""
    # Until granian takes the signals over; as process 1 of a container, SIGTERM would otherwise do nothing.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_at_once)
    prepared = _prepared(settings.sources)
    with ExitStack() as stack:
        listener = stack.enter_context(_bound(settings.host, settings.port))
        files = _tls_files(settings, stack)
        stopping = multiprocessing.RawValue("b", 0)
        server = _Server(listener, settings, files, stopping)
        server.on_startup(lambda: _tell(listener, prepared, files, settings.ready_fd))
        server.serve(target_loader=_Worker(settings, prepared, stopping), wrap_loader=False)


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _prepared(sources: Sources) -> Prepared:
    try:
        prepared, report = prepare(sources)
    except UnusableError as error:
        raise StartError(error.report) from None
    if report:
        print(report, file=sys.stderr)
    return prepared


def _bound(host: str, port: int) -> socket.socket:
    """A socket at the address. Only this one: no SO_REUSEPORT, so that a port in use is an error."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise StartError(f"gpu-rules serve: cannot listen on {_host_port(host, port)}: {error.strerror}") from None
    return listener


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tls_files(settings: Settings, stack: ExitStack) -> tls.TlsFiles:
    now = datetime.now(UTC)
    try:
        if settings.certificate is not None and settings.key is not None:
            return tls.check(settings.certificate, settings.key, now=now)
        folder = settings.tls_folder
        if folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="gpu-rules-tls-")))
        return tls.for_localhost(folder, now=now)
    except tls.TlsError as error:
        raise StartError(f"gpu-rules serve: {error}") from None


def _tell(listener: socket.socket, prepared: Prepared, files: tls.TlsFiles, ready_fd: int | None) -> None:
    """Say what runs where. From now on connections are taken, if not yet answered."""
    host, port = listener.getsockname()[:2]
    url = f"https://{_host_port(host, port)}"
    rules = ", ".join(f"{count} {kind}" for kind, count in prepared.rules_by_kind.items())
    trust = (
        f"CA: {files.ca}" if files.ca else f"certificate: {files.certificate}, valid until {files.not_after:%Y-%m-%d}"
    )
    parts = (
        f"gpu-rules serves at {url}",
        f"{rules} from {prepared.rules_from}",
        f"cluster: {prepared.cluster_from}",
        trust,
    )
    print("; ".join(parts), file=sys.stderr, flush=True)
    if ready_fd is not None:
        with os.fdopen(ready_fd, "w") as file:
            file.write(f"{url}\n")


class _Server(MPServer):
    """granian with a listening socket that the supervisor makes.

    granian's own way on Linux has every worker bind its own socket with SO_REUSEPORT: two servers on one port would
    share it silently, the port chosen for 0 would not be known, and connections that wait for a worker that ends are
    lost. A socket of the supervisor's waits through all of a worker's changes.
    """

    def __init__(self, listener: socket.socket, settings: Settings, files: tls.TlsFiles, stopping: Any) -> None:
        super().__init__(
            "gpu-rules",
            interface=Interfaces.WSGI,
            workers=1,
            blocking_threads=settings.threads,
            backlog=BACKLOG,
            http=HTTPModes.auto,
            log_level=LogLevels.error,
            log_dictconfig=_LOGGING,
            ssl_cert=files.certificate,
            ssl_key=files.key,
            ssl_protocol_min=SSLProtocols.tls12,
            workers_kill_timeout=settings.grace_seconds,
        )
        self._listener = listener
        self._stopping = stopping
        self._drain_seconds = settings.drain_seconds

    def _init_shared_socket(self) -> None:
        self._listener.listen(BACKLOG)
        self._listener.set_inheritable(True)
        self._ssp = None
        self._shd = SocketHolder(self._listener.fileno(), False, BACKLOG)  # type: ignore[call-arg,assignment]
        self._sso = self._listener

    def signal_handler_interrupt(self, number: int, _frame: FrameType | None) -> None:
        """SIGTERM: not ready any more, and the end a little later; SIGINT, or a second SIGTERM: the end."""
        if number == signal.SIGTERM and not self._stopping.value and self._drain_seconds > 0:
            self._stopping.value = 1
            timer = Timer(self._drain_seconds, self._end)
            timer.daemon = True
            timer.start()
        else:
            self._stopping.value = 1
            self._end()

    def _end(self) -> None:
        self.interrupt_signal = True
        self.main_loop_interrupt.set()


class _Worker:
    """Makes the application in the worker process.

    A forked worker takes over what the supervisor compiled; a spawned one gets the settings and reads for itself.
    """

    def __init__(self, settings: Settings, prepared: Prepared | None, stopping: Any) -> None:
        self._settings = settings
        self._prepared = prepared
        self._stopping = stopping

    def __reduce__(self) -> tuple[Callable[..., "_Worker"], tuple[Settings, None, Any]]:
        return _Worker, (self._settings, None, self._stopping)

    def __call__(self) -> Any:
        # The supervisor's handlers are no good in a fork of it; granian sets the worker's when it serves.
        signal.signal(signal.SIGTERM, _end_at_once)
        # Ctrl-C on a terminal goes to every process of the foreground group: the supervisor alone decides.
        os.setsid()
        Thread(target=_end_with_supervisor, daemon=True, name="supervisor-watch").start()
        prepared = self._prepared or _prepared(self._settings.sources)
        state = State(prepared.rule_set, prepared.cluster, stopping=lambda: bool(self._stopping.value))
        return create_app(state, max_concurrent=self._settings.max_concurrent)


def _end_with_supervisor() -> None:
    """A supervisor that is killed cannot stop its worker: the worker sees it go."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


_LOGGING: dict[str, Any] = {
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
    "loggers": {"_granian": {"handlers": ["stderr"], "propagate": False}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}
"""One format, on stderr, for granian and for us."""
