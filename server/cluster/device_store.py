"""The devices of drivers in a live cluster, and the nodes whose offers change with them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from rules_engine.cluster.devices.offers import DeviceOffers
from rules_engine.cluster.devices.pools import reaches
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.device_objects import SliceReader
from rules_engine.model.kubernetes.devices import (
    NO_DEVICES,
    Claim,
    ClaimSpec,
    DeviceClass,
    Devices,
    DeviceTaintRule,
    NodeSelection,
    PoolKey,
    ResourceSlice,
    uses_of,
)


class ClaimTemplate(NamedTuple):
    """The name of a ResourceClaimTemplate, with its namespace, and the spec of its claims."""

    name: str
    spec: ClaimSpec


DeviceObject: TypeAlias = DeviceClass | ResourceSlice | Claim | ClaimTemplate | DeviceTaintRule


MAX_NAMES = 1_000
"""Attribute names remembered for deleted DeviceClasses, so that recreating one needs no relist."""


class DeviceStore:
    """Classes, slices, claims, templates of claims and taint rules by name. Not safe for use from several threads.

    A class comes into force once slices were read with all that it selects by; until then, its former version stays.
    """

    def __init__(self) -> None:
        self.devices = NO_DEVICES
        """The devices after the last update, with the classes in force."""
        self.resources = frozenset[str]()
        """The resources of all classes, in force or not."""
        self.next_reader = self._reader = SliceReader()
        """The readers of the next list of slices, which keeps all that classes select by, and of the last list."""
        self._objects: dict[type, dict[str, Any]] = {
            kind: {} for kind in (DeviceClass, ResourceSlice, Claim, ClaimTemplate, DeviceTaintRule)
        }
        self._by_pool: dict[PoolKey, dict[str, ResourceSlice]] = {}
        self._changed_kinds: set[type[DeviceObject]] = set()
        self._touched: set[NodeSelection] = set()
        """The nodes whose offers may have changed."""
        self._offers: DeviceOffers | None = None

    def replace(
        self, kind: type[DeviceObject], objects: Iterable[DeviceObject], reader: SliceReader | None = None
    ) -> None:
        """Replace all objects of a kind. `reader`: the reader of these slices, if it differs from the former one."""
        if reader is not None:
            self._reader = reader
            self._changed_kinds.add(DeviceClass)
        by_name = {each.name: each for each in objects}
        for old in [each for name, each in self._objects[kind].items() if name not in by_name]:
            self.remove(old)
        for new in by_name.values():
            self.put(new)

    def put(self, new: DeviceObject) -> None:
        objects = self._objects[type(new)]
        old = objects.get(new.name)
        if old != new:
            if old is not None:
                self._touch(old, remove=True)
            objects[new.name] = new
            self._touch(new, remove=False)

    def remove(self, old: DeviceObject) -> None:
        stored = self._objects[type(old)].pop(old.name, None)
        if stored is not None:
            self._touch(stored, remove=True)

    def forget(self, kind: type[DeviceObject], raw: Object) -> None:
        """Remove an object that cannot be read."""
        metadata = as_mapping(raw.get("metadata"))
        name, namespace = text_member(metadata, "name"), text_member(metadata, "namespace")
        stored = self._objects[kind].get(f"{namespace}/{name}" if namespace else name)
        if stored is not None:
            self.remove(stored)

    def update(self, nodes: Mapping[str, Node]) -> Iterable[str]:
        """Apply all changes; return the names of the nodes whose offers may have changed."""
        if not self._changed_kinds:
            return ()
        before = self.devices
        templates = before.templates
        if ClaimTemplate in self._changed_kinds:
            templates = {name: each.spec for name, each in self._objects[ClaimTemplate].items()}
        if self._changed_kinds == {ClaimTemplate}:
            # There may be one for each job, and no node offers anything by them.
            self.devices, self._changed_kinds = replace(before, templates=templates), set()
            return ()
        classes = self._usable_classes() if DeviceClass in self._changed_kinds else before.classes
        if classes != before.classes:
            self._touched.add(NodeSelection(every=True))
        self.devices = Devices(
            classes=classes,
            slices=tuple(self._objects[ResourceSlice].values())
            if ResourceSlice in self._changed_kinds
            else before.slices,
            claims=dict(self._objects[Claim]),
            templates=templates,
            allocated=uses_of(self._objects[Claim].values()),
            taint_rules=tuple(self._objects[DeviceTaintRule].values()),
        )
        # Without a class nothing is offered: most clusters have none.
        self._offers = DeviceOffers(self.devices, self._offers) if self.devices.classes else None
        touched, self._touched = self._touched, set()
        self._changed_kinds = set()
        node_names = {each.name for each in touched if each.name}
        others = [each for each in touched if not each.name]
        return node_names.union(name for name, node in nodes.items() if any(reaches(each, node) for each in others))

    def _usable_classes(self) -> tuple[DeviceClass, ...]:
        """Return the classes that come into force or stay; determine how slices must be read again for the others."""
        former = {each.name: each for each in self.devices.classes}
        new = self._objects[DeviceClass].values()
        self.resources = frozenset(Devices(classes=(*new, *former.values())).class_by_resource)
        attribute_names = self._reader.names
        reader = SliceReader(
            (*new, *former.values()),
            attribute_names if attribute_names and len(attribute_names) < MAX_NAMES else frozenset(),
        )
        same = (each for each in (self._reader, self.next_reader) if each.names == reader.names)
        self.next_reader = next(same, reader)
        usable = [each if self._reader.reads(each) else former.get(each.name) for each in new]
        return tuple(each for each in usable if each is not None)

    def offered(self, node: Node) -> Node:
        """Return a node with its offers."""
        return node if self._offers is None else self._offers.node(node)

    def _touch(self, changed: DeviceObject, *, remove: bool) -> None:
        self._changed_kinds.add(type(changed))
        match changed:
            case DeviceTaintRule():
                self._touched.add(NodeSelection(every=True))
            case Claim():
                for pool in changed.pools:
                    self._touch_pool(pool)
            case ResourceSlice():
                slices = self._by_pool.setdefault(changed.pool_key, {})
                slices[changed.name] = changed
                self._touch_pool(changed.pool_key)
                if remove:
                    del slices[changed.name]
                    if not slices:
                        del self._by_pool[changed.pool_key]

    def _touch_pool(self, key: PoolKey) -> None:
        """Mark the nodes that a pool reaches."""
        for each in self._by_pool.get(key, {}).values():
            selections = [each.nodes] if each.nodes else [device.nodes for device in each.devices]
            self._touched.update([selection for selection in selections if selection is not None])
