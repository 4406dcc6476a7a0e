"""The server as a process: rules read and compiled, an address bound, requests answered until a signal ends it.

One process and no supervisor: state exists once, and the parent process sees its end, even by a crash.
"""

import ctypes
import gc
import logging
import logging.config
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rules_engine.rules.rule_set.rule_set import cluster_requirements
from rules_engine.server.cluster.source import ClusterSource, FixedCluster, Live
from rules_engine.server.http.admission import AdmissionEndpoint
from rules_engine.server.http.admission_record import Callers
from rules_engine.server.http.app import Exposition, create_app, create_metrics_app
from rules_engine.server.http.limits import CONNECTIONS, MMAP_THRESHOLD_BYTES, PLAIN_CONNECTIONS
from rules_engine.server.http.listener import Listener
from rules_engine.server.http.sockets import bind_socket, share_of_connections
from rules_engine.server.option_types import Address
from rules_engine.server.rules.folder_watch import Watcher, files_signature
from rules_engine.server.rules.reload import Reloader
from rules_engine.server.rules.sources import PreparedServer, UnusableError, prepare_sources
from rules_engine.server.settings import ServerSettings
from rules_engine.server.signals import Signals, exit_on_signals, ignore_signals
from rules_engine.server.state import ServerState
from rules_engine.server.telemetry.observers import OverpromiseWarning, Telemetry
from rules_engine.server.telemetry.process_log import logging_config
from rules_engine.server.timing import add_jitter, rfc3339
from rules_engine.server.tls import identity as tls
from rules_engine.server.tls.renewal import ClientCaRenewal, ExpiryMonitor, Install, Renewal

if TYPE_CHECKING:
    from rules_engine.server.cluster.connection import Connection
    from rules_engine.server.offers import OffersWriter
    from rules_engine.server.rules.kept_rules import KeptRules
    from rules_engine.server.telemetry.drift_monitor import DriftMonitor

SETTLE_SECONDS = 0.5
"""Time at shutdown for pending handshakes and their first requests."""

SWITCH_SECONDS = 0.0002
"""Interpreter switch interval: a computing thread, such as one that decides a large pod, gives way to the event loop
after this. A response gives way to the thread several times, whenever it reads or writes: with Python's default of 5 ms
it would take as much each time."""

_M_MMAP_THRESHOLD = -3
"""Parameter of mallopt (malloc.h of glibc)."""

_log = logging.getLogger(__name__)


class StartError(Exception):
    """A failure to start, with the message to print."""


def serve(settings: ServerSettings) -> None:
    """Serve until SIGINT or SIGTERM. Raises StartError, before anything is served."""
    exit_on_signals()
    logging.config.dictConfig(logging_config(settings.log_format))
    sys.setswitchinterval(SWITCH_SECONDS)
    with suppress(AttributeError):  # musl has none, and needs none
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
    rule_files = files_signature(settings.rules)
    kept_rules = _kept_rules(settings)
    prepared = _read_sources(settings, kept_rules)
    with ExitStack() as stack:
        bound = stack.enter_context(_bind_address(settings.listen))
        source = _cluster_source(settings, prepared)
        source.start()
        stack.callback(source.stop)
        served = replace(prepared.rules, kept=prepared.refused is not None, since=datetime.now(UTC))
        state = ServerState(served, source)
        state.audit, state.namespaces = settings.mode == "Audit", settings.namespaces
        state.last_reload, state.reloads_refused = prepared.refused, int(served.kept)
        # Some request can reserve devices and send Events; a fixed cluster needs no reservations.
        reserves_for_all = Callers(settings.reserve_for) is Callers.ALL
        state.reserves = not settings.is_live or settings.client_ca is not None or reserves_for_all
        if settings.events and not state.reserves and not state.audit:
            _log.warning("no Kubernetes Events are sent: set --client-ca, or --reserve-for all")
        telemetry = stack.enter_context(_run_telemetry(settings, state))
        endpoint = AdmissionEndpoint(state, callers=Callers(settings.reserve_for), observers=telemetry.observers)
        listener = _create_listener(settings, state, endpoint, bound)
        trust, watchers = _serve_certificate(
            settings, state, lambda identity: listener.serve(tls.server_context(identity)), stack
        )
        drift_monitor = _drift_monitor(settings, state, stack)
        offers = _offers_writer(settings, state, stack)
        overpromises = OverpromiseWarning(state)
        reloader = Reloader(
            settings.rules,
            state,
            test=settings.test_on_reload,
            after_adoption=lambda: _after_adoption(drift_monitor, overpromises),
        )
        if kept_rules:
            keeper = kept_rules.follow(state)
            keeper.start()
            stack.callback(keeper.stop)
        if settings.rules:
            watchers.append(Watcher(settings.rules, rule_files, reloader.reload, name="rules"))
        for watcher in watchers:
            watcher.start()
            stack.callback(watcher.stop)
        expiry = ExpiryMonitor(state)
        expiry.start()
        stack.callback(expiry.stop)
        metrics_url = stack.enter_context(_run_metrics(settings, state, telemetry.metrics.exposition))
        signals = Signals(on_hangup=watchers)
        gc.freeze()  # loaded objects stay: traversing them takes the collector 50 ms
        overpromises.check()
        _announce_start(listener.address, prepared, trust, metrics_url, settings)
        if drift_monitor:
            drift_monitor.start()
        if offers:
            offers.start()
        all_answered = _serve_until_signal(signals, state, listener, settings)
    ignore_signals()
    if not all_answered or state.in_flight:
        # Exit would wait for threads whose clients have disconnected.
        sys.stderr.flush()
        os._exit(0)


def _create_listener(
    settings: ServerSettings, state: ServerState, endpoint: AdmissionEndpoint, bound: socket.socket
) -> Listener:
    """Create the admission listener; it does not accept connections yet."""
    listener = Listener(
        "admission",
        bound,
        create_app(state, endpoint),
        connections=share_of_connections(CONNECTIONS),
        receive_seconds=settings.receive_seconds,
        request_seconds=settings.request_seconds,
        max_waiting=settings.max_concurrent,
    )
    state.listeners = (listener,)
    state.last_heartbeat = lambda: listener.last_heartbeat
    return listener


def _serve_until_signal(signals: Signals, state: ServerState, listener: Listener, settings: ServerSettings) -> bool:
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


def _kept_rules(settings: ServerSettings) -> "KeptRules | None":
    if settings.keep_rules is None:
        return None
    from rules_engine.server.rules.kept_rules import KeptRules

    return KeptRules(_create_connection(settings), *settings.keep_rules)


def _read_sources(settings: ServerSettings, kept_rules: "KeptRules | None") -> PreparedServer:
    try:
        load_kept = kept_rules.load if kept_rules else None
        prepared, report = prepare_sources(settings.rules, settings.cluster, settings.declare, load_kept)
    except UnusableError as error:
        raise StartError(error.diagnostics) from None
    if report:
        print_or_log(report, logging.WARNING, settings)
    return prepared


def print_or_log(text: str, level: int, settings: ServerSettings) -> None:
    """Print a text as it is for a person, or log it if the log is for machines."""
    if settings.log_format == "json":
        _log.log(level, "%s", text)
    else:
        print(text, file=sys.stderr, flush=True)


def _cluster_source(settings: ServerSettings, prepared: PreparedServer) -> ClusterSource:
    """Return the cluster of a file, or the live one."""
    if not settings.is_live:
        return FixedCluster(prepared.cluster)
    from rules_engine.server.cluster.live import LiveCluster

    return LiveCluster(
        _create_connection(settings),
        cluster_requirements(prepared.rules.rule_set),
        max_staleness_seconds=settings.max_staleness_seconds,
        declared=prepared.cluster.nodes,
    )


def _create_connection(settings: ServerSettings) -> "Connection":
    """Return a client of the live cluster; without one, of the cluster of this pod, or of KUBECONFIG.

    Raises StartError.
    """
    from rules_engine.server.cluster.connection import (
        SERVICE_ACCOUNT,
        Connection,
        in_cluster,
        load_kubeconfig,
        missing_in_cluster,
    )

    is_in_cluster = settings.cluster is Live.IN_CLUSTER
    missing = missing_in_cluster() if is_in_cluster else None
    if missing is not None:
        hint = "--cluster kubeconfig reads a cluster from outside of it"
        raise StartError(f"gpu-rules serve: --cluster in-cluster: {missing}; {hint}")
    as_pod = is_in_cluster or (settings.cluster is not Live.KUBECONFIG and SERVICE_ACCOUNT.exists())
    kubeconfig = partial(load_kubeconfig, paths=str(settings.kubeconfig or ""), context=settings.context)
    return Connection(in_cluster() if as_pod else kubeconfig)


def _drift_monitor(settings: ServerSettings, state: ServerState, stack: ExitStack) -> "DriftMonitor | None":
    """Return the drift monitor of the webhook configurations, or None if their name is unknown."""
    if settings.webhook_name is None:
        return None
    from rules_engine.server.telemetry.drift_monitor import DriftMonitor

    monitor = DriftMonitor(_create_connection(settings), settings.webhook_name, state)
    stack.callback(monitor.stop)
    return monitor


def _offers_writer(settings: ServerSettings, state: ServerState, stack: ExitStack) -> "OffersWriter | None":
    if settings.offers is None:
        return None
    from rules_engine.server.offers import OffersWriter

    writer = OffersWriter(_create_connection(settings), settings.offers, state)
    stack.callback(writer.stop)
    return writer


def _after_adoption(drift_monitor: "DriftMonitor | None", overpromises: OverpromiseWarning) -> None:
    """Follow up on changed active rules: check, compare, and free the memory of the previous ones."""
    overpromises.check()
    if drift_monitor is not None:
        drift_monitor.compare_soon()
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@contextmanager
def _run_telemetry(settings: ServerSettings, state: ServerState) -> Iterator[Telemetry]:
    """Run telemetry as configured. Raises StartError."""
    telemetry = Telemetry(
        state,
        settings.decision_log,
        _create_connection(settings) if settings.events else None,
        messages=settings.decision_log_messages,
        requests=settings.decision_log_requests,
        callers=Callers(settings.reserve_for),
    )
    try:
        telemetry.start()
    except OSError as error:
        where = settings.decision_log
        raise StartError(f"gpu-rules serve: the decision log {where} cannot be written: {error.strerror}") from None
    try:
        yield telemetry
    finally:
        telemetry.stop()


def _bind_address(at: Address) -> socket.socket:
    try:
        return bind_socket(at.host, at.port)
    except OSError as error:
        raise StartError(f"gpu-rules serve: cannot listen on {at}: {error.strerror}") from None


def _serve_certificate(
    settings: ServerSettings, state: ServerState, install: Install, stack: ExitStack
) -> tuple[str, list[Watcher]]:
    """Serve the certificate; return its description, and the watchers that renew it. Raises StartError."""
    try:
        if settings.tls_cert is not None and settings.tls_key is not None:
            files = tls.TlsFiles(certificate=settings.tls_cert, key=settings.tls_key)
        elif settings.tls_dir is not None:
            files = tls.localhost_files(settings.tls_dir, now=datetime.now(UTC))
        else:
            return _serve_without_files(settings, state, install, stack)
        renewal = Renewal(install, state, files.certificate, files.key, settings.client_ca)
        before = files_signature(renewal.paths)
        description = renewal.serve_first()
    except tls.TlsError as error:
        raise StartError(f"gpu-rules serve: {error}") from None
    state.certificate_from = str(files.certificate)
    trust = f"CA: {files.ca}" if files.ca else f"certificate: {description}"
    return trust, [Watcher(renewal.paths, before, renewal.renew, name="certificate")]


def _serve_without_files(
    settings: ServerSettings, state: ServerState, install: Install, stack: ExitStack
) -> tuple[str, list[Watcher]]:
    """Serve the certificate of a Secret or, by default, one for localhost. Raises TlsError."""
    before = files_signature([settings.client_ca] if settings.client_ca else [])
    clients = ClientCaRenewal(install, state, settings.client_ca)
    if settings.tls_bootstrap is not None:
        description = _serve_bootstrapped(settings, settings.tls_bootstrap, state, clients, stack)
    else:
        # Its key is in no file, which a killed process would leave.
        issued = tls.issue_certificate("localhost", tls.LOCAL_NAMES, now=datetime.now(UTC), days=tls.VALID_DAYS)
        clients.serve(issued)
        ca = Path(stack.enter_context(TemporaryDirectory(prefix="gpu-rules-tls-"))) / tls.CA_FILE
        ca.write_bytes(issued.ca)
        state.certificate_from = "the certificate for localhost"
        description = f"CA: {ca}"
    return description, [Watcher(clients.paths, before, clients.renew, name="client-ca")] if clients.paths else []


def _serve_bootstrapped(
    settings: ServerSettings, secret: tuple[str, str], state: ServerState, clients: ClientCaRenewal, stack: ExitStack
) -> str:
    """Serve the certificate of the Secret, once the API server can be reached. Raises TlsError."""
    from rules_engine.server.tls.bootstrap import PERIOD_SECONDS, Bootstrap, BootstrapNames

    namespace, name = secret
    service, webhooks = settings.tls_service or "", settings.webhook_name or ""
    place = BootstrapNames(namespace=namespace, secret=name, service=service, webhooks=webhooks)
    state.certificate_from = str(place)
    bootstrap = Bootstrap(_create_connection(settings), place, clients.serve)
    bootstrap.wait_reconciled()
    bootstrap.start(add_jitter(PERIOD_SECONDS))
    stack.callback(bootstrap.stop)
    until = "" if state.certificate_not_after is None else rfc3339(state.certificate_not_after)
    return f"certificate: {state.certificate_from}, valid until {until}"


@contextmanager
def _run_metrics(settings: ServerSettings, state: ServerState, exposition: Exposition) -> Iterator[str | None]:
    """Run the metrics listener; yield its URL, or None if it is disabled."""
    if settings.metrics_listen is None:
        yield None
        return
    with _bind_address(settings.metrics_listen) as bound:
        listener = Listener(
            "metrics", bound, create_metrics_app(state, exposition), connections=share_of_connections(PLAIN_CONNECTIONS)
        )
        state.listeners = (*state.listeners, listener)
        listener.serve()
        try:
            yield f"http://{Address(*listener.address)}"
        finally:
            listener.stop(0)


def _announce_start(
    address: tuple[str, int], prepared: PreparedServer, trust: str, metrics_url: str | None, settings: ServerSettings
) -> None:
    """Print the address, the rules and the cluster. From now on requests are answered."""
    url = f"https://{Address(*address)}"
    rules = ", ".join(f"{count} {kind}" for kind, count in prepared.rules.rules_by_kind.items())
    parts = (
        f"gpu-rules serves at {url}",
        f"{rules} from {prepared.rules_from}",
        f"mode: {settings.mode}{', nothing takes effect' if settings.mode == 'Audit' else ''}",
        *([f"namespaces: {', '.join(settings.namespaces)}"] if settings.namespaces else []),
        f"cluster: {prepared.cluster_from}",
        trust,
        *([f"metrics at {metrics_url}"] if metrics_url else []),
    )
    print_or_log("; ".join(parts), logging.INFO, settings)
    if settings.ready_fd is not None:
        with os.fdopen(settings.ready_fd, "w") as file:
            file.write(f"{url}\n")
