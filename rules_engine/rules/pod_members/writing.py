"""Writer of members into a pod: it compares them with the pod's own, and collects the edits."""

import json
from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from rules_engine.language.cel.budget import CHARACTERS_PER_UNIT
from rules_engine.model.json.edits import Edits, JsonText, patch_bytes
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath, read_list, read_mapping
from rules_engine.model.kubernetes import shapes
from rules_engine.model.kubernetes.api_defaults import with_default_members
from rules_engine.model.kubernetes.devices import Spend
from rules_engine.model.kubernetes.quantity import QuantityError, parse_quantity
from rules_engine.rules.pod_members.value import Form, PodField

REPLACED_BY_CLASS = ("priority", "preemptionPolicy")
"""Members that the plugin Priority computes from the class, and compares when it runs again: a value of another class
would make it refuse the pod (kubernetes, plugin/pkg/admission/priority)."""

UNITS_PER_ITEM, UNITS_PER_COMPARISON = 8, 50
"""Cost of an item of a list, such as a toleration, and of a comparison of two small items: so many µs."""

_ListPath: TypeAlias = tuple[JsonPath, str]
"""A list: the path of its container, () for the pod's, and its field."""


class Present(Enum):
    """The pod's own value beside a member's: none, an equal one, or another one."""

    ABSENT = "absent"
    EQUAL = "equal"
    OTHER = "other"


class MemberWriter:
    """Members of one pod, as it is and with the members written so far. `where`: the path of a container; () the pod's.

    `spend` is called with the cost of reading a list. Raises PodError for a malformed pod, and what `spend` raises.
    `bytes`: an upper estimate of the patch.
    """

    def __init__(self, pod: Mapping[str, Json], spend: Spend = lambda _: None) -> None:
        self.pod = pod
        self.bytes = 0
        self._spend = spend
        self._items: dict[_ListPath, list[Json]] = {}
        self._places: dict[_ListPath, dict[str, int]] = {}
        self._changed: dict[_ListPath, JsonPath] = {}
        """The lists with written items, and the path of the object that each is in."""
        self._edits: dict[JsonPath, dict[str, str | None]] = {}

    def detach(self, spend: Spend) -> None:
        """Share nothing that is written from now on with the writer of which this one is a copy."""
        self._spend = spend
        self._items = {at: [*items] for at, items in self._items.items()}
        self._places = {at: {**places} for at, places in self._places.items()}
        self._changed = {**self._changed}
        self._edits = {path: {**members} for path, members in self._edits.items()}

    @property
    def edits(self) -> Edits:
        """The edits of the pod by all members written."""
        edits = {path: dict(members) for path, members in self._edits.items()}
        for (where, name), parent in self._changed.items():
            edits.setdefault(parent, {})[name] = JsonText.of(self._items[where, name])
        return edits

    def value(self, field: PodField, name: str, where: JsonPath = ()) -> Json:
        """Return the pod's own value, an item with the same identity for a list; None if it has none."""
        if field.form is Form.LIST:
            items = self._list(field, where)
            place = self._places[where, field.name].get(name)
            return None if place is None else items[place]
        path, key = (field.path, name) if field.form is Form.MAP else (field.parent, field.name)
        written = self._edits.get(path, {}).get(key)
        return self._at(path).get(key) if written is None else written

    def compare(self, field: PodField, name: str, value: Json, where: JsonPath = ()) -> Present:
        """Return whether the pod has a value, up to the API server's defaults."""
        own = self.value(field, name, where)
        if own is None or (own == "" and field.form is Form.SCALAR):
            return Present.ABSENT
        if own == value or (field.form is Form.LIST and not field.key):
            return Present.EQUAL
        if field.form is not Form.LIST:
            return Present.OTHER
        self._spend(UNITS_PER_COMPARISON + len(JsonText.of(own)) // CHARACTERS_PER_UNIT)
        return Present.EQUAL if _stored(field, own) == _stored(field, value) else Present.OTHER

    def write(self, field: PodField, name: str, value: Json, where: JsonPath = ()) -> None:
        """Write a member in place of the pod's own, or at the end of a list."""
        self.bytes += patch_bytes({(*where, *field.path): {name: JsonText.of(value)}})
        if field.form is Form.MAP:
            self._edits.setdefault(field.path, {})[name] = str(value)
        elif field.form is Form.SCALAR:
            edits = self._edits.setdefault(field.parent, {})
            edits[field.name] = str(value)
            if field.name == "priorityClassName":
                edits.update(dict.fromkeys(REPLACED_BY_CLASS))
        else:
            items = self._list(field, where)
            place = self._places[where, field.name].setdefault(name, len(items))
            items[place : place + 1] = [_canonical(value, field.shape)]
            self._changed[where, field.name] = (*where, *field.parent)

    def _list(self, field: PodField, where: JsonPath) -> list[Json]:
        at = where, field.name
        if at not in self._items:
            parent = (*where, *field.parent)
            items = self._items[at] = [*read_list(self._at(parent).get(field.name), (*parent, field.name))]
            self._spend(len(items) * UNITS_PER_ITEM)
            names = [identity_of(field, item) for item in items]
            # Of equal names, which the API server allows for variables, the last counts (as in kubelet and runtimes).
            self._places[at] = {name: place for place, name in enumerate(names)}
        return self._items[at]

    def _at(self, path: JsonPath) -> Mapping[str, Json]:
        value: Json = {**self.pod}
        for depth, key in enumerate(path):
            here = path[:depth]
            value = read_list(value, here)[key] if isinstance(key, int) else read_mapping(value, here).get(key)
        return read_mapping(value, path)


def identity_of(field: PodField, item: Json) -> str:
    """Return what identifies an item among others of its list: two items of one identity exclude each other."""
    if not field.key:
        # Without an operator, it is Equal.
        return json.dumps({"operator": "Equal", **as_mapping(_canonical(item, field.shape))}, sort_keys=True)
    name = as_mapping(item).get(field.key)
    text = name if isinstance(name, str) else json.dumps(name)
    return text.rstrip("/") or text if field.key == "mountPath" else text


def _stored(field: PodField, item: Json) -> Json:
    """Return an item as the API server would store it."""
    owner: Json = {field.name: [item]}
    pod: Json = {"spec": {"containers": [owner]} if field.in_container else owner}
    spec = as_mapping(as_mapping(with_default_members(pod)).get("spec"))
    if field.in_container:
        spec = as_mapping(read_list(spec.get("containers"), ())[0])
    stored = as_mapping(_canonical(read_list(spec.get(field.name), ())[0], field.shape))
    # Another spelling of a path is no other value.
    return {**stored, field.key: identity_of(field, item)}


def _canonical(value: Json, shape: str) -> Json:
    """Return a value without members that the API server omits, and with canonical quantities."""
    if isinstance(value, list) and shape.startswith("["):
        return [_canonical(item, shape[1:-1]) for item in value]
    if isinstance(value, dict) and shape.startswith("{"):
        return {name: _canonical(item, shape[1:-1]) for name, item in value.items()}
    if isinstance(value, dict) and shape[0].isupper():
        types = shapes.field_types(shape)
        members = {name: _canonical(item, types.get(name, "any")) for name, item in value.items()}
        return {name: item for name, item in members.items() if not (item is None or item is False or item == "")}
    if shape == "quantity" and isinstance(value, str):
        try:
            return str(parse_quantity(value))
        except QuantityError:
            return value
    return value
