"""The server as a process: rules read and compiled, an address bound, requests answered until a signal ends it.

One process and no supervisor: what it knows lives once, and whatever ends it (a crash too) is seen by what started it.
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
from server.telemetry.observers import Observed, Observing
from server.timestamps import rfc3339
from server.tls import identity as tls
from server.tls.renewal import Clients, Expiry, Renewal, Show

if TYPE_CHECKING:
    from server.cluster.connection import Connection
    from server.telemetry.drift_monitor import Comparing

SETTLE_SECONDS = 0.5
"""Time at shutdown for pending handshakes and their first requests."""

SWITCH_SECONDS = 0.001
"""Interpreter switch interval: a computing thread, such as one that reads changed rules, gives way to the event loop
after this. Python's default of 5 ms is several times what a response takes."""

_log = logging.getLogger(__name__)


class StartError(Exception):
    """Why the server cannot start, as it is to be printed."""


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
        state.reserves = _callers_count(settings)
        if settings.events and not state.reserves:
            _log.warning("no Kubernetes Events are sent: set --client-ca, or --reserve-for all")
        observing = stack.enter_context(_observing(settings, state))
        observers = [Callers(settings.reserve_for).only(_reserving(source)), *observing.observers]
        admission = Admission(
            state,
            max_concurrent=settings.max_concurrent,
            observers=observers,
            request_seconds=settings.request_seconds,
        )
        listener = _listener(settings, state, admission, bound)
        trust, watchers = _certificate(settings, state, lambda identity: listener.serve(tls.context(identity)), stack)
        comparing = _comparing(settings, state, stack)
        overpromising = _Overpromising(state)
        reloader = Reloader(
            settings.rules,
            state,
            test=settings.test_on_reload,
            adopting=_adopting(source),
            adopted=lambda: _adopted(comparing, overpromising),
        )
        if settings.rules:
            watchers.append(Watcher(settings.rules, rule_files, reloader.reload, name="rules"))
        for watcher in watchers:
            watcher.start()
            stack.callback(watcher.stop)
        expiry = Expiry(state)
        expiry.start()
        stack.callback(expiry.stop)
        metrics_url = stack.enter_context(_metrics(settings, state, observing.metrics.exposition))
        signals = _Signals(on_hangup=watchers)
        gc.freeze()  # all that is loaded stays: the collector need not go through it, which takes 50 ms
        overpromising.look()
        _tell(listener.address, prepared, trust, metrics_url, settings)
        if comparing:
            comparing.start()
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
    """Serve until a signal, and end as it asks; whether every request was answered in time."""
    settle_seconds = 0.0
    number = signals.wait(None)
    state.stopping = True
    if number == signal.SIGTERM:
        settle_seconds = SETTLE_SECONDS
        if settings.drain_seconds > 0:
            _log.info("SIGTERM: not ready any more, answering for another %g s", settings.drain_seconds)
            listener.drain()
            number = signals.wait(settings.drain_seconds)
            if number is not None:
                settle_seconds = 0.0  # who asks twice means it
    cause = "draining is over" if number is None else signal.Signals(number).name
    _log.info("%s: stopping, requests under way are answered for up to %d s", cause, settings.grace_seconds)
    return listener.stop(settings.grace_seconds, settle_seconds)


class _Signals:
    """SIGINT and SIGTERM in the order they come; at SIGHUP, files are looked at.

    Through a pipe that Python fills as they come: a signal just before the main thread waits, or one that the system
    gives to another thread, would else not be seen until the next one.
    """

    def __init__(self, on_hangup: Sequence[Watcher]) -> None:
        self._on_hangup = on_hangup
        self._come: deque[int] = deque()
        self._readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _noted)

    def wait(self, seconds: float | None) -> int | None:
        """The next signal; None when none came in time."""
        end = None if seconds is None else monotonic() + seconds
        poll = select.poll()
        poll.register(self._readable, select.POLLIN)
        while True:
            while self._come:
                number = self._come.popleft()
                if number != signal.SIGHUP:
                    return number
                names = ", ".join(watcher.name for watcher in self._on_hangup)
                _log.info("SIGHUP: %s", f"looking for changes of {names}" if names else "no files are watched")
                for watcher in self._on_hangup:
                    watcher.look()
            left = None if end is None else max(end - monotonic(), 0.0) * 1000
            if not poll.poll(left):
                return None
            self._come.extend(os.read(self._readable, 64))


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The pipe tells."""


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _prepared(settings: Settings) -> Prepared:
    try:
        prepared, report = prepare(Sources(settings.rules, settings.cluster, settings.declare))
    except UnusableError as error:
        raise StartError(error.diagnostics) from None
    if report:
        say(report, logging.WARNING, settings)
    return prepared


def say(text: str, level: int, settings: Settings) -> None:
    """To whoever started it by hand as it is, and as all else where lines are for machines."""
    if settings.log_format == "json":
        _log.log(level, "%s", text)
    else:
        print(text, file=sys.stderr, flush=True)


def _source(settings: Settings, prepared: Prepared) -> ClusterSource:
    """The cluster as its file says, or as the API server will."""
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
    """To the API server of the live cluster; else of the cluster that we run in, or that KUBECONFIG names.

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


def _comparing(settings: Settings, state: State, stack: ExitStack) -> "Comparing | None":
    """What sees whether the webhook configurations fit the rules, where their name is known."""
    if settings.webhook_name is None:
        return None
    from server.telemetry.drift_monitor import Comparing

    comparing = Comparing(_connection(settings), settings.webhook_name, state)
    stack.callback(comparing.stop)
    return comparing


def _adopting(source: ClusterSource) -> Callable[[RuleSet], None]:
    """Have what changed rules need to know of the cluster, or refuse them."""

    def adopt(rule_set: RuleSet) -> None:
        if not source.need(cluster_requirements(rule_set)):
            problems = "; ".join(source.problems) or "it did not come in time"
            raise UnusableError(f"what these rules need to know of the cluster cannot be read: {problems}")

    return adopt


def _adopted(comparing: "Comparing | None", overpromising: "_Overpromising") -> None:
    """Changed rules are in force, and stay for a while; those before them are forgotten."""
    overpromising.look()
    if comparing is not None:
        comparing.look_soon()
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _callers_count(settings: Settings) -> bool:
    """Return False if no request can reserve devices of a live cluster or send Events."""
    return not settings.is_live or settings.client_ca is not None or Callers(settings.reserve_for) is Callers.ALL


class _Overpromising:
    """Logs a warning when rules come into force for which devices should be reserved, and none are."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._logged = False

    def look(self) -> None:
        overpromises = self._state.overpromises
        if overpromises and not self._logged:
            _log.warning("%s", probes.OVERPROMISES)
        self._logged = overpromises


@contextmanager
def _observing(settings: Settings, state: State) -> Iterator[Observing]:
    """Metrics, and what else is wanted; Events go to the live cluster."""
    wanted = Observed(settings.decision_log, settings.events, Callers(settings.reserve_for))
    observing = Observing(wanted, state, _connection(settings) if settings.events else None)
    try:
        observing.start()
    except OSError as error:
        where = settings.decision_log
        raise StartError(f"gpu-rules serve: the decision log {where} cannot be written: {error.strerror}") from None
    try:
        yield observing
    finally:
        observing.stop()


def _reserving(source: ClusterSource) -> Observer:
    """Tell the cluster of pods that were admitted."""

    def reserve(record: AdmissionRecord) -> None:
        if record.endpoint == "validate" and record.request is not None and record.decision is not None:
            source.admitted(record.request, record.decision)

    return reserve


def _bound(at: Address) -> socket.socket:
    """A socket at the address. Only this one: no SO_REUSEPORT, so that a port in use is an error."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections take the next two over from the socket that they were made on.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_SECONDS * 1000))
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise StartError(f"gpu-rules serve: cannot listen on {at}: {error.strerror}") from None
    return listener


def _certificate(settings: Settings, state: State, show: Show, stack: ExitStack) -> tuple[str, list[Watcher]]:
    """Serve the certificate: what there is to say of it, and what sees to it that the next one is served."""
    try:
        if settings.tls_bootstrap is not None:
            return _bootstrapped(settings, settings.tls_bootstrap, state, show, stack)
        files = _tls_files(settings, stack)
        renewal = Renewal(show, state, files.certificate, files.key, settings.client_ca)
        before = signature(renewal.paths)
        renewal.first()
    except tls.TlsError as error:
        raise StartError(f"gpu-rules serve: {error}") from None
    state.certificate_from = str(files.certificate)
    said = (
        f"CA: {files.ca}" if files.ca else f"certificate: {files.certificate}, valid until {rfc3339(files.not_after)}"
    )
    return said, [Watcher(renewal.paths, before, renewal.renew, name="certificate")]


def _bootstrapped(
    settings: Settings, secret: tuple[str, str], state: State, show: Show, stack: ExitStack
) -> tuple[str, list[Watcher]]:
    """Serve what the Secret holds, once the API server can be reached. Raises TlsError."""
    from server.tls.bootstrap import Bootstrap, Place

    before = signature([settings.client_ca] if settings.client_ca else [])
    clients = Clients(show, state, settings.client_ca)
    namespace, name = secret
    service, webhooks = settings.tls_service or "", settings.webhook_name or ""
    kept_in = Place(namespace=namespace, secret=name, service=service, webhooks=webhooks)
    state.certificate_from = str(kept_in)
    bootstrap = Bootstrap(_connection(settings), kept_in, clients.serve)
    bootstrap.first()
    bootstrap.start()
    stack.callback(bootstrap.stop)
    until = "" if state.certificate_not_after is None else rfc3339(state.certificate_not_after)
    said = f"certificate: {state.certificate_from}, valid until {until}"
    return said, [Watcher(clients.paths, before, clients.renew, name="client-ca")] if clients.paths else []


def _tls_files(settings: Settings, stack: ExitStack) -> tls.TlsFiles:
    """Raises TlsError."""
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


def _tell(
    address: tuple[str, int], prepared: Prepared, trust: str, metrics_url: str | None, settings: Settings
) -> None:
    """Say what runs where. From now on requests are answered."""
    url = f"https://{Address(*address)}"
    rules = ", ".join(f"{count} {kind}" for kind, count in prepared.rules.rules_by_kind.items())
    parts = (
        f"gpu-rules serves at {url}",
        f"{rules} from {prepared.rules_from}",
        f"cluster: {prepared.cluster_from}",
        trust,
        *([f"metrics at {metrics_url}"] if metrics_url else []),
    )
    say("; ".join(parts), logging.INFO, settings)
    if settings.ready_fd is not None:
        with os.fdopen(settings.ready_fd, "w") as file:
            file.write(f"{url}\n")


def _logging(form: str) -> dict[str, Any]:
    """One format, `line` or `json`, on stderr, for libraries and for us."""
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
