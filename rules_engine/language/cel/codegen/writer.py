"""Writer of one function: its statements, constants and names, and the classes of their values.

Every node of the tree becomes a Python expression (Code). Where Python needs statements, as for a loop, they are
appended to `lines`, before the expression that uses their result. Code that may not run, or runs several times, is
captured as a block of its own, for its statements must stand under an `if` or in a loop.

Why classes are narrowed: a proven class needs no test. Code that raises for every class but one proves that class to
all later code of its block, since a block either runs to its end or raises. The proofs of a block are forgotten at its
end, because the block may not have run.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rules_engine.language.cel.check.checker import Checked, Constant
from rules_engine.language.cel.syntax.tree import Expression, Name, child_nodes
from rules_engine.language.cel.values.runtime_values import Optional
from rules_engine.model.kubernetes.quantity import Quantity

BOOL, INT, STR, LIST, MAP, OPT, QUANTITY, ANY = "bool", "int", "str", "list", "map", "optional", "Quantity", ""
"""The class of a value; ANY if it is unknown."""

_CLASSES = {bool: BOOL, int: INT, str: STR, Optional: OPT, Quantity: QUANTITY}

_NAME = re.compile(r"[ctx][0-9]+")
"""A name made by Writer: a constant, a temporary or a macro variable."""


@dataclass(frozen=True, slots=True)
class PythonExpression:
    """A Python expression, and the proven class of its value."""

    text: str
    kind: str = ANY


class NotGeneratedError(Exception):
    """An expression without generated code: the interpreter evaluates it. Such ones are rare, and fast enough."""


def node_count(node: Expression) -> int:
    """Return the number of nodes: the interpreter's cost of one evaluation without loops."""
    return 1 + sum(map(node_count, child_nodes(node)))


def spend_statements(units: str) -> list[str]:
    """Return Budget.spend as statements: a call would cost more than most of what it counts."""
    return [f"budget.left -= {units}", "if budget.left < 0:", " budget.more()"]


def indent_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines one level deeper."""
    return [f" {line}" for line in lines]


class Writer:
    """Writer of one function. `lines`: the statements of the innermost block so far."""

    def __init__(
        self, checked: Checked, generators: Mapping[type, Callable[["Writer", Any], PythonExpression]]
    ) -> None:
        self.checked = checked
        self.constants: dict[str, object] = {}
        self.lines: list[str] = []
        self._generators = generators
        self._scope: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._fallible: set[str] = set()
        self._name_count = 0

    def write(self, node: Expression) -> PythonExpression:
        """Return the code of a node. Raises NotGeneratedError."""
        generator = self._generators.get(type(node))
        if generator is None:
            raise NotGeneratedError
        return generator(self, node)

    def write_in_scope(self, names: Mapping[str, str], body: Expression) -> PythonExpression:
        """Return the code of a macro's body. `names`: the Python names of the macro's variables."""
        outer = self._scope
        self._scope = {**outer, **names}
        code = self.write(body)
        self._scope = outer
        return code

    def condition(self, code: PythonExpression) -> str:
        """Return code that gives up for anything but a bool: Python's `and`, `not` and `if` accept any value."""
        if code.kind == BOOL:
            return code.text
        first, name = self.reusable(code)
        self.narrow(code, BOOL)
        return f"({name} if type({first}) is bool else refuse())"

    # Values and variables

    def constant(self, value: object) -> str:
        """Return the name of a new constant."""
        name = self.new_name("c")
        self.constants[name] = value
        return name

    def value(self, value: object) -> PythonExpression:
        """Return a constant with its class.

        It is a name even where Python has a literal, since Python warns of `is` or brackets after a literal.
        """
        return PythonExpression(self.constant(value), _CLASSES.get(type(value), ANY))

    def reference(self, reference: str | Constant) -> PythonExpression:
        """Return the code of a variable or a constant of the environment."""
        if isinstance(reference, Constant):
            return PythonExpression(self.constant(reference.value))
        return PythonExpression(f"activation[{self.constant(reference)}]")

    def local(self, node: Name) -> PythonExpression:
        """Return the code of a macro's variable. Raises NotGeneratedError for an undeclared one."""
        if node.absolute or node.name not in self._scope:
            raise NotGeneratedError
        local = self._scope[node.name]
        if local in self._fallible:
            self.lines += [f"if {local} is failed:", " refuse()"]
        return PythonExpression(local, self._kinds.get(local, ANY))

    def mark_fallible(self, name: str, kind: str) -> None:
        """Declare that a name may hold `failed`, so that each use tests it. `kind`: the class of its other values."""
        self._fallible.add(name)
        self._kinds[name] = kind

    # Names

    def new_name(self, letter: str) -> str:
        """Return a new name."""
        self._name_count += 1
        return f"{letter}{self._name_count}"

    def assign(self, text: str) -> str:
        """Assign a value in a statement, and return its name."""
        name = self.new_name("t")
        self.lines.append(f"{name} = {text}")
        return name

    def as_name(self, code: PythonExpression) -> PythonExpression:
        """Return code that is a name; other code is assigned to one in a statement."""
        return code if _NAME.fullmatch(code.text) else PythonExpression(self.assign(code.text), code.kind)

    def reusable(self, code: PythonExpression) -> tuple[str, str]:
        """Return the text for the first use of a value, which assigns it within an expression, and for later uses."""
        if _NAME.fullmatch(code.text):
            return code.text, code.text
        name = self.new_name("t")
        return f"{name} := {code.text}", name

    def narrow(self, code: PythonExpression, kind: str) -> None:
        """Record that the code just written raises for a value of any other class."""
        if _NAME.fullmatch(code.text):
            self._kinds[code.text] = kind

    # Statements

    def nest(self, head: str, lines: Iterable[str]) -> None:
        """Append a compound statement."""
        self.lines.append(head)
        self.lines += indent_lines(lines)

    def capture(self, write: Callable[[], PythonExpression]) -> tuple[list[str], PythonExpression]:
        """Return the code that `write` returns, and its statements, which are not yet part of the function."""
        outer, self.lines = self.lines, []
        code = write()
        lines, self.lines = self.lines, outer
        return lines, code

    def block(self, write: Callable[[], PythonExpression]) -> tuple[list[str], PythonExpression]:
        """Capture code that may not run, or runs several times: its narrowing ends with it."""
        return self.sequence([write])[0]

    def sequence(self, writes: Iterable[Callable[[], PythonExpression]]) -> list[tuple[list[str], PythonExpression]]:
        """Capture blocks of which each runs only after all before it, so that narrowing holds from one to the next."""
        kinds_before = self._kinds.copy()
        captured = [self.capture(write) for write in writes]
        self._kinds = kinds_before
        return captured
