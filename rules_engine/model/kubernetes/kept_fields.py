"""Members of an object that are kept when it is read; all others are left out."""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import TypeAlias

from rules_engine.model.json.patch import Json

Kept: TypeAlias = "Mapping[str, Kept] | None"
"""The members that are kept, each with those below it; None keeps a whole value. The items of a list are kept alike."""

NOTHING: Kept = {}

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl apply writes a whole object, with its environment. It is never kept."""


def merged(one: Kept, other: Kept) -> Kept:
    """Return the members that one of the two keeps."""
    if one is None or other is None:
        return None
    return {
        name: merged(one[name], other[name]) if name in one and name in other else one.get(name, other.get(name))
        for name in {**one, **other}
    }


def all_kept(*kept: Mapping[str, Kept]) -> Mapping[str, Kept]:
    """Return all members that are kept by one of these, by kind."""
    kinds = dict.fromkeys(kind for each in kept for kind in each)
    return {kind: reduce(merged, [each[kind] for each in kept if kind in each]) for kind in kinds}


def at(path: Iterable[str], kept: Kept = None) -> Kept:
    """Return the members below a path of members."""
    for name in reversed([*path]):
        kept = {name: kept}
    return kept


def keeps(kept: Kept, *path: str) -> bool:
    """Return True if what is at a path is kept, or a part of it."""
    for name in path:
        if kept is None:
            return True
        if name not in kept:
            return False
        kept = kept[name]
    return True


def missing(kept: Kept, other: Kept) -> Iterator[tuple[str, ...]]:
    """Yield the paths of what another keeps and this does not."""
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
    """Return the kept members of a value, which are not copied."""
    if kept is None:
        return value
    if isinstance(value, dict):
        found: dict[str, Json] = {}
        for name, below in kept.items():
            if name in value:
                found[name] = value[name] if below is None else reduced(value[name], below)
        return found
    if isinstance(value, list):
        return [reduced(item, kept) for item in value]
    return value
