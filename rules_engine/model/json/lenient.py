"""JSON read leniently: a value that is absent or of the wrong type is empty; texts are decoded as Go decodes them.

Use these readers for values that the API server wrote, and for fields of a request that are only logged. For fields
that decisions depend on, use rules_engine.model.json.strict.
"""

import json
import re
from collections.abc import Mapping
from typing import cast

from msgspec import MsgspecError, Raw
from msgspec.json import Decoder

from rules_engine.model.json.patch import Json

Object = Mapping[str, Json]

MAX_OWNERS = 100
"""Owner references that are read: an object has one or two, and its controller comes first."""


def as_mapping(value: Json) -> Object:
    """Return an object's members; of any other value, none."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return a list's items; of any other value, none."""
    return value if isinstance(value, list) else []


def object_items(value: Json) -> list[Object]:
    """Return the items of a list that are objects."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def text_member(value: Object, name: str) -> str:
    """Return a member that is a string, else ""."""
    member = value.get(name)
    return member if isinstance(member, str) else ""


def integer_member(value: Object, name: str, default: int = 0) -> int:
    """Return a member that is an integer of 64 bits, as all counts of the API are, or a default."""
    member = value.get(name)
    if isinstance(member, int) and not isinstance(member, bool) and -(2**63) <= member < 2**63:
        return member
    return default


def as_string_map(value: Json) -> dict[str, str]:
    """Return the members of an object that are strings, as all labels are."""
    return {key: member for key, member in as_mapping(value).items() if isinstance(member, str)}


def without_nulls(value: Json) -> Json:
    """Return a value without members that are null, which the API server takes for absent ones."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def controller_reference(value: Json) -> Object | None:
    """Return an object's owner reference to its controller, of which it has one at most (meta/v1, OwnerReference).

    Only the first MAX_OWNERS references are read.
    """
    references = as_list(as_mapping(as_mapping(value).get("metadata")).get("ownerReferences"))
    for reference in object_items(references[:MAX_OWNERS]):
        if reference.get("controller") is True:
            return reference
    return None


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which the escapes of JSON can have, and UTF-8 can not."""

_decode = Decoder(float_hook=str).decode  # quantities keep their text


def decode_lenient(text: str | bytes | Raw) -> Json:
    """Return the value of a text. Raises ValueError (json.JSONDecodeError is one) and RecursionError."""
    try:
        return cast(Json, _decode(text))
    except MsgspecError:  # halves of surrogate pairs
        return _replace_surrogates(json.loads(bytes(text) if isinstance(text, Raw) else text, parse_float=str))


def _replace_surrogates(value: Json) -> Json:
    """Return a value whose texts UTF-8 can encode."""
    if isinstance(value, dict):
        return {str(_replace_surrogates(name)): _replace_surrogates(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    return _LONE_SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value
