"""Parser: text to syntax tree. The only module that imports lark.

The grammar is cel-python's (cel.lark of the installed celpy, which is not imported) with the changes of grammar.lark.
lark's LALR parser calls the methods of _Builder bottom-up, so neither parsing nor building recurses.
"""

import hashlib
import importlib.util
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import lark
from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from rules_engine.language.cel.budget import MAX_EXPRESSION_LENGTH, MAX_NESTING, CelProblems
from rules_engine.language.cel.syntax import hints, literals, tree
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import SourceText

_GRAMMAR = Path(__file__).with_name("grammar.lark")

KEYWORDS = frozenset({"false", "in", "null", "true"})
"""Words that are never names (CEL specification, KEYWORD)."""

RESERVED = KEYWORDS | {
    *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "namespace"),
    *("package", "return", "var", "void", "while"),
}
"""KEYWORDS, and words that are names after a dot only (CEL specification, RESERVED)."""

REQUESTED = "requested"
"""The function of the pod, and the variable that is its receiver."""

_ONE_VARIABLE = {
    "all": tree.Fold.ALL,
    "exists": tree.Fold.EXISTS,
    "exists_one": tree.Fold.EXISTS_ONE,
    "existsOne": tree.Fold.EXISTS_ONE,
    "map": tree.Fold.MAP,
    "filter": tree.Fold.FILTER,
    "sortBy": tree.Fold.SORT_BY,
}
_TWO_VARIABLES = {
    "all": tree.Fold.ALL,
    "exists": tree.Fold.EXISTS,
    "exists_one": tree.Fold.EXISTS_ONE,
    "existsOne": tree.Fold.EXISTS_ONE,
    "transformList": tree.Fold.TRANSFORM_LIST,
    "transformMap": tree.Fold.TRANSFORM_MAP,
    "transformMapEntry": tree.Fold.TRANSFORM_MAP_ENTRY,
}


class SyntaxProblem(Exception):  # noqa: N818
    """A problem found while the tree is built; `hint` returns a clause from the text of the expression."""

    def __init__(
        self, code: Code, message: str, span: tree.SourceSpan, hint: Callable[[str], str] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.span = span
        self.hint = hint


def parse_expression(source: SourceText) -> tree.Expression:
    """Return the tree of an expression. Raises CelProblems with the first syntax problem."""
    text = source.text
    if len(text) > MAX_EXPRESSION_LENGTH:
        message = f"the expression has {len(text)} characters; {MAX_EXPRESSION_LENGTH} are allowed"
        raise CelProblems((Problem(code=Code.CEL_TOO_LONG, message=message, location=source.at(0)),))
    try:
        return cast(tree.Expression, _load_parser().parse(text))
    except SyntaxProblem as problem:
        code, message, span = problem.code, f"{problem}{problem.hint(text) if problem.hint else ''}", problem.span
    except UnexpectedCharacters as error:
        offset = error.pos_in_stream or 0
        code, span, message = Code.CEL_SYNTAX, *_unexpected_character(text, offset)
    except UnexpectedToken as error:
        code, span, message = Code.CEL_SYNTAX, *_unexpected_token(text, error.token)
    raise CelProblems(
        (Problem(code=code, message=message, location=source.at(span.start), length=max(1, span.end - span.start)),)
    )


TABLES = Path(__file__).with_name("tables.bin")
"""The parser as lark saves it, after a digest of it and of its sources (python -m tools.cel_tables).

Building takes 0.12 s, the larger part of a check of some files; loading takes 5 ms.
"""


@lru_cache(maxsize=1)
def _load_parser() -> lark.Lark:
    """Load the parser, or build it if the file is damaged or was written with other versions of the libraries."""
    folder = grammar_folder()
    tables = TABLES.read_bytes()
    saved = tables[hashlib.sha256().digest_size :]
    return lark.Lark.load(io.BytesIO(saved)) if tables == parser_digest(folder, saved) + saved else build_parser(folder)


def grammar_folder() -> Path:
    """Return the folder of cel-python, which is not imported. Raises RuntimeError if it is not installed."""
    package = importlib.util.find_spec("celpy")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("cel-python is not installed: its grammar is needed to parse CEL")
    return Path(package.submodule_search_locations[0])


def parser_digest(folder: Path, saved: bytes) -> bytes:
    """Return the digest of a saved parser and of its sources: both grammars and the version of lark."""
    parts = (lark.__version__.encode(), (folder / "cel.lark").read_bytes(), _GRAMMAR.read_bytes(), saved)
    return hashlib.sha256(b"\0".join(parts)).digest()


def build_parser(folder: Path) -> lark.Lark:
    """Return a parser made from grammar.lark, which imports from cel-python's grammar in `folder`."""
    return lark.Lark(
        _GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        start="expr",
        keep_all_tokens=True,
        maybe_placeholders=False,
        import_paths=[str(folder)],
        transformer=_Builder(),
    )


def _unexpected_character(text: str, offset: int) -> tuple[tree.SourceSpan, str]:
    character = text[offset]
    span = tree.SourceSpan(offset, offset + 1)
    if character in "'\"":
        return span, "the string is not closed"
    return hints.foreign_syntax(text, offset) or (span, f"unexpected {character!r}")


def _unexpected_token(text: str, token: Token) -> tuple[tree.SourceSpan, str]:
    if token.type == "$END":
        end = len(text.rstrip())
        return hints.early_end_hint(text) or (tree.SourceSpan(max(0, end - 1), end), "the expression ends too early")
    start = token.start_pos or 0
    span = tree.SourceSpan(start, start + len(token))
    return hints.foreign_syntax(text, start) or (span, f"unexpected {hints.quote_token(token)}")


Child: TypeAlias = Any
"""Arguments from lark: tokens, nodes, and the parts of rules that _Builder makes."""


def _start_offset(child: Child) -> int:
    return cast(int, child.start_pos if isinstance(child, Token) else child.span.start)


def _end_offset(child: Child) -> int:
    return cast(int, child.end_pos if isinstance(child, Token) else child.span.end)


def _token_span(token: Token) -> tree.SourceSpan:
    return tree.SourceSpan(_start_offset(token), _end_offset(token))


def _children_span(children: Sequence[Child]) -> tree.SourceSpan:
    return tree.SourceSpan(_start_offset(children[0]), _end_offset(children[-1]))


@dataclass(frozen=True, slots=True)
class _ParsedPart:
    """Part of a rule. `value`: its content for the methods of later rules."""

    value: Any
    span: tree.SourceSpan


class _Builder:
    """Builder of nodes: one method per rule, called with all children, punctuation included."""

    def _place(self, children: Sequence[Child], *inner: tree.Expression) -> dict[str, Any]:
        """Return the span and the depth of a new node over these operands. Raises SyntaxProblem."""
        span = _children_span(children)
        depth = 1 + max((operand.depth for operand in inner), default=0)
        if depth > MAX_NESTING:
            raise SyntaxProblem(
                Code.CEL_TOO_DEEP, f"the expression is nested more than {MAX_NESTING} levels deep", span
            )
        return {"span": span, "depth": depth}

    # Operators

    def expr(self, children: list[Child]) -> tree.Expression:
        if len(children) == 1:
            return cast(tree.Expression, children[0])
        condition, _, then, _, otherwise = children
        place = self._place(children, condition, then, otherwise)
        return tree.Conditional(condition=condition, then=then, otherwise=otherwise, **place)

    def _logic(self, children: list[Child]) -> tree.Expression:
        if len(children) == 1:
            return cast(tree.Expression, children[0])
        left, operator, right = children
        operands = left.operands if isinstance(left, tree.Logic) and left.operator == operator else (left,)
        operands = (*operands, right)
        return tree.Logic(operator=str(operator), operands=operands, **self._place(children, *operands))

    conditionalor = conditionaland = _logic

    def _binary(self, children: list[Child]) -> tree.Expression:
        if len(children) == 1:
            return cast(tree.Expression, children[0])
        part, right = children
        left, operator = part.value
        return tree.Binary(operator=operator, left=left, right=right, **self._place(children, left, right))

    relation = addition = multiplication = _binary

    def _left(self, children: list[Child]) -> _ParsedPart:
        return _ParsedPart((children[0], str(children[1])), _children_span(children))

    relation_lt = relation_le = relation_gt = relation_ge = relation_eq = relation_ne = relation_in = _left
    addition_add = addition_sub = multiplication_mul = multiplication_div = multiplication_mod = _left

    def unary(self, children: list[Child]) -> tree.Expression:
        if len(children) == 1:
            return cast(tree.Expression, children[0])
        operator, operand = children
        return tree.Unary(operator=str(operator), operand=operand, **self._place(children, operand))

    def unary_not(self, children: list[Child]) -> Token:
        return cast(Token, children[0])

    unary_neg = unary_not

    # Members

    def member(self, children: list[Child]) -> tree.Expression:
        return cast(tree.Expression, children[0])

    primary = member

    def _selection(self, children: list[Child]) -> tree.Expression:
        operand, name = children[0], children[-1]
        field = name[1:-1] if name.startswith("`") else str(name)
        if name in KEYWORDS:
            raise SyntaxProblem(Code.CEL_SYNTAX, f"unexpected {hints.quote_token(name)}", _token_span(name))
        return tree.Select(
            operand=operand,
            field=field,
            optional=len(children) == 4,
            name_span=_token_span(name),
            **self._place(children, operand),
        )

    member_dot = member_escaped = member_optional_dot = member_optional_escaped = _selection

    def _indexing(self, children: list[Child]) -> tree.Expression:
        operand, key = children[0], children[-2]
        return tree.Index(operand=operand, key=key, optional=len(children) == 5, **self._place(children, operand, key))

    member_index = member_optional_index = _indexing

    def member_dot_arg(self, children: list[Child]) -> tree.Expression:
        target, _, name = children[:3]
        arguments = _call_arguments(children[3:])
        if name in KEYWORDS:
            raise SyntaxProblem(Code.CEL_SYNTAX, f"unexpected {hints.quote_token(name)}", _token_span(name))
        macro = self._macro(target, name, arguments, children)
        if macro is not None:
            return macro
        return tree.Call(
            function=str(name),
            target=target,
            arguments=arguments,
            name_span=_token_span(name),
            **self._place(children, target, *arguments),
        )

    def ident_arg(self, children: list[Child]) -> tree.Expression:
        name, arguments = children[0], _call_arguments(children[1:])
        _refuse_reserved(name)
        if name == "has" and len(arguments) == 1:
            return self._has(arguments[0], children)
        place, span = self._place(children, *arguments), _token_span(name)
        # A function of the pod: its receiver is the variable of the same name.
        receiver = tree.Name(name=str(name), span=span) if name == REQUESTED else None
        return tree.Call(function=str(name), arguments=arguments, target=receiver, name_span=span, **place)

    def dot_ident_arg(self, children: list[Child]) -> tree.Expression:
        name, arguments = children[1], _call_arguments(children[2:])
        _refuse_reserved(name)
        place = self._place(children, *arguments)
        return tree.Call(function=str(name), arguments=arguments, absolute=True, name_span=_token_span(name), **place)

    def ident(self, children: list[Child]) -> tree.Expression:
        if children[0] in _CONSTANTS:
            return tree.Literal(value=_CONSTANTS[children[0]], **self._place(children))
        _refuse_reserved(children[0])
        return tree.Name(name=str(children[0]), **self._place(children))

    def dot_ident(self, children: list[Child]) -> tree.Expression:
        _refuse_reserved(children[1])
        return tree.Name(name=str(children[1]), absolute=True, **self._place(children))

    def paren_expr(self, children: list[Child]) -> tree.Expression:
        return cast(tree.Expression, replace(children[1], span=_children_span(children)))

    def member_object(self, children: list[Child]) -> tree.Expression:
        name = tree.as_qualified_name(children[0])
        if name is None:
            raise SyntaxProblem(Code.CEL_SYNTAX, "unexpected '{'", _token_span(children[1]))
        fields = tuple(children[2].value) if len(children) == 4 else ()
        return tree.Message(name=name, fields=fields, **self._place(children, *(value for _, value in fields)))

    # Lists, maps and arguments

    def _many(self, children: list[Child]) -> _ParsedPart:
        """Return a list of one entry, or the list so far with the entry after a comma."""
        if len(children) == 1:
            return _ParsedPart([children[0]], _children_span(children))
        so_far = children[0]
        so_far.value.append(children[2])
        return _ParsedPart(so_far.value, _children_span(children))

    listinits = mapinits = _many

    def fieldinits(self, children: list[Child]) -> _ParsedPart:
        part = self._many(children)
        return _ParsedPart(
            [entry.value if isinstance(entry, _ParsedPart) else entry for entry in part.value], part.span
        )

    def exprlist(self, children: list[Child]) -> _ParsedPart:
        return _ParsedPart(tuple(children[::2]), _children_span(children))

    def listinit(self, children: list[Child]) -> tree.Element:
        child = children[0]
        return child if isinstance(child, tree.Element) else tree.Element(value=child, span=child.span)

    def optional_listinit(self, children: list[Child]) -> tree.Element:
        return tree.Element(value=children[1], optional=True, span=_children_span(children))

    def list_lit(self, children: list[Child]) -> tree.Expression:
        elements: tuple[tree.Element, ...] = tuple(children[1].value) if len(children) > 2 else ()
        return tree.ListLiteral(elements=elements, **self._place(children, *(element.value for element in elements)))

    def mapinit(self, children: list[Child]) -> tree.MapEntry:
        if isinstance(children[0], tree.MapEntry):
            return children[0]
        return tree.MapEntry(key=children[0], value=children[2], span=_children_span(children))

    def optional_mapinit(self, children: list[Child]) -> tree.MapEntry:
        return tree.MapEntry(key=children[1], value=children[3], optional=True, span=_children_span(children))

    def map_lit(self, children: list[Child]) -> tree.Expression:
        entries: tuple[tree.MapEntry, ...] = tuple(children[1].value) if len(children) > 2 else ()
        inner = [part for entry in entries for part in (entry.key, entry.value)]
        return tree.MapLiteral(entries=entries, **self._place(children, *inner))

    def fieldinit(self, children: list[Child]) -> _ParsedPart:
        return _ParsedPart((str(children[0]), children[2]), _children_span(children))

    # Literals

    def literal(self, children: list[Child]) -> tree.Expression:
        token = children[0]
        try:
            value = _LITERALS[token.type](str(token))
        except literals.LiteralError as error:
            start = _start_offset(token) + error.offset
            raise SyntaxProblem(Code.CEL_SYNTAX, str(error), tree.SourceSpan(start, _end_offset(token))) from None
        return tree.Literal(value=value, **self._place(children))

    # Macros

    def _has(self, argument: tree.Expression, children: list[Child]) -> tree.Expression:
        if not isinstance(argument, tree.Select):
            message = "has() takes a field selection such as has(a.b)"
            # The remedy replaces the whole call.
            span = _children_span(children) if isinstance(argument, tree.Index | tree.Binary) else argument.span
            raise SyntaxProblem(Code.CEL_SYNTAX, message, span, lambda text: hints.lookup_hint(text, argument.span))
        return tree.Has(select=argument, **self._place(children, argument))

    def _macro(
        self, target: tree.Expression, name: Token, arguments: tuple[tree.Expression, ...], children: list[Child]
    ) -> tree.Expression | None:
        """Return the macro with this name and number of arguments, as in cel-go, or None for a call."""
        count = len(arguments)
        if name == "bind" and count == 3 and isinstance(target, tree.Name) and target.name == "cel":
            variable, value, body = _variable_name(arguments[0]), arguments[1], arguments[2]
            return tree.Bind(name=variable, value=value, body=body, **self._place(children, value, body))
        if name in ("optMap", "optFlatMap") and count == 2:
            place = self._place(children, target, arguments[1])
            variable, flat = _variable_name(arguments[0]), name == "optFlatMap"
            return tree.OptionalMap(target=target, name=variable, body=arguments[1], flat=flat, **place)
        second, condition = None, None
        if name in _ONE_VARIABLE and (count == 2 or (name == "map" and count == 3)):
            fold = _ONE_VARIABLE[name]
            condition = arguments[1] if count == 3 else None
        elif name in _TWO_VARIABLES and (count == 3 or (name.startswith("transform") and count == 4)):
            fold, second = _TWO_VARIABLES[name], _variable_name(arguments[1])
            condition = arguments[2] if count == 4 else None
        else:
            return None
        first, body = _variable_name(arguments[0]), arguments[-1]
        if first == second:
            raise SyntaxProblem(Code.CEL_SYNTAX, "the two variables need different names", arguments[1].span)
        inner = [target, body] if condition is None else [target, condition, body]
        return tree.Comprehension(
            fold=fold,
            target=target,
            first=first,
            second=second,
            condition=condition,
            body=body,
            **self._place(children, *inner),
        )


_LITERALS: dict[str, Callable[[str], object]] = {
    "INT_LIT": literals.parse_int_literal,
    "UINT_LIT": literals.parse_uint_literal,
    "FLOAT_LIT": literals.parse_double_literal,
    "STRING_LIT": literals.parse_string_literal,
    "MLSTRING_LIT": literals.parse_string_literal,
    "BYTES_LIT": literals.parse_bytes_literal,
}
_CONSTANTS = {"true": True, "false": False, "null": None}


def _call_arguments(children: Sequence[Child]) -> tuple[tree.Expression, ...]:
    """Return the arguments of "(" exprlist ")" or "(" ")"."""
    return cast(tuple[tree.Expression, ...], children[1].value) if len(children) == 3 else ()


def _variable_name(argument: tree.Expression) -> str:
    if isinstance(argument, tree.Name) and not argument.absolute:
        return argument.name
    raise SyntaxProblem(Code.CEL_SYNTAX, "a macro's variable is a simple name", argument.span)


def _refuse_reserved(name: Token) -> None:
    if name in RESERVED:
        message = f"'{name}' is a reserved word{hints.word_hint(name)}"
        raise SyntaxProblem(Code.CEL_SYNTAX, message, _token_span(name))
