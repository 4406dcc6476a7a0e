"""JSON Patch, applied by RFC 6902 and as by kube-apiserver's library, and the smallest patch between two documents.

The library (evanphx/json-patch, version 4, as vendored by Kubernetes) differs from the RFC: `replace` adds a missing
member. It refuses a missing or null parent, and `remove` of a missing member.
"""

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import jsonpatch

from rules_engine.model.json.patch import Json, PatchOperation, json_pointer


class PatchRefusedError(Exception):
    """The API server would refuse the patch, and with it the request."""


def operations(patch: Iterable[Mapping[str, Any]]) -> tuple[PatchOperation, ...]:
    """Return a patch of add, remove and replace from its JSON."""
    return tuple(PatchOperation(member["op"], member["path"], member.get("value")) for member in patch)


def apply_json(document: Any, patch: Iterable[Mapping[str, Any]]) -> Any:
    """Return the document after a patch in JSON. Asserts that the RFC and the API server's library agree."""
    read = operations(patch)
    result: Any = apply_as_api_server(document, read)
    assert same(result, apply_strictly(document, read))
    return result


def apply_strictly(document: Json, patch: tuple[PatchOperation, ...]) -> Json:
    """Return the document after the patch. Raises as apply_rfc_6902."""
    result: Json = apply_rfc_6902(document, [operation.to_json() for operation in patch])
    return result


def apply_rfc_6902(document: Json, patch: Iterable[Mapping[str, Any]]) -> Any:
    """Return the document after any operations of the RFC. Raises an exception of jsonpatch where it forbids one."""
    return jsonpatch.apply_patch(copy.deepcopy(document), copy.deepcopy(list(patch)), in_place=False)


def apply_as_api_server(document: Json, patch: tuple[PatchOperation, ...]) -> Json:
    """Return the document after the patch. Raises PatchRefusedError."""
    result: Any = copy.deepcopy(document)
    for operation in patch:
        if operation.path == "" and operation.op == "replace" and isinstance(operation.value, dict | list):
            result = copy.deepcopy(operation.value)
            continue
        parents, _, last = operation.path.rpartition("/")
        parent = _find(result, parents.split("/")[1:], operation)
        key = unescape(last)
        if isinstance(parent, list):
            _apply_to_list(parent, key, operation)
        else:
            _apply_to_object(parent, key, operation)
    return result  # type: ignore[no-any-return]


def unescape(token: str) -> str:
    """Return the member name of a reference token of a JSON Pointer (RFC 6901, section 4)."""
    return token.replace("~1", "/").replace("~0", "~")


def resolve(document: Any, pointer: str) -> Any:
    """Return the value at a JSON Pointer. Raises KeyError or IndexError."""
    for token in pointer.split("/")[1:]:
        document = document[int(token)] if isinstance(document, list) else document[unescape(token)]
    return document


def diff(before: Json, after: Json, whole: Collection[str] = ()) -> tuple[PatchOperation, ...]:
    """Return the fewest operations that turn `before` into `after`, members in order of name.

    An absent or null member is written as a whole with `add`. Only items that are appended depend on each other.
    `whole`: pointers of lists whose items are replaced as wholes.
    """
    found: list[PatchOperation] = []
    _diff(before, after, "", found, whole)
    return tuple(found)


def _diff(before: Json, after: Json, path: str, found: list[PatchOperation], whole: Collection[str]) -> None:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        _members(before, after, path, found, whole)
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=False)):
            if path not in whole:
                _diff(old, new, f"{path}/{index}", found, whole)
            elif not same(old, new):
                found.append(PatchOperation("replace", f"{path}/{index}", new))
        found += [PatchOperation("add", f"{path}/-", item) for item in after[len(before) :]]
    elif not same(before, after):
        found.append(PatchOperation("replace", path, after))


def _members(
    before: Mapping[str, Json],
    after: Mapping[str, Json],
    path: str,
    found: list[PatchOperation],
    whole: Collection[str],
) -> None:
    changed = [key for key, value in after.items() if before.get(key, _ABSENT) is not value]
    for key in sorted([*changed, *(before.keys() - after.keys())]):
        here = f"{path}/{key}" if key.isalnum() else path + json_pointer(key)
        if key not in after:
            found.append(PatchOperation("remove", here))
        elif before.get(key) is None and after[key] is not None:
            found.append(PatchOperation("add", here, after[key]))
        elif key not in before:
            found.append(PatchOperation("add", here, None))
        else:
            _diff(before[key], after[key], here, found, whole)


_ABSENT = object()


def same(left: Json, right: Json) -> bool:
    """Return True if two JSON values are equal; unlike in Python, `true` does not equal 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _find(document: Any, tokens: list[str], operation: PatchOperation) -> Any:
    for token in tokens:
        try:
            document = resolve(document, f"/{token}")
        except (KeyError, IndexError, ValueError):
            document = None
        if not isinstance(document, dict | list):
            raise PatchRefusedError(f"doc is missing path: {operation.path}")
    return document


def _apply_to_object(members: dict[str, Any], key: str, operation: PatchOperation) -> None:
    match operation.op:
        case "add" | "replace":
            members[key] = copy.deepcopy(operation.value)
        case "remove" if key in members:
            del members[key]
        case _:
            raise PatchRefusedError(f"cannot {operation.op} {operation.path}")


def _apply_to_list(items: list[Any], key: str, operation: PatchOperation) -> None:
    index = len(items) if key == "-" and operation.op == "add" else int(key)
    match operation.op:
        case "add" if 0 <= index <= len(items):
            items.insert(index, copy.deepcopy(operation.value))
        case "replace" if 0 <= index < len(items):
            items[index] = copy.deepcopy(operation.value)
        case "remove" if 0 <= index < len(items):
            del items[index]
        case _:
            raise PatchRefusedError(f"cannot {operation.op} {operation.path}")
