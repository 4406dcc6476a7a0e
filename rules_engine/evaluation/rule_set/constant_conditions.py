"""Conditions that are true for every pod, or false for every pod: a mistake, or text that has no effect.

`true` and `false` as such are written deliberately. So are params and variables that are bool, and comparisons of
params beside others (`params.teams.size() == 0 || …`): they are switches. All else that does not depend on the pod is
reported, in its innermost part. A part that may fail counts with the value that it has otherwise.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from rules_engine.cel import Environment, Program
from rules_engine.cel.check.checker import PREDICATES
from rules_engine.cel.syntax.tree import (
    Binary,
    Call,
    Comprehension,
    Conditional,
    Expression,
    Index,
    Literal,
    Logic,
    Name,
    Select,
    Unary,
    children,
)
from rules_engine.evaluation.rule_set.constants import Constants, Reading
from rules_engine.model.problem_codes import Code
from rules_engine.model.problems import Problem, Severity

_REFLEXIVE = {"==": True, "<=": True, ">=": True, "!=": False, "<": False, ">": False}
"""Results of operators on equal operands."""

_OF_SIZES = {">=": True, "<": False}
"""Results of operators on a size, on the left, and zero."""

_MIRRORED = {"<=": ">=", ">": "<"}
"""Operators on zero, on the left, and a size, by those of which the operands are swapped."""


def constant_conditions(
    program: Program, environment: Environment, constants: Constants, effects: Sequence[str]
) -> Iterator[Problem]:
    """Yield the constant parts of an expression.

    `effects`: those of an expression that is itself a condition and is false, and true; empty if it is none.
    """
    conditions = _Conditions(program, environment)
    expression = program.checked.expression
    if effects:
        decision = conditions.decision(expression)
        if decision is not None:
            if not _is_deliberate(expression):
                part = conditions.culprit(expression)
                yield conditions.problem(part, decision, f"the condition is always {_word(decision)}", effects)
            return
        value = constants.reading(program).value(expression) if program.reads else None
        if isinstance(value, bool) and not _has_switch(expression, constants.reading(program)):
            message = f"the condition depends on params and variables alone, and is always {_word(value)}"
            yield conditions.problem(expression, value, message, effects)
            return
    for part, decided in conditions.constant_parts(expression, condition=bool(effects)):
        yield conditions.problem(part, decided, f"this part of the expression is always {_word(decided)}")


class _Conditions:
    """The conditions in one expression."""

    def __init__(self, program: Program, environment: Environment) -> None:
        self._checked = program.checked
        self._environment = environment
        self._reading = Reading(program.checked, {})
        self._decisions: dict[Expression, bool | None] = {}

    def decision(self, node: Expression) -> bool | None:
        """Return the value that a condition has for every pod; None if it depends on the pod."""
        if node not in self._decisions:
            self._decisions[node] = self._decided(node)
        return self._decisions[node]

    def culprit(self, node: Expression) -> Expression:
        """Return the part that decides a condition: an operand of which the value is always the same, if one is."""
        if isinstance(node, Logic):
            for operand in node.operands:
                if self.decision(operand) is (node.operator == "||") and not _is_deliberate(operand):
                    return self.culprit(operand)
        return node

    def constant_parts(self, node: Expression, *, condition: bool) -> Iterator[tuple[Expression, bool]]:
        """Yield the constant conditions in an expression that is not constant itself."""
        condition = condition or isinstance(node, Logic)
        decision = self.decision(node) if condition else None
        if decision is not None:
            if not _is_deliberate(node):
                yield self.culprit(node), decision
            return
        for part in children(node):
            yield from self.constant_parts(part, condition=_is_condition(part, node, inherited=condition))

    def problem(self, node: Expression, decision: bool, message: str, effects: Sequence[str] = ()) -> Problem:
        span = node.span
        return Problem(
            code=Code.CONSTANT_CONDITION,
            message=f"{message}: {effects[decision]}" if effects else message,
            location=self._checked.source.at(span.start),
            length=max(1, span.end - span.start),
            severity=Severity.WARNING,
        )

    def _decided(self, node: Expression) -> bool | None:
        match node:
            case Unary(operator="!", operand=operand):
                decision = self.decision(operand)
                return None if decision is None else not decision
            case Logic(operator=operator, operands=operands):
                return self._decided_chain(operator, operands)
            case Conditional(condition=condition, then=then, otherwise=otherwise):
                decision = self.decision(condition)
                if decision is not None:
                    return self.decision(then if decision else otherwise)
                return self.decision(then) if self.decision(then) is self.decision(otherwise) else None
            case Binary(operator=operator, left=left, right=right) if operator in _REFLEXIVE:
                if self._text(left) == self._text(right) and not self._reading.may_be_nan(left, self._environment):
                    return _REFLEXIVE[operator]
                if _is_size(left) and _is_zero(right):
                    return _OF_SIZES.get(operator)
                if _is_zero(left) and _is_size(right):
                    return _OF_SIZES.get(_MIRRORED.get(operator, ""))
        value = self._reading.value(node)
        return value if isinstance(value, bool) else None

    def _decided_chain(self, operator: str, operands: Sequence[Expression]) -> bool | None:
        absorbing = operator == "||"
        decisions = [self.decision(operand) for operand in operands]
        if any(decision is absorbing for decision in decisions) or self._excluded(operator, operands):
            return absorbing
        return not absorbing if None not in decisions else None

    def _excluded(self, operator: str, operands: Iterable[Expression]) -> bool:
        """Return True if two operands exclude each other: `x == 1 && x == 2`, `x != 1 || x != 2`, `x || !x`."""
        texts = {self._text(operand) for operand in operands}
        for operand in operands:
            if isinstance(operand, Unary) and operand.operator == "!" and self._text(operand.operand) in texts:
                return True
        wanted = "!=" if operator == "||" else "=="
        compared = [pair for operand in operands if (pair := self._compared(operand, wanted))]
        return any(one == other and first != second for (one, first), (other, second) in combinations(compared, 2))

    def _compared(self, node: Expression, operator: str) -> tuple[str, object] | None:
        """Return the text and the literal of a comparison by an operator."""
        match node:
            case Binary(operator=found, left=left, right=Literal(value=value)) if found == operator:
                return self._text(left), value
            case Binary(operator=found, left=Literal(value=value), right=right) if found == operator:
                return self._text(right), value
        return None

    def _text(self, node: Expression) -> str:
        text = self._checked.source.text[node.span.start : node.span.end]
        # Blanks inside quotes count.
        return text if "'" in text or '"' in text else " ".join(text.split())


def _is_condition(part: Expression, whole: Expression, *, inherited: bool) -> bool:
    """Return True if a direct subexpression is a condition; `inherited`: the whole is one."""
    match whole:
        case Logic() | Unary(operator="!"):
            return True
        case Conditional(condition=condition):
            return inherited or part is condition
        case Comprehension(fold=fold, condition=condition, body=body):
            return part is condition or (part is body and fold in PREDICATES)
    return False


def _is_deliberate(node: Expression) -> bool:
    """Return True for `true`, `false`, and their negations."""
    while isinstance(node, Unary):
        node = node.operand
    return isinstance(node, Literal)


def _is_size(node: Expression) -> bool:
    return isinstance(node, Call) and node.function == "size"


def _is_zero(node: Expression) -> bool:
    return isinstance(node, Literal) and node.value == 0 and not isinstance(node.value, bool)


def _has_switch(node: Expression, reading: Reading) -> bool:
    """Return True if an expression reads a param or a variable that is bool."""
    if isinstance(node, Name | Select | Index) and isinstance(reading.value(node), bool):
        return True
    return any(_has_switch(part, reading) for part in children(node))


def _word(value: bool) -> str:
    return "true" if value else "false"
