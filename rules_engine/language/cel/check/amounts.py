"""Remedies for expressions that use amounts of Kubernetes objects, such as limits, as numbers.

In CEL an amount is a string, as in Kubernetes' policies: JSON has no quantities, and the API server writes strings.
Remedies read an absent amount as 0, since any part of its path may be absent.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from rules_engine.language.cel.check.environment import VARIABLES
from rules_engine.language.cel.syntax import tree
from rules_engine.language.cel.syntax.hints import PRESENT, remedy_clause, string_literal
from rules_engine.language.cel.values import types
from rules_engine.language.cel.values.functions import Overload
from rules_engine.language.cel.values.types import AMOUNT, QUANTITY, STRING, Type, list_of
from rules_engine.model.kubernetes.quantity import QuantityError, parse_quantity

_ORDERS: Mapping[str, str] = {
    "<": "{}.isLessThan({})",
    "<=": "!{}.isGreaterThan({})",
    ">": "{}.isGreaterThan({})",
    ">=": "!{}.isLessThan({})",
}
_OPERATORS: Mapping[str, str] = {
    **_ORDERS,
    "==": "{} == {}",
    "!=": "{} != {}",
    "+": "{}.add({})",
    "-": "{}.sub({})",
    "*": "{}.mul({})",
}
_CONVERSIONS: Mapping[str, str] = {"int": "asInteger", "uint": "asInteger", "double": "asApproximateFloat"}

_NUMBERS = (types.INT, types.UINT, types.DOUBLE)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


class AmountRemedies:
    """Remedies for the parts of one expression, made of its own text; an empty string if there is none."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._nodes: set[tree.Expression] = set()

    def add(self, node: tree.Expression) -> None:
        """Add a part of the expression that is an amount."""
        self._nodes.add(node)

    def operator(self, node: tree.Binary, kinds: Sequence[Type]) -> str:
        """Return the remedy for an operator that cannot be applied."""
        return _amount_clause(self._operator_remedy(node, kinds), kinds)

    def _operator_remedy(self, node: tree.Binary, kinds: Sequence[Type]) -> str:
        left, right = (self._quantity(part, kind) for part, kind in zip((node.left, node.right), kinds, strict=True))
        if not left or not _any_amount(kinds):
            return ""
        if node.operator == "in" and kinds[1] == list_of(types.INT):
            remedy = f"{left} in {self._source_of(node.right)}.map(n, quantity(string(n)))"
        elif right and node.operator in _OPERATORS:
            remedy = _OPERATORS[node.operator].format(left, right)
        else:
            return ""
        # The span of a part in parentheses includes them.
        return f"({remedy})" if node.left.span.start > node.span.start else remedy

    def as_text(self, node: tree.Binary, kinds: Sequence[Type]) -> str:
        """Return the warning for amounts that an operator orders, joins or compares as text."""
        amounts = [kind is AMOUNT for kind in kinds]
        if not any(amounts):
            return ""
        remedy = remedy_clause(self._operator_remedy(node, kinds))
        if node.operator in _ORDERS and kinds[0] == kinds[1]:
            return f"amounts are compared as text, '10' before '9'{remedy}"
        if node.operator == "+" and all(amounts):
            return f"amounts are joined as text, '1' and '2' as '12'{remedy}"
        literal = node.left if isinstance(node.left, tree.Literal) else node.right
        amount = str(literal.value) if node.operator in ("==", "!=") and isinstance(literal, tree.Literal) else ""
        if canonical := _canonical_quantity(amount):
            return f"the API server writes '{amount}' as '{canonical}'{remedy}"
        return ""

    def conversion(self, node: tree.Call, kinds: Sequence[Type]) -> str:
        """Return the warning for a conversion of an amount to a number."""
        method = _CONVERSIONS.get(node.function)
        if method is None or kinds[0] is not AMOUNT:
            return ""
        quantity = self._quantity(node.arguments[0], AMOUNT)
        return (
            f"{node.function}() fails for amounts such as '500m'"
            f" (write {quantity}.isGreaterThan(…) to compare, {quantity}.{method}() for the number)"
        )

    def call(self, node: tree.Call, overloads: Sequence[Overload], kinds: Sequence[Type]) -> str:
        """Return the remedy for a call that has no overload for its arguments."""
        # The target of a call such as sets.contains(…) is part of the function's name, and has no type.
        target = node.target if len(kinds) > len(node.arguments) else None
        parts = [part for part in (target, *node.arguments) if part is not None]
        name = overloads[0].name
        if name == "sum" and kinds[0].name == "list":
            return self._sum_clause(parts[0], kinds[0].parameters[0])
        if name == "orValue" and _any_amount(kinds[:1]) and kinds[1] in _NUMBERS:
            default = self._number_as_string(parts[1]) or string_literal("0", self._text)
            return _amount_clause(f"quantity({self.path(parts[0])[0]}.orValue({default}))", kinds)
        quantities = [self._quantity(part, kind) for part, kind in zip(parts, kinds, strict=True)]
        if all(quantities) and name == "quantity":
            return _amount_clause(quantities[0], kinds)
        of_quantities = any(set(overload.parameters) == {QUANTITY} for overload in overloads)
        if not all(quantities) or not of_quantities or not _any_amount(kinds):
            return ""
        receiver, arguments = ("", quantities) if target is None else (f"{quantities[0]}.", quantities[1:])
        return _amount_clause(f"{receiver}{name}({', '.join(arguments)})", kinds)

    def _sum_clause(self, target: tree.Expression, kind: Type) -> str:
        if not isinstance(target, tree.Comprehension) or target.fold is not tree.Fold.MAP or not _any_amount([kind]):
            return ""
        number = f"{self._quantity(target.body, kind)}.{self._number_method(target.body)}()"
        before = self._text[target.span.start : target.body.span.start]
        return _amount_clause(f"{before}{number}{self._text[target.body.span.end : target.span.end]}.sum()", [kind])

    def _number_method(self, node: tree.Expression) -> str:
        """Return the method that converts an amount: extended resources are whole numbers, others may be `500m`."""
        while isinstance(node, tree.Call):
            node = node.target or node.arguments[0]
        key = node.key if isinstance(node, tree.Index) else None
        extended = isinstance(key, tree.Literal) and "/" in str(key.value)
        return "asInteger" if extended else "asApproximateFloat"

    def _quantity(self, node: tree.Expression, kind: Type) -> str:
        """Return the expression of a value as a quantity; an empty string for a value of another type."""
        source = self._source_of(node)
        if kind == QUANTITY:
            amount = node.arguments[0] if isinstance(node, tree.Call) and node.function == "quantity" else None
            return self._quantity(amount, AMOUNT) if amount in self._nodes else source
        if kind in _NUMBERS:
            return f"quantity({self._number_as_string(node) or f'string({source})'})"
        if _any_amount([kind]):
            path, optional = self.path(node)
            default = f".orValue({string_literal('0', self._text)})" if optional or kind != STRING else ""
            return f"quantity({path}{default})"
        return f"quantity({source})" if kind == STRING else ""

    def path(self, node: tree.Expression) -> tuple[str, bool]:
        """Return a value's path in which any part may be absent, and whether this makes it an optional."""
        if isinstance(node, tree.Select) and tree.as_qualified_name(node.operand) != VARIABLES:
            before, optional = self.path(node.operand)
            name = self._text[node.name_span.start : node.name_span.end]
            absent = not optional and node.field not in PRESENT
            return f"{before}.{'?' if absent or node.optional else ''}{name}", absent or optional or node.optional
        if isinstance(node, tree.Index):
            return f"{self.path(node.operand)[0]}[?{self._source_of(node.key)}]", True
        return self._source_of(node), False

    def present(self, node: tree.Expression) -> str:
        """Return the condition that a value is present, in which any part of its path may be absent."""
        if isinstance(node, tree.Select) and not self.path(node.operand)[1]:
            return f"has({self._source_of(node)})"
        return f"{self.path(node)[0]}.hasValue()"

    def _number_as_string(self, node: tree.Expression) -> str:
        """Return a string literal for the literal of a number, else an empty string."""
        source = self._source_of(node)
        return string_literal(source, self._text) if _NUMBER.fullmatch(source) else ""

    def _source_of(self, node: tree.Expression) -> str:
        return self._text[node.span.start : node.span.end]


def _canonical_quantity(text: str) -> str:
    """Return the text that the API server writes for a quantity if it differs, else an empty string."""
    try:
        canonical = str(parse_quantity(text))
    except QuantityError:
        return ""
    return canonical if canonical != text else ""


def _any_amount(kinds: Iterable[Type]) -> bool:
    """Return whether one of the types is an amount, a quantity, or an optional of one."""
    inner = [kind.parameters[0] if kind.name == types.OPTIONAL.name and kind.parameters else kind for kind in kinds]
    return any(kind is AMOUNT or kind == QUANTITY for kind in inner)


def _amount_clause(remedy: str, kinds: Sequence[Type]) -> str:
    """Return the clause of a message, with the reason if the author may not expect a string."""
    unexpected = _any_amount(kinds) and QUANTITY not in kinds
    text = remedy_clause(" ".join(remedy.split()))
    return text.replace("(", "(amounts are strings: ", 1) if unexpected else text
