"""Types of expressions.

CEL's type() returns a Type at run time, without parameters.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rules_engine.model.kubernetes import shapes


@dataclass(frozen=True, slots=True)
class Type:
    """A type with its CEL name and parameters, such as list(string)."""

    name: str
    parameters: tuple["Type", ...] = ()

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(str(parameter) for parameter in self.parameters)})"

    @property
    def plain(self) -> "Type":
        """Type without parameters, as type() returns it."""
        return Type(self.name)


@dataclass(frozen=True, slots=True)
class ObjectType(Type):
    """A map with known keys. Two with the same name are equal: a name is unique in an environment.

    `present`: the keys that every such map has; None means every key of `fields`.
    """

    fields: Mapping[str, Type] = field(default_factory=dict, compare=False)
    present: frozenset[str] | None = field(default=None, compare=False)


DYN = Type("dyn")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
NULL = Type("null_type")
TIMESTAMP = Type("google.protobuf.Timestamp")
DURATION = Type("google.protobuf.Duration")
TYPE = Type("type")
QUANTITY = Type("kubernetes.Quantity")
URL = Type("kubernetes.URL")
SEMVER = Type("kubernetes.Semver")
FORMAT = Type("kubernetes.NamedFormat")
IP = Type("net.IP")
CIDR = Type("net.CIDR")
CLUSTER = Type("gpurules.Cluster")
REQUESTED = Type("gpurules.Requested")

AMOUNT = Type("string")
"""Type of the amounts of Kubernetes objects, such as limits. It equals STRING; remedies know it by its identity."""


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("optional_type", (value,))


LIST = list_of(DYN)
MAP = map_of(STRING, DYN)
OPTIONAL = optional_of(DYN)

_JSON = (BOOL, DOUBLE, INT, LIST, MAP, NULL, STRING)
NAMED = (*_JSON, BYTES, CIDR, DURATION, FORMAT, IP, OPTIONAL, QUANTITY, SEMVER, TIMESTAMP, TYPE, UINT, URL)
"""Types whose names are values of expressions."""

# Type parameters of functions: each call may replace them by another type.
A = Type("A")
B = Type("B")
PARAMETERS = frozenset({A, B})


def object_of(name: str, fields: Mapping[str, Type]) -> Type:
    """Return the type of a map with exactly these keys."""
    return ObjectType(name, (), fields)


_PLAIN = {**{kind.name: kind for kind in (BOOL, DOUBLE, DYN, INT, STRING)}, "quantity": AMOUNT}


@lru_cache(maxsize=512)
def _parse_type(notation: str, hidden: frozenset[tuple[str, str]]) -> Type:
    if notation.startswith("["):
        return list_of(_parse_type(notation[1:-1], hidden))
    if notation.startswith("{"):
        return map_of(STRING, _parse_type(notation[1:-1], hidden))
    return _PLAIN.get(notation) or shape_type(notation, hidden)


class _Fields(Mapping[str, Type]):
    """Fields of a shape, resolved on access: shapes may contain themselves."""

    __slots__ = ("_hidden", "_name")

    def __init__(self, name: str, hidden: frozenset[tuple[str, str]]) -> None:
        self._name = name
        self._hidden = hidden

    def __getitem__(self, field: str) -> Type:
        if (self._name, field) in self._hidden:
            raise KeyError(field)
        return _parse_type(shapes.field_types(self._name)[field], self._hidden)

    def __iter__(self) -> Iterator[str]:
        return (field for field in shapes.field_types(self._name) if (self._name, field) not in self._hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def shape_type(name: str, hidden: frozenset[tuple[str, str]] = frozenset()) -> ObjectType:
    """Return the shape of a Kubernetes object by its kind, such as Pod or PodSpec.

    `hidden`: pairs of a shape and a field that is omitted, in this shape and in all shapes below it.
    """
    return ObjectType(name, (), _Fields(name, hidden), shapes.always_present_fields(name))


POD = shape_type("Pod")
NAMESPACE = shape_type("Namespace")


def _admission_request() -> Type:
    """Return the type of `request` (k8s.io/apiserver, admission/plugin/policy/validating: BuildRequestType)."""
    kind = object_of("GroupVersionKind", {"group": STRING, "version": STRING, "kind": STRING})
    resource = object_of("GroupVersionResource", {"group": STRING, "version": STRING, "resource": STRING})
    user = {"username": STRING, "uid": STRING, "groups": list_of(STRING), "extra": map_of(STRING, list_of(STRING))}
    fields = {
        "kind": kind,
        "resource": resource,
        "subResource": STRING,
        "requestKind": kind,
        "requestResource": resource,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": object_of("UserInfo", user),
        "dryRun": BOOL,
        "options": DYN,
    }
    return object_of("AdmissionRequest", fields)


ADMISSION_REQUEST = _admission_request()
