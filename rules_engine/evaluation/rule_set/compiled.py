"""Compiled rules, in the order of evaluation. They never change."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias, TypeVar

from rules_engine.cel import CelProblems, Environment, Program, Type, compile_expression, types
from rules_engine.cel.check.certainty import evaluation_depth
from rules_engine.cel.check.environment import VARIABLES
from rules_engine.evaluation.nodes import NodeQuery
from rules_engine.evaluation.rule_set.constants import Constants
from rules_engine.evaluation.rule_set.index import Fact, Index
from rules_engine.model.problems import Problem, Severity, in_file_order
from rules_engine.model.rules import (
    AnyRule,
    Check,
    FallbackLadder,
    Mode,
    Operation,
    ResourceInjection,
    Rule,
    Rung,
    Validation,
)
from rules_engine.model.source import SourceText

R = TypeVar("R", bound=Rule)

MAX_LEVELS = 150
"""Levels of an expression with the variables that it reads: each takes up to five Python frames, of the 1,000 that
Python allows, and its callers take up to a hundred."""

VARIABLE_LEVELS = 2
"""Levels that reading a variable counts for: ten frames until its expression is evaluated."""

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


@dataclass(frozen=True, slots=True)
class CompiledNamed:
    """A variable or a match condition, compiled."""

    name: str
    program: Program

    @property
    def path(self) -> str:
        """The variable's name in expressions."""
        return f"variables.{self.name}"


@dataclass(frozen=True, slots=True)
class CompiledRung:
    """A rung and its `when`."""

    rung: Rung
    when: Program | None


@dataclass(frozen=True, slots=True)
class CompiledCheck:
    """A compiled check of a Validation."""

    check: Check
    expression: Program
    message: Program | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(Generic[R]):
    """A rule with the compiled expressions that every kind has."""

    rule: R
    variables: tuple[CompiledNamed, ...]
    conditions: tuple[CompiledNamed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledLadder(Compiled[FallbackLadder]):
    """A compiled ladder: `resources` are those of the rungs, in order; `query` finds the nodes that offer them."""

    rungs: tuple[CompiledRung, ...]
    resources: tuple[str, ...] = field(init=False, repr=False, compare=False)
    query: NodeQuery = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        query = NodeQuery.of(self.rule)
        object.__setattr__(self, "resources", query.resources)
        object.__setattr__(self, "query", query)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledInjection(Compiled[ResourceInjection]):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledValidation(Compiled[Validation]):
    checks: tuple[CompiledCheck, ...]


AnyCompiled: TypeAlias = CompiledLadder | CompiledInjection | CompiledValidation


def programs(compiled: AnyCompiled) -> Iterator[Program]:
    """Yield every expression that may change a decision, so not those of messages."""
    for named in (*compiled.variables, *compiled.conditions):
        yield named.program
    match compiled:
        case CompiledLadder():
            yield from (rung.when for rung in compiled.rungs if rung.when is not None)
        case CompiledValidation():
            yield from (check.expression for check in compiled.checks)
        case _:
            pass


def messages(compiled: AnyCompiled) -> Iterator[Program]:
    """Yield the expressions of messages."""
    if isinstance(compiled, CompiledValidation):
        yield from (check.message for check in compiled.checks if check.message is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """Compiled rules of each kind, in the order of evaluation. Rules that are Off are not in it."""

    ladders: tuple[CompiledLadder, ...] = ()
    injections: tuple[CompiledInjection, ...] = ()
    validations: tuple[CompiledValidation, ...] = ()
    ladder_index: Index[CompiledLadder] = field(init=False, repr=False, compare=False)
    injection_index: Index[CompiledInjection] = field(init=False, repr=False, compare=False)
    validation_index: Index[CompiledValidation] = field(init=False, repr=False, compare=False)
    validated_operations: frozenset[Fact] = field(init=False, repr=False, compare=False)
    """CREATE, and the operations that some validation matches: pods at other operations are not parsed."""

    @property
    def rules(self) -> tuple[AnyCompiled, ...]:
        """The rules of every kind."""
        return (*self.ladders, *self.injections, *self.validations)

    def __post_init__(self) -> None:
        indexes = {
            "ladder_index": Index(self.ladders),
            "injection_index": Index(self.injections),
            "validation_index": (validations := Index(self.validations)),
            "validated_operations": validations.operations | {Operation.CREATE.value},
        }
        for name, value in indexes.items():
            object.__setattr__(self, name, value)


def compile_rules(rules: Iterable[AnyRule]) -> tuple[RuleSet, tuple[Problem, ...]]:
    """Compile every expression of every rule; those of rules that are Off as well, so that they stay valid.

    A rule with a problem is not in the rule set: the caller decides whether to use the others.
    """
    problems: list[Problem] = []
    ladders: list[CompiledLadder] = []
    injections: list[CompiledInjection] = []
    validations: list[CompiledValidation] = []
    for rule in sorted(rules, key=lambda rule: rule.order):
        compiler = _Compiler(rule)
        compiled = compiler.rule(rule)
        problems.extend(compiler.problems)
        if compiler.failed or rule.mode is Mode.OFF:
            continue
        match compiled:
            case CompiledLadder():
                ladders.append(compiled)
            case CompiledInjection():
                injections.append(compiled)
            case _:
                validations.append(compiled)
    rule_set = RuleSet(ladders=tuple(ladders), injections=tuple(injections), validations=tuple(validations))
    return rule_set, in_file_order(problems)


class _Compiler:
    """Compiles the expressions of one rule and collects their problems."""

    def __init__(self, rule: Rule) -> None:
        self.problems: list[Problem] = []
        self._constants = Constants(rule.params)
        self._levels: dict[str, int] = {}
        """Levels of each variable, with those of the variables that it reads."""

    @property
    def failed(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.problems)

    def rule(self, rule: AnyRule) -> CompiledLadder | CompiledInjection | CompiledValidation:
        variables, environment = self._variables(rule)
        conditions = tuple(
            CompiledNamed(named.name, program)
            for named in rule.match_conditions
            if (program := self._compile(named.expression, environment, types.BOOL))
        )
        match rule:
            case FallbackLadder():
                rungs = tuple(
                    CompiledRung(rung, self._optional(rung.when, environment, types.BOOL)) for rung in rule.rungs
                )
                return CompiledLadder(rule=rule, variables=variables, conditions=conditions, rungs=rungs)
            case ResourceInjection():
                return CompiledInjection(rule=rule, variables=variables, conditions=conditions)
            case _:
                checks = tuple(
                    CompiledCheck(check, expression, message)
                    for check in rule.validations
                    for message in [self._message(check.message_expression, environment)]
                    if (expression := self._compile(check.expression, environment, types.BOOL))
                )
                return CompiledValidation(rule=rule, variables=variables, conditions=conditions, checks=checks)

    def _variables(self, rule: Rule) -> tuple[tuple[CompiledNamed, ...], Environment]:
        """Compile the variables: each may read those before it. One that does not compile is declared all the same."""
        declared: dict[str, Type] = {}
        compiled = []
        for named in rule.variables:
            program = self._compile(named.expression, _with_variables(declared), types.DYN, variable=named.name)
            if program:
                compiled.append(CompiledNamed(named.name, program))
                self._constants.learn(compiled[-1].path, program)
            declared[named.name] = program.result if program else types.DYN
        return tuple(compiled), _with_variables(declared)

    def _message(self, source: SourceText | None, environment: Environment) -> Program | None:
        """Compile a messageExpression. One that fails is a warning, since the message replaces it."""
        return self._optional(source, environment, types.STRING, Severity.WARNING)

    def _optional(
        self, source: SourceText | None, environment: Environment, result: Type, failing: Severity = Severity.ERROR
    ) -> Program | None:
        return None if source is None else self._compile(source, environment, result, failing)

    def _compile(
        self,
        source: SourceText,
        environment: Environment,
        result: Type,
        failing: Severity = Severity.ERROR,
        variable: str | None = None,
    ) -> Program | None:
        """Compile an expression; None, with problems, if it fails. `failing`: severity of failing for every pod.

        `variable`: the name of the variable of which it is the value.
        """
        try:
            program = compile_expression(source, environment, result=result)
        except CelProblems as found:
            self.problems.extend(found.problems)
            return None
        self.problems.extend(program.warnings)
        checked, inner = program.checked, self._levels_of_variables(program)
        levels = inner + evaluation_depth(checked.expression, checked.certain, names=checked.references)
        if variable is not None:
            self._levels[f"{VARIABLES}.{variable}"] = levels
        if levels > MAX_LEVELS:
            # A variable that is too deep is reported itself, and not again for the expressions that read it.
            if inner <= MAX_LEVELS + VARIABLE_LEVELS:
                self.problems.append(_too_deep(program))
            return None
        doomed = self._constants.problems(program, environment, result)
        self.problems.extend(replace(problem, severity=failing) for problem in doomed)
        return program

    def _levels_of_variables(self, program: Program) -> int:
        """Return the levels of the deepest variable that an expression reads, with those of reading it."""
        reads = self._levels if VARIABLES in program.reads else program.reads & self._levels.keys()
        return max((VARIABLE_LEVELS + self._levels[name] for name in reads), default=0)


def _too_deep(program: Program) -> Problem:
    span = program.checked.expression.span
    return Problem(
        code="cel-too-deep",
        message=f"with the variables that it reads the expression is nested more than {MAX_LEVELS} levels deep",
        location=program.source.at(span.start),
        length=max(1, span.end - span.start),
    )


def _with_variables(declared: Mapping[str, Type]) -> Environment:
    """Declare each variable on its own, so that it costs nothing until it is read, and the map of all of them."""
    each = {f"variables.{name}": type for name, type in declared.items()}
    return ENVIRONMENT.extended(variables=types.object_of("variables", declared), **each)
