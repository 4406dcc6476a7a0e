"""Devices of drivers in the short form of inventories → DeviceClasses and ResourceSlices as the API returns them.

The slices have the form in which NVIDIA's DRA driver publishes them on Kubernetes 1.35 and later (its
cmd/gpu-kubelet-plugin: driver.go, partitions.go): a pool for each node, a slice with the counters of its partitioned
cards, and for each such card a slice with its partitions, in the order of their names.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rules_engine.cluster.read.amounts import read_amounts
from rules_engine.language import fields
from rules_engine.language.yaml.nodes import MapNode, ScalarNode
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, did_you_mean

SLICE_DEVICES = 128
"""Devices of a slice at most (resource/v1, ResourceSliceMaxDevices)."""

SLICE_PARTITIONS = 64
"""Devices of a slice at most if they consume counters (resource/v1, ResourceSliceMaxDevicesWithAdvancedFeatures)."""

SLICE_COUNTER_SETS = 8
"""Counter sets of a slice at most (resource/v1, ResourceSliceMaxCounterSets)."""

CARD_COUNTERS = 32
"""Counters of a card at most (resource/v1, ResourceSliceMaxCountersPerCounterSet)."""

MAX_NODE_DEVICES = 20_000
"""Devices of an entry of `nodes`, with partitions: a machine has at most 16 cards, and a card some 30 partitions."""

Raw = dict[str, Json]


@dataclass(frozen=True, slots=True)
class CardCopies:
    """Cards of a node, which differ only in the number after their name."""

    name: str = "gpu"
    count: int = 1


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partitioning of a card on demand. `whole_cards`: the card is also offered as a whole."""

    memory_slices: int = 0
    whole_cards: bool = True


def device_class_object(item: MapNode) -> Raw:
    """Return an item of `deviceClasses` as a DeviceClass."""
    selectors: list[Json] = [
        {"cel": {"expression": expression}} for expression in fields.string_items(item, "selectors")
    ]
    resource = fields.string_field(item, "extendedResourceName")
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": fields.string_field(item, "name")},
        "spec": {"selectors": selectors, **({"extendedResourceName": resource} if resource else {})},
    }


def slice_objects(specs: Sequence[Raw], node: str) -> Iterator[Raw]:
    """Yield the ResourceSlices of a node from the specs of its entry; nodes of one entry share their devices."""
    width = len(str(len(specs)))
    counts = Counter(spec["driver"] for spec in specs)
    for index, spec in enumerate(specs):
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{index:0{width}}-{spec['driver']}-{node}"},
            "spec": {
                **spec,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": counts[spec["driver"]]},
            },
        }


def slice_specs(entry: MapNode, problems: Problems) -> list[Raw]:
    """Return the specs of the slices of an entry of `nodes`, by driver, without the node's name."""
    cards_by_driver: dict[str, list[_Card]] = defaultdict(list)
    devices = 0
    for item in fields.map_items(entry, "devices"):
        group = _CardGroup(item, problems)
        devices += group.size
        if devices > MAX_NODE_DEVICES:
            problems.error(Code.WRONG_COUNT, f"a node has at most {MAX_NODE_DEVICES:,} devices, with partitions", item)
            return []
        cards = cards_by_driver[fields.string_field(item, "driver")]
        # Groups of one driver may have equal names: the second group continues the numbers of the first.
        start = sum(card.prefix == group.prefix for card in cards)
        cards += [group.card(number) for number in range(start, start + group.count)]
    return [{"driver": driver, **spec} for driver, cards in cards_by_driver.items() for spec in _specs_of(cards)]


class _Card(NamedTuple):
    """A card with its partitions. `prefix`: its name without the number. `counters`: of a card with partitions."""

    prefix: str
    counters: Json
    devices: list[Json]


def _specs_of(cards: Sequence[_Card]) -> Iterator[Raw]:
    """Yield the specs of a driver's slices: counters first, then devices."""
    whole = [device for card in cards if not card.counters for device in card.devices]
    yield from _parts("sharedCounters", [card.counters for card in cards if card.counters], SLICE_COUNTER_SETS)
    yield from _parts("devices", whole, SLICE_DEVICES)
    for card in cards:
        if card.counters:
            yield from _parts("devices", card.devices, SLICE_PARTITIONS)


def _parts(member: str, items: list[Json], size: int) -> Iterator[Raw]:
    return ({member: items[start : start + size]} for start in range(0, len(items), size))


class _CardGroup:
    """The cards of an item of `devices`, which are alike."""

    def __init__(self, item: MapNode, problems: Problems) -> None:
        copies = CardCopies(**fields.scalar_arguments(item, CardCopies))
        self.prefix, self.count = copies.name, copies.count
        self._attributes = _attributes(item)
        self._capacity = _values(read_amounts(item, "capacity", problems))
        partitions = fields.map_field(item, "partitions")
        self._partitioned = item.get("partitions") is not None
        partitioning = Partitioning(**fields.scalar_arguments(partitions, Partitioning))
        self._offered_whole, slices = partitioning.whole_cards, partitioning.memory_slices
        own = read_amounts(partitions, "counters", problems)
        self._counters = _values(own) | _memory_slices(0, slices)
        if len(self._counters) > CARD_COUNTERS:
            message = f"a card has at most {CARD_COUNTERS} counters, memory slices included, not {len(self._counters)}"
            problems.error(Code.WRONG_COUNT, message, partitions)
        profiles = fields.map_items(partitions, "profiles")
        by_name = {
            fields.string_field(profile, "name"): _Profile(profile, own, slices, problems) for profile in profiles
        }
        self._profiles = [*by_name.values()]
        fields.report_repeated(Code.DUPLICATE_NAME, [profile.get("name") for profile in profiles], problems)

    @property
    def size(self) -> int:
        """The number of devices."""
        return self.count * (1 + sum(profile.size for profile in self._profiles))

    def card(self, number: int) -> _Card:
        """Return the card of a number."""
        name = f"{self.prefix}-{number}"
        if not self._partitioned:
            return _Card(self.prefix, None, [_device(name, self._attributes, self._capacity)])
        counter_set = f"{name}-counter-set"
        devices = [
            _device(f"{name}-{part}", self._attributes | profile.attributes, profile.capacity, counter_set, consumes)
            for profile in self._profiles
            for part, consumes in profile.partitions()
        ]
        if self._offered_whole:
            devices.append(_device(name, self._attributes, self._capacity, counter_set, self._counters))
        devices.sort(key=lambda device: str(device["name"]))
        return _Card(self.prefix, {"name": counter_set, "counters": self._counters}, [*devices])


class _Profile:
    """A kind of partition of a card with counters and numbered slices of memory. Reports what no card can have."""

    def __init__(self, item: MapNode, card: Mapping[str, Quantity], slices: int, problems: Problems) -> None:
        self.attributes = _attributes(item)
        self.capacity = _values(read_amounts(item, "capacity", problems))
        self._name = fields.string_field(item, "name")
        self._consumes = read_amounts(item, "consumes", problems)
        placements = fields.map_field(item, "placements")
        self._width = fields.int_field(placements, "size") or 0
        starts = [each for each in fields.list_items(placements, "starts") if isinstance(each, ScalarNode)]
        self._starts = [int(each.value) for each in starts if isinstance(each.value, int | float)]
        self._count = fields.int_field(item, "count") or 0
        if self._count and item.get("consumes") is None:
            place = item.get("count") or item
            message = "the partition consumes no counter of the card, so that any number fits beside the whole card"
            problems.error(Code.IMPOSSIBLE_PARTITION, message, place)
        for key, value in fields.map_field(item, "consumes"):
            name = key.source.text
            amount = self._consumes.get(name)
            if name not in card:
                message = f"the card has no counter '{name}'{did_you_mean(name, card)}"
                problems.error(Code.IMPOSSIBLE_PARTITION, message, key)
            elif amount is not None and amount > card[name]:
                problems.error(Code.IMPOSSIBLE_PARTITION, f"the card has {card[name]} of {name}, not {amount}", value)
        for place, start in zip(starts, self._starts, strict=False):
            if start + self._width > slices:
                message = f"a partition of {self._width} memory slices at {start} is beyond the {slices} of the card"
                problems.error(Code.IMPOSSIBLE_PARTITION, message, place)

    @property
    def size(self) -> int:
        """The number of partitions of one card."""
        return len(self._starts) or self._count

    def partitions(self) -> Iterator[tuple[str, Raw]]:
        """Yield the name of each partition of one card, and the counters that it consumes."""
        consumes = _values(self._consumes)
        if not self._starts:
            yield from ((f"{self._name}-{number}", consumes) for number in range(self._count))
        for start in self._starts:
            yield f"{self._name}-{start}", consumes | _memory_slices(start, self._width)


def _memory_slices(start: int, width: int) -> Raw:
    return {f"memory-slice-{number}": {"value": "1"} for number in range(start, start + width)}


def _attributes(item: MapNode) -> Raw:
    attributes: Raw = {}
    for key, node in fields.map_field(item, "attributes"):
        value = node.json()
        kind = {bool: "bool", int: "int", str: "string"}.get(type(value))
        attributes[key.source.text] = {kind: value} if kind else value
    return attributes


def _values(amounts: Mapping[str, Quantity]) -> Raw:
    return {name: {"value": str(amount)} for name, amount in amounts.items()}


def _device(name: str, attributes: Raw, capacity: Raw, counter_set: str = "", counters: Json = None) -> Raw:
    device: Raw = {"name": name, "attributes": attributes, "capacity": capacity}
    if counter_set:
        device["consumesCounters"] = [{"counterSet": counter_set, "counters": counters}]
    return device
