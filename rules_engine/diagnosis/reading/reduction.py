"""Objects of the API as JSON → their kept members, with equal values shared.

No function returns the value of an environment variable, or the annotation in which kubectl writes a whole object.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar, cast

from msgspec import MsgspecError, Raw, Struct, field
from msgspec.json import Decoder

from rules_engine.loading.json_items import ListError, TooDeepError, parse_lenient
from rules_engine.model.json.lenient import as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED, Kept, merge_fields

IDENTITY: Kept = {
    "kind": None,
    "metadata": {"name": None, "namespace": None, "uid": None, "resourceVersion": None, "creationTimestamp": None},
}
"""The members that are kept of every object."""

ENVIRONMENT = frozenset({"env", "envFrom"})
"""Members of a container. Only the names of variables are kept. Labels may have these keys, but are not lists."""

MAX_SHARED = 50_000
"""Cached values that objects share: thousands of pods have the same labels, tolerations and resources. The names and
times of some thousand objects, which differ, fill the cache, which is then cleared."""

MAX_SHARED_CHARACTERS = 4096
"""Longest text of a cached value."""


T = TypeVar("T")


class NotAnObjectError(ValueError):
    """A text that is not an object, or a page that is not a list of objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list. `next`: the token of the next page, or "" after the last one."""

    objects: tuple[T, ...]
    next: str
    resource_version: str


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    next: str = field(name="continue", default="")


class _List(Struct):
    items: list[Raw] | None = None
    metadata: _ListMeta = field(default_factory=_ListMeta)


class _TypeMeta(Struct, rename="camel"):
    api_version: str = ""


_list_decoder = Decoder(_List)
_type_decoder = Decoder(_TypeMeta)


class Reducer:
    """Reader of the kept members of the objects of a kind.

    Every object gets `kind`, which the items of some lists lack. Members whose type is not that of the API are kept:
    functions that read them ignore them.
    """

    def __init__(self, kind: str, kept: Kept) -> None:
        self.kind = kind
        self._kept = kept if kept is None else merge_fields(kept, IDENTITY)
        self._decoder: Decoder[Any] = Decoder(_members_type(self._kept, "Object"))
        self._shared: dict[bytes, Json] = {}

    def decode(self, encoded: str | Raw) -> dict[str, Json]:
        """Read the text of an object. Raises NotAnObjectError, TooDeepError and json.JSONDecodeError."""
        try:
            members = self._decoder.decode(encoded)
            if type(members) is Raw:
                return self.reduce(parse_lenient(members))
            self._settle(members)
        except MsgspecError:  # members of other types, halves of surrogate pairs
            return self.reduce(parse_lenient(encoded))
        except RecursionError:
            raise TooDeepError from None
        members["kind"] = self.kind
        return cast("dict[str, Json]", members)

    def reduce(self, value: Json) -> dict[str, Json]:
        """Reduce an object. Raises NotAnObjectError."""
        if not isinstance(value, dict):
            raise NotAnObjectError("not an object")
        members = cast("dict[str, Json]", _reduce_value(value, self._kept))
        members["kind"] = self.kind
        return members

    def read_page(self, body: bytes) -> Page[dict[str, Json]]:
        """Read a page of the live API. Raises NotAnObjectError."""
        return _page(body, self.decode)

    def _settle(self, members: dict[str, Any]) -> None:
        """Replace the raw JSON in the members of an object by its values."""
        for name, member in members.items():
            if type(member) is Raw:
                members[name] = self._value(name, bytes(member))
            elif type(member) is dict:
                self._settle(member)
            elif type(member) is list:
                for item in member:
                    self._settle(item)

    def _value(self, name: str, encoded: bytes) -> Json:
        if name in ENVIRONMENT:
            return _clean_member(name, parse_lenient(encoded))
        # `self` marks a value that is not cached, since None is a value.
        shared = self._shared.get(encoded, self)
        if shared is not self:
            return cast(Json, shared)
        value = _clean_value(parse_lenient(encoded))
        if len(encoded) <= MAX_SHARED_CHARACTERS:
            if len(self._shared) >= MAX_SHARED:
                self._shared.clear()
            self._shared[encoded] = value
        return value


def whole_objects(body: bytes, api_version: str, kind: str) -> Page[bytes]:
    """Read a page of the live API whose objects stay text, with their type. Raises NotAnObjectError."""
    head = f'{{"apiVersion": "{api_version}", "kind": "{kind}", '.encode()

    def complete(item: Raw) -> bytes:
        written = bytes(item)
        if not written.startswith(b'{"'):  # as the API server writes it: other members can be put before its own
            raise NotAnObjectError("not an object")
        # Only the items of custom resources have their type.
        return written if _type_decoder.decode(item).api_version else head + written[1:]

    return _page(body, complete)


def _page(body: bytes, decode: Callable[[Raw], T]) -> Page[T]:
    try:
        page = _list_decoder.decode(body)
        items = tuple(decode(item) for item in page.items or ())
    except (ValueError, RecursionError, ListError) as error:
        raise NotAnObjectError(str(error) or type(error).__name__) from None
    return Page(objects=items, next=page.metadata.next, resource_version=page.metadata.resource_version)


def type_meta_of(encoded: str) -> tuple[str, str]:
    """Return the API version and the kind of an object. Raises json.JSONDecodeError and TooDeepError."""
    members = as_mapping(parse_lenient(encoded))
    return text_member(members, "apiVersion"), text_member(members, "kind")


def _members_type(kept: Kept, name: str) -> Any:
    """Return a type with the members to keep, each as raw JSON."""
    if kept is None:
        return Raw
    members = {
        member: Raw if nested is None or member in ENVIRONMENT else _nested_type(nested, f"{name}_{index}")
        for index, (member, nested) in enumerate(kept.items())
        if member != LAST_APPLIED
    }
    return TypedDict(name, members, total=False)  # type: ignore[operator]


def _nested_type(kept: Kept, name: str) -> Any:
    shape = _members_type(kept, name)
    return shape | list[shape] | None  # type: ignore[valid-type]


def _reduce_value(value: Json, kept: Kept) -> Json:
    if kept is None:
        return _clean_value(value)
    if isinstance(value, dict):
        return {
            name: _clean_member(name, member) if name in ENVIRONMENT else _reduce_value(member, kept[name])
            for name, member in value.items()
            if name in kept and name != LAST_APPLIED
        }
    if isinstance(value, list):
        return [_reduce_value(item, kept) for item in value if isinstance(item, dict)]
    return value


def _clean_value(value: Json) -> Json:
    """Return a whole value without the members that are never kept."""
    if isinstance(value, dict):
        return {name: _clean_member(name, member) for name, member in value.items() if name != LAST_APPLIED}
    return [_clean_value(item) for item in value] if isinstance(value, list) else value


def _clean_member(name: str, value: Json) -> Json:
    if name in ENVIRONMENT and isinstance(value, list):
        return [{"name": text_member(variable, "name")} for variable in object_items(value) if "name" in variable]
    return _clean_value(value)
