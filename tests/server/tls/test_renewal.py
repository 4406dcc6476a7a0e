"""Renewal of certificates while the server runs, and client certificates."""

import gc
import http.client
import os
import re
import signal
import socket
import ssl
import weakref
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rules_engine.server.http.limits import SMALL_BYTES
from rules_engine.server.http.listener import Listener
from rules_engine.server.serve import _serve_bootstrapped
from rules_engine.server.settings import ServerSettings
from rules_engine.server.timing import rfc3339
from rules_engine.server.tls import identity as tls
from rules_engine.server.tls.identity import localhost_files, read_identity
from rules_engine.server.tls.renewal import ClientCaRenewal, ExpiryMonitor, Install, Renewal
from tests.support.apiserver import kubeconfig
from tests.support.certificates import Certified, certified
from tests.support.listener import Reachable, Recorder, reachable, reply
from tests.support.objects import Objects, objects
from tests.support.operating import METRICS, Load, Mounted, fetched, metrics_url, saying, until, until_ended
from tests.support.server import PATIENCE_SECONDS, Running, certificate_files, started
from tests.support.states import state_of

NOW = datetime.now(UTC)

MOVED_CLOCK = "tests.support.moved_clock"

CHANGES = 6
"""Number of certificates in a row under load."""


def pair(folder: Path, begin: datetime = NOW, end: datetime = NOW + timedelta(days=9)) -> dict[str, bytes]:
    """Issue a certificate and its key, by their names in a Secret."""
    certificate, key = certificate_files(folder, begin, end)
    return {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes()}


def trusting(*pairs: dict[str, bytes]) -> ssl.SSLContext:
    return ssl.create_default_context(cadata="".join(pair["tls.crt"].decode() for pair in pairs))


def served_certificate(running: Running | Reachable) -> bytes:
    """Return the certificate served on a new connection, DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_SECONDS)
    with plain, context.wrap_socket(plain) as secure:
        certificate = secure.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def der(pair: dict[str, bytes]) -> bytes:
    return x509.load_pem_x509_certificate(pair["tls.crt"]).public_bytes(Encoding.DER)


HEAD = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def end(pair: dict[str, bytes]) -> datetime:
    return x509.load_pem_x509_certificate(pair["tls.crt"]).not_valid_after_utc


def installing(listener: Listener) -> Install:
    """Return a function that installs an identity in a listener."""
    return lambda identity: listener.serve(tls.server_context(identity))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def rejected_pair() -> dict[str, bytes]:
    """Issue a valid pair that clients reject because of an unknown critical extension."""
    name, key = x509.Name([]), ec.generate_private_key(ec.SECP256R1())
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4.5"), b"\x05\x00")
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(unknown, critical=True)
    builder = builder.not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {"tls.crt": builder.sign(key, SHA256()).public_bytes(Encoding.PEM), "tls.key": private}


def chain() -> tuple[str, dict[str, bytes]]:
    """Issue a root CA, and a pair signed by an intermediate CA."""
    serial = x509.random_serial_number()
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{n} {serial}"[:64])]) for n in range(3)]
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in names]
    issued = []
    for number, (name, key) in enumerate(zip(names, keys, strict=True)):
        by = max(number - 1, 0)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(names[by]).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=number < 2, path_length=None), critical=True)
        if number == 2:
            local = x509.SubjectAlternativeName([x509.DNSName("localhost")])
            builder = builder.add_extension(local, critical=False)
        issued.append(builder.sign(keys[by], SHA256()).public_bytes(Encoding.PEM))
    root, intermediate, leaf = issued
    private = keys[-1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return root.decode(), {"tls.crt": leaf + intermediate, "tls.key": private}


def client_files(folder: Path) -> tuple[Path, Path, Path]:
    """Write a CA, and a client's certificate and key signed by it."""
    folder.mkdir()
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
    issued = []
    for name, public, ca in ((ca_name, ca_key.public_key(), True), (x509.Name([]), key.public_key(), False)):
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(ca_name).public_key(public)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        if not ca:
            names = x509.SubjectAlternativeName([x509.DNSName("kube-apiserver")])
            builder = builder.add_extension(names, critical=True)
            builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        issued.append(builder.sign(ca_key, SHA256()).public_bytes(Encoding.PEM))
    files = folder / "ca.crt", folder / "client.crt", folder / "client.key"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for path, content in zip(files, (*issued, private), strict=True):
        path.write_bytes(content)
    return files


def set_clock(folder: Path, offset: timedelta) -> str:
    """Set the clock of servers that run with MOVED_CLOCK; return its file."""
    new, clock = folder / "new-clock", folder / "clock"
    new.write_text(str(offset.total_seconds()))
    new.replace(clock)
    return str(clock)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(saying("no"))
    return path


def arguments(folder: Path, rules: Path) -> list[str | Path]:
    return ["--rules", rules, "--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key", *METRICS]


def test_certificates_swapped_under_load_fail_no_request(tmp_path: Path, rules: Path) -> None:
    pairs = [pair(tmp_path / f"pair-{number}") for number in range(CHANGES + 1)]
    mounted = Mounted(tmp_path / "secret", pairs[0])
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:
        load = Load(running.port, trusting(*pairs))
        idle = load.connect()
        message, closes = load.ask(idle)
        assert not closes
        with load.running(kept=4, fresh=4):
            for new in pairs[1:]:
                # A handshake may take ten seconds, so there is one such connection for each certificate.
                half = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_SECONDS)
                mounted.swap(new)
                until(lambda new=new: served_certificate(running) == der(new), "the new certificate")  # type: ignore[misc]
                # A connection without a handshake is still open.
                with half, trusting(*pairs).wrap_socket(half, server_hostname="localhost") as secure:
                    secure.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert secure.recv(100).startswith(b"HTTP/1.1 200 ")
                load.wait_for(message)
        assert not load.failures
        assert set(load.answers) == {message}
        # A connection that stayed open gets one more response, with Connection: close.
        assert load.ask(idle) == (message, True)


def test_requests_pending_during_a_renewal_are_answered(tmp_path: Path) -> None:
    begun, decided = Event(), Event()
    large = b"1" * (SMALL_BYTES + 1)  # answered in the thread

    def application(environ: Any, start_response: Any) -> list[bytes]:
        if environ["wsgi.input"].read() == large:
            begun.set()
            decided.wait(PATIENCE_SECONDS)
        start_response("200 OK", [])
        return [b"decided"]

    files = localhost_files(tmp_path / "two", now=NOW)
    with reachable(tmp_path, application) as server:
        before = served_certificate(server)
        deciding = server.open(HEAD % len(large) + large)
        receiving = server.open(HEAD % 100 + b" " * 50)
        with closing(deciding), closing(receiving):
            assert begun.wait(PATIENCE_SECONDS)
            installing(server.listener)(read_identity(files.certificate, files.key, now=NOW))
            assert served_certificate(server) != before
            decided.set()
            receiving.sendall(b" " * 50)
            for connection in (deciding, receiving):
                answer = reply(connection)
                assert (answer.status, answer.body, answer.ends) == (200, b"decided", True)


def test_invalid_pairs_are_logged_and_the_previous_one_stays(tmp_path: Path, rules: Path) -> None:
    first, good = pair(tmp_path / "first"), pair(tmp_path / "good")
    refused = {
        "no key": ({"tls.crt": good["tls.crt"]}, "tls.key"),
        "no certificate": ({"tls.key": good["tls.key"]}, "tls.crt"),
        "another key": ({"tls.crt": good["tls.crt"], "tls.key": first["tls.key"]}, "key"),
        "expired": (pair(tmp_path / "old", NOW - timedelta(days=9), NOW - timedelta(days=1)), "expired"),
        "not PEM": ({"tls.crt": b"nonsense", "tls.key": good["tls.key"]}, "PEM"),
        "clients refuse it": (
            rejected_pair(),
            "the certificate cannot be served: clients refuse it: unhandled critical extension",
        ),
    }
    mounted = Mounted(tmp_path / "secret", first)
    served, other = first, good
    prefix = f"changed certificate refused, the previous one stays in use: {mounted.folder}"
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:
        for number, (name, (bad, reason)) in enumerate(refused.items(), 1):
            mounted.swap(bad)
            until(lambda number=number: len(refusals(running)) == number, name)  # type: ignore[misc]
            line = refusals(running)[-1]
            assert prefix in line
            assert reason in line
            assert served_certificate(running) == der(served)
            served, other = other, served
            mounted.swap(served)
            until(lambda served=served: served_certificate(running) == der(served), "the good pair")  # type: ignore[misc]
        line = f"new certificate in use: {mounted.folder / 'tls.crt'}, valid until {rfc3339(end(good))}\n"
        until(lambda: line in running.logged(), "the line that says so")


def refusals(running: Running) -> list[str]:
    return [line for line in running.logged().splitlines() if "changed certificate refused" in line]


def test_the_expiry_metric_describes_the_serving_certificate(tmp_path: Path, rules: Path) -> None:
    first, second = (pair(tmp_path / f"pair-{days}", end=NOW + timedelta(days=days)) for days in (2, 3))
    mounted = Mounted(tmp_path / "secret", first)
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:

        def metrics() -> str:
            return fetched(f"{metrics_url(running)}/metrics")[1]

        def expiry() -> datetime:
            match = re.search(r"^gpu_rules_certificate_expiry_timestamp_seconds (\S+)$", metrics(), re.MULTILINE)
            assert match
            return datetime.fromtimestamp(float(match[1]), UTC)

        assert expiry() == end(first)
        mounted.swap({**second, "tls.key": first["tls.key"]})
        until(lambda: "gpu_rules_certificates_refused_total 1.0" in metrics(), "the refusal")
        assert expiry() == end(first)
        mounted.swap(second)
        until(lambda: served_certificate(running) == der(second), "the second pair")
        until(lambda: expiry() == end(second), "its expiry")


def test_a_pair_not_yet_valid_is_served_once_it_is(tmp_path: Path, rules: Path) -> None:
    clock = set_clock(tmp_path, timedelta(days=-1))
    mounted = Mounted(tmp_path / "secret", pair(tmp_path / "first", NOW - timedelta(days=9)))
    with started(tmp_path, *arguments(mounted.folder, rules), module=MOVED_CLOCK, CLOCK=clock) as running:
        soon = pair(tmp_path / "soon", NOW - timedelta(hours=1))
        mounted.swap(soon)
        until(lambda: "is not valid before" in running.logged(), "the refusal")
        set_clock(tmp_path, timedelta(0))
        running.process.send_signal(signal.SIGHUP)
        until(lambda: served_certificate(running) == der(soon), "the pair")
        assert running.logged().count("changed certificate refused") == 1
        assert "gpu_rules_certificates_refused_total 1.0" in fetched(f"{metrics_url(running)}/metrics")[1]


def test_the_whole_chain_is_sent_so_its_root_is_enough(tmp_path: Path, rules: Path) -> None:
    root, pair = chain()
    mounted = Mounted(tmp_path / "secret", pair)
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:
        assert is_answered(running.port, root, [])
        root, pair = chain()
        mounted.swap(pair)
        until(lambda: served_certificate(running) == der(pair), "the new certificate")
        assert is_answered(running.port, root, [])


def test_only_clients_of_client_ca_are_answered(tmp_path: Path, rules: Path) -> None:
    own = pair(tmp_path / "own")
    mounted = Mounted(tmp_path / "secret", own)
    ca, *client = client_files(tmp_path / "known")
    other_ca, *stranger = client_files(tmp_path / "stranger")
    with started(tmp_path, *arguments(mounted.folder, rules), "--client-ca", ca) as running:
        assert is_answered(running.port, own["tls.crt"].decode(), client)
        assert not is_answered(running.port, own["tls.crt"].decode(), [])
        assert not is_answered(running.port, own["tls.crt"].decode(), stranger)
        assert fetched(f"{metrics_url(running)}/readyz")[0] == 200
        shown_metrics = fetched(f"{metrics_url(running)}/metrics")[1]
        for reason in ("no-client-certificate", "client-certificate-refused"):
            assert f'handshakes_failed_total{{listener="admission",reason="{reason}"}} 1.0' in shown_metrics
            line = f"TLS handshake failed: {reason} (1 in all, last by 127.0.0.1)"
            until(lambda line=line: line in running.logged(), "the line")  # type: ignore[misc]
        ca.write_bytes(other_ca.read_bytes())
        until(lambda: is_answered(running.port, own["tls.crt"].decode(), stranger), "the new CA")
        assert not is_answered(running.port, own["tls.crt"].decode(), client)


SECRET = "/api/v1/namespaces/gpu/secrets/tls"
WEBHOOKS = [
    f"/apis/admissionregistration.k8s.io/v1/{kind}/rules"
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
]


@contextmanager
def bootstrapping() -> Iterator[Objects]:
    """Run an API server with the objects of the chart: an empty Secret and two configurations."""
    with objects() as kept:
        kept.put(SECRET, {"metadata": {"name": "tls"}})
        for path in WEBHOOKS:
            kept.put(path, {"metadata": {"name": "rules"}, "webhooks": [{"name": "a", "clientConfig": {}}]})
        yield kept


def trusted(kept: Objects) -> set[str]:
    """Return the CAs that the API server trusts, PEM."""
    hooks = [hook for path in WEBHOOKS for hook in kept.get(path)["webhooks"]]
    return {b64decode(hook["clientConfig"].get("caBundle", "")).decode() for hook in hooks}


def test_a_bootstrapped_certificate_is_reconciled_periodically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rules_engine.server.tls.bootstrap.PERIOD_SECONDS", 0.05)
    # Without an end, a failure that stays would hold the tests up for good, and its message would not be seen.
    monkeypatch.setattr("rules_engine.server.tls.bootstrap.sleep", lambda _seconds: pytest.fail(caplog.text))
    state = state_of()
    with bootstrapping() as kept, reachable(tmp_path, Recorder()) as server, ExitStack() as stack:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, kept.url)))
        stack.callback(until_ended, "bootstrap")
        settings = ServerSettings(tls_service="localhost", webhook_name="rules")
        clients = ClientCaRenewal(installing(server.listener), state, None)
        _serve_bootstrapped(settings, ("gpu", "tls"), state, clients, stack)
        first = served_certificate(server)
        # Any step that is due is taken; here, the certificate is lost.
        kept.put(SECRET, {"metadata": {"name": "tls"}})
        until(lambda: served_certificate(server) != first, "another certificate")
        own = b64decode(kept.get(SECRET)["data"]["ca.crt"]).decode()
        until(lambda: trusted(kept) == {own}, "its CA where it is to be trusted")


def test_client_cas_are_reread_with_a_bootstrapped_certificate(tmp_path: Path, rules: Path) -> None:
    ca, *client = client_files(tmp_path / "known")
    other_ca, *stranger = client_files(tmp_path / "stranger")
    mounted = Mounted(tmp_path / "client-ca", {"ca.crt": ca.read_bytes()})
    with bootstrapping() as kept:
        config = kubeconfig(tmp_path, kept.url)
        bootstrap = ("--tls-bootstrap", "gpu/tls", "--tls-service", "localhost", "--webhook-name", "rules")
        arguments = ("--rules", rules, "--client-ca", mounted.folder / "ca.crt", *bootstrap, *METRICS)
        with started(tmp_path, *arguments, KUBECONFIG=str(config)) as running:
            own = b64decode(kept.get(SECRET)["data"]["ca.crt"]).decode()
            assert trusted(kept) == {own}
            assert is_answered(running.port, own, client)
            assert not is_answered(running.port, own, stranger)
            mounted.swap({"ca.crt": b"nonsense"})
            until(lambda: "changed client CAs refused" in running.logged(), "the refusal")
            assert is_answered(running.port, own, client)
            mounted.swap({"ca.crt": ca.read_bytes()})
            again = f"the client CA file matches the CAs in use again: {mounted.folder / 'ca.crt'}\n"
            until(lambda: again in running.logged(), "the line that says so")
            mounted.swap({"ca.crt": other_ca.read_bytes()})
            until(lambda: is_answered(running.port, own, stranger), "the new CA")
            assert not is_answered(running.port, own, client)
            assert "gpu_rules_certificates_refused_total 1.0" in fetched(f"{metrics_url(running)}/metrics")[1]


def test_a_renewed_certificate_requires_the_latest_client_cas(tmp_path: Path) -> None:
    ca, *client = client_files(tmp_path / "known")
    other_ca, *stranger = client_files(tmp_path / "stranger")
    one, two = (localhost_files(tmp_path / name, now=NOW) for name in ("one", "two"))
    state = state_of()
    with reachable(tmp_path, application) as server:
        clients = ClientCaRenewal(installing(server.listener), state, ca)
        assert not clients.renew(), "nothing is served yet"
        clients.serve(read_identity(one.certificate, one.key, now=NOW))
        assert clients.renew(), "nothing has changed"
        ca.write_bytes(other_ca.read_bytes())
        assert clients.renew()
        clients.serve(read_identity(two.certificate, two.key, now=NOW))
        assert two.ca
        assert is_answered(server.port, two.ca.read_text(), stranger)
        assert not is_answered(server.port, two.ca.read_text(), client)
    assert state.certificate_not_after == read_identity(two.certificate, two.key, now=NOW).not_after


def application(_environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b""]


def test_without_client_cas_no_client_certificate_is_required(tmp_path: Path) -> None:
    files = localhost_files(tmp_path / "one", now=NOW)
    assert files.ca
    with reachable(tmp_path, application) as server:
        clients = ClientCaRenewal(installing(server.listener), state_of(), None)
        clients.serve(read_identity(files.certificate, files.key, now=NOW))
        assert clients.paths == ()
        assert not clients.renew()
        assert is_answered(server.port, files.ca.read_text(), [])


def test_a_renewal_during_draining_does_not_keep_connections(tmp_path: Path) -> None:
    one, two = (localhost_files(tmp_path / name, now=NOW) for name in ("one", "two"))
    with reachable(tmp_path, Recorder()) as server:
        install = installing(server.listener)
        install(read_identity(one.certificate, one.key, now=NOW))
        server.listener.drain()
        install(read_identity(two.certificate, two.key, now=NOW))
        assert two.ca
        anew = replace(server, context=ssl.create_default_context(cafile=str(two.ca)))
        assert anew.ask("GET", "/").ends


def is_answered(port: int, trusted: str, files: list[Path]) -> bool:
    """Return True if a client with these CAs, and a certificate and key or none, gets a response."""
    context = ssl.create_default_context(cadata=trusted)
    if files:
        context.load_cert_chain(files[0], files[1])
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected):
        return False
    finally:
        connection.close()


def test_a_refused_pair_is_logged_and_counted_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rules_engine.server")
    state = state_of()
    installed: list[tls.Identity] = []
    good = pair(tmp_path)
    files = tmp_path / "given.crt", tmp_path / "given.key"
    renewal = Renewal(installed.append, state, *files, None)
    assert renewal.paths == files
    renewal.serve_first()
    first = installed[0]
    for count in range(2):
        assert renewal.renew(), "nothing has changed"
        assert caplog.text.count("the certificate files match the certificate in use again") == count
        files[0].write_bytes(b"nonsense")
        assert not renewal.renew()
        assert not renewal.renew()
        files[0].write_bytes(good["tls.crt"])
    assert installed == [first]
    assert state.certificates_refused == 2
    assert caplog.text.count("changed certificate refused, the previous one stays in use") == 2
    assert renewal.renew()
    again = (
        f"the certificate files match the certificate in use again: {files[0]}, valid until {rfc3339(first.not_after)}"
    )
    assert caplog.messages[-1] == again


def test_only_changes_of_certificate_and_client_cas_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rules_engine.server")
    good = pair(tmp_path)
    (ca, *_), (other, *_) = client_files(tmp_path / "known"), client_files(tmp_path / "other")
    files = tmp_path / "given.crt", tmp_path / "given.key"
    renewal = Renewal(lambda _: None, state_of(), *files, ca)
    renewal.serve_first()
    ca.write_bytes(other.read_bytes())
    assert renewal.renew()
    files[0].write_bytes(good["tls.crt"] + b"\n")
    assert renewal.renew()
    assert caplog.messages == [
        f"new client CAs in use: {ca}",
        f"new certificate in use: {files[0]}, valid until {rfc3339(end(good))}",
    ]


def test_idle_connections_of_an_old_certificate_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.IDLE_SECONDS", 0.1)
    own = certified("own")
    client = ssl.create_default_context(cadata=own.certificate.decode())
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    contexts: list[weakref.ref[ssl.SSLContext]] = []
    open_files: list[int] = []
    with reachable(tmp_path, Recorder()) as server:
        server = replace(server, context=client)
        for count in (1, 20):  # the first opens permanent files
            with ExitStack() as stack:
                idle = []
                for _ in range(count):
                    context = tls.server_context(own.identity())
                    contexts.append(weakref.ref(context))
                    server.listener.serve(context)
                    idle.append(stack.enter_context(closing(server.open(HEAD % 0))))
                    assert reply(idle[-1]).status == 200
                for connection in idle:
                    assert connection.recv(1) == b""
            until(lambda: not server.listener.counts.open_connections, "their end")
            open_files.append(descriptors())
        until(lambda: descriptors() <= open_files[0], "their descriptors")
        del context
        until(lambda: gc.collect() >= 0 and not any(one() for one in contexts[:-1]), "the end of their contexts")
        assert contexts[-1]() is not None


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@dataclass(frozen=True, slots=True)
class Resuming:
    """Client that reuses its TLS session on the next connection."""

    server: Reachable
    context: ssl.SSLContext

    def ask(self, session: ssl.SSLSession | None = None) -> tuple[ssl.SSLSession | None, bool, bytes | None]:
        """Send a request; return the new session, True if the previous one was resumed, and the certificate."""
        plain = socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE_SECONDS)
        with plain, self.context.wrap_socket(plain, server_hostname="localhost", session=session) as secure:
            secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert reply(secure).status == 200
            return secure.session, bool(secure.session_reused), secure.getpeercert(binary_form=True)


@contextmanager
def resuming(folder: Path, version: ssl.TLSVersion, *trusted: Certified) -> Iterator[Resuming]:
    context = ssl.create_default_context(cadata="".join(one.certificate.decode() for one in trusted))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.minimum_version = context.maximum_version = version
    with reachable(folder, Recorder()) as server:
        yield Resuming(server, context)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_resumed_while_the_certificate_stays(tmp_path: Path, version: ssl.TLSVersion) -> None:
    own = certified("own")
    with resuming(tmp_path, version, own) as client:
        client.server.listener.serve(tls.server_context(own.identity()))
        session, resumed, _ = client.ask()
        assert not resumed
        _, resumed, _ = client.ask(session)
        assert resumed


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("changed", ["another certificate", "the same again", "another and back"])
def test_no_session_is_resumed_over_a_change_of_certificate(
    tmp_path: Path, version: ssl.TLSVersion, changed: str
) -> None:
    one, two = certified("one"), certified("two")
    then = {"another certificate": [two], "the same again": [one], "another and back": [two, one]}[changed]
    with resuming(tmp_path, version, one, two) as client:
        listener = client.server.listener
        listener.serve(tls.server_context(one.identity()))
        session, _, _ = client.ask()
        for identity in then:
            listener.serve(tls.server_context(identity.identity()))
        _, resumed, certificate = client.ask(session)
        assert not resumed
        assert certificate == der({"tls.crt": then[-1].certificate})


@pytest.mark.parametrize("version", VERSIONS)
def test_no_session_is_resumed_after_a_change_of_client_cas(tmp_path: Path, version: ssl.TLSVersion) -> None:
    own = certified("own")
    ca, *files = client_files(tmp_path / "known")
    other_ca, *_ = client_files(tmp_path / "other")
    old, other = ca.read_bytes(), other_ca.read_bytes()
    with resuming(tmp_path, version, own) as client:
        listener = client.server.listener
        client.context.load_cert_chain(files[0], files[1])
        listener.serve(tls.server_context(own.identity(client_ca=old)))
        session, _, _ = client.ask()
        _, resumed, _ = client.ask(session)
        assert resumed, "as nothing has changed"
        listener.serve(tls.server_context(own.identity(client_ca=other + old)))
        session, resumed, _ = client.ask(session)
        assert not resumed
        listener.serve(tls.server_context(own.identity(client_ca=other)))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            client.ask(session)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_session_from_before_client_cas_is_resumed(tmp_path: Path, version: ssl.TLSVersion) -> None:
    own = certified("own")
    ca, *_ = client_files(tmp_path / "known")
    with resuming(tmp_path, version, own) as client:
        listener = client.server.listener
        listener.serve(tls.server_context(own.identity()))
        session, _, _ = client.ask()
        listener.serve(tls.server_context(own.identity(client_ca=ca.read_bytes())))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            client.ask(session)


def test_the_expiry_of_the_serving_certificate_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    state, now = state_of(), [NOW]
    expiry = ExpiryMonitor(state, clock=lambda: now[0])
    expiry.check()
    state.certificate_from = "tls.crt"
    state.certificate_not_after = NOW + timedelta(days=1)
    expiry.check()
    assert caplog.messages == []
    for day in (2, 3):
        now[0] = NOW + timedelta(days=day)
        expiry.check()
    (message,) = caplog.messages
    assert message.startswith(f"tls.crt: the certificate expired at {rfc3339(NOW + timedelta(days=1))}: ")
    state.certificate_not_after = NOW + timedelta(days=4)
    expiry.check()
    now[0] = NOW + timedelta(days=5)
    expiry.check()
    assert len(caplog.messages) == 2


def test_an_expired_certificate_fails_readiness_logged_once(tmp_path: Path, rules: Path) -> None:
    clock = set_clock(tmp_path, timedelta(0))
    soon = pair(tmp_path / "soon", end=NOW + timedelta(days=1))
    mounted = Mounted(tmp_path / "secret", soon)
    with started(tmp_path, *arguments(mounted.folder, rules), module=MOVED_CLOCK, CLOCK=clock) as running:

        def ready() -> tuple[int, str]:
            return fetched(f"{metrics_url(running)}/readyz")

        reason = f"the certificate expired at {rfc3339(end(soon))}"
        assert ready()[0] == 200
        set_clock(tmp_path, timedelta(days=2))
        status, page = ready()
        assert status == 503
        assert reason in page
        until(lambda: reason in running.logged(), "the line")
        mounted.swap(pair(tmp_path / "later"))
        until(lambda: ready()[0] == 200, "another certificate")
        assert running.logged().count(reason) == 1
