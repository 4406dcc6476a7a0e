"""Fields of objects that the expressions of a Diagnostic read; no others are kept when objects are read.

An expression is evaluated on places: an object, or a list of objects, of one kind, and the members selected from it.
What is done with a value decides how much of it is kept. Selecting a member keeps nothing itself; a macro over a list
keeps its length; everything else keeps the whole value. So the analysis may keep too much, and never too little.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rules_engine.cel import Program, Type
from rules_engine.cel.check.checker import Checked
from rules_engine.cel.check.environment import VARIABLES
from rules_engine.cel.syntax.tree import (
    Binary,
    Bind,
    Call,
    Comprehension,
    Conditional,
    Expression,
    Fold,
    Has,
    Index,
    ListLiteral,
    Literal,
    Name,
    OptionalMap,
    Select,
    children,
    qualified,
)
from rules_engine.cel.values import types
from rules_engine.cel.values.types import ObjectType
from rules_engine.evaluation.context import NamedProgram
from rules_engine.kinds.diagnostic.types import LISTS
from rules_engine.kinds.diagnostic.value import ForEach
from rules_engine.model.kept_fields import Kept, merged
from rules_engine.scheduling import FIELDS_READ as SCHEDULED

_SHAPES: Mapping[str, ObjectType] = {item.name: item for item in LISTS.values()}

NAMES: Kept = {"metadata": {"name": None, "namespace": None}}
"""Members of every object that is read: its name is that of a finding, and how it is found from others."""

_CONTAINER: Kept = {"restartPolicy": None, "resources": {"requests": None, "limits": None}}
_BOUND: Kept = {"spec": {"nodeName": None}, "status": {"phase": None}}
_AMOUNTS: Mapping[str, Kept] = {
    "Node": {"status": {"allocatable": None}},
    "Pod": merged(
        _BOUND,
        {"spec": {"containers": _CONTAINER, "initContainers": _CONTAINER, "overhead": None, "resources": None}},
    ),
}
_EVENTS: Mapping[str, Kept] = {
    "Event": {"involvedObject": {"kind": None, "namespace": None, "name": None, "uid": None}}
}

_METHODS: Mapping[str, Mapping[str, Kept]] = {
    "allocatable": _AMOUNTS,
    "allocated": _AMOUNTS,
    "available": _AMOUNTS,
    "total": _AMOUNTS,
    "events": _EVENTS,
    "node": {"Node": {}, "Pod": {"spec": {"nodeName": None}}},
    "pods": {"Pod": merged(_BOUND, {"metadata": {"ownerReferences": None}})},
    "waitingFor": SCHEDULED,
}
"""Members that the functions of objects read, by the names of the functions."""

_DISPENSABLE = ("waitingFor", "Namespace")
"""A function that is evaluated without objects of a kind all the same: few pods select namespaces by their labels."""

_FOUND: Mapping[str, tuple[str, int]] = {"events": ("Event", 1), "node": ("Node", 0), "pods": ("Pod", 1)}
"""Functions that return objects: their kind, and 1 for a list of them."""

_CLUSTER = ""
"""The kind of the place of `cluster`."""


@dataclass(frozen=True, slots=True)
class Place:
    """A value in objects of a kind: the members at `path` of each, in lists that are `depth` deep around it.

    Lists on the way are not part of the path: their items are kept alike.
    """

    kind: str
    path: tuple[str, ...] = ()
    depth: int = 0


Places: TypeAlias = frozenset[Place]
_NONE: Places = frozenset()


@dataclass(frozen=True, slots=True)
class FieldsRead:
    """The members that expressions read, by the kind of the objects, and the kinds without which they have no value."""

    kept: Mapping[str, Kept]
    needs: frozenset[str]


def fields_read(for_each: ForEach, variables: Mapping[str, NamedProgram], programs: Iterable[Program]) -> FieldsRead:
    """Return what expressions read, with the variables that they name."""
    reader = _Reader(for_each, variables)
    for program in programs:
        reader.consume(program.checked, program.checked.expression)
    return FieldsRead(reader.kept, frozenset(reader.needs))


class _Reader:
    """Reader of the expressions of one Diagnostic."""

    def __init__(self, for_each: ForEach, variables: Mapping[str, NamedProgram]) -> None:
        self.kept: dict[str, Kept] = {}
        self.needs: set[str] = set()
        self._object = Place(_CLUSTER if for_each is ForEach.CLUSTER else for_each.value)
        self._variables = variables
        self._known: dict[str, Places] = {}
        if self._object.kind:
            self._keep(self._object.kind, {})

    def consume(self, checked: Checked, node: Expression) -> None:
        """Keep all that the value of an expression is computed from, and the value as a whole."""
        for place in _Expression(self, checked).places(node, {}):
            self.keep(place)

    def keep(self, place: Place, kept: Kept = None) -> None:
        """Keep the members of the value at a place: all by default."""
        if place.kind == _CLUSTER:
            for kind in _SHAPES:
                self._keep(kind, kept)
            return
        for name in reversed(place.path):
            kept = {name: kept}
        self._keep(place.kind, kept)

    def keep_presence(self, place: Place) -> None:
        """Keep that a value is present, and how many items it has if it is a list."""
        if place.kind == _CLUSTER:
            return  # it always is
        found = _type_at(place)
        self.keep(place, {} if isinstance(found, ObjectType) or found.name == "map" else None)

    def keep_for(self, method: str) -> None:
        """Keep the members that a function reads."""
        for kind, kept in _METHODS[method].items():
            self._keep(kind, kept, needed=(method, kind) != _DISPENSABLE)

    def named(self, reference: object) -> Places:
        """Return the places of a variable of the environment; `variables` as a whole is kept."""
        if reference == "object":
            return frozenset({self._object})
        if reference == "cluster":
            return frozenset({Place(_CLUSTER)})
        if reference == VARIABLES:
            for path in self._variables:
                for place in self.named(path):
                    self.keep(place)
            return _NONE
        if not isinstance(reference, str) or reference not in self._variables:
            return _NONE  # params, now and constants
        if reference not in self._known:
            checked = self._variables[reference].program.checked
            self._known[reference] = _Expression(self, checked).places(checked.expression, {})
        return self._known[reference]

    def _keep(self, kind: str, kept: Kept, *, needed: bool = True) -> None:
        if needed:
            self.needs.add(kind)
        self.kept[kind] = merged(self.kept.get(kind, NAMES), kept)


_Scope: TypeAlias = Mapping[str, Places]
"""The variables of the macros around an expression."""


class _Expression:
    """The places of the values in one expression."""

    def __init__(self, reader: _Reader, checked: Checked) -> None:
        self._reader = reader
        self._checked = checked

    def places(self, node: Expression, scope: _Scope) -> Places:  # noqa: C901 - a line for each kind of node
        """Return the places of a value, and keep what it is computed from; a computed value has none."""
        reference = self._checked.references.get(node)
        if reference is not None:
            return self._reader.named(reference)
        match node:
            case Name(name=name):
                return scope[name]
            case Select(operand=operand, field=field):
                return self._members(self.places(operand, scope), field)
            case Has(select=Select(operand=operand, field=field)):
                return self._touched(self._members(self.places(operand, scope), field))
            case Index(operand=operand, key=key):
                return self._elements(operand, key, scope)
            case Call():
                return self._call(node, scope)
            case Binary(operator="+", left=left, right=right):
                return self._together((left, right), scope)
            case Conditional(condition=condition, then=then, otherwise=otherwise):
                self._consume((condition,), scope)
                return self.places(then, scope) | self.places(otherwise, scope)
            case ListLiteral(elements=elements):
                found = self._together([element.value for element in elements], scope)
                return frozenset(replace(place, depth=place.depth + 1) for place in found)
            case Comprehension():
                return self._macro(node, scope)
            case Bind(name=name, value=value, body=body):
                return self._bound(name, value, body, scope)
            case OptionalMap(target=target, name=name, body=body):
                return self._bound(name, target, body, scope)
        self._consume(children(node), scope)
        return _NONE

    def _bound(self, name: str, value: Expression, body: Expression, scope: _Scope) -> Places:
        """Return the places of a body with a variable, whose value counts even if the body does not name it."""
        found = self.places(value, scope)
        self._touched(found)
        return self.places(body, {**scope, name: found})

    def _consume(self, nodes: Iterable[Expression], scope: _Scope) -> None:
        for node in nodes:
            self._kept(self.places(node, scope))

    def _kept(self, places: Places) -> Places:
        for place in places:
            self._reader.keep(place)
        return _NONE

    def _touched(self, places: Places) -> Places:
        for place in places:
            self._reader.keep_presence(place)
        return _NONE

    def _together(self, nodes: Sequence[Expression], scope: _Scope) -> Places:
        """Return the places of all values if they are lists of one depth, or none; else keep them."""
        each = [self.places(node, scope) for node in nodes]
        found = frozenset().union(*each)
        if len({place.depth for place in found}) > 1 or any(not place.depth for place in found):
            return self._kept(found)
        return found

    def _members(self, places: Places, field: str) -> Places:
        return frozenset(found for place in places for found in self._member(place, field))

    def _member(self, place: Place, field: str) -> Iterator[Place]:
        if place.kind == _CLUSTER:
            self._reader.keep(Place(LISTS[field].name), {})
            yield Place(LISTS[field].name, (), 1)
        elif place.depth:
            self._reader.keep(place)
        else:
            found = Place(place.kind, (*place.path, field))
            yield replace(found, depth=_lists_at(found))

    def _elements(self, operand: Expression, key: Expression, scope: _Scope) -> Places:
        places = self.places(operand, scope)
        if isinstance(key, Literal) and isinstance(key.value, str):
            return self._members(places, key.value)
        self._consume((key,), scope)
        return self._items(places)

    def _items(self, places: Places) -> Places:
        """Return the items of lists; the members of maps are kept, since their names are computed."""
        self._kept(frozenset(place for place in places if not place.depth))
        lists = frozenset(place for place in places if place.depth)
        self._touched(lists)
        return frozenset(replace(place, depth=place.depth - 1) for place in lists)

    def _macro(self, node: Comprehension, scope: _Scope) -> Places:
        target = self.places(node.target, scope)
        item = self._items(target)
        names = {node.first: item} if node.second is None else {node.first: _NONE, node.second: item}
        inner = {**scope, **names}
        if node.condition is not None:
            self._consume((node.condition,), inner)
        if node.fold in (Fold.MAP, Fold.TRANSFORM_LIST):
            found = self.places(node.body, inner)
            return frozenset(replace(place, depth=place.depth + 1) for place in found)
        self._consume((node.body,), inner)
        if node.fold in (Fold.FILTER, Fold.SORT_BY):
            return frozenset(place for place in target if place.depth)
        return _NONE

    def _call(self, node: Call, scope: _Scope) -> Places:
        name, target = node.function, None if node in self._checked.namespaced else node.target
        if target is None:
            if name in ("of", "unwrap") and node.target is not None and qualified(node.target) == "optional":
                return self.places(node.arguments[0], scope)
            if name == "size":
                return self._counted(self.places(node.arguments[0], scope))
            self._consume(node.arguments, scope)
            return _NONE
        places = self.places(target, scope)
        if name in _METHODS:
            self._consume(node.arguments, scope)
            self._reader.keep_for(name)
            return frozenset({Place(_FOUND[name][0], (), _FOUND[name][1])} if name in _FOUND else ())
        match name:
            case "value" | "unwrapOpt":
                return places
            case "or" | "orValue":
                return places | self.places(node.arguments[0], scope)
            case "first" | "last":
                return self._items(places)
            case "size":
                return self._counted(places)
            case "hasValue":
                return self._touched(places)
        self._kept(places)
        self._consume(node.arguments, scope)
        return _NONE

    def _counted(self, places: Places) -> Places:
        """Keep the lengths of lists, and maps and texts as a whole."""
        self._items(places)
        return _NONE


def _type_at(place: Place) -> Type:
    """Return the type of a place's innermost value; dyn if it is not known."""
    found: Type = _SHAPES[place.kind]
    for name in place.path:
        found = found.fields.get(name, types.DYN) if isinstance(found, ObjectType) else _below(found)
        while found.name == "list":
            found = found.parameters[0]
    return found


def _below(found: Type) -> Type:
    return found.parameters[1] if found.name == "map" else types.DYN


def _lists_at(place: Place) -> int:
    """Return 1 for a member that is a list: no object of Kubernetes has a list of lists."""
    above = _type_at(replace(place, path=place.path[:-1]))
    found = above.fields.get(place.path[-1], types.DYN) if isinstance(above, ObjectType) else _below(above)
    return int(found.name == "list")
