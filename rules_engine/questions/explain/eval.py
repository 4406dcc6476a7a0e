"""`eval`: the value of an expression on a pod, as CEL text, and its type."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar

from rules_engine.cluster.nodes.offers import Reach
from rules_engine.cluster.read.manifests import Manifest
from rules_engine.language.cel import Budget, Duration, EvaluationError, Optional, Program, Timestamp, Type, Uint
from rules_engine.language.cel.values.runtime_values import type_of
from rules_engine.language.cel.values.times import duration_text, timestamp_text
from rules_engine.language.cel.values.types import ObjectType
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.problem import Problem, Severity
from rules_engine.model.problems.source import Location, SourceText, escape_controls
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Rule
from rules_engine.questions.explain.explain import mutation_request
from rules_engine.rules.evaluation.admission import validation_request
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.context import Context, ExpressionScope
from rules_engine.rules.sources.rule_files import has_errors

MAX_LINE = 100
"""Longest list or map in one line, in characters; a longer one has a line for each member."""

MAX_PIECES = 100_000
"""Most parts of a value that are shown: an expression can make a list of a list many times, and a list of that."""

INDENT = "  "


def cel_text(value: object) -> str:
    """Return a CEL expression with this value, or its first MAX_PIECES parts and an ellipsis."""
    parts = _text_pieces(value)
    pieces = [*islice(parts, MAX_PIECES), *("…" for _ in islice(parts, 1))]
    # The check is on the whole: a list that does not fit is broken at every level, as are the short lists in it.
    return "".join(pieces if sum(map(len, pieces)) <= MAX_LINE else _break_lines(iter(pieces)))


def _text_pieces(value: object) -> Iterator[str]:
    """Yield the text of a value in pieces; each bracket and each comma between members is a piece."""
    if type(value) is Optional:
        yield "optional.of(" if value.present else "optional.none("
        if value.present:
            yield from _text_pieces(value.value)
        yield ")"
    elif type(value) is list:
        yield from _member_pieces("[]", map(_text_pieces, value))
    elif isinstance(value, Mapping):
        yield from _member_pieces(
            "{}", (chain(_text_pieces(key), (": ",), _text_pieces(item)) for key, item in value.items())
        )
    else:
        write = _WRITERS.get(type(value))
        yield write(value) if write else type_of(value).name


def _member_pieces(brackets: str, members: Iterable[Iterator[str]]) -> Iterator[str]:
    separator = brackets[0]
    for member in members:
        yield separator
        yield from member
        separator = ", "
    yield brackets[1] if separator == ", " else brackets  # "[]" is one piece, which no line break splits


def _break_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Insert line breaks, so that each member of a list or map has its own line."""
    indent = "\n"
    for piece in pieces:
        if piece in ("]", "}"):
            indent = indent.removesuffix(INDENT)
            yield indent
        yield piece.rstrip() if piece == ", " else piece
        if piece in ("[", "{"):
            indent += INDENT
        if piece in (", ", "[", "{"):
            yield indent


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    Uint: repr,
    float: lambda value: repr(value) if math.isfinite(value) else f'double("{value}")',
    str: lambda value: escape_controls(
        json.dumps(value, ensure_ascii=False)
    ),  # not what a terminal interprets or hides
    bytes: repr,
    Type: lambda value: value.name,
    Timestamp: lambda value: f'timestamp("{timestamp_text(value)}")',
    Duration: lambda value: f'duration("{duration_text(value)}")',
    Quantity: lambda value: f'quantity("{value}")',
}

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
            pod = Pod.parse(self._request.object)
            context = Context(
                request=self._request,
                pod=pod,
                cluster=self._cluster,
                budget=Budget(),
                audit_budget=Budget(),
                reach=Reach(pod, self._cluster),
            )
            value = ExpressionScope(context, self._rule, self._compiler.variables).value(program)
        except EvaluationError as error:
            failure = ExpressionFailure(error.message, error.location or program.source.location)
            return ExpressionResult(lines=lines, problems=problems, failure=failure)
        return ExpressionResult(
            lines=lines, problems=problems, value=cel_text(value), type=str(_result_type(program, value))
        )


def _result_type(program: Program, value: object) -> Type:
    """Return the checker's type, which is more precise (`list(string)`), unless the value is of another type."""
    runtime_type, checked_type = type_of(value), program.result
    if isinstance(checked_type, ObjectType):
        return checked_type if runtime_type == Type("map") else runtime_type
    return checked_type if checked_type.plain == runtime_type else runtime_type
