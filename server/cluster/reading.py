"""Parsers of Node, Pod and Namespace objects, reduced to the fields that decisions need.

Missing and malformed members count as absent, so that one malformed object does not hide all others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import intern
from typing import TypeVar

from rules_engine.cluster.nodes.reservations import PodKey, ReservedAmounts, usage_of_requests
from rules_engine.model.json.lenient import Object, as_mapping, as_string_map, text_member
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes import device_objects, node
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.devices import Claim, DeviceClass, DeviceTaintRule, ResourceSlice
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.server.cluster.device_store import ClaimTemplate

T = TypeVar("T")

MAX_RESOURCES = 64
"""Maximum number of resources of a bound pod: no node offers more. Anybody can bind a pod with 20,000 made-up resource
names to a node, even one that does not exist, and the usage of pods is kept in memory."""


class UnreadableError(ValueError):
    """An object that cannot be read."""


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod and its usage of a node: `node` is "" before it is bound and after it finished; `usage` is then empty."""

    key: PodKey
    node: str
    usage: ReservedAmounts
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    """Name and labels of a namespace."""

    name: str
    labels: Mapping[str, str]


def read_node(raw: Object) -> Node:
    """Read a node, without its usage; malformed amounts are left out. Raises UnreadableError."""
    _read_name(as_mapping(raw.get("metadata")))
    return node.read_node(raw, lambda *_: None)


def read_class(raw: Object) -> DeviceClass:
    """Read a DeviceClass. Raises UnreadableError."""
    _read_name(as_mapping(raw.get("metadata")))
    return device_objects.read_device_class(raw)


def read_slice(raw: Object, reader: device_objects.SliceReader) -> ResourceSlice:
    """Read a ResourceSlice. Raises UnreadableError."""
    return _read_named(raw, reader.slice)


def read_claim(raw: Object) -> Claim:
    """Read a ResourceClaim. Raises UnreadableError."""
    return _read_named(raw, device_objects.read_claim)


def read_claim_template(raw: Object) -> ClaimTemplate:
    """Read a ResourceClaimTemplate. Raises UnreadableError."""
    return ClaimTemplate(*_read_named(raw, device_objects.read_claim_template))


def read_taint_rule(raw: Object) -> DeviceTaintRule:
    """Read a DeviceTaintRule. Raises UnreadableError."""
    return _read_named(raw, device_objects.read_taint_rule)


def _read_named(raw: Object, read: Callable[[Object], T]) -> T:
    name = _read_name(as_mapping(raw.get("metadata")))
    try:
        return read(raw)
    except device_objects.DeviceError as error:
        raise UnreadableError(f"{name}: {error}") from None


def read_namespace(raw: Object) -> Namespace:
    """Read a namespace. Raises UnreadableError."""
    metadata = as_mapping(raw.get("metadata"))
    return Namespace(_read_name(metadata), as_string_map(metadata.get("labels")))


def read_pod(raw: Object) -> HeldPod:
    """Read a pod. Raises UnreadableError, also for malformed requests, whose usage is unknown."""
    metadata = as_mapping(raw.get("metadata"))
    key = PodKey(f"{text_member(metadata, 'namespace')}/{_read_name(metadata)}", text_member(metadata, "uid"))
    finished = is_finished(raw)
    bound_to = text_member(as_mapping(raw.get("spec")), "nodeName")
    if finished or not bound_to:
        return HeldPod(key, "", (), finished)
    try:
        pod = Pod.parse(dict(raw))
    except PodError as error:
        # The value is the pod's and must not be logged.
        raise UnreadableError(f"{key.name}: {error.path} cannot be read") from None
    held = usage_of_requests(pod.effective_requests().items())
    if len(held) > MAX_RESOURCES:
        raise UnreadableError(f"{key.name}: more than {MAX_RESOURCES} resources")
    return HeldPod(key, intern(bound_to), held)


def _read_name(metadata: Object) -> str:
    name = text_member(metadata, "name")
    if not name:
        raise UnreadableError("metadata.name missing")
    return name
