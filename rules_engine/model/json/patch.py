"""JSON Patch (RFC 6902) and JSON Pointer (RFC 6901)."""

from typing import TypeAlias

from rules_engine.model.record import record

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON value. Nobody changes one that came from outside: changed copies share what did not change."""


@record()
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
