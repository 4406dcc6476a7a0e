"""Objects of a cluster in a file, as Kubernetes' API shows them → ClusterObjects.

Unlike the dump of a cluster, a file for tests is whole: a kind without objects is not an absent one.
"""

from collections.abc import Iterable, Mapping

from rules_engine.loading.fields import items
from rules_engine.loading.kubernetes.inventory import inventory_nodes, node_object
from rules_engine.loading.kubernetes.manifests import manifest_json
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.json.lenient import Object, mapping, objects, text
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.change_times import moment, newest_change
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import FILE_KINDS, ClusterObjects


def inventory_objects(spec: MapNode, cluster: Cluster) -> ClusterObjects:
    """Return the objects of a ClusterInventory's spec, or of a RuleTest's cluster; `cluster` is built from it."""
    written = [value for item in items(spec, "objects") if isinstance(value := manifest_json(item), dict)]
    own = inventory_nodes(spec)
    nodes = [node_object(node) for node in cluster.nodes if node.name in own]
    pods = [_pod(value) for item in items(spec, "pods") if isinstance(value := manifest_json(item), dict)]
    known = {text(mapping(item.get("metadata")), "name") for item in written if item.get("kind") == "Namespace"}
    namespaces: list[dict[str, Json]] = [
        {"kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
        for name, labels in cluster.namespaces.items()
        if name not in known
    ]
    return _objects([*nodes, *pods, *namespaces, *written])


def kubectl_objects(document: Object) -> ClusterObjects:
    """Return the objects of the output of kubectl."""
    # The items of a NodeList have no kind of their own.
    default = str(document.get("kind")).removesuffix("List")
    return _objects({"kind": default, **item} for item in objects(document.get("items")))


def _pod(written: dict[str, Json]) -> dict[str, Json]:
    """Return a pod with a namespace, which every pod in a cluster has."""
    metadata = {"namespace": "default", **mapping(written.get("metadata"))}
    return {**written, "kind": "Pod", "metadata": metadata}


def _objects(found: Iterable[Mapping[str, Json]]) -> ClusterObjects:
    by_kind: dict[str, list[dict[str, Json]]] = {}
    for item in found:
        kind = text(item, "kind")
        if kind in FILE_KINDS:
            by_kind.setdefault(kind, []).append(dict(item))
    newest = ""
    for of_kind in by_kind.values():
        for raw in of_kind:
            newest = newest_change(raw, newest)
    return ClusterObjects(by_kind, now=moment(newest))
