"""Hints: spellings of other languages, and their equivalents in CEL."""

import re
from collections.abc import Collection, Mapping

from rules_engine.cel.syntax.tree import Span

MAX_SHOWN = 160
"""Characters of a remedy: enough for an operation on two paths with a resource name."""

_SYMBOLS: Mapping[str, str] = {
    "=": "==",
    "===": "==",
    "=~": "….matches('…')",
    "~=": "….matches('…')",
    "≠": "!=",
    "≤": "<=",
    "≥": ">=",
    "–": "-",
    "—": "-",
    "−": "-",
    "!==": "!=",
    "<>": "!=",
    "&": "&&",
    "|": "||",
    "~": "!",
    "??": "….orValue(…)",
    "?:": "….orValue(…)",
    "->": ".",
    "=<": "<=",
    "=>": ">=",
    ":=": "cel.bind(x, …, …)",
}
_LONGEST = max(map(len, _SYMBOLS))
_OPERATORS = frozenset("=!<>&|+-*/%^")
_CEL = frozenset({"==", "&&", "||"})
_ARROWS = frozenset({"->", "=>"})
_VARIABLE = re.compile(r"\(\s*\w+\s*\Z")
"""The variable of a macro, before what should be a comma."""

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
    "like": "….matches('…')",
}
_WORD = re.compile(r"(?:is\s+not|not\s+in|[a-z]+)\b", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"(?<![.\w])(not|if|elif|lambda|return)\s+\Z", re.IGNORECASE)
_TUPLE = re.compile(r"\bin\s*\([^()]*\Z")

IN_QUOTES = ", and the expression in quotes"
"""For a remedy that begins with a character that YAML reads in another way where a value begins."""

_CURLY = re.compile("[“„”«](?P<double>[^“„”«»]*)[“”»]|[‘‚’](?P<single>[^‘‚’]*)[‘’]")
_TEMPLATE = re.compile(r"\{\{-?\s*(?P<a>.*?)\s*-?\}\}|\$\{\s*(?P<b>.*?)\s*\}|\$\(\s*(?P<c>.*?)\s*\)", re.DOTALL)
_PATH = re.compile(r"(?:request\.)?(?P<path>(?:object|oldObject|request|params|variables|namespaceObject)\.[\w.]+)")
_MEMBER = re.compile(r"""\.("[^"\\]*"|'[^'\\]*')""")
_AMOUNT = re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?(?:[KMGTPE]i|[mkMGTPE])(?!\w)")
_EVERY = re.compile(r"\[\s*\*?\s*\]")
_KEY = re.compile(r"\w+(?:[./-]+\w+)*")
PRESENT = frozenset({"metadata", "spec", "containers"})
"""Fields that every pod has."""

_MAPS = "(?:labels|annotations|limits|requests|nodeSelector)"
_LOOKUP = re.compile(rf"(?P<map>[\w.]+?\.{_MAPS})\.(?P<key>[\w.-]+/[\w.-]+)")
_ABSENT = re.compile(rf"(?P<before>\w+(?:\.(?:{'|'.join(sorted(PRESENT))}))*)\.(?P<absent>(?:\w+\.)*{_MAPS})")

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
    for hint in (_template, _curly, _member, _amount, _every, _symbol, _word, _tuple, _superfluous):
        found = hint(text, offset)
        if found is not None:
            return found
    return None


def _template(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for a template of Kyverno, Helm or a shell around the offset."""
    for found in _TEMPLATE.finditer(text):
        if found.start() <= offset <= found.end():
            inner = _PATH.fullmatch(found["a"] or found["b"] or found["c"] or "")
            advice = f"write {inner['path']}" if inner else "write the value: templates are not expanded"
            return Span(found.start(), found.end()), f"unexpected '{found.group()[:2]}' ({advice})"
    return None


def _curly(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for a string in typographic quotes."""
    found = _CURLY.match(text, offset)
    if found is None:
        return None
    written = found["double"] if found["single"] is None else found["single"]
    return Span(found.start(), found.end()), f"unexpected '{text[offset]}' (write {quoted(written, text)})"


def quoted(written: str, text: str) -> str:
    """Return a string literal, in the quotes that the text of its expression already has."""
    quote = '"' if "'" in written or ('"' in text and "'" not in text) else "'"
    return f"{quote}{written}{quote}"


def _member(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for a string after a dot."""
    found = _MEMBER.match(text, offset - 1) if offset else None
    return _instead(found.group(), found.start(), found.end(), f"[{found[1]}]") if found else None


def _amount(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for an amount without quotes, whose unit is at the offset."""
    number = len(text[:offset]) - len(text[:offset].rstrip("0123456789."))
    found = _AMOUNT.match(text, offset - number) if number else None
    if found is None:
        return None
    return _instead(found.group(), found.start(), found.end(), f"quantity({quoted(found.group(), text)})")


def _every(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for an index that stands for every item."""
    found = _EVERY.match(text, max(0, text.rfind("[", 0, offset)))
    if found is None or offset >= found.end():
        return None
    return _instead(found.group(), found.start(), found.end(), "….all(x, …) or ….exists(x, …)")


def _superfluous(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for a character that is to be deleted."""
    if text[offset:].strip() == ";":
        return Span(offset, offset + 1), "unexpected ';' (delete it)"
    if text[offset] == "\xa0":
        return Span(offset, offset + 1), "unexpected no-break space (write a space)"
    return None


def _symbol(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for the longest symbol around the offset, whose beginning may be an operator of CEL."""
    for length in range(_LONGEST, 0, -1):
        for start in range(max(0, offset - length + 1), offset + 1):
            written = text[start : start + length]
            # Part of an operator is not a symbol.
            part = text[max(0, start - 1) : start] in _OPERATORS or (length == 1 and text[start : start + 2] in _CEL)
            if written in _SYMBOLS and not part:
                comma = written in _ARROWS and _VARIABLE.search(text, 0, start)
                return _instead(written, start, start + length, "," if comma else _SYMBOLS[written])
    return None


def _word(text: str, offset: int) -> tuple[Span, str] | None:
    """Return the hint for the words at the offset, or before it: "not" is parsed as a name until something follows."""
    for found in (_WORD_BEFORE.search(text, 0, offset), _WORD.match(text, offset)):
        if found:
            written = " ".join(found.group().lower().split())
            if written == "return":
                return Span(found.start(), found.end()), "unexpected 'return' (delete it)"
            if written == "not" and not text[: found.start()].strip():
                # "!" at the beginning of an unquoted value is a tag in YAML.
                return _instead("not", found.start(), found.end(), f"!{IN_QUOTES}")
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


def lookup(text: str, span: Span) -> str:
    """Return a clause for a field of a map in has(): `span` is that of an argument with an index or a "/"."""
    argument = text[span.start : span.end]
    found = _LOOKUP.fullmatch(argument)
    if found:
        operand, key = found["map"], quoted(found["key"], text)
    else:
        operand, _, key = argument.removesuffix("]").rpartition("[")
    # The pod may lack the map, too.
    if absent := _ABSENT.fullmatch(operand):
        operand = absent.expand(r"\g<before>.?\g<absent>.orValue({})")
    # A quote at the beginning of an unquoted value would end it in YAML.
    first = key[:1] in "'\"" and not text[: span.start].strip().removeprefix("has").strip("( \n")
    return f" (write {key} in {operand}{IN_QUOTES if first else ''})" if operand else ""


def key(text: str, start: int) -> str:
    """Return the label or annotation key that is written like fields from `start` on, without a method call."""
    found = _KEY.match(text, start)
    written = found.group() if found else ""
    called = text[start + len(written) :].lstrip().startswith("(")
    return written.rpartition(".")[0] if called else written


def name(written: str, declared: Collection[str], fields: Collection[str]) -> str:
    """Return a clause such as " (write null)" for a name that other languages define, or an empty string.

    `fields`: those of the object, if it is declared.
    """
    if written in _SUBJECTS and "object" in declared:
        return clause("object")
    if written in fields:
        return clause(f"object.{written}")
    return clause(_NAMES.get(written))


def function(written: str) -> str:
    """Return a clause such as " (write ….size())" for a function that has another name in CEL, or an empty string."""
    return clause(_FUNCTIONS.get(written))


def member(written: str, *, arguments: bool) -> str:
    """Return a clause for a method that is written like a field, with or without `arguments`."""
    return clause(f"….{written}(…)" if arguments else f"….{written}()")


def reserved(word: str) -> str:
    """Return a clause for a reserved word, or an empty string."""
    return clause(_WORDS.get(word))


def clause(cel: str | None) -> str:
    """Return a clause with a remedy; empty for None, and for more text than a message should have."""
    return f" (write {cel})" if cel and len(cel) <= MAX_SHOWN else ""
