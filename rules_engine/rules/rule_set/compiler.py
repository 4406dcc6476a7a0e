"""Compilation of the expressions of a rule, or of another document, with all their problems."""

from collections.abc import Collection, Iterator, Sequence

from msgspec import structs

from rules_engine.language.cel import CelProblems, Environment, NamedProgram, Program, Type, VariableCompiler, types
from rules_engine.language.cel.check.environment import VARIABLES
from rules_engine.language.cel.check.presence import Paths, PresencePath, presence_warnings
from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.problem import Problem, Severity, warning
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.rule import ExpressionDocument, Rule
from rules_engine.rules.rule_set.constant_conditions import find_constant_conditions, find_unused_names
from rules_engine.rules.rule_set.constants import Constants

MATCH_EFFECTS = "the rule applies to no pod", "it has no effect"
"""Effects of a match condition that is always false, and always true."""

ENVIRONMENT = Environment(
    {
        "object": types.POD,
        "oldObject": types.POD,
        "request": types.ADMISSION_REQUEST,
        "namespaceObject": types.NAMESPACE,
        "params": types.DYN,
        "cluster": types.CLUSTER,
    }
)
"""Names in the expressions of rules at admission; each rule adds its `variables`."""


class ExpressionCompiler(VariableCompiler):
    """Compiler of one document's expressions: of its variables at once, of others on request.

    `environment` has the names that its expressions may use in addition to the variables. `problems`: the problems so
    far. An expression with an error is None, so that others are compiled all the same. `advice`: report expressions
    that are constant, and names that are not read, as well. Its programs have no generated code: they are reported on,
    not evaluated for objects.
    """

    def __init__(self, declared: ExpressionDocument, environment: Environment, *, advice: bool = False) -> None:
        super().__init__(environment, generated=not advice)
        self.problems: list[Problem] = []
        self._document = declared
        self._advice = advice
        self._programs: list[Program] = []
        self._constants = Constants(declared.params)
        self._guards: list[Program] = []
        self._guarded: list[Program] = []
        """Conditions, and the expressions that are evaluated only if they are true; without variables and messages."""
        self._selected: Paths = frozenset()
        """Paths that exist for every object that is selected."""
        for variable in declared.variables:
            if program := self._compile(variable.expression, types.DYN, variable=variable.name):
                self._constants.learn(f"{VARIABLES}.{variable.name}", program)

    @property
    def failed(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.problems)

    def warn(self, code: ProblemCode, message: str, program: Program) -> None:
        """Add a warning about a compiled expression."""
        source = program.source
        self.problems.append(warning(code, message, source.at(0), source.text.partition("\n")[0]))

    def condition(self, source: SourceText | None, effects: Sequence[str]) -> Program | None:
        """Compile a condition. `effects`: the effects of a condition that is always false, and always true."""
        return None if source is None else self._compile(source, types.BOOL, effects=effects)

    def guard(self) -> None:
        """Declare that expressions compiled from now on are evaluated only if all conditions so far are true."""
        self._guards, self._guarded = self._guarded, []

    def text(self, source: SourceText, failing: Severity = Severity.ERROR) -> Program | None:
        """Compile an expression of type string. `failing`: the severity if it fails for every object."""
        return self._compile(source, types.STRING, failing)

    def expression(self, source: SourceText) -> Program | None:
        """Compile an expression of any type that does not belong to the rule."""
        return self._compile(source, types.DYN)

    def unused(self) -> Iterator[Problem]:
        """Yield advice about variables and params that no expression reads, when all are compiled without error."""
        if self._advice and not self.failed:
            yield from find_unused_names(self._document, self.variables, self._programs)

    def find_unguarded_members(self, absent: Collection[PresencePath] = ()) -> Iterator[Problem]:
        """Yield advice about members that are read and may be absent: optional fields, and paths in `absent`."""
        if self._advice:
            variables = {path: variable.program.checked for path, variable in self.variables.items()}
            guards, guarded = ([program.checked for program in each] for each in (self._guards, self._guarded))
            yield from presence_warnings(variables, guards, guarded, self._selected, absent)

    def _compile(
        self,
        source: SourceText,
        result: Type,
        failing: Severity = Severity.ERROR,
        variable: str = "",
        effects: Sequence[str] = (),
    ) -> Program | None:
        """Compile an expression; None, with problems, if it fails. `failing`: severity of failing for every pod.

        `variable`: the name of the variable whose value it is. `effects`: the effects of a constant condition.
        """
        try:
            program = self.compile(source, result, variable)
        except CelProblems as failure:
            self.problems.extend(failure.problems)
            return None
        self.problems.extend(program.warnings)
        self._programs.append(program)
        if not variable and failing is Severity.ERROR:
            self._guarded.append(program)
        failures = [*self._constants.problems(program, self.environment, result)]
        self.problems.extend(structs.replace(problem, severity=failing) for problem in failures)
        if self._advice and not failures:
            self.problems.extend(find_constant_conditions(program, self._constants, effects))
        return program


class Compiler(ExpressionCompiler):
    """Compiler of one rule: of its variables and conditions at once, of the expressions of its kind on request."""

    def __init__(self, rule: Rule, *, advice: bool = False) -> None:
        super().__init__(rule, ENVIRONMENT, advice=advice)
        self.conditions = tuple(
            NamedProgram(condition.name, program, rule.fields[f"matchConditions[{index}].expression"])
            for index, condition in enumerate(rule.match_conditions)
            if (program := self.condition(condition.expression, MATCH_EFFECTS))
        )
        self.guard()
        labels = ("namespaceObject", "metadata", "labels"), ("object", "metadata", "labels")
        selectors = rule.match.namespace_selector.requirements, rule.match.object_selector.requirements
        self._selected = frozenset(
            path
            for parent, requirements in zip(labels, selectors, strict=True)
            for requirement in requirements
            for path in (parent, (*parent, requirement.key))
        ) | {labels[0]}

    def message(self, source: SourceText | None) -> Program | None:
        """Compile a messageExpression. If it fails for every pod, that is a warning: the message replaces it."""
        return None if source is None else self.text(source, Severity.WARNING)
