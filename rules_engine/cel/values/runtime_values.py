"""Run-time values, and what CEL says of all of them: type, equality, order.

JSON values are themselves: dict, list, str, int, float, bool and None. The rest are the small classes here and in the
libraries; those name their CEL type in `cel_type`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from rules_engine.cel.budget import CHARACTERS_PER_UNIT, Budget, EvaluationError
from rules_engine.cel.values import types
from rules_engine.cel.values.types import Type
from rules_engine.model.quantity import Quantity

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
UINT_MAX = 2**64 - 1
NANOS = 10**9


class Uint(int):
    """An unsigned 64-bit integer: a number like any other to Python, another type to CEL."""

    __slots__ = ()
    cel_type: ClassVar[Type] = types.UINT

    def __repr__(self) -> str:
        return f"{int(self)}u"


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since 1970-01-01T00:00:00Z."""

    cel_type: ClassVar[Type] = types.TIMESTAMP
    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """Nanoseconds, of either sign."""

    cel_type: ClassVar[Type] = types.DURATION
    nanos: int


@dataclass(slots=True)
class Optional:
    """A value that may be absent; `value` says nothing when `present` is false.

    Nobody changes one. It is not frozen since that trebles the time to make one, and expressions make many.
    """

    cel_type: ClassVar[Type] = Type("optional_type")
    present: bool
    value: object = None


NONE = Optional(False)


@runtime_checkable
class Cluster(Protocol):
    """What an activation's `cluster` can do; each may raise EvaluationError."""

    def allocatable(self, resource: str) -> int:
        """The most of a resource that one node has."""

    def available(self, resource: str) -> int:
        """The most of a resource that one node has free."""

    def total(self, resource: str) -> int:
        """What all nodes together have of a resource."""


class KeyedMap(Mapping[object, object]):
    """A map with other keys than strings, where CEL's true and 1 differ though Python's do not."""

    __slots__ = ("_entries",)
    cel_type: ClassVar[Type] = Type("map")

    def __init__(self, entries: Mapping[tuple[bool, object], tuple[object, object]]) -> None:
        self._entries = entries

    def __getitem__(self, key: object) -> object:
        return self._entries[_slot(key)][1]

    def __iter__(self) -> Iterator[object]:
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"KeyedMap({list(self._entries.values())!r})"


def _slot(key: object) -> tuple[bool, object]:
    return type(key) is bool, key


def make_map(entries: list[tuple[object, object]]) -> Mapping[object, object]:
    """A map of these entries. Raises EvaluationError for a key that occurs twice or is of no type for keys."""
    plain = True
    slots: dict[tuple[bool, object], tuple[object, object]] = {}
    for key, value in entries:
        kind = type(key)
        if kind is not str:
            if kind not in KEY_CLASSES:
                raise EvaluationError(f"a map cannot have a key of type {type_of(key)}")
            plain = False
        slot = kind is bool, key
        if slot in slots:
            raise EvaluationError("the map has the same key twice")
        slots[slot] = (key, value)
    return dict(slots.values()) if plain else KeyedMap(slots)


NUMBER_CLASSES = frozenset({int, Uint, float})
KEY_CLASSES = frozenset({str, int, Uint, bool})

_TYPES: dict[type, Type] = {
    bool: types.BOOL,
    int: types.INT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    list: Type("list"),
    dict: Type("map"),
    type(None): types.NULL,
    Type: types.TYPE,
    Quantity: types.QUANTITY,
}


def type_of(value: object) -> Type:
    """CEL's type() of a value; objects of other layers may name theirs in a class variable `cel_type`."""
    found = _TYPES.get(type(value))
    if found is None:
        found = getattr(type(value), "cel_type", None)
    if found is None:
        if isinstance(value, Mapping):
            return _TYPES[dict]
        found = types.CLUSTER if isinstance(value, Cluster) else types.DYN
    return found


def is_map(value: object) -> bool:
    """Whether a value is a map; other layers may hand in Mappings of their own, such as variables made on demand."""
    return type(value) is dict or isinstance(value, Mapping)


def check_int(value: int) -> int:
    """The value, if it is in int's range: JSON may hold larger numbers. Raises EvaluationError."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer out of range")


def equals(left: object, right: object, budget: Budget) -> bool:
    """CEL's ==, which is defined between any two values (CEL specification, "Equality")."""
    kind, other = type(left), type(right)
    if kind is str or other is str:
        if kind is other:
            budget.spend(min(len(left), len(right)) // CHARACTERS_PER_UNIT)  # type: ignore[arg-type]
            return left == right
        return False
    if kind in NUMBER_CLASSES:
        return other in NUMBER_CLASSES and compare_numbers(left, right) == 0  # type: ignore[arg-type]
    if kind is list:
        if other is not list or len(left) != len(right):  # type: ignore[arg-type]
            return False
        budget.spend(len(left))  # type: ignore[arg-type]
        return all(equals(one, two, budget) for one, two in zip(left, right, strict=True))  # type: ignore[call-overload]
    if is_map(left):
        return is_map(right) and _maps_equal(left, right, budget)  # type: ignore[arg-type]
    if kind is Optional:
        if other is not Optional or left.present != right.present:  # type: ignore[attr-defined]
            return False
        return not left.present or equals(left.value, right.value, budget)  # type: ignore[attr-defined]
    if kind is not other:
        return False
    budget.spend(len(left) // CHARACTERS_PER_UNIT if kind is bytes else getattr(left, "units", 0))  # type: ignore[arg-type]
    return left == right


def _maps_equal(left: Mapping[object, object], right: Mapping[object, object], budget: Budget) -> bool:
    if len(left) != len(right):
        return False
    budget.spend(len(left))
    for key, value in left.items():
        charge_key(key, budget)
        if key not in right or not equals(value, right[key], budget):
            return False
    return True


def charge_key(key: object, budget: Budget) -> None:
    """Spend the cost of comparing a key with an equal one of a map."""
    if type(key) is str and len(key) >= CHARACTERS_PER_UNIT:
        budget.spend(len(key) // CHARACTERS_PER_UNIT)


def compare_numbers(left: float, right: float) -> int | None:
    """-1, 0 or 1; None where one is NaN. A double meets an int or uint as a double (cel-go, types/compare.go)."""
    if (type(left) is int and not INT_MIN <= left <= INT_MAX) or (
        type(right) is int and not INT_MIN <= right <= INT_MAX
    ):
        raise EvaluationError("integer out of range")
    if type(left) is float or type(right) is float:
        left, right = float(left), float(right)
    if left == right:
        return 0
    if left < right:
        return -1
    return 1 if left > right else None
