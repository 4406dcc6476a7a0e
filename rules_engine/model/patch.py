"""JSON Patch (RFC 6902) and JSON Pointer (RFC 6901): the smallest patch from one JSON value to another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON value. Nobody changes one that came from outside: changed copies share what did not change."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a patch: `op` is add, remove or replace; `value` is None for remove."""

    op: str
    path: str
    value: Json = None

    def to_json(self) -> dict[str, Json]:
        """The operation as RFC 6902 writes it."""
        if self.op == "remove":
            return {"op": self.op, "path": self.path}
        return {"op": self.op, "path": self.path, "value": self.value}


def pointer(*keys: str | int) -> str:
    """Join keys into a JSON Pointer; "~" is escaped before "/" (RFC 6901, section 3)."""
    return "".join(["/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys])


def diff(before: Json, after: Json) -> tuple[Operation, ...]:
    """The operations that turn `before` into `after`, members in order of name.

    A member that is absent, or null, is written with `add`, whole, so that parents come into being with it; no
    operation depends on another. This applies under RFC 6902 and under the API server's library alike. What both
    values share by identity is not looked at.
    """
    found: list[Operation] = []
    _diff(before, after, "", found)
    return tuple(found)


def _diff(before: Json, after: Json, path: str, found: list[Operation]) -> None:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        _members(before, after, path, found)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            _diff(old, new, f"{path}/{index}", found)
    elif not same(before, after):
        found.append(Operation("replace", path, after))


def _members(before: Mapping[str, Json], after: Mapping[str, Json], path: str, found: list[Operation]) -> None:
    changed = [key for key, value in after.items() if before.get(key, _ABSENT) is not value]
    for key in sorted([*changed, *(before.keys() - after.keys())]):
        here = f"{path}/{key}" if key.isalnum() else path + pointer(key)
        if key not in after:
            found.append(Operation("remove", here))
        elif before.get(key) is None and after[key] is not None:
            found.append(Operation("add", here, after[key]))
        elif key not in before:
            found.append(Operation("add", here, None))
        else:
            _diff(before[key], after[key], here, found)


_ABSENT = object()


def same(left: Json, right: Json) -> bool:
    """JSON equality: unlike Python's, `true` is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and left == right
