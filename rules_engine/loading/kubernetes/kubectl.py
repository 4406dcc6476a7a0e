"""Output of `kubectl get nodes,pods,namespaces -A -o json` → Cluster.

kubectl writes it, so missing members count as absent, and invalid objects are ignored with a warning.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from rules_engine.loading.fields import list_items
from rules_engine.loading.kubernetes.inventory import driver_objects, inventory_nodes, node_object, sum_requests
from rules_engine.loading.kubernetes.manifests import manifest_json
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.json.lenient import Object, as_mapping, as_string_map, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes import cluster_objects
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.device_objects import read_devices
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.model.kubernetes.quantity import QuantityError
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location


def is_cluster(document: Json) -> TypeGuard[Object]:
    """Return True for a NodeList, or a List that contains a Node."""
    if not isinstance(document, dict):
        return False
    kind = document.get("kind")
    return kind == "NodeList" or (
        kind == "List" and any(item.get("kind") == "Node" for item in object_items(document.get("items")))
    )


def read_cluster(document: Object, location: Location, problems: Problems) -> Cluster:
    """Read the nodes, namespaces and bound pods among a List's items; all others are ignored."""
    items = object_items(document.get("items"))
    # The items of a NodeList have no kind of their own.
    default = str(document.get("kind")).removesuffix("List")
    kinds: dict[str, list[Object]] = {}
    for item in items:
        kinds.setdefault(text_member(item, "kind") or default, []).append(item)

    def unread(node: str, resource: str, error: QuantityError) -> None:
        problems.warning(Code.UNREAD_OBJECT, f"node {node}, {resource}: {error}", location)

    def unusable(_raw: Object, message: str) -> None:
        problems.warning(Code.UNREAD_OBJECT, message, location)

    nodes = [read_node(item, unread) for item in kinds.get("Node", ())]
    used = sum_requests(_bound_pods(kinds.get("Pod", ()), location, problems))
    return Cluster(
        nodes=tuple(replace(node, used=used.get(node.name, {})) for node in nodes),
        namespaces={
            text_member(metadata, "name"): as_string_map(metadata.get("labels"))
            for metadata in (as_mapping(item.get("metadata")) for item in kinds.get("Namespace", ()))
        },
        devices=read_devices(kinds, unusable),
    )


def _bound_pods(items: Sequence[Object], location: Location, problems: Problems) -> Iterator[tuple[str, Pod]]:
    for item in items:
        try:
            pod = Pod.parse(dict(item))
        except PodError as error:
            metadata = as_mapping(item.get("metadata"))
            name = f"{text_member(metadata, 'namespace')}/{text_member(metadata, 'name')}"
            problems.warning(Code.UNREAD_OBJECT, f"pod {name} is left out: {error}", location)
            continue
        # kubectl lists nodes and pods at different times, so a pod on an unlisted node is not a problem.
        if pod.node_name and not is_finished(item):
            yield pod.node_name, pod


def inventory_objects(spec: MapNode, cluster: Cluster) -> cluster_objects.ClusterObjects:
    """Return the objects of the spec of a ClusterInventory or a RuleTest's cluster; `cluster` is built from it."""
    own_objects = [value for item in list_items(spec, "objects") if isinstance(value := manifest_json(item), dict)]
    node_names = inventory_nodes(spec)
    nodes = [node_object(node) for node in cluster.nodes if node.name in node_names]
    pods = [_pod_object(value) for item in list_items(spec, "pods") if isinstance(value := manifest_json(item), dict)]
    names = {
        text_member(as_mapping(item.get("metadata")), "name") for item in own_objects if item.get("kind") == "Namespace"
    }
    namespaces: list[dict[str, Json]] = [
        {"kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
        for name, labels in cluster.namespaces.items()
        if name not in names
    ]
    return _cluster_objects([*nodes, *pods, *namespaces, *driver_objects(spec), *own_objects])


def kubectl_objects(document: Object) -> cluster_objects.ClusterObjects:
    """Return the objects of the output of kubectl."""
    # The items of a NodeList have no kind of their own.
    default = str(document.get("kind")).removesuffix("List")
    return _cluster_objects({"kind": default, **item} for item in object_items(document.get("items")))


def _pod_object(value: dict[str, Json]) -> dict[str, Json]:
    """Return a pod with its namespace, "default" if absent, as every pod of a cluster has one."""
    metadata = {"namespace": "default", **as_mapping(value.get("metadata"))}
    return {**value, "kind": "Pod", "metadata": metadata}


def _cluster_objects(items: Iterable[Mapping[str, Json]]) -> cluster_objects.ClusterObjects:
    by_kind: dict[str, list[dict[str, Json]]] = {}
    for item in items:
        kind = text_member(item, "kind")
        if kind in cluster_objects.FILE_KINDS:
            by_kind.setdefault(kind, []).append(dict(item))
    newest = ""
    for of_kind in by_kind.values():
        for raw in of_kind:
            newest = cluster_objects.newest_change_time(raw, newest)
    return cluster_objects.ClusterObjects(by_kind, now=cluster_objects.parse_change_time(newest))
