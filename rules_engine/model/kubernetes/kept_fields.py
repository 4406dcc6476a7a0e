"""Fields of objects to keep when they are read; all others are dropped to save memory."""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import TypeAlias

from rules_engine.model.json.patch import Json

Kept: TypeAlias = "Mapping[str, Kept] | None"
"""The members to keep, each with its own members to keep; None keeps a whole value. List items are treated alike."""

NOTHING: Kept = {}

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl apply stores a whole object, environment variables included. It is never kept."""


def merged(first: Kept, second: Kept) -> Kept:
    """Return the members that either keeps."""
    if first is None or second is None:
        return None
    members = {**first, **second}
    return {
        name: merged(first[name], second[name]) if name in first and name in second else members[name]
        for name in members
    }


def all_kept(*kept: Mapping[str, Kept]) -> Mapping[str, Kept]:
    """Merge mappings from a kind of object to the members to keep."""
    kinds = dict.fromkeys(kind for by_kind in kept for kind in by_kind)
    return {kind: reduce(merged, [by_kind[kind] for by_kind in kept if kind in by_kind]) for kind in kinds}


def at(path: Iterable[str], kept: Kept = None) -> Kept:
    """Return the path of members that ends in `kept`."""
    for name in reversed([*path]):
        kept = {name: kept}
    return kept


def keeps(kept: Kept, *path: str) -> bool:
    """Return True if the value at a path is kept, wholly or in part."""
    for name in path:
        if kept is None:
            return True
        if name not in kept:
            return False
        kept = kept[name]
    return True


def missing(kept: Kept, other: Kept) -> Iterator[tuple[str, ...]]:
    """Yield the paths that `other` keeps and `kept` does not."""
    if kept is None:
        return
    if other is None:
        yield ()
        return
    for name, below in sorted(other.items()):
        if name in kept or below:
            yield from ((name, *path) for path in missing(kept.get(name, NOTHING), below))
        else:
            yield (name,)


def reduced(value: Json, kept: Kept) -> Json:
    """Return a value with the members to keep. Members that are kept whole are shared, not copied."""
    if kept is None:
        return value
    if isinstance(value, dict):
        members: dict[str, Json] = {}
        for name, below in kept.items():
            if name in value:
                members[name] = value[name] if below is None else reduced(value[name], below)
        return members
    if isinstance(value, list):
        return [reduced(item, kept) for item in value]
    return value
