"""Timestamps and durations to and from text, and their parts, to the nanosecond."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from rules_engine.language.cel.budget import EvaluationError
from rules_engine.language.cel.values.operators import duration_result, timestamp_result
from rules_engine.language.cel.values.runtime_values import NANOS, Duration, Timestamp

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9})[0-9]*)?"
    r"(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_OFFSET = re.compile(r"([+-]?)([0-9]{1,3}):([0-9]{1,2})")
_DURATION = re.compile(r"[+-]?(?:0|(?:(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:ns|us|µs|μs|ms|s|m|h))+)")
_DURATION_PART = re.compile(r"([0-9]*)\.?([0-9]*)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": NANOS, "m": 60 * NANOS, "h": 3600 * NANOS}
_MAX_ZONE = 50  # characters of a zone: the longest has 32, and every directory of an unknown one is searched
_MAX_TEXT = 100  # characters of a timestamp or duration: further digits would not change it

TEXT_COST = 20
"""Units of parsing a timestamp or duration: a duration of many parts takes 20 µs."""

PART_COST = 5
"""Units of computing the date of a timestamp."""

ZONE_COST = 100
"""Units of computing a date in a time zone, which may be read from a file: the cache does not hold all zones."""


def parse_timestamp(text: str) -> Timestamp:
    """Parse a timestamp of RFC 3339. Raises EvaluationError."""
    match = _RFC3339.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise EvaluationError("the string is not a timestamp of RFC 3339")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, hours, minutes = match.groups()[6:]
    try:
        date = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise EvaluationError("timestamp out of range") from None
    seconds = (date - _EPOCH) // timedelta(seconds=1)
    if sign:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds -= -offset if sign == "-" else offset
    return timestamp_result(seconds * NANOS + int((fraction or "").ljust(9, "0")))


def timestamp_text(value: Timestamp) -> str:
    """Return a timestamp of RFC 3339 in UTC, without trailing zeros of a second."""
    date, nanos = _date_in_zone(value, UTC), value.nanos % NANOS
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{date.year:04d}-{date:%m-%dT%H:%M:%S}{fraction}Z"


def parse_duration(text: str) -> Duration:
    """Parse a duration such as 1h30m as Go's time.ParseDuration. Raises EvaluationError."""
    if len(text) > _MAX_TEXT or not _DURATION.fullmatch(text):
        raise EvaluationError("the string is not a duration")
    nanos = 0
    for whole, fraction, unit in _DURATION_PART.findall(text):
        nanos += int(whole or "0") * _UNITS[unit] + int(fraction or "0") * _UNITS[unit] // 10 ** len(fraction)
    return duration_result(-nanos if text.startswith("-") else nanos)


def duration_text(value: Duration) -> str:
    """Return the seconds, without trailing zeros (cel-go, Duration.ConvertToType)."""
    seconds, nanos = divmod(abs(value.nanos), NANOS)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{'-' if value.nanos < 0 else ''}{seconds}{fraction}s"


@lru_cache(maxsize=256)
def _parse_zone(name: str) -> tzinfo | timedelta:
    """Return a zone by its IANA name, UTC if that is empty, or an offset such as -02:30 or +5:30."""
    if not name:
        return UTC
    if len(name) > _MAX_ZONE:
        raise EvaluationError("unknown time zone")
    match = _OFFSET.fullmatch(name)
    if match:
        sign, hours, minutes = match.groups()
        if int(minutes) < 60:
            # As in cel-go, hours are unbounded; Python's timezone allows less than a day.
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            return -offset if sign == "-" else offset
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise EvaluationError("unknown time zone") from None


def _date_in_zone(value: Timestamp, zone: tzinfo | timedelta) -> datetime:
    seconds = value.nanos // NANOS
    try:
        date = _EPOCH + timedelta(seconds=seconds)
        return date + zone if isinstance(zone, timedelta) else date.astimezone(zone)
    except OverflowError:
        raise EvaluationError("timestamp out of range") from None


def _timestamp_part(read: Callable[[datetime, Timestamp], int]) -> Callable[..., int]:
    def part(value: Timestamp, zone: str = "UTC") -> int:
        return read(_date_in_zone(value, UTC if zone == "UTC" else _parse_zone(zone)), value)

    return part


TIMESTAMP_PARTS: dict[str, Callable[..., int]] = {
    "getFullYear": _timestamp_part(lambda date, _: date.year),
    "getMonth": _timestamp_part(lambda date, _: date.month - 1),
    "getDate": _timestamp_part(lambda date, _: date.day),
    "getDayOfMonth": _timestamp_part(lambda date, _: date.day - 1),
    "getDayOfWeek": _timestamp_part(lambda date, _: date.isoweekday() % 7),
    "getDayOfYear": _timestamp_part(lambda date, _: date.timetuple().tm_yday - 1),
    "getHours": _timestamp_part(lambda date, _: date.hour),
    "getMinutes": _timestamp_part(lambda date, _: date.minute),
    "getSeconds": _timestamp_part(lambda date, _: date.second),
    "getMilliseconds": _timestamp_part(lambda _, value: value.nanos % NANOS // 10**6),
}


def _duration_part(nanos: int) -> Callable[[Duration], int]:
    def count(value: Duration) -> int:
        whole = abs(value.nanos) // nanos
        return -whole if value.nanos < 0 else whole

    return count


DURATION_PARTS: dict[str, Callable[[Duration], int]] = {
    "getHours": _duration_part(3600 * NANOS),
    "getMinutes": _duration_part(60 * NANOS),
    "getSeconds": _duration_part(NANOS),
    "getMilliseconds": _duration_part(10**6),
}
