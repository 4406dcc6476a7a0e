"""Run-time values, and the operations on all of them: type, equality, order.

JSON values have their Python classes: dict, list, str, int, float, bool and None. Other values have small classes, here
and in the libraries, with their CEL type in `cel_type`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from rules_engine.language.cel.budget import CHARACTERS_PER_UNIT, Budget, EvaluationError
from rules_engine.language.cel.values import types
from rules_engine.language.cel.values.types import Type
from rules_engine.model.kubernetes.quantity import Quantity

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
UINT_MAX = 2**64 - 1
NANOS = 10**9


class Uint(int):
    """An unsigned 64-bit integer: a type of its own in CEL, and an int in Python."""

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
    """A value that may be absent; `value` has no meaning if `present` is false.

    It never changes. It is not frozen, since that triples the time to make one, and expressions make many.
    """

    cel_type: ClassVar[Type] = Type("optional_type")
    present: bool
    value: object = None


NONE = Optional(False)


@runtime_checkable
class CelCluster(Protocol):
    """Interface of an activation's `cluster`; each method may raise EvaluationError."""

    def allocatable(self, resource: str) -> int:
        """Return the largest amount of a resource that one node has."""

    def available(self, resource: str) -> int:
        """Return the largest amount of a resource that one node has free."""

    def total(self, resource: str) -> int:
        """Return the amount of a resource that all nodes have in total."""


class CelRequested(Protocol):
    """Interface of an activation's `requested`: the amounts that a pod requests. `cost`: of reading one."""

    cel_type: ClassVar[Type] = types.REQUESTED

    @property
    def cost(self) -> int: ...

    def amount(self, resource: str) -> int:
        """Return the pod's effective request, rounded up."""


class KeyedMap(Mapping[object, object]):
    """A map with keys of other types than string: in CEL true and 1 are different keys, in Python they are equal."""

    __slots__ = ("_entries",)
    cel_type: ClassVar[Type] = Type("map")

    def __init__(self, entries: Mapping[tuple[bool, object], tuple[object, object]]) -> None:
        self._entries = entries

    def __getitem__(self, key: object) -> object:
        return self._entries[_key_slot(key)][1]

    def __iter__(self) -> Iterator[object]:
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


class DefaultMap(Mapping[str, object]):
    """A map with a value for every string, which contains some of them only (device.attributes in Kubernetes).

    As in Kubernetes, selection, has() and optional selection find them all; `in`, size() and macros only some.
    """

    __slots__ = ("_default", "_entries")
    cel_type: ClassVar[Type] = Type("map")

    def __init__(self, entries: Mapping[str, object], default: object) -> None:
        self._entries = entries
        self._default = default

    def __getitem__(self, key: object) -> object:
        if type(key) is not str:
            raise KeyError(key)
        return self._entries.get(key, self._default)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _key_slot(key: object) -> tuple[bool, object]:
    return type(key) is bool, key


def make_map(entries: list[tuple[object, object]]) -> Mapping[object, object]:
    """Return the map of these entries. Raises EvaluationError for a duplicate key or one of an invalid type."""
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
    """Return CEL's type() of a value; classes of other layers may have a class variable `cel_type`."""
    kind = _TYPES.get(type(value))
    if kind is None:
        kind = getattr(type(value), "cel_type", None)
    if kind is None:
        if isinstance(value, Mapping):
            return _TYPES[dict]
        kind = types.CLUSTER if isinstance(value, CelCluster) else types.DYN
    return kind


def is_map(value: object) -> bool:
    """Return whether a value is a map: other layers pass Mappings of their own, such as lazy variables."""
    return type(value) is dict or isinstance(value, Mapping)


def check_int(value: int) -> int:
    """Return the value if it is in int's range: JSON may have larger numbers. Raises EvaluationError."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer out of range")


def equals(left: object, right: object, budget: Budget) -> bool:
    """Return CEL's ==, which is defined for any two values (CEL specification, "Equality")."""
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
    """Return -1, 0 or 1, or None for NaN. A double and an int or uint compare as doubles (cel-go, types/compare.go)."""
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
