"""Code for macros: loops, cel.bind and optMap.

Why cost is counted before a loop: one subtraction for all rounds is nearly free, one in each round is not. The count
assumes that every round runs and evaluates every node, so it may be too high and is never too low. Where it exceeds the
budget, CostExceeded leads to the interpreter, which counts exactly. A loop of more than LONG_LOOP rounds is counted in
parts as it runs: the budget may check a deadline between parts, and a loop that ends early is not charged for the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rules_engine.language.cel.budget import MAX_RESULT_ITEMS
from rules_engine.language.cel.codegen.members import optional_operand
from rules_engine.language.cel.codegen.runtime import LONG_LOOP
from rules_engine.language.cel.codegen.writer import (
    BOOL,
    LIST,
    MAP,
    OPT,
    NotGeneratedError,
    PythonExpression,
    Writer,
    indent_lines,
    node_count,
    spend_statements,
)
from rules_engine.language.cel.syntax.tree import Bind, Comprehension, Fold, ListLiteral, OptionalMap


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """A fold as a loop: the initial result, a writer of the loop's body, and the format of the final value."""

    start: str
    write: Callable[[Writer, Comprehension, Mapping[str, str], str], PythonExpression]
    result: str = "{}"
    kind: str = LIST


def _write_comprehension(writer: Writer, node: Comprehension) -> PythonExpression:
    loop = _LOOPS.get(node.fold)
    if loop is None:
        raise NotGeneratedError
    operand = writer.write(node.target)
    names = {node.first: writer.new_name("x")}
    if node.second is None:
        target, variables = writer.assign(operand.text), names[node.first]
        if operand.kind != LIST:
            test = f"if type({target}) is not list and type({target}) is not dict:"
            writer.nest(test, [f"{target} = as_map({target})"])
    else:
        names[node.second] = writer.new_name("x")
        target, variables = writer.assign(f"pairs({operand.text})"), ", ".join(names.values())
    result = writer.assign(loop.start)
    body, _ = writer.block(lambda: loop.write(writer, node, names, result))
    bound = [f"if len({result}) > {MAX_RESULT_ITEMS}:", " refuse()"] if loop.kind == LIST else []
    writer.nest(
        f"if {target}:", [*_cost_statements(node, target), f"for {variables} in {target}:", *indent_lines(body), *bound]
    )
    return PythonExpression(loop.result.format(result), loop.kind)


def _cost_statements(node: Comprehension, target: str) -> list[str]:
    """Return the statements that count a loop's cost."""
    cost = 1 + node_count(node.body) + (0 if node.condition is None else node_count(node.condition))
    counting = spend_statements(f"len({target}) * {cost}")
    if isinstance(node.target, ListLiteral) and len(node.target.elements) <= LONG_LOOP:
        return counting
    paced = f"{target} = paced({target}, {cost}, budget)"
    return [f"if len({target}) > {LONG_LOOP}:", f" {paced}", "else:", *indent_lines(counting)]


def _write_decision(writer: Writer, node: Comprehension, names: Mapping[str, str], result: str) -> PythonExpression:
    decisive = node.fold is Fold.EXISTS
    test = writer.condition(writer.write_in_scope(names, node.body))
    writer.nest(f"if {test}:" if decisive else f"if not {test}:", [f"{result} = {decisive!r}", "break"])
    return PythonExpression(result)


def _write_count(writer: Writer, node: Comprehension, names: Mapping[str, str], result: str) -> PythonExpression:
    writer.nest(f"if {writer.condition(writer.write_in_scope(names, node.body))}:", [f"{result} += 1"])
    return PythonExpression(result)


def _write_filter(writer: Writer, node: Comprehension, names: Mapping[str, str], result: str) -> PythonExpression:
    test = writer.condition(writer.write_in_scope(names, node.body))
    writer.nest(f"if {test}:", [f"{result}.append({names[node.first]})"])
    return PythonExpression(result)


def _write_map(writer: Writer, node: Comprehension, names: Mapping[str, str], result: str) -> PythonExpression:
    return _write_append(writer, node, names, f"{result}.append({{}})")


def _write_transform_map(
    writer: Writer, node: Comprehension, names: Mapping[str, str], result: str
) -> PythonExpression:
    return _write_append(writer, node, names, f"{result}.append(({names[node.first]}, {{}}))")


def _write_append(writer: Writer, node: Comprehension, names: Mapping[str, str], append: str) -> PythonExpression:
    condition = None if node.condition is None else writer.condition(writer.write_in_scope(names, node.condition))
    lines, body = writer.capture(lambda: writer.write_in_scope(names, node.body))
    lines.append(append.format(body.text))
    if condition is None:
        writer.lines += lines
    else:
        writer.nest(f"if {condition}:", lines)
    return body


_LOOPS: Mapping[Fold, _Loop] = {
    Fold.ALL: _Loop(start="True", write=_write_decision, kind=BOOL),
    Fold.EXISTS: _Loop(start="False", write=_write_decision, kind=BOOL),
    Fold.EXISTS_ONE: _Loop(start="0", write=_write_count, result="({} == 1)", kind=BOOL),
    Fold.FILTER: _Loop(start="[]", write=_write_filter),
    Fold.MAP: _Loop(start="[]", write=_write_map),
    Fold.TRANSFORM_LIST: _Loop(start="[]", write=_write_map),
    Fold.TRANSFORM_MAP: _Loop(start="[]", write=_write_transform_map, result="make_map({})", kind=MAP),
}
"""Folds with generated code; the interpreter evaluates the others."""


def _write_bind(writer: Writer, node: Bind) -> PythonExpression:
    """Return the body's code, after the statements of the value.

    The value may fail without effect if the name is not used: the name then holds `failed`, and code that uses the name
    gives up.
    """
    lines, value = writer.block(lambda: writer.write(node.value))
    name = writer.new_name("t")
    writer.nest("try:", [*lines, f"{name} = {value.text}"])
    # A used-up budget ends the evaluation, even if the name is never used.
    writer.nest("except CostExceeded:", ["raise"])
    writer.nest("except failures:", [f"{name} = failed"])
    writer.mark_fallible(name, value.kind)
    return writer.write_in_scope({node.name: name}, node.body)


def _write_optional_map(writer: Writer, node: OptionalMap) -> PythonExpression:
    operand = optional_operand(writer, node.target)
    variable, result = writer.new_name("x"), writer.new_name("t")
    lines, body = writer.block(lambda: writer.write_in_scope({node.name: variable}, node.body))
    value = f"as_optional({body.text})" if node.flat else f"Optional(True, {body.text})"
    writer.nest(f"if {operand.missing}:", [f"{result} = NONE"])
    writer.nest("else:", [f"{variable} = {operand.value}", *lines, f"{result} = {value}"])
    return PythonExpression(result, OPT)


GENERATORS: Mapping[type, Callable[[Writer, Any], PythonExpression]] = {
    Comprehension: _write_comprehension,
    Bind: _write_bind,
    OptionalMap: _write_optional_map,
}
