"""Active rules at a server: their digest, compared with the digests of both sides of a diff."""

import re
from collections.abc import Mapping
from pathlib import Path
from ssl import SSLError, create_default_context
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rules_engine.difference.answer import ActiveRules, ActiveSide
from rules_engine.evaluation import RuleSet
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.kubernetes.native_objects import STAMPED_DIGITS
from rules_engine.model.problems.excerpt import escape_controls, truncate
from rules_engine.native.policy import translate_rules
from server.cluster.connection import ApiError, Connection, parse_object

if TYPE_CHECKING:
    from kubernetes.client import Configuration

MAX_RULES_BYTES = 4 * 1024 * 1024
"""Largest response of `GET /rules`: a server lists 1,000 rules, and as many problems of a refused set."""

_PATH = "/rules"

_DIGEST = re.compile(r"[0-9a-f]{64}")


class ActiveRulesError(Exception):
    """The active rules cannot be read; the message is one line."""


def read_active_rules(
    url: str, old: str, new: str, *, ca: Path | None, seconds: float, rule_sets: Mapping[str, RuleSet]
) -> ActiveRules:
    """Read the digest of the active rules with `GET /rules`. Raises ActiveRulesError.

    `old` and `new`: the digests of both sides. `ca`: a file with the CA that signed the server's certificate; by
    default, the system's CAs are trusted. No credentials are sent. `rule_sets`: the rules of both sides, by digest.
    """
    base = _server_url(url, ca)
    if ca is not None:
        _check_ca_file(ca)

    def configure(configuration: "Configuration") -> None:
        configuration.host = base
        configuration.ssl_ca_cert = None if ca is None else str(ca)

    try:
        body = Connection(configure).get(_PATH, {}, MAX_RULES_BYTES, seconds)
        response = parse_object(body, "the response")
        digest = response.get("digest")
    except ApiError as error:
        raise ActiveRulesError(f"{base}{_PATH}: {error}") from None
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ActiveRulesError(f"{base}{_PATH}: the response has no digest: is this a gpu-rules server?")
    stamp = text_member(as_mapping(response.get("native")), "active")
    is_native = stamp.startswith(f"{digest[:STAMPED_DIGITS]}.") and digest in rule_sets
    return ActiveRules(
        url=base,
        digest=digest,
        side=_active_side(digest, old, new),
        native=translate_rules(rule_sets[digest]).exported_ids if is_native else None,
    )


def _server_url(url: str, ca: Path | None) -> str:
    """Return a server's URL without its path `/rules`. Raises ActiveRulesError for a URL of another form."""
    shown = escape_controls(truncate(url))
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None or not parts.netloc.endswith(":")
    except ValueError as error:
        raise ActiveRulesError(f"{shown}: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ActiveRulesError("a URL with a user or a password is not accepted: GET /rules needs none")
    has_more = parts.query or parts.fragment or "?" in url or "#" in url or shown != url or " " in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port or has_more:
        raise ActiveRulesError(f"{shown}: not the URL of a server, such as http://localhost:9090")
    if ca is not None and parts.scheme == "http":
        raise ActiveRulesError(f"{shown}: a CA needs https")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(_PATH)}"


def _check_ca_file(ca: Path) -> None:
    """Raise ActiveRulesError if a file has no certificate: the HTTP client's error does not name the file."""
    try:
        create_default_context(cafile=ca)
    except SSLError:
        raise ActiveRulesError(f"{escape_controls(str(ca))}: no certificate in PEM format") from None
    except OSError as error:
        raise ActiveRulesError(f"{escape_controls(str(ca))}: {error.strerror}") from None


def _active_side(digest: str, old: str, new: str) -> ActiveSide:
    """Return the side, by its digest, that has the active rules."""
    if digest == old:
        return ActiveSide.BOTH if old == new else ActiveSide.OLD
    return ActiveSide.NEW if digest == new else ActiveSide.NEITHER
