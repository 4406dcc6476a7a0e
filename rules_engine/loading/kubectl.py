"""What `kubectl get nodes,pods,namespaces -A -o json` prints → Cluster.

It was written by a machine, so what is missing counts as absent, and what makes no sense is left out with a warning.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from rules_engine.loading.codes import Code
from rules_engine.loading.inventory import is_finished, total
from rules_engine.loading.report import Report
from rules_engine.model.cluster import Cluster, Node, Taint
from rules_engine.model.patch import Json
from rules_engine.model.pod import Pod
from rules_engine.model.quantity import Quantity, QuantityError
from rules_engine.model.reading import PodError
from rules_engine.model.source import Location

Object = Mapping[str, Json]


def is_cluster(document: Json) -> TypeGuard[Object]:
    """Whether this is a List with a Node in it, or a NodeList."""
    if not isinstance(document, dict):
        return False
    kind = document.get("kind")
    return kind == "NodeList" or (
        kind == "List" and any(item.get("kind") == "Node" for item in _objects(document.get("items")))
    )


def read_cluster(document: Object, location: Location, report: Report) -> Cluster:
    """The nodes, namespaces and bound pods among a List's items; all else is not looked at."""
    items = _objects(document.get("items"))
    # The items of a NodeList have no kind of their own.
    default = str(document.get("kind")).removesuffix("List")
    kinds: dict[str, list[Object]] = {}
    for item in items:
        kinds.setdefault(_text(item, "kind") or default, []).append(item)
    nodes = [_node(item, location, report) for item in kinds.get("Node", ())]
    used = total(_bound(kinds.get("Pod", ()), location, report))
    return Cluster(
        nodes=tuple(replace(node, used=used.get(node.name, {})) for node in nodes),
        namespaces={
            _text(metadata, "name"): _strings(metadata.get("labels"))
            for metadata in (_map(item.get("metadata")) for item in kinds.get("Namespace", ()))
        },
    )


def _node(item: Object, location: Location, report: Report) -> Node:
    metadata, spec, status = (_map(item.get(name)) for name in ("metadata", "spec", "status"))
    name = _text(metadata, "name")
    conditions = [condition for condition in _objects(status.get("conditions")) if condition.get("type") == "Ready"]
    return Node(
        name=name,
        labels=_strings(metadata.get("labels")),
        taints=tuple(
            Taint(key=_text(taint, "key"), effect=_text(taint, "effect"), value=_text(taint, "value"))
            for taint in _objects(spec.get("taints"))
        ),
        ready=all(condition.get("status") == "True" for condition in conditions),
        unschedulable=spec.get("unschedulable") is True,
        allocatable=dict(_allocatable(name, _map(status.get("allocatable")), location, report)),
    )


def _allocatable(node: str, written: Object, location: Location, report: Report) -> Iterator[tuple[str, Quantity]]:
    for resource, amount in written.items():
        try:
            yield resource, Quantity.parse(str(amount))
        except QuantityError as error:
            report.warning(Code.UNREAD_OBJECT, f"node {node}, {resource}: {error}", location)


def _bound(items: Sequence[Object], location: Location, report: Report) -> Iterator[tuple[str, Pod]]:
    for item in items:
        try:
            pod = Pod.parse(dict(item))
        except PodError as error:
            metadata = _map(item.get("metadata"))
            name = f"{_text(metadata, 'namespace')}/{_text(metadata, 'name')}"
            report.warning(Code.UNREAD_OBJECT, f"pod {name} is left out: {error}", location)
            continue
        # The list of nodes is older or younger than that of pods: a pod on none of them is nothing special.
        if pod.placement.node_name and not is_finished(pod):
            yield pod.placement.node_name, pod


def _map(value: Json) -> Object:
    return value if isinstance(value, dict) else {}


def _objects(value: Json) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Object, name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _strings(value: Json) -> dict[str, str]:
    return {key: text for key, text in _map(value).items() if isinstance(text, str)}
