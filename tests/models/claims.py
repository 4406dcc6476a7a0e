"""A second implementation of the allocation of devices: all assignments are tried.

Source: the documentation of the API, and where kube-scheduler differs, what it does.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Driver, pool and name of a device."""

Chosen = Sequence[tuple[str, Key]]
"""The devices of a claim, each with the request or alternative that it is for."""

DRIVER = "d.example.com"


SELECTORS: Mapping[str, Callable[[Object], bool]] = {
    f"device.attributes['{DRIVER}'].?model.orValue('') == 'x'": lambda device: (
        device["attributes"].get("model") == {"string": "x"}
    ),
    f"'memory' in device.capacity['{DRIVER}']": lambda device: "memory" in device["capacity"],
    "device.allowMultipleAllocations": lambda device: device.get("allowMultipleAllocations", False),
    "!device.allowMultipleAllocations": lambda device: not device.get("allowMultipleAllocations", False),
}
"""Selectors, and what they mean."""

CLASSES: Mapping[str, Sequence[str]] = {"any": [], "x": [next(iter(SELECTORS))]}
"""The selectors of classes."""


class _World:
    def __init__(self, case: Object) -> None:
        self.devices: dict[Key, Object] = {}
        self.counters: Counter[str] = Counter()
        self.whole: set[Key] = set()
        self.shares: dict[Key, list[Mapping[str, int]]] = {}
        for each in case["slices"]:
            spec = each["spec"]
            for device in spec.get("devices", ()):
                self.devices[spec["driver"], spec["pool"]["name"], device["name"]] = device
            for counter_set in spec.get("sharedCounters", ()):
                self.counters.update({name: int(each["value"]) for name, each in counter_set["counters"].items()})
        for claim in case["held"]:
            for result in claim["status"]["allocation"]["devices"]["results"]:
                key = result["driver"], result["pool"], result["device"]
                if result.get("adminAccess"):
                    continue
                if "shareID" in result:
                    amounts = {name: int(value) for name, value in result["consumedCapacity"].items()}
                    self.shares.setdefault(key, []).append(amounts)
                else:
                    self.whole.add(key)

    def matching(self, request: Object) -> list[Key]:
        selectors = [*CLASSES[request["deviceClassName"]]]
        selectors += [each["cel"]["expression"] for each in request.get("selectors", ())]
        return [
            key for key, device in self.devices.items() if all(SELECTORS[selector](device) for selector in selectors)
        ]


def _alternatives(request: Object) -> Iterator[tuple[str, Object]]:
    if "exactly" in request:
        yield request["name"], request["exactly"]
    for each in request.get("firstAvailable", ()):
        yield f"{request['name']}/{each['name']}", each


def _choices(world: _World, request: Object) -> Iterator[Chosen]:
    """Yield all sets of devices of a request, whether they are free or not."""
    for name, each in _alternatives(request):
        matching = world.matching(each)
        if each.get("allocationMode") == "All":
            requested = _requested(each)
            matching = [key for key in matching if _has(world, key, requested)]
            if matching:
                yield [(name, key) for key in matching]
        else:
            for keys in combinations(matching, each["count"]):
                yield [(name, key) for key in keys]


def is_feasible(case: Object) -> bool:
    """Return whether some assignment of devices to all requests of all claims is valid."""
    world = _World(case)
    per_claim = []
    for claim in case["claims"]:
        requests = claim["spec"]["devices"]["requests"]
        every = product(*[list(_choices(world, each)) for each in requests])
        joined = ([one for part in each for one in part] for each in every)
        per_claim.append([each for each in joined if _is_valid(world, [claim], [each])])
    return any(_is_valid(world, case["claims"], assignment) for assignment in product(*per_claim))


def is_valid(case: Object, assignment: Sequence[Chosen]) -> bool:
    """Return whether an assignment has the devices of all requests, and all of them may be used."""
    world = _World(case)
    for claim, chosen in zip(case["claims"], assignment, strict=True):
        for request in claim["spec"]["devices"]["requests"]:
            own = sorted(one for one in chosen if one[0].partition("/")[0] == request["name"])
            if own not in [sorted(each) for each in _choices(world, request)]:
                return False
    return _is_valid(world, case["claims"], assignment)


def _is_valid(world: _World, claims: Sequence[Object], assignment: Sequence[Chosen]) -> bool:
    whole = set(world.whole)
    shares = {key: list(amounts) for key, amounts in world.shares.items()}
    consuming = [*(whole | shares.keys())]
    counted = {*world.shares} - whole
    for claim, chosen in zip(claims, assignment, strict=True):
        requests = {name: each for one in claim["spec"]["devices"]["requests"] for name, each in _alternatives(one)}
        for name, key in chosen:
            device, request = world.devices[key], requests[name]
            admin, shared = request.get("adminAccess"), device.get("allowMultipleAllocations")
            amounts = _consumed(device, _requested(request))
            if amounts is None or not _tolerated(device, request.get("tolerations", ())):
                return False
            if not shared and any(key == other for _, other in chosen[: chosen.index((name, key))]):
                return False
            if not admin and (key in whole or (key in shares and not shared)):
                return False
            # Devices with admin access are in use for later requests of the pod.
            if shared:
                shares.setdefault(key, []).append(amounts)
            else:
                whole.add(key)
            if not shared or key not in counted:
                counted.add(key)
                consuming.append(key)
        if not all(_satisfied(world, each, chosen) for each in claim["spec"]["devices"].get("constraints", ())):
            return False
    for key, uses in shares.items():
        for name, capacity in world.devices[key]["capacity"].items():
            if sum(use.get(name, 0) for use in uses) > int(capacity["value"]):
                return False
    left = Counter(world.counters)
    for key in consuming:
        for each in world.devices[key].get("consumesCounters", ()):
            left.subtract({name: int(value["value"]) for name, value in each["counters"].items()})
    # They may be overdrawn already if nothing new consumes any.
    new = consuming[len(world.whole | world.shares.keys()) :]
    return min(left.values(), default=0) >= 0 or not any("consumesCounters" in world.devices[key] for key in new)


def _requested(request: Object) -> Mapping[str, int]:
    amounts = request.get("capacity", {}).get("requests", {})
    return {name: int(value) for name, value in amounts.items()}


def _has(world: _World, key: Key, requested: Mapping[str, int]) -> bool:
    """Return whether a device has the requested capacity; if it is shared, beside other pods' use."""
    device = world.devices[key]
    amounts = _consumed(device, requested)
    shares = world.shares.get(key, ()) if device.get("allowMultipleAllocations") else ()
    return amounts is not None and all(
        amounts[name] + sum(use.get(name, 0) for use in shares) <= int(capacity["value"])
        for name, capacity in device["capacity"].items()
    )


def _consumed(device: Object, wanted: Mapping[str, int]) -> Mapping[str, int] | None:
    if not wanted.keys() <= device["capacity"].keys():
        return None
    consumed = {}
    for name, capacity in device["capacity"].items():
        most, policy = int(capacity["value"]), capacity.get("requestPolicy")
        amount = wanted.get(name)
        if amount is None:
            amount = int(policy["default"]) if policy else most
        elif policy and "validValues" in policy:
            larger = [int(value) for value in policy["validValues"] if int(value) >= amount]
            if not larger:
                return None
            amount = larger[0]
        elif policy and "validRange" in policy:
            bounds = {key: int(value) for key, value in policy["validRange"].items()}
            valid = range(bounds["min"], max(amount, most) + 3, bounds.get("step", 1))
            amount = next(each for each in valid if each >= amount)
            if amount > bounds.get("max", most):
                return None
        if amount > most:
            return None
        consumed[name] = amount
    return consumed


def _tolerated(device: Object, tolerations: Sequence[Object]) -> bool:
    return all(
        taint["effect"] == "None"
        or any(
            each.get("key") in (None, taint["key"])
            and each.get("effect") in (None, taint["effect"])
            and (each.get("operator") == "Exists" or each.get("value", "") == taint["value"])
            for each in tolerations
        )
        for taint in device.get("taints", ())
    )


def _satisfied(world: _World, constraint: Object, chosen: Chosen) -> bool:
    names = constraint.get("requests", ())
    keys = [key for name, key in chosen if not names or name in names or name.partition("/")[0] in names]
    kind, attribute = next((kind, constraint[kind]) for kind in constraint if kind != "requests")
    values = [world.devices[key]["attributes"].get(attribute.removeprefix(f"{DRIVER}/")) for key in keys]
    distinct = {tuple(value.items()) for value in values if value is not None}
    return None not in values and len(distinct) == (len(values) if kind == "distinctAttribute" else min(len(values), 1))
