"""Rules in force at a server: their digest, compared with those of the two sides of a diff."""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from ssl import SSLError, create_default_context
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rules_engine.model.excerpt import truncate, visible
from server.cluster.connection import ApiError, Connection, parse_object

if TYPE_CHECKING:
    from kubernetes.client import Configuration

IN_FORCE_SECONDS = 30.0
"""Timeout of `GET /rules`: a busy server answers it within a second."""

MAX_RULES_BYTES = 4 * 1024 * 1024
"""Largest response of `GET /rules`: a server lists 1,000 rules, and as many problems of a refused set."""

_PATH = "/rules"

_DIGEST = re.compile(r"[0-9a-f]{64}")

_SHOWN_DIGEST = 12
"""Digits of a digest in a sentence, as in the server's log."""


class InForceError(Exception):
    """The rules in force cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The rules in force at a server: its URL, and their digest."""

    url: str
    digest: str


class Side(Enum):
    """The side of a diff that has the rules in force."""

    OLD = "old"
    NEW = "new"
    BOTH = "both"
    NEITHER = "neither"


def read_in_force(url: str, ca: Path | None = None, seconds: float = IN_FORCE_SECONDS) -> InForce:
    """Read the digest of the rules in force with `GET /rules`. Raises InForceError.

    `ca` is a file with the CA that signed the server's certificate; by default, those of the system are trusted.
    No credentials are sent.
    """
    base = _base(url, ca)
    if ca is not None:
        _check(ca)

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
    return InForce(base, digest)


def _base(url: str, ca: Path | None) -> str:
    """Return a server's URL without its path `/rules`. Raises InForceError for a URL of another form."""
    shown = visible(truncate(url))
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None or not parts.netloc.endswith(":")
    except ValueError as error:
        raise InForceError(f"{shown}: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise InForceError("a URL with a user or a password is not accepted: GET /rules needs none")
    others = parts.query or parts.fragment or "?" in url or "#" in url or shown != url or " " in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port or others:
        raise InForceError(f"{shown}: not the URL of a server, such as http://localhost:9090")
    if ca is not None and parts.scheme == "http":
        raise InForceError(f"{shown}: a CA needs https")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(_PATH)}"


def _check(ca: Path) -> None:
    """Raise InForceError if a file has no certificate: what the HTTP client raises does not name the file."""
    try:
        create_default_context(cafile=ca)
    except SSLError:
        raise InForceError(f"{visible(str(ca))}: no certificate in PEM format") from None
    except OSError as error:
        raise InForceError(f"{visible(str(ca))}: {error.strerror}") from None


def side_in_force(found: InForce, old: str, new: str) -> Side:
    """Return the side, by its digest, that has the rules in force."""
    if found.digest == old:
        return Side.BOTH if old == new else Side.OLD
    return Side.NEW if found.digest == new else Side.NEITHER


def sentence(found: InForce, side: Side) -> str:
    """Return a sentence on the rules in force, for a person."""
    which = {
        Side.OLD: "are those of --old",
        Side.NEW: "are those of --new already",
        Side.BOTH: "are those of --old and --new, which are equal",
        Side.NEITHER: f"have digest {found.digest[:_SHOWN_DIGEST]}: they are neither those of --old nor those of --new",
    }
    return f"the rules in force at {found.url} {which[side]}"
