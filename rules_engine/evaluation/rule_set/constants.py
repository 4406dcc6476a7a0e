"""Constants of an expression: the parts that depend on the rule's params alone, evaluated before any request.

Params are constants, so such a part has one value, or fails for every pod for which it is evaluated. Kubernetes finds
the same at admission only: there params are objects that may change at any time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import NoneType

from rules_engine.cel import Budget, CostExceeded, Environment, EvaluationError, Program, Type, types
from rules_engine.cel.check.checker import Checked, Constant, check
from rules_engine.cel.run.interpreter import interpret
from rules_engine.cel.syntax.tree import (
    Binary,
    Bind,
    Call,
    Conditional,
    Expression,
    Has,
    Index,
    Literal,
    Logic,
    Name,
    Select,
    Span,
    children,
    outside,
    own_names,
)
from rules_engine.cel.values.runtime_values import type_of
from rules_engine.cel.values.types import DYN, PARAMETERS
from rules_engine.model.excerpt import truncate
from rules_engine.model.json.patch import Json
from rules_engine.model.problem_codes import Code
from rules_engine.model.problems import Problem, did_you_mean

MAX_COST = 100_000
"""Budget of one expression here, a tenth of a request's: a part that costs more is evaluated at requests only."""

_LOCAL = "local "
"""Prefix of the names of macros' variables: a name has no space."""

_SCALARS = (bool, int, float, str, NoneType)

_ANY_TYPES = frozenset({"==", "!=", "in"})
"""Operators that accept values of any types at run time, though not when they are checked."""


@dataclass(slots=True)
class Constants:
    """The values of params, and of variables that depend only on them, by their names in expressions."""

    params: Mapping[str, Json]
    _values: dict[str, object] = field(init=False)

    def __post_init__(self) -> None:
        self._values = {"params": self.params}

    def reading(self, program: Program) -> "Reading":
        """Return an expression with these constants."""
        return Reading(program.checked, self._values)

    def learn(self, name: str, program: Program) -> None:
        """Add a variable, if its value is known."""
        value = self.reading(program).value(program.checked.expression)
        if not isinstance(value, Unknown):
            self._values[name] = value

    def problems(self, program: Program, environment: Environment, result: Type) -> Iterator[Problem]:
        """Yield the parts that fail for every pod, in an expression that compiles and must be of the type `result`."""
        if program.reads.isdisjoint(self._values):
            return
        reading = self.reading(program)
        found = list(reading.failures(program.checked.expression, environment))
        yield from found
        if not found:
            yield from reading.wrong_result(result)


@dataclass(frozen=True, slots=True)
class Unknown:
    """The value of a part that depends on the request, or (with an error) always fails."""

    error: EvaluationError | None = None


class Reading:
    """One expression and its dependencies."""

    def __init__(self, checked: Checked, values: Mapping[str, object]) -> None:
        self._checked = checked
        self._values = values
        self._budget = Budget(MAX_COST)
        self._read: dict[Expression, frozenset[str]] = {}
        self._named: dict[Bind, bool] = {}

    def value(self, node: Expression) -> object:
        """Return the value of a part, or an Unknown."""
        if isinstance(node, Literal):
            return node.value
        if not self._reads(node) <= self._values.keys():
            return Unknown()
        try:
            return interpret(replace(self._checked, expression=node), self._values, self._budget)
        except CostExceeded:
            return Unknown()
        except EvaluationError as error:
            return Unknown(error)

    def may_be_nan(self, node: Expression, environment: Environment) -> bool:
        """Return True if the value of a part may be or contain NaN, which differs from itself."""
        return _mentions_double(self._check(node, node, environment).result)

    def failures(self, node: Expression, environment: Environment) -> Iterator[Problem]:
        """Yield the innermost parts that fail for every pod; parts that are never evaluated are left out."""
        value = self.value(node)
        if not isinstance(value, Unknown):
            return
        found = False
        for part in self._parts(node):
            for problem in self.failures(part, environment):
                found = True
                yield problem
        if found:
            return
        if value.error is None:
            yield from self._mistyped(node, environment)
        elif self._reads(node):
            yield self._failure(node, value.error)

    def wrong_result(self, wanted: Type) -> Iterator[Problem]:
        """Yield the problem of an expression whose value is known to be of another type."""
        node = self._checked.expression
        value = self.value(node)
        if wanted != DYN and not isinstance(value, Unknown) and type_of(value) != wanted:
            message = f"the expression must be {wanted}, not {type_of(value).plain}"
            yield self._problem(Code.CEL_RESULT_TYPE, message, node.span)

    def _reads(self, node: Expression) -> frozenset[str]:
        """Return the variables that a part depends on, including those of macros around it."""
        if node not in self._read:
            self._read[node] = self._found(node)
        return self._read[node]

    def _found(self, node: Expression) -> frozenset[str]:
        reference = self._checked.references.get(node)
        if reference is not None:
            return frozenset() if isinstance(reference, Constant) else frozenset({reference})
        if isinstance(node, Name):
            return frozenset({_LOCAL + node.name})
        if isinstance(node, Has):
            return self._reads(node.select.operand)
        return frozenset().union(*(self._reads(part) - own for part, own in self._evaluated(node)))

    def _evaluated(self, node: Expression) -> Iterator[tuple[Expression, frozenset[str]]]:
        """Yield the parts of a node that have values, each with the variables that only it may read."""
        own = frozenset(f"{_LOCAL}{name}" for name in own_names(node))
        around = outside(node)
        for part in children(node):
            if not (isinstance(node, Call) and part is node.target and node in self._checked.namespaced):
                yield part, frozenset() if part is around else own

    def _parts(self, node: Expression) -> Iterator[Expression]:
        """Yield the parts of a node that may be evaluated."""
        match node:
            case Has(select=select):
                yield select.operand
            case Conditional(condition=condition, then=then, otherwise=otherwise):
                yield condition
                decided = self.value(condition)
                if decided is not False:
                    yield then
                if decided is not True:
                    yield otherwise
            case Logic(operator=operator, operands=operands):
                # One operand decides, and absorbs the errors of all others.
                if not any(self.value(operand) is (operator == "||") for operand in operands):
                    yield from operands
            case Bind(name=name, value=value, body=body):
                if node not in self._named:
                    self._named[node] = self._names(body, name)
                if self._named[node]:
                    yield value
                yield body
            case _ if node not in self._checked.references:
                yield from (part for part, _ in self._evaluated(node))

    def _names(self, node: Expression, name: str) -> bool:
        """Return True if a name may be evaluated in this part: the value of a cel.bind is evaluated only then."""
        if isinstance(node, Name):
            return node.name == name
        return any(self._names(part, name) for part in self._parts(node))

    def _failure(self, node: Expression, error: EvaluationError) -> Problem:
        if isinstance(node, Select | Index):
            operand = self.value(node.operand)
            key = node.field if isinstance(node, Select) else self.value(node.key)
            if isinstance(operand, Mapping) and isinstance(key, str):
                span = node.name_span if isinstance(node, Select) else node.key.span
                message = f"{self._text(node.operand.span)} has no '{key}'{did_you_mean(key, operand)}"
                return self._problem(Code.CEL_PARAMS, message, span)
        span = node.name_span if isinstance(node, Select | Call) else node.span
        return self._problem(Code.CEL_PARAMS, f"with the rule's params this always fails: {error.message}", span)

    def _mistyped(self, node: Expression, environment: Environment) -> Iterator[Problem]:
        """Yield the type errors of a node that depends on the pod, found with literals for its constants."""
        written = self._with_constants(node)
        if written is None:
            return
        found = self._check(node, written, environment)
        amounts = (problem for problem in found.warnings if problem.code == Code.CEL_AMOUNT)
        for problem in (*found.problems, *(problem for problem in amounts if problem not in self._checked.warnings)):
            yield replace(problem, code=Code.CEL_PARAMS)

    def _check(self, node: Expression, written: Expression, environment: Environment) -> Checked:
        """Check a part on its own, as it is written or with literals."""
        names = {name.name: self._checked.locals[name] for name in self._free_names(node)}
        return check(self._checked.source, written, environment.extended(**names))

    def _free_names(self, node: Expression) -> Iterator[Name]:
        """Yield the names in a part that are variables of macros around it."""
        if isinstance(node, Name) and node in self._checked.locals:
            yield node
        for part, own in self._evaluated(node):
            yield from (name for name in self._free_names(part) if _LOCAL + name.name not in own)

    def _with_constants(self, node: Expression) -> Expression | None:
        """Return a node with literals for the constants whose types matter at run time; None if it has none."""
        match node:
            case Binary(operator=operator, left=left, right=right) if operator not in _ANY_TYPES:
                written: Expression = replace(node, left=self._written(left), right=self._written(right))
            case Conditional(condition=condition):
                written = replace(node, condition=self._written(condition))
            case Logic(operands=operands):
                written = replace(node, operands=tuple(map(self._written, operands)))
            case Call(target=target, arguments=arguments) if self._has_plain_types(node):
                receiver = None if target is None else self._written(target)
                written = replace(node, target=receiver, arguments=tuple(map(self._written, arguments)))
            case _:
                return None
        return None if children(written) == children(node) else written

    def _written(self, node: Expression) -> Expression:
        """Return a literal for a scalar constant, else the part itself."""
        value = self.value(node) if self._reads(node) else Unknown()
        return Literal(span=node.span, value=value) if isinstance(value, _SCALARS) else node

    def _has_plain_types(self, node: Call) -> bool:
        """Return True if a function declares the types of its arguments; others accept values of any type."""
        overloads = self._checked.calls[node].overloads
        return not any(_mentions_any(parameter) for overload in overloads for parameter in overload.parameters)

    def _text(self, span: Span) -> str:
        return truncate(" ".join(self._checked.source.text[span.start : span.end].split()))

    def _problem(self, code: Code, message: str, span: Span) -> Problem:
        location = self._checked.source.at(span.start)
        return Problem(code=code, message=message, location=location, length=max(1, span.end - span.start))


def _mentions_any(found: Type) -> bool:
    return found in PARAMETERS or found == types.DYN or any(map(_mentions_any, found.parameters))


def _mentions_double(found: Type) -> bool:
    return found in (types.DOUBLE, types.DYN) or any(map(_mentions_double, found.parameters))
