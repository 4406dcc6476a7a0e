"""The types that expressions have.

A Type is also what CEL's type() gives at run time; then it has no parameters.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rules_engine.model import shapes


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


def object_of(name: str, fields: Mapping[str, Type]) -> Type:
    """A map with these keys and no others."""
    return ObjectType(name, (), fields)


_PLAIN = {kind.name: kind for kind in (BOOL, DOUBLE, DYN, INT, STRING)}


@lru_cache(maxsize=256)
def _type(written: str) -> Type:
    if written.startswith("["):
        return list_of(_type(written[1:-1]))
    if written.startswith("{"):
        return map_of(STRING, _type(written[1:-1]))
    return _PLAIN.get(written) or shape(written)


class _Fields(Mapping[str, Type]):
    """The fields of a shape, read when the first of them is asked for: shapes may contain themselves."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, field: str) -> Type:
        return _type(shapes.fields(self._name)[field])

    def __iter__(self) -> Iterator[str]:
        return iter(shapes.fields(self._name))

    def __len__(self) -> int:
        return len(shapes.fields(self._name))


def shape(name: str) -> ObjectType:
    """The shape of a Kubernetes object by its kind, such as Pod or PodSpec."""
    return ObjectType(name, (), _Fields(name))


POD = shape("Pod")
NAMESPACE = shape("Namespace")
NODE = shape("Node")
DAEMON_SET = shape("DaemonSet")
EVENT = shape("Event")


def _admission_request() -> Type:
    """What a policy sees of the request (k8s.io/apiserver, admission/plugin/policy/validating: BuildRequestType)."""
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
