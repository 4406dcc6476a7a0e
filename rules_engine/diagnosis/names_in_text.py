"""Texts about objects without the names of the objects."""

import re
from collections.abc import Container

from rules_engine.model.kubernetes.names import ObjectName

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
