"""Fields of objects to keep when they are read; all others are dropped to save memory."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json

Kept: TypeAlias = "Mapping[str, Kept] | None"
"""The members to keep, each with its own members to keep; None keeps a whole value. List items are treated alike."""

NO_FIELDS: Kept = {}

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl apply stores a whole object, environment variables included. It is never kept."""

RESERVATION = "gpurules.io/reservation"
"""Annotation of a pod: the id of its reservation between /mutate and /validate. Decisions neither read nor write it."""


def merge_fields(first: Kept, second: Kept) -> Kept:
    """Return the members that either keeps."""
    if first is None or second is None:
        return None
    members = {**first, **second}
    return {
        name: merge_fields(first[name], second[name]) if name in first and name in second else members[name]
        for name in members
    }


def keep_at(path: Iterable[str], kept: Kept = None) -> Kept:
    """Return the path of members that ends in `kept`."""
    for name in reversed([*path]):
        kept = {name: kept}
    return kept


def keeps_path(kept: Kept, *path: str) -> bool:
    """Return True if the value at a path is kept, wholly or in part."""
    for name in path:
        if kept is None:
            return True
        if name not in kept:
            return False
        kept = kept[name]
    return True


def reduce_value(value: Json, kept: Kept) -> Json:
    """Return a value with the members to keep; {} if it should have members and is no object."""
    if kept is None:
        return value
    members = as_mapping(value)
    return {name: reduce_value(members[name], below) for name, below in kept.items() if name in members}
