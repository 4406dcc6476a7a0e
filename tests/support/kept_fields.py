"""Differences of fields to keep."""

from collections.abc import Iterator

from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, Kept


def missing_paths(kept: Kept, other: Kept) -> Iterator[tuple[str, ...]]:
    """Yield the paths that `other` keeps and `kept` does not."""
    if kept is None:
        return
    if other is None:
        yield ()
        return
    for name, below in sorted(other.items()):
        if name in kept or below:
            yield from ((name, *path) for path in missing_paths(kept.get(name, NO_FIELDS), below))
        else:
            yield (name,)
