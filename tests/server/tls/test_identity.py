"""Certificates: generated for localhost, or read from files and checked."""

import os
import re
import ssl
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from rules_engine.server.tls.identity import (
    MOST_RSA_BITS,
    RENEW_DAYS,
    VALID_DAYS,
    Identity,
    TlsError,
    localhost_files,
    read_cas,
    read_identity,
    server_context,
)
from tests.support.certificates import DAY, GARBAGE, Certified, Key, certified
from tests.support.listener import Recorder, reachable
from tests.support.server import certificate_files

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_generated_certificate_is_valid_for_every_local_name(tmp_path: Path) -> None:
    files = localhost_files(tmp_path, now=NOW)
    assert files.ca is not None
    leaf = loaded(files.certificate)
    policy = PolicyBuilder().store(Store([loaded(files.ca)])).time(NOW)
    policy.build_server_verifier(x509.DNSName("localhost")).verify(leaf, [])
    for address in ("127.0.0.1", "::1"):
        policy.build_server_verifier(x509.IPAddress(ip_address(address))).verify(leaf, [])
    with pytest.raises(x509.verification.VerificationError):
        policy.build_server_verifier(x509.DNSName("example.com")).verify(leaf, [])
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key)


def test_only_the_owner_can_read_the_key_and_no_ca_key_is_stored(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    files = localhost_files(folder, now=NOW)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == {"ca.crt", "tls.crt", "tls.key"}
    assert files.ca is not None
    key = load_pem_private_key(files.key.read_bytes(), None)
    assert key.public_key() != loaded(files.ca).public_key()


def test_a_readable_key_is_replaced_and_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "precious"
    elsewhere.write_text("keep me")
    elsewhere.chmod(0o644)
    folder = tmp_path / "tls"
    folder.mkdir()
    (folder / "tls.key").symlink_to(elsewhere)
    files = localhost_files(folder, now=NOW)
    assert elsewhere.read_text() == "keep me"
    assert not files.key.is_symlink()
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600


def test_a_valid_certificate_is_kept(tmp_path: Path) -> None:
    first = localhost_files(tmp_path, now=NOW)
    before = first.certificate.read_bytes()
    localhost_files(tmp_path, now=NOW + timedelta(days=VALID_DAYS - RENEW_DAYS, seconds=-1))
    assert first.certificate.read_bytes() == before


@pytest.mark.parametrize("broken", ["old", "ca.crt", "tls.crt", "tls.key", "another ca"])
def test_an_outdated_certificate_is_replaced(tmp_path: Path, broken: str) -> None:
    first = localhost_files(tmp_path, now=NOW)
    before = first.certificate.read_bytes()
    now = NOW
    if broken == "old":
        now = NOW + timedelta(days=VALID_DAYS - RENEW_DAYS)
    elif broken == "another ca":
        other = localhost_files(tmp_path / "other", now=NOW)
        assert other.ca is not None
        (tmp_path / "ca.crt").write_bytes(other.ca.read_bytes())
    else:
        (tmp_path / broken).write_text("broken")
    again = localhost_files(tmp_path, now=now)
    assert again.certificate.read_bytes() != before
    assert again.ca is not None
    loaded(again.certificate).verify_directly_issued_by(loaded(again.ca))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "tls"
    with pytest.raises(TlsError) as caught:
        localhost_files(folder, now=NOW)
    assert str(caught.value) == f"{folder}: the certificate cannot be written there: Not a directory"


KEYS = pytest.mark.parametrize(
    "make",
    [
        partial(ec.generate_private_key, ec.SECP256R1()),
        partial(ec.generate_private_key, ec.SECP384R1()),
        partial(ec.generate_private_key, ec.SECP521R1()),
        ed25519.Ed25519PrivateKey.generate,
        partial(rsa.generate_private_key, 65537, 2048),
        partial(rsa.generate_private_key, 65537, 2560),
        partial(rsa.generate_private_key, 65537, 3072),
    ],
    ids=["p-256", "p-384", "p-521", "ed25519", "rsa-2048", "rsa-2560", "rsa-3072"],
)
"""Makers of each kind of key that is accepted."""


@KEYS
def test_a_matching_certificate_and_key_are_accepted(tmp_path: Path, make: Callable[[], Key]) -> None:
    certificate, path = certificate_files(tmp_path, NOW, NOW + timedelta(days=1), key=make())
    assert read_identity(certificate, path, now=NOW).not_after == NOW + timedelta(days=1)


def test_the_first_certificate_of_a_chain_is_the_servers(tmp_path: Path) -> None:
    certificate, key = certificate_files(tmp_path, NOW, NOW + timedelta(days=1))
    other, _ = certificate_files(tmp_path / "other", NOW, NOW + timedelta(days=1))
    certificate.write_bytes(certificate.read_bytes() + other.read_bytes())
    assert read_identity(certificate, key, now=NOW).certificate == certificate.read_bytes()
    certificate.write_bytes(other.read_bytes() + certificate.read_bytes())
    with pytest.raises(TlsError, match="does not belong"):
        read_identity(certificate, key, now=NOW)


def problem(certificate: Path, key: Path, now: datetime = NOW) -> str:
    with pytest.raises(TlsError) as caught:
        read_identity(certificate, key, now=now)
    return str(caught.value)


@pytest.mark.parametrize("bits", [1024, 2047])
def test_an_rsa_key_that_is_too_small_is_refused(tmp_path: Path, bits: int) -> None:
    key = rsa.generate_private_key(65537, bits)
    certificate, path = certificate_files(tmp_path, NOW, NOW + timedelta(days=1), key=key)
    assert problem(certificate, path) == f"{path}: an RSA key must have 2048 to 8192 bits, not {bits}"


def test_an_rsa_key_too_large_for_api_servers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_RSA_BITS == 8192
    monkeypatch.setattr(
        "rules_engine.server.tls.identity.MOST_RSA_BITS", 2048
    )  # larger keys take a minute to generate and to load
    key = rsa.generate_private_key(65537, 2056)
    certificate, path = certificate_files(tmp_path, NOW, NOW + timedelta(days=1), key=key)
    assert problem(certificate, path) == f"{path}: an RSA key must have 2048 to 8192 bits, not 2056"


def test_each_fault_of_the_files_has_a_precise_message(tmp_path: Path) -> None:
    certificate, key = certificate_files(tmp_path, NOW, NOW + timedelta(days=1))
    other, other_key = certificate_files(tmp_path / "other", NOW, NOW + timedelta(days=1))
    missing = tmp_path / "missing"
    text = tmp_path / "text"
    text.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    encrypted = tmp_path / "encrypted"
    private = load_pem_private_key(key.read_bytes(), None)
    encrypted.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    unserved = tmp_path / "dsa"
    unserved.write_bytes(
        dsa.generate_private_key(1024).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    assert problem(missing, key) == f"{missing}: cannot be read: No such file or directory"
    assert problem(tmp_path, key) == f"{tmp_path}: cannot be read: Is a directory"
    assert problem(certificate, missing) == f"{missing}: cannot be read: No such file or directory"
    assert problem(text, key) == f"{text}: no certificate in PEM format"
    assert problem(key, key) == f"{key}: no certificate in PEM format"
    assert problem(certificate, certificate) == f"{certificate}: no private key in PEM format"
    assert problem(certificate, encrypted) == f"{encrypted}: the key must not be encrypted"
    assert problem(certificate, unserved) == f"{unserved}: the key must be an RSA, EC or Ed25519 key"
    other_curve = tmp_path / "p-224"
    other_curve.write_bytes(
        ec.generate_private_key(ec.SECP224R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    assert problem(certificate, other_curve) == (
        f"{other_curve}: the key must be on the curve P-256, P-384 or P-521, not secp224r1"
    )
    assert problem(other, key) == f"{key}: this key does not belong to the certificate in {other}"
    assert (
        problem(other, other_key, NOW + timedelta(days=1))
        == f"{other}: the certificate expired at 2030-01-02T00:00:00Z"
    )
    assert problem(other, other_key, NOW - timedelta(seconds=1)) == (
        f"{other}: the certificate is not valid before 2030-01-01T00:00:00Z"
    )


ROOT = certified("root", ca=True)
INTERMEDIATE = certified("intermediate", ROOT, ca=True)
LEAF = certified("leaf", INTERMEDIATE)
STRANGER = certified("stranger", ca=True)


def trusting(anchor: Certified) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=anchor.certificate.decode())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@KEYS
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_every_accepted_kind_of_key_is_served(tmp_path: Path, make: Callable[[], Key], version: ssl.TLSVersion) -> None:
    files = certified("leaf", ROOT, key=make()).write(tmp_path)
    with reachable(tmp_path, Recorder()) as server:
        server.listener.serve(server_context(read_identity(*files, now=datetime.now(UTC))))
        client = trusting(ROOT)
        client.minimum_version = client.maximum_version = version
        assert replace(server, context=client).ask("GET", "/").status == 200


@pytest.mark.parametrize(
    "others",
    [(INTERMEDIATE,), (INTERMEDIATE, ROOT), (ROOT, INTERMEDIATE), (STRANGER, INTERMEDIATE), (INTERMEDIATE, STRANGER)],
    ids=["intermediate", "and root", "root first", "a stranger's first", "a stranger's last"],
)
def test_a_chain_is_served_whatever_follows_its_leaf(tmp_path: Path, others: list[Certified]) -> None:
    with reachable(tmp_path, Recorder()) as server:
        server.listener.serve(server_context(LEAF.identity(*(other.certificate for other in others))))
        assert replace(server, context=trusting(ROOT)).ask("GET", "/").status == 200


EXPIRED = certified("intermediate", ROOT, key=INTERMEDIATE.key, ca=True, end=datetime.now(UTC) - DAY)
NO_CA = certified("intermediate", ROOT, key=INTERMEDIATE.key)
FORGED = certified("leaf", replace(STRANGER, name="intermediate"))
FOR_CLIENTS = certified("leaf", INTERMEDIATE, usage=ExtendedKeyUsageOID.CLIENT_AUTH)

UNSERVED = {
    "wrong order": (
        Identity(certificate=INTERMEDIATE.certificate + LEAF.certificate, key=LEAF.private, not_after=NOW),
        "[X509: KEY_VALUES_MISMATCH] key values mismatch",
    ),
    "another key": (replace(LEAF.identity(), key=STRANGER.private), "[X509: KEY_VALUES_MISMATCH] key values mismatch"),
    "expired intermediate": (LEAF.identity(EXPIRED.certificate), "clients refuse it: certificate has expired"),
    "expired intermediate, and root": (
        LEAF.identity(EXPIRED.certificate, ROOT.certificate),
        "clients refuse it: certificate has expired",
    ),
    "an intermediate that is no CA": (
        LEAF.identity(NO_CA.certificate, ROOT.certificate),
        "clients refuse it: invalid CA certificate",
    ),
    "bad signature": (FORGED.identity(INTERMEDIATE.certificate), "clients refuse it: certificate signature failure"),
    "for clients": (
        FOR_CLIENTS.identity(INTERMEDIATE.certificate),
        "clients refuse it: unsuitable certificate purpose",
    ),
    "for clients, alone": (FOR_CLIENTS.identity(), "clients refuse it: unsuitable certificate purpose"),
    "a certificate that is none": (replace(LEAF.identity(), certificate=GARBAGE), "[SSL] PEM lib"),
    "no certificate": (replace(LEAF.identity(), certificate=b"nonsense"), "[SSL] PEM lib"),
    "another that is none": (LEAF.identity(GARBAGE), "[PEM] ASN1 lib"),
    "a key that is none": (replace(LEAF.identity(), key=b"nonsense"), "[SSL] PEM lib"),
    "a key that API servers do not take": (
        certified("p-224", key=ec.generate_private_key(ec.SECP224R1())).identity(),
        "[SSL: NO_SHARED_CIPHER] no shared cipher",
    ),
    "a CA that is none": (LEAF.identity(client_ca=GARBAGE), "no start line: cadata does not contain a certificate"),
    "another CA that is none": (LEAF.identity(client_ca=ROOT.certificate + GARBAGE), "[PEM] ASN1 lib"),
    "no CA": (LEAF.identity(client_ca=b""), "Empty certificate data"),
}
"""Identities that cannot be served, with the reason."""


@pytest.mark.parametrize("unserved", UNSERVED)
def test_a_certificate_that_clients_refuse_is_an_error(unserved: str) -> None:
    identity, reason = UNSERVED[unserved]
    with pytest.raises(TlsError) as caught:
        server_context(identity)
    # OpenSSL errors end with a line of Python's source.
    assert re.sub(r" \(_ssl\.c:\d+\)$", "", str(caught.value)) == f"the certificate cannot be served: {reason}"


def test_no_file_stays_open_even_if_a_certificate_is_refused() -> None:
    identities = [LEAF.identity(client_ca=ROOT.certificate), *(identity for identity, _ in UNSERVED.values())]
    before = open_files()
    for identity in identities:
        try:
            server_context(identity)
        except TlsError:
            continue
    assert open_files() == before


def test_a_handshake_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.tls.identity.ROUNDS", 1)
    with pytest.raises(TlsError, match=r"^the certificate cannot be served: .*the handshake does not end"):
        server_context(LEAF.identity())


def test_a_file_of_cas_may_hold_comments_in_any_encoding(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    for comment in ("# Autoridade Certificadora São Paulo\n".encode(), b"# Tu\xf0rkTrust\n"):
        path.write_bytes(comment + ROOT.certificate + comment + STRANGER.certificate)
        served = server_context(LEAF.identity(client_ca=read_cas(path)))
        assert len(served.get_ca_certs()) == 2


def test_a_file_without_a_ca_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(b"nonsense")
    with pytest.raises(TlsError) as caught:
        read_cas(path)
    assert str(caught.value) == f"{path}: no certificate in PEM format"


def test_a_certificate_without_host_names_is_refused(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .sign(key, SHA256())
    )
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(TlsError) as refused:
        read_identity(*files, now=NOW)
    message = "the certificate names no host: API servers read its subjectAltName only"
    assert str(refused.value) == f"{files[0]}: {message}"
