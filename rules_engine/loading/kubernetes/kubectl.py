"""Output of `kubectl get nodes,pods,namespaces -A -o json` → Cluster.

It is machine-written, so missing members count as absent, and invalid objects are left out with a warning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from rules_engine.loading.kubernetes.inventory import total
from rules_engine.model.json.lenient import Object, mapping, objects, strings, text
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.model.kubernetes.quantity import QuantityError
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problems import Problems
from rules_engine.model.problems.source import Location


def is_cluster(document: Json) -> TypeGuard[Object]:
    """Return True for a List with a Node in it, or a NodeList."""
    if not isinstance(document, dict):
        return False
    kind = document.get("kind")
    return kind == "NodeList" or (
        kind == "List" and any(item.get("kind") == "Node" for item in objects(document.get("items")))
    )


def read_cluster(document: Object, location: Location, problems: Problems) -> Cluster:
    """Read the nodes, namespaces and bound pods among a List's items; all others are ignored."""
    items = objects(document.get("items"))
    # The items of a NodeList have no kind of their own.
    default = str(document.get("kind")).removesuffix("List")
    kinds: dict[str, list[Object]] = {}
    for item in items:
        kinds.setdefault(text(item, "kind") or default, []).append(item)

    def unread(node: str, resource: str, error: QuantityError) -> None:
        problems.warning(Code.UNREAD_OBJECT, f"node {node}, {resource}: {error}", location)

    nodes = [read_node(item, unread) for item in kinds.get("Node", ())]
    used = total(_bound(kinds.get("Pod", ()), location, problems))
    return Cluster(
        nodes=tuple(replace(node, used=used.get(node.name, {})) for node in nodes),
        namespaces={
            text(metadata, "name"): strings(metadata.get("labels"))
            for metadata in (mapping(item.get("metadata")) for item in kinds.get("Namespace", ()))
        },
    )


def _bound(items: Sequence[Object], location: Location, problems: Problems) -> Iterator[tuple[str, Pod]]:
    for item in items:
        try:
            pod = Pod.parse(dict(item))
        except PodError as error:
            metadata = mapping(item.get("metadata"))
            name = f"{text(metadata, 'namespace')}/{text(metadata, 'name')}"
            problems.warning(Code.UNREAD_OBJECT, f"pod {name} is left out: {error}", location)
            continue
        # The list of nodes is older or newer than that of pods: a pod on none of them is not a problem.
        if pod.node_name and not is_finished(item):
            yield pod.node_name, pod
