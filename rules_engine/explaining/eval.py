"""`eval`: the value and the type of an expression on a pod."""

from dataclasses import dataclass
from typing import ClassVar

from rules_engine.cluster.nodes.offers import Reach
from rules_engine.cluster.read.manifests import Manifest
from rules_engine.explaining.cel_text import cel_text
from rules_engine.explaining.explain import mutation_request
from rules_engine.language.cel import Budget, EvaluationError, Program, Type
from rules_engine.language.cel.values.runtime_values import type_of
from rules_engine.language.cel.values.types import ObjectType
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.problems.problem import Problem, Severity
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Rule
from rules_engine.rules.evaluation.admission import validation_request
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.context import Context, Scope
from rules_engine.rules.sources.rule_files import has_errors

EXPRESSION = "<expression>"
"""File name of the expression in locations."""


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
        self.title = manifest.title(request.namespace)
        """The name and the namespace of the pod."""
        self._request = request
        self._cluster = cluster
        self._compiler = Compiler(self._rule)

    def evaluate(self, text: str) -> ExpressionResult:
        """Return the value of an expression, or its problems."""
        lines = tuple(text.split("\n"))
        previous = len(self._compiler.problems)  # of the rule's variables
        program = self._compiler.expression(SourceText.inline(text, EXPRESSION))
        problems = tuple(self._compiler.problems[previous:])
        if program is None or has_errors(problems):
            return ExpressionResult(lines=lines, problems=problems)
        try:
            value = self._value(program)
        except EvaluationError as error:
            failure = ExpressionFailure(error.message, error.location or program.source.location)
            return ExpressionResult(lines=lines, problems=problems, failure=failure)
        return ExpressionResult(
            lines=lines, problems=problems, value=cel_text(value), type=str(_result_type(program, value))
        )

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


def _result_type(program: Program, value: object) -> Type:
    """Return the checker's type, which is more precise (`list(string)`), unless the value is of another type."""
    runtime_type, checked_type = type_of(value), program.result
    if isinstance(checked_type, ObjectType):
        return checked_type if runtime_type == Type("map") else runtime_type
    return checked_type if checked_type.plain == runtime_type else runtime_type
