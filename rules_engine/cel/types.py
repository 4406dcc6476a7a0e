"""The types that expressions have.

A Type is also what CEL's type() gives at run time; then it has no parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Type:
    """A type by its CEL name, such as list(string) with one parameter."""

    name: str
    parameters: tuple["Type", ...] = ()

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(str(parameter) for parameter in self.parameters)})"

    @property
    def plain(self) -> "Type":
        """Without parameters, as type() gives it."""
        return Type(self.name)


@dataclass(frozen=True, slots=True)
class ObjectType(Type):
    """A map whose keys are known. Two are equal when their names are; a name is unique in an environment."""

    fields: Mapping[str, Type] = field(default_factory=dict, compare=False)


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


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("optional_type", (value,))


LIST = list_of(DYN)
MAP = map_of(STRING, DYN)
OPTIONAL = optional_of(DYN)

# Stand-ins in the signatures of functions: each call may choose another type for them.
A = Type("A")
B = Type("B")
PARAMETERS = frozenset({A, B})


def any_object(name: str) -> Type:
    """A map with string keys of which nothing more is known."""
    return MAP


def object_of(name: str, fields: Mapping[str, Type]) -> Type:
    """A map with these keys and no others."""
    return ObjectType(name, (), fields)


POD = MAP
NAMESPACE = MAP
NODE = MAP
ADMISSION_REQUEST = MAP
