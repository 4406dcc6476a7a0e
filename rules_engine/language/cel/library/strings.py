"""Strings (cel-go, ext/strings.go, regex.go, encoders.go; Kubernetes, regex.go). Positions count Unicode characters."""

import base64
from typing import Any

from rules_engine.language.cel.budget import MAX_RESULT_ITEMS, Budget, CostExceeded, EvaluationError
from rules_engine.language.cel.library.formatting import format_text
from rules_engine.language.cel.library.lists import check_list_length
from rules_engine.language.cel.values.functions import Library, no_overload
from rules_engine.language.cel.values.operators import charge_text
from rules_engine.language.cel.values.regex import Pattern, prepare_pattern
from rules_engine.language.cel.values.types import BYTES, INT, LIST, STRING, list_of

LIBRARY = Library()

# Go's unicode.IsSpace; Python's strip() also takes the separators U+001C to U+001F.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_ESCAPES = {
    # The backslash first: the other escapes contain one.
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
}


@LIBRARY.method("lowerAscii", STRING, gives=STRING)
def lower_ascii(text: str) -> str:
    # bytes.lower() changes ASCII only, and UTF-8 has ASCII bytes for ASCII only; str.translate takes ten times as long.
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


@LIBRARY.method("upperAscii", STRING, gives=STRING)
def upper_ascii(text: str) -> str:
    return text.encode(errors="surrogatepass").upper().decode(errors="surrogatepass")


@LIBRARY.method("trim", STRING, gives=STRING)
def trim(text: str) -> str:
    return text.strip(_SPACE)


@LIBRARY.method("reverse", STRING, gives=STRING)
def reverse(text: str) -> str:
    return text[::-1]


@LIBRARY.function("strings.quote", STRING, gives=STRING)
def quote_text(text: str) -> str:
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return f'"{text}"'


@LIBRARY.method("charAt", STRING, INT, gives=STRING, constant=True)
def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError("index out of range")
    return text[index : index + 1]


@LIBRARY.method("indexOf", STRING, STRING, gives=INT)
@LIBRARY.method("indexOf", STRING, STRING, INT, gives=INT)
def index_of(text: str, part: str, start: int = 0) -> int:
    _check_start(text, start)
    return text.find(part, start)


@LIBRARY.method("lastIndexOf", STRING, STRING, gives=INT)
def last_index_of(text: str, part: str) -> int:
    return _last_position(text, part)


@LIBRARY.method("lastIndexOf", STRING, STRING, INT, gives=INT)
def last_index_from(text: str, part: str, start: int) -> int:
    _check_start(text, start)
    # As in cel-go, a search that starts at the end finds an empty part only.
    return _last_position(text[: start + len(part)], part) if start < len(text) or not part else -1


def _check_start(text: str, start: int) -> None:
    if not 0 <= start <= len(text):
        raise EvaluationError("index out of range")


def _last_position(text: str, part: str) -> int:
    """Find the last occurrence in linear time, as str.find does; str.rfind is quadratic."""
    place = text[::-1].find(part[::-1])
    return -1 if place < 0 else len(text) - place - len(part)


@LIBRARY.method("substring", STRING, INT, gives=STRING)
def substring_from(text: str, start: int) -> str:
    return substring(text, start, max(start, len(text)))


@LIBRARY.method("substring", STRING, INT, INT, gives=STRING)
def substring(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError("the substring ends before it starts")
    if start < 0 or end > len(text):
        raise EvaluationError("index out of range")
    return text[start:end]


@LIBRARY.method("replace", STRING, STRING, STRING, gives=STRING, budgeted=True)
@LIBRARY.method("replace", STRING, STRING, STRING, INT, gives=STRING, budgeted=True)
def replace(budget: Budget, text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    charge_text(budget, len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, count)


@LIBRARY.method("split", STRING, STRING, gives=list_of(STRING), budgeted=True)
@LIBRARY.method("split", STRING, STRING, INT, gives=list_of(STRING), budgeted=True)
def split(budget: Budget, text: str, separator: str, limit: int = -1) -> list[str]:
    """Return at most `limit` parts, all if it is negative, as strings.SplitN; an empty separator gives characters."""
    if limit == 0:
        return []
    pieces = (text.count(separator) + 1) if separator else len(text)
    count = pieces if limit < 0 else min(limit, pieces)
    budget.spend(count)
    if count > MAX_RESULT_ITEMS:
        raise CostExceeded(f"a list result has more than {MAX_RESULT_ITEMS} elements")
    if separator:
        return text.split(separator, count - 1)
    if not text:
        return []
    return [*text[: count - 1], text[count - 1 :]]


@LIBRARY.method("join", list_of(STRING), gives=STRING, budgeted=True)
@LIBRARY.method("join", list_of(STRING), STRING, gives=STRING, budgeted=True)
def join(budget: Budget, parts: list[Any], separator: str = "") -> str:
    length = max(0, len(parts) - 1) * len(separator)
    for part in parts:
        if type(part) is not str:
            raise no_overload("join()", parts, part)
        length += len(part)
    charge_text(budget, length)
    return separator.join(parts)


@LIBRARY.method("find", STRING, STRING, gives=STRING, budgeted=True)
def find_first(budget: Budget, text: str, pattern: str | Pattern) -> str:
    matches = prepare_pattern(budget, pattern).find_all(text, 1, budget)
    return matches[0] if matches else ""


@LIBRARY.method("findAll", STRING, STRING, gives=list_of(STRING), budgeted=True)
@LIBRARY.method("findAll", STRING, STRING, INT, gives=list_of(STRING), budgeted=True)
def find_all(budget: Budget, text: str, pattern: str | Pattern, limit: int = -1) -> list[str]:
    most = limit if 0 <= limit <= MAX_RESULT_ITEMS else MAX_RESULT_ITEMS + 1
    return check_list_length(prepare_pattern(budget, pattern).find_all(text, most, budget))


LIBRARY.function("base64.encode", BYTES, gives=STRING)(lambda value: base64.b64encode(value).decode())


@LIBRARY.function("base64.decode", STRING, gives=BYTES)
def decode_base64(text: str) -> bytes:
    """Decode base64 with or without padding."""
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except ValueError:
        raise EvaluationError("the string is not base64") from None


LIBRARY.method("format", STRING, LIST, gives=STRING, budgeted=True)(format_text)
