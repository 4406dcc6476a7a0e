"""Values of literal tokens (CEL specification, "Lexis")."""

import math

from rules_engine.language.cel.values.runtime_values import INT_MAX, INT_MIN, UINT_MAX, Uint

MAX_DIGITS = 100
"""Characters of a number that are parsed: the longest valid one has 20 digits."""

_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    '"': '"',
    "'": "'",
    "`": "`",
    "?": "?",
    "\\": "\\",
}
_HEX_DIGITS = {"x": 2, "X": 2, "u": 4, "U": 8}


class LiteralError(ValueError):
    """An invalid literal. `offset`: the place of the problem in the token."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


def parse_int_literal(token: str) -> int:
    """Return the value of a decimal or hexadecimal int with its sign. Raises LiteralError."""
    value = _parse_digits(token)
    if not INT_MIN <= value <= INT_MAX:
        raise LiteralError("the int literal does not fit into 64 bits")
    return value


def _parse_digits(digits: str) -> int:
    """Return the number; too long a text yields a number out of range, since Python refuses thousands of digits."""
    return int(digits, 16 if "x" in digits else 10) if len(digits) <= MAX_DIGITS else UINT_MAX + 1


def parse_uint_literal(token: str) -> Uint:
    """Return the value of a uint with its suffix u. Raises LiteralError."""
    value = _parse_digits(token[:-1])
    if value > UINT_MAX:
        raise LiteralError("the uint literal does not fit into 64 bits")
    return Uint(value)


def parse_double_literal(token: str) -> float:
    """Return the value of a double. Raises LiteralError for one too large for 64 bits."""
    value = float(token)
    if math.isinf(value):
        raise LiteralError("the double literal does not fit into 64 bits")
    return value


def parse_string_literal(token: str) -> str:
    """Return the value of a string with its quotes and, if raw, its r. Raises LiteralError."""
    return "".join(part if isinstance(part, str) else chr(part) for part in _split_escapes(token, 0, text=True))


def parse_bytes_literal(token: str) -> bytes:
    """Return the value of bytes with their b, quotes and, if raw, r: UTF-8, where \\377 and \\xff are single bytes.

    Raises LiteralError.
    """
    parts = _split_escapes(token, 1, text=False)
    try:
        return b"".join(part.encode() if isinstance(part, str) else bytes((part,)) for part in parts)
    except UnicodeEncodeError:
        raise LiteralError("the literal has a lone surrogate") from None


def _split_escapes(token: str, start: int, *, text: bool) -> list[str | int]:
    """Return the text between escapes, and the value of each escape."""
    raw = token[start] in "rR"
    if raw:
        start += 1
    width = 3 if token.startswith(('"""', "'''"), start) and len(token) >= start + 6 else 1
    body, start = token[start + width : len(token) - width], start + width
    if raw or "\\" not in body:
        return [body]
    parts: list[str | int] = []
    position = 0
    while (escape := body.find("\\", position)) >= 0:
        parts.append(body[position:escape])
        part, position = _parse_escape(body, escape, start, text=text)
        parts.append(part)
    parts.append(body[position:])
    return parts


def _parse_escape(body: str, at: int, start: int, *, text: bool) -> tuple[str | int, int]:
    letter = body[at + 1]
    if letter in _ESCAPES:
        return _ESCAPES[letter], at + 2
    if letter in _HEX_DIGITS:
        digits, base, end = body[at + 2 : at + 2 + _HEX_DIGITS[letter]], 16, at + 2 + _HEX_DIGITS[letter]
        wanted = _HEX_DIGITS[letter]
        if letter in "uU" and not text:
            raise LiteralError(f"\\{letter} is not allowed in bytes", start + at)
    else:
        digits, base, end, wanted = body[at + 1 : at + 4], 8, at + 4, 3
    valid = "0123456789abcdefABCDEF" if base == 16 else "01234567"
    if len(digits) != wanted or any(digit not in valid for digit in digits):
        raise LiteralError(f"unknown escape sequence \\{letter} (write \\\\{letter} for a backslash)", start + at)
    number = int(digits, base)
    if base == 8 and number > 0xFF:
        raise LiteralError("an octal escape is at most \\377", start + at)
    if 0xD800 <= number < 0xE000 or number > 0x10FFFF:
        raise LiteralError("the escape is no Unicode character", start + at)
    return number, end
