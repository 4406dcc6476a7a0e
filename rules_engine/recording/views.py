"""Recorded views of a cluster: classes of equal nodes, in lines of bounded length."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec.json import encode

from rules_engine.evaluation.rule_set.rule_set import ClusterRequirements, RuleSet, cluster_requirements
from rules_engine.model.json.lenient import as_list, as_mapping, as_string_map, object_items, string_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Freshness, Node, Served, Taint
from rules_engine.model.kubernetes.devices import MAX_CLAIM_DEVICES, Spend, too_many_devices
from rules_engine.model.kubernetes.quantity import NANOS, Quantity

HOSTNAME = "kubernetes.io/hostname"
"""The label with a node's name, set by its kubelet."""

MAX_VIEW_BYTES = 4 * 1024 * 1024
"""Bytes of a view: 5,000 nodes in a hundred classes take 300 kB, most of it their names."""

MAX_VALUES = 64
"""Largest number of values with which a label is always recorded: zones, racks, and nodes of a small cluster."""

MAX_NODES = 100_000
"""Nodes of a view that is read, twenty times as many as Kubernetes supports: a few bytes of a line make one node."""

MAX_LABELS = 2_000_000
"""Labels of all nodes of a view that is read, some 50 bytes each: a class has them once, and each node gets a copy."""

Members: TypeAlias = dict[str, Json]
Amounts: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFields:
    """The parts of a cluster that rules read. `resources`: the native resources that they read; None: all.

    `labels`: keys of labels by which the rules themselves select nodes; pods may select nodes by any key. `omitted`:
    keys of labels of nodes that a view omits.
    """

    reads: ClusterRequirements
    resources: frozenset[str] | None
    labels: frozenset[str] = frozenset()
    omitted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, rule_set: RuleSet) -> "ViewFields":
        rules = rule_set.rules
        # An expression that reads the cluster may read a resource whose name is in the pod.
        any_name = any("cluster" in program.reads for rule in rules for program in (*rule.programs, *rule.messages))
        resources = frozenset(name for rule in rules for name in rule.rule.interests.resources or ())
        labels = frozenset(name for rule in rules for name in rule.rule.interests.node_labels)
        return cls(reads=cluster_requirements(rule_set), resources=None if any_name else resources, labels=labels)

    @classmethod
    def parse(cls, members: Mapping[str, Json]) -> "ViewFields":
        """Read the members of `to_json`."""
        names = frozenset(string_items(members.get("reads")))
        resources = members.get("resources", [])
        return cls(
            reads=ClusterRequirements(devices="nodes" in names, **{name: name in names for name in _COLLECTIONS}),
            resources=None if resources is None else frozenset(string_items(resources)),
            omitted=frozenset(string_items(members.get("omittedLabels"))),
        )

    def to_json(self) -> Members:
        return {
            "reads": [name for name in _COLLECTIONS if getattr(self.reads, name)],
            "resources": None if self.resources is None else [*sorted(self.resources)],
        }

    def missing(self, read: "ViewFields") -> Iterator[str]:
        """Yield the parts of a cluster that other rules read (`read`) and that views with these fields may lack."""
        yield from (
            meaning for name, meaning in _COLLECTIONS.items() if getattr(read.reads, name) > getattr(self.reads, name)
        )
        if self.resources is not None and read.reads.nodes and read.resources != self.resources:
            if read.resources is None:
                yield "amounts of any resource of nodes"
            else:
                native = sorted(name for name in read.resources - self.resources if "/" not in name)
                yield from (f"amounts of {name} of nodes" for name in native)
        yield from (f"the label {name} of nodes" for name in sorted(read.labels & self.omitted))

    def amounts(self, quantities: Mapping[str, Quantity]) -> Amounts:
        """Return the amounts that are recorded.

        Native resources, such as memory, are recorded only if rules read them: they differ between similar nodes.
        """
        native = self.resources
        return tuple(
            sorted(
                (name, str(amount))
                for name, amount in quantities.items()
                if native is None or "/" in name or name in native
            )
        )


@dataclass(frozen=True, slots=True)
class RecordedService:
    """The amounts that drivers offered on a node; which of them fit together was not recorded.

    `simple`: the amounts of single resources say all.
    """

    node: Node
    resources: frozenset[str]
    simple: bool

    def shape(self, *, free: bool) -> Hashable:
        return self.simple, self.resources, *(self._amount(name, free=free) for name in sorted(self.resources))

    def serve(self, counts: Mapping[str, int], spend: Spend, *, free: bool) -> Served:
        del spend
        if sum(counts.values()) > MAX_CLAIM_DEVICES:
            return Served.GIVEN_UP
        if not self.simple:
            return Served.UNKNOWN
        if any(count * NANOS > self._amount(name, free=free) for name, count in counts.items()):
            return Served.NO
        return Served.YES if len(counts) == 1 else Served.UNKNOWN

    def failure(self, counts: Mapping[str, int], *, free: bool) -> str:
        del free
        return too_many_devices(counts)

    def _amount(self, resource: str, *, free: bool) -> int:
        if free:
            return self.node.available(resource).nanos
        amount = self.node.allocatable.get(resource)
        return amount.nanos if amount is not None else 0


_COLLECTIONS = {"nodes": "nodes", "pods": "amounts in use", "namespaces": "labels of namespaces"}
"""Collections that rules read, each with the name of its recorded part. Nodes are recorded with what drivers offer."""


def view_parts(cluster: Cluster, fields: ViewFields, max_part_bytes: int) -> list[Members] | None:
    """Return the parts of a view, each with at most about `max_part_bytes` of JSON; None if it is too large."""
    first: Members = {"freshness": cluster.freshness.value, **fields.to_json()}
    if cluster.namespaces_complete:
        first["namespacesComplete"] = True
    if cluster.unread:
        first["unread"] = [*sorted(cluster.unread)]
    omitted = _nearly_unique_keys(cluster.nodes) - fields.labels if fields.reads.nodes else frozenset[str]()
    if omitted:
        first["omittedLabels"] = [*sorted(omitted)]
    parts = [first]
    nodes: list[Json] = []
    namespaces: Members = {}
    size = total = len(encode(first))
    for item, length in _view_items(cluster, fields, omitted, max_part_bytes):
        total += length
        if length > max_part_bytes or total > MAX_VIEW_BYTES:
            return None
        if size + length > max_part_bytes:
            parts.append({})
            nodes, namespaces, size = [], {}, 0
        size += length
        if "names" in item:
            nodes.append(item)
            parts[-1]["nodes"] = nodes
        else:
            namespaces[str(item["namespace"])] = item["labels"]
            parts[-1]["namespaces"] = namespaces
    return parts


class ViewSizeError(Exception):
    """A view has more than MAX_NODES nodes, or than MAX_LABELS labels."""


def read_view(parts: Iterable[Mapping[str, Json]]) -> Cluster:
    """Read the view in these parts. Raises QuantityError for a malformed amount, and ViewSizeError."""
    nodes: list[Node] = []
    namespaces: dict[str, Mapping[str, str]] = {}
    copies = 0
    freshness, complete, unread = Freshness.NEVER, False, frozenset[str]()
    for part in parts:
        if "freshness" in part:
            freshness = _FRESHNESS.get(text_member(part, "freshness"), Freshness.NEVER)
            complete = part.get("namespacesComplete") is True
            unread = frozenset(string_items(part.get("unread")))
        for node_class in object_items(part.get("nodes")):
            for node in _read_class(node_class):
                nodes.append(node)
                copies += len(node.labels)
                if len(nodes) > MAX_NODES or copies > MAX_LABELS:
                    raise ViewSizeError
        for name, labels in as_mapping(part.get("namespaces")).items():
            namespaces[name] = as_string_map(labels)
    cluster = Cluster(nodes=tuple(nodes), namespaces=namespaces, namespaces_complete=complete)
    return cluster.marked(freshness, unread)


_FRESHNESS = {freshness.value: freshness for freshness in Freshness}


def _view_items(
    cluster: Cluster, fields: ViewFields, omitted: Set[str], max_bytes: int
) -> Iterator[tuple[Members, int]]:
    """Yield classes of nodes, and namespaces, each with the size of its JSON in bytes."""
    if fields.reads.nodes:
        for node_class, names in _node_classes(cluster.nodes, fields, omitted):
            class_size = len(encode(node_class)) + len('"names":[],')
            chunk: list[Json] = []
            size = class_size
            for name in names:
                length = len(encode(name)) + 1
                if chunk and size + length > max_bytes:
                    yield {"names": chunk, **node_class}, size
                    chunk, size = [], class_size
                chunk.append(name)
                size += length
            yield {"names": chunk, **node_class}, size
    if fields.reads.namespaces:
        for name, labels in cluster.namespaces.items():
            item: Members = {"namespace": name, "labels": dict(labels)}
            yield item, len(encode(item))


def _nearly_unique_keys(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the keys of labels whose values differ on most nodes, such as times and names of machines."""
    values: dict[str, set[str]] = {}
    for node in nodes:
        has_hostname = node.labels.get(HOSTNAME) == node.name
        for key, value in node.labels.items():
            if not (has_hostname and key == HOSTNAME):
                values.setdefault(key, set()).add(value)
    least = max(MAX_VALUES, len(nodes) // 2)
    return frozenset(key for key, distinct in values.items() if len(distinct) > least)


def _node_classes(nodes: Sequence[Node], fields: ViewFields, omitted: Set[str]) -> Iterator[tuple[Members, list[str]]]:
    """Yield each class of nodes that differ only in their names, and the names."""
    classes: dict[tuple[Hashable, ...], tuple[Members, list[str]]] = {}
    for node in nodes:
        labels = node.labels
        has_hostname = labels.get(HOSTNAME) == node.name
        if has_hostname or omitted:
            labels = {
                key: value
                for key, value in labels.items()
                if not (has_hostname and key == HOSTNAME) and key not in omitted
            }
        used = fields.amounts(node.used) if fields.reads.pods else ()
        amounts = fields.amounts(node.allocatable)
        drivers = (node.service.resources, node.service.simple) if node.service else ()
        key: tuple[Hashable, ...] = (
            frozenset(labels.items()),
            node.taints,
            node.ready,
            node.unschedulable,
            amounts,
            used,
            has_hostname,
            drivers,
        )
        if key not in classes:
            classes[key] = _class_members(node, labels, amounts, used, has_hostname=has_hostname), []
        classes[key][1].append(node.name)
    yield from classes.values()


def _class_members(
    node: Node, labels: Mapping[str, str], amounts: Amounts, used: Amounts, *, has_hostname: bool
) -> Members:
    """Return the JSON of the class of a node, without names and empty members.

    `has_hostname`: its label HOSTNAME is its name, so that readers of the class can restore the label.
    """
    members: Members = {
        "labels": dict(labels),
        "taints": [_taint_members(taint) for taint in node.taints],
        "allocatable": dict(amounts),
        "used": dict(used),
    }
    members = {name: value for name, value in members.items() if value}
    if not node.ready:
        members["ready"] = False
    if node.unschedulable:
        members["unschedulable"] = True
    if has_hostname:
        members["hostnames"] = True
    if node.service:
        members["served"] = [*sorted(node.service.resources)]
        if not node.service.simple:
            members["uncertain"] = True
    return members


def _taint_members(taint: Taint) -> Members:
    value: Members = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, "effect": taint.effect, **value}


def _read_class(members: Mapping[str, Json]) -> Iterator[Node]:
    labels = as_string_map(members.get("labels"))
    node = Node(
        name="",
        labels=labels,
        taints=tuple(
            Taint(key=text_member(taint, "key"), effect=text_member(taint, "effect"), value=text_member(taint, "value"))
            for taint in object_items(members.get("taints"))
        ),
        ready=members.get("ready") is not False,
        unschedulable=members.get("unschedulable") is True,
        allocatable=_parse_quantities(members.get("allocatable")),
        used=_parse_quantities(members.get("used")),
    )
    served = frozenset(string_items(members.get("served")))
    if served:
        node = replace(node, service=RecordedService(node, served, members.get("uncertain") is not True))
    for name in as_list(members.get("names")):
        if isinstance(name, str):
            own = {**labels, HOSTNAME: name} if members.get("hostnames") is True else labels
            yield replace(node, name=name, labels=own)


def _parse_quantities(amounts: Json) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in as_string_map(amounts).items()}
