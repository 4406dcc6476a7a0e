"""Certificates of the server, read from files or made here, and TLS contexts for them.

Why a certificate is tested with an in-memory handshake before it is served: OpenSSL loads many that no client accepts,
such as one with a wrong purpose or an unknown critical extension. The failure would show in the API server only, where
failurePolicy would then decide on every pod. A certificate that fails the test is refused, and the previous one stays.

Why each certificate has an SSLContext of its own, rather than one context that is changed or has an `sni_callback`:
- a context owns the keys of its session tickets. A client could resume a session, and so show no certificate, after the
  CA of its certificate was removed;
- certificate, key and client CAs change together, with one assignment: no handshake has a part of each;
- a connection whose context is not the current one is known to be outdated, and closes after its next response.
"""

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rules_engine.server.timing import rfc3339

PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
"""Key types that API servers accept (Go, crypto/tls)."""

CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
"""Elliptic curves that API servers accept."""

LEAST_RSA_BITS, MOST_RSA_BITS = 2048, 8192
"""RSA key sizes: Go rejects larger keys (crypto/tls, checkKeySize), and OpenSSL smaller ones."""

ROUNDS = 10
"""Maximum rounds of an in-memory handshake; TLS 1.2 takes four flights."""

LOCAL_NAMES = (x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")), x509.IPAddress(ip_address("::1")))
"""Names in the certificate for localhost."""

VALID_DAYS = 365
"""Validity of the certificate for localhost: a trial server is restarted more often than once a year."""

RENEW_DAYS = 30
"""A certificate in `--tls-dir` that expires sooner is replaced at start."""

CLOCK_SKEW = timedelta(minutes=5)
"""Maximum delay of a client's clock behind ours."""

CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "tls.crt", "tls.key"
"""Names in `--tls-dir`, as in a Kubernetes TLS Secret."""


class TlsError(Exception):
    """A certificate and key that cannot be served; the message names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of a certificate and its key; `ca` is the file to trust if the certificate was made here."""

    certificate: Path
    key: Path
    ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Certificate and key as PEM, and the client CAs if client certificates are required."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None
    not_after: datetime


def read_identity(certificate: Path, key: Path, client_ca: Path | None = None, *, now: datetime) -> Identity:
    """Read each file once, and check that they match each other and are valid at `now`. Raises TlsError."""
    chain, private_pem = _read_file(certificate), _read_file(key)
    leaf = _parse_certificate(certificate, chain)
    private = _private_key(key, private_pem)
    if _public_bytes(leaf.public_key()) != _public_bytes(private.public_key()):
        raise TlsError(f"{key}: this key does not belong to the certificate in {certificate}")
    if not _has_names(leaf):
        raise TlsError(f"{certificate}: the certificate names no host: API servers read its subjectAltName only")
    if now >= leaf.not_valid_after_utc:
        raise TlsError(f"{certificate}: the certificate expired at {rfc3339(leaf.not_valid_after_utc)}")
    if now < leaf.not_valid_before_utc:
        raise TlsError(f"{certificate}: the certificate is not valid before {rfc3339(leaf.not_valid_before_utc)}")
    trusted = None if client_ca is None else read_cas(client_ca)
    return Identity(certificate=chain, key=private_pem, client_ca=trusted, not_after=leaf.not_valid_after_utc)


def localhost_files(folder: Path, *, now: datetime) -> TlsFiles:
    """Return a certificate for localhost, signed by a CA of its own; one in `folder` that is still valid is kept.

    The folder is created if needed. The CA's key is discarded, so it never signs anything else.
    Raises TlsError if the folder cannot be written.
    """
    ca, certificate, key = folder / CA_FILE, folder / CERTIFICATE_FILE, folder / KEY_FILE
    try:
        read_identity(certificate, key, now=now + timedelta(days=RENEW_DAYS))
        kept_ca = _parse_certificate(ca, _read_file(ca))
        _parse_certificate(certificate, _read_file(certificate)).verify_directly_issued_by(kept_ca)
    except (TlsError, ValueError, TypeError, InvalidSignature):
        _write_localhost_files(ca, certificate, key, now)
    return TlsFiles(certificate=certificate, key=key, ca=ca)


def _write_localhost_files(ca: Path, certificate: Path, key: Path, now: datetime) -> None:
    issued = issue_certificate("localhost", LOCAL_NAMES, now=now, days=VALID_DAYS)
    try:
        ca.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_file(ca, issued.ca, 0o644)
        _write_file(certificate, issued.certificate, 0o644)
        _write_file(key, issued.key, 0o600)
    except OSError as error:
        raise TlsError(f"{ca.parent}: the certificate cannot be written there: {error.strerror}") from None


def read_cas(path: Path) -> bytes:
    """Read certificates of CAs, as PEM. Raises TlsError if the file has none."""
    content = _read_file(path)
    _parse_certificate(path, content)
    return content


def server_context(identity: Identity) -> ssl.SSLContext:
    """Create a TLS context for `identity`, verified by an in-memory handshake. Raises TlsError.

    Each identity has a context of its own, so no session is resumed from one to the next.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.minimum_version = ssl.TLSVersion.TLSv1_2
    server.options |= ssl.OP_NO_RENEGOTIATION
    server.set_alpn_protocols(["http/1.1"])  # API servers call webhooks with HTTP/1.1
    try:
        with _memory_file(identity.certificate) as certificate, _memory_file(identity.key) as key:
            server.load_cert_chain(certificate, key)
        _shake_hands(server, _client_context(identity.certificate))
        if identity.client_ca is not None:
            server.load_verify_locations(cadata=identity.client_ca.decode("ascii", "ignore"))
            server.verify_mode = ssl.CERT_REQUIRED
    except ssl.SSLCertVerificationError as error:
        raise TlsError(f"the certificate cannot be served: clients refuse it: {error.verify_message}") from None
    except ValueError as error:
        raise TlsError(f"the certificate cannot be served: {error}") from None
    except OSError as error:
        raise TlsError(f"the certificate cannot be served: {error.strerror or error}") from None
    return server


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """Yield the path of an in-memory file: OpenSSL reads only files, keys are not written to disk. Raises OSError."""
    with os.fdopen(os.memfd_create("gpu-rules-tls"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _client_context(chain: bytes) -> ssl.SSLContext:
    """Create a client context that trusts the last certificate of a chain. Raises ValueError if it cannot be parsed."""
    leaf, *others = x509.load_pem_x509_certificates(chain)
    anchor = leaf
    while issuer := next((other for other in others if other.subject == anchor.issuer), None):
        others.remove(issuer)
        anchor = issuer
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False  # the name is checked by the API server
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=anchor.public_bytes(Encoding.DER))
    return client


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Perform an in-memory handshake. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(ROUNDS):
        for side in tuple(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
        if not sides:
            return
    raise ssl.SSLError("the handshake does not end")


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCertificate(Identity):
    """A certificate with its key, and the CA that signed only it, as PEM."""

    ca: bytes
    not_before: datetime


def issue_certificate(name: str, names: Sequence[x509.GeneralName], *, now: datetime, days: float) -> IssuedCertificate:
    """Create a certificate for `names`, with the common name `name`, by a CA of its own whose key is discarded."""
    begin, end = (now - CLOCK_SKEW).replace(microsecond=0), (now + timedelta(days=days)).replace(microsecond=0)
    ca_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    # Several CAs may be trusted at once, so each needs a name of its own.
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{begin:%Y-%m-%dT%H:%M:%S} gpu-rules {name}"[:64])])
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    ca_key_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca_certificate = (
        _certificate_builder(ca_name, ca_name, ca_key.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(ca_key_id, critical=False)
        .sign(ca_key, SHA256())
    )
    leaf = (
        _certificate_builder(leaf_name, ca_name, leaf_key.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(leaf_key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_key_id), critical=False)
        .sign(ca_key, SHA256())
    )
    return IssuedCertificate(
        ca=ca_certificate.public_bytes(Encoding.PEM),
        certificate=leaf.public_bytes(Encoding.PEM),
        key=leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        not_before=begin,
        not_after=end,
    )


def parse_issued(ca: bytes, certificate: bytes, key: bytes, dns_name: str) -> IssuedCertificate:
    """Parse an issued certificate. Raises TlsError if the parts do not match, or are not for `dns_name`."""
    where = Path("the Secret")
    leaf, signer = _parse_certificate(where, certificate), _parse_certificate(where, ca)
    if _public_bytes(leaf.public_key()) != _public_bytes(_private_key(where, key).public_key()):
        raise TlsError("the key does not belong to the certificate")
    try:
        leaf.verify_directly_issued_by(signer)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        raise TlsError("the certificate is not signed by the CA") from None
    if dns_name not in names.get_values_for_type(x509.DNSName):
        raise TlsError(f"the certificate is not for {dns_name}")
    return IssuedCertificate(
        ca=ca,
        certificate=certificate,
        key=key,
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
    )


def dns_names(*names: str) -> tuple[x509.GeneralName, ...]:
    """Return host names for `issue_certificate`."""
    return tuple(x509.DNSName(name) for name in names)


def _certificate_builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_file(path: Path, content: bytes, mode: int) -> None:
    """Replace a file without following links; a key is never readable by others, not even for a moment."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"{path}: cannot be read: {error.strerror}") from None


def _parse_certificate(path: Path, content: bytes) -> x509.Certificate:
    """Return the first certificate of a chain, which is the server's own. Raises TlsError."""
    try:
        return x509.load_pem_x509_certificates(content)[0]
    except ValueError:
        raise TlsError(f"{path}: no certificate in PEM format") from None


def _private_key(path: Path, content: bytes) -> PrivateKey:
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError:
        raise TlsError(f"{path}: the key must not be encrypted") from None
    except (ValueError, UnsupportedAlgorithm):
        raise TlsError(f"{path}: no private key in PEM format") from None
    if not isinstance(key, PrivateKey):
        raise TlsError(f"{path}: the key must be an RSA, EC or Ed25519 key")
    if isinstance(key, ec.EllipticCurvePrivateKey) and not isinstance(key.curve, CURVES):
        raise TlsError(f"{path}: the key must be on the curve P-256, P-384 or P-521, not {key.curve.name}")
    if isinstance(key, rsa.RSAPrivateKey) and not LEAST_RSA_BITS <= key.key_size <= MOST_RSA_BITS:
        raise TlsError(f"{path}: an RSA key must have 2048 to 8192 bits, not {key.key_size}")
    return key


def _has_names(certificate: x509.Certificate) -> bool:
    try:
        return bool(list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value))
    except (x509.ExtensionNotFound, ValueError):
        return False


def _public_bytes(key: CertificatePublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
