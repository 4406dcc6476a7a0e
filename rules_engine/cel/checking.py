"""Names, functions and types of an expression, found before it ever runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rules_engine.cel import types
from rules_engine.cel.environment import REFUSED, Environment
from rules_engine.cel.functions import Functions, Overload
from rules_engine.cel.library import functions
from rules_engine.cel.library.wrappers import WRAPPERS, Wrapper
from rules_engine.cel.parsing import qualified
from rules_engine.cel.syntax import (
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
    Logic,
    MapLiteral,
    Message,
    Name,
    OptionalMap,
    Select,
    Span,
    Unary,
)
from rules_engine.cel.types import DYN, ObjectType, Type
from rules_engine.cel.values import type_of
from rules_engine.model.problems import Problem, did_you_mean
from rules_engine.model.source import SourceText

NAMED_VALUES: Mapping[str, object] = {"google.protobuf.NullValue.NULL_VALUE": None} | {
    name: Type(name)
    for name in (
        "bool bytes double int list map null_type optional_type string type uint google.protobuf.Duration "
        "google.protobuf.Timestamp kubernetes.Quantity kubernetes.URL kubernetes.Semver kubernetes.NamedFormat net.IP net.CIDR"
    ).split()
}
"""Names that stand for values: the types that type() gives, and protobuf's null."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A name that stands for a value known at load."""

    value: object


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression and what is known of its nodes.

    `references`: names (and selections that spell a dotted name) that stand for a variable, by its full name, or for a
    constant; names that are not there are variables of a macro. `calls`: the overloads that a call may mean at run time;
    `namespaced` calls have a target that is part of the function's name.
    """

    source: SourceText
    expression: Expression
    result: Type
    references: Mapping[Expression, str | Constant]
    calls: Mapping[Call, tuple[Overload, ...]]
    namespaced: frozenset[Call]
    messages: Mapping[Message, Wrapper]
    reads: frozenset[str]
    problems: tuple[Problem, ...]


def check(source: SourceText, expression: Expression, environment: Environment) -> Checked:
    """Resolve and type an expression; its problems are in the result."""
    checker = _Checker(source, environment, functions())
    result = checker.type(expression)
    return Checked(
        source=source,
        expression=expression,
        result=result,
        references=checker.references,
        calls=checker.calls,
        namespaced=frozenset(checker.namespaced),
        messages=checker.messages,
        reads=frozenset(checker.reads),
        problems=tuple(sorted(checker.problems, key=lambda problem: (problem.location, problem.message))),
    )


@dataclass(slots=True)
class _Checker:
    source: SourceText
    environment: Environment
    functions: Functions
    references: dict[Expression, str | Constant] = field(default_factory=dict)
    calls: dict[Call, tuple[Overload, ...]] = field(default_factory=dict)
    namespaced: set[Call] = field(default_factory=set)
    messages: dict[Message, Wrapper] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    locals: dict[str, Type] = field(default_factory=dict)

    def type(self, node: Expression) -> Type:
        method: Any = getattr(self, f"_type_{type(node).__name__.lower()}")
        found: Type = method(node)
        return found

    def problem(self, code: str, message: str, span: Span) -> Type:
        """Note a problem; the type of what has one is unknown, so that one mistake is reported once."""
        location = self.source.at(span.start)
        self.problems.append(
            Problem(code=code, message=message, location=location, length=max(1, span.end - span.start))
        )
        return DYN

    # Names

    def _type_literal(self, node: Literal) -> Type:
        return type_of(node.value)

    def _type_name(self, node: Name) -> Type:
        if not node.absolute and node.name in self.locals:
            return self.locals[node.name]
        found = self._variable(node, node.name, absolute=node.absolute)
        if found is not None:
            return found
        for name in self.environment.candidates(node.name, absolute=node.absolute):
            if name in NAMED_VALUES:
                return self._constant(node, NAMED_VALUES[name])
        return self._undeclared(node)

    def _constant(self, node: Expression, value: object) -> Type:
        self.references[node] = Constant(value)
        return type_of(value)

    def _undeclared(self, node: Name) -> Type:
        if node.name in REFUSED:
            return self.problem("cel-undeclared", REFUSED[node.name], node.span)
        names = {*self.environment.variables, *self.locals}
        hint = did_you_mean(node.name, names)
        return self.problem("cel-undeclared", f"undeclared reference to '{node.name}'{hint}", node.span)

    def _variable(self, node: Expression, name: str, *, absolute: bool) -> Type | None:
        for candidate in self.environment.candidates(name, absolute=absolute):
            if candidate in self.environment.variables:
                self.references[node] = candidate
                self.reads.add(candidate)
                return self.environment.variables[candidate]
        return None

    def _type_select(self, node: Select) -> Type:
        name = qualified(node)
        if name is not None:
            root = name.lstrip(".").split(".")[0]
            if name.startswith(".") or root not in self.locals:
                found = self._variable(node, name.lstrip("."), absolute=name.startswith("."))
                if found is not None:
                    return found
                for candidate in self.environment.candidates(name.lstrip("."), absolute=name.startswith(".")):
                    if candidate in NAMED_VALUES:
                        return self._constant(node, NAMED_VALUES[candidate])
        operand = self.type(node.operand)
        return self._field(operand, node)

    def _field(self, operand: Type, node: Select) -> Type:
        if isinstance(operand, ObjectType):
            if node.field in operand.fields:
                return operand.fields[node.field]
            hint = did_you_mean(node.field, operand.fields)
            return self.problem("cel-field", f"undefined field '{node.field}'{hint}", node.name_span)
        return DYN

    def _type_has(self, node: Has) -> Type:
        self._field(self.type(node.select.operand), node.select)
        return types.BOOL

    # Calls

    def _type_call(self, node: Call) -> Type:
        overloads: tuple[Overload, ...] = ()
        name = node.function
        if node.target is not None:
            prefix = qualified(node.target)
            if prefix is not None and prefix.split(".")[0] not in self.locals:
                overloads, name = self._function(f"{prefix.lstrip('.')}.{node.function}", prefix.startswith("."))
                if overloads:
                    self.namespaced.add(node)
            if not overloads:
                self.type(node.target)
                overloads, name = self.functions.named(node.function, method=True), node.function
        else:
            overloads, name = self._function(node.function, node.absolute)
        for argument in node.arguments:
            self.type(argument)
        self.calls[node] = ()
        if not overloads:
            return self._no_function(node)
        given = len(node.arguments) + (node.target is not None and node not in self.namespaced)
        fitting = tuple(overload for overload in overloads if len(overload.parameters) == given)
        self.calls[node] = fitting
        if not fitting:
            return self._wrong_count(node, name, overloads)
        return fitting[0].result if len(fitting) == 1 and not fitting[0].result.parameters else DYN

    def _function(self, name: str, absolute: bool) -> tuple[tuple[Overload, ...], str]:
        for candidate in self.environment.candidates(name, absolute=absolute):
            overloads = self.functions.named(candidate, method=False)
            if overloads:
                return overloads, candidate
        return (), name

    def _no_function(self, node: Call) -> Type:
        method = node.target is not None
        known = self.functions.names(method=method)
        other = self.functions.named(node.function, method=not method)
        hint = did_you_mean(node.function, known)
        if other and method:
            hint = f" (write {node.function}(…))"
        elif other:
            hint = f" (write value.{node.function}(…))"
        return self.problem("cel-no-such-function", f"undeclared function '{node.function}'{hint}", node.name_span)

    def _wrong_count(self, node: Call, name: str, overloads: tuple[Overload, ...]) -> Type:
        counts = sorted({len(overload.parameters) - overload.method for overload in overloads})
        wanted = " or ".join(str(count) for count in counts)
        plural = "s" if counts != [1] else ""
        message = f"{name}() takes {wanted} argument{plural}, not {len(node.arguments)}"
        return self.problem("cel-arguments", message, node.name_span)

    # Operators and the rest

    def _type_index(self, node: Index) -> Type:
        self.type(node.operand)
        self.type(node.key)
        return DYN

    def _type_unary(self, node: Unary) -> Type:
        self.type(node.operand)
        return types.BOOL if node.operator == "!" else DYN

    def _type_binary(self, node: Binary) -> Type:
        self.type(node.left)
        self.type(node.right)
        return DYN if node.operator in ("+", "-", "*", "/", "%") else types.BOOL

    def _type_logic(self, node: Logic) -> Type:
        for operand in node.operands:
            self.type(operand)
        return types.BOOL

    def _type_conditional(self, node: Conditional) -> Type:
        self.type(node.condition)
        then, otherwise = self.type(node.then), self.type(node.otherwise)
        return then if then == otherwise else DYN

    def _type_listliteral(self, node: ListLiteral) -> Type:
        for element in node.elements:
            self.type(element.value)
        return types.LIST

    def _type_mapliteral(self, node: MapLiteral) -> Type:
        for entry in node.entries:
            self.type(entry.key)
            self.type(entry.value)
        return types.map_of(DYN, DYN)

    def _type_message(self, node: Message) -> Type:
        for _, value in node.fields:
            self.type(value)
        for name in self.environment.candidates(node.name.lstrip("."), absolute=node.name.startswith(".")):
            if name in WRAPPERS:
                self.messages[node] = WRAPPERS[name]
                return DYN
        return self.problem("cel-undeclared", f"undeclared message type '{node.name}'", node.span)

    def _type_comprehension(self, node: Comprehension) -> Type:
        self.type(node.target)
        names = [node.first] if node.second is None else [node.first, node.second]
        with_condition = [node.body] if node.condition is None else [node.condition, node.body]
        self._inside(dict.fromkeys(names, DYN), *with_condition)
        if node.fold in (Fold.ALL, Fold.EXISTS, Fold.EXISTS_ONE):
            return types.BOOL
        return types.map_of(DYN, DYN) if node.fold in (Fold.TRANSFORM_MAP, Fold.TRANSFORM_MAP_ENTRY) else types.LIST

    def _inside(self, names: dict[str, Type], *bodies: Expression) -> Type:
        outer = self.locals
        self.locals = {**outer, **names}
        found = DYN
        for body in bodies:
            found = self.type(body)
        self.locals = outer
        return found

    def _type_bind(self, node: Bind) -> Type:
        return self._inside({node.name: self.type(node.value)}, node.body)

    def _type_optionalmap(self, node: OptionalMap) -> Type:
        self.type(node.target)
        self._inside({node.name: DYN}, node.body)
        return types.OPTIONAL
