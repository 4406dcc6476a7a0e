"""Parts of a pod that expressions read and that are recorded with care: members of containers, and what may be secret.

An expression's value may hold a pod, containers, environment variables or annotations. What is selected from them by a
constant name is known; whatever else an expression does with one of them counts as reading all of it.
"""

from collections.abc import Iterable, Mapping
from enum import Flag, auto
from functools import reduce
from operator import or_

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
    MapLiteral,
    Name,
    OptionalMap,
    Select,
    children,
)
from rules_engine.model.json.patch import Json

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation with the whole manifest of an object, as kubectl applied it."""


class Holds(Flag):
    """Values that may hold what is recorded with care: maps with all of a pod, lists of containers, and so on."""

    NOTHING = 0
    POD = auto()
    METADATA = auto()
    ANNOTATIONS = auto()
    CONTAINERS = auto()
    CONTAINER = auto()
    ENVIRONMENT = auto()
    VARIABLE = auto()


ANYTHING = ~Holds.NOTHING
_LISTS = {Holds.CONTAINERS: Holds.CONTAINER, Holds.ENVIRONMENT: Holds.VARIABLE}
_SAME = frozenset({"dyn", "of", "ofNonZeroValue", "or", "orValue", "reverse", "slice", "unwrap", "unwrapOpt", "value"})
"""Functions that read nothing of their arguments, and whose value is one of them, perhaps in another order."""

_ELEMENT = frozenset({"first", "last"})
_READS_NOTHING = frozenset({"hasValue", "none", "type"})
_TESTS = frozenset({Fold.ALL, Fold.EXISTS, Fold.EXISTS_ONE})
_SAME_ELEMENTS = frozenset({Fold.FILTER, Fold.SORT_BY})

Scope = Mapping[str, Holds]
"""Values by the names of variables: `variables.NAME` for those of the rule, NAME for those of macros."""


class PodReads:
    """The reads of expressions.

    `members`: names of the members of containers that are read; None: all. `environment` and `last_applied`: values of
    environment variables, and the last applied configuration, may be read.
    """

    def __init__(self) -> None:
        self.environment = False
        self.last_applied = False
        self._members: set[str] = set()
        self._whole = False

    @property
    def members(self) -> frozenset[str] | None:
        return None if self._whole else frozenset(self._members)

    def add(self, expression: Expression, variables: Scope, params: Mapping[str, Json]) -> Holds:
        """Add the reads of an expression of a rule with these variables and params; return what its value may hold."""
        return _Walk(self, variables, params).value(expression, {})

    def read_member(self, held: Holds, name: str) -> Holds:
        """Add the read of a member with a constant name, and return what it may hold."""
        found = ANYTHING if held == ANYTHING else Holds.NOTHING
        if Holds.POD in held:
            found |= _OF_POD.get(name, Holds.NOTHING)
        if Holds.METADATA in held and name == "annotations":
            found |= Holds.ANNOTATIONS
        if Holds.ANNOTATIONS in held and name == LAST_APPLIED:
            self.last_applied = True
        if Holds.CONTAINER in held:
            self._members.add(name)
            if name == "env":
                found |= Holds.ENVIRONMENT
        if Holds.VARIABLE in held and name == "value":
            self.environment = True
        return found

    def read_all(self, held: Holds) -> None:
        """Add the read of a whole value, with all that is below it."""
        self.read_names(held)
        if held & (Holds.POD | Holds.CONTAINERS):
            self.read_names(ANYTHING if Holds.POD in held else Holds.CONTAINER)
        if held & (Holds.CONTAINER | Holds.CONTAINERS | Holds.ENVIRONMENT):
            self.environment = True
        if Holds.METADATA in held:
            self.last_applied = True

    def read_names(self, held: Holds) -> None:
        """Add the read of all names in a map."""
        self._whole |= Holds.CONTAINER in held
        self.environment |= Holds.VARIABLE in held
        self.last_applied |= Holds.ANNOTATIONS in held


_OF_POD = {
    "metadata": Holds.METADATA,
    "object": Holds.POD,
    "oldObject": Holds.POD,
    "spec": Holds.POD,
    **dict.fromkeys(CONTAINER_LISTS, Holds.CONTAINERS),
}
"""Members of pods, their specs and requests."""


class _Walk:
    """The walk over one expression."""

    def __init__(self, reads: PodReads, variables: Scope, params: Mapping[str, Json]) -> None:
        self._reads = reads
        self._variables = variables
        self._params = params

    def value(self, node: Expression, scope: Scope) -> Holds:  # noqa: C901 - a case for each kind
        """Return what the value of an expression may hold."""
        match node:
            case Literal():
                return Holds.NOTHING
            case Name(name=name):
                return scope.get(name, Holds.POD if name in _ROOTS else _VARIABLES.get(name, Holds.NOTHING))
            case Select(operand=Name(name="variables"), field=name) if "variables" not in scope:
                return self._variables.get(f"variables.{name}", ANYTHING)
            case Select(operand=operand, field=name):
                return self._reads.read_member(self.value(operand, scope), name)
            case Has(select=select):
                self.value(select, scope)
                return Holds.NOTHING
            case Index(operand=operand, key=key):
                return self._index(self.value(operand, scope), key, scope)
            case Call():
                return self._call(node, scope)
            case Binary():
                return self._binary(node, scope)
            case Conditional(condition=condition, then=then, otherwise=otherwise):
                self.value(condition, scope)
                return self.value(then, scope) | self.value(otherwise, scope)
            case ListLiteral() | MapLiteral():
                return _in_list(self._all(children(node), scope), of_list=isinstance(node, ListLiteral))
            case Comprehension():
                return self._comprehension(node, scope)
            case Bind(name=name, value=value, body=body) | OptionalMap(target=value, name=name, body=body):
                return self.value(body, {**scope, name: self.value(value, scope)})
            case _:
                self._all(children(node), scope)
                return Holds.NOTHING

    def _all(self, nodes: Iterable[Expression], scope: Scope) -> Holds:
        return reduce(or_, (self.value(node, scope) for node in nodes), Holds.NOTHING)

    def _index(self, held: Holds, key: Expression, scope: Scope) -> Holds:
        constant = self._constant(key, scope)
        if isinstance(constant, str):
            return self._reads.read_member(held, constant)
        self.value(key, scope)
        if constant is None:
            self._reads.read_names(held)
        return _elements(held) | _any_member(held)

    def _call(self, node: Call, scope: Scope) -> Holds:
        held = self._all(children(node), scope)
        if node.function in _READS_NOTHING:
            return Holds.NOTHING
        if node.function == "size":
            self._reads.read_names(held)
            return Holds.NOTHING
        if node.function in _SAME:
            return held
        if node.function in _ELEMENT:
            return _elements(held)
        self._reads.read_all(held)
        return held | _elements(held)

    def _binary(self, node: Binary, scope: Scope) -> Holds:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if node.operator == "+":
            return left | right
        constant = self._constant(node.left, scope)
        if node.operator == "in" and isinstance(constant, str):
            self._reads.read_member(right, constant)
        elif constant is None and not isinstance(node.right, Literal):
            self._reads.read_all(left | right)
        return Holds.NOTHING

    def _constant(self, node: Expression, scope: Scope) -> object:
        """Return the text of an expression that is one, and ... for another literal; None if it is computed."""
        match node:
            case Literal(value=value):
                return value if isinstance(value, str) else ...
            case Select(operand=Name(name="params"), field=name) if "params" not in scope:
                value = self._params.get(name)
                return value if isinstance(value, str) else None
            case _:
                return None

    def _comprehension(self, node: Comprehension, scope: Scope) -> Holds:
        held = self.value(node.target, scope)
        self._reads.read_names(held)
        if node.second is None:
            inner = {**scope, node.first: _elements(held)}
        else:
            inner = {**scope, node.first: Holds.NOTHING, node.second: _elements(held) | _any_member(held)}
        if node.condition is not None:
            self.value(node.condition, inner)
        body = self.value(node.body, inner)
        if node.fold in _TESTS:
            return Holds.NOTHING
        if node.fold in _SAME_ELEMENTS:
            self._reads.read_all(body)
            return held
        return _in_list(body, of_list=node.fold in (Fold.MAP, Fold.TRANSFORM_LIST))


_ROOTS = frozenset({"object", "oldObject", "request"})
_VARIABLES = {"variables": ANYTHING}


def _elements(held: Holds) -> Holds:
    """Return what an element of a list may hold. A list that is in none of the known places may hold anything."""
    found = reduce(or_, (element for list_, element in _LISTS.items() if list_ in held), Holds.NOTHING)
    return ANYTHING if held == ANYTHING else found


def _any_member(held: Holds) -> Holds:
    """Return what a member of a map whose name is not known may hold."""
    found = Holds.NOTHING
    if Holds.POD in held:
        found |= Holds.POD | Holds.METADATA | Holds.CONTAINERS
    if Holds.METADATA in held:
        found |= Holds.ANNOTATIONS
    if Holds.CONTAINER in held:
        found |= Holds.ENVIRONMENT
    return found


def _in_list(held: Holds, *, of_list: bool) -> Holds:
    """Return what a list, or a map, with such values holds."""
    if not held:
        return held
    lists = reduce(or_, (list_ for list_, element in _LISTS.items() if element in held), Holds.NOTHING)
    return lists if of_list and held & ~(Holds.CONTAINER | Holds.VARIABLE) == Holds.NOTHING else ANYTHING
