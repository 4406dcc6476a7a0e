"""Cluster built from its objects one by one: nodes, labels of namespaces, and the amounts that pods use."""

from collections import Counter
from collections.abc import Sized
from dataclasses import replace

from rules_engine.devices.offers import with_device_offers
from rules_engine.difference.reading.views import amounts_held_by, extended_claim
from rules_engine.model.json.lenient import Object, as_mapping, as_string_map, text_member
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.device_objects import SliceReader, read_allocated, read_device_class
from rules_engine.model.kubernetes.devices import DeviceClass, DeviceKey, Devices, ResourceSlice
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError

MAX_NODES = 100_000
"""Largest number of nodes, and of namespaces: twenty times the largest cluster that Kubernetes supports."""

MAX_ENTRIES = 1_000_000
"""Labels, taints and amounts of all nodes and namespaces together: 5,000 nodes have 500,000.

If all differ, each takes some 140 bytes, and as many again in each process that reads it.
"""

MAX_DEVICES = 4_000_000
"""Devices of drivers, with partitions: 5,000 nodes with eight cards have a million. Equal devices are one value."""


class ClusterUsage:
    """The objects that rules read of a cluster. `counted`: the uids of its pods that have not finished.

    `too_many`: some objects were left out, beyond MAX_NODES nodes or namespaces or MAX_ENTRIES entries of them.
    `too_many_devices`: the same beyond MAX_DEVICES. `claims`: the allocated devices by namespace and name of the claim.
    `lacks_classes`: drivers allocated devices for extended resources of pods, but no DeviceClass was read.
    `other`: the name of two different nodes, or "".
    """

    def __init__(self) -> None:
        self.counted = set[str]()
        self.too_many = False
        self._entries = 0
        self.duplicate_node = ""
        self._nodes: dict[str, Node] = {}
        self._node_uids: dict[str, str] = {}
        self._namespaces: dict[str, dict[str, str]] = {}
        self._used: dict[str, Counter[str]] = {}
        self._namespaces_read = False
        self.too_many_devices = False
        self.claims: dict[tuple[str, str], tuple[DeviceKey, ...]] = {}
        self._classes: list[DeviceClass] = []
        self._allocated: dict[DeviceKey, bool] = {}
        self._slices: list[ResourceSlice] = []
        self._devices = 0
        self._served_pods = False

    def take(self, item: Object) -> bool:
        """Take an object; other kinds are ignored. Return False for a pod that was taken before."""
        kind, metadata = text_member(item, "kind"), as_mapping(item.get("metadata"))
        if kind == "Node":
            node = read_node(item, _ignore_amount)
            if self._has_room(self._nodes, len(node.labels) + len(node.taints) + len(node.allocatable)):
                uid = text_member(metadata, "uid")
                if self._node_uids.setdefault(node.name, uid) != uid:
                    self.duplicate_node = node.name
                self._nodes[node.name] = node
        elif kind == "Namespace":
            self._namespaces_read = True
            labels = as_string_map(metadata.get("labels"))
            if self._has_room(self._namespaces, len(labels)):
                self._namespaces[text_member(metadata, "name")] = labels
        elif kind == "DeviceClass":
            self._classes.append(read_device_class(item))
        elif kind == "ResourceClaim":
            allocated = dict(read_allocated(item))
            self._allocated |= allocated
            if allocated:
                self.claims[text_member(metadata, "namespace"), text_member(metadata, "name")] = tuple(allocated)
        elif kind == "Pod" and not is_finished(item):
            self._served_pods |= bool(extended_claim(item))
            return self._take_pod(item, text_member(metadata, "uid"))
        return True

    @property
    def lacks_classes(self) -> bool:
        return self._served_pods and bool(self._nodes) and not self._classes

    def slice_reader(self) -> SliceReader | None:
        """Return the reader of the cluster's slices, once all other objects are taken; None if they do not matter."""
        return SliceReader(self._classes) if self._classes else None

    def add_slice(self, resource_slice: ResourceSlice) -> None:
        self._devices += len(resource_slice.devices)
        if self._devices > MAX_DEVICES:
            self.too_many_devices = True
        else:
            self._slices.append(resource_slice)

    def _has_room(self, kept: Sized, entries: int) -> bool:
        """Count the entries of an object if there is room for it."""
        if len(kept) >= MAX_NODES or self._entries + entries > MAX_ENTRIES:
            self.too_many = True
            return False
        self._entries += entries
        return True

    def _take_pod(self, pod: Object, uid: str) -> bool:
        if uid in self.counted:
            return False
        self.counted.add(uid)
        node = text_member(as_mapping(pod.get("spec")), "nodeName")
        if node:
            used = self._used.setdefault(node, Counter())
            for resource, nanos in amounts_held_by(pod).items():
                used[resource] += nanos
        return True

    @property
    def cluster(self) -> Cluster | None:
        """The cluster; None if no node was read. If no Namespace was read, their labels are unknown."""
        if not self._nodes:
            return None
        cluster = Cluster(
            nodes=tuple(replace(node, used=self._used_on(node.name)) for node in self._nodes.values()),
            namespaces=self._namespaces,
            namespaces_complete=self._namespaces_read,
            devices=Devices(classes=tuple(self._classes), slices=tuple(self._slices), allocated=self._allocated),
        )
        return with_device_offers(cluster) if self._classes else cluster

    def _used_on(self, node: str) -> dict[str, Quantity]:
        return {resource: Quantity(nanos) for resource, nanos in self._used.get(node, Counter()).items()}


def _ignore_amount(_node: str, _resource: str, _error: QuantityError) -> None:
    """Leave out an amount that is malformed: the API server writes none."""
