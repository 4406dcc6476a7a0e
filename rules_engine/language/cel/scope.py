"""The values of names in the expressions of a document, for one object."""

from collections.abc import Mapping
from dataclasses import dataclass

from rules_engine.language.cel.budget import Budget, EvaluationError
from rules_engine.language.cel.check.environment import VARIABLES, Environment
from rules_engine.language.cel.program import Program
from rules_engine.language.cel.values.types import Type, object_of
from rules_engine.model.json.patch import EMPTY
from rules_engine.model.problems.source import Field

MAX_LEVELS = 150
"""Levels of an expression with the variables that it reads: each takes up to five Python frames, of the 1,000 that
Python allows, and its callers take up to a hundred."""

VARIABLE_LEVELS = 2
"""Levels that reading a variable counts for: ten frames until its expression is evaluated."""


@dataclass(frozen=True, slots=True)
class NamedProgram:
    """A compiled variable or match condition; `fields` has the field of its expression."""

    name: str
    program: Program
    fields: tuple[Field, ...] = ()


class LazyScope(dict[str, object]):
    """The values of names in the expressions of one document, for one object.

    Each value is computed when it is first read, and cached; so is the error of a variable.
    """

    __slots__ = ("_budget", "_errors", "_variables")

    def __init__(
        self, variables: Mapping[str, NamedProgram], budget: Budget, values: Mapping[str, object] = EMPTY
    ) -> None:
        super().__init__(values)
        self._variables = variables
        self._budget = budget
        self._errors: Mapping[str, EvaluationError] = {}

    def value(self, program: Program) -> object:
        """Evaluate an expression. Raises EvaluationError."""
        return program.evaluate(self, self._budget)

    def holds(self, program: Program) -> bool:
        """Return True if a condition is true. Raises EvaluationError, also for a value that is not a bool."""
        value = program.evaluate(self, self._budget)
        if not isinstance(value, bool):
            raise EvaluationError("the condition is not a bool", program.source.location)
        return value

    def __missing__(self, name: str) -> object:
        if name in self._errors:
            raise self._errors[name]
        try:
            value = self[name] = self._compute(name)
        except EvaluationError as error:
            self._errors = {**self._errors, name: error}
            raise
        return value

    def _compute(self, name: str) -> object:
        """Compute the value of a variable, or of `variables`. Raises EvaluationError."""
        variable = self._variables.get(name)
        if variable is None:
            return {variable.name: self[path] for path, variable in self._variables.items()}
        mark = self._budget.mark
        try:
            return self.value(variable.program)
        finally:
            self._budget.keep(mark)


def with_variables(environment: Environment, declared: Mapping[str, Type]) -> Environment:
    """Declare each variable on its own, so that it costs nothing until it is read, and the map of all of them."""
    each = {f"{VARIABLES}.{name}": type for name, type in declared.items()}
    return environment.with_variables(variables=object_of(VARIABLES, declared), **each)


def levels_of_variables(program: Program, levels: Mapping[str, int]) -> int:
    """Return the levels of the deepest variable that an expression reads, including the read itself."""
    reads = levels if VARIABLES in program.reads else program.reads & levels.keys()
    return max((VARIABLE_LEVELS + levels[name] for name in reads), default=0)
