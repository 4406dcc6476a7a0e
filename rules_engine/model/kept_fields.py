"""Members of an object that are kept when it is read; all others are left out."""

from collections.abc import Mapping
from typing import TypeAlias

Kept: TypeAlias = "Mapping[str, Kept] | None"
"""The members that are kept, each with those below it; None keeps a whole value. The items of a list are kept alike."""


def merged(one: Kept, other: Kept) -> Kept:
    """Return the members that one of the two keeps."""
    if one is None or other is None:
        return None
    return {
        name: merged(one[name], other[name]) if name in one and name in other else one.get(name, other.get(name))
        for name in {**one, **other}
    }
