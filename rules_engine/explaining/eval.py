"""`eval`: the value and the type of an expression on a pod, and completion of an incomplete expression."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from rules_engine.cel import Budget, EvaluationError, Program, Type
from rules_engine.cel.library import dialect_functions
from rules_engine.cel.values.functions import accepts_type
from rules_engine.cel.values.runtime_values import is_map, type_of
from rules_engine.cel.values.types import ObjectType
from rules_engine.evaluation.admission import validation_request
from rules_engine.evaluation.context import Context, Scope
from rules_engine.evaluation.nodes.offers import Reach
from rules_engine.evaluation.rule_set.compiler import ENVIRONMENT, Compiler
from rules_engine.explaining.cel_text import cel_text
from rules_engine.explaining.explain import mutation_request
from rules_engine.kinds.registry import KINDS
from rules_engine.loading import Manifest
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.problems.problem import Problem, Severity
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Rule
from rules_engine.sources.rule_files import has_errors

EXPRESSION = "<expression>"
"""File name of the expression in locations."""

_MACROS: Mapping[str, tuple[str, ...]] = {
    "list": ("all", "exists", "existsOne", "exists_one", "filter", "map", "sortBy", "transformList", "transformMap"),
    "map": ("all", "exists", "existsOne", "exists_one", "filter", "map", "transformList", "transformMap"),
    "optional_type": ("optMap", "optFlatMap"),
}
"""Names of macros, by the type they are called on."""

_MAP = Type("map")
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"\w*\Z")
_STRING = re.compile(r"'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True, slots=True)
class ExpressionFailure:
    """Failure of an expression on a pod, located at the failed subexpression, perhaps in a variable of the rule."""

    message: str
    location: Location
    length: ClassVar[int] = 1
    severity: ClassVar[Severity] = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.location}: {self.severity.value}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionResult:
    """The value of an expression as CEL with its type; or the problems of compiling it; or its failure.

    `lines`: the text of the expression, for snippets.
    """

    lines: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    failure: ExpressionFailure | None = None
    value: str = ""
    type: str = ""


class _NoRule(Rule):
    """A rule without variables and params, for expressions that belong to no rule."""

    kind = "Expression"

    @property
    def can_deny(self) -> bool:
        return False


class Subject:
    """A pod and a cluster that expressions are evaluated on, with the variables and params of a rule.

    The pod is as submitted, even for a validating rule: no mutating rule has changed it.
    """

    def __init__(self, manifest: Manifest, cluster: Cluster, *, namespace: str = "", rule: Rule | None = None) -> None:
        """Raise NamespaceError if `namespace` is not the manifest's."""
        self._rule = rule or _NoRule(name="", location=Location(EXPRESSION, 1, 1))
        endpoints = {kind.value: kind.endpoint for kind in KINDS}
        request = mutation_request(manifest, namespace=namespace)
        if endpoints.get(type(self._rule)) is Endpoint.VALIDATE:
            request = validation_request(request, request.object)
        self._request = request
        self._manifest = manifest
        self._cluster = cluster
        self._compiler = Compiler(self._rule)

    @property
    def title(self) -> str:
        """The name and the namespace of the pod."""
        return self._manifest.title(self._request.namespace)

    def evaluate(self, text: str) -> ExpressionResult:
        """Return the value of an expression, or its problems."""
        lines = tuple(text.split("\n"))
        program, problems = self._compile(text)
        if program is None:
            return ExpressionResult(lines=lines, problems=problems)
        try:
            value = self._value(program)
        except EvaluationError as error:
            failure = ExpressionFailure(error.message, error.location or program.source.location)
            return ExpressionResult(lines=lines, problems=problems, failure=failure)
        return ExpressionResult(
            lines=lines, problems=problems, value=cel_text(value), type=str(_result_type(program, value))
        )

    def completions(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Return the last word of a text, which may be empty, and the names that complete it."""
        match = _WORD.search(text)
        word = match.group() if match else ""
        before = text[: len(text) - len(word)]
        if set("'\"") & set(_STRING.sub("", before)):  # inside a string
            return word, ()
        dotted = before.removesuffix("?")
        names = self._members(_last_operand(dotted[:-1])) if dotted.endswith(".") else self._names()
        return word, tuple(sorted({name for name in names if name.startswith(word) and _NAME.fullmatch(name)}))

    def _compile(self, text: str) -> tuple[Program | None, tuple[Problem, ...]]:
        previous = len(self._compiler.problems)  # the compiler collects the problems of all expressions
        program = self._compiler.expression(SourceText.inline(text, EXPRESSION))
        problems = tuple(self._compiler.problems[previous:])
        return None if has_errors(problems) else program, problems

    def _value(self, program: Program) -> object:
        """Evaluate a program with a new budget. Raises EvaluationError."""
        pod = Pod.parse(self._request.object)
        context = Context(
            request=self._request,
            pod=pod,
            cluster=self._cluster,
            budget=Budget(),
            audit_budget=Budget(),
            reach=Reach(pod, self._cluster),
        )
        return Scope(context, self._rule, self._compiler.variables).value(program)

    def _names(self) -> Iterator[str]:
        """Yield the names that an expression can begin with."""
        yield from (*ENVIRONMENT.variables, "variables", "true", "false", "null", "has", "cel")
        yield from (name.partition(".")[0] for name in dialect_functions().names(method=False))

    def _members(self, operand: str) -> Iterator[str]:
        """Yield the fields and methods of an operand, and the functions in a namespace such as math."""
        for name in (*dialect_functions().names(method=False), "cel.bind"):
            namespace, _, member = name.partition(".")
            if namespace == operand:
                yield member
        program, _ = self._compile(operand)
        if program is None:
            return
        operand_type = program.result
        try:
            value = self._value(program)
        except EvaluationError:
            pass
        else:
            operand_type = _result_type(program, value)
            if is_map(value):
                yield from (key for key in value if isinstance(key, str))  # type: ignore[attr-defined]
        if isinstance(operand_type, ObjectType):
            yield from operand_type.fields
            operand_type = _MAP
        yield from _MACROS.get(operand_type.name, ())
        for name in dialect_functions().names(method=True):
            overloads = dialect_functions().named(name, method=True)
            if any(accepts_type(overload.parameters[0], operand_type.plain) for overload in overloads):
                yield name


def _result_type(program: Program, value: object) -> Type:
    """Return the checker's type, which is more precise (`list(string)`), unless the value is of another type."""
    runtime_type, checked_type = type_of(value), program.result
    if isinstance(checked_type, ObjectType):
        return checked_type if runtime_type == _MAP else runtime_type
    return checked_type if checked_type.plain == runtime_type else runtime_type


_BRACKETS = {")": "(", "]": "[", "}": "{"}


def _last_operand(text: str) -> str:
    """Return the chain of members, calls and indexes at the end of a text."""
    start, depth = len(text), 0
    while start:
        character = text[start - 1]
        if character in _BRACKETS:
            depth += 1
        elif character in _BRACKETS.values():
            if not depth:
                break
            depth -= 1
        elif not depth and not (character.isalnum() or character in "_.?"):
            break
        start -= 1
    return text[start:].lstrip("?.")
