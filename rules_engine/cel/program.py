"""Compiled expressions: parsed, checked and ready for evaluation."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType

from rules_engine.cel.budget import Budget, CelProblems, EvaluationError
from rules_engine.cel.check.checker import Checked, check_expression
from rules_engine.cel.check.environment import Environment
from rules_engine.cel.check.nesting import container_levels
from rules_engine.cel.run.codegen import Function, generate_function
from rules_engine.cel.run.interpreter import interpret
from rules_engine.cel.syntax.tree import Call, Expression, Literal, Select, child_nodes
from rules_engine.cel.values.runtime_values import Optional, check_int, is_map
from rules_engine.cel.values.types import DYN, Type
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import SourceText

_log = logging.getLogger(__name__)

DEFECTS: Counter[str] = Counter()
"""Evaluations with defective generated code, by the place of the expression; the first of each is logged."""

_NO_VALUE_RAISES = (NameError, ImportError, AssertionError, SystemError)
"""Exceptions that only a defect of generated code raises. Any other may be how it gives up (run/codegen)."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. It never changes, so threads share it."""

    checked: Checked
    generated: Function | None
    levels: int
    """Depth of the lists and maps in the result that the expression makes."""

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
                value = self.generated.run(activation, budget)
                return value if value is True or value is False else self.check_result(value, budget)
            except Exception as error:
                # Generated code may give up with any exception, since it assumes that nothing fails. The interpreter
                # then starts again: it absorbs errors and knows their places (reasons: run/codegen/__init__.py).
                budget.rewind(mark)
                if isinstance(error, _NO_VALUE_RAISES):
                    self._count_defect(error)
        return self.interpret(activation, budget)

    def _count_defect(self, error: Exception) -> None:
        place = str(self.source.at(0))
        DEFECTS[place] += 1
        if DEFECTS[place] == 1:
            message = "the generated code of the expression at %s is wrong (%s): it is interpreted, which is slower"
            _log.error(message, place, type(error).__name__)

    def interpret(self, activation: Mapping[str, object], budget: Budget) -> object:
        """Return the same value, or raise the same error, without the generated code."""
        try:
            return self.check_result(interpret(self.checked, activation, budget), budget)
        except RecursionError:
            raise EvaluationError("a value is nested too deeply", self.source.at(0)) from None
        except EvaluationError as error:
            if error.location is not None:
                raise
            raise type(error)(error.message, self.source.at(0)) from None

    def check_result(self, value: object, budget: Budget) -> object:
        """Return the result after a check of its ints, and of the size of its lists and maps made by the expression.

        Parts of the activation are not walked: their cost would depend on more than the expression reads.
        """
        layer = [value]
        for _ in range(self.levels):
            layer = _layer_members(layer, budget)
        for item in layer:
            while type(item) is Optional:
                item = item.value
            if type(item) is int:
                check_int(item)
        return value


def _layer_members(layer: list[object], budget: Budget) -> list[object]:
    """Return the members of a layer's lists and maps, as often as they occur, and its other values unchanged."""
    members: list[object] = []
    for item in layer:
        while type(item) is Optional:
            item = item.value
        if type(item) is list:
            budget.spend(len(item))
            members += [member for member in item if type(member) not in _SIMPLE]
        elif type(item) is dict or is_map(item):
            budget.spend(len(item))  # type: ignore[arg-type]
            members += [member for member in item.values() if type(member) not in _SIMPLE]  # type: ignore[attr-defined]
        else:
            members.append(item)
    return members


_SIMPLE = frozenset({str, bool, float, NoneType})
"""Classes of most members of lists and maps, which need no check."""


def compile_expression(
    source: SourceText, environment: Environment, *, result: Type = DYN, generated: bool = True
) -> Program:
    """Compile an expression whose value must be of the type `result`.

    `generated`: with generated code, which is made in a tenth of a millisecond and evaluated ten times as fast. Raises
    CelProblems with all problems of the expression.
    """
    # Imported with the first expression: lark is a fifth of this package's import time.
    from rules_engine.cel.syntax.parser import parse_expression

    checked = check_expression(source, parse_expression(source), environment)
    problems = checked.problems
    if not problems and result != DYN and checked.result not in (DYN, result):
        message = f"the expression must be {result}, not {checked.result}"
        problems = (checked.problem(Code.CEL_RESULT_TYPE, message, checked.expression.span),)
    if problems:
        raise CelProblems(problems)
    return program_of(checked) if generated else Program(checked, None, container_levels(checked))


def program_of(checked: Checked) -> Program:
    """Return the program of a checked expression."""
    return Program(checked, generate_function(checked), container_levels(checked))


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
