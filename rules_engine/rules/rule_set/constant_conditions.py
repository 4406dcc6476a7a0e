"""Text without effect: conditions that are true for every pod, or false for every pod, and names that nothing reads.

`true` and `false` as such are written deliberately. So are params and variables that are bool, and comparisons of
params joined to other conditions (`params.teams.size() == 0 || …`): they are switches. All else that does not depend on
the pod is reported, in its innermost part. A part that may fail counts with the value that it has otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations

from rules_engine.language.cel import NamedProgram, Program
from rules_engine.language.cel.check.checker import Constant
from rules_engine.language.cel.check.environment import VARIABLES
from rules_engine.language.cel.syntax import tree
from rules_engine.language.cel.syntax.tree import Binary, Expression, Index, Literal, Select, child_nodes
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Severity, warning
from rules_engine.model.rules.rule import ExpressionDocument
from rules_engine.rules.rule_set.constants import Constants, Reading


def find_constant_conditions(program: Program, constants: Constants, effects: Sequence[str]) -> Iterator[Problem]:
    """Yield the constant parts of an expression.

    `effects`: the effects of an expression that is a condition and is false, and true; empty if it is no condition.
    """
    conditions = _Conditions(program)
    expression = program.checked.expression
    if effects and conditions.decision(expression) is None:
        reading = constants.reading(program)
        value = reading.value(expression)
        if isinstance(value, bool) and not _has_switch(expression, reading):
            message = f"the condition depends on params and variables alone, and is always {_bool_word(value)}"
            yield conditions.problem(expression, f"{message}: {effects[value]}")
            return
    for part, decided in conditions.constant_parts(expression):
        if effects and conditions.decision(expression) is not None:
            yield conditions.problem(part, f"the condition is always {_bool_word(decided)}: {effects[decided]}")
        else:
            yield conditions.problem(part, f"this part of the expression is always {_bool_word(decided)}")


class _Conditions:
    """The conditions in one expression."""

    def __init__(self, program: Program) -> None:
        self._checked = program.checked
        self._reading = Reading(program.checked, {})
        self.decision = cache(self._decision)

    def constant_parts(self, node: Expression) -> Iterator[tuple[Expression, bool]]:
        """Yield the constant conditions in an expression, each at its cause."""
        decision = self.decision(node)
        if decision is None:
            for part in child_nodes(node):
                yield from self.constant_parts(part)
        elif not _is_deliberate(node):
            yield self._culprit(node), decision

    def problem(self, node: Expression, message: str) -> Problem:
        return self._checked.problem(Code.CONSTANT_CONDITION, message, node.span, Severity.WARNING)

    def _culprit(self, node: Expression) -> Expression:
        """Return the part that decides a condition: an operand with a constant value, if there is one."""
        if isinstance(node, tree.Logic):
            for operand in node.operands:
                if self.decision(operand) is (node.operator == "||") and not _is_deliberate(operand):
                    return self._culprit(operand)
        return node

    def _decision(self, node: Expression) -> bool | None:
        """Return the value that a condition has for every pod; None if it depends on the pod."""
        match node:
            case tree.Unary(operator="!", operand=operand):
                decision = self.decision(operand)
                return None if decision is None else not decision
            case tree.Logic(operator=operator, operands=operands):
                absorbing = operator == "||"
                decisions = {self.decision(operand) for operand in operands}
                if absorbing in decisions or self._exclude_each_other(operator, operands):
                    return absorbing
                return not absorbing if None not in decisions else None
            case tree.Conditional(condition=condition, then=then, otherwise=otherwise):
                branches = then if self.decision(condition) else otherwise
                return None if self.decision(condition) is None else self.decision(branches)
        value = self._reading.value(node)
        return value if isinstance(value, bool) else None

    def _exclude_each_other(self, operator: str, operands: Sequence[Expression]) -> bool:
        """Return True if two operands exclude each other: `x == 1 && x == 2`, `x != 1 || x != 2`."""
        comparison = "!=" if operator == "||" else "=="
        comparisons = [pair for operand in operands if (pair := self._literal_comparison(operand, comparison))]
        return any(
            text == other_text and value != other_value
            for (text, value), (other_text, other_value) in combinations(comparisons, 2)
        )

    def _literal_comparison(self, node: Expression, operator: str) -> tuple[str, object] | None:
        """Return the text and the literal of a comparison by an operator."""
        match node:
            case tree.Binary(operator=actual, left=left, right=tree.Literal(value=value)) if actual == operator:
                return self._text(left), value
            case tree.Binary(operator=actual, left=tree.Literal(value=value), right=right) if actual == operator:
                return self._text(right), value
        return None

    def _text(self, node: Expression) -> str:
        return self._checked.source.text[node.span.start : node.span.end]


def _is_deliberate(node: Expression) -> bool:
    """Return True for `true`, `false`, and their negations."""
    while isinstance(node, tree.Unary):
        node = node.operand
    return isinstance(node, tree.Literal)


def _has_switch(node: Expression, reading: Reading) -> bool:
    """Return True if an expression reads a param or a variable that is bool."""
    if isinstance(node, tree.Name | tree.Select | tree.Index) and isinstance(reading.value(node), bool):
        return True
    return any(_has_switch(part, reading) for part in child_nodes(node))


def _bool_word(value: bool) -> str:
    return "true" if value else "false"


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
