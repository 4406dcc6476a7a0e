"""URLs (k8s.io/apiserver/pkg/cel/library/urls.go), as Go's net/url reads them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar
from urllib.parse import quote, unquote, unquote_plus

from rules_engine.language.cel.budget import CHARACTERS_PER_UNIT, Budget, EvaluationError
from rules_engine.language.cel.values.functions import Library, parse_test
from rules_engine.language.cel.values.types import BOOL, STRING, URL, Type, list_of, map_of

LIBRARY = Library()

PARSE_COST = 15
"""Units of parsing a URL, in addition to the units of its length: it is matched in parts."""

ESCAPED_CHARACTERS_PER_UNIT = 4
"""Characters of a path or query decoded for one unit of cost."""

PARAMETER_COST = 5
"""Units of a parameter of a query."""

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_HOST = re.compile(r"[a-zA-Z0-9\-._~!$&'()*+,;=:<>\"%\x80-\U0010ffff]*")
_USER = re.compile(r"[a-zA-Z0-9\-._:~!$&'()*+,;=%@]*")
_IPV6_HOST = re.compile(r"\[[^\[\]%]*(?:%25[^\[\]]*)?\]")
_PORT = re.compile(r"(?::[0-9]*)?")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_ASCII_ESCAPE = re.compile("%[0-7]")
"""Escapes of ASCII characters, which are invalid in a host (net/url, unescape: encodeHost)."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PATH_SAFE = "!$&'()*+,;=:@/[]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """Parts of a URL as written."""

    cel_type: ClassVar[Type] = URL
    scheme: str
    host: str
    path: str
    query: str

    @property
    def units(self) -> int:
        """Cost of a comparison."""
        return (len(self.host) + len(self.path) + len(self.query)) // CHARACTERS_PER_UNIT


def parse_url(text: str) -> Url:
    """Parse an absolute URL or an absolute path. Raises EvaluationError.

    As in Kubernetes, the text must pass url.ParseRequestURI, which has no fragments, and url.Parse, which has.
    """
    if not text or _CONTROL.search(text):
        raise EvaluationError("the string is not a URL")
    _split_url(text, request=True)
    without_fragment, _, fragment = text.partition("#")
    if _BAD_ESCAPE.search(fragment):
        raise EvaluationError("the string is not a URL: it has an invalid escape")
    return _split_url(without_fragment, request=False)


def _split_url(text: str, *, request: bool) -> Url:
    scheme, remainder = "", text
    match = _SCHEME.match(text)
    if match:
        scheme, remainder = match[1].lower(), text[match.end() :]
    elif ":" in text.split("/")[0]:
        raise EvaluationError("the string is not a URL: it has no scheme")
    remainder, _, query = remainder.partition("?")
    if not remainder.startswith("/"):
        if scheme:
            return Url(scheme=scheme, host="", path="", query=query)
        raise EvaluationError("the string is not a URL: it has neither a scheme nor an absolute path")
    host = ""
    if remainder.startswith("//") and (scheme or (not request and not remainder.startswith("///"))):
        authority, slash, path = remainder[2:].partition("/")
        host, remainder = _parse_host(authority), slash + path
    if _BAD_ESCAPE.search(remainder):
        raise EvaluationError("the string is not a URL: it has an invalid escape")
    return Url(scheme=scheme, host=host, path=remainder, query=query)


def _parse_host(authority: str) -> str:
    """Return host:port of user:password@host:port. Raises EvaluationError."""
    user, at, host = authority.rpartition("@")
    name, port = _name_and_port(host)
    bracketed = name.startswith("[")
    valid = (_IPV6_HOST if bracketed else _HOST).fullmatch(name) and _PORT.fullmatch(port)
    escaped = not bracketed and (_BAD_ESCAPE.search(name) or _ASCII_ESCAPE.search(name))
    if not valid or escaped or (at and not _USER.fullmatch(user)) or _BAD_ESCAPE.search(user):
        raise EvaluationError("the string is not a URL: its host is invalid")
    return unquote(name) + port


def _name_and_port(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, bracket, port = host.rpartition("]")
        return name + bracket, port
    name, colon, port = host.rpartition(":")
    return (name, colon + port) if colon else (host, "")


LIBRARY.function("url", STRING, gives=URL, cost=PARSE_COST)(parse_url)
LIBRARY.function("isURL", STRING, gives=BOOL, cost=PARSE_COST)(parse_test(parse_url))

LIBRARY.method("getScheme", URL, gives=STRING, constant=True)(attrgetter("scheme"))
LIBRARY.method("getHost", URL, gives=STRING, constant=True)(attrgetter("host"))


@LIBRARY.method("getHostname", URL, gives=STRING, budgeted=True)
def hostname(budget: Budget, value: Url) -> str:
    budget.spend(len(value.host) // CHARACTERS_PER_UNIT)
    name, _ = _name_and_port(value.host)
    return name.removeprefix("[").removesuffix("]")


@LIBRARY.method("getPort", URL, gives=STRING, budgeted=True)
def port(budget: Budget, value: Url) -> str:
    budget.spend(len(value.host) // CHARACTERS_PER_UNIT)
    _, port = _name_and_port(value.host)
    return port.removeprefix(":")


@LIBRARY.method("getEscapedPath", URL, gives=STRING, budgeted=True, cost=PARSE_COST)
def escaped_path(budget: Budget, value: Url) -> str:
    """Return the path as written if that is a valid encoding, else encode it again."""
    budget.spend(len(value.path) // ESCAPED_CHARACTERS_PER_UNIT)
    plain = unquote(value.path, errors="surrogateescape")
    if quote(value.path, safe=_PATH_SAFE + "%") == value.path:
        return value.path
    return quote(plain, safe="$&+,/:;=@", errors="surrogateescape")


@LIBRARY.method("getQuery", URL, gives=map_of(STRING, list_of(STRING)), budgeted=True)
def query(budget: Budget, value: Url) -> Mapping[str, list[str]]:
    """Return each key's values in order; parts with an invalid escape or a semicolon are omitted, as in Go."""
    parts = value.query.count("&") + 1
    budget.spend(parts * PARAMETER_COST + len(value.query) // ESCAPED_CHARACTERS_PER_UNIT)
    values: dict[str, list[str]] = {}
    for part in value.query.split("&"):
        if part and ";" not in part and not _BAD_ESCAPE.search(part):
            key, _, item = part.partition("=")
            values.setdefault(unquote_plus(key), []).append(unquote_plus(item))
    return values
