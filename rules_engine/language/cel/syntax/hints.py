"""Hints: spellings of other languages, and their equivalents in CEL."""

import re
from collections.abc import Collection, Mapping, Sequence

from rules_engine.language.cel.syntax.tree import SourceSpan
from rules_engine.model.problems.source import truncate

MAX_SHOWN = 160
"""Characters of a remedy: enough for an operation on two paths with a resource name."""

MAX_TOKEN = 20
"""Characters of an unexpected text in a message."""

_SYMBOLS = {"===": "==", "!==": "!=", "<>": "!=", "=<": "<=", "=>": ">=", "=": "==", "&": "&&", "|": "||"}

_CONDITIONAL = "… ? … : …"
_WORDS: Mapping[str, str] = {
    "and": "&&",
    "or": "||",
    "not in": "!(… in …)",
    "not": "!",
    "is not": "!=",
    "is": "==",
    "if": _CONDITIONAL,
    "else": _CONDITIONAL,
    "for": "….map(x, …) or ….filter(x, …)",
    "lambda": "x, …",
}
_VARIABLES = "object|oldObject|request|params|variables|namespaceObject"

_SPELLINGS: Sequence[tuple[str, str]] = (
    (rf"(\{{\{{-?\s*(?:request\.)?((?:{_VARIABLES})\.[\w.]+)\s*-?\}}\}})", r"write \2"),
    (rf"(\$\{{\s*((?:{_VARIABLES})\.[\w.]+)\s*\}})", r"write \2"),
    (r"(\{\{[^{}]*\}\}|\$\{[^{}]*\})", "write the value: templates are not expanded"),
    (r"""([“„‘]([^“”„‘’'"]*)[“”’])""", r"write '\2'"),
    (r"""(\.("[^"\\]*"|'[^'\\]*'))""", r"write [\2]"),
    (r"(?<![\w.])([0-9]+(?:\.[0-9]+)?(?:[KMGTPE]i|[mkMGTPE]))(?!\w)", r"write quantity('\1')"),
    (r"(\[\s*\*?\s*\])", "write ….all(x, …) or ….exists(x, …)"),
    (r"\bin\s*\([^(),]*(,)", "write … in [a, b]"),
    (r"\(\s*\w+\s*(=>|->)", "write ,"),
    (r"(=~)", "write ….matches('…')"),
    (r"(\?\?)", "write ….orValue(…)"),
    *((rf"(?<![=!<>&|+*/%^-])({re.escape(symbol)})(?![=&|])", f"write {cel}") for symbol, cel in _SYMBOLS.items()),
    # A word is parsed as a name until something follows it.
    *(
        (r"(?i)(?<![.\w])(" + word.replace(" ", r"\s+") + r")\b(?:\s+\S)?", f"write {cel}")
        for word, cel in _WORDS.items()
    ),
    (r"(?<![.\w])(return)\s+\S", "delete it"),
    (r"(;)\s*\Z", "delete it"),
)
"""Patterns of text around a syntax error, and the advice on their first group; the first match counts."""

_CHAINING = re.compile(r"(?<=[\w\])])\?\.(?=[a-zA-Z_])")
_STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")
_KEY = re.compile(r"\w+(?:[./-]+\w+)*")

PRESENT = frozenset({"metadata", "spec", "containers"})
"""Fields that every pod has."""

_MAPS = "(?:labels|annotations|limits|requests|nodeSelector)"
_LOOKUP = re.compile(rf"([\w.]+?\.{_MAPS})\.([\w.-]+/[\w.-]+)")
_ABSENT = re.compile(rf"(\w+(?:\.(?:{'|'.join(sorted(PRESENT))}))*)\.((?:\w+\.)*{_MAPS})")

_NAMES = {"none": "null", "nil": "null", "undefined": "null", "null": "null", "true": "true", "false": "false"}
"""Constants of other languages, in lower case."""

_SUBJECTS = frozenset({"pod", "self", "this"})

_FUNCTIONS: Mapping[str, str] = {
    name: cel
    for names, cel in (
        ("count len length", "….size()"),
        ("empty isEmpty", "….size() == 0"),
        ("any some", "….exists(x, …)"),
        ("every", "….all(x, …)"),
        ("not", "!(…)"),
        ("str", "string(…)"),
        ("float", "double(…)"),
        ("strip", "….trim()"),
        ("abs", "math.abs(…)"),
        ("lower toLowerCase", "….lowerAscii()"),
        ("upper toUpperCase", "….upperAscii()"),
    )
    for name in names.split()
}


def foreign_syntax(text: str, offset: int) -> tuple[SourceSpan, str] | None:
    """Return the span and the message for syntax of another language at a syntax error, or None."""
    for pattern, advice in _SPELLINGS:
        for match in re.finditer(pattern, text):
            if match.start() <= offset < match.end():
                return SourceSpan(
                    *match.span(1)
                ), f"unexpected {quote_token(match[1])} ({_match_quotes(match.expand(advice), text)})"
    return None


def quote_token(token: str) -> str:
    """Return a token in quotes, truncated, for a message."""
    return f"'{truncate(' '.join(token.split()), MAX_TOKEN)}'"


def early_end_hint(text: str) -> tuple[SourceSpan, str] | None:
    """Return the hint for `a?.b`, which is parsed as a condition without its second part, or None."""
    match = _CHAINING.search(_STRINGS.sub(lambda string: " " * len(string.group()), text))
    return (SourceSpan(*match.span()), "unexpected '?.' (write .?)") if match else None


def string_literal(value: str, text: str) -> str:
    """Return a string literal, in the kind of quotes that the expression uses."""
    return f'"{value}"' if "'" in value else _match_quotes(f"'{value}'", text)


def _match_quotes(remedy: str, text: str) -> str:
    return remedy.replace("'", '"') if '"' in text and "'" not in text else remedy


def lookup_hint(text: str, span: SourceSpan) -> str:
    """Return a clause for a key of a map in has(). `span`: the span of its argument, which has an index or a "/"."""
    argument = text[span.start : span.end]
    if match := _LOOKUP.fullmatch(argument):
        operand, key = match[1], string_literal(match[2], text)
    else:
        operand, _, key = argument.removesuffix("]").rpartition("[")
    # The pod may lack the map, too.
    if absent := _ABSENT.fullmatch(operand):
        operand = absent.expand(r"\1.?\2.orValue({})")
    return remedy_clause(f"{key} in {operand}") if operand else ""


def read_key(text: str, start: int) -> str:
    """Return the label or annotation key that starts at `start` without quotes; a method call is not part of it."""
    match = _KEY.match(text, start)
    key_text = match.group() if match else ""
    called = text[start + len(key_text) :].lstrip().startswith("(")
    return key_text.rpartition(".")[0] if called else key_text


def name_hint(identifier: str, declared: Collection[str], fields: Collection[str]) -> str:
    """Return a clause such as " (write null)" for a name that other languages define, or an empty string.

    `fields`: the fields of `object`, if it is declared.
    """
    if identifier in _SUBJECTS and "object" in declared:
        return remedy_clause("object")
    return remedy_clause(f"object.{identifier}" if identifier in fields else _NAMES.get(identifier.lower()))


def function_hint(identifier: str) -> str:
    """Return a clause such as " (write ….size())" for a function that has another name in CEL, or an empty string."""
    return remedy_clause(_FUNCTIONS.get(identifier))


def member_hint(method: str, *, arguments: bool) -> str:
    """Return a clause for a method that is written like a field, with or without `arguments`."""
    return remedy_clause(f"….{method}(…)" if arguments else f"….{method}()")


def word_hint(word: str) -> str:
    """Return a clause for a reserved word, or an empty string."""
    return remedy_clause(_WORDS.get(word))


def remedy_clause(cel: str | None) -> str:
    """Return a clause with a remedy; empty for None, and for a remedy that is too long for a message."""
    return f" (write {cel})" if cel and len(cel) <= MAX_SHOWN else ""
