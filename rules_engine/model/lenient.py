"""Reading JSON that the API server wrote: what is absent, or of another type than it should be, is empty.

For what people and requests bring, see rules_engine.model.reading.
"""

from collections.abc import Mapping

from rules_engine.model.patch import Json

Object = Mapping[str, Json]


def mapping(value: Json) -> Object:
    """An object's members."""
    return value if isinstance(value, dict) else {}


def objects(value: Json) -> list[Object]:
    """Those of a list's items that are objects."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Object, name: str) -> str:
    """A member that is a string."""
    found = value.get(name)
    return found if isinstance(found, str) else ""


def strings(value: Json) -> dict[str, str]:
    """Those of an object's members that are strings, as all labels are."""
    return {key: member for key, member in mapping(value).items() if isinstance(member, str)}
