"""Generation of the Python function: its header, and its compilation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rules_engine.cel.budget import Budget
from rules_engine.cel.check.checker import Checked
from rules_engine.cel.run.codegen import calls, expressions, macros, members
from rules_engine.cel.run.codegen.runtime import RUNTIME
from rules_engine.cel.run.codegen.writer import NotGeneratedError, Writer, node_count, spend_statements

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
