"""The part of a Pod that decisions are made on, read once from its JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias, cast

from rules_engine.model.patch import Json, pointer
from rules_engine.model.placement import PLACEMENT_MEMBERS, Placement
from rules_engine.model.quantity import MAX_TEXT, Quantity, QuantityError
from rules_engine.model.reading import Path, PodError, items, kind_of, mapping, string, strings


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
class Pod:
    """A Pod's JSON and what was read from it; `containers` holds regular ones, then init containers, in their order."""

    raw: dict[str, Json]
    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[Container, ...]
    overhead: Mapping[str, Quantity]
    placement: Placement

    @classmethod
    def parse(cls, raw: Json) -> "Pod":
        """Read a Pod. Null counts as absent, as in the API. Raises PodError, naming the path, for anything else."""
        return cls._read(raw, None)

    @classmethod
    def _read(cls, raw: Json, before: "Pod | None") -> "Pod":
        """Read a Pod; what it shares with one that was read before is not read again."""
        known = _Known(before)
        pod = mapping(raw, ())
        metadata = mapping(pod.get("metadata"), ("metadata",))
        spec = mapping(pod.get("spec"), ("spec",))
        return cls(
            raw=pod,
            name=string(metadata.get("name"), ("metadata", "name")),
            namespace=string(metadata.get("namespace"), ("metadata", "namespace")),
            labels=strings(metadata.get("labels"), ("metadata", "labels")),
            annotations=strings(metadata.get("annotations"), ("metadata", "annotations")),
            containers=(
                *_containers(spec.get("containers"), ("spec", "containers"), known, init=False),
                *_containers(spec.get("initContainers"), ("spec", "initContainers"), known, init=True),
            ),
            overhead=_quantities(spec.get("overhead"), ("spec", "overhead")),
            placement=known.placement(spec) or Placement.parse(spec),
        )

    @property
    def regular(self) -> tuple[Container, ...]:
        return tuple(container for container in self.containers if container.role is Role.REGULAR)

    def effective(self, resource: str, amounts: Sequence[int]) -> int:
        """What the pod as a whole needs of a resource, by what each of `containers` needs, in nanos.

        Source: k8s.io/component-helpers/resource (PodRequests), KEP-753: the larger of the sum over regular containers
        and sidecars, and, for each init container, its own and that of the sidecars started before it; plus overhead.
        """
        running = sidecars = peak = 0
        for container, amount in zip(self.containers, amounts, strict=True):
            if container.role is Role.REGULAR:
                running += amount
            elif container.role is Role.SIDECAR:
                sidecars += amount
            else:
                peak = max(peak, sidecars + amount)
        overhead = self.overhead.get(resource)
        return max(running + sidecars, peak) + (overhead.nanos if overhead else 0)

    def effective_request(self, resource: str) -> Quantity:
        """What the scheduler counts for this pod: requests, or limits where there are none."""
        requested = (container.requested(resource) for container in self.containers)
        return Quantity(self.effective(resource, [quantity.nanos if quantity else 0 for quantity in requested]))

    def resources(self) -> frozenset[str]:
        """Every resource that some container names."""
        return frozenset([name for c in self.containers for amounts in (c.requests, c.limits) for name in amounts])

    def edited(self, edits: Mapping[Path, str | None]) -> "Pod":
        """The pod with strings set (or, where None, removed) at paths; missing parents are created."""
        raw = edited(self.raw, edits)
        return self if raw is self.raw else Pod._read(raw, self)


def edited(raw: Json, edits: Mapping[Path, str | None]) -> Json:
    """A pod's JSON with strings set (or, where None, removed) at paths; what is not edited is shared."""
    tree: _Edits = {}
    for path, value in edits.items():
        *parents, leaf = path
        branch = tree
        for key in parents:
            branch = cast(_Edits, branch.setdefault(key, {}))
        branch[leaf] = value
    return _edited(raw, tree)


_Edits: TypeAlias = "dict[str | int, _Edits | str | None]"
"""Edits by what they share: each object or list is copied once, however many of its leaves change."""


def _edited(node: Json, edits: _Edits) -> Json:
    """A copy of `node` with leaves changed, or `node` itself where nothing does; what is not edited is shared."""
    if isinstance(node, list):
        changed: list[Json] = list(node)
        for key, edit in edits.items():
            index = cast(int, key)
            changed[index] = _edited(node[index], cast(_Edits, edit))
        return node if changed == node else changed
    before = node if isinstance(node, dict) else {}
    members = dict(before)
    for key, edit in edits.items():
        name = cast(str, key)
        if edit is None:
            members.pop(name, None)
        elif isinstance(edit, str):
            members[name] = edit
        elif (inner := _edited(members.get(name), edit)) is not None:
            members[name] = inner
    return node if members == before else members


class _Known:
    """What was read of a pod before, by the JSON that it was read from."""

    def __init__(self, pod: Pod | None) -> None:
        self._pod = pod
        self._spec: dict[str, Json] = {}
        self._containers: dict[tuple[Path, int], Container] = {}
        if pod is not None:
            self._spec = mapping(pod.raw.get("spec"), ())
            for container in pod.containers:
                _, member, index = container.path
                item = cast("dict[str, list[Json]]", self._spec)[cast(str, member)][cast(int, index)]
                self._containers[container.path, id(item)] = container

    def container(self, path: Path, raw: Json) -> Container | None:
        return self._containers.get((path, id(raw)))

    def placement(self, spec: Mapping[str, Json]) -> Placement | None:
        if self._pod is None or any(spec.get(name) is not self._spec.get(name) for name in PLACEMENT_MEMBERS):
            return None
        return self._pod.placement


def _containers(raw: Json, path: Path, known: _Known, *, init: bool) -> Iterable[Container]:
    for index, item in enumerate(items(raw, path)):
        here = (*path, index)
        if (found := known.container(here, item)) is not None:
            yield found
            continue
        container = mapping(item, here)
        resources = mapping(container.get("resources"), (*here, "resources"))
        restart = string(container.get("restartPolicy"), (*here, "restartPolicy"))
        yield Container(
            name=string(container.get("name"), (*here, "name")),
            role=(Role.SIDECAR if restart == "Always" else Role.INIT) if init else Role.REGULAR,
            path=here,
            requests=_quantities(resources.get("requests"), (*here, "resources", "requests")),
            limits=_quantities(resources.get("limits"), (*here, "resources", "limits")),
        )


_NOTHING: Mapping[str, Quantity] = MappingProxyType({})


def _quantities(raw: Json, path: Path) -> Mapping[str, Quantity]:
    if raw is None:
        return _NOTHING
    members = mapping(raw, path)
    try:
        # Nearly always all of them are texts that are quantities; else it is told which one is not.
        return {name: Quantity.parse(text.strip()) for name, text in members.items()}  # type: ignore[union-attr]
    except (AttributeError, QuantityError):
        return {name: _quantity(value, (*path, name)) for name, value in members.items()}


def _quantity(raw: Json, path: Path) -> Quantity:
    # It may be a JSON number or stand between blanks, and null is zero (apimachinery quantity.go, UnmarshalJSON).
    if raw is None:
        return Quantity(0)
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise PodError(pointer(*path), f"a quantity must be a string or a number, not {kind_of(raw)}")
    if isinstance(raw, int) and abs(raw) >= 10**MAX_TEXT:
        raise PodError(pointer(*path), f"a quantity has at most {MAX_TEXT} digits")
    try:
        return Quantity.parse(str(raw).strip())
    except QuantityError as error:
        raise PodError(pointer(*path), str(error)) from None
