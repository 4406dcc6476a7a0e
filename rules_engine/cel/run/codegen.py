"""Expressions as Python: the same values as the interpreter's, some fifty times faster, or an exception.

CEL has no side effects. So the generated function assumes that nothing goes wrong (a.b is a["b"], && is `and`, exists
is a loop) and any exception sends the evaluation to the interpreter, which knows how errors are absorbed and where they
are. One rule holds for every line written here: it may raise freely, but it never gives a value that the interpreter
would not give. Types are not believed: the checker's are declarations, and JSON may break them, so that a test of the
class stands before every operation whose Python meaning differs from CEL's.

The source holds names and numbers made here and nothing of the expression: its strings, fields and functions are
constants, which the function finds by name in its own globals. Work is counted ahead, as if every loop ran to its end;
where that is too much, the interpreter counts exactly.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from rules_engine.cel.budget import CHARACTERS_PER_UNIT, MAX_RESULT_ITEMS, Budget, CostExceeded, EvaluationError
from rules_engine.cel.check.certainty import certain_parts
from rules_engine.cel.check.checker import Checked, Constant
from rules_engine.cel.library.core import same
from rules_engine.cel.run.interpreter import interpret
from rules_engine.cel.syntax.tree import (
    Binary,
    Bind,
    Call,
    Comprehension,
    Conditional,
    Expression,
    Fold,
    Has,
    Index,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Name,
    OptionalMap,
    Select,
    Unary,
    children,
)
from rules_engine.cel.values import members, operators, regex
from rules_engine.cel.values.functions import Dispatch, Overload
from rules_engine.cel.values.numbers import parse_int
from rules_engine.cel.values.runtime_values import INT_MAX, INT_MIN, NONE, Optional, equals, is_map, make_map
from rules_engine.model.quantity import Quantity

Generated = Callable[[Mapping[str, object], Budget], object]

BOOL, INT, STR, LIST, MAP, OPT, QUANTITY, ANY = "bool", "int", "str", "list", "map", "optional", "Quantity", ""
"""What is known of a piece of code: the class of its value, or nothing."""

SHORT_TEXT = 100
"""Characters of a text that are searched for a word in the time of the node that says so."""

LONG_LOOP = 64
"""Rounds of a loop that are paid for at once; more are paid for as they come."""

SHORT_CODE = 40
"""Characters of code that may be written twice rather than given a name."""

FOLDING_COST = 100
"""Cost of a sub-expression without variables that is worth evaluating ahead."""


@dataclass(frozen=True, slots=True)
class Code:
    """A Python expression, and the class that its value is sure to have."""

    text: str
    kind: str = ANY


@dataclass(frozen=True, slots=True)
class Function:
    """A generated function with its source, for those who want to read it."""

    source: str
    run: Generated


class _NotGeneratedError(Exception):
    """Something that is left to the interpreter: rare, and fast enough there."""


def generate(checked: Checked) -> Function | None:
    """The expression as a Python function, or None where it is left to the interpreter."""
    writer = _Writer(checked)
    try:
        source = writer.function()
        # The text consists of names and numbers that _Writer made: a test reads its tokens.
        code = compile(source, "<generated from CEL>", "exec")
    except (_NotGeneratedError, SyntaxError, RecursionError, MemoryError):
        # Beside the first: Python's own limits on nested blocks and parentheses.
        return None
    namespace = {"__builtins__": {}, **_HELPERS, **writer.constants}
    exec(code, namespace)  # noqa: S102
    return Function(source, namespace["evaluate"])  # type: ignore[arg-type]


def weight(node: Expression) -> int:
    """The nodes of an expression: what the interpreter counts for one evaluation without loops."""
    return 1 + sum(map(weight, children(node)))


class _Writer:
    """Writes one function. Statements go to `_lines`, which nested blocks replace while they are written.

    `_kinds` is what is known of names: where some code of a block raises for any other class than one, all code of the
    block may rely on that class, since the whole block either runs or raises.
    """

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self.constants: dict[str, object] = {}
        self._lines: list[str] = []
        self._locals: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._hoisted: dict[str, str] = {}
        self._uncertain: set[str] = set()
        self._made = 0

    def function(self) -> str:
        expression = self._checked.expression
        self._spend(str(weight(expression)))
        for name in sorted(self._needed(expression)):
            self._hoisted[name] = self._assigned(f"activation[{self._constant(name)}]")
        result = self._write(expression)
        self._lines.append(f"return {result.text}")
        return "\n ".join(["def evaluate(activation, budget):", *self._lines]) + "\n"

    def _needed(self, node: Expression) -> set[str]:
        """The variables that every evaluation looks up, and that may so be looked up first and once."""
        reference = self._checked.references.get(node)
        if isinstance(reference, str):
            return {reference}
        parts = certain_parts(node, self._checked.namespaced, self._checked.certain)
        return {name for part in parts for name in self._needed(part)}

    # Names

    def _fresh(self, letter: str) -> str:
        self._made += 1
        return f"{letter}{self._made}"

    def _constant(self, value: object) -> str:
        name = self._fresh("c")
        self.constants[name] = value
        return name

    def _assigned(self, text: str) -> str:
        name = self._fresh("t")
        self._lines.append(f"{name} = {text}")
        return name

    def _named(self, code: Code) -> tuple[str, str]:
        """Code that gives a value a name, and the name; where it has one, that is both."""
        if _NAME.fullmatch(code.text):
            return code.text, code.text
        name = self._fresh("t")
        return f"{name} := {code.text}", name

    def _plain(self, code: Code) -> Code:
        """The same under a name, given to it in a statement where it has none."""
        return code if _NAME.fullmatch(code.text) else Code(self._assigned(code.text), code.kind)

    def _learn(self, code: Code, kind: str) -> None:
        """Code that was just written raises for a value of any other class."""
        if _NAME.fullmatch(code.text):
            self._kinds[code.text] = kind

    def _spend(self, units: str) -> None:
        self._lines += _spending(units)

    # Blocks

    def _captured(self, write: Callable[[], Code]) -> tuple[list[str], Code]:
        """Code with the statements that it needs, which are not yet part of the function."""
        outer, self._lines = self._lines, []
        code = write()
        lines, self._lines = self._lines, outer
        return lines, code

    def _block(self, write: Callable[[], Code]) -> tuple[list[str], Code]:
        """The same for code that may not run, or run more than once: what it teaches holds for itself only."""
        known = self._kinds.copy()
        captured = self._captured(write)
        self._kinds = known
        return captured

    def _under(self, head: str, lines: Iterable[str]) -> None:
        self._lines.append(head)
        self._lines += [f" {line}" for line in lines]

    def _write(self, node: Expression) -> Code:
        method: Any = _METHODS.get(type(node))
        if method is None:
            raise _NotGeneratedError
        folded = self._folded(node)
        if folded is not None:
            return folded
        code: Code = method(self, node)
        return code

    def _folded(self, node: Expression) -> Code | None:
        """The value of a sub-expression without variables; None where it has some, fails, or is a list or a map."""
        if not isinstance(node, Unary | Binary | Call) or not self._is_constant(node):
            return None
        try:
            value = interpret(replace(self._checked, expression=node), {}, Budget(FOLDING_COST))
        except EvaluationError:
            return None
        return None if type(value) is list or is_map(value) else self._valued(value)

    def _is_constant(self, node: Expression) -> bool:
        if isinstance(node, Call):
            parts = node.arguments if node in self._checked.namespaced else children(node)
            return all(map(self._is_constant, parts))
        if isinstance(node, Unary | Binary):
            return all(map(self._is_constant, children(node)))
        return isinstance(node, Literal)

    def _bool(self, code: Code) -> str:
        if code.kind == BOOL:
            return code.text
        setting, name = self._named(code)
        self._learn(code, BOOL)
        return f"({name} if type({setting}) is bool else refuse())"

    # Leaves

    def literal(self, node: Literal) -> Code:
        # By name even where Python has a literal: it warns of "is" and of brackets behind one.
        return self._valued(self._checked.patterns.get(node, node.value))

    def _valued(self, value: object) -> Code:
        return Code(self._constant(value), _VALUE_KINDS.get(type(value), ANY))

    def name(self, node: Name) -> Code:
        reference = self._checked.references.get(node)
        if reference is not None:
            return self._referred(reference)
        if node.absolute or node.name not in self._locals:
            raise _NotGeneratedError
        local = self._locals[node.name]
        if local in self._uncertain:
            self._lines += [f"if {local} is failed:", " refuse()"]
        return Code(local, self._kinds.get(local, ANY))

    def _referred(self, reference: str | Constant) -> Code:
        if isinstance(reference, Constant):
            return Code(self._constant(reference.value))
        hoisted = self._hoisted.get(reference)
        if hoisted is None:
            return Code(f"activation[{self._constant(reference)}]")
        return Code(hoisted, self._kinds.get(hoisted, ANY))

    # Members

    def select(self, node: Select) -> Code:
        reference = self._checked.references.get(node)
        if reference is not None:
            return self._referred(reference)
        chain = self._chain(node)
        if chain is not None:
            return _made_optional(*chain)
        return self._member(self._write(node.operand), Code(self._constant(node.field), STR), node.optional, "field")

    def index(self, node: Index) -> Code:
        chain = self._chain(node)
        if chain is not None:
            return _made_optional(*chain)
        operand, key = self._write(node.operand), self._write(node.key)
        if isinstance(node.key, Literal) and type(node.key.value) is int and node.key.value >= 0 and not node.optional:
            setting, name = self._named(operand)
            return Code(f"({name}[{key.text}] if type({setting}) is list else required_element({name}, {key.text}))")
        return self._member(operand, key, node.optional, "element")

    def _member(self, operand: Code, key: Code, optional: bool, find: str) -> Code:
        if optional or operand.kind == OPT:
            return Code(f"optional_member({operand.text}, {key.text}, {find})", OPT)
        if key.kind == STR:
            # Of all values only maps take a string in brackets; an optional, a list and a str raise TypeError.
            return Code(f"{operand.text}[{key.text}]")
        if key.kind != ANY or len(operand.text) > SHORT_CODE:
            return Code(f"required_element({operand.text}, {key.text})")
        setting, name = self._named(key)
        quick = f"{operand.text}[{name}] if type({setting}) is str"
        return Code(f"({quick} else required_element({operand.text}, {name}))")

    def has(self, node: Has) -> Code:
        operand = self._write(node.select.operand)
        if operand.kind == OPT:
            raise _NotGeneratedError
        field = self._constant(node.select.field)
        setting, name = self._named(operand)
        # keys() keeps out strings and lists, in which a name may occur too.
        return Code(f"({field} in {name} if type({setting}) is dict else {field} in {name}.keys())", BOOL)

    # Operators

    def unary(self, node: Unary) -> Code:
        operand = self._write(node.operand)
        if node.operator == "!":
            return Code(f"(not {self._bool(operand)})", BOOL)
        return Code(f"negate({operand.text})", operand.kind if operand.kind == INT else ANY)

    def binary(self, node: Binary) -> Code:
        left, right = self._write(node.left), self._write(node.right)
        operator = node.operator
        if operator in ("==", "!="):
            return self._equality(node, left, right)
        if operator == "in":
            return self._membership(node, left, right)
        call = f"{_OPERATORS[operator]}({left.text}, {right.text}, budget)"
        if operator in ("<", "<=", ">", ">="):
            return Code(self._ordering(node, left, right) or call, BOOL)
        if left.kind == right.kind == INT:
            if operator in ("+", "-", "*"):
                return Code(f"whole({left.text} {operator} {right.text})", INT)
            return Code(call, INT)
        # + on two values of which one is a string or list either gives the same or fails.
        known = {left.kind, right.kind} & {STR, LIST} if operator == "+" else set()
        return Code(call, known.pop() if len(known) == 1 else ANY)

    def _guarded(self, tested: Code, number: int, operator: str, otherwise: str) -> str:
        """A test of an unknown value against a number: quick if it is an int in range, the operator's own if not."""
        setting, name = self._named(tested)
        quick = f"{name} {operator} {number} if type({setting}) is int and {INT_MIN} <= {name} <= {INT_MAX}"
        return f"({quick} else {otherwise}({name}, {number}, budget))"

    def _equality(self, node: Binary, left: Code, right: Code) -> Code:
        positive = self._equal(node, left, right)
        return Code(f"(not {positive})" if node.operator == "!=" else positive, BOOL)

    def _equal(self, node: Binary, left: Code, right: Code) -> str:
        for literal, other, code in ((node.left, right, left), (node.right, left, right)):
            if not isinstance(literal, Literal):
                continue
            if literal.value is None or type(literal.value) is bool:
                return f"({other.text} is {code.text})"
            if type(literal.value) is str:
                # A Python string equals strings only, and comparing takes no longer than the literal is.
                return f"({other.text} == {code.text})"
            if type(literal.value) is int and other.kind != INT:
                return self._guarded(other, literal.value, "==", "equals")
        if left.kind == right.kind == INT:
            return f"({left.text} == {right.text})"
        if left.kind == right.kind == BOOL:
            return f"({left.text} is {right.text})"
        return f"equals({left.text}, {right.text}, budget)"

    def _ordering(self, node: Binary, left: Code, right: Code) -> str | None:
        if left.kind == right.kind == INT:
            return f"({left.text} {node.operator} {right.text})"
        if isinstance(node.right, Literal) and type(node.right.value) is int:
            return self._guarded(left, node.right.value, node.operator, _OPERATORS[node.operator])
        if isinstance(node.left, Literal) and type(node.left.value) is int:
            mirrored = _MIRRORED[node.operator]
            return self._guarded(right, node.left.value, mirrored, _OPERATORS[mirrored])
        return None

    def _membership(self, node: Binary, left: Code, right: Code) -> Code:
        words = _words(node.right)
        if words is not None:
            setting, name = self._named(left)
            test = f"{name} in {self._constant(words)} if type({setting}) is str"
            return Code(f"({test} else contains({name}, {right.text}, budget))", BOOL)
        if left.kind not in (STR, ANY):
            return Code(f"contains({left.text}, {right.text}, budget)", BOOL)
        key = self._plain(left)
        setting, name = self._named(right)
        test = f"type({setting}) is dict" if key.kind == STR else f"type({setting}) is dict and type({key.text}) is str"
        return Code(f"({key.text} in {name} if {test} else contains({key.text}, {name}, budget))", BOOL)

    def logic(self, node: Logic) -> Code:
        first = self._operand(node.operands[0])
        known = self._kinds.copy()
        # What one operand teaches holds for those after it: they run only if it did.
        blocks = [self._captured(lambda: self._operand(operand)) for operand in node.operands[1:]]  # noqa: B023
        self._kinds = known
        if not any(lines for lines, _ in blocks):
            word = " and " if node.operator == "&&" else " or "
            return Code(f"({word.join([first.text, *(code.text for _, code in blocks)])})", BOOL)
        name = self._assigned(first.text)
        test = f"if {name}:" if node.operator == "&&" else f"if not {name}:"
        for lines, code in blocks:
            self._under(test, [*lines, f"{name} = {code.text}"])
        return Code(name, BOOL)

    def _operand(self, node: Expression) -> Code:
        return Code(self._bool(self._write(node)), BOOL)

    def conditional(self, node: Conditional) -> Code:
        condition = self._bool(self._write(node.condition))
        then_lines, then = self._block(lambda: self._write(node.then))
        else_lines, otherwise = self._block(lambda: self._write(node.otherwise))
        kind = then.kind if then.kind == otherwise.kind else ANY
        if not then_lines and not else_lines:
            return Code(f"({then.text} if {condition} else {otherwise.text})", kind)
        name = self._fresh("t")
        self._under(f"if {condition}:", [*then_lines, f"{name} = {then.text}"])
        self._under("else:", [*else_lines, f"{name} = {otherwise.text}"])
        return Code(name, kind)

    def list_literal(self, node: ListLiteral) -> Code:
        if any(element.optional for element in node.elements):
            raise _NotGeneratedError
        return Code(f"[{', '.join(self._write(element.value).text for element in node.elements)}]", LIST)

    def map_literal(self, node: MapLiteral) -> Code:
        if any(entry.optional for entry in node.entries):
            raise _NotGeneratedError
        pairs = [(self._write(entry.key).text, self._write(entry.value).text) for entry in node.entries]
        keys = [entry.key.value for entry in node.entries if isinstance(entry.key, Literal)]
        if len(set(keys)) == len(pairs) and all(type(key) is str for key in keys):
            return Code(f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}", MAP)
        return Code(f"make_map([{', '.join(f'({key}, {value})' for key, value in pairs)}])", MAP)

    # Calls

    def call(self, node: Call) -> Code:
        dispatch = self._checked.calls[node]
        if not dispatch.overloads:
            raise _NotGeneratedError
        if node.target is None or node in self._checked.namespaced:
            return self._plain_call(node, dispatch)
        special = _SPECIAL.get((node.function, len(node.arguments)))
        if special is not None:
            code = special(self, node, node.target)
            if code is not None:
                return code
        return self._dispatched(dispatch, [node.target, *node.arguments])

    def _plain_call(self, node: Call, dispatch: Dispatch) -> Code:
        if len(node.arguments) == 1 and dispatch.overloads[0].name == "size":
            return Code(f"len({self._write(node.arguments[0]).text})", INT)
        if len(node.arguments) == 1 and dispatch.overloads[0].name == "int":
            argument = self._write(node.arguments[0])
            return Code(f"whole_number({argument.text}, {self._constant(dispatch)}, budget)", INT)
        return self._dispatched(dispatch, node.arguments)

    def _dispatched(self, dispatch: Dispatch, arguments: Iterable[Expression]) -> Code:
        written = [self._write(argument) for argument in arguments]
        overload = _likely(dispatch, [code.kind for code in written])
        if overload is not None:
            return self._expected(dispatch, overload, written)
        kind = _common_kind(dispatch.overloads)
        return Code(f"{self._constant(dispatch)}({', '.join(['budget', *(code.text for code in written)])})", kind)

    def _expected(self, dispatch: Dispatch, overload: Overload, arguments: list[Code]) -> Code:
        """A call of one overload, where the classes are those it takes and texts too short to count; else of all."""
        if len(arguments) > 1:
            # What stands behind "and" might get no name.
            arguments = [self._plain(code) for code in arguments]
        tests, names = [], []
        for code, parameter in zip(arguments, overload.parameters, strict=True):
            kind = _KINDS[parameter.name]
            setting, name = self._named(code)
            if code.kind != kind:
                tests.append(f"type({setting}) is {kind}")
                setting = name
            if kind == STR and not overload.constant:
                tests.append(f"len({setting}) < {CHARACTERS_PER_UNIT}")
                setting = name
            names.append(name if setting == name else code.text)
        implementation = overload.implementation
        quick = names[0] if implementation is same else f"{self._constant(implementation)}({', '.join(names)})"
        if not tests:
            return Code(quick, _common_kind((overload,)))
        slow = f"{self._constant(dispatch)}({', '.join(['budget', *names])})"
        return Code(f"({quick} if {' and '.join(tests)} else {slow})", _common_kind(dispatch.overloads))

    def size(self, _node: Call, target: Expression) -> Code | None:
        # Strings, bytes, lists and maps have a length, and no other value of CEL has one.
        return Code(f"len({self._write(target).text})", INT)

    def edge(self, node: Call, target: Expression) -> Code:
        """startsWith and endsWith: bytes and all else than a string raise."""
        text, part = self._write(target), self._write(node.arguments[0])
        self._learn(text, STR)
        edge = _EDGES[node.function]
        if isinstance(node.arguments[0], Literal) and part.kind == STR:
            return Code(f"{text.text}.{edge}({part.text})", BOOL)
        text, part = self._plain(text), self._plain(part)
        test = f"type({part.text}) is str and len({part.text}) <= {SHORT_TEXT}"
        slow = f"{self._constant(self._checked.calls[node])}(budget, {text.text}, {part.text})"
        return Code(f"({text.text}.{edge}({part.text}) if {test} else {slow})", BOOL)

    def contains(self, node: Call, target: Expression) -> Code | None:
        text, part = self._write(target), self._write(node.arguments[0])
        setting, name = self._named(text)
        test = f"len({setting}) <= {SHORT_TEXT}"
        if text.kind != STR:
            test = f"type({setting}) is str and len({name}) <= {SHORT_TEXT}"
        self._learn(text, STR)
        if part.kind != STR:
            return Code(f"occurs({text.text}, {part.text}, budget)", BOOL)
        part = self._plain(part)
        return Code(f"({part.text} in {name} if {test} else occurs({name}, {part.text}, budget))", BOOL)

    def matches(self, node: Call, target: Expression) -> Code | None:
        pattern = node.arguments[0]
        if not isinstance(pattern, Literal) or type(pattern.value) is not str:
            return None
        compiled = self._checked.patterns.get(pattern)
        if compiled is None:
            return None
        text = self._write(target)
        self._learn(text, STR)
        return Code(f"{self._constant(_matcher(compiled, pattern.value))}({text.text}, budget)", BOOL)

    # Optionals

    def has_value(self, _node: Call, target: Expression) -> Code | None:
        chain = self._chain(target)
        if chain is not None:
            return Code(f"(not ({chain[1]}))", BOOL)
        # Only an Optional has `present`.
        return Code(f"{self._write(target).text}.present", BOOL)

    def value(self, _node: Call, target: Expression) -> Code | None:
        chain = self._chain(target)
        if chain is not None:
            return Code(f"(refuse() if {chain[1]} else {chain[0]})")
        setting, name = self._named(self._write(target))
        return Code(f"({name}.value if ({setting}).present else refuse())")

    def or_value(self, node: Call, target: Expression) -> Code | None:
        chain = self._chain(target)
        if chain is not None:
            name, missing = chain
            found = name
        else:
            name = self._plain(self._write(target)).text
            found, missing = f"{name}.value", f"not {name}.present"
        lines, other = self._block(lambda: self._write(node.arguments[0]))
        if not lines:
            return Code(f"({other.text} if {missing} else {found})")
        result = self._fresh("t")
        self._under(f"if {missing}:", [*lines, f"{result} = {other.text}"])
        self._under("else:", [f"{result} = {found}"])
        return Code(result)

    def or_(self, node: Call, target: Expression) -> Code | None:
        name = self._plain(self._write(target)).text
        lines, other = self._block(lambda: self._write(node.arguments[0]))
        if lines:
            raise _NotGeneratedError
        return Code(f"({name} if {name}.present else as_optional({other.text}))", OPT)

    def _chain(self, target: Expression) -> tuple[str, str] | None:
        """For a.?b.c[?"d"]: the name that holds its value, and the test that sets it and is true where it is missing.

        dict.get steps through maps without an Optional for each; whatever is no map has no get, and raises.
        """
        steps: list[str] = []
        base, inside = target, 0
        current = target
        while True:
            if isinstance(current, Select) and current not in self._checked.references:
                key, optional, current = current.field, current.optional, current.operand
            elif isinstance(current, Index) and isinstance(current.key, Literal) and type(current.key.value) is str:
                key, optional, current = current.key.value, current.optional, current.operand
            else:
                break
            steps.append(key)
            if optional:
                base, inside = current, len(steps)
        if not inside:
            return None
        written = self._write(base)
        name = self._fresh("t")
        tests = []
        text = written.text
        if written.kind == OPT:
            setting, text = self._named(written)
            tests = [f"not ({setting}).present"]
            text = f"{text}.value"
        for key in reversed(steps[:inside]):
            tests.append(f"({name} := {text}.get({self._constant(key)}, missing)) is missing")
            text = name
        return name, " or ".join(tests)

    def optional_map(self, node: OptionalMap) -> Code:
        chain = self._chain(node.target)
        if chain is not None:
            found, missing = chain
        else:
            target = self._plain(self._write(node.target)).text
            found, missing = f"{target}.value", f"not {target}.present"
        variable, result = self._fresh("x"), self._fresh("t")
        lines, body = self._block(lambda: self._within({node.name: variable}, node.body))
        made = f"as_optional({body.text})" if node.flat else f"Optional(True, {body.text})"
        self._under(f"if {missing}:", [f"{result} = NONE"])
        self._under("else:", [f"{variable} = {found}", *lines, f"{result} = {made}"])
        return Code(result, OPT)

    # Macros

    def _within(self, names: Mapping[str, str], body: Expression) -> Code:
        outer = self._locals
        self._locals = {**outer, **names}
        code = self._write(body)
        self._locals = outer
        return code

    def bind(self, node: Bind) -> Code:
        """The value comes first, but where it is not certain to be evaluated, it fails only where its name stands."""
        if node in self._checked.certain:
            value = self._plain(self._write(node.value))
            self._learn(value, value.kind)
            return self._within({node.name: value.text}, node.body)
        lines, value = self._block(lambda: self._write(node.value))
        name = self._fresh("t")
        self._under("try:", [*lines, f"{name} = {value.text}"])
        self._under("except CostExceeded:", ["raise"])
        self._under("except failures:", [f"{name} = failed"])
        self._uncertain.add(name)
        self._kinds[name] = value.kind
        return self._within({node.name: name}, node.body)

    def comprehension(self, node: Comprehension) -> Code:
        fold = _FOLDS.get(node.fold)
        if fold is None:
            raise _NotGeneratedError
        written = self._write(node.target)
        names = {node.first: self._fresh("x")}
        if node.second is None:
            target, variables = self._assigned(written.text), names[node.first]
            if written.kind != LIST:
                no_iterable = f"if type({target}) is not list and type({target}) is not dict:"
                self._under(no_iterable, [f"{target} = as_map({target})"])
        else:
            names[node.second] = self._fresh("x")
            target, variables = self._assigned(f"pairs({written.text})"), ", ".join(names.values())
        result = self._assigned(fold.start)
        lines, _ = self._block(lambda: fold.write(self, node, names, result))
        rounds = 1 + weight(node.body) + (0 if node.condition is None else weight(node.condition))
        paying = _spending(f"len({target}) * {rounds}")
        if not isinstance(node.target, ListLiteral) or len(node.target.elements) > LONG_LOOP:
            later = [f"if len({target}) > {LONG_LOOP}:", f" {target} = paced({target}, {rounds}, budget)", "else:"]
            paying = [*later, *[f" {line}" for line in paying]]
        loop = [f"for {variables} in {target}:", *[f" {line}" for line in lines]]
        bound = [f"if len({result}) > {MAX_RESULT_ITEMS}:", " refuse()"] if fold.kind == LIST else []
        self._under(f"if {target}:", [*paying, *loop, *bound])
        return Code(fold.result.format(result), fold.kind)

    def decided(self, node: Comprehension, names: Mapping[str, str], result: str) -> Code:
        decisive = node.fold is Fold.EXISTS
        test = self._bool(self._within(names, node.body))
        self._under(f"if {test}:" if decisive else f"if not {test}:", [f"{result} = {decisive!r}", "break"])
        return Code(result)

    def counted(self, node: Comprehension, names: Mapping[str, str], result: str) -> Code:
        self._under(f"if {self._bool(self._within(names, node.body))}:", [f"{result} += 1"])
        return Code(result)

    def filtered(self, node: Comprehension, names: Mapping[str, str], result: str) -> Code:
        self._under(f"if {self._bool(self._within(names, node.body))}:", [f"{result}.append({names[node.first]})"])
        return Code(result)

    def mapped(self, node: Comprehension, names: Mapping[str, str], result: str) -> Code:
        return self._collected(node, names, f"{result}.append({{}})")

    def transformed(self, node: Comprehension, names: Mapping[str, str], result: str) -> Code:
        return self._collected(node, names, f"{result}.append(({names[node.first]}, {{}}))")

    def _collected(self, node: Comprehension, names: Mapping[str, str], collect: str) -> Code:
        condition = None if node.condition is None else self._bool(self._within(names, node.condition))
        lines, body = self._captured(lambda: self._within(names, node.body))
        lines.append(collect.format(body.text))
        if condition is None:
            self._lines += lines
        else:
            self._under(f"if {condition}:", lines)
        return body


def _spending(units: str) -> list[str]:
    """Budget.spend, without the call."""
    return [f"budget.left -= {units}", "if budget.left < 0:", " budget.more()"]


def _made_optional(name: str, missing: str) -> Code:
    return Code(f"(NONE if {missing} else Optional(True, {name}))", OPT)


def _common_kind(overloads: Iterable[Overload]) -> str:
    results = {overload.result.name for overload in overloads}
    return _KINDS.get(results.pop(), ANY) if len(results) == 1 else ANY


def _likely(dispatch: Dispatch, kinds: list[str]) -> Overload | None:
    """The overload for arguments of these kinds, where it takes nothing but strings and quantities, and costs no more.

    What is unknown is expected to be what it takes.
    """
    for overload in dispatch.overloads:
        wanted = [_KINDS.get(parameter.name) for parameter in overload.parameters]
        fits = all(want in (STR, QUANTITY) and kind in (want, ANY) for want, kind in zip(wanted, kinds, strict=True))
        if fits and not overload.budgeted and not overload.cost and dispatch.fitting(overload.parameters) is overload:
            return overload
    return None


def _words(node: Expression) -> frozenset[str] | None:
    """The elements of a list literal that consists of string literals."""
    if not isinstance(node, ListLiteral):
        return None
    words = [element.value.value for element in node.elements if isinstance(element.value, Literal)]
    if len(words) < len(node.elements) or any(element.optional for element in node.elements):
        return None
    return frozenset(words) if all(type(word) is str for word in words) else None  # type: ignore[arg-type]


_NAME = re.compile(r"[ctx][0-9]+")
"""A name made by _Writer."""

_PLAIN_TEXT = re.compile(r"(\^?)([A-Za-z0-9 _/:,=@-]*)(\$?)")
"""A pattern that is a word, perhaps with an anchor."""


# What the generated code calls. All of it may raise; none of it gives another value than the interpreter would.


def _refuse() -> NoReturn:
    raise EvaluationError("left to the interpreter")


def _as_map(value: Any) -> Any:
    return value if is_map(value) else _refuse()


def _pairs(value: Any) -> list[Any]:
    if type(value) is list:
        return list(enumerate(value))
    return list(value.items()) if is_map(value) else _refuse()


def _paced(items: Any, rounds: int, budget: Budget) -> Iterator[Any]:
    """The items of a long loop, paid for as they come, so that time is kept."""
    left = len(items)
    for place, item in enumerate(items):
        if place % LONG_LOOP == 0:
            budget.spend(min(left, LONG_LOOP) * rounds)
            left -= LONG_LOOP
        yield item


def _occurs(text: Any, part: Any, budget: Budget) -> bool:
    if type(text) is not str or type(part) is not str:
        _refuse()
    if len(text) > CHARACTERS_PER_UNIT:
        budget.spend(len(text) // CHARACTERS_PER_UNIT)
    return part in text


def _whole_number(value: Any, dispatch: Dispatch, budget: Budget) -> Any:
    return parse_int(value) if type(value) is str else dispatch(budget, value)


def _matcher(pattern: regex.Pattern, written: str) -> Callable[[Any, Budget], bool]:
    """The test of a constant pattern; where that is a word, a test of strings, ten times as fast as RE2."""
    found = _PLAIN_TEXT.fullmatch(written)
    start, word, end = found.groups() if found else ("", "", "")

    def match(text: Any, budget: Budget) -> bool:
        if type(text) is not str:
            _refuse()
        # Other than ASCII may hold a lone surrogate, which RE2 refuses.
        if not found or not text.isascii():
            return pattern.occurs_in(text, budget)
        pattern.charge(len(text), budget)
        if start:
            return text == word if end else text.startswith(word)
        return text.endswith(word) if end else word in text

    return match


_OPERATORS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "%": "modulo",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EDGES = {"startsWith": "startswith", "endsWith": "endswith"}
_KINDS = {
    "bool": BOOL,
    "int": INT,
    "string": STR,
    "list": LIST,
    "optional_type": OPT,
    "kubernetes.Quantity": QUANTITY,
}
_VALUE_KINDS = {bool: BOOL, int: INT, str: STR, Optional: OPT, Quantity: QUANTITY}

_HELPERS: Mapping[str, object] = {
    **{name: operators.BINARY[operator] for operator, name in _OPERATORS.items()},
    "CostExceeded": CostExceeded,
    "NONE": NONE,
    "Optional": Optional,
    "Quantity": Quantity,
    "as_map": _as_map,
    "as_optional": members.as_optional,
    "bool": bool,
    "contains": operators.contains,
    "dict": dict,
    "element": members.element,
    "equals": equals,
    "failed": object(),
    "failures": (EvaluationError, LookupError, TypeError, AttributeError),
    "field": members.field,
    "int": int,
    "len": len,
    "list": list,
    "make_map": make_map,
    "missing": object(),
    "negate": operators.negate,
    "occurs": _occurs,
    "optional_member": members.optional_member,
    "paced": _paced,
    "pairs": _pairs,
    "refuse": _refuse,
    "required_element": members.required_element,
    "str": str,
    "type": type,
    "whole": operators.whole,
    "whole_number": _whole_number,
}

_METHODS: Mapping[type, Callable[[_Writer, Any], Code]] = {
    Literal: _Writer.literal,
    Name: _Writer.name,
    Select: _Writer.select,
    Index: _Writer.index,
    Has: _Writer.has,
    Unary: _Writer.unary,
    Binary: _Writer.binary,
    Logic: _Writer.logic,
    Conditional: _Writer.conditional,
    ListLiteral: _Writer.list_literal,
    MapLiteral: _Writer.map_literal,
    Call: _Writer.call,
    Comprehension: _Writer.comprehension,
    Bind: _Writer.bind,
    OptionalMap: _Writer.optional_map,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """How a macro's loop is written: what its result starts as, what a round does, what is made of the result."""

    start: str
    write: Callable[[_Writer, Comprehension, Mapping[str, str], str], Code]
    result: str = "{}"
    kind: str = LIST


_FOLDS: Mapping[Fold, _Loop] = {
    Fold.ALL: _Loop(start="True", write=_Writer.decided, kind=BOOL),
    Fold.EXISTS: _Loop(start="False", write=_Writer.decided, kind=BOOL),
    Fold.EXISTS_ONE: _Loop(start="0", write=_Writer.counted, result="({} == 1)", kind=BOOL),
    Fold.FILTER: _Loop(start="[]", write=_Writer.filtered),
    Fold.MAP: _Loop(start="[]", write=_Writer.mapped),
    Fold.TRANSFORM_LIST: _Loop(start="[]", write=_Writer.mapped),
    Fold.TRANSFORM_MAP: _Loop(start="[]", write=_Writer.transformed, result="make_map({})", kind=MAP),
}

_SPECIAL: Mapping[tuple[str, int], Callable[[_Writer, Call, Expression], Code | None]] = {
    ("size", 0): _Writer.size,
    ("startsWith", 1): _Writer.edge,
    ("endsWith", 1): _Writer.edge,
    ("contains", 1): _Writer.contains,
    ("matches", 1): _Writer.matches,
    ("hasValue", 0): _Writer.has_value,
    ("value", 0): _Writer.value,
    ("orValue", 1): _Writer.or_value,
    ("or", 1): _Writer.or_,
}
"""Methods with code of their own, by name and number of arguments; only one library has each of them."""
