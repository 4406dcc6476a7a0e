"""Certificates that change while the server runs, and certificates demanded of clients."""

import http.client
import os
import re
import resource
import signal
import socket
import ssl
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
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

from server.front import SPARE_FILES, Front, try_out
from server.gateway import LARGE_BYTES
from server.observing import Observed
from server.prepare import Sources
from server.renewal import Clients
from server.serve import Settings, _bootstrapped
from server.state import State
from server.tls import Identity, TlsError, for_localhost
from server.tls import read as read_identity
from tests.support.apiserver import kubeconfig
from tests.support.gateway import Reachable, gateway, reachable, reply
from tests.support.objects import Objects, objects
from tests.support.operating import METRICS, Load, Mounted, fetched, metrics_url, saying, until
from tests.support.server import PATIENCE_SECONDS, ROOT, Running, certificate_files, started

NOW = datetime.now(UTC)


def pair(folder: Path, begin: datetime = NOW, end: datetime = NOW + timedelta(days=9)) -> dict[str, bytes]:
    """A new certificate and its key, as they lie in a Secret."""
    certificate, key = certificate_files(folder, begin, end)
    return {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes()}


def trusting(*pairs: dict[str, bytes]) -> ssl.SSLContext:
    return ssl.create_default_context(cadata="".join(pair["tls.crt"].decode() for pair in pairs))


def shown(running: Running | Reachable) -> bytes:
    """The certificate that a new connection is shown, DER."""
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


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def unserved() -> dict[str, bytes]:
    """A pair like any other, but for what granian's TLS library does not take: it would end the process."""
    name, key = x509.Name([]), ec.generate_private_key(ec.SECP256R1())
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4.5"), b"\x05\x00")
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(unknown, critical=True)
    builder = builder.not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {"tls.crt": builder.sign(key, SHA256()).public_bytes(Encoding.PEM), "tls.key": private}


def chain() -> tuple[str, dict[str, bytes]]:
    """A root CA, and a pair whose certificate is by a CA between the two, as an organisation issues them."""
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
    """A CA, and a client's certificate and key by it."""
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


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(saying("no"))
    return path


def arguments(folder: Path, rules: Path) -> list[str | Path]:
    return ["--rules", rules, "--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key", *METRICS]


def test_certificates_swapped_under_load_fail_no_request(tmp_path: Path, rules: Path) -> None:
    pairs = [pair(tmp_path / f"pair-{number}") for number in range(6)]
    mounted = Mounted(tmp_path / "secret", pairs[0])
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:
        load = Load(running.port, trusting(*pairs))
        idle = load.connect()
        message, closes = load.ask(idle)
        assert not closes
        with load.running(kept=4, fresh=4):
            for new in pairs[1:]:
                # Ten seconds are what a client has for its handshake: one such connection for each certificate.
                half = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_SECONDS)
                mounted.swap(new)
                until(lambda new=new: shown(running) == der(new), "the new certificate")  # type: ignore[misc]
                # One that had not even begun its handshake is still there.
                with half, trusting(*pairs).wrap_socket(half, server_hostname="localhost") as secure:
                    secure.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert secure.recv(100).startswith(b"HTTP/1.1 200 ")
                load.wait_for(message)
        assert not load.failures
        assert set(load.answers) == {message}
        # A connection that was open all the time is answered once more, and told that this was the last time.
        assert load.ask(idle) == (message, True)


def test_requests_that_are_received_and_decided_while_the_certificate_changes_are_answered(tmp_path: Path) -> None:
    begun, decided = Event(), Event()

    def application(environ: Any, start_response: Any) -> list[bytes]:
        if len(environ["wsgi.input"].read()) > LARGE_BYTES:  # has a thread of its own
            begun.set()
            decided.wait(PATIENCE_SECONDS)
        start_response("200 OK", [])
        return [b"decided"]

    files = for_localhost(tmp_path / "two", now=NOW)
    with reachable(tmp_path, application) as server:
        before = shown(server)
        deciding = server.open(HEAD % (LARGE_BYTES + 1) + b" " * (LARGE_BYTES + 1))
        receiving = server.open(HEAD % 100 + b" " * 50)
        with closing(deciding), closing(receiving):
            assert begun.wait(PATIENCE_SECONDS)
            server.front.serve(read_identity(files.certificate, files.key, now=NOW))
            until(lambda: shown(server) != before, "the new certificate")
            decided.set()
            receiving.sendall(b" " * 50)
            for connection in (deciding, receiving):
                answer = reply(connection)
                assert (answer.status, answer.body, answer.ends) == (200, b"decided", True)


@pytest.mark.parametrize("broken", ["no key", "no certificate", "another key", "expired", "not PEM"])
def test_a_pair_that_cannot_be_served_is_said_and_the_old_one_stays(tmp_path: Path, rules: Path, broken: str) -> None:
    first, good = pair(tmp_path / "first"), pair(tmp_path / "good")
    bad = {
        "no key": {"tls.crt": good["tls.crt"]},
        "no certificate": {"tls.key": good["tls.key"]},
        "another key": {"tls.crt": good["tls.crt"], "tls.key": first["tls.key"]},
        "expired": pair(tmp_path / "old", NOW - timedelta(days=9), NOW - timedelta(days=1)),
        "not PEM": {"tls.crt": b"nonsense", "tls.key": good["tls.key"]},
    }[broken]
    mounted = Mounted(tmp_path / "secret", first)
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:
        mounted.swap(bad)
        until(lambda: "the changed certificate is refused" in running.logged(), "the refusal")
        assert str(mounted.folder) in running.logged().partition("refused")[2]
        assert shown(running) == der(first)
        mounted.swap(good)
        until(lambda: shown(running) == der(good), "the good pair")
        not_after = x509.load_pem_x509_certificate(good["tls.crt"]).not_valid_after_utc
        until(lambda: f"valid until {not_after.isoformat()}" in running.logged(), "the line that says so")


def test_a_pair_that_would_end_the_process_is_refused_too(tmp_path: Path, rules: Path) -> None:
    first, good = pair(tmp_path / "first"), pair(tmp_path / "good")
    mounted = Mounted(tmp_path / "secret", first)
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:
        mounted.swap(unserved())
        until(lambda: "the changed certificate is refused" in running.logged(), "the refusal")
        assert shown(running) == der(first)
        mounted.swap(good)
        until(lambda: shown(running) == der(good), "the good pair")


def test_the_metric_of_the_expiry_is_that_of_the_certificate_that_is_served(tmp_path: Path, rules: Path) -> None:
    first, second = (pair(tmp_path / f"pair-{days}", end=NOW + timedelta(days=days)) for days in (2, 3))
    mounted = Mounted(tmp_path / "secret", first)
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:

        def metrics() -> str:
            return fetched(f"{metrics_url(running)}/metrics")[1]

        def expiry() -> datetime:
            found = re.search(r"^gpu_rules_certificate_expiry_timestamp_seconds (\S+)$", metrics(), re.MULTILINE)
            assert found
            return datetime.fromtimestamp(float(found[1]), UTC)

        assert expiry() == end(first)
        mounted.swap({**second, "tls.key": first["tls.key"]})
        until(lambda: "gpu_rules_certificates_refused_total 1.0" in metrics(), "the refusal")
        assert expiry() == end(first)
        mounted.swap(second)
        until(lambda: shown(running) == der(second), "the second pair")
        until(lambda: expiry() == end(second), "its expiry")


def test_a_pair_whose_time_has_not_come_is_served_when_it_has(tmp_path: Path, rules: Path) -> None:
    mounted = Mounted(tmp_path / "secret", pair(tmp_path / "first"))
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:
        soon = pair(tmp_path / "soon", datetime.now(UTC) + timedelta(seconds=3))
        mounted.swap(soon)
        until(lambda: "is not valid before" in running.logged(), "the refusal")

        def served() -> bool:
            running.process.send_signal(signal.SIGHUP)
            return shown(running) == der(soon)

        until(served, "the pair")
        assert running.logged().count("is refused") == 1
        assert "gpu_rules_certificates_refused_total 1.0" in fetched(f"{metrics_url(running)}/metrics")[1]


def test_the_whole_chain_is_shown_so_that_who_trusts_its_root_trusts_the_server(tmp_path: Path, rules: Path) -> None:
    root, pair = chain()
    mounted = Mounted(tmp_path / "secret", pair)
    with started(tmp_path, *arguments(mounted.folder, rules)) as running:
        assert answered(running.port, root, [])
        root, pair = chain()
        mounted.swap(pair)
        until(lambda: shown(running) == der(pair), "the new certificate")
        assert answered(running.port, root, [])


def test_with_client_ca_only_clients_with_its_certificate_are_answered(tmp_path: Path, rules: Path) -> None:
    own = pair(tmp_path / "own")
    mounted = Mounted(tmp_path / "secret", own)
    ca, *known = client_files(tmp_path / "known")
    other_ca, *stranger = client_files(tmp_path / "stranger")
    with started(tmp_path, *arguments(mounted.folder, rules), "--client-ca", ca) as running:
        assert answered(running.port, own["tls.crt"].decode(), known)
        assert not answered(running.port, own["tls.crt"].decode(), [])
        assert not answered(running.port, own["tls.crt"].decode(), stranger)
        assert fetched(f"{metrics_url(running)}/readyz")[0] == 200
        ca.write_bytes(other_ca.read_bytes())
        until(lambda: answered(running.port, own["tls.crt"].decode(), stranger), "the new CA")
        assert not answered(running.port, own["tls.crt"].decode(), known)


SECRET = "/api/v1/namespaces/gpu/secrets/tls"
WEBHOOKS = [
    f"/apis/admissionregistration.k8s.io/v1/{kind}/rules"
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
]


@contextmanager
def bootstrapping() -> Iterator[Objects]:
    """An API server with what the chart makes: an empty Secret and two configurations."""
    with objects() as kept:
        kept.put(SECRET, {"metadata": {"name": "tls"}})
        for path in WEBHOOKS:
            kept.put(path, {"metadata": {"name": "rules"}, "webhooks": [{"name": "a", "clientConfig": {}}]})
        yield kept


def trusted(kept: Objects) -> set[str]:
    """What the API server trusts, PEM."""
    hooks = [hook for path in WEBHOOKS for hook in kept.get(path)["webhooks"]]
    return {b64decode(hook["clientConfig"].get("caBundle", "")).decode() for hook in hooks}


def test_a_bootstrapped_certificate_goes_on_being_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.bootstrap.LOOK_SECONDS", 0.05)
    state = State()
    with (
        bootstrapping() as kept,
        reachable(tmp_path, lambda *_: [b""]) as server,
        ExitStack() as stack,
    ):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, kept.url)))
        settings = Settings(
            sources=Sources(),
            max_staleness_seconds=60,
            host="localhost",
            port=0,
            observed=Observed(None, False),
            max_concurrent=1,
            request_seconds=PATIENCE_SECONDS,
            receive_seconds=PATIENCE_SECONDS,
            drain_seconds=0,
            grace_seconds=1,
        )
        _bootstrapped(settings, ("gpu", "tls", "localhost", "rules"), state, server.front, stack)
        first = shown(server)
        # Whatever step is due, and so the next certificate too: here the first one is lost.
        kept.put(SECRET, {"metadata": {"name": "tls"}})
        until(lambda: shown(server) != first, "another certificate")
        own = b64decode(kept.get(SECRET)["data"]["ca.crt"]).decode()
        until(lambda: trusted(kept) == {own}, "its CA where it is to be trusted")


def test_with_a_bootstrapped_certificate_the_cas_of_clients_are_read_again_as_well(tmp_path: Path, rules: Path) -> None:
    ca, *known = client_files(tmp_path / "known")
    other_ca, *stranger = client_files(tmp_path / "stranger")
    mounted = Mounted(tmp_path / "client-ca", {"ca.crt": ca.read_bytes()})
    with bootstrapping() as kept:
        config = kubeconfig(tmp_path, kept.url)
        bootstrap = ("--tls-bootstrap", "gpu/tls", "--tls-service", "localhost", "--webhook-name", "rules")
        arguments = ("--rules", rules, "--client-ca", mounted.folder / "ca.crt", *bootstrap, *METRICS)
        with started(tmp_path, *arguments, KUBECONFIG=str(config)) as running:
            own = b64decode(kept.get(SECRET)["data"]["ca.crt"]).decode()
            assert trusted(kept) == {own}
            assert answered(running.port, own, known)
            assert not answered(running.port, own, stranger)
            mounted.swap({"ca.crt": b"nonsense"})
            until(lambda: "the changed CAs of clients are refused" in running.logged(), "the refusal")
            assert answered(running.port, own, known)
            mounted.swap({"ca.crt": other_ca.read_bytes()})
            until(lambda: answered(running.port, own, stranger), "the new CA")
            assert not answered(running.port, own, known)
            assert "gpu_rules_certificates_refused_total 1.0" in fetched(f"{metrics_url(running)}/metrics")[1]


def test_a_certificate_that_is_made_anew_demands_the_cas_that_were_read_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ca, *known = client_files(tmp_path / "known")
    other_ca, *stranger = client_files(tmp_path / "stranger")
    one, two = (for_localhost(tmp_path / name, now=NOW) for name in ("one", "two"))
    listener, state = socket.create_server(("127.0.0.1", 0)), State()

    def application(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Length", "0")])
        return [b""]

    front = Front(gateway(application), listener)
    clients = Clients(front, state, ca)
    assert not clients.renew(), "nothing is served yet"
    clients.serve(read_identity(one.certificate, one.key, now=NOW))
    assert clients.renew(), "nothing has changed"
    ca.write_bytes(other_ca.read_bytes())
    assert clients.renew()
    clients.serve(read_identity(two.certificate, two.key, now=NOW))
    assert two.ca
    port = listener.getsockname()[1]
    assert answered(port, two.ca.read_text(), stranger)
    assert not answered(port, two.ca.read_text(), known)
    assert state.certificate_not_after == two.not_after
    assert front.stop(1, 0)


def test_without_files_to_spare_a_certificate_is_refused_and_the_end_is_an_end(tmp_path: Path) -> None:
    with reachable(tmp_path, lambda *_: [b""]) as server:
        one = for_localhost(tmp_path / "one", now=NOW)
        identity = read_identity(one.certificate, one.key, now=NOW)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + SPARE_FILES, hard))
        taken: list[int] = []
        try:
            with pytest.raises(OSError, match="Too many open files"):
                taken.extend(os.dup(0) for _ in range(2 * SPARE_FILES))
            os.close(taken.pop())
            with pytest.raises(TlsError, match="cannot be served: Too many open files"):
                server.front.serve(identity)
            taken.append(os.dup(0))
            assert server.front.stop(PATIENCE_SECONDS, 0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
        with pytest.raises(ConnectionRefusedError):
            server.ask("GET", "/")


def test_a_certificate_that_changes_while_the_server_drains_does_not_keep_connections(tmp_path: Path) -> None:
    def application(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    one, two = (for_localhost(tmp_path / name, now=NOW) for name in ("one", "two"))
    with reachable(tmp_path, application) as server:
        server.front.serve(read_identity(one.certificate, one.key, now=NOW))
        server.front.drain()
        server.front.serve(read_identity(two.certificate, two.key, now=NOW))
        assert two.ca
        anew = replace(server, context=ssl.create_default_context(cafile=str(two.ca)))
        assert anew.ask("GET", "/").ends


def answered(port: int, trusted: str, files: list[Path]) -> bool:
    """Whether a client that trusts a CA, and has this certificate and key or none, gets an answer."""
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


def test_a_certificate_that_the_tls_library_does_not_take_is_an_error_and_not_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    files = for_localhost(tmp_path, now=NOW)
    good = read_identity(files.certificate, files.key, now=NOW)
    garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    before = descriptors()
    try_out(good)
    for bad in (
        Identity(certificate=good.certificate + garbage, key=good.key, not_after=NOW),
        Identity(certificate=good.certificate, key=good.key, client_ca=garbage, not_after=NOW),
    ):
        with pytest.raises(TlsError, match=r"the certificate cannot be served: \S"):
            try_out(bad)
    assert descriptors() == before


def test_old_listeners_end_when_their_idle_connections_had_time_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.front.RETIRE_SECONDS", 0.05)
    files = for_localhost(tmp_path, now=NOW)
    identity = read_identity(files.certificate, files.key, now=NOW)
    listener = socket.create_server(("127.0.0.1", 0))
    front = Front(gateway(lambda *_: [b""]), listener)
    front.serve(identity)
    front.serve(identity)
    before = descriptors()
    for _ in range(10):
        front.serve(identity)
    until(lambda: len(front._listeners) == 1, "the end of the old listeners")
    until(lambda: descriptors() <= before, "their descriptors")
    assert front.stop(1, 0)
    front.serve(identity)  # too late, and no error
    assert len(front._listeners) <= 1
