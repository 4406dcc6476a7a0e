"""JSON Patch (RFC 6902) and JSON Pointer (RFC 6901)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON value. Input is never changed: changed copies share the unchanged parts."""

EMPTY: Mapping[str, str] = MappingProxyType({})
"""The default of mappings without members."""


class PatchOperation(Struct, frozen=True):
    """One operation of a patch: `op` is add, remove or replace; `value` is None for remove."""

    op: str
    path: str
    value: Json = None

    def to_json(self) -> dict[str, Json]:
        """Return the operation in the format of RFC 6902."""
        if self.op == "remove":
            return {"op": self.op, "path": self.path}
        return {"op": self.op, "path": self.path, "value": self.value}


def json_pointer(*keys: str | int) -> str:
    """Join keys into a JSON Pointer; "~" is escaped before "/" (RFC 6901, section 3)."""
    return "".join(["/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys])
