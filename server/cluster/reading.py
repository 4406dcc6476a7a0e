"""Nodes, pods and namespaces as the API writes them → the little that decisions need.

What is missing counts as absent, and what makes no sense as missing: one odd object must not hide all others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from sys import intern

from rules_engine.model.cluster import Node, Taint
from rules_engine.model.json.lenient import Object, mapping, objects, strings, text
from rules_engine.model.json.strict import PodError
from rules_engine.model.pod import Pod
from rules_engine.model.quantity import Quantity, QuantityError

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that hold nothing any more. A pod that is being deleted holds its devices to the end."""


MAX_RESOURCES = 64
"""Resources of a pod that holds some: no node offers more. Anybody can bind a pod of 20,000 made-up names to a node, or
to one that does not exist, and what pods hold is kept in memory."""


class UnreadableError(ValueError):
    """An object that cannot be read at all."""


@dataclass(frozen=True, slots=True, order=True)
class PodKey:
    """Which pod: `name` is namespace/name, which may be given again; a uid never is."""

    name: str
    uid: str

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]


Usage = tuple[tuple[str, int], ...]
"""What a pod requests: nanos by resource, in order of name. Pods that are alike share one."""


@dataclass(frozen=True, slots=True)
class HeldPod:
    """What a pod holds: `node` is "" while it is not bound or once it has finished, `usage` is then empty."""

    key: PodKey
    node: str
    usage: Usage
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace's labels."""

    name: str
    labels: Mapping[str, str]


def read_node(raw: Object) -> Node:
    """A node with nothing in use. Raises UnreadableError."""
    metadata, spec, status = (mapping(raw.get(name)) for name in ("metadata", "spec", "status"))
    return Node(
        name=_name(metadata),
        labels=_labels(metadata),
        taints=tuple(
            Taint(key=text(taint, "key"), effect=text(taint, "effect"), value=text(taint, "value"))
            for taint in objects(spec.get("taints"))
        ),
        ready=all(
            condition.get("status") == "True"
            for condition in objects(status.get("conditions"))
            if condition.get("type") == "Ready"
        ),
        unschedulable=spec.get("unschedulable") is True,
        allocatable=dict(_amounts(mapping(status.get("allocatable")))),
    )


def read_namespace(raw: Object) -> Namespace:
    """Raises UnreadableError."""
    metadata = mapping(raw.get("metadata"))
    return Namespace(_name(metadata), _labels(metadata))


def read_pod(raw: Object) -> HeldPod:
    """Raises UnreadableError, also for requests that cannot be read: what it holds is not known then."""
    metadata = mapping(raw.get("metadata"))
    key = PodKey(f"{text(metadata, 'namespace')}/{_name(metadata)}", text(metadata, "uid"))
    finished = text(mapping(raw.get("status")), "phase") in FINISHED
    node = text(mapping(raw.get("spec")), "nodeName")
    if finished or not node:
        return HeldPod(key, "", (), finished)
    try:
        pod = Pod.parse(dict(raw))
    except PodError as error:
        # What it says there is the pod's, and not for a log.
        raise UnreadableError(f"{key.name}: {error.path} cannot be read") from None
    held = usage(pod)
    if len(held) > MAX_RESOURCES:
        raise UnreadableError(f"{key.name}: it names more than {MAX_RESOURCES} resources")
    return HeldPod(key, intern(node), held)


def usage(pod: Pod) -> Usage:
    """What the scheduler counts for a pod."""
    return _usage(pod.effective_requests().items())


def devices(pod: Pod) -> Usage:
    """What the scheduler counts of extended resources, as far as the pod needs some."""
    requests = pod.effective_requests().items()
    return _usage((resource, nanos) for resource, nanos in requests if nanos > 0 and is_extended(resource))


def _usage(requests: Iterable[tuple[str, int]]) -> Usage:
    return tuple((intern(resource), nanos) for resource, nanos in sorted(requests))


def is_extended(resource: str) -> bool:
    """Whether it is a device, say: cpu, memory, storage and huge pages have no domain.

    Source: k8s.io/kubernetes/pkg/apis/core/v1/helper (IsExtendedResourceName), without its exceptions, which no node
    gives.
    """
    return "/" in resource


def _amounts(written: Object) -> Iterator[tuple[str, Quantity]]:
    for resource, amount in written.items():
        if isinstance(amount, str | int | float) and not isinstance(amount, bool):
            try:
                yield intern(resource), Quantity.parse(str(amount))
            except QuantityError:
                continue


def _labels(metadata: Object) -> Mapping[str, str]:
    # Thousands of nodes say the same few things: each text is kept once.
    return {intern(key): intern(value) for key, value in strings(metadata.get("labels")).items()}


def _name(metadata: Object) -> str:
    name = text(metadata, "name")
    if not name:
        raise UnreadableError("an object without a name")
    return name
