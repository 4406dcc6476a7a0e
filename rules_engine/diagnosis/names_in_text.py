"""Texts about objects, compared without the names of the objects."""

import re
from collections.abc import Iterable

from rules_engine.model.finding import ObjectName

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
"""A word with the characters of names (RFC 1123)."""

_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_PLACEHOLDER = "\0"


def without_names(text: str, about: ObjectName, others: Iterable[str] = ()) -> str:
    """Replace the name and the namespace of an object, other names and UIDs, so that texts about several are equal."""
    names = {about.name, about.namespace, *others}
    return _WORD.sub(lambda word: _PLACEHOLDER if word[0] in names or _UID.fullmatch(word[0]) else word[0], text)
