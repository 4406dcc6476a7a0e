"""Parts of the sentences of findings: lists of names, points in time, and commands."""

import re
from collections.abc import Container, Sequence
from datetime import datetime
from shlex import quote

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.wording import time

MAX_NAMES = 5
"""Names in one sentence: enough to begin with, few enough to read."""

MAX_QUOTED = 1_000
"""Characters of a message of the API that is quoted: longer than the messages of Kubernetes' own components."""

_VALUE = re.compile(r"(Invalid value|Unsupported value|Duplicate value): (?:\"(?:[^\"\\]|\\.)*\"|[^:]*)")


def listed(names: Sequence[str], *, of: int | None = None) -> str:
    """Return names in a sentence; beyond MAX_NAMES, or the names given, the others of `of` are counted."""
    shown = names[:MAX_NAMES]
    more = (len(names) if of is None else of) - len(shown)
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def since(at: datetime | None) -> str:
    """Return a clause with a point in time, or "" without one."""
    return "" if at is None else f" since {time(at)}"


def command(*words: str) -> str:
    """Return a line for a shell; names from the API are quoted where a shell would read them otherwise."""
    return " ".join(map(quote, words))


def quoted(message: str) -> str:
    """Return a message of the API on one line, cut, and without the values of fields that it refuses."""
    return truncate(" ".join(_VALUE.sub(r"\1", message[: 4 * MAX_QUOTED]).split()), MAX_QUOTED)


_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
"""A word with the characters of names (RFC 1123)."""

_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def without_names(text: str, about: ObjectName, others: Container[str] = (), placeholder: str = "\0") -> str:
    """Replace the name and the namespace of an object, other names and UIDs, so that texts about several are equal."""

    def replaced(word: re.Match[str]) -> str:
        name = word[0]
        named = name in (about.name, about.namespace) or name in others or _UID.fullmatch(name)
        return placeholder if named else name

    return _WORD.sub(replaced, text)
