"""Protobuf's wrappers of plain values, the only known messages (CEL specification, "Dynamic Values")."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rules_engine.language.cel.budget import EvaluationError
from rules_engine.language.cel.values.runtime_values import Uint, type_of
from rules_engine.language.cel.values.types import BOOL, BYTES, DOUBLE, DYN, INT, NULL, STRING, UINT, Type

INT32 = 2**31
UINT32 = 2**32


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A message with the value of its only field: one of `fields`, or `empty` if none is set."""

    fields: Mapping[str, Type]
    empty: object
    result: Type
    convert: Callable[[Any], object] = lambda value: value

    def make(self, values: Mapping[str, object]) -> object:
        """Return the plain value for these fields. Raises EvaluationError."""
        for name, value in values.items():
            wanted = self.fields.get(name)
            if wanted is None:
                raise EvaluationError(f"undefined field '{name}'")
            if type_of(value).name != wanted.name:
                raise EvaluationError(f"field '{name}' takes {wanted}, not {type_of(value)}")
            return self.convert(value)
        return self.empty


def _check_int32(value: Any) -> object:
    if -INT32 <= value < INT32:
        return value
    raise EvaluationError("integer out of range")


def _check_uint32(value: Any) -> object:
    if value < UINT32:
        return value
    raise EvaluationError("unsigned integer out of range")


def _value_field(field: Type) -> Mapping[str, Type]:
    return {"value": field}


WRAPPERS: Mapping[str, Wrapper] = {
    "google.protobuf.BoolValue": Wrapper(_value_field(BOOL), False, BOOL),
    "google.protobuf.BytesValue": Wrapper(_value_field(BYTES), b"", BYTES),
    "google.protobuf.DoubleValue": Wrapper(_value_field(DOUBLE), 0.0, DOUBLE),
    "google.protobuf.FloatValue": Wrapper(
        _value_field(DOUBLE), 0.0, DOUBLE, lambda value: struct.unpack("f", struct.pack("f", value))[0]
    ),
    "google.protobuf.Int32Value": Wrapper(_value_field(INT), 0, INT, _check_int32),
    "google.protobuf.Int64Value": Wrapper(_value_field(INT), 0, INT),
    "google.protobuf.StringValue": Wrapper(_value_field(STRING), "", STRING),
    "google.protobuf.UInt32Value": Wrapper(_value_field(UINT), Uint(0), UINT, _check_uint32),
    "google.protobuf.UInt64Value": Wrapper(_value_field(UINT), Uint(0), UINT),
    "google.protobuf.Value": Wrapper(
        {"null_value": NULL, "number_value": DOUBLE, "string_value": STRING, "bool_value": BOOL}, None, DYN
    ),
}
