"""Syntax tree: CEL's abstract syntax with macros as nodes.

A macro is one node, where cel-go expands it into a general fold: so the checker can name it, and the code generator
writes a plain loop for it. Nodes compare by identity: later stages map nodes to their facts about them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """Offsets into the expression's text; `end` is one past the last character."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SyntaxNode:
    """Base of all nodes. `depth`: the number of levels from here down, for the bound on nesting."""

    span: SourceSpan
    depth: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Literal(SyntaxNode):
    """A constant: None, bool, int, Uint, float, str or bytes."""

    value: object


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Name(SyntaxNode):
    """A simple name. `absolute`: written with a leading dot."""

    name: str
    absolute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Select(SyntaxNode):
    """operand.field, or operand.?field if `optional`. `name_span`: the span of the field."""

    operand: "Expression"
    field: str
    optional: bool = False
    name_span: SourceSpan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Index(SyntaxNode):
    """operand[key], or operand[?key] if `optional`."""

    operand: "Expression"
    key: "Expression"
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call(SyntaxNode):
    """function(…) or target.function(…). `name_span`: the span of the function's name."""

    function: str
    arguments: tuple["Expression", ...]
    target: "Expression | None" = None
    absolute: bool = False
    name_span: SourceSpan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unary(SyntaxNode):
    """! or - before an operand."""

    operator: str
    operand: "Expression"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Binary(SyntaxNode):
    """An arithmetic operator, a comparison, == or !=, or in."""

    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logic(SyntaxNode):
    """A chain of && or of ||: both are associative, absorbed errors included, so a chain is one level deep."""

    operator: str
    operands: tuple["Expression", ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conditional(SyntaxNode):
    """condition ? then : otherwise."""

    condition: "Expression"
    then: "Expression"
    otherwise: "Expression"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Element:
    """An element of a list literal; an `optional` one is omitted if its value is none."""

    value: "Expression"
    span: SourceSpan
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ListLiteral(SyntaxNode):
    elements: tuple[Element, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MapEntry:
    """An entry of a map literal; an `optional` one is omitted if its value is none."""

    key: "Expression"
    value: "Expression"
    span: SourceSpan
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MapLiteral(SyntaxNode):
    entries: tuple[MapEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Message(SyntaxNode):
    """A message literal, name{field: value}: only protobuf's wrappers of plain values are known."""

    name: str
    fields: tuple[tuple[str, "Expression"], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Has(SyntaxNode):
    """has(operand.field)."""

    select: Select


class Fold(Enum):
    """Macros over a list or a map. Macros of one and of two variables share names: only the latter have `second`."""

    ALL = "all"
    EXISTS = "exists"
    EXISTS_ONE = "exists_one"
    MAP = "map"
    FILTER = "filter"
    TRANSFORM_LIST = "transformList"
    TRANSFORM_MAP = "transformMap"
    TRANSFORM_MAP_ENTRY = "transformMapEntry"
    SORT_BY = "sortBy"


MACRO_ARGUMENTS = {
    "all": "2 or 3",
    "bind": "3",
    "exists": "2 or 3",
    "existsOne": "2 or 3",
    "exists_one": "2 or 3",
    "filter": "2",
    "has": "1",
    "map": "2 or 3",
    "optFlatMap": "2",
    "optMap": "2",
    "sortBy": "2",
    "transformList": "3 or 4",
    "transformMap": "3 or 4",
    "transformMapEntry": "3 or 4",
}
"""Numbers of arguments of the macros, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comprehension(SyntaxNode):
    """target.fold(first, [second,] [condition,] body). For FILTER and the three tests, `body` is the predicate."""

    fold: Fold
    target: "Expression"
    first: str
    second: str | None = None
    condition: "Expression | None" = None
    body: "Expression"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bind(SyntaxNode):
    """cel.bind(name, value, body)."""

    name: str
    value: "Expression"
    body: "Expression"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptionalMap(SyntaxNode):
    """target.optMap(name, body), or optFlatMap if `flat`, where the body is an optional."""

    target: "Expression"
    name: str
    body: "Expression"
    flat: bool = False


Expression: TypeAlias = (
    Literal
    | Name
    | Select
    | Index
    | Call
    | Unary
    | Binary
    | Logic
    | Conditional
    | ListLiteral
    | MapLiteral
    | Message
    | Has
    | Comprehension
    | Bind
    | OptionalMap
)


def child_nodes(node: Expression) -> tuple[Expression, ...]:  # noqa: C901 - a line for each kind of node
    """Return the direct subexpressions."""
    match node:
        case Select(operand=operand) | Unary(operand=operand):
            return (operand,)
        case Has(select=select):
            return (select,)
        case Index(operand=operand, key=key):
            return operand, key
        case Call(target=target, arguments=arguments):
            return arguments if target is None else (target, *arguments)
        case Binary(left=left, right=right):
            return left, right
        case Logic(operands=operands):
            return operands
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return condition, then, otherwise
        case ListLiteral(elements=elements):
            return tuple(element.value for element in elements)
        case MapLiteral(entries=entries):
            return tuple(part for entry in entries for part in (entry.key, entry.value))
        case Message(fields=fields):
            return tuple(value for _, value in fields)
        case Comprehension(target=target, condition=condition, body=body):
            return (target, body) if condition is None else (target, condition, body)
        case Bind(value=value, body=body):
            return value, body
        case OptionalMap(target=target, body=body):
            return target, body
        case _:
            return ()


def macro_variables(node: Expression) -> tuple[str, ...]:
    """Return the variables that a macro declares."""
    match node:
        case Comprehension(first=first, second=second):
            return (first,) if second is None else (first, second)
        case Bind(name=name) | OptionalMap(name=name):
            return (name,)
        case _:
            return ()


def part_outside_scope(node: Expression) -> Expression | None:
    """Return the part of a macro that is outside the scope of its variables."""
    match node:
        case Comprehension(target=target) | OptionalMap(target=target):
            return target
        case Bind(value=value):
            return value
        case _:
            return None


def as_qualified_name(expression: Expression) -> str | None:
    """Return the dotted name that a chain of selections spells, or None."""
    names: list[str] = []
    while isinstance(expression, Select) and not expression.optional:
        names.append(expression.field)
        expression = expression.operand
    if not isinstance(expression, Name):
        return None
    return "." * expression.absolute + ".".join([expression.name, *reversed(names)])


def evaluation_depth(
    node: Expression, names: Collection[Expression], levels: Mapping[str, int] = MappingProxyType({})
) -> int:
    """Return the number of levels of an evaluation. `names`: names with dots, one level each.

    `levels`: levels of the values of binds, by name. A macro's variable of the same name counts as many levels. The
    value of a cel.bind is evaluated when its name is used (cel-go, interpreter/planner.go: the accumulator of a fold).
    """
    if node in names:
        return 1
    match node:
        case Name(name=name):
            return 1 + levels.get(name, 0)
        case Bind(name=name, value=value, body=body):
            return 1 + evaluation_depth(body, names, {**levels, name: evaluation_depth(value, names, levels)})
    return 1 + max((evaluation_depth(part, names, levels) for part in child_nodes(node)), default=0)
