"""Constants of an expression: the parts that depend on the rule's params alone, evaluated before any request.

Params are constants, so such a part has one value, or fails for every pod for which it is evaluated. Kubernetes finds
the same at admission only: there params are objects that may change at any time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType

from msgspec import structs

from rules_engine.language.cel import Budget, CostExceeded, Environment, EvaluationError, Program, Type
from rules_engine.language.cel.check.checker import Checked, check_expression
from rules_engine.language.cel.interpreter import interpret
from rules_engine.language.cel.syntax import tree
from rules_engine.language.cel.syntax.tree import Expression, child_nodes
from rules_engine.language.cel.values.runtime_values import type_of
from rules_engine.language.cel.values.types import DYN
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, did_you_mean
from rules_engine.model.problems.source import truncate

MAX_COST = 100_000
"""Budget of one expression here, a tenth of a request's: a part that costs more is evaluated at requests only."""

_LOCAL = "local "
"""Prefix of the names of macros' variables: a name has no space."""

_SCALARS = (bool, int, float, str, NoneType)

_ANY_TYPES = frozenset({"==", "!=", "in"})
"""Operators that accept values of any types at run time, though not when they are checked."""


class Constants:
    """The values of params, and of variables that depend only on them, by their names in expressions."""

    def __init__(self, params: Mapping[str, Json]) -> None:
        self._values: dict[str, object] = {"params": params}

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
        failures = list(reading.failures(program.checked.expression, environment))
        yield from failures
        if not failures:
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
        self._reads = cache(self._find_reads)

    def value(self, node: Expression) -> object:
        """Return the value of a part, or an Unknown."""
        if isinstance(node, tree.Literal):
            return node.value
        if not self._reads(node).keys() <= self._values.keys():
            return Unknown()
        try:
            return interpret(replace(self._checked, expression=node), self._values, self._budget)
        except CostExceeded:
            return Unknown()
        except EvaluationError as error:
            return Unknown(error)

    def failures(self, node: Expression, environment: Environment) -> Iterator[Problem]:
        """Yield the innermost parts that fail for every pod, without parts that are never evaluated."""
        value = self.value(node)
        if not isinstance(value, Unknown):
            return
        inner_failures = [problem for part in self._parts(node) for problem in self.failures(part, environment)]
        if inner_failures:
            yield from inner_failures
        elif value.error is None:
            yield from self._type_errors(node, environment)
        elif self._reads(node):
            yield self._failure(node, value.error)

    def wrong_result(self, wanted: Type) -> Iterator[Problem]:
        """Yield the problem of an expression whose value is known to be of another type."""
        node = self._checked.expression
        value = self.value(node)
        if wanted != DYN and not isinstance(value, Unknown) and type_of(value) != wanted:
            message = f"the expression must be {wanted}, not {type_of(value).plain}"
            yield self._checked.problem(Code.CEL_RESULT_TYPE, message, node.span)

    def _find_reads(self, node: Expression) -> Mapping[str, Expression]:
        """Return a read of each variable that a part depends on, including variables of macros around it."""
        reference = self._checked.references.get(node)
        if isinstance(reference, str):
            return {reference: node}
        if isinstance(node, tree.Name):
            return {_LOCAL + node.name: node} if node in self._checked.locals else {}
        around, own = tree.part_outside_scope(node), {_LOCAL + name for name in tree.macro_variables(node)}
        reads = [(name, read, part) for part in child_nodes(node) for name, read in self._reads(part).items()]
        return {name: read for name, read, part in reads if part is around or name not in own}

    def _parts(self, node: Expression) -> Sequence[Expression]:
        """Return the parts of a node that may be evaluated."""
        match node:
            case tree.Has(select=select):
                return (select.operand,)
            case tree.Conditional(condition=condition, then=then, otherwise=otherwise):
                decided = self.value(condition)
                branches = ((then, False), (otherwise, True))
                return condition, *(branch for branch, excluding in branches if decided is not excluding)
            case tree.Logic(operator=operator, operands=operands):
                # One operand decides, and absorbs the errors of all others.
                decided = any(self.value(operand) is (operator == "||") for operand in operands)
                return () if decided else operands
            case tree.Bind(body=body):
                return (body,)  # The value is evaluated only if the body reads it.
        return () if node in self._checked.references else child_nodes(node)

    def _failure(self, node: Expression, error: EvaluationError) -> Problem:
        if isinstance(node, tree.Select | tree.Index):
            operand = self.value(node.operand)
            key = node.field if isinstance(node, tree.Select) else self.value(node.key)
            if isinstance(operand, Mapping) and isinstance(key, str):
                span = node.name_span if isinstance(node, tree.Select) else node.key.span
                text = self._checked.source.text[node.operand.span.start : node.operand.span.end]
                message = f"{truncate(' '.join(text.split()))} has no '{key}'{did_you_mean(key, operand)}"
                return self._checked.problem(Code.CEL_PARAMS, message, span)
        span = node.name_span if isinstance(node, tree.Select | tree.Call) else node.span
        return self._checked.problem(
            Code.CEL_PARAMS, f"with the rule's params this always fails: {error.message}", span
        )

    def _type_errors(self, node: Expression, environment: Environment) -> Iterator[Problem]:
        """Yield the type errors of a node that depends on the pod, found with literals for its constants."""
        match node:
            case tree.Binary(operator=operator, left=left, right=right) if operator not in _ANY_TYPES:
                with_literals: Expression = replace(node, left=self._literal(left), right=self._literal(right))
            case tree.Conditional(condition=condition):
                with_literals = replace(node, condition=self._literal(condition))
            case tree.Logic(operands=operands):
                with_literals = replace(node, operands=tuple(map(self._literal, operands)))
            case tree.Call(function="matches", arguments=arguments):
                with_literals = replace(node, arguments=tuple(map(self._literal, arguments)))
            case _:
                return
        if child_nodes(with_literals) == child_nodes(node):
            return
        types, reads = self._checked.locals, self._reads(node).values()
        names = {read.name: types[read] for read in reads if isinstance(read, tree.Name) and read in types}
        result = check_expression(self._checked.source, with_literals, environment.with_variables(**names))
        for problem in (*result.problems, *result.warnings):
            if problem not in self._checked.warnings:
                yield structs.replace(problem, code=Code.CEL_PARAMS)

    def _literal(self, node: Expression) -> Expression:
        """Return a literal for a scalar constant, else the part itself."""
        value = self.value(node) if self._reads(node) else Unknown()
        return tree.Literal(span=node.span, value=value) if isinstance(value, _SCALARS) else node
