"""Hints: spellings of other languages, and their equivalents in CEL."""

import re
from collections.abc import Collection, Mapping

from rules_engine.cel.syntax.tree import Span

_SYMBOLS: Mapping[str, str] = {
    "=": "==",
    "===": "==",
    "=~": "….matches('…')",
    "!==": "!=",
    "<>": "!=",
    "&": "&&",
    "|": "||",
    "~": "!",
    "??": "….orValue(…)",
    "?:": "….orValue(…)",
    "->": ".",
    "=<": "<=",
    "=>": ">=, or in a macro a comma",
    ":=": "cel.bind(x, …, …)",
}
_LONGEST = max(map(len, _SYMBOLS))
_OPERATORS = frozenset("=!<>&|+-*/%^")
_CEL = frozenset({"==", "&&", "||"})
_CHAINING = re.compile(r"(?<=[\w\])])\?\.(?=[a-zA-Z_])")
_STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")

_CONDITIONAL = "… ? … : …"
_WORDS: Mapping[str, str] = {
    "and": "&&",
    "or": "||",
    "not": "!",
    "xor": "!=",
    "eq": "==",
    "ne": "!=",
    "is": "==",
    "is not": "!=",
    "not in": "!(… in …)",
    "if": _CONDITIONAL,
    "elif": _CONDITIONAL,
    "else": _CONDITIONAL,
    "then": _CONDITIONAL,
    "for": "….map(x, …) or ….filter(x, …)",
    "lambda": "x, …",
}
_WORD = re.compile(r"(?:is\s+not|not\s+in|[a-z]+)\b", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"(?<![.\w])(not|if|elif|lambda)\s+\Z", re.IGNORECASE)
_TUPLE = re.compile(r"\bin\s*\([^()]*\Z")

_NAMES: Mapping[str, str] = {
    "None": "null",
    "nil": "null",
    "undefined": "null",
    "NULL": "null",
    "Null": "null",
    "True": "true",
    "TRUE": "true",
    "False": "false",
    "FALSE": "false",
}

_SUBJECTS = frozenset({"pod", "self", "this"})

_FUNCTIONS: Mapping[str, str] = {
    "abs": "math.abs(…)",
    "any": "….exists(x, …)",
    "boolean": "bool(…)",
    "count": "….size()",
    "defined": "has(…)",
    "elif": _CONDITIONAL,
    "empty": "….size() == 0",
    "every": "….all(x, …)",
    "float": "double(…)",
    "get": "….?key.orValue(…)",
    "isEmpty": "….size() == 0",
    "keys": "….map(key, key)",
    "len": "….size()",
    "length": "….size()",
    "not": "!(…)",
    "lower": "….lowerAscii()",
    "some": "….exists(x, …)",
    "sorted": "….sort()",
    "str": "string(…)",
    "strip": "….trim()",
    "test": "….matches('…')",
    "toLowerCase": "….lowerAscii()",
    "toUpperCase": "….upperAscii()",
    "upper": "….upperAscii()",
}


def unexpected(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the span and the message of another language's syntax at a syntax error, or None."""
    return _symbol(text, offset) or _word(text, offset) or _tuple(text, offset)


def _symbol(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for the longest symbol around the offset, whose beginning may be an operator of CEL."""
    for length in range(_LONGEST, 0, -1):
        for start in range(max(0, offset - length + 1), offset + 1):
            written = text[start : start + length]
            # Part of an operator is not a symbol.
            part = text[max(0, start - 1) : start] in _OPERATORS or (length == 1 and text[start : start + 2] in _CEL)
            if written in _SYMBOLS and not part:
                return _instead(written, start, start + length, _SYMBOLS[written])
    return None


def _word(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for the words at the offset, or before it: "not" is parsed as a name until something follows."""
    for found in (_WORD_BEFORE.search(text, 0, offset), _WORD.match(text, offset)):
        if found:
            written = " ".join(found.group().lower().split())
            if written in _WORDS:
                return _instead(" ".join(found.group().split()), found.start(), found.end(), _WORDS[written])
    return None


def _tuple(text: str, offset: int) -> tuple[Span, str] | None:
    if text[offset : offset + 1] == "," and _TUPLE.search(text, 0, offset):
        return _instead(",", offset, offset + 1, "… in [a, b]")
    return None


def _instead(written: str, start: int, end: int, cel: str) -> tuple[Span, str]:
    return Span(start, end), f"unexpected '{written}' (write {cel})"


def too_early(text: str) -> tuple[Span, str] | None:
    """Return the hint for `a?.b`, which is parsed as a condition without its second part, or None."""
    found = _CHAINING.search(_STRINGS.sub(lambda string: " " * len(string.group()), text))
    return _instead("?.", found.start(), found.end(), ".?") if found else None


def name(written: str, declared: Collection[str]) -> str:
    """Return a clause such as " (write null)" for a name that other languages define, or an empty string."""
    if written in _SUBJECTS and "object" in declared:
        return _clause("object")
    return _clause(_NAMES.get(written))


def function(written: str) -> str:
    """Return a clause such as " (write ….size())" for a function that has another name in CEL, or an empty string."""
    return _clause(_FUNCTIONS.get(written))


def reserved(word: str) -> str:
    """Return a clause for a reserved word, or an empty string."""
    return _clause(_WORDS.get(word))


def _clause(cel: str | None) -> str:
    return f" (write {cel})" if cel else ""
