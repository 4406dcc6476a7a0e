"""Compilation of Diagnostics, and their evaluation for each object of their kind."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec import structs

from rules_engine.language.cel import (
    Budget,
    CostExceeded,
    Environment,
    EvaluationError,
    LazyScope,
    NamedProgram,
    Program,
    Timestamp,
    types,
)
from rules_engine.language.cel.reads import ReadPath, Reads
from rules_engine.language.cel.values.types import list_of
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, keeps_path
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import SourceText, truncate
from rules_engine.model.rules.finding import Finding, NotEvaluated, Remedy
from rules_engine.rules.diagnostic.catalogue import slots_of
from rules_engine.rules.diagnostic.library import CLUSTER, LIBRARY, LISTS, OBJECTS, ClusterView
from rules_engine.rules.diagnostic.value import Diagnostic, ForEach
from rules_engine.rules.rule_set.compiler import ExpressionCompiler

DIAGNOSTIC_COST = 50_000_000
"""Cost units of one Diagnostic for all objects: 500 for each of 100,000 pods, and at most about five seconds."""

_TEMPLATE = re.compile(r"\{\{\s*(.+?)\s*\}\}")
"""An expression in a text, as other languages write it."""

MAX_QUOTED = 120
"""Characters of a command that a problem repeats in quotes."""

MAX_TEXT = 1_024
"""Characters of a message or of a line of evidence: the API server's bound for the message of an Event."""

MAX_COMMAND = 4_096
"""Characters of a command: nobody reads a longer one before running it."""

EFFECTS = "it finds nothing", "it is found for every object"
"""Effects of a `when` that is always false, and of one that is always true."""

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

CLUSTER_NAME = ObjectName(ForEach.CLUSTER.value, "")
"""The object of a finding about the cluster as a whole."""

_METHODS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("allocatable", "allocated", "available", "total"), frozenset({"Node", "Pod"})),
    "events": frozenset({"Event"}),
    "node": frozenset({"Node"}),
    "pods": frozenset({"Pod"}),
    "devicePlugins": frozenset({"Pod"}),
    # Each object that was read may show GPUs or a text, and none shows that there are none.
    "gpus": frozenset({"Node"}),
    "drivers": frozenset({"Node", "ResourceSlice"}),
    "deviceTaints": frozenset({"Node", "ResourceSlice", "DeviceTaintRule"}),
    "texts": frozenset(),
    "badConditions": frozenset(),
    # Without namespaces it is still evaluated: few pods select namespaces by their labels.
    "waitingFor": frozenset({"Node", "Pod"}),
}
"""Kinds of objects that the functions of objects read."""

_SHAPES = {item.name: item for item in LISTS.values()}
_METHOD_RESULTS: Mapping[str, ReadPath | None] = {
    **dict.fromkeys(_METHODS),
    "events": ReadPath("Event", list_of(_SHAPES["Event"])),
    "node": ReadPath("Node", _SHAPES["Node"]),
    "pods": ReadPath("Pod", list_of(_SHAPES["Pod"])),
    "devicePlugins": ReadPath("Pod", list_of(_SHAPES["Pod"])),
}
"""The objects that these functions return; None for functions that return other values."""

_CLUSTER = ReadPath("", CLUSTER)


@dataclass(frozen=True, slots=True)
class PartialProgram:
    """An expression of evidence or of a slot, and the kinds of objects that it depends on."""

    program: Program
    needs: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledDiagnostic:
    """A Diagnostic with its compiled expressions. It never changes.

    `commands`: the command of each remedy, or None. `needs`: the kinds of objects that `when` and the message depend
    on.
    """

    diagnostic: Diagnostic
    variables: Mapping[str, NamedProgram]
    when: Program
    message: Program | None
    case: Program | None
    slots: Mapping[str, PartialProgram]
    evidence: tuple[PartialProgram, ...]
    commands: tuple[Program | None, ...]
    needs: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of Diagnostics: findings by Diagnostic and object, in order, and failed evaluations."""

    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]


def diagnostic_environment(for_each: ForEach) -> Environment:
    """Return the names and functions that a Diagnostic's expressions may use, in addition to its `variables`."""
    return Environment(
        {"object": OBJECTS[for_each], "cluster": CLUSTER, "now": types.TIMESTAMP, "params": types.DYN},
        libraries=(LIBRARY,),
    )


def diagnostic_compiler(diagnostic: Diagnostic, *, advice: bool = False) -> ExpressionCompiler:
    """Return a compiler. `advice`: it also warns of valid but useless expressions and names."""
    return ExpressionCompiler(diagnostic, diagnostic_environment(diagnostic.for_each), advice=advice)


def compile_diagnostics(
    diagnostics: Iterable[Diagnostic], compiler_of: Callable[[Diagnostic], ExpressionCompiler] = diagnostic_compiler
) -> tuple[tuple[CompiledDiagnostic, ...], tuple[Problem, ...]]:
    """Compile Diagnostics; return the valid ones, ordered by name, and the problems of all."""
    compiled: list[CompiledDiagnostic] = []
    problems: list[Problem] = []
    for diagnostic in sorted(diagnostics, key=lambda diagnostic: diagnostic.name):
        expressions = compiler_of(diagnostic)
        result = _compile_diagnostic(diagnostic, expressions)
        problems += (*expressions.problems, *expressions.find_unguarded_members(), *expressions.unused())
        if result is not None and not expressions.failed:
            compiled.append(result)
    return tuple(compiled), tuple(problems)


def _compile_diagnostic(diagnostic: Diagnostic, compiler: ExpressionCompiler) -> CompiledDiagnostic | None:
    when = compiler.condition(diagnostic.when, EFFECTS)
    compiler.guard()
    message = None if diagnostic.message_expression is None else compiler.text(diagnostic.message_expression)
    case = None if diagnostic.case is None else compiler.text(diagnostic.case)
    slots = {name: program for name, source in diagnostic.slots.items() if (program := _compile_slot(source, compiler))}
    evidence = tuple(filter(None, map(compiler.text, diagnostic.evidence)))
    commands = tuple(
        None if remedy.command is None else _compile_command(remedy.command, compiler) for remedy in diagnostic.remedies
    )
    if when is None or compiler.failed:
        return None

    def partial(program: Program) -> PartialProgram:
        return PartialProgram(program, _kinds_read(diagnostic.for_each, compiler.variables, (program,)))

    shown = slots_of(diagnostic.entry.message) if diagnostic.entry else ()
    decisive = (when, *filter(None, [message, case]), *(program for name, program in slots.items() if name in shown))
    return CompiledDiagnostic(
        diagnostic=diagnostic,
        variables=compiler.variables,
        when=when,
        message=message,
        case=case,
        slots={name: partial(program) for name, program in slots.items()},
        evidence=tuple(map(partial, evidence)),
        commands=commands,
        needs=_kinds_read(diagnostic.for_each, compiler.variables, decisive),
    )


def _kinds_read(
    for_each: ForEach, variables: Mapping[str, NamedProgram], programs: Iterable[Program]
) -> frozenset[str]:
    """Return the kinds that expressions depend on, including the expressions of the variables that they use."""
    each = _CLUSTER if for_each is ForEach.CLUSTER else ReadPath(for_each.value, OBJECTS[for_each])
    checked = {name: variable.program.checked for name, variable in variables.items()}
    reads = Reads({"object": each, "cluster": _CLUSTER}, checked, {}, _METHOD_RESULTS)
    for program in programs:
        reads.add(program.checked)
    lists = reads.kept.pop(_CLUSTER.root, NO_FIELDS)
    listed = (item.name for name, item in LISTS.items() if keeps_path(lists, name))
    own = () if each is _CLUSTER else (each.root,)
    return frozenset({*own, *listed, *reads.kept}).union(*map(_METHODS.__getitem__, reads.called))


def _compile_slot(source: SourceText, compiler: ExpressionCompiler) -> Program | None:
    program = compiler.expression(source)
    if program is not None and program.result not in (
        types.STRING,
        list_of(types.STRING),
        types.DYN,
        list_of(types.DYN),
    ):
        message = f"a slot must be a string or a list of strings, not {program.result}"
        span = program.checked.expression.span
        compiler.problems.append(program.checked.problem(Code.CEL_RESULT_TYPE, message, span))
    return program


def _compile_command(command: SourceText, compiler: ExpressionCompiler) -> Program | None:
    """Compile the expression of a shell command; one that is written without quotes is a single problem."""
    before = len(compiler.problems)
    program = compiler.text(command)
    problems = compiler.problems[before:]
    text = command.text.strip()
    bare = text.isidentifier() and any(problem.code is Code.CEL_UNDECLARED for problem in problems)
    if bare or (text[:1] not in ("'", '"') and any(problem.code is Code.CEL_SYNTAX for problem in problems)):
        literal = _TEMPLATE.sub(r"' + \1 + '", f"'{text}'").removesuffix(" + ''").removeprefix("'' + ")
        plain = len(text) <= MAX_QUOTED and not {"'", '"', "\\"} & {*text}
        shown = f': write "{literal}"' if plain else ""
        problem = structs.replace(problems[0], message=f"command is an expression, and its text needs quotes{shown}")
        compiler.problems[before:] = [problem]
    return program


def evaluate_diagnostics(
    compiled: Iterable[CompiledDiagnostic], objects: ClusterObjects, concerns: Callable[[ApiObject], bool]
) -> Evaluation:
    """Evaluate Diagnostics for the objects for which `concerns` returns True; Diagnostics of the cluster always.

    A Diagnostic whose condition depends on kinds that were not read is not evaluated, since the cluster may have such
    objects. A line of evidence that depends on them says which kinds were not read. A Diagnostic that fails for an
    object is still evaluated for the others.
    """
    cluster = ClusterView(objects)
    base = {"cluster": cluster, "now": Timestamp((objects.now - _EPOCH) // _MICROSECOND * 1_000)}
    findings: list[Finding] = []
    not_evaluated: list[NotEvaluated] = []
    for diagnostic in compiled:
        for_each = diagnostic.diagnostic.for_each
        targets: Sequence[ApiObject | ClusterView] = (
            (cluster,)
            if for_each is ForEach.CLUSTER
            else [item for item in objects.of(for_each.value) if concerns(item)]
        )
        run = _DiagnosticRun(diagnostic, base, objects)
        unread = run.unread_message(diagnostic.needs)
        if not unread:
            run.evaluate(targets)
        elif targets or for_each.value in objects.absent:
            not_evaluated.append(
                NotEvaluated(diagnostic=diagnostic.diagnostic.id, why=unread, unread=True, objects=len(targets))
            )
        findings += run.findings
        not_evaluated += run.not_evaluated
    return Evaluation(findings=tuple(findings), not_evaluated=tuple(not_evaluated))


class _DiagnosticRun:
    """The evaluation of one Diagnostic for objects."""

    def __init__(self, compiled: CompiledDiagnostic, base: Mapping[str, object], objects: ClusterObjects) -> None:
        self.findings: list[Finding] = []
        self._compiled = compiled
        self._objects = objects
        self._base = {**base, "params": compiled.diagnostic.params}
        self._budget = Budget(DIAGNOSTIC_COST, "one Diagnostic")
        self._failures: dict[str, tuple[int, ObjectName]] = {}
        """For each error, the number of objects and the first of them."""

    @property
    def not_evaluated(self) -> tuple[NotEvaluated, ...]:
        diagnostic = self._compiled.diagnostic.id
        return tuple(
            NotEvaluated(diagnostic=diagnostic, why=why, objects=count, first=first)
            for why, (count, first) in self._failures.items()
        )

    def unread_message(self, needs: frozenset[str]) -> str:
        """Return a message if kinds that an expression needs were not read, or ""."""
        objects, for_each = self._objects, self._compiled.diagnostic.for_each.value
        # `objects.unread` also includes kinds of which only some objects were read. This is no reason not to evaluate
        # the Diagnostic for the objects of its own kind that were read.
        kinds = sorted(kind for kind in needs if kind in objects.absent or kind != for_each)
        names = [name for kind in kinds if (name := objects.unread(kind))]
        return f"{' and '.join(names)} were not read" if names else ""

    def _record_failure(self, why: str, count: int, first: ObjectName) -> None:
        """Count objects for which the Diagnostic could not be evaluated."""
        counted, first = self._failures.get(why, (0, first))
        self._failures[why] = counted + count, first

    def evaluate(self, targets: Sequence[ApiObject | ClusterView]) -> None:
        """Evaluate the Diagnostic for each object, until the budget is used up."""
        for index, item in enumerate(targets):
            try:
                self._evaluate(item)
            except CostExceeded as error:
                if self._budget.mark == self._budget.kept:  # nothing is left
                    self._record_failure(str(error), len(targets) - index, _finding_object(item))
                    return
                self._record_failure(str(error), 1, _finding_object(item))
            except EvaluationError as error:
                self._record_failure(str(error), 1, _finding_object(item))

    def _evaluate(self, item: ApiObject | ClusterView) -> None:
        compiled = self._compiled
        scope = LazyScope(compiled.variables, self._budget, {**self._base, "object": item})
        if not scope.holds(compiled.when):
            return
        diagnostic, about = compiled.diagnostic, _finding_object(item)
        message = cause = ""
        remedies: tuple[Remedy, ...] = ()
        if diagnostic.entry is not None:
            entry = diagnostic.entry
            case = "" if compiled.case is None else _evaluate_string(scope, compiled.case)
            if case and case not in entry.cases:
                raise EvaluationError(f"the finding {diagnostic.reason} has no case of this name")
            slots = {  # one whose objects were not read is empty
                name: "" if self.unread_message(slot.needs) else _slot_value(scope, slot.program)
                for name, slot in compiled.slots.items()
            }
            message, cause, remedies = entry.case(case).fill(about, slots)
        own = (
            Remedy(
                text=remedy.text, command="" if command is None else _evaluate_command(scope, command), risk=remedy.risk
            )
            for remedy, command in zip(diagnostic.remedies, compiled.commands, strict=True)
        )
        self.findings.append(
            Finding(
                reason=diagnostic.reason,
                severity=diagnostic.severity,
                object=about,
                message=self._evaluate_message(scope) or message,
                certainty=diagnostic.certainty,
                cause=diagnostic.cause or cause,
                evidence=tuple(
                    text
                    for line in compiled.evidence
                    if (text := self.unread_message(line.needs) or _evaluate_text(scope, line.program))
                ),
                remedies=(*own, *remedies),
                on_host=diagnostic.on_host,
                diagnostic=diagnostic.id,
                source=diagnostic.location,
            )
        )

    def _evaluate_message(self, scope: LazyScope) -> str:
        """Evaluate the message expression; `message` replaces it if it fails or is empty. Raises EvaluationError."""
        text = self._compiled.diagnostic.message
        if self._compiled.message is None:
            return text
        try:
            return _evaluate_text(scope, self._compiled.message) or text
        except CostExceeded:
            raise
        except EvaluationError:
            if not text:
                raise
            return text


def _finding_object(item: ApiObject | ClusterView) -> ObjectName:
    return item.object_name if isinstance(item, ApiObject) else CLUSTER_NAME


def _slot_value(scope: LazyScope, program: Program) -> str | Sequence[str]:
    """Evaluate a slot: a string or a list of strings, each cut to MAX_TEXT. Raises EvaluationError."""
    value = scope.value(program)
    if isinstance(value, str):
        return truncate(value, MAX_TEXT)
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return [truncate(each, MAX_TEXT) for each in value]
    raise EvaluationError("the slot is neither a string nor a list of strings", program.source.location)


def _evaluate_text(scope: LazyScope, program: Program) -> str:
    """Evaluate an expression of a text, and cut it to MAX_TEXT. Raises EvaluationError."""
    return truncate(_evaluate_string(scope, program), MAX_TEXT)


def _evaluate_command(scope: LazyScope, program: Program) -> str:
    """Evaluate an expression of a command, which is never cut. Raises EvaluationError."""
    command = _evaluate_string(scope, program)
    if len(command) > MAX_COMMAND:
        raise EvaluationError(f"the command has more than {MAX_COMMAND} characters", program.source.location)
    return command


def _evaluate_string(scope: LazyScope, program: Program) -> str:
    value = scope.value(program)
    if not isinstance(value, str):
        raise EvaluationError("the expression is not a string", program.source.location)
    return value
