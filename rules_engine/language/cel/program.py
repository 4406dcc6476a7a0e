"""Compiled expressions: parsed, checked and ready for evaluation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rules_engine.language.cel.budget import Budget, CelProblems, EvaluationError
from rules_engine.language.cel.check.checker import Checked, check_expression
from rules_engine.language.cel.check.environment import Environment
from rules_engine.language.cel.codegen import Function, generate_function
from rules_engine.language.cel.interpreter import interpret
from rules_engine.language.cel.syntax import hints
from rules_engine.language.cel.syntax.tree import Call, Expression, Literal, Select, child_nodes
from rules_engine.language.cel.values.types import DOUBLE, DYN, INT, STRING, UINT, Type
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import SourceText


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. It never changes, so threads share it."""

    checked: Checked
    generated: Function | None

    @property
    def source(self) -> SourceText:
        return self.checked.source

    @property
    def result(self) -> Type:
        """Type of the result, as far as the checker knows it."""
        return self.checked.result

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Warnings of functions newer than the known version of Kubernetes, and of amounts used as text."""
        return self.checked.warnings

    @property
    def reads(self) -> frozenset[str]:
        """Variables of the environment that the expression names."""
        return self.checked.reads

    def evaluate(self, activation: Mapping[str, object], budget: Budget) -> object:
        """Return the value for these variables; each is looked up only if the expression needs it.

        Raises EvaluationError with the place of the failed sub-expression.
        """
        if self.generated is not None:
            mark = budget.left + budget.withheld + budget.kept  # budget.mark, without the call
            try:
                return self.generated.run(activation, budget)
            except Exception:
                # Generated code may give up with any exception, since it assumes that nothing fails. The interpreter
                # then starts again: it absorbs errors and knows their places (reasons: run/codegen/__init__.py).
                budget.rewind(mark)
        return self.interpret(activation, budget)

    def interpret(self, activation: Mapping[str, object], budget: Budget) -> object:
        """Return the same value, or raise the same error, without the generated code."""
        try:
            return interpret(self.checked, activation, budget)
        except RecursionError:
            raise EvaluationError("a value is nested too deeply", self.source.at(0)) from None


def compile_expression(
    source: SourceText, environment: Environment, *, result: Type = DYN, generated: bool = True
) -> Program:
    """Compile an expression whose value must be of the type `result`.

    `generated`: with generated code, which is made in a tenth of a millisecond and evaluated ten times as fast. Raises
    CelProblems with all problems of the expression.
    """
    # Imported with the first expression: lark is a fifth of this package's import time.
    from rules_engine.language.cel.syntax.parser import parse_expression

    checked = check_expression(source, parse_expression(source), environment)
    problems = checked.problems
    if not problems and result != DYN and checked.result not in (DYN, result):
        remedy = hints.remedy_clause("string(…)") if result == STRING and checked.result in (INT, UINT, DOUBLE) else ""
        message = f"the expression must be {result}, not {checked.result}{remedy}"
        problems = (checked.problem(Code.CEL_RESULT_TYPE, message, checked.expression.span),)
    if problems:
        raise CelProblems(problems)
    return program_of(checked) if generated else Program(checked, None)


def program_of(checked: Checked) -> Program:
    """Return the program of a checked expression."""
    return Program(checked, generate_function(checked))


def constant_texts(expression: Expression) -> Iterator[str]:
    """Yield every string literal and every selected field."""
    match expression:
        case Literal(value=str(value)):
            yield value
        case Select(field=field):
            yield field
    for child in child_nodes(expression):
        yield from constant_texts(child)


def constant_arguments(expression: Expression, function: str) -> Iterator[str]:
    """Yield every string literal among the arguments of a function or method of this name."""
    if isinstance(expression, Call) and expression.function == function:
        for argument in expression.arguments:
            if isinstance(argument, Literal) and isinstance(argument.value, str):
                yield argument.value
    for child in child_nodes(expression):
        yield from constant_arguments(child, function)
