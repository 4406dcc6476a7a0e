"""Inventory: the nodes, namespaces and running pods in a file → Cluster."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import msgspec.structs

from rules_engine.accelerators.mig import device_resource, layout_error
from rules_engine.cluster.devices.offers import with_device_offers
from rules_engine.cluster.devices.selectors import selector_problems
from rules_engine.cluster.read import drivers
from rules_engine.cluster.read.amounts import read_amounts, warn_of_units
from rules_engine.cluster.read.kubectl import object_kind
from rules_engine.cluster.read.manifests import manifest_json
from rules_engine.cluster.read.pods import read_pod, warn_of_values
from rules_engine.language import fields
from rules_engine.language.schemas import spelling_hint
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode, find_node
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes import shapes
from rules_engine.model.kubernetes.cluster import CLASS_KINDS, Cluster, Node, Taint, read_classes
from rules_engine.model.kubernetes.cluster_objects import API_KINDS, ClusterObjects
from rules_engine.model.kubernetes.device_objects import CLAIM_KINDS, DEVICE_KINDS, read_devices
from rules_engine.model.kubernetes.devices import Devices, NodeSelection
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, did_you_mean
from rules_engine.model.problems.source import Location, SourceText, truncate
from rules_engine.model.rules.rule_test import ObjectLoader

HOSTNAME = "kubernetes.io/hostname"
"""The label with a node's name, set by its kubelet."""

MEMBERS = {"Pod": "pods", "ResourceClaim": "resourceClaims", "ResourceClaimTemplate": "resourceClaimTemplates"}
"""The members with objects as Kubernetes' API shows them, by their kind."""


@dataclass(frozen=True, slots=True)
class NodeCopies:
    """Copies of an inventory's node, which differ only in their names."""

    count: int = 1
    scalable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """A cluster with a function that returns its objects; for kubectl's output, `name` is the file's."""

    name: str
    location: Location
    cluster: Cluster
    objects: ObjectLoader


def build_inventory(name: str, location: Location, spec: MapNode, problems: Problems) -> Inventory:
    """Read the cluster of the spec of a ClusterInventory, or of a RuleTest."""
    cluster = _build_cluster(spec, problems)
    for device_class, selector in _selector_sources(spec):
        for each in selector_problems(selector):
            message = f"a selector of DeviceClass {device_class} does not compile: {each.message}"
            problems.warning(Code.BAD_DEVICE_SELECTOR, message, each)
    objects = cache(lambda: _inventory_objects(spec, cluster))
    offered = with_device_offers(cluster) if cluster.devices.classes else cluster
    return Inventory(name=name, location=location, cluster=offered, objects=objects)


def _build_cluster(spec: MapNode, problems: Problems) -> Cluster:
    objects = _objects_by_kind(spec, problems)
    nodes = _read_nodes(spec, objects.get("Node", ()), problems)
    used = _usage_by_node(spec, objects.get("Pod", ()), nodes, problems)
    metadata = [fields.map_field(item, "metadata") for item in objects.get("Namespace", ())]
    namespaces = {fields.string_field(item, "name"): fields.string_map(item, "labels") for item in metadata}
    written = fields.map_field(spec, "namespaces")
    return Cluster(
        nodes=tuple(replace(node, used=used.get(node.name, {})) for node in nodes.values()),
        namespaces=namespaces | {key.source.text: fields.string_map(written, key.source.text) for key, _ in written},
        devices=_read_devices(spec, objects, problems),
        classes=read_classes(
            {kind: [as_mapping(manifest_json(item)) for item in objects.get(kind, ())] for kind in CLASS_KINDS}
        ),
    )


def _read_devices(spec: MapNode, objects: Mapping[str, Sequence[MapNode]], problems: Problems) -> Devices:
    items: dict[str, list[Object]] = {kind: [] for kind in DEVICE_KINDS}
    places: dict[int, MapNode] = {}

    def add(kind: str, raw: Object, place: MapNode) -> None:
        items[kind].append(raw)
        places[id(raw)] = place

    for kind in DEVICE_KINDS:
        for item in objects.get(kind, ()):
            add(kind, as_mapping(manifest_json(item)), item)
    for kind in CLAIM_KINDS:
        for item, raw in _objects_of_member(spec, kind):
            add(kind, raw, item)
    for item in fields.map_items(spec, "deviceClasses"):
        add("DeviceClass", drivers.device_class_object(item), item)
    names: dict[str, Sequence[str]] = {}
    for entry in fields.map_items(spec, "nodes"):
        specs = drivers.slice_specs(entry, problems)
        nodes = [*_node_names(entry)]
        for raw in drivers.slice_objects(specs, nodes[0]) if nodes else ():
            add("ResourceSlice", raw, entry)
            names[text_member(as_mapping(raw["metadata"]), "name")] = nodes

    def unusable(raw: Object, message: str) -> None:
        place = places[id(raw)]
        problems.warning(Code.UNREAD_OBJECT, message, place)

    devices = read_devices(items, unusable)
    # Only the slices of an entry's first node are read: devices of thousands of equal nodes are the same values.
    copies = [
        msgspec.structs.replace(each, name=each.name.removesuffix(first) + name, pool=name, nodes=NodeSelection(name))
        for each in devices.slices
        for first, *others in (names.get(each.name, ("",)),)
        for name in others
    ]
    written = {kind for kind, member in MEMBERS.items() if spec.get(member) is not None}
    unread = {API_KINDS[kind].resource: "" for kind in CLAIM_KINDS - written if not items[kind]}
    return msgspec.structs.replace(devices, slices=(*devices.slices, *copies), unread=unread)


def _objects_of_member(spec: MapNode, kind: str) -> Iterator[tuple[MapNode, dict[str, Json]]]:
    """Yield the items of the member of a kind, and the objects that they stand for, each in a namespace."""
    for item in fields.map_items(spec, MEMBERS[kind]):
        raw = as_mapping(manifest_json(item))
        yield item, {**raw, "kind": kind, "metadata": {"namespace": "default", **as_mapping(raw.get("metadata"))}}


def _inventory_objects(spec: MapNode, cluster: Cluster) -> ClusterObjects:
    """Return the objects of a spec, from which `cluster` is built."""
    own_objects = [{**as_mapping(manifest_json(item))} for item in fields.map_items(spec, "objects")]
    entries = fields.map_items(spec, "nodes")
    names = {name for entry in entries for name in _existing_names(entry)}
    listed = {
        text_member(as_mapping(item.get("metadata")), "name") for item in own_objects if item.get("kind") == "Namespace"
    }
    namespaces: list[dict[str, Json]] = [
        {"kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
        for name, labels in cluster.namespaces.items()
        if name not in listed
    ]
    classes = map(drivers.device_class_object, fields.map_items(spec, "deviceClasses"))
    slices = (
        each
        for entry in entries
        for specs in (drivers.slice_specs(entry, Problems()),)
        for name in _existing_names(entry)
        for each in drivers.slice_objects(specs, name)
    )
    nodes = (node_object(node) for node in cluster.nodes if node.name in names)
    by_kind: dict[str, list[dict[str, Json]]] = {
        kind: [raw for _, raw in _objects_of_member(spec, kind)]
        for kind, member in MEMBERS.items()
        if spec.get(member) is not None
    }
    for item in (*nodes, *namespaces, *classes, *slices, *own_objects):
        by_kind.setdefault(object_kind(item), []).append(item)
    declared = tuple(node for node in cluster.nodes if node.scalable and node.name not in names)
    return ClusterObjects(by_kind, absent=CLAIM_KINDS - by_kind.keys(), declared=declared)


def _selector_sources(spec: MapNode) -> Iterator[tuple[str, SourceText]]:
    """Yield the name of each DeviceClass and each of its selectors, as written."""
    for item in fields.map_items(spec, "deviceClasses"):
        name = fields.string_field(item, "name")
        selectors = fields.list_items(item, "selectors")
        yield from ((name, each.source) for each in selectors if isinstance(each, ScalarNode))
    for item in fields.map_items(spec, "objects"):
        if fields.string_field(item, "kind") == "DeviceClass":
            name = fields.string_field(fields.map_field(item, "metadata"), "name")
            cel = [
                fields.map_field(each, "cel") for each in fields.map_items(fields.map_field(item, "spec"), "selectors")
            ]
            sources = [fields.source_field(each, "expression") for each in cel]
            yield from ((name, source) for source in sources if source is not None)


def node_object(node: Node) -> dict[str, Json]:
    """Return a node as the Kubernetes API returns it."""
    amounts_of: dict[str, Json] = {name: str(amount) for name, amount in node.allocatable.items()}
    taints: list[Json] = [
        {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}
        for taint in node.taints
    ]
    ready: dict[str, Json] = {"type": "Ready", "status": str(node.ready)}
    return {
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {**({"taints": taints} if taints else {}), **({"unschedulable": True} if node.unschedulable else {})},
        "status": {"capacity": amounts_of, "allocatable": amounts_of, "conditions": [ready]},
    }


def _objects_by_kind(spec: MapNode, problems: Problems) -> Mapping[str, Sequence[MapNode]]:
    """Return the objects by kind; warn of fields that their kind does not have."""
    by_kind: dict[str, list[MapNode]] = {}
    for item in fields.map_items(spec, "objects"):
        kind = object_kind(as_mapping(manifest_json(item)))
        if kind not in API_KINDS:
            place = item.get("kind") or item
            message = f"no object of the kind '{truncate(kind)}' is read{spelling_hint(kind, API_KINDS)}"
            problems.error(Code.UNKNOWN_KIND, message, place)
            continue
        by_kind.setdefault(kind, []).append(item)
        if shapes.has_shape(kind):
            warn_of_values(item, kind, problems)
    return by_kind


def _read_nodes(spec: MapNode, objects: Sequence[MapNode], problems: Problems) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    places: dict[str, Location] = {}
    for entry in fields.map_items(spec, "nodes"):
        place = entry.get("name") or entry
        template = _node_template(entry, problems)
        for name in _node_names(entry):
            if name in nodes:
                message = f"node '{name}' is already defined in line {places[name].line}"
                problems.error(Code.DUPLICATE_NODE, message, place)
                break
            nodes[name] = replace(template, name=name, labels={HOSTNAME: name, **template.labels})
            places[name] = place.location
    for item in objects:
        place = fields.map_field(item, "metadata").get("name") or item

        def unread(_node: str, resource: str, error: QuantityError, place: YamlNode = place) -> None:
            problems.error(Code.BAD_QUANTITY, f"{resource}: {error}", place)

        node = read_node(as_mapping(manifest_json(item)), unread)
        if node.name in nodes:
            message = f"node '{node.name}' is already defined in line {places[node.name].line}"
            problems.error(Code.DUPLICATE_NODE, message, place)
        nodes[node.name] = node
        places[node.name] = place.location
    return nodes


def _node_names(entry: MapNode) -> Iterator[str]:
    yield from _existing_names(entry)
    if NodeCopies(**fields.scalar_arguments(entry, NodeCopies)).scalable:
        # Nothing runs on a node that an autoscaler has not created yet.
        yield f"{fields.string_field(entry, 'name')}-new"


def _existing_names(entry: MapNode) -> Sequence[str]:
    name, count = fields.string_field(entry, "name"), NodeCopies(**fields.scalar_arguments(entry, NodeCopies)).count
    return (name,) if count == 1 else [f"{name}-{index}" for index in range(1, count + 1)]


def _node_template(entry: MapNode, problems: Problems) -> Node:
    allocatable = read_amounts(entry, "allocatable", problems)
    warn_of_units(entry, "allocatable", allocatable, problems)
    impossible = layout_error(tuple(fields.string_items(entry, "migDevices")))
    if impossible:
        key = entry.key("migDevices") or entry
        problems.warning(Code.IMPOSSIBLE_MIG, impossible, key)
    for resource, count in _device_amounts(entry).items():
        amount = allocatable.setdefault(resource, count)
        if amount != count:
            place = fields.map_field(entry, "allocatable").get(resource) or entry
            message = f"cards and migDevices give {count} of {resource}, not {amount}"
            problems.error(Code.ALLOCATABLE_CONFLICT, message, place)
    return Node(
        name="",
        labels=fields.string_map(entry, "labels"),
        taints=tuple(
            Taint(
                key=fields.string_field(taint, "key"),
                effect=fields.string_field(taint, "effect"),
                **fields.scalar_arguments(taint, Taint),
            )
            for taint in fields.map_items(entry, "taints")
        ),
        allocatable=allocatable,
        **fields.scalar_arguments(entry, Node),
    )


def _device_amounts(entry: MapNode) -> Mapping[str, Quantity]:
    """Return the resources of cards and their MIG devices; a profile's "+" is a "." in its resource name."""
    if entry.get("cards") is None and entry.get("migDevices") is None:
        return {}
    cards = fields.int_field(entry, "cards")
    cards = 1 if cards is None else cards
    profiles = Counter(fields.string_items(entry, "migDevices"))
    if not profiles:
        return {"nvidia.com/gpu": Quantity.of(cards)}
    return {device_resource(profile): Quantity.of(cards * count) for profile, count in profiles.items()}


def _usage_by_node(
    spec: MapNode, objects: Sequence[MapNode], nodes: Mapping[str, Node], problems: Problems
) -> dict[str, dict[str, Quantity]]:
    bound = [_bound_pod(item, nodes, problems) for item in fields.list_items(spec, "pods")]
    # Objects come from a cluster, where a pod may be pending or on a deleted node; neither is a mistake.
    pods = [read_pod(manifest_json(item), item, problems) for item in objects]
    bound += [pod for pod in pods if pod is not None and pod.node_name in nodes and not is_finished(pod.original)]
    used: dict[str, dict[str, Quantity]] = {}
    for pod in (pod for pod in bound if pod is not None):
        sums = used.setdefault(pod.node_name, {})
        for resource, nanos in pod.effective_requests().items():
            sums[resource] = Quantity(sums.get(resource, Quantity(0)).nanos + nanos)
    return used


def _bound_pod(root: YamlNode, nodes: Mapping[str, Node], problems: Problems) -> Pod | None:
    """Return a pod that uses resources of a node; None for others, with a problem if its node is missing or unknown."""
    pod = read_pod(manifest_json(root), root, problems)
    if pod is None:
        return None
    warn_of_values(root, "Pod", problems)
    node = pod.node_name
    if node in nodes:
        return None if is_finished(pod.original) else pod
    place = find_node(root, ("spec", "nodeName"))
    if node:
        problems.error(Code.UNKNOWN_NODE, f"node '{truncate(node)}' not found{did_you_mean(node, nodes)}", place)
    else:
        problems.warning(Code.UNBOUND_POD, "without spec.nodeName the pod is ignored", place)
    return None
