"""The server as a process: rules read and compiled, an address bound, requests answered until a signal ends it.

One process and no supervisor: state exists once, and the parent process sees its end, even by a crash.
"""

import gc
import logging
import logging.config
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any

from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.rule_set.cluster_requirements import cluster_requirements
from server.cluster.source import ClusterSource, FixedCluster, Live
from server.http import probes
from server.http.admission import Admission
from server.http.admission_record import AdmissionRecord, Callers, Observer
from server.http.app import Exposition, create_app, create_metrics_app
from server.http.handlers import AdmissionHandler, PageHandler
from server.http.limits import CONNECTIONS, LEAST_CONNECTIONS, PLAIN_CONNECTIONS, UNREAD_SECONDS
from server.http.listener import Listener, connections_allowed
from server.option_types import Address
from server.rules.folder_watch import Watcher, signature
from server.rules.reload import Reloader
from server.rules.sources import Prepared, Sources, UnusableError, prepare
from server.settings import Settings
from server.state import Served, State
from server.telemetry.observers import Telemetry, TelemetrySettings
from server.timestamps import rfc3339
from server.tls import identity as tls
from server.tls.renewal import Clients, Expiry, Install, Renewal

if TYPE_CHECKING:
    from server.cluster.connection import Connection
    from server.telemetry.drift_monitor import DriftMonitor

SETTLE_SECONDS = 0.5
"""Time at shutdown for pending handshakes and their first requests."""

SWITCH_SECONDS = 0.001
"""Interpreter switch interval: a computing thread, such as one that reads changed rules, gives way to the event loop
after this. Python's default of 5 ms is several times what a response takes."""

_log = logging.getLogger(__name__)


class StartError(Exception):
    """A failure to start, with the message to print."""


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Raises StartError, before anything is served."""
    # As process 1 of a container, SIGTERM would otherwise do nothing.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_at_once)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logging.config.dictConfig(_logging(settings.log_format))
    sys.setswitchinterval(SWITCH_SECONDS)
    rule_files = signature(settings.rules)
    prepared = _prepared(settings)
    with ExitStack() as stack:
        bound = stack.enter_context(_bound(settings.listen))
        rules = prepared.rules
        source = _source(settings, prepared)
        source.start()
        stack.callback(source.stop)
        state = State(
            cluster=source,
            served=Served(rule_set=rules.rule_set, digest=rules.digest, rules_by_kind=rules.rules_by_kind),
        )
        state.reserves = _reserves(settings)
        if settings.events and not state.reserves:
            _log.warning("no Kubernetes Events are sent: set --client-ca, or --reserve-for all")
        telemetry = stack.enter_context(_telemetry(settings, state))
        observers = [Callers(settings.reserve_for).only(_reserving(source)), *telemetry.observers]
        admission = Admission(
            state,
            max_concurrent=settings.max_concurrent,
            observers=observers,
            request_seconds=settings.request_seconds,
        )
        listener = _listener(settings, state, admission, bound)
        trust, watchers = _certificate(settings, state, lambda identity: listener.serve(tls.context(identity)), stack)
        drift_monitor = _drift_monitor(settings, state, stack)
        overpromises = _OverpromiseWarning(state)
        reloader = Reloader(
            settings.rules,
            state,
            test=settings.test_on_reload,
            adopting=_adopting(source),
            adopted=lambda: _adopted(drift_monitor, overpromises),
        )
        if settings.rules:
            watchers.append(Watcher(settings.rules, rule_files, reloader.reload, name="rules"))
        for watcher in watchers:
            watcher.start()
            stack.callback(watcher.stop)
        expiry = Expiry(state)
        expiry.start()
        stack.callback(expiry.stop)
        metrics_url = stack.enter_context(_metrics(settings, state, telemetry.metrics.exposition))
        signals = _Signals(on_hangup=watchers)
        gc.freeze()  # loaded objects stay: traversing them takes the collector 50 ms
        overpromises.check()
        _announce(listener.address, prepared, trust, metrics_url, settings)
        if drift_monitor:
            drift_monitor.start()
        ended = _run(signals, state, listener, settings)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # already stopping
    if not ended or state.in_flight:
        # Exit would wait for threads whose clients have disconnected.
        sys.stderr.flush()
        os._exit(0)


def _listener(settings: Settings, state: State, admission: Admission, bound: socket.socket) -> Listener:
    """Create the admission listener; it does not accept connections yet."""
    app = create_app(state, admission)

    def handler(it: Listener) -> AdmissionHandler:
        pages = PageHandler(it.loop, app, it.address, "https")
        return AdmissionHandler(it.loop, admission, pages, it.connections.exceeded)

    most, seconds = _connections(CONNECTIONS), settings.receive_seconds
    listener = Listener("admission", bound, handler, connections=most, receive_seconds=seconds)
    state.listeners = (listener,)
    state.turned = lambda: listener.turned
    return listener


def _connections(most: int) -> int:
    """Return one listener's share of the connections that file descriptors allow, up to `most`."""
    together = CONNECTIONS + PLAIN_CONNECTIONS
    return max(connections_allowed(together) * most // together, LEAST_CONNECTIONS)


def _run(signals: "_Signals", state: State, listener: Listener, settings: Settings) -> bool:
    """Serve until a signal, then stop. Return True if every request was answered in time."""
    settle_seconds = 0.0
    number = signals.wait(None)
    state.stopping = True
    if number == signal.SIGTERM:
        settle_seconds = SETTLE_SECONDS
        if settings.drain_seconds > 0:
            _log.info("SIGTERM: not ready, requests are answered for another %g s", settings.drain_seconds)
            listener.drain()
            number = signals.wait(settings.drain_seconds)
            if number is not None:
                settle_seconds = 0.0  # a second signal ends the draining
    cause = "drained" if number is None else signal.Signals(number).name
    _log.info("%s: stopping, requests in progress get up to %d s", cause, settings.grace_seconds)
    return listener.stop(settings.grace_seconds, settle_seconds)


class _Signals:
    """Queue of SIGINT and SIGTERM, in order of arrival; SIGHUP makes the watchers check their files.

    Signals arrive through a pipe that Python fills. Otherwise a signal just before the main thread waits, or one that
    the system delivers to another thread, would go unnoticed until the next one.
    """

    def __init__(self, on_hangup: Sequence[Watcher]) -> None:
        self._on_hangup = on_hangup
        self._pending: deque[int] = deque()
        self._readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _ignore)

    def wait(self, seconds: float | None) -> int | None:
        """Wait for the next signal; return None if none arrives in time."""
        end = None if seconds is None else monotonic() + seconds
        poll = select.poll()
        poll.register(self._readable, select.POLLIN)
        while True:
            while self._pending:
                number = self._pending.popleft()
                if number != signal.SIGHUP:
                    return number
                names = ", ".join(watcher.name for watcher in self._on_hangup)
                _log.info("SIGHUP: %s", f"checking for changes of {names}" if names else "no files are watched")
                for watcher in self._on_hangup:
                    watcher.check()
            left = None if end is None else max(end - monotonic(), 0.0) * 1000
            if not poll.poll(left):
                return None
            self._pending.extend(os.read(self._readable, 64))


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal is read from the pipe."""


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _prepared(settings: Settings) -> Prepared:
    try:
        prepared, report = prepare(Sources(settings.rules, settings.cluster, settings.declare))
    except UnusableError as error:
        raise StartError(error.diagnostics) from None
    if report:
        print_or_log(report, logging.WARNING, settings)
    return prepared


def print_or_log(text: str, level: int, settings: Settings) -> None:
    """Print a text as it is for a person, or log it if the log is for machines."""
    if settings.log_format == "json":
        _log.log(level, "%s", text)
    else:
        print(text, file=sys.stderr, flush=True)


def _source(settings: Settings, prepared: Prepared) -> ClusterSource:
    """Return the cluster of a file, or the live one."""
    if not settings.is_live:
        return FixedCluster(prepared.cluster)
    from server.cluster.live import LiveCluster

    return LiveCluster(
        _connection(settings),
        cluster_requirements(prepared.rule_set),
        max_staleness_seconds=settings.max_staleness_seconds,
        declared=prepared.cluster.nodes,
    )


def _connection(settings: Settings) -> "Connection":
    """Return a client of the live cluster; without one, of the cluster of this pod, or of KUBECONFIG.

    Raises StartError.
    """
    from server.cluster.connection import SERVICE_ACCOUNT, Connection, in_cluster, kubeconfig, missing_in_cluster

    named = settings.cluster is Live.IN_CLUSTER
    missing = missing_in_cluster() if named else None
    if missing is not None:
        hint = "--cluster kubeconfig reads a cluster from outside of it"
        raise StartError(f"gpu-rules serve: --cluster in-cluster: {missing}; {hint}")
    inside = named or (settings.cluster is not Live.KUBECONFIG and SERVICE_ACCOUNT.exists())
    return Connection(in_cluster() if inside else kubeconfig)


def _drift_monitor(settings: Settings, state: State, stack: ExitStack) -> "DriftMonitor | None":
    """Return the drift monitor of the webhook configurations, or None if their name is unknown."""
    if settings.webhook_name is None:
        return None
    from server.telemetry.drift_monitor import DriftMonitor

    monitor = DriftMonitor(_connection(settings), settings.webhook_name, state)
    stack.callback(monitor.stop)
    return monitor


def _adopting(source: ClusterSource) -> Callable[[RuleSet], None]:
    """Return a function that reads what changed rules need of the cluster, or refuses them with UnusableError."""

    def adopt(rule_set: RuleSet) -> None:
        if not source.need(cluster_requirements(rule_set)):
            problems = "; ".join(source.problems) or "timed out"
            raise UnusableError(f"the cluster data that these rules need cannot be read: {problems}")

    return adopt


def _adopted(drift_monitor: "DriftMonitor | None", overpromises: "_OverpromiseWarning") -> None:
    """Follow up on changed rules that are in force: check, compare, and free the memory of the previous ones."""
    overpromises.check()
    if drift_monitor is not None:
        drift_monitor.compare_soon()
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _reserves(settings: Settings) -> bool:
    """Return True if some request can reserve devices and send Events; a fixed cluster needs no reservations."""
    return not settings.is_live or settings.client_ca is not None or Callers(settings.reserve_for) is Callers.ALL


class _OverpromiseWarning:
    """Logs a warning when rules that read free devices come into force, and no devices are reserved."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._logged = False

    def check(self) -> None:
        overpromises = self._state.overpromises
        if overpromises and not self._logged:
            _log.warning("%s", probes.OVERPROMISES)
        self._logged = overpromises


@contextmanager
def _telemetry(settings: Settings, state: State) -> Iterator[Telemetry]:
    """Run telemetry as configured. Raises StartError."""
    wanted = TelemetrySettings(settings.decision_log, settings.events, Callers(settings.reserve_for))
    telemetry = Telemetry(wanted, state, _connection(settings) if settings.events else None)
    try:
        telemetry.start()
    except OSError as error:
        where = settings.decision_log
        raise StartError(f"gpu-rules serve: the decision log {where} cannot be written: {error.strerror}") from None
    try:
        yield telemetry
    finally:
        telemetry.stop()


def _reserving(source: ClusterSource) -> Observer:
    """Return an observer that reserves the devices of admitted pods."""

    def reserve(record: AdmissionRecord) -> None:
        if record.endpoint == "validate" and record.request is not None and record.decision is not None:
            source.admitted(record.request, record.decision)

    return reserve


def _bound(at: Address) -> socket.socket:
    """Bind a socket, without SO_REUSEPORT, so that a port in use is an error. Raises StartError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted connections inherit these two options.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_SECONDS * 1000))
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise StartError(f"gpu-rules serve: cannot listen on {at}: {error.strerror}") from None
    return listener


def _certificate(settings: Settings, state: State, install: Install, stack: ExitStack) -> tuple[str, list[Watcher]]:
    """Serve the certificate; return its description, and the watchers that renew it. Raises StartError."""
    try:
        if settings.tls_bootstrap is not None:
            return _bootstrapped(settings, settings.tls_bootstrap, state, install, stack)
        files = _tls_files(settings, stack)
        renewal = Renewal(install, state, files.certificate, files.key, settings.client_ca)
        before = signature(renewal.paths)
        renewal.serve_first()
    except tls.TlsError as error:
        raise StartError(f"gpu-rules serve: {error}") from None
    state.certificate_from = str(files.certificate)
    description = (
        f"CA: {files.ca}" if files.ca else f"certificate: {files.certificate}, valid until {rfc3339(files.not_after)}"
    )
    return description, [Watcher(renewal.paths, before, renewal.renew, name="certificate")]


def _bootstrapped(
    settings: Settings, secret: tuple[str, str], state: State, install: Install, stack: ExitStack
) -> tuple[str, list[Watcher]]:
    """Serve the certificate of the Secret, once the API server can be reached. Raises TlsError."""
    from server.tls.bootstrap import Bootstrap, Place

    before = signature([settings.client_ca] if settings.client_ca else [])
    clients = Clients(install, state, settings.client_ca)
    namespace, name = secret
    service, webhooks = settings.tls_service or "", settings.webhook_name or ""
    kept_in = Place(namespace=namespace, secret=name, service=service, webhooks=webhooks)
    state.certificate_from = str(kept_in)
    bootstrap = Bootstrap(_connection(settings), kept_in, clients.serve)
    bootstrap.wait_reconciled()
    bootstrap.start()
    stack.callback(bootstrap.stop)
    until = "" if state.certificate_not_after is None else rfc3339(state.certificate_not_after)
    description = f"certificate: {state.certificate_from}, valid until {until}"
    return description, [Watcher(clients.paths, before, clients.renew, name="client-ca")] if clients.paths else []


def _tls_files(settings: Settings, stack: ExitStack) -> tls.TlsFiles:
    """Return the configured files, or files made for localhost. Raises TlsError."""
    now = datetime.now(UTC)
    if settings.tls_cert is not None and settings.tls_key is not None:
        return tls.check(settings.tls_cert, settings.tls_key, now=now)
    folder = settings.tls_dir
    if folder is None:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="gpu-rules-tls-")))
    return tls.for_localhost(folder, now=now)


@contextmanager
def _metrics(settings: Settings, state: State, exposition: Exposition) -> Iterator[str | None]:
    """Run the metrics listener; yield its URL, or None if it is disabled."""
    if settings.metrics_listen is None:
        yield None
        return
    app = create_metrics_app(state, exposition)
    with _bound(settings.metrics_listen) as bound:
        listener = Listener(
            "metrics",
            bound,
            lambda it: PageHandler(it.loop, app, it.address, "http"),
            connections=_connections(PLAIN_CONNECTIONS),
        )
        state.listeners = (*state.listeners, listener)
        listener.start()
        try:
            yield f"http://{Address(*listener.address)}"
        finally:
            listener.stop(0)


def _announce(
    address: tuple[str, int], prepared: Prepared, trust: str, metrics_url: str | None, settings: Settings
) -> None:
    """Print the address and what is served. From now on requests are answered."""
    url = f"https://{Address(*address)}"
    rules = ", ".join(f"{count} {kind}" for kind, count in prepared.rules.rules_by_kind.items())
    parts = (
        f"gpu-rules serves at {url}",
        f"{rules} from {prepared.rules_from}",
        f"cluster: {prepared.cluster_from}",
        trust,
        *([f"metrics at {metrics_url}"] if metrics_url else []),
    )
    print_or_log("; ".join(parts), logging.INFO, settings)
    if settings.ready_fd is not None:
        with os.fdopen(settings.ready_fd, "w") as file:
            file.write(f"{url}\n")


def _logging(form: str) -> dict[str, Any]:
    """Return the logging configuration: format `line` or `json` on stderr, for libraries too."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": "server.telemetry.observers.Lines",
                "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s",
            },
            "json": {"()": "server.telemetry.observers.JsonLines"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": form, "stream": "ext://sys.stderr"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {"server": {"level": "INFO"}},
    }
