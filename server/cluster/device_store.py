"""The devices of drivers in a live cluster, and the nodes whose offers change with them."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from msgspec import Struct

from rules_engine.devices.offers import DeviceOffers
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.devices import NO_DEVICES, DeviceClass, DeviceKey, Devices, PoolKey, ResourceSlice


class Claim(Struct, frozen=True):
    """The devices of a ResourceClaim, by its namespace/name."""

    name: str
    devices: tuple[tuple[DeviceKey, bool], ...]

    @property
    def pools(self) -> Iterable[PoolKey]:
        return ((driver, pool) for (driver, pool, _), _ in self.devices)


DeviceObject: TypeAlias = DeviceClass | ResourceSlice | Claim


class DeviceStore:
    """Classes, slices and claims by name. Not safe for use from several threads."""

    def __init__(self) -> None:
        self.devices = NO_DEVICES
        self._objects: dict[type, dict[str, Any]] = {DeviceClass: {}, ResourceSlice: {}, Claim: {}}
        self._by_pool: dict[PoolKey, dict[str, ResourceSlice]] = {}
        self._changed_kinds: set[type[DeviceObject]] = set()
        self._touched: set[str] = set()
        """Names of nodes whose offers may have changed; "" stands for all nodes."""
        self._offers: DeviceOffers | None = None

    @property
    def classes(self) -> tuple[DeviceClass, ...]:
        return tuple(self._objects[DeviceClass].values())

    def replace(self, kind: type[DeviceObject], objects: Iterable[DeviceObject]) -> None:
        """Replace all objects of a kind."""
        known = {each.name: each for each in objects}
        for old in [each for name, each in self._objects[kind].items() if name not in known]:
            self.remove(old)
        for new in known.values():
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
        known = self._objects[type(old)].pop(old.name, None)
        if known is not None:
            self._touch(known, remove=True)

    def forget(self, kind: type[DeviceObject], name: str) -> None:
        """Remove an object of a kind by its name."""
        known = self._objects[kind].get(name)
        if known is not None:
            self.remove(known)

    @property
    def changed(self) -> bool:
        """True if there are changes that `update` has not taken in."""
        return bool(self._changed_kinds)

    def update(self, nodes: Iterable[str]) -> Iterable[str]:
        """Apply all changes; return the nodes whose offers may have changed."""
        if not self._changed_kinds:
            return ()
        before = self.devices
        self.devices = Devices(
            classes=self.classes if DeviceClass in self._changed_kinds else before.classes,
            slices=tuple(self._objects[ResourceSlice].values())
            if ResourceSlice in self._changed_kinds
            else before.slices,
            allocated={key: extended for claim in self._objects[Claim].values() for key, extended in claim.devices},
        )
        # Without a class nothing is offered: most clusters have none.
        self._offers = DeviceOffers(self.devices, self._offers) if self.devices.classes else None
        touched, self._touched = self._touched, set()
        self._changed_kinds = set()
        return nodes if "" in touched else touched

    def offered(self, node: Node) -> Node:
        """Return a node with its offers."""
        return node if self._offers is None else self._offers.node(node)

    def _touch(self, changed: DeviceObject, *, remove: bool) -> None:
        self._changed_kinds.add(type(changed))
        match changed:
            case DeviceClass():
                self._touched.add("")
            case Claim():
                for pool in changed.pools:
                    self._touch_pool(pool)
            case _:
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
            self._touched.add("" if each.nodes is None else each.nodes.name)
