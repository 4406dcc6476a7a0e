"""Parsers of Node, Pod and Namespace objects, reduced to the fields that decisions need.

Missing and malformed members count as absent, so that one malformed object does not hide all others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from sys import intern

from rules_engine.model import node
from rules_engine.model.cluster import Node
from rules_engine.model.json.lenient import Object, mapping, strings, text
from rules_engine.model.json.strict import PodError
from rules_engine.model.pod import Pod, is_finished

MAX_RESOURCES = 64
"""Maximum number of resources of a bound pod: no node offers more. Anybody can bind a pod with 20,000 made-up resource
names to a node, even one that does not exist, and the usage of pods is kept in memory."""


class UnreadableError(ValueError):
    """An object that cannot be read."""


@dataclass(frozen=True, slots=True, order=True)
class PodKey:
    """Identity of a pod: `name` is namespace/name, which may be reused; a uid never is."""

    name: str
    uid: str

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]


Usage = tuple[tuple[str, int], ...]
"""Requests of a pod: nanos by resource, in order of name. Identical pods share one value."""


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod and what it holds: `node` is "" before it is bound and after it finished; `usage` is then empty."""

    key: PodKey
    node: str
    usage: Usage
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    """Name and labels of a namespace."""

    name: str
    labels: Mapping[str, str]


def read_node(raw: Object) -> Node:
    """Read a node, without its usage; malformed amounts are left out. Raises UnreadableError."""
    _name(mapping(raw.get("metadata")))
    return node.read_node(raw, lambda *_: None)


def read_namespace(raw: Object) -> Namespace:
    """Read a namespace. Raises UnreadableError."""
    metadata = mapping(raw.get("metadata"))
    return Namespace(_name(metadata), _labels(metadata))


def read_pod(raw: Object) -> HeldPod:
    """Read a pod. Raises UnreadableError, also for malformed requests, whose usage is unknown."""
    metadata = mapping(raw.get("metadata"))
    key = PodKey(f"{text(metadata, 'namespace')}/{_name(metadata)}", text(metadata, "uid"))
    finished = is_finished(raw)
    bound_to = text(mapping(raw.get("spec")), "nodeName")
    if finished or not bound_to:
        return HeldPod(key, "", (), finished)
    try:
        pod = Pod.parse(dict(raw))
    except PodError as error:
        # The value is the pod's and must not be logged.
        raise UnreadableError(f"{key.name}: {error.path} cannot be read") from None
    held = usage(pod)
    if len(held) > MAX_RESOURCES:
        raise UnreadableError(f"{key.name}: more than {MAX_RESOURCES} resources")
    return HeldPod(key, intern(bound_to), held)


def usage(pod: Pod) -> Usage:
    """Return a pod's requests as the scheduler counts them."""
    return _usage(pod.effective_requests().items())


def devices(pod: Pod) -> Usage:
    """Return a pod's positive requests of extended resources as the scheduler counts them."""
    requests = pod.effective_requests().items()
    return _usage((resource, nanos) for resource, nanos in requests if nanos > 0 and is_extended(resource))


def _usage(requests: Iterable[tuple[str, int]]) -> Usage:
    return tuple((intern(resource), nanos) for resource, nanos in sorted(requests))


def is_extended(resource: str) -> bool:
    """Return True for an extended resource, such as a device: cpu, memory, storage and huge pages have no domain.

    Source: k8s.io/kubernetes/pkg/apis/core/v1/helper (IsExtendedResourceName), without its exceptions, which no node
    offers.
    """
    return "/" in resource


def _labels(metadata: Object) -> Mapping[str, str]:
    # Interned: thousands of namespaces have the same few labels.
    return {intern(key): intern(value) for key, value in strings(metadata.get("labels")).items()}


def _name(metadata: Object) -> str:
    name = text(metadata, "name")
    if not name:
        raise UnreadableError("metadata.name missing")
    return name
