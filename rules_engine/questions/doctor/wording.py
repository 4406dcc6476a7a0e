"""Parts of the sentences of findings: points in time, quoted messages, and texts without names."""

import re
from collections.abc import Container
from datetime import datetime

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.source import truncate
from rules_engine.model.wording import format_time

MAX_QUOTED = 1_000
"""Characters quoted from a message of the API, more than the messages of Kubernetes' own components have."""

_VALUE = re.compile(r"(Invalid value|Unsupported value|Duplicate value): (?:\"(?:[^\"\\]|\\.)*\"|[^:]*)")


def since_clause(at: datetime | None) -> str:
    """Return a clause with a point in time, or "" without one."""
    return "" if at is None else f" since {format_time(at)}"


def quote_message(message: str) -> str:
    """Return a message of the API on one line, cut to MAX_QUOTED, without the values of fields that the API refused."""
    # Only the beginning is searched: the rest of a long message would be cut anyway.
    return truncate(" ".join(_VALUE.sub(r"\1", message[: 4 * MAX_QUOTED]).split()), MAX_QUOTED)


_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
"""A word with the characters of names (RFC 1123)."""

_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def without_names(text: str, about: ObjectName, others: Container[str] = (), placeholder: str = "\0") -> str:
    """Replace an object's name and namespace, other names and UIDs, so that texts about several objects are equal.

    Names of claims that begin or end with the pod's name are replaced as well.
    """
    is_pod = about.kind == "Pod"

    def replace_name(word: re.Match[str]) -> str:
        name = word[0]
        if name in (about.name, about.namespace) or name in others or _UID.fullmatch(name):
            return placeholder
        if is_pod and name.startswith(f"{about.name}-"):
            return placeholder
        if is_pod and name.endswith(f"-{about.name}"):
            return f"{name.removesuffix(about.name)}{placeholder}"
        return name

    return _WORD.sub(replace_name, text)
