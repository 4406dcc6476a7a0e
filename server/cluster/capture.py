"""Capture of a live cluster as a ClusterInventory, reduced to the fields that decisions on GPUs depend on."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rules_engine.evaluation.nodes.reservations import Usage, is_extended_resource
from rules_engine.evaluation.rule_set.rule_set import ClusterRequirements
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.device_objects import device_objects
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.rule import API_VERSION
from server.cluster.connection import Connection
from server.cluster.live import LiveCluster

NAME = "captured"

HEADER = """\
# Written by gpu-rules capture. Of each node: cpu, memory and extended resources, labels, taints, Ready and cordon.
# Of pods: those that hold extended resources, each as one container; free cpu and memory cannot be derived from this.
# Of devices that drivers offer: the attributes that a DeviceClass selects by; of claims, the devices.
"""


class CaptureError(Exception):
    """A cluster that cannot be captured."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def capture_inventory(connection: Connection, seconds: float) -> dict[str, Json]:
    """Return the ClusterInventory of a cluster once all of it is read. Raises CaptureError at the first failure."""
    live = LiveCluster(connection, ClusterRequirements(nodes=True, pods=True, namespaces=True, devices=True))
    live.start()
    try:
        live.wait_until(lambda cluster: cluster.known or bool(live.problems), seconds)
        cluster = live.current()
        if not cluster.known or cluster.unread:
            raise CaptureError(live.problems or live.absent or [f"the cluster was not read in {seconds:g} seconds"])
        return cluster_inventory(live.raw_cluster(), live.pod_usages())
    finally:
        live.stop()


def cluster_inventory(cluster: Cluster, pod_usages: Sequence[tuple[str, str, Usage]]) -> dict[str, Json]:
    """Return the ClusterInventory; `pod_usages`: namespace/name, node and usage of each bound pod."""
    nodes = {node.name for node in cluster.nodes}
    spec: dict[str, Json] = {
        "nodes": [_node_json(node) for node in sorted(cluster.nodes, key=lambda node: node.name)],
        "namespaces": {name: dict(labels) for name, labels in sorted(cluster.namespaces.items())},
        "pods": [
            _pod_json(name, node, usage)
            for name, node, usage in pod_usages
            if node in nodes and any(is_extended_resource(resource) for resource, _ in usage)
        ],
    }
    if cluster.devices.classes:
        spec["objects"] = device_objects(cluster.devices)
    return {"apiVersion": API_VERSION, "kind": "ClusterInventory", "metadata": {"name": NAME}, "spec": spec}


def as_json(document: Mapping[str, Json]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def as_yaml(document: Mapping[str, Json]) -> str:
    """Render YAML with a line for each node, namespace and pod, so that two captures can be diffed."""
    return HEADER + "\n".join(_yaml_lines(document)) + "\n"


def _yaml_lines(document: Mapping[str, Json]) -> Iterator[str]:
    spec = document["spec"]
    for key, value in document.items():
        if key != "spec":
            yield f"{key}: {_flow_style(value)}"
    yield "spec:"
    for key, value in spec.items() if isinstance(spec, dict) else ():
        if not value:
            yield f"  {key}: {_flow_style(value)}"
        elif isinstance(value, dict):
            yield f"  {key}:"
            yield from (f"    {_flow_style(name)}: {_flow_style(member)}" for name, member in value.items())
        elif isinstance(value, list):
            yield f"  {key}:"
            yield from (f"    - {_flow_style(item)}" for item in value)


def _flow_style(value: Json) -> str:
    """Render a value on one line; JSON is YAML."""
    return json.dumps(value, ensure_ascii=False)


def _node_json(node: Node) -> dict[str, Json]:
    members: dict[str, Json] = {
        "name": node.name,
        "labels": dict(sorted(node.labels.items())),
        "taints": [
            {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}
            for taint in node.taints
        ],
        "allocatable": _amounts_json(node.allocatable.items()),
    }
    entry: dict[str, Json] = {key: value for key, value in members.items() if value}
    if not node.ready:
        entry["ready"] = False
    if node.unschedulable:
        entry["unschedulable"] = True
    return entry


def _pod_json(name: str, node: str, usage: Usage) -> dict[str, Json]:
    namespace, _, own = name.partition("/")
    requests = _amounts_json((resource, Quantity(nanos)) for resource, nanos in usage)
    container: dict[str, Json] = {"name": "all", "resources": {"requests": requests}}
    return {"metadata": {"name": own, "namespace": namespace}, "spec": {"nodeName": node, "containers": [container]}}


def _amounts_json(amounts: Iterable[tuple[str, Quantity]]) -> dict[str, Json]:
    return {
        resource: str(quantity)
        for resource, quantity in sorted(amounts)
        if resource in ("cpu", "memory") or is_extended_resource(resource)
    }
