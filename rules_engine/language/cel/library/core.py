"""Standard functions (CEL specification, "List of Standard Definitions"; cel-go, common/stdlib)."""

from operator import attrgetter, contains

from rules_engine.language.cel.budget import Budget, EvaluationError
from rules_engine.language.cel.values import numbers, regex, times, types
from rules_engine.language.cel.values.functions import Library
from rules_engine.language.cel.values.operators import timestamp_result
from rules_engine.language.cel.values.runtime_values import type_of

LIBRARY = Library()


for _kind in (types.STRING, types.BYTES, types.LIST, types.map_of(types.A, types.B)):
    LIBRARY.method("size", _kind, gives=types.INT, constant=True)(len)
    LIBRARY.function("size", _kind, gives=types.INT, constant=True)(len)


@LIBRARY.function("dyn", types.DYN, gives=types.DYN, constant=True)
@LIBRARY.function("bool", types.BOOL, gives=types.BOOL)
@LIBRARY.function("int", types.INT, gives=types.INT)
@LIBRARY.function("uint", types.UINT, gives=types.UINT)
@LIBRARY.function("double", types.DOUBLE, gives=types.DOUBLE)
@LIBRARY.function("string", types.STRING, gives=types.STRING)
@LIBRARY.function("bytes", types.BYTES, gives=types.BYTES)
@LIBRARY.function("timestamp", types.TIMESTAMP, gives=types.TIMESTAMP)
@LIBRARY.function("duration", types.DURATION, gives=types.DURATION)
def identity(value: object) -> object:
    return value


LIBRARY.function("type", types.DYN, gives=types.TYPE, constant=True)(type_of)
LIBRARY.function("bool", types.STRING, gives=types.BOOL)(numbers.parse_bool)
LIBRARY.function("int", types.STRING, gives=types.INT)(numbers.parse_int)
LIBRARY.function("int", types.DOUBLE, gives=types.INT)(numbers.to_int)
LIBRARY.function("int", types.UINT, gives=types.INT)(numbers.to_int)
LIBRARY.function("int", types.DURATION, gives=types.INT)(attrgetter("nanos"))
LIBRARY.function("uint", types.STRING, gives=types.UINT)(numbers.parse_uint)
LIBRARY.function("uint", types.INT, gives=types.UINT)(numbers.to_uint)
LIBRARY.function("uint", types.DOUBLE, gives=types.UINT)(numbers.to_uint)
LIBRARY.function("double", types.STRING, gives=types.DOUBLE)(numbers.parse_double)
LIBRARY.function("double", types.INT, gives=types.DOUBLE)(float)
LIBRARY.function("double", types.UINT, gives=types.DOUBLE)(float)
LIBRARY.function("string", types.DOUBLE, gives=types.STRING)(numbers.double_text)
LIBRARY.function("string", types.DURATION, gives=types.STRING, cost=times.PART_COST)(times.duration_text)
LIBRARY.function("string", types.TIMESTAMP, gives=types.STRING, cost=times.PART_COST)(times.timestamp_text)
LIBRARY.function("timestamp", types.STRING, gives=types.TIMESTAMP, cost=times.TEXT_COST)(times.parse_timestamp)
LIBRARY.function("duration", types.STRING, gives=types.DURATION, cost=times.TEXT_COST)(times.parse_duration)
LIBRARY.function("int", types.TIMESTAMP, gives=types.INT)(lambda value: value.nanos // 10**9)
LIBRARY.function("timestamp", types.INT, gives=types.TIMESTAMP)(lambda value: timestamp_result(value * 10**9))
LIBRARY.function("string", types.BOOL, gives=types.STRING)(lambda value: "true" if value else "false")


@LIBRARY.function("string", types.INT, gives=types.STRING)
@LIBRARY.function("string", types.UINT, gives=types.STRING)
def int_text(value: int) -> str:
    return str(int(value))


@LIBRARY.function("string", types.BYTES, gives=types.STRING)
def decode_utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("the bytes are not valid UTF-8") from None


@LIBRARY.function("bytes", types.STRING, gives=types.BYTES)
def encode_utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise EvaluationError("the string has a lone surrogate") from None


LIBRARY.method("contains", types.STRING, types.STRING, gives=types.BOOL)(contains)
LIBRARY.method("startsWith", types.STRING, types.STRING, gives=types.BOOL)(str.startswith)
LIBRARY.method("endsWith", types.STRING, types.STRING, gives=types.BOOL)(str.endswith)


@LIBRARY.function("matches", types.STRING, types.STRING, gives=types.BOOL, budgeted=True)
@LIBRARY.method("matches", types.STRING, types.STRING, gives=types.BOOL, budgeted=True)
def matches(budget: Budget, text: str, pattern: str | regex.Pattern) -> bool:
    return regex.prepare_pattern(budget, pattern).occurs_in(text, budget)


for _name, _part in times.TIMESTAMP_PARTS.items():
    LIBRARY.method(_name, types.TIMESTAMP, gives=types.INT, cost=times.PART_COST)(_part)
    LIBRARY.method(_name, types.TIMESTAMP, types.STRING, gives=types.INT, cost=times.ZONE_COST)(_part)
for _name, _unit in times.DURATION_PARTS.items():
    LIBRARY.method(_name, types.DURATION, gives=types.INT)(_unit)
