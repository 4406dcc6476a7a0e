"""The part of a Pod that decisions are made on, read once from its JSON."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import cast

from rules_engine.model.patch import Json, pointer
from rules_engine.model.quantity import Quantity, QuantityError

Path = tuple[str | int, ...]
"""Where something stands in a JSON value: member names and indexes from the root."""


class PodError(ValueError):
    """A Pod that is not what the API says a Pod is; `path` is a JSON Pointer."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class Role(Enum):
    """What kind of container it is; a sidecar is an init container with restartPolicy Always (KEP-753)."""

    REGULAR = "container"
    INIT = "init container"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container's name, its place in the pod and its resources."""

    name: str
    role: Role
    path: Path
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]

    def asked(self, resource: str) -> Quantity | None:
        """Its limit, else its request: what a container asks for of a resource that cannot be overcommitted."""
        return self.limits.get(resource, self.requests.get(resource))

    def requested(self, resource: str) -> Quantity | None:
        """Its request, else its limit, as the API server's defaulting copies it."""
        return self.requests.get(resource, self.limits.get(resource))


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A toleration as the scheduler reads it (k8s.io/api/core/v1, Toleration); "" stands for absent."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A Pod's JSON and what was read from it; `containers` holds regular ones, then init containers, in their order."""

    raw: dict[str, Json]
    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[Container, ...]
    overhead: Mapping[str, Quantity]

    @classmethod
    def parse(cls, raw: Json) -> "Pod":
        """Read a Pod. Null counts as absent, as in the API. Raises PodError, naming the path, for anything else."""
        pod = _mapping(raw, ())
        metadata = _mapping(pod.get("metadata"), ("metadata",))
        spec = _mapping(pod.get("spec"), ("spec",))
        return cls(
            raw=pod,
            name=_string(metadata.get("name"), ("metadata", "name")),
            namespace=_string(metadata.get("namespace"), ("metadata", "namespace")),
            labels=_strings(metadata.get("labels"), ("metadata", "labels")),
            annotations=_strings(metadata.get("annotations"), ("metadata", "annotations")),
            containers=(
                *_containers(spec.get("containers"), ("spec", "containers"), init=False),
                *_containers(spec.get("initContainers"), ("spec", "initContainers"), init=True),
            ),
            overhead=_quantities(spec.get("overhead"), ("spec", "overhead")),
        )

    @property
    def regular(self) -> tuple[Container, ...]:
        return tuple(container for container in self.containers if container.role is Role.REGULAR)

    def effective(self, resource: str, amount: Callable[[Container], int]) -> int:
        """What the pod as a whole needs of a resource, by what each container needs, in nanos.

        Source: k8s.io/component-helpers/resource (PodRequests), KEP-753: the larger of the sum over regular containers
        and sidecars, and, for each init container, its own and that of the sidecars started before it; plus overhead.
        """
        running = sum(amount(container) for container in self.containers if container.role is Role.REGULAR)
        sidecars = peak = 0
        for container in self.containers:
            if container.role is Role.SIDECAR:
                sidecars += amount(container)
                peak = max(peak, sidecars)
            elif container.role is Role.INIT:
                peak = max(peak, sidecars + amount(container))
        overhead = self.overhead.get(resource)
        return max(running + sidecars, peak) + (overhead.nanos if overhead else 0)

    def effective_request(self, resource: str) -> Quantity:
        """What the scheduler counts for this pod: requests, or limits where there are none."""

        def amount(container: Container) -> int:
            asked = container.requested(resource)
            return asked.nanos if asked else 0

        return Quantity(self.effective(resource, amount))

    def resources(self) -> frozenset[str]:
        """Every resource that some container names."""
        return frozenset(name for c in self.containers for name in (*c.requests, *c.limits))

    def edited(self, edits: Mapping[Path, str | None]) -> "Pod":
        """The pod with strings set (or, where None, removed) at paths; missing parents are created."""
        raw: dict[str, Json] = self.raw
        for path, value in edits.items():
            raw = cast(dict[str, Json], _edited(raw, path, value))
        return self if raw is self.raw else Pod.parse(raw)


def _edited(node: Json, path: Path, value: str | None) -> Json:
    """A copy of `node` with one leaf changed; everything off the path is shared with the original."""
    key, *rest = path
    if isinstance(node, list):
        index = cast(int, key)
        return [*node[:index], _edited(node[index], tuple(rest), value), *node[index + 1 :]]
    members = node if isinstance(node, dict) else {}
    name = cast(str, key)
    if rest:
        inner = members.get(name)
        changed = _edited(inner, tuple(rest), value)
        return node if changed is inner else {**members, name: changed}
    if value is None:
        return {k: v for k, v in members.items() if k != name} if name in members else node
    return node if members.get(name) == value else {**members, name: value}


def _containers(raw: Json, path: Path, *, init: bool) -> Iterable[Container]:
    for index, item in enumerate(_list(raw, path)):
        here = (*path, index)
        container = _mapping(item, here)
        resources = _mapping(container.get("resources"), (*here, "resources"))
        restart = _string(container.get("restartPolicy"), (*here, "restartPolicy"))
        yield Container(
            name=_string(container.get("name"), (*here, "name")),
            role=(Role.SIDECAR if restart == "Always" else Role.INIT) if init else Role.REGULAR,
            path=here,
            requests=_quantities(resources.get("requests"), (*here, "resources", "requests")),
            limits=_quantities(resources.get("limits"), (*here, "resources", "limits")),
        )


_NOTHING: Mapping[str, Quantity] = MappingProxyType({})


def _quantities(raw: Json, path: Path) -> Mapping[str, Quantity]:
    if raw is None:
        return _NOTHING
    return {name: _quantity(value, (*path, name)) for name, value in _mapping(raw, path).items()}


def _quantity(raw: Json, path: Path) -> Quantity:
    # A quantity may be a JSON number, and null is zero (apimachinery quantity.go, UnmarshalJSON).
    if raw is None:
        return Quantity(0)
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise PodError(pointer(*path), f"a quantity must be a string or a number, not {kind_of(raw)}")
    try:
        return Quantity.parse(str(raw))
    except QuantityError as error:
        raise PodError(pointer(*path), str(error)) from None


def _mapping(raw: Json, path: Path) -> dict[str, Json]:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise PodError(pointer(*path), f"must be an object, not {kind_of(raw)}")
    return raw


def _list(raw: Json, path: Path) -> list[Json]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise PodError(pointer(*path), f"must be a list, not {kind_of(raw)}")
    return raw


def _string(raw: Json, path: Path) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str):
        raise PodError(pointer(*path), f"must be a string, not {kind_of(raw)}")
    return raw


def _strings(raw: Json, path: Path) -> Mapping[str, str]:
    return {name: _string(value, (*path, name)) for name, value in _mapping(raw, path).items()}


def kind_of(value: Json) -> str:
    """What JSON calls a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"
