"""Variables and params that no expression of their document reads."""

from collections.abc import Iterator, Mapping, Sequence

from rules_engine.evaluation.context import NamedProgram
from rules_engine.language.cel import Program
from rules_engine.language.cel.check.checker import Constant
from rules_engine.language.cel.check.environment import VARIABLES
from rules_engine.language.cel.syntax.tree import Binary, Expression, Index, Literal, Select, child_nodes
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, warning
from rules_engine.model.rules.rule import ExpressionDocument

_PARAMS = "params"


def find_unused_names(
    declared: ExpressionDocument, variables: Mapping[str, NamedProgram], programs: Sequence[Program]
) -> Iterator[Problem]:
    """Yield a warning for each variable and param that none of a document's expressions, `programs`, reads."""
    read = frozenset[str]().union(*(program.reads for program in programs))
    if VARIABLES not in read:
        for path, variable in variables.items():
            if path not in read:
                yield _warn_unused(declared, Code.UNUSED_VARIABLE, VARIABLES, variable.name)
    members = {
        name for program in programs for name in _params_read(program.checked.expression, program.checked.references)
    }
    if None not in members:
        for name in declared.params:
            if name not in members:
                yield _warn_unused(declared, Code.UNUSED_PARAM, _PARAMS, name)


def _warn_unused(declared: ExpressionDocument, code: Code, field: str, name: str) -> Problem:
    return warning(
        code, f"no expression reads {field}.{name}", declared.origin.get((field, name), declared.location), name
    )


def _params_read(node: Expression, references: Mapping[Expression, str | Constant]) -> Iterator[str | None]:
    """Yield the members of params that an expression reads; None for a read by a computed name."""
    match node:
        case (
            Select(operand=operand, field=str(name))
            | Index(operand=operand, key=Literal(value=str(name)))
            | Binary(operator="in", left=Literal(value=str(name)), right=operand)
        ) if references.get(operand) == _PARAMS:
            yield name
        case _ if references.get(node) == _PARAMS:
            yield None
        case _:
            for part in child_nodes(node):
                yield from _params_read(part, references)
