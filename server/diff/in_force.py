"""Rules in force at a server: their digest, compared with the digests of both sides of a diff."""

import re
from pathlib import Path
from ssl import SSLError, create_default_context
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rules_engine.difference.answer import InForce, SideInForce
from rules_engine.model.problems.excerpt import escape_controls, truncate
from server.cluster.connection import ApiError, Connection, parse_object

if TYPE_CHECKING:
    from kubernetes.client import Configuration

MAX_RULES_BYTES = 4 * 1024 * 1024
"""Largest response of `GET /rules`: a server lists 1,000 rules, and as many problems of a refused set."""

_PATH = "/rules"

_DIGEST = re.compile(r"[0-9a-f]{64}")


class InForceError(Exception):
    """The rules in force cannot be read; the message is one line."""


def read_in_force(url: str, old: str, new: str, *, ca: Path | None, seconds: float) -> InForce:
    """Read the digest of the rules in force with `GET /rules`. Raises InForceError.

    `old` and `new`: the digests of both sides. `ca`: a file with the CA that signed the server's certificate; by
    default, the system's CAs are trusted. No credentials are sent.
    """
    base = _server_url(url, ca)
    if ca is not None:
        _check_ca_file(ca)

    def configure(configuration: "Configuration") -> None:
        configuration.host = base
        configuration.ssl_ca_cert = None if ca is None else str(ca)

    try:
        body = Connection(configure).get(_PATH, {}, MAX_RULES_BYTES, seconds)
        digest = parse_object(body, "the response").get("digest")
    except ApiError as error:
        raise InForceError(f"{base}{_PATH}: {error}") from None
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InForceError(f"{base}{_PATH}: the response has no digest: is this a gpu-rules server?")
    return InForce(url=base, digest=digest, side=_side_in_force(digest, old, new))


def _server_url(url: str, ca: Path | None) -> str:
    """Return a server's URL without its path `/rules`. Raises InForceError for a URL of another form."""
    shown = escape_controls(truncate(url))
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None or not parts.netloc.endswith(":")
    except ValueError as error:
        raise InForceError(f"{shown}: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise InForceError("a URL with a user or a password is not accepted: GET /rules needs none")
    has_more = parts.query or parts.fragment or "?" in url or "#" in url or shown != url or " " in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port or has_more:
        raise InForceError(f"{shown}: not the URL of a server, such as http://localhost:9090")
    if ca is not None and parts.scheme == "http":
        raise InForceError(f"{shown}: a CA needs https")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(_PATH)}"


def _check_ca_file(ca: Path) -> None:
    """Raise InForceError if a file has no certificate: the HTTP client's error does not name the file."""
    try:
        create_default_context(cafile=ca)
    except SSLError:
        raise InForceError(f"{escape_controls(str(ca))}: no certificate in PEM format") from None
    except OSError as error:
        raise InForceError(f"{escape_controls(str(ca))}: {error.strerror}") from None


def _side_in_force(digest: str, old: str, new: str) -> SideInForce:
    """Return the side, by its digest, that has the rules in force."""
    if digest == old:
        return SideInForce.BOTH if old == new else SideInForce.OLD
    return SideInForce.NEW if digest == new else SideInForce.NEITHER
