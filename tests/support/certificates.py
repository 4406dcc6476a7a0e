"""Certificates signed by CAs of a test."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rules_engine.server.tls.identity import Identity

Key: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

DAY = timedelta(days=1)

GARBAGE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
"""PEM block that holds no certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """Certificate, as PEM, and its key."""

    name: str
    certificate: bytes
    key: Key

    @property
    def private(self) -> bytes:
        """The key as PEM."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def identity(self, *others: bytes, client_ca: bytes | None = None) -> Identity:
        """Return an identity whose chain has these other certificates too."""
        chain = b"".join((self.certificate, *others))
        return Identity(certificate=chain, key=self.private, client_ca=client_ca, not_after=datetime.now(UTC) + DAY)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write certificate and key as files."""
        folder.mkdir(exist_ok=True)
        files = folder / f"{self.name}.crt", folder / f"{self.name}.key"
        files[0].write_bytes(self.certificate)
        files[1].write_bytes(self.private)
        return files


def certified(
    name: str,
    by: Certified | None = None,
    *,
    key: Key | None = None,
    ca: bool = False,
    begin: datetime | None = None,
    end: datetime | None = None,
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
) -> Certified:
    """Issue a certificate for localhost, signed by another one or itself. `usage`: unless it is a CA."""
    now = datetime.now(UTC)
    own = key or ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(name if by is None else by.name))
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin or now - 2 * DAY)
        .not_valid_after(end or now + 2 * DAY)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if not ca:
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    signer = own if by is None else by.key
    signed = builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else SHA256())
    return Certified(name=name, certificate=signed.public_bytes(Encoding.PEM), key=own)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
