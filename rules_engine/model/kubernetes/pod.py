"""The parts of a Pod that decisions depend on, read once from its JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct, field, structs

from rules_engine.model.json import lenient
from rules_engine.model.json.edits import Edits, apply_edits, merge_edits
from rules_engine.model.json.patch import Json, json_pointer
from rules_engine.model.json.strict import (
    JsonPath,
    PodError,
    json_type,
    read_list,
    read_mapping,
    read_string,
    read_string_map,
)
from rules_engine.model.kubernetes.placement import PLACEMENT_MEMBERS, Placement
from rules_engine.model.kubernetes.quantity import MAX_QUANTITY_TEXT, Quantity, QuantityError, parse_quantity

LABELS: JsonPath = ("metadata", "labels")
ANNOTATIONS: JsonPath = ("metadata", "annotations")
SPEC: JsonPath = ("spec",)
POD_REQUESTS: JsonPath = ("spec", "resources", "requests")
POD_LIMITS: JsonPath = ("spec", "resources", "limits")

NO_AMOUNTS: Mapping[str, int] = MappingProxyType({})

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that no longer hold resources. A pod being deleted holds its devices to the end."""


class Role(Enum):
    """The kind of a container; a sidecar is an init container with restartPolicy Always (KEP-753)."""

    REGULAR = "container"
    INIT = "init container"
    SIDECAR = "sidecar"


class Container(Struct, frozen=True, kw_only=True):
    """A container's name, its path in the pod and its resources."""

    name: str
    role: Role
    path: JsonPath
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]

    def limit_or_request(self, resource: str) -> Quantity | None:
        """Return the limit, else the request: the amount of a resource that cannot be overcommitted."""
        limit = self.limits.get(resource)
        return self.requests.get(resource) if limit is None else limit

    def requested(self, resource: str) -> Quantity | None:
        """Return the request, else the limit, as the API server's defaulting copies it."""
        request = self.requests.get(resource)
        return self.limits.get(resource) if request is None else request

    @property
    def requests_path(self) -> JsonPath:
        """The path of its requests in the pod."""
        return (*self.path, "resources", "requests")

    @property
    def limits_path(self) -> JsonPath:
        return (*self.path, "resources", "limits")

    def edited(self, edits: Edits) -> "Container":
        requests, limits = edits.get(self.requests_path), edits.get(self.limits_path)
        if requests is None and limits is None:
            return self
        return structs.replace(
            self, requests=_edit_amounts(self.requests, requests or {}), limits=_edit_amounts(self.limits, limits or {})
        )


def changes_placement(edits: Edits) -> bool:
    """Return True if edits may change the nodes that a pod may run on: its tolerations, or members below the spec."""
    return any(path == SPEC or (path[:1] == SPEC and path[1] in PLACEMENT_MEMBERS) for path in edits)


def is_finished(raw: Mapping[str, Json]) -> bool:
    """Return True if a pod's containers have ended for good."""
    return lenient.text_member(lenient.as_mapping(raw.get("status")), "phase") in FINISHED


def _edit_amounts(amounts: Mapping[str, Quantity], members: Mapping[str, str | None]) -> Mapping[str, Quantity]:
    if not members:
        return amounts
    edited = dict(amounts)
    for name, text in members.items():
        edited.pop(name, None)
        if text is not None:
            edited[name] = parse_quantity(text)
    return edited


class Pod(Struct, frozen=True, kw_only=True):
    """A Pod parsed from its JSON, with the edits of rules.

    `containers` holds the containers that name a resource: regular containers, then init containers, in their order.
    Rules decide nothing about the others, of which 20,000 fit in 60 kB: they are checked and left out. `requests` and
    `limits` are the pod level (spec.resources, KEP-2837), without defaults.
    """

    original: dict[str, Json]
    edits: Edits = field(default_factory=dict)
    name: str
    namespace: str
    node_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[Container, ...]
    resources: frozenset[str]
    """Resources with a positive request or limit in any container: rules ignore a resource that is 0 in all."""
    named: frozenset[str]
    """Resources with a request or limit in any container, including zero."""
    amount_count: int
    """Number of the containers' requests and limits."""
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]
    overhead: Mapping[str, Quantity]

    @classmethod
    def parse(cls, raw: Json) -> "Pod":
        """Read a Pod. Null counts as absent, as in the API. Raises PodError with the path of a malformed value.

        Amounts in `original` are strings, as the API server writes them. Others may write a number or null, with which
        expressions would fail or compare unequal.
        """
        pod = read_mapping(raw, ())
        texts: _AmountTexts = {}
        metadata = read_mapping(pod.get("metadata"), ("metadata",))
        spec = read_mapping(pod.get("spec"), ("spec",))
        level = read_mapping(spec.get("resources"), ("spec", "resources"))
        containers = (*_read_containers(spec, "containers", texts), *_read_containers(spec, "initContainers", texts))
        amounts = _container_amounts(containers)
        return cls(
            name=read_string(metadata.get("name"), ("metadata", "name")),
            namespace=read_string(metadata.get("namespace"), ("metadata", "namespace")),
            node_name=read_string(spec.get("nodeName"), ("spec", "nodeName")),
            labels=read_string_map(metadata.get("labels"), ("metadata", "labels")),
            annotations=read_string_map(metadata.get("annotations"), ANNOTATIONS),
            containers=containers,
            resources=_positive_resources(amounts),
            named=frozenset[str]().union(*amounts),
            amount_count=sum(map(len, amounts)),
            requests=_check_not_negative(_read_quantities(level.get("requests"), POD_REQUESTS, texts), POD_REQUESTS),
            limits=_check_not_negative(_read_quantities(level.get("limits"), POD_LIMITS, texts), POD_LIMITS),
            overhead=_read_quantities(spec.get("overhead"), ("spec", "overhead"), texts),
            original=read_mapping(apply_edits(pod, texts), ())
            if texts
            else pod,  # last: the readers above fill `texts`
        )

    @property
    def raw(self) -> Json:
        """The pod's JSON with the edits of rules; computed on each call if there are any."""
        return apply_edits(self.original, self.edits)

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """All containers, including containers that name no resource; read on each call."""
        spec = read_mapping(self.original.get("spec"), ("spec",))
        parsed = {container.path: container for container in self.containers}
        return (
            *_read_all_containers(spec, "containers", parsed),
            *_read_all_containers(spec, "initContainers", parsed),
        )

    @property
    def placement(self) -> Placement:
        """The pod's placement, read on each call: few rules need it. Raises PodError and TooLargeError."""
        pod = read_mapping(self.raw, ()) if changes_placement(self.edits) else self.original
        return Placement.parse(read_mapping(pod.get("spec"), SPEC))

    @property
    def regular(self) -> tuple[Container, ...]:
        return tuple(container for container in self.containers if container.role is Role.REGULAR)

    def effective(self, resource: str, amounts: Sequence[int]) -> int:
        """Return the pod's effective amount of a resource: the containers' aggregate plus overhead, in nanos."""
        return self.aggregate(amounts) + self._overhead(resource)

    def aggregate(self, amounts: Sequence[int]) -> int:
        """Return the aggregate of all containers, in nanos; `amounts` has one amount for each of `containers`."""
        return self._aggregate(zip(self.containers, amounts, strict=True))

    def effective_requests(self, missing: Mapping[str, int] = NO_AMOUNTS) -> Mapping[str, int]:
        """Return the amounts that the scheduler counts for this pod, in nanos: requests, or else limits.

        `missing`: by resource, the amount of a container that does not name it.

        All resources that the pod names are included. Each container is read once, whatever the number of resources.
        The pod level's request replaces the containers' aggregate (component-helpers, PodRequests); if no container
        names the resource, it defaults to the pod level's limit (pkg/apis/core/v1/defaults.go, defaultPodRequests).
        """
        by_resource: dict[str, list[tuple[Container, int]]] = {
            name: [] for name in (*self.overhead, *self.requests, *self.limits)
        }
        for container in self.all_containers if missing else self.containers:
            amounts = {**container.limits, **container.requests}
            for resource, amount in amounts.items():
                by_resource.setdefault(resource, []).append((container, amount.nanos))
            for resource, nanos in missing.items():
                if resource not in amounts:
                    by_resource.setdefault(resource, []).append((container, nanos))
        return {resource: self._effective_request(resource, amounts) for resource, amounts in by_resource.items()}

    def _effective_request(self, resource: str, amounts: Sequence[tuple[Container, int]]) -> int:
        pod_level = self.requests.get(resource)
        if pod_level is None and not amounts:
            pod_level = self.limits.get(resource)
        return (self._aggregate(amounts) if pod_level is None else pod_level.nanos) + self._overhead(resource)

    def _overhead(self, resource: str) -> int:
        overhead = self.overhead.get(resource)
        return overhead.nanos if overhead else 0

    @staticmethod
    def _aggregate(amounts: Iterable[tuple[Container, int]]) -> int:
        """Aggregate containers (k8s.io/component-helpers/resource, AggregateContainerRequests; KEP-753).

        The result is the largest of the sum over regular containers and sidecars, and of the sum, for each init
        container, of its amount and the amounts of the sidecars started before it.
        """
        running = sidecars = peak = 0
        for container, amount in amounts:
            if not amount:
                continue
            if container.role is Role.REGULAR:
                running += amount
            elif container.role is Role.SIDECAR:
                sidecars += amount
            else:
                peak = max(peak, sidecars + amount)
        return max(running + sidecars, peak)

    def edited(self, edits: Edits) -> "Pod":
        """Return the pod after edits of its labels, its annotations and its containers' requests and limits."""
        if not edits:
            return self
        labels, annotations = (
            {key: value for key, value in {**own, **edits.get(path, {})}.items() if value is not None}
            for own, path in ((self.labels, LABELS), (self.annotations, ANNOTATIONS))
        )
        containers = self.containers
        if not {path[:3] for path in edits if len(path) > len(POD_REQUESTS)} <= {item.path for item in containers}:
            containers = self.all_containers
        containers = tuple(
            item for container in containers if (item := container.edited(edits)).requests or item.limits
        )
        amounts = _container_amounts(containers)
        return structs.replace(
            self,
            edits=merge_edits(self.edits, edits),
            labels=labels,
            annotations=annotations,
            containers=containers,
            resources=_positive_resources(amounts),
            named=frozenset[str]().union(*amounts),
            amount_count=sum(map(len, amounts)),
            requests=_edit_amounts(self.requests, edits.get(POD_REQUESTS, {})),
            limits=_edit_amounts(self.limits, edits.get(POD_LIMITS, {})),
        )


_AmountTexts: TypeAlias = dict[JsonPath, Mapping[str, str]]
"""Texts that replace amounts written as numbers, by the path of their object."""


def _read_containers(spec: Mapping[str, Json], member: str, texts: _AmountTexts) -> Iterator[Container]:
    """Yield the containers of a list that name a resource. Raises PodError for any malformed container."""
    # Fast path for the usual types; for all others the strict readers raise the error.
    for index, item in enumerate(read_list(spec.get(member), ("spec", member))):
        if not item and type(item) is dict:
            continue
        here = ("spec", member, index)
        container = item if type(item) is dict else read_mapping(item, here)
        name, restart = container.get("name", ""), container.get("restartPolicy", "")
        if type(name) is not str:
            read_string(name, (*here, "name"))
        if type(restart) is not str:
            read_string(restart, (*here, "restartPolicy"))
        resources = container.get("resources")
        if resources is None:
            continue
        if type(resources) is not dict:
            resources = read_mapping(resources, (*here, "resources"))
        requests, limits = resources.get("requests"), resources.get("limits")
        if requests is not None or limits is not None:
            parsed = _read_container(container, here, requests, limits, texts)
            if parsed.requests or parsed.limits:
                yield parsed


def _read_all_containers(
    spec: Mapping[str, Json], member: str, parsed: Mapping[JsonPath, Container]
) -> Iterator[Container]:
    """Yield every container of a list that `_read_containers` has checked."""
    for index, item in enumerate(read_list(spec.get(member), ("spec", member))):
        here = ("spec", member, index)
        yield parsed.get(here) or _read_container(read_mapping(item, here), here, None, None, {})


def _read_container(
    members: Mapping[str, Json], here: JsonPath, requests: Json, limits: Json, texts: _AmountTexts
) -> Container:
    if here[1] == "containers":
        role = Role.REGULAR
    else:
        role = Role.SIDECAR if members.get("restartPolicy") == "Always" else Role.INIT
    return Container(
        name=read_string(members.get("name"), (*here, "name")),
        role=role,
        path=here,
        requests=_read_quantities(requests, (*here, "resources", "requests"), texts),
        limits=_read_quantities(limits, (*here, "resources", "limits"), texts),
    )


def _container_amounts(containers: Iterable[Container]) -> list[Mapping[str, Quantity]]:
    return [amounts for item in containers for amounts in (item.requests, item.limits)]


def _positive_resources(amounts: Iterable[Mapping[str, Quantity]]) -> frozenset[str]:
    """Return the resources with a positive amount in any container."""
    return frozenset(name for members in amounts for name, amount in members.items() if amount.nanos)


_NO_QUANTITIES: Mapping[str, Quantity] = MappingProxyType({})


def _read_quantities(raw: Json, path: JsonPath, texts: _AmountTexts) -> Mapping[str, Quantity]:
    if raw is None:
        return _NO_QUANTITIES
    members = read_mapping(raw, path)
    try:
        # Fast path: nearly always all values are valid strings; otherwise the values are read one by one for the error.
        return {name: parse_quantity(text) for name, text in members.items()}  # type: ignore[arg-type]
    except (TypeError, QuantityError):
        quantities = {name: _read_quantity(value, (*path, name)) for name, value in members.items()}
        texts[path] = {name: str(quantities[name]) for name, value in members.items() if not isinstance(value, str)}
        return quantities


def _check_not_negative(amounts: Mapping[str, Quantity], path: JsonPath) -> Mapping[str, Quantity]:
    for name, amount in amounts.items():
        if amount.nanos < 0:
            raise PodError(json_pointer(*path, name), f"must not be negative: {amount}")
    return amounts


def _read_quantity(raw: Json, path: JsonPath) -> Quantity:
    # Numbers and surrounding blanks are allowed, and null is zero (apimachinery quantity.go, UnmarshalJSON).
    if raw is None:
        return Quantity(0)
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise PodError(json_pointer(*path), f"a quantity must be a string or a number, not {json_type(raw)}")
    if isinstance(raw, int) and abs(raw) >= 10**MAX_QUANTITY_TEXT:
        raise PodError(json_pointer(*path), f"a quantity has at most {MAX_QUANTITY_TEXT} digits")
    try:
        return Quantity.parse(str(raw).strip())
    except QuantityError as error:
        raise PodError(json_pointer(*path), str(error)) from None
