"""Code generation: a checked expression as a Python function.

Why generate: the interpreter visits every node at every evaluation, while Python's compiler makes of the same tree one
function in which `a.b` is `a["b"]`, `&&` is `and` and a macro is a loop. Shipped validations are evaluated 6 to 10
times as fast, small expressions 8 to 30 times (bench.cel).

Why exceptions lead to the interpreter: CEL absorbs errors (`false && 1/0 > 0` is false in either order) and every error
has a place. Code that did both would be as slow as the interpreter. But CEL has no side effects, so an evaluation can
start again: generated code assumes that nothing fails, and any exception discards its work and runs the interpreter,
which returns the value after all or raises the error with its place. So one rule holds for every generated line: it may
raise anything at any time, but never returns a value that the interpreter would not return. Static types are no proof,
since JSON may break the declarations that the checker relies on: where Python's operation differs from CEL's for some
class of value, generated code tests the class first.

Why the source contains no text of the expression: `exec` runs it. It consists of keywords, numbers and names that are
made here; strings, fields and functions of the expression are constants in the function's globals.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rules_engine.language.cel.budget import Budget
from rules_engine.language.cel.check.checker import Checked
from rules_engine.language.cel.codegen import calls, expressions, macros, members
from rules_engine.language.cel.codegen.runtime import RUNTIME
from rules_engine.language.cel.codegen.writer import NotGeneratedError, Writer, node_count, spend_statements

_GENERATORS = {**expressions.GENERATORS, **members.GENERATORS, **calls.GENERATORS, **macros.GENERATORS}


@dataclass(frozen=True, slots=True)
class Function:
    """A generated function, and its source for readers."""

    source: str
    run: Callable[[Mapping[str, object], Budget], object]


def generate_function(checked: Checked) -> Function | None:
    """Compile the expression to a Python function; None if only the interpreter can evaluate it."""
    writer = Writer(checked, _GENERATORS)
    try:
        source = _write_source(checked, writer)
        # The source consists of names and numbers that Writer made: a test reads its tokens.
        code = compile(source, "<generated from CEL>", "exec")
    except (NotGeneratedError, SyntaxError, RecursionError, MemoryError):
        # Giving up is safe, since the interpreter evaluates every expression. All errors but the first are Python's own
        # limits on nested blocks and parentheses.
        return None
    namespace = {"__builtins__": {}, **RUNTIME, **writer.constants}
    exec(code, namespace)  # noqa: S102
    return Function(source, namespace["evaluate"])  # type: ignore[arg-type]


def _write_source(checked: Checked, writer: Writer) -> str:
    expression = checked.expression
    writer.lines += spend_statements(str(node_count(expression)))
    result = writer.write(expression)
    writer.lines.append(f"return {result.text}")
    return "\n ".join(["def evaluate(activation, budget):", *writer.lines]) + "\n"


__all__ = ["Function", "generate_function"]
