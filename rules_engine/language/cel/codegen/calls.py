"""Code for calls of functions and methods.

A Dispatch finds the overload for the classes of the arguments, counts the cost of reading them, and calls the
implementation. Where one overload is likely, generated code tests that its classes fit and that the arguments are too
short to cost anything, and calls the implementation itself. Methods that are common in rules have code of their own.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rules_engine.language.cel.budget import CHARACTERS_PER_UNIT
from rules_engine.language.cel.codegen.members import optional_chain, optional_operand
from rules_engine.language.cel.codegen.runtime import pattern_test
from rules_engine.language.cel.codegen.writer import (
    ANY,
    BOOL,
    INT,
    LIST,
    OPT,
    QUANTITY,
    STR,
    NotGeneratedError,
    PythonExpression,
    Writer,
)
from rules_engine.language.cel.library.core import identity
from rules_engine.language.cel.syntax.tree import Call, Expression, Literal
from rules_engine.language.cel.values.functions import Dispatch, Overload

SHORT_TEXT = 100
"""Characters of a text that can be searched for a word for the one unit of the call."""

_PYTHON_METHODS = {"startsWith": "startswith", "endsWith": "endswith"}
_KINDS = {"bool": BOOL, "int": INT, "string": STR, "list": LIST, "optional_type": OPT, "kubernetes.Quantity": QUANTITY}
"""Python classes of CEL types, by the name of the type."""


def _write_call(writer: Writer, node: Call) -> PythonExpression:
    dispatch = writer.checked.calls[node]
    if not dispatch.overloads:
        raise NotGeneratedError
    if node.target is None or node in writer.checked.namespaced:
        return _write_function_call(writer, node, dispatch)
    method = _METHODS.get((node.function, len(node.arguments)))
    if method is not None:
        code = method(writer, node, node.target)
        if code is not None:
            return code
    return _write_dispatch(writer, dispatch, [node.target, *node.arguments])


def _write_function_call(writer: Writer, node: Call, dispatch: Dispatch) -> PythonExpression:
    if len(node.arguments) == 1 and dispatch.overloads[0].name == "size":
        return _write_size(writer, node, node.arguments[0])
    if len(node.arguments) == 1 and dispatch.overloads[0].name == "int":
        argument = writer.write(node.arguments[0])
        return PythonExpression(f"whole_number({argument.text}, {writer.constant(dispatch)}, budget)", INT)
    return _write_dispatch(writer, dispatch, node.arguments)


def _write_dispatch(writer: Writer, dispatch: Dispatch, nodes: Iterable[Expression]) -> PythonExpression:
    arguments = [writer.write(node) for node in nodes]
    overload = _likely_overload(dispatch, [code.kind for code in arguments])
    if overload is not None:
        return _write_direct_call(writer, dispatch, overload, arguments)
    kind = _common_kind(dispatch.overloads)
    return PythonExpression(
        f"{writer.constant(dispatch)}({', '.join(['budget', *(code.text for code in arguments)])})", kind
    )


def _likely_overload(dispatch: Dispatch, kinds: list[str]) -> Overload | None:
    """Return the overload of strings and quantities that takes these classes, if calling it costs nothing more.

    An unknown class is assumed to fit; generated code tests it.
    """
    for overload in dispatch.overloads:
        wanted = [_KINDS.get(parameter.name) for parameter in overload.parameters]
        fits = all(want in (STR, QUANTITY) and kind in (want, ANY) for want, kind in zip(wanted, kinds, strict=True))
        if fits and not overload.budgeted and not overload.cost and dispatch.fitting(overload.parameters) is overload:
            return overload
    return None


def _write_direct_call(
    writer: Writer, dispatch: Dispatch, overload: Overload, arguments: list[PythonExpression]
) -> PythonExpression:
    """Return a call of the implementation, or of the dispatch where a class differs or a text costs units."""
    if len(arguments) > 1:
        # An assignment after "and" may not run, and then its name has no value in the other call.
        arguments = [writer.as_name(code) for code in arguments]
    tests, names = [], []
    for code, parameter in zip(arguments, overload.parameters, strict=True):
        kind = _KINDS[parameter.name]
        use, name = writer.reusable(code)
        if code.kind != kind:
            tests.append(f"type({use}) is {kind}")
            use = name
        if kind == STR and not overload.constant:
            tests.append(f"len({use}) < {CHARACTERS_PER_UNIT}")
            use = name
        names.append(name if use == name else code.text)
    implementation = overload.implementation
    quick = names[0] if implementation is identity else f"{writer.constant(implementation)}({', '.join(names)})"
    if not tests:
        return PythonExpression(quick, _common_kind((overload,)))
    slow = f"{writer.constant(dispatch)}({', '.join(['budget', *names])})"
    return PythonExpression(f"({quick} if {' and '.join(tests)} else {slow})", _common_kind(dispatch.overloads))


def _common_kind(overloads: Iterable[Overload]) -> str:
    results = {overload.result.name for overload in overloads}
    return _KINDS.get(results.pop(), ANY) if len(results) == 1 else ANY


# Methods of strings and containers


def _write_size(writer: Writer, _node: Call, target: Expression) -> PythonExpression:
    # Only strings, bytes, lists and maps have a length; for other values len() raises.
    return PythonExpression(f"len({writer.write(target).text})", INT)


def _write_affix_test(writer: Writer, node: Call, target: Expression) -> PythonExpression:
    text, part = writer.write(target), writer.write(node.arguments[0])
    # Python's method raises for bytes with a string, and no other class has it.
    writer.narrow(text, STR)
    method = _PYTHON_METHODS[node.function]
    if isinstance(node.arguments[0], Literal) and part.kind == STR:
        return PythonExpression(f"{text.text}.{method}({part.text})", BOOL)
    text, part = writer.as_name(text), writer.as_name(part)
    test = f"type({part.text}) is str and len({part.text}) <= {SHORT_TEXT}"
    slow = f"{writer.constant(writer.checked.calls[node])}(budget, {text.text}, {part.text})"
    return PythonExpression(f"({text.text}.{method}({part.text}) if {test} else {slow})", BOOL)


def _write_contains(writer: Writer, node: Call, target: Expression) -> PythonExpression:
    text, part = writer.write(target), writer.write(node.arguments[0])
    first, name = writer.reusable(text)
    test = f"len({first}) <= {SHORT_TEXT}"
    if text.kind != STR:
        test = f"type({first}) is str and len({name}) <= {SHORT_TEXT}"
    writer.narrow(text, STR)
    if part.kind != STR:
        return PythonExpression(f"occurs({text.text}, {part.text}, budget)", BOOL)
    part = writer.as_name(part)
    return PythonExpression(f"({part.text} in {name} if {test} else occurs({name}, {part.text}, budget))", BOOL)


def _write_matches(writer: Writer, node: Call, target: Expression) -> PythonExpression | None:
    pattern = node.arguments[0]
    if not isinstance(pattern, Literal) or type(pattern.value) is not str:
        return None
    compiled = writer.checked.patterns.get(pattern)
    if compiled is None:
        return None
    text = writer.write(target)
    writer.narrow(text, STR)
    return PythonExpression(f"{writer.constant(pattern_test(compiled, pattern.value))}({text.text}, budget)", BOOL)


# Methods of optionals


def _write_has_value(writer: Writer, _node: Call, target: Expression) -> PythonExpression:
    chain = optional_chain(writer, target)
    if chain is not None:
        return PythonExpression(f"(not ({chain.missing}))", BOOL)
    # Only an Optional has `present`.
    return PythonExpression(f"{writer.write(target).text}.present", BOOL)


def _write_value(writer: Writer, _node: Call, target: Expression) -> PythonExpression:
    chain = optional_chain(writer, target)
    if chain is not None:
        return PythonExpression(f"(refuse() if {chain.missing} else {chain.value})")
    first, name = writer.reusable(writer.write(target))
    return PythonExpression(f"({name}.value if ({first}).present else refuse())")


def _write_or_value(writer: Writer, node: Call, target: Expression) -> PythonExpression:
    operand = optional_operand(writer, target)
    lines, other = writer.block(lambda: writer.write(node.arguments[0]))
    if not lines:
        return PythonExpression(f"({other.text} if {operand.missing} else {operand.value})")
    result = writer.new_name("t")
    writer.nest(f"if {operand.missing}:", [*lines, f"{result} = {other.text}"])
    writer.nest("else:", [f"{result} = {operand.value}"])
    return PythonExpression(result)


def _write_or(writer: Writer, node: Call, target: Expression) -> PythonExpression:
    name = writer.as_name(writer.write(target)).text
    lines, other = writer.block(lambda: writer.write(node.arguments[0]))
    if lines:
        raise NotGeneratedError
    return PythonExpression(f"({name} if {name}.present else as_optional({other.text}))", OPT)


_METHODS: Mapping[tuple[str, int], Callable[[Writer, Call, Expression], PythonExpression | None]] = {
    ("size", 0): _write_size,
    ("startsWith", 1): _write_affix_test,
    ("endsWith", 1): _write_affix_test,
    ("contains", 1): _write_contains,
    ("matches", 1): _write_matches,
    ("hasValue", 0): _write_has_value,
    ("value", 0): _write_value,
    ("orValue", 1): _write_or_value,
    ("or", 1): _write_or,
}
"""Methods with code of their own, by name and number of arguments; each belongs to one library only."""

GENERATORS: Mapping[type, Callable[[Writer, Any], PythonExpression]] = {Call: _write_call}
