"""Claims of a pod and the devices of its node, as raw objects, with the devices of other claims."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from rules_engine.cluster.devices.allocation import AllocatedDevice, ClaimError, allocate, resolve_claim
from rules_engine.cluster.devices.offers import DeviceOffers
from rules_engine.language.cel import Budget
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.device_objects import read_claim_spec, read_devices
from tests.models import claims as model

Object = dict[str, Any]

DRIVER = model.DRIVER
SLICE = "resource.k8s.io/v1", "ResourceSlice"
TAINTS = [
    {"key": key, "value": value, "effect": effect}
    for key, value, effect in (("a", "x", "NoSchedule"), ("b", "", "NoExecute"), ("a", "x", "None"))
]
TOLERATIONS = [
    {"operator": "Exists"},
    {"key": "a", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "a", "value": "x"},
    {"key": "a", "operator": "Equal", "value": "y"},
    {"key": "b", "operator": "Exists"},
    {"key": "b", "operator": "Equal", "effect": "NoSchedule"},
]
CAPACITIES = ("memory", "cores")
CLASSES = [
    {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": each}} for each in selectors]}}
    for name, selectors in model.CLASSES.items()
]
NODE = {"metadata": {"name": "n1", "labels": {"zone": "a"}}}


@st.composite
def _devices(draw: st.DrawFn, names: str, *, counters: bool, taints: bool) -> list[Object]:
    devices: list[Object] = []
    for name in names:
        made: Object = {"name": name, "attributes": {}, "capacity": {}}
        for attribute, values in (("model", [{"string": "x"}, {"string": "y"}]), ("numa", [{"int": 0}, {"int": 1}])):
            if value := draw(st.sampled_from([*values, *values, None, {"bool": True}])):
                made["attributes"][attribute] = value
        for capacity in CAPACITIES[: draw(st.integers(0, 2))]:
            made["capacity"][capacity] = {"value": str(draw(st.sampled_from([2, 4, 8])))}
        if draw(st.integers(0, 2)) == 0:
            made["allowMultipleAllocations"] = True
            for each in made["capacity"].values():
                if policy := draw(_policies(int(each["value"]))):
                    each["requestPolicy"] = policy
        if taints and draw(st.integers(0, 3)) == 0:
            made["taints"] = draw(st.lists(st.sampled_from(TAINTS), min_size=1, max_size=2))
        if counters and draw(st.booleans()):
            made["consumesCounters"] = [{"counterSet": "g", "counters": {"c": {"value": str(draw(st.integers(1, 3)))}}}]
        devices.append(made)
    return devices


@st.composite
def _policies(draw: st.DrawFn, value: int) -> Object | None:
    kind = draw(st.sampled_from(["none", "default", "values", "range"]))
    if kind == "none":
        return None
    if kind == "default":
        return {"default": str(draw(st.integers(0, value)))}
    if kind == "values":
        values = sorted(draw(st.sets(st.integers(0, value), min_size=1, max_size=3)))
        return {"default": str(draw(st.sampled_from(values))), "validValues": [str(each) for each in values]}
    step = draw(st.sampled_from([0, 0, 1, 2]))
    least = draw(st.integers(0, value - step)) // (step or 1) * (step or 1)
    most = draw(st.integers(least, value)) // (step or 1) * (step or 1)
    bounds = {"min": str(least), **({"max": str(most)} if draw(st.booleans()) else {})}
    return {"default": str(least), "validRange": {**bounds, **({"step": str(step)} if step else {})}}


@st.composite
def _slices(draw: st.DrawFn, *, counters: bool, taints: bool) -> list[Object]:
    """Generate a pool of the node, and sometimes one of all nodes, with five devices at most."""
    first = draw(st.integers(1, 4))
    slices = []
    for pool, names, where in (
        ("n1", "abcde"[:first], {"nodeName": "n1"}),
        ("net", "abcde"[first : draw(st.integers(first, 5))], {"allNodes": True}),
    ):
        if names:
            counting = counters and pool == "n1"
            spec = {"driver": DRIVER, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1 + counting}}
            devices = draw(_devices(names, counters=counting, taints=taints))
            slices.append({"metadata": {"name": pool}, "spec": {**spec, **where, "devices": devices}})
            if counting:
                shared = [{"name": "g", "counters": {"c": {"value": str(draw(st.integers(1, 5)))}}}]
                slices.append({"metadata": {"name": "counters"}, "spec": {**spec, **where, "sharedCounters": shared}})
    return slices


@st.composite
def _alternatives(draw: st.DrawFn, *, admin: bool) -> Object:
    made: Object = {"deviceClassName": draw(st.sampled_from([*model.CLASSES]))}
    if draw(st.integers(0, 3)) == 0:
        made["selectors"] = [{"cel": {"expression": draw(st.sampled_from([*model.SELECTORS]))}}]
    mode = draw(st.sampled_from(["", "ExactCount", "All"] if draw(st.booleans()) else [""]))
    if mode:
        made["allocationMode"] = mode
    if mode != "All":
        made["count"] = draw(st.sampled_from([1, 1, 1, 2, 3]))
    if draw(st.integers(0, 2)) == 0:
        made["tolerations"] = draw(st.lists(st.sampled_from(TOLERATIONS), max_size=2))
    if draw(st.integers(0, 2)) == 0:
        names = draw(st.sets(st.sampled_from([*CAPACITIES, f"{DRIVER}/memory"]), min_size=1, max_size=1))
        made["capacity"] = {"requests": {name: str(draw(st.integers(0, 5))) for name in names}}
    if admin and draw(st.integers(0, 5)) == 0:
        made["adminAccess"] = True
    return made


@st.composite
def _specs(draw: st.DrawFn, *, constrained: bool) -> Object:
    requests: list[Object] = []
    names: list[str] = []
    for name in "pq"[: draw(st.sampled_from([1, 1, 2]))]:
        names.append(name)
        if draw(st.booleans()):
            requests.append({"name": name, "exactly": draw(_alternatives(admin=True))})
        else:
            subs = [
                {"name": sub, **draw(_alternatives(admin=False))}
                for sub in ("s", "t")[: draw(st.sampled_from([1, 2, 2]))]
            ]
            names += [f"{name}/{each['name']}" for each in subs]
            requests.append({"name": name, "firstAvailable": subs})
    made: Object = {"requests": requests}
    if constrained and draw(st.integers(0, 2)) == 0:
        made["constraints"] = draw(
            st.lists(
                st.builds(
                    lambda kind, attribute, of: {kind: f"{DRIVER}/{attribute}", **({"requests": of} if of else {})},
                    st.sampled_from(["matchAttribute", "distinctAttribute"]),
                    st.sampled_from(["model", "numa"]),
                    st.lists(st.sampled_from(names), unique=True, max_size=2),
                ),
                min_size=1,
                max_size=2,
            )
        )
    return {"devices": made}


@st.composite
def _held(draw: st.DrawFn, slices: Sequence[Object]) -> list[Object]:
    """Generate claims of other pods: of whole devices, and of shares that do not exceed the capacity."""
    claims: list[Object] = []
    for each in slices:
        pool = each["spec"]["pool"]["name"]
        for device in each["spec"].get("devices", ()):
            use = draw(st.sampled_from(["", "", "", "whole", "share", "admin"]))
            if use == "share" and not device.get("allowMultipleAllocations"):
                use = ""
            for number in range(draw(st.integers(1, 2)) if use == "share" else bool(use)):
                result: Object = {"request": "r", "driver": DRIVER, "pool": pool, "device": device["name"]}
                if use == "share":
                    result["shareID"] = f"{pool}-{device['name']}-{number}"
                    result["consumedCapacity"] = {
                        name: str(draw(st.integers(0, int(capacity["value"]) // 2)))
                        for name, capacity in device["capacity"].items()
                    }
                elif use == "admin":
                    result["adminAccess"] = True
                claims.append(_claim(f"held-{len(claims)}", status={"allocation": {"devices": {"results": [result]}}}))
    return claims


def _claim(name: str, **members: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "ml", "uid": name}, **members}


@st.composite
def cases(draw: st.DrawFn, *, leaking: bool = False) -> Object:
    """Generate a case. `leaking`: devices that consume counters may be refused for taints or constraints."""
    counters = draw(st.booleans())
    other = leaking or not counters
    slices = draw(_slices(counters=counters, taints=other))
    specs = draw(st.lists(_specs(constrained=other), min_size=1, max_size=3))
    return {
        "node": NODE,
        "classes": CLASSES,
        "slices": slices,
        "held": draw(_held(slices)),
        "claims": [_claim(f"c{number}", spec=spec) for number, spec in enumerate(specs)],
    }


def unexpected(_raw: Any, message: str) -> None:
    raise AssertionError(message)


def search(case: Object) -> Sequence[Sequence[AllocatedDevice]] | None:
    """Return what the search finds."""
    everything = [*case["held"], *case["claims"]]
    objects = {"DeviceClass": case["classes"], "ResourceSlice": case["slices"], "ResourceClaim": everything}
    devices = read_devices(objects, unexpected)
    offers = DeviceOffers(devices)
    classes = {each.name: each for each in devices.classes}
    claims = [resolve_claim(read_claim_spec(each["spec"]), classes) for each in case["claims"]]
    pools = offers.pools.reaching(Node(name="n1", labels=case["node"]["metadata"]["labels"]))
    return allocate(pools, claims, devices.allocated, offers.matches, Budget(10**7).spend)


def check(case: Object) -> None:
    """Check that devices are found if and only if some fit, and that the ones found do."""
    try:
        found = search(case)
    except ClaimError as error:
        # The scheduler gives up the pod, even if another alternative would do.
        if "constraint" not in str(error):
            raise
        return
    assert (found is not None) == model.is_feasible(case)
    if found is not None:
        assert model.is_valid(case, [[(each.request, each.key) for each in devices] for devices in found])
