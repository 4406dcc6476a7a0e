"""Durations as text, such as `90s`, `1h30m` or `2d`: whole milliseconds."""

import re
from collections.abc import Mapping

UNITS: Mapping[str, int] = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""Milliseconds of each unit, in the order in which units are written: the units of Go's durations, and days."""

MAX_DURATION = 3650 * UNITS["d"]
"""Longest duration: ten years, longer than the life of a GPU."""

MAX_DURATION_TEXT = "3650d"

_DIGITS = 12
"""Digits of a number, before and after its point: as many as MAX_DURATION has in milliseconds."""

_DURATION = re.compile("".join(rf"(?:([0-9]{{1,{_DIGITS}}})(?:\.([0-9]{{1,{_DIGITS}}}))?{unit})?" for unit in UNITS))


class DurationError(ValueError):
    """A text that is not a duration."""


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration: numbers with units, from days to milliseconds, or 0. Raises DurationError.

    The syntax is the schema's; the duration is at most MAX_DURATION.
    """
    if text == "0":
        return 0
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise DurationError(f"'{text}' is not a duration such as 90s")
    total = 0
    for unit, number, decimals in zip(UNITS.values(), match.groups()[::2], match.groups()[1::2], strict=True):
        if number is not None:
            total += int(number) * unit
        if decimals is not None:
            part, remainder = divmod(int(decimals) * unit, 10 ** len(decimals))
            if remainder:
                raise DurationError("a duration is a whole number of milliseconds")
            total += part
    if total > MAX_DURATION:
        raise DurationError(f"a duration is at most {MAX_DURATION_TEXT}, ten years")
    return total
