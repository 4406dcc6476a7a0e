"""Members of objects that expressions read: the results of the expressions depend on no others.

An expression is evaluated on places: a variable, and the members selected from it. How much of a value is read depends
on its use. Selecting a member reads nothing itself; a macro over a list reads its length; has() and a comparison with a
constant read the presence of an object; everything else reads the whole value. So the analysis may find too many
members, and never too few.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from rules_engine.language.cel.check.checker import Checked
from rules_engine.language.cel.check.environment import VARIABLES
from rules_engine.language.cel.syntax import tree
from rules_engine.language.cel.values.types import DYN, ObjectType, Type, list_of
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, Kept, keep_at, merge_fields


@dataclass(frozen=True, slots=True)
class ReadPath:
    """A value, by its type: the members at `path` of a variable, or of objects of a kind, or a list of such values.

    Lists are not part of the path: a read of one item counts as a read of every item.
    """

    root: str
    type: Type
    path: tuple[str, ...] = ()


ReadPaths: TypeAlias = frozenset[ReadPath]
_NONE: ReadPaths = frozenset()
_VariableReads: TypeAlias = Mapping[str, ReadPaths]
"""The variables of the macros around an expression."""


class Reads:
    """Collector of the members that expressions read.

    `roots`: the variables whose members are of interest. `variables`: the document's variables by full name; each may
    read earlier ones. `methods`: results of functions of objects that read more than the expression shows.
    """

    def __init__(
        self,
        roots: Mapping[str, ReadPath],
        variables: Mapping[str, Checked],
        params: Mapping[str, Json],
        methods: Mapping[str, ReadPath | None] = MappingProxyType({}),
    ) -> None:
        self.kept: dict[str, Kept] = {}
        """The members that are read, by the roots of the places."""
        self.called: set[str] = set()
        """The methods that are called."""
        self._roots = roots
        self._variables = variables
        self._params = params
        self._methods = methods
        self._cached: dict[str, ReadPaths] = {}

    def add(self, checked: Checked) -> None:
        """Add the members that an expression reads, including its value."""
        self._read(self._value_places(checked, checked.expression, {}))

    def _read(self, places: ReadPaths, kept: Kept = None) -> ReadPaths:
        """Add members of values; all by default."""
        for place in places:
            self.kept[place.root] = merge_fields(self.kept.get(place.root, NO_FIELDS), keep_at(place.path, kept))
        return _NONE

    def _read_presence(self, places: ReadPaths) -> ReadPaths:
        """Add the presence of values, and the lengths of lists. The presence of a map is its member ""."""
        for place in places:
            kind = place.type
            while kind.name == "list":
                (kind,) = kind.parameters
            present: Kept = {} if isinstance(kind, ObjectType) else {"": None} if kind.name == "map" else None
            self._read(frozenset({place}), present)
        return _NONE

    def _reference_places(self, reference: object) -> ReadPaths:
        """Return the places of a variable of the environment. A use of `variables` itself reads all of them."""
        if reference == VARIABLES:
            for path in self._variables:
                self._read(self._reference_places(path))
        elif isinstance(reference, str) and reference in self._roots:
            return frozenset({self._roots[reference]})
        elif isinstance(reference, str) and reference in self._variables:
            if reference not in self._cached:
                checked = self._variables[reference]
                self._cached[reference] = self._value_places(checked, checked.expression, {})
            return self._cached[reference]
        return _NONE

    def _value_places(self, checked: Checked, node: tree.Expression, scope: _VariableReads) -> ReadPaths:  # noqa: C901 - a case for each kind
        """Return the places of a value. A computed value has none: the values that it is computed from are read."""

        def places(part: tree.Expression, inner: _VariableReads = scope) -> ReadPaths:
            return self._value_places(checked, part, inner)

        reference = checked.references.get(node)
        if reference is not None:
            return self._reference_places(reference)
        match node:
            case tree.Name(name=name):
                return scope[name]
            case tree.Select(operand=operand, field=field):
                return self._members(places(operand), field)
            case tree.Has(select=tree.Select(operand=operand, field=field)):
                return self._read_presence(self._members(places(operand), field))
            case tree.Index(operand=operand, key=key):
                constant = self._constant_text(checked, key)
                if constant is not None and checked.references.get(operand) == VARIABLES:
                    return self._reference_places(f"{VARIABLES}.{constant}")
                if constant is not None:
                    return self._members(places(operand), constant)
                self._read(places(key))
                return self._items(places(operand))
            case tree.Binary(operator="in", left=left, right=right) if constant := self._constant_text(checked, left):
                return self._read_presence(self._members(places(right), constant))  # a list is read as a whole
            case tree.Binary(operator="==" | "!=", left=tree.Literal(), right=value):
                return self._read_presence(places(value))
            case tree.Binary(operator="==" | "!=", left=value, right=tree.Literal()):
                return self._read_presence(places(value))
            case tree.Binary(operator="+", left=left, right=right):
                operands = places(left) | places(right)
                lists = all(place.type.name == "list" for place in operands)
                return operands if lists else self._read(operands)
            case tree.Logic():
                for part in _without_guards(node):
                    self._read(places(part))
                return _NONE
            case tree.Conditional(condition=condition, then=then, otherwise=otherwise):
                self._read(places(condition))
                return places(then) | places(otherwise)
            case tree.ListLiteral(elements=elements):
                each = (place for element in elements for place in places(element.value))
                return frozenset(replace(place, type=list_of(place.type)) for place in each)
            case tree.Comprehension():
                return self._macro(checked, node, scope)
            case tree.Bind(name=name, value=value, body=body) | tree.OptionalMap(target=value, name=name, body=body):
                bound = places(value)
                self._read_presence(bound)  # also if the body does not name it
                return places(body, {**scope, name: bound})
            case tree.Call(target=target) if target is not None and node not in checked.namespaced:
                return self._method(node, places(target), [places(argument) for argument in node.arguments])
            case tree.Call(function=name, arguments=arguments, target=target):
                return self._function(name, target, [places(argument) for argument in arguments])
        for part in tree.child_nodes(node):
            self._read(places(part))
        return _NONE

    def _constant_text(self, checked: Checked, node: tree.Expression) -> str | None:
        """Return the value of a string literal or of a string parameter, else None."""
        value: object = node.value if isinstance(node, tree.Literal) else None
        if isinstance(node, tree.Select) and checked.references.get(node.operand) == "params":
            value = self._params.get(node.field)
        return value if isinstance(value, str) else None

    def _members(self, places: ReadPaths, field: str) -> ReadPaths:
        return frozenset(member for place in places for member in self._member(place, field))

    def _member(self, place: ReadPath, field: str) -> Iterator[ReadPath]:
        if place.type.name == "list":
            self._read(frozenset({place}))
            return
        kind = DYN
        if isinstance(place.type, ObjectType):
            kind = place.type.fields.get(field, DYN)
        elif place.type.name == "map":
            kind = place.type.parameters[1]
        yield ReadPath(place.root, kind, (*place.path, field))

    def _items(self, places: ReadPaths) -> ReadPaths:
        """Return the items of lists. Maps are read as a whole, since the key is computed."""
        lists = frozenset(place for place in places if place.type.name == "list")
        self._read(places - lists)
        self._read_presence(lists)
        return frozenset(replace(place, type=place.type.parameters[0]) for place in lists)

    def _macro(self, checked: Checked, node: tree.Comprehension, scope: _VariableReads) -> ReadPaths:
        target = self._value_places(checked, node.target, scope)
        item = self._items(target)
        names = {node.first: item} if node.second is None else {node.first: _NONE, node.second: item}
        inner = {**scope, **names}
        if node.condition is not None:
            self._read(self._value_places(checked, node.condition, inner))
        body = self._value_places(checked, node.body, inner)
        if node.fold in (tree.Fold.MAP, tree.Fold.TRANSFORM_LIST):
            return frozenset(replace(place, type=list_of(place.type)) for place in body)
        self._read(body)
        if node.fold in (tree.Fold.FILTER, tree.Fold.SORT_BY):
            return frozenset(place for place in target if place.type.name == "list")
        return _NONE

    def _function(self, name: str, target: tree.Expression | None, arguments: list[ReadPaths]) -> ReadPaths:
        if name in ("of", "unwrap") and target is not None and tree.as_qualified_name(target) == "optional":
            return arguments[0]
        if name == "size":
            self._items(arguments[0])
            return _NONE
        return self._read_all(arguments)

    def _method(self, node: tree.Call, places: ReadPaths, arguments: list[ReadPaths]) -> ReadPaths:
        name = node.function
        if name in self._methods:
            self.called.add(name)
            self._read_all(arguments)
            result = self._methods[name]
            return _NONE if result is None else frozenset({result})
        match name:
            case "value" | "unwrapOpt":
                return places
            case "or" | "orValue":
                return places | arguments[0]
            case "first" | "last":
                return self._items(places)
            case "size":
                self._items(places)
                return _NONE
            case "hasValue":
                return self._read_presence(places)
        return self._read_all([places, *arguments])

    def _read_all(self, each: Iterable[ReadPaths]) -> ReadPaths:
        for places in each:
            self._read(places)
        return _NONE


def _without_guards(chain: tree.Logic) -> Iterator[tree.Expression]:
    """Yield the operands without has(m) beside `'key' in m` or has(m.key), and without !has(m) beside their negations.

    A map that comes to be, without the key, changes nothing: one operand decides the chain before and after.
    """
    tests: list[tree.Expression] = []
    for part in chain.operands:
        negated = isinstance(part, tree.Unary) and part.operator == "!"
        test = part.operand if isinstance(part, tree.Unary) and negated else part
        tests.append(test if negated == (chain.operator == "||") else chain)
    tested = {_path(test.right) for test in tests if isinstance(test, tree.Binary) and test.operator == "in"}
    tested |= {_path(test.select.operand) for test in tests if isinstance(test, tree.Has)}
    for part, test in zip(chain.operands, tests, strict=True):
        if not (isinstance(test, tree.Has) and _path(test.select) and _path(test.select) in tested):
            yield part


def _path(node: tree.Expression) -> str:
    """Return the text of a name or of members of one; "" for another expression."""
    if isinstance(node, tree.Select) and not node.optional and (operand := _path(node.operand)):
        return f"{operand}.{node.field}"
    return node.name if isinstance(node, tree.Name) else ""
