"""Code for literals and operators.

Where Python's operator agrees with CEL's for the proven classes, code uses Python's. Otherwise it tests for the classes
of the common case and calls the interpreter's function for all others: in Python `True == 1`, and ints have no range.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rules_engine.language.cel.codegen.members import SHORT_KEY
from rules_engine.language.cel.codegen.runtime import OPERATORS
from rules_engine.language.cel.codegen.writer import (
    ANY,
    BOOL,
    INT,
    LIST,
    MAP,
    STR,
    NotGeneratedError,
    PythonExpression,
    Writer,
)
from rules_engine.language.cel.syntax import tree
from rules_engine.language.cel.values.runtime_values import INT_MAX, INT_MIN

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _write_list_literal(writer: Writer, node: tree.ListLiteral) -> PythonExpression:
    if any(element.optional for element in node.elements):
        raise NotGeneratedError
    return PythonExpression(f"[{', '.join(writer.write(element.value).text for element in node.elements)}]", LIST)


def _write_map_literal(writer: Writer, node: tree.MapLiteral) -> PythonExpression:
    if any(entry.optional for entry in node.entries):
        raise NotGeneratedError
    pairs = [(writer.write(entry.key).text, writer.write(entry.value).text) for entry in node.entries]
    keys = [entry.key.value for entry in node.entries if isinstance(entry.key, tree.Literal)]
    if len(set(keys)) == len(pairs) and all(type(key) is str for key in keys):
        return PythonExpression(f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}", MAP)
    return PythonExpression(f"make_map([{', '.join(f'({key}, {value})' for key, value in pairs)}])", MAP)


def _write_unary(writer: Writer, node: tree.Unary) -> PythonExpression:
    operand = writer.write(node.operand)
    if node.operator == "!":
        return PythonExpression(f"(not {writer.condition(operand)})", BOOL)
    return PythonExpression(f"negate({operand.text})", operand.kind if operand.kind == INT else ANY)


def _write_binary(writer: Writer, node: tree.Binary) -> PythonExpression:
    left, right = writer.write(node.left), writer.write(node.right)
    operator = node.operator
    if operator in ("==", "!="):
        equal = _write_equality(writer, node, left, right)
        return PythonExpression(f"(not {equal})" if operator == "!=" else equal, BOOL)
    if operator == "in":
        return _write_membership(writer, node, left, right)
    call = f"{OPERATORS[operator]}({left.text}, {right.text}, budget)"
    if operator in ("<", "<=", ">", ">="):
        return PythonExpression(_write_ordering(writer, node, left, right) or call, BOOL)
    if left.kind == right.kind == INT:
        if operator in ("+", "-", "*"):
            return PythonExpression(f"whole({left.text} {operator} {right.text})", INT)
        return PythonExpression(call, INT)
    # The sum of two values of which one is a string or a list is of the same class, or fails.
    kinds = {left.kind, right.kind} & {STR, LIST} if operator == "+" else set()
    return PythonExpression(call, kinds.pop() if len(kinds) == 1 else ANY)


def _write_equality(writer: Writer, node: tree.Binary, left: PythonExpression, right: PythonExpression) -> str:
    for literal, other, code in ((node.left, right, left), (node.right, left, right)):
        if not isinstance(literal, tree.Literal):
            continue
        if literal.value is None or type(literal.value) is bool:
            return f"({other.text} is {code.text})"
        if type(literal.value) is str:
            # A Python string equals strings only, and the literal's length bounds the time of the comparison.
            return f"({other.text} == {code.text})"
        if type(literal.value) is int and other.kind != INT:
            return _write_number_comparison(writer, other, literal.value, "==", "equals")
    if left.kind == right.kind == INT:
        return f"({left.text} == {right.text})"
    if left.kind == right.kind == BOOL:
        return f"({left.text} is {right.text})"
    return f"equals({left.text}, {right.text}, budget)"


def _write_ordering(writer: Writer, node: tree.Binary, left: PythonExpression, right: PythonExpression) -> str | None:
    if left.kind == right.kind == INT:
        return f"({left.text} {node.operator} {right.text})"
    if isinstance(node.right, tree.Literal) and type(node.right.value) is int:
        return _write_number_comparison(writer, left, node.right.value, node.operator, OPERATORS[node.operator])
    if isinstance(node.left, tree.Literal) and type(node.left.value) is int:
        mirrored = _MIRRORED[node.operator]
        return _write_number_comparison(writer, right, node.left.value, mirrored, OPERATORS[mirrored])
    return None


def _write_number_comparison(writer: Writer, code: PythonExpression, number: int, operator: str, function: str) -> str:
    """Return the comparison of a value with a number: Python's operator for an int in range, else a function."""
    first, name = writer.reusable(code)
    quick = f"{name} {operator} {number} if type({first}) is int and {INT_MIN} <= {name} <= {INT_MAX}"
    return f"({quick} else {function}({name}, {number}, budget))"


def _write_membership(
    writer: Writer, node: tree.Binary, left: PythonExpression, right: PythonExpression
) -> PythonExpression:
    words = _literal_words(node.right)
    if words is not None:
        first, name = writer.reusable(left)
        test = f"{name} in {writer.constant(words)} if type({first}) is str"
        return PythonExpression(f"({test} else contains({name}, {right.text}, budget))", BOOL)
    if left.kind not in (STR, ANY):
        return PythonExpression(f"contains({left.text}, {right.text}, budget)", BOOL)
    key = writer.as_name(left)
    first, name = writer.reusable(right)
    test = f"type({first}) is dict" if key.kind == STR else f"type({first}) is dict and type({key.text}) is str"
    if not isinstance(node.left, tree.Literal):
        test += f" and len({key.text}) <= {SHORT_KEY}"
    return PythonExpression(f"({key.text} in {name} if {test} else contains({key.text}, {name}, budget))", BOOL)


def _literal_words(node: tree.Expression) -> frozenset[str] | None:
    """Return the elements of a list literal of string literals, or None for any other expression."""
    if not isinstance(node, tree.ListLiteral):
        return None
    words = [element.value.value for element in node.elements if isinstance(element.value, tree.Literal)]
    if len(words) < len(node.elements) or any(element.optional for element in node.elements):
        return None
    return frozenset(words) if all(type(word) is str for word in words) else None  # type: ignore[arg-type]


def _write_logic(writer: Writer, node: tree.Logic) -> PythonExpression:
    first = _write_bool(writer, node.operands[0])
    blocks = writer.sequence(partial(_write_bool, writer, operand) for operand in node.operands[1:])
    if not any(lines for lines, _ in blocks):
        word = " and " if node.operator == "&&" else " or "
        return PythonExpression(f"({word.join([first.text, *(code.text for _, code in blocks)])})", BOOL)
    name = writer.assign(first.text)
    test = f"if {name}:" if node.operator == "&&" else f"if not {name}:"
    for lines, code in blocks:
        writer.nest(test, [*lines, f"{name} = {code.text}"])
    return PythonExpression(name, BOOL)


def _write_bool(writer: Writer, node: tree.Expression) -> PythonExpression:
    return PythonExpression(writer.condition(writer.write(node)), BOOL)


def _write_conditional(writer: Writer, node: tree.Conditional) -> PythonExpression:
    condition = writer.condition(writer.write(node.condition))
    then_lines, then = writer.block(lambda: writer.write(node.then))
    else_lines, otherwise = writer.block(lambda: writer.write(node.otherwise))
    kind = then.kind if then.kind == otherwise.kind else ANY
    if not then_lines and not else_lines:
        return PythonExpression(f"({then.text} if {condition} else {otherwise.text})", kind)
    name = writer.new_name("t")
    writer.nest(f"if {condition}:", [*then_lines, f"{name} = {then.text}"])
    writer.nest("else:", [*else_lines, f"{name} = {otherwise.text}"])
    return PythonExpression(name, kind)


GENERATORS: Mapping[type, Callable[[Writer, Any], PythonExpression]] = {
    tree.Literal: lambda writer, node: writer.value(writer.checked.patterns.get(node, node.value)),
    tree.ListLiteral: _write_list_literal,
    tree.MapLiteral: _write_map_literal,
    tree.Unary: _write_unary,
    tree.Binary: _write_binary,
    tree.Logic: _write_logic,
    tree.Conditional: _write_conditional,
}
