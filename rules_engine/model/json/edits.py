"""Edits of a pod by rules, the edited pod, and its JSON Patch (RFC 6902)."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from json import dumps, loads
from typing import TypeAlias, cast

from rules_engine.model.json.patch import Json, PatchOperation, json_pointer
from rules_engine.model.json.strict import JsonPath

Edits: TypeAlias = Mapping[JsonPath, Mapping[str, str | None]]
"""The values to set in an object, by its path: strings, or other values as JsonText; None removes a member. Missing
objects on the path are created, missing lists are not; no edit replaces the object of another."""


class JsonText(str):
    """The JSON text of a list or an object to set. It is a string so that edits are hashable."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Json) -> "JsonText":
        return cls(dumps(value, ensure_ascii=False, separators=(",", ":")))


def _value_of(edit: str) -> Json:
    """Return the value that an edit sets."""
    value: Json = loads(edit) if isinstance(edit, JsonText) else edit
    return value


def merge_edits(edits: Edits, later: Edits) -> Edits:
    """Return edits with the effect of `edits`, then `later`.

    An object that would be created for members that `later` removes is not created.
    """
    if not edits or not later:
        return edits or later
    return {**edits, **{path: {**edits.get(path, {}), **members} for path, members in later.items()}}


def apply_edits(raw: Json, edits: Edits) -> Json:
    """Return an edited copy. Unchanged parts are shared; without changes, it is `raw` itself."""
    tree: _EditTree = {}
    for path, members in edits.items():
        branch = tree
        for key in path:
            branch = cast(_EditTree, branch.setdefault(key, {}))
        branch.update(members)
    return _apply_tree(raw, tree) if tree else raw


_EditTree: TypeAlias = "dict[str | int, _EditTree | str | None]"
"""Edits as a tree: each object or list is copied once, however many of its leaves change."""


def _apply_tree(node: Json, edits: _EditTree) -> Json:
    if isinstance(node, list):
        copy: list[Json] = list(node)
        for key, edit in edits.items():
            index = cast(int, key)
            copy[index] = _apply_tree(node[index], cast(_EditTree, edit))
        return node if copy == node else copy
    before = node if isinstance(node, dict) else {}
    members = dict(before)
    for key, edit in edits.items():
        name = cast(str, key)
        if edit is None:
            members.pop(name, None)
        elif isinstance(edit, str):
            members[name] = _value_of(edit)
        elif (inner := _apply_tree(members.get(name), edit)) is not None:
            members[name] = inner
    return node if members == before else members


OPERATION_BYTES = 48
"""Bytes of an operation without names and value: punctuation, the longest op, and an index in its path."""
OBJECT_BYTES = len('"": {}')
"""Bytes of an object that an operation creates, without its name; one that exists takes a slash of the path."""


def patch_bytes(edits: Edits) -> int:
    """Return an upper estimate of the bytes of the JSON Patch, without JSON's escapes in texts."""
    total = 0
    texts: list[str] = []
    for path, members in edits.items():
        total += len(members) * (OPERATION_BYTES + _path_bytes(path))
        texts += members
        texts += filter(None, members.values())
    return total + _utf8_bytes("".join(texts))


@lru_cache(maxsize=4096)  # as for `_cached_pointer`
def _path_bytes(path: JsonPath) -> int:
    return sum(_utf8_bytes(key) + OBJECT_BYTES for key in path if type(key) is str)


def _utf8_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def patch_operations(raw: Json, edits: Edits) -> tuple[PatchOperation, ...]:
    """Return the fewest operations that make the edits, in order of object, then of member.

    A member that is absent or null is added as a whole, so that missing parents are created with it. Only items that
    are appended to one list depend on each other. The patch applies under RFC 6902 and under the API server's library.
    """
    operations: list[PatchOperation] = []
    created: dict[JsonPath, dict[str, Json]] = {}
    for path in sorted(edits):
        node = raw
        for depth, key in enumerate(path, start=1):
            parent = cast("dict[str | int, Json]", node)
            node = parent.get(key) if isinstance(parent, dict) else parent[key]
            if node is None:
                _create_object(
                    path[:depth], path[depth:], edits[path], created, operations, item=isinstance(parent, list)
                )
                break
        else:
            _edit_object(cast("dict[str, Json]", node), _cached_pointer(path), edits[path], operations)
    return tuple(operations)


def _create_object(
    at: JsonPath,
    below: JsonPath,
    members: Mapping[str, str | None],
    created: dict[JsonPath, dict[str, Json]],
    operations: list[PatchOperation],
    *,
    item: bool,
) -> None:
    """Create a missing object with the objects in it; several edits may share it."""
    values = {name: _value_of(text) for name, text in members.items() if text is not None}
    if not values:
        return
    inner = created.get(at)
    if inner is None:
        inner = created[at] = {}
        operations.append(PatchOperation("replace" if item else "add", _cached_pointer(at), inner))
    for key in below:
        inner = cast("dict[str, Json]", inner.setdefault(cast(str, key), {}))
    inner.update(values)


def _edit_object(
    node: Mapping[str, Json], at: str, members: Mapping[str, str | None], operations: list[PatchOperation]
) -> None:
    for name in sorted(members):
        text, present = members[name], node.get(name)
        if text is None:
            if name in node:
                operations.append(PatchOperation("remove", at + _cached_pointer((name,))))
        elif present is None:
            operations.append(PatchOperation("add", at + _cached_pointer((name,)), _value_of(text)))
        elif present != (value := _value_of(text)):
            operations += _replacement(present, at + _cached_pointer((name,)), value)


def _replacement(present: Json, at: str, value: Json) -> Iterator[PatchOperation]:
    """Yield the operations that replace a value; of a list that does not get shorter, only the items that differ."""
    if not (isinstance(present, list) and isinstance(value, list) and len(value) >= len(present)):
        yield PatchOperation("replace", at, value)
        return
    for index, (own, item) in enumerate(zip(present, value, strict=False)):
        if own != item:
            yield PatchOperation("replace", f"{at}/{index}", item)
    for item in value[len(present) :]:
        yield PatchOperation("add", f"{at}/-", item)


@lru_cache(maxsize=4096)  # the same few places in every pod; the bound keeps hostile variety from growing it
def _cached_pointer(path: JsonPath) -> str:
    return json_pointer(*path)
