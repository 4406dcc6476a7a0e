"""Conditions of rules that are safe as webhook match conditions: they have the same value there, and cannot fail.

A webhook's match condition that fails denies the pod, or keeps all rules from being evaluated, before any rule's
failurePolicy applies. So only conditions that provably have a value, at a bounded cost, are copied. The proof
relies on the API server's decoding: objects that it sends have the types of the Pod's schema, and no nulls.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

from rules_engine.cel import CelProblems, Environment, Type, compile_expression, types
from rules_engine.cel.syntax.tree import (
    Binary,
    Call,
    Comprehension,
    Conditional,
    Expression,
    Fold,
    Has,
    Index,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Name,
    Select,
    Unary,
)
from rules_engine.cel.values.types import BOOL, DYN, INT, STRING, ObjectType, list_of, map_of, optional_of
from rules_engine.model.source import SourceText
from rules_engine.webhooks.costs import affordable

ROOTS: Mapping[str, Type] = {"object": types.POD, "request": types.ADMISSION_REQUEST}
"""Variables of both rules' expressions and webhook match conditions that are never null there."""

ENVIRONMENT = Environment(ROOTS)

Path: TypeAlias = tuple[str, ...]

ALWAYS: frozenset[Path] = frozenset(
    {
        ("object", "metadata"),
        ("object", "spec"),
        ("object", "spec", "containers"),
        ("request", "namespace"),
        ("request", "operation"),
    }
)
"""Members that every request for a Pod has (k8s.io/api/core/v1, k8s.io/api/admission/v1).

`containers` of a pod without containers is null: the API server refuses such a pod in any case.
"""

ORDERS = frozenset({"<", "<=", ">", ">="})

FOLDS = frozenset({Fold.ALL, Fold.EXISTS, Fold.EXISTS_ONE, Fold.FILTER, Fold.MAP})
"""The macros of the CEL standard; others were added by later versions of Kubernetes."""


MAX_BRACKETS = 100
"""Levels of nested brackets. cel-go allows 250 levels of any rule of its grammar (parser.go, maxRecursionDepth): one
per bracket, one per level of the tree, which has 100 at most, and a few around the condition."""

_OPAQUE = re.compile(
    r"""//[^\n]*|[rR](\'{3}|"{3}|'|").*?\1|(\'{3}|"{3}|'|")(?:\\.|.)*?\2""",
    re.DOTALL,
)
"""Comments, raw strings and strings of valid CEL."""

_STEP = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}


def portable_text(condition: SourceText) -> str | None:
    """Return the condition's text if the API server can evaluate it and it cannot fail there; else None."""
    if "`" in condition.text or _brackets(condition.text) > MAX_BRACKETS:
        return None  # Kubernetes' CEL has no names in backquotes
    try:
        # With these names only: conditions that read variables, params, the namespace or the cluster do not compile.
        program = compile_expression(condition, ENVIRONMENT, result=BOOL)
    except CelProblems:
        return None
    proven = _proven(program.checked.expression, _Known(ROOTS, ALWAYS))
    return condition.text.strip() if proven == BOOL and affordable(condition.text) else None


def _brackets(text: str) -> int:
    """Return the nesting of brackets. The tree does not have it: redundant brackets are not part of it."""
    return max(accumulate(_STEP.get(character, 0) for character in _OPAQUE.sub("", text)), default=0)


@dataclass(frozen=True, slots=True)
class _Known:
    """The types of names, and the members that are known to be present."""

    names: Mapping[str, Type]
    present: frozenset[Path]

    def given(self, condition: Expression, *, holds: bool) -> "_Known":
        """Return the knowledge under the assumption that a condition holds, or does not."""
        return replace(self, present=self.present | frozenset(_proven_members(condition, holds=holds)))

    def bound(self, name: str, type: Type) -> "_Known":
        """Return the knowledge with a macro's variable, which shadows an outer one."""
        return _Known({**self.names, name: type}, frozenset(path for path in self.present if path[0] != name))


def _proven(node: Expression, known: _Known) -> Type | None:  # noqa: C901 - a line for each kind of node
    """Return the type of the node's value; None if it may fail or its type is not known."""
    match node:
        case Literal(value=value):
            return {bool: BOOL, int: INT, str: STRING}.get(type(value))
        case Name(name=name):
            return known.names.get(name)
        case Select():
            return _selected(node, known)
        case Index():
            return _indexed(node, known)
        case Has(select=select):
            operand = _proven(select.operand, known)
            return BOOL if _member(operand, select.field) and _inner(operand) is operand else None
        case Unary(operator="!", operand=operand):
            return BOOL if _proven(operand, known) == BOOL else None
        case Binary(operator=operator, left=left, right=right):
            return _compared(operator, _proven(left, known), _proven(right, known))
        case Logic(operator=operator, operands=operands):
            for part in operands:
                if _proven(part, known) != BOOL:
                    return None
                known = known.given(part, holds=operator == "&&")
            return BOOL
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            if _proven(condition, known) != BOOL:
                return None
            chosen = _proven(then, known.given(condition, holds=True))
            return chosen if chosen == _proven(otherwise, known.given(condition, holds=False)) else None
        case ListLiteral(elements=elements):
            found = {_proven(element.value, known) for element in elements if not element.optional}
            return list_of(found.pop() or DYN) if len(found) == 1 and None not in found else _empty(elements)
        case MapLiteral(entries=()):
            return map_of(STRING, DYN)
        case Comprehension(second=None, condition=None):
            return _folded(node, known)
        case Call():
            return _called(node, known)
        case _:
            return None


def _empty(elements: object) -> Type | None:
    return None if elements else list_of(DYN)


def _selected(node: Select, known: _Known) -> Type | None:
    operand = _proven(node.operand, known)
    found = _member(operand, node.field)
    if operand is None or found is None:
        return None
    if node.optional or operand.name == "optional_type":
        return optional_of(found)
    return found if _path(node) in known.present else None


def _indexed(node: Index, known: _Known) -> Type | None:
    operand, key = _proven(node.operand, known), _proven(node.key, known)
    inner = _inner(operand)
    if operand is None or inner is None or key != (INT if inner.name == "list" else STRING):
        return None
    found = inner.parameters[-1] if inner.name in ("list", "map") else None
    if found is None:
        return None
    if node.optional or operand.name == "optional_type":
        return optional_of(found)
    return found if _path(node) in known.present else None


def _inner(found: Type | None) -> Type | None:
    """Return the type, or that of an optional's value: members of an optional are optional."""
    return found.parameters[0] if found is not None and found.name == "optional_type" else found


def _member(found: Type | None, field: str) -> Type | None:
    """Return the type of a member that an object or a map may have."""
    inner = _inner(found)
    if isinstance(inner, ObjectType):
        return inner.fields.get(field)
    return inner.parameters[1] if inner is not None and inner.name == "map" and inner.parameters else None


def _compared(operator: str, left: Type | None, right: Type | None) -> Type | None:
    if left is None or right is None:
        return None
    if operator in ("==", "!="):
        return BOOL
    if operator == "in":
        return BOOL if right.name in ("list", "map") and left in (STRING, INT, BOOL) else None
    if operator in ORDERS:
        return BOOL if left == right and left in (STRING, INT) else None
    if operator == "+" and left.name == right.name and left.name in ("list", "string"):
        return left if left == right or right == list_of(DYN) else None
    return None


def _folded(node: Comprehension, known: _Known) -> Type | None:
    target = _proven(node.target, known)
    if target is None or node.fold not in FOLDS or target.name not in ("list", "map") or not target.parameters:
        return None
    item = target.parameters[0]
    body = _proven(node.body, known.bound(node.first, item))
    if body is None or (node.fold is not Fold.MAP and body != BOOL):
        return None
    match node.fold:
        case Fold.FILTER:
            return list_of(item)
        case Fold.MAP:
            return list_of(body)
        case _:
            return BOOL


def _called(node: Call, known: _Known) -> Type | None:
    """Return the type of a call, if every version of Kubernetes' CEL since 1.30 has the function and it cannot fail."""
    target = None if node.target is None else _proven(node.target, known)
    arguments = [_proven(argument, known) for argument in node.arguments]
    match node.function, target, arguments:
        case (("startsWith" | "endsWith" | "contains"), Type(name="string"), [Type(name="string")]):
            return BOOL
        case "size", Type(name="list" | "map" | "string"), []:
            return INT
        case "size", None, [Type(name="list" | "map" | "string")] if node.target is None:
            return INT
        case "hasValue", Type(name="optional_type"), []:
            return BOOL
        case "orValue", Type(name="optional_type", parameters=(held,)), [Type() as other]:
            same = held == other or (held.name == other.name and other.name in ("list", "map"))
            return held if same else None
        case _:
            return None


def _path(node: Expression) -> Path | None:
    """Return the path from a variable to a member, in either notation."""
    match node:
        case Name(name=name):
            return (name,)
        case Select(operand=operand, field=field, optional=False):
            above = _path(operand)
            return None if above is None else (*above, field)
        case Index(operand=operand, key=Literal(value=str(key)), optional=False):
            above = _path(operand)
            return None if above is None else (*above, key)
        case _:
            return None


def _proven_members(condition: Expression, *, holds: bool) -> Iterator[Path]:
    """Yield the members that are present if a condition holds, or does not."""
    match condition:
        case Has(select=select) if holds:
            path = _path(select)
        case Binary(operator="in", left=Literal(value=str(key)), right=right) if holds:
            above = _path(right)
            path = None if above is None else (*above, key)
        case Unary(operator="!", operand=operand):
            yield from _proven_members(operand, holds=not holds)
            return
        case Logic(operator=operator, operands=operands) if holds == (operator == "&&"):
            for operand in operands:
                yield from _proven_members(operand, holds=holds)
            return
        case _:
            return
    if path is not None:
        yield path
