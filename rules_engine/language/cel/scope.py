"""Compilation of a document's expressions with its variables, and the values of their names for one object."""

from collections.abc import Mapping
from dataclasses import dataclass

from rules_engine.language.cel.budget import Budget, CelProblems, EvaluationError
from rules_engine.language.cel.check.environment import VARIABLES, Environment
from rules_engine.language.cel.program import Program, compile_expression
from rules_engine.language.cel.syntax.tree import evaluation_depth
from rules_engine.language.cel.values.types import DYN, Type, object_of
from rules_engine.model.json.patch import EMPTY
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.source import Field, SourceText

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

    Each value is computed when it is first read, and cached; so is the error of a variable, which the interpreter reads
    once more after generated code.
    """

    __slots__ = ("_budget", "_errors", "_variables")

    def __init__(
        self, variables: Mapping[str, NamedProgram], budget: Budget, values: Mapping[str, object] = EMPTY
    ) -> None:
        super().__init__(values)
        self._variables = variables
        self._budget = budget
        self._errors: Mapping[str, Exception] = {}

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
        except Exception as error:
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


class VariableCompiler:
    """Compiler of a document's expressions, and of its variables: each may read those before it.

    `generated`: as for `compile_expression`. `variables`: those without errors, by their names in expressions.
    """

    def __init__(self, environment: Environment, *, generated: bool = True) -> None:
        self.variables: dict[str, NamedProgram] = {}
        self.environment = environment.with_variables(variables=object_of(VARIABLES, {}))
        self._generated = generated
        self._declared: dict[str, Type] = {}
        self._levels: dict[str, int] = {}
        """Levels of each variable, including the variables that it reads."""

    def compile(self, source: SourceText, result: Type = DYN, variable: str = "") -> Program:
        """Compile an expression. `variable`: the variable whose value it is; it is declared also after an error.

        Raises CelProblems, also if the expression is nested too deep with the variables that it reads. If one of these
        variables alone is too deep, there is no further problem.
        """
        path, declared = f"{VARIABLES}.{variable}", DYN
        try:
            program = compile_expression(source, self.environment, result=result, generated=self._generated)
            checked = program.checked
            reads = self._levels if VARIABLES in program.reads else program.reads & self._levels.keys()
            inner = max((VARIABLE_LEVELS + self._levels[name] for name in reads), default=0)
            levels = inner + evaluation_depth(checked.expression, checked.references)
            if variable:
                self._levels[path] = levels
            if levels > MAX_LEVELS:
                message = (
                    f"with the variables that it reads the expression is nested more than {MAX_LEVELS} levels deep"
                )
                problem = checked.problem(Code.CEL_TOO_DEEP, message, checked.expression.span)
                raise CelProblems((problem,) if inner <= MAX_LEVELS + VARIABLE_LEVELS else ())
            declared = program.result
            if variable:
                self.variables[path] = NamedProgram(variable, program)
            return program
        finally:
            if variable:
                self._declared[variable] = declared
                # Each on its own, so that it costs nothing until it is read, and the map of all of them.
                types = {path: declared, VARIABLES: object_of(VARIABLES, self._declared)}
                self.environment = self.environment.with_variables(**types)
