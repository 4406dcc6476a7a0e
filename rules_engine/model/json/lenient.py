"""Reading JSON leniently: what is absent, or of another type than it should be, is empty.

This is for what the API server wrote, and for what is only told of a request. For what people and requests bring to be
decided on, see rules_engine.model.json.strict.
"""

from collections.abc import Mapping

from rules_engine.model.json.patch import Json

Object = Mapping[str, Json]


MAX_OWNERS = 100
"""Owner references that are looked at: an object has one or two, and its controller is the first one."""


def mapping(value: Json) -> Object:
    """An object's members."""
    return value if isinstance(value, dict) else {}


def items(value: Json) -> list[Json]:
    """A list's items."""
    return value if isinstance(value, list) else []


def objects(value: Json) -> list[Object]:
    """Those of a list's items that are objects."""
    return [item for item in items(value) if isinstance(item, dict)]


def text(value: Object, name: str) -> str:
    """A member that is a string."""
    found = value.get(name)
    return found if isinstance(found, str) else ""


def strings(value: Json) -> dict[str, str]:
    """Those of an object's members that are strings, as all labels are."""
    return {key: member for key, member in mapping(value).items() if isinstance(member, str)}


def controller(value: Json) -> Object | None:
    """The reference to the controller that an object belongs to: it has one at most (meta/v1, OwnerReference).

    It is found among the first MAX_OWNERS references.
    """
    references = items(mapping(mapping(value).get("metadata")).get("ownerReferences"))
    for reference in objects(references[:MAX_OWNERS]):
        if reference.get("controller") is True:
            return reference
    return None
