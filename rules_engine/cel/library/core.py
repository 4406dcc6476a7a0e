"""Standard functions (CEL specification, "List of Standard Definitions"; cel-go, common/stdlib)."""

from operator import attrgetter, contains

from rules_engine.cel.budget import Budget, EvaluationError
from rules_engine.cel.values import regex, times
from rules_engine.cel.values.functions import Library
from rules_engine.cel.values.numbers import (
    double_text,
    parse_bool,
    parse_double,
    parse_int,
    parse_uint,
    to_int,
    to_uint,
)
from rules_engine.cel.values.operators import timestamp_result
from rules_engine.cel.values.runtime_values import Timestamp, type_of
from rules_engine.cel.values.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    A,
    B,
    map_of,
)

LIBRARY = Library()


for _kind in (STRING, BYTES, LIST, map_of(A, B)):
    LIBRARY.method("size", _kind, gives=INT, constant=True)(len)
    LIBRARY.function("size", _kind, gives=INT, constant=True)(len)


@LIBRARY.function("dyn", DYN, gives=DYN, constant=True)
@LIBRARY.function("bool", BOOL, gives=BOOL)
@LIBRARY.function("int", INT, gives=INT)
@LIBRARY.function("uint", UINT, gives=UINT)
@LIBRARY.function("double", DOUBLE, gives=DOUBLE)
@LIBRARY.function("string", STRING, gives=STRING)
@LIBRARY.function("bytes", BYTES, gives=BYTES)
@LIBRARY.function("timestamp", TIMESTAMP, gives=TIMESTAMP)
@LIBRARY.function("duration", DURATION, gives=DURATION)
def identity(value: object) -> object:
    return value


LIBRARY.function("type", DYN, gives=TYPE, constant=True)(type_of)
LIBRARY.function("bool", STRING, gives=BOOL)(parse_bool)
LIBRARY.function("int", STRING, gives=INT)(parse_int)
LIBRARY.function("int", DOUBLE, gives=INT)(to_int)
LIBRARY.function("int", UINT, gives=INT)(to_int)
LIBRARY.function("int", DURATION, gives=INT)(attrgetter("nanos"))
LIBRARY.function("uint", STRING, gives=UINT)(parse_uint)
LIBRARY.function("uint", INT, gives=UINT)(to_uint)
LIBRARY.function("uint", DOUBLE, gives=UINT)(to_uint)
LIBRARY.function("double", STRING, gives=DOUBLE)(parse_double)
LIBRARY.function("double", INT, gives=DOUBLE)(float)
LIBRARY.function("double", UINT, gives=DOUBLE)(float)
LIBRARY.function("string", DOUBLE, gives=STRING)(double_text)
LIBRARY.function("string", DURATION, gives=STRING, cost=times.PART_COST)(times.duration_text)
LIBRARY.function("string", TIMESTAMP, gives=STRING, cost=times.PART_COST)(times.timestamp_text)
LIBRARY.function("timestamp", STRING, gives=TIMESTAMP, cost=times.TEXT_COST)(times.parse_timestamp)
LIBRARY.function("duration", STRING, gives=DURATION, cost=times.TEXT_COST)(times.parse_duration)


@LIBRARY.function("int", TIMESTAMP, gives=INT)
def timestamp_seconds(value: Timestamp) -> int:
    return value.nanos // 10**9


@LIBRARY.function("timestamp", INT, gives=TIMESTAMP)
def timestamp_from_seconds(value: int) -> Timestamp:
    return timestamp_result(value * 10**9)


@LIBRARY.function("string", BOOL, gives=STRING)
def bool_text(value: bool) -> str:
    return "true" if value else "false"


@LIBRARY.function("string", INT, gives=STRING)
@LIBRARY.function("string", UINT, gives=STRING)
def int_text(value: int) -> str:
    return str(int(value))


@LIBRARY.function("string", BYTES, gives=STRING)
def decode_utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("the bytes are not valid UTF-8") from None


@LIBRARY.function("bytes", STRING, gives=BYTES)
def encode_utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise EvaluationError("the string has a lone surrogate") from None


LIBRARY.method("contains", STRING, STRING, gives=BOOL)(contains)
LIBRARY.method("startsWith", STRING, STRING, gives=BOOL)(str.startswith)
LIBRARY.method("endsWith", STRING, STRING, gives=BOOL)(str.endswith)


@LIBRARY.function("matches", STRING, STRING, gives=BOOL, budgeted=True)
@LIBRARY.method("matches", STRING, STRING, gives=BOOL, budgeted=True)
def matches(budget: Budget, text: str, pattern: str | regex.Pattern) -> bool:
    return regex.prepare_pattern(budget, pattern).occurs_in(text, budget)


for _name, _part in times.TIMESTAMP_PARTS.items():
    LIBRARY.method(_name, TIMESTAMP, gives=INT, cost=times.PART_COST)(_part)
    LIBRARY.method(_name, TIMESTAMP, STRING, gives=INT, cost=times.ZONE_COST)(_part)
for _name, _unit in times.DURATION_PARTS.items():
    LIBRARY.method(_name, DURATION, gives=INT)(_unit)
