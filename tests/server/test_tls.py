"""Certificates: made for localhost, or the operator's, checked."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.verification import PolicyBuilder, Store

from server.tls import RENEW_DAYS, VALID_DAYS, TlsError, check, for_localhost
from tests.support.server import certificate_files

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_certificate_made_here_is_trusted_by_its_ca_for_every_local_name(tmp_path: Path) -> None:
    files = for_localhost(tmp_path, now=NOW)
    assert files.ca is not None
    leaf = loaded(files.certificate)
    policy = PolicyBuilder().store(Store([loaded(files.ca)])).time(NOW)
    policy.build_server_verifier(x509.DNSName("localhost")).verify(leaf, [])
    for address in ("127.0.0.1", "::1"):
        policy.build_server_verifier(x509.IPAddress(ip_address(address))).verify(leaf, [])
    with pytest.raises(x509.verification.VerificationError):
        policy.build_server_verifier(x509.DNSName("example.com")).verify(leaf, [])
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key)


def test_nobody_else_can_read_the_key_and_the_cas_key_is_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    files = for_localhost(folder, now=NOW)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == {"ca.crt", "tls.crt", "tls.key"}
    assert files.ca is not None
    key = load_pem_private_key(files.key.read_bytes(), None)
    assert key.public_key() != loaded(files.ca).public_key()


def test_a_key_that_others_could_read_is_replaced_and_a_link_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "precious"
    elsewhere.write_text("keep me")
    elsewhere.chmod(0o644)
    folder = tmp_path / "tls"
    folder.mkdir()
    (folder / "tls.key").symlink_to(elsewhere)
    files = for_localhost(folder, now=NOW)
    assert elsewhere.read_text() == "keep me"
    assert not files.key.is_symlink()
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600


def test_a_certificate_that_is_still_good_is_kept(tmp_path: Path) -> None:
    first = for_localhost(tmp_path, now=NOW)
    before = first.certificate.read_bytes()
    assert for_localhost(tmp_path, now=NOW + timedelta(days=VALID_DAYS - RENEW_DAYS, seconds=-1)) == first
    assert first.certificate.read_bytes() == before


@pytest.mark.parametrize("broken", ["old", "ca.crt", "tls.crt", "tls.key", "another ca"])
def test_a_certificate_that_is_not_good_any_more_is_made_anew(tmp_path: Path, broken: str) -> None:
    first = for_localhost(tmp_path, now=NOW)
    before = first.certificate.read_bytes()
    now = NOW
    if broken == "old":
        now = NOW + timedelta(days=VALID_DAYS - RENEW_DAYS)
    elif broken == "another ca":
        other = for_localhost(tmp_path / "other", now=NOW)
        assert other.ca is not None
        (tmp_path / "ca.crt").write_bytes(other.ca.read_bytes())
    else:
        (tmp_path / broken).write_text("broken")
    again = for_localhost(tmp_path, now=now)
    assert again.certificate.read_bytes() != before
    assert again.ca is not None
    loaded(again.certificate).verify_directly_issued_by(loaded(again.ca))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "tls"
    with pytest.raises(TlsError) as caught:
        for_localhost(folder, now=NOW)
    assert str(caught.value) == f"{folder}: the certificate cannot be written there: Not a directory"


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
        rsa.generate_private_key(65537, 3072),
    ],
    ids=["ec", "ed25519", "rsa", "rsa-3072"],
)
def test_files_that_belong_together_are_taken(tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    certificate, path = certificate_files(tmp_path, NOW, NOW + timedelta(days=1), key=key)
    files = check(certificate, path, now=NOW)
    assert (files.certificate, files.key, files.ca) == (certificate, path, None)
    assert files.not_after == NOW + timedelta(days=1)


def test_of_a_chain_the_first_certificate_is_the_servers(tmp_path: Path) -> None:
    certificate, key = certificate_files(tmp_path, NOW, NOW + timedelta(days=1))
    other, _ = certificate_files(tmp_path / "other", NOW, NOW + timedelta(days=1))
    certificate.write_bytes(certificate.read_bytes() + other.read_bytes())
    assert check(certificate, key, now=NOW).certificate == certificate
    certificate.write_bytes(other.read_bytes() + certificate.read_bytes())
    with pytest.raises(TlsError, match="does not belong"):
        check(certificate, key, now=NOW)


def problem(certificate: Path, key: Path, now: datetime = NOW) -> str:
    with pytest.raises(TlsError) as caught:
        check(certificate, key, now=now)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (rsa.generate_private_key(65537, 1024), "an RSA key must have 2048, 3072 or 4096 bits, not 1024"),
        (rsa.generate_private_key(65537, 2560), "an RSA key must have 2048, 3072 or 4096 bits, not 2560"),
        (rsa.generate_private_key(3, 2048), "the public exponent of an RSA key must be at least 65537, not 3"),
    ],
    ids=["1024", "2560", "exponent"],
)
def test_an_rsa_key_that_the_tls_library_does_not_serve_is_refused_before_it_ends_the_process(
    tmp_path: Path, key: rsa.RSAPrivateKey, said: str
) -> None:
    certificate, path = certificate_files(tmp_path, NOW, NOW + timedelta(days=1), key=key)
    assert problem(certificate, path) == f"{path}: {said}"


def test_each_thing_wrong_with_the_files_is_said_precisely(tmp_path: Path) -> None:
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
    assert problem(text, key) == f"{text}: holds no certificate in PEM form"
    assert problem(key, key) == f"{key}: holds no certificate in PEM form"
    assert problem(certificate, certificate) == f"{certificate}: holds no private key in PEM form"
    assert problem(certificate, encrypted) == f"{encrypted}: the key is encrypted; give it without a passphrase"
    assert problem(certificate, unserved) == f"{unserved}: the key must be an RSA, EC or Ed25519 key"
    large_curve = tmp_path / "p-521"
    large_curve.write_bytes(
        ec.generate_private_key(ec.SECP521R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    assert problem(certificate, large_curve) == (
        f"{large_curve}: the key must be on the curve P-256 or P-384, not secp521r1"
    )
    assert problem(other, key) == f"{key}: this key does not belong to the certificate in {other}"
    assert (
        problem(other, other_key, NOW + timedelta(days=1))
        == f"{other}: the certificate expired on 2030-01-02 00:00 UTC"
    )
    assert problem(other, other_key, NOW - timedelta(seconds=1)) == (
        f"{other}: the certificate is not valid before 2030-01-01 00:00 UTC"
    )
