"""A second implementation of requests for devices and of their allocation: slow, and close to its sources."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Object = dict[str, Any]
Wanted = tuple[str, int]
"""A resource and a number of devices."""


def requests_of(spec: Object, served: Iterable[str]) -> Sequence[Wanted]:
    """Return the requests of a claim, in the order of their names (createRequestsAndMappings)."""
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    initial = len(spec.get("initContainers", []))
    named: list[tuple[str, Wanted]] = []
    for resource in sorted(served):
        longs: list[tuple[int, str, int]] = []
        shorts: list[tuple[int, str, int]] = []
        for index, container in enumerate(containers):
            asked = container.get("resources", {}).get("requests", {})
            if int(asked.get(resource, 0)):
                name = f"container-{index}-request-{sorted(asked).index(resource)}"
                lasting = index >= initial or container.get("restartPolicy") == "Always"
                (longs if lasting else shorts).append((index, name, int(asked[resource])))
        reduced: list[tuple[str, int]] = []
        for index, name, quantity in shorts:
            reused = 0
            for other, _, count in longs:
                if other < index:
                    continue
                reused += count
                if reused >= quantity:
                    break
            if reused < quantity:
                reduced.append((name, quantity - reused))
        kept: list[tuple[str, int]] = []
        for each in reduced:
            if not kept or each[1] > kept[0][1]:
                kept = [each]
        named += [(name, (resource, count)) for name, count in (*kept, *((name, count) for _, name, count in longs))]
    return [wanted for _, wanted in sorted(named)]


def first_that_fit(
    wanted: Sequence[Wanted],
    devices: Sequence[Object],
    free: frozenset[str],
    kinds: Mapping[str, frozenset[str]],
    left: int,
) -> frozenset[str] | None:
    """Return the names of the first devices that fit; `kinds`: of devices, by resource; `left`: of the only counter."""
    if sum(count for _, count in wanted) > len(devices):
        return None
    numbers = range(len(devices))
    for chosen in product(*[combinations(numbers, count) for _, count in wanted]):
        flat = [number for part in chosen for number in part]
        right = all(
            devices[number]["attributes"]["type"]["string"] in kinds[resource]
            for (resource, _), part in zip(wanted, chosen, strict=True)
            for number in part
        )
        names = [devices[number]["name"] for number in flat]
        used = sum(consumption(devices[number]) for number in flat)
        if right and len({*flat}) == len(flat) and free.issuperset(names) and used <= left:
            return frozenset(names)
    return None


def consumption(device: Object) -> int:
    return sum(int(each["counters"]["slices"]["value"]) for each in device.get("consumesCounters", []))
