"""Code for names, fields, elements and chains of optional fields."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rules_engine.language.cel.codegen.writer import ANY, BOOL, OPT, STR, NotGeneratedError, PythonExpression, Writer
from rules_engine.language.cel.syntax.tree import Expression, Has, Index, Literal, Name, Select

SHORT_KEY = 100
"""Characters of a computed key that can be compared for the one unit of the node."""

SHORT_CODE = 40
"""Characters of code that may stand twice rather than be assigned to a name.

The names of the runtime count too: a longer one may change the cost of an expression with a computed key.
"""


@dataclass(frozen=True, slots=True)
class OptionalCode:
    """An optional without an Optional object: code of its value, and a condition that is true if it is none.

    The condition assigns the value, so it stands first.
    """

    value: str
    missing: str


def optional_operand(writer: Writer, node: Expression) -> OptionalCode:
    """Return the code of an operand that must be an optional. Only an Optional has `present`: others raise."""
    chain = optional_chain(writer, node)
    if chain is not None:
        return chain
    name = writer.as_name(writer.write(node)).text
    return OptionalCode(f"{name}.value", f"not {name}.present")


def optional_chain(writer: Writer, node: Expression) -> OptionalCode | None:
    """Return the code of `a.?b.c[?"d"]`, or None for any other expression.

    dict.get finds the fields without an Optional for each; a value other than a map has no `get`, and raises.
    """
    fields: list[str] = []
    base, length = node, 0
    current = node
    while True:
        if isinstance(current, Select) and current not in writer.checked.references:
            key, optional, current = current.field, current.optional, current.operand
        elif isinstance(current, Index) and isinstance(current.key, Literal) and type(current.key.value) is str:
            key, optional, current = current.key.value, current.optional, current.operand
        else:
            break
        fields.append(key)
        if optional:
            # The chain starts at the leftmost optional field: the fields before it must exist.
            base, length = current, len(fields)
    if not length:
        return None
    operand = writer.write(base)
    name = writer.new_name("t")
    tests = []
    text = operand.text
    if operand.kind == OPT:
        first, text = writer.reusable(operand)
        tests = [f"not ({first}).present"]
        text = f"{text}.value"
    for key in reversed(fields[:length]):
        tests.append(f"({name} := {text}.get({writer.constant(key)}, missing)) is missing")
        text = name
    return OptionalCode(name, " or ".join(tests))


def _write_name(writer: Writer, node: Name) -> PythonExpression:
    reference = writer.checked.references.get(node)
    return writer.local(node) if reference is None else writer.reference(reference)


def _write_select(writer: Writer, node: Select) -> PythonExpression:
    reference = writer.checked.references.get(node)
    if reference is not None:
        return writer.reference(reference)
    chain = optional_chain(writer, node)
    if chain is not None:
        return _optional_code(chain)
    operand, key = writer.write(node.operand), PythonExpression(writer.constant(node.field), STR)
    return _member_code(operand, key, node.optional, "field")


def _write_index(writer: Writer, node: Index) -> PythonExpression:
    chain = optional_chain(writer, node)
    if chain is not None:
        return _optional_code(chain)
    operand, key = writer.write(node.operand), writer.write(node.key)
    if isinstance(node.key, Literal) and type(node.key.value) is int and node.key.value >= 0 and not node.optional:
        first, name = writer.reusable(operand)
        return PythonExpression(
            f"({name}[{key.text}] if type({first}) is list else required_element({name}, {key.text}))"
        )
    if not isinstance(node.key, Literal):
        return _write_computed_member(writer, operand, key, node.optional)
    return _member_code(operand, key, node.optional, "element")


def _optional_code(chain: OptionalCode) -> PythonExpression:
    return PythonExpression(f"(NONE if {chain.missing} else Optional(True, {chain.value}))", OPT)


def _member_code(operand: PythonExpression, key: PythonExpression, optional: bool, find: str) -> PythonExpression:
    if optional or operand.kind == OPT:
        return PythonExpression(f"optional_member({operand.text}, {key.text}, {find})", OPT)
    if key.kind == STR:
        # Of all values only maps take a string in brackets; an optional, a list and a str raise TypeError.
        return PythonExpression(f"{operand.text}[{key.text}]")
    return PythonExpression(f"required_element({operand.text}, {key.text})")


def _write_computed_member(
    writer: Writer, operand: PythonExpression, key: PythonExpression, optional: bool
) -> PythonExpression:
    """Return the code of an element with a computed key, which may be long."""
    if optional or operand.kind == OPT or key.kind != ANY or len(operand.text) > SHORT_CODE:
        charged = PythonExpression(f"charged_key({key.text}, budget)", key.kind)
        return _member_code(operand, charged, optional, "element")
    first, name = writer.reusable(key)
    quick = f"{operand.text}[{name}] if type({first}) is str and len({name}) <= {SHORT_KEY}"
    return PythonExpression(f"({quick} else required_element({operand.text}, charged_key({name}, budget)))")


def _write_has(writer: Writer, node: Has) -> PythonExpression:
    operand = writer.write(node.select.operand)
    if operand.kind == OPT:
        raise NotGeneratedError
    field = writer.constant(node.select.field)
    first, name = writer.reusable(operand)
    # Strings and lists, in which a name may occur too, have no get(), and raise.
    otherwise = f"{name}.get({field}, missing) is not missing"
    return PythonExpression(f"({field} in {name} if type({first}) is dict else {otherwise})", BOOL)


GENERATORS: Mapping[type, Callable[[Writer, Any], PythonExpression]] = {
    Name: _write_name,
    Select: _write_select,
    Index: _write_index,
    Has: _write_has,
}
