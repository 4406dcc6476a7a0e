"""Generated clusters with ResourceClaims: nodes, devices of all kinds, DeviceTaintRules, templates, claims and pods.

Everything generated is valid for the API server, so that the same clusters can be created on a real control plane.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from tests.support.api import DRIVER, GPU, api_object, counters, device_class, node, pod, resource_slice

Object = dict[str, Any]

NUMA = "topology.example.com/numa"
OTHER_DRIVER = "other.example.com"

CLASSES = {
    "gpu": f"device.attributes['{DRIVER}'].?type.orValue('') == 'gpu'",
    "part": f"device.attributes['{DRIVER}'].?type.orValue('') == 'part'",
    "share": "device.allowMultipleAllocations",
    "nic": f"device.driver == '{OTHER_DRIVER}'",
    "fabric": f"device.attributes['{DRIVER}'].?type.orValue('') == 'fabric'",
    "licence": f"device.attributes['{DRIVER}'].?type.orValue('') in ['licence', 'ticket']",
    "any": "true",
}
"""The selectors of classes, which never fail."""

SELECTORS = (
    f"device.attributes['{DRIVER}'].?model.orValue('') == 'x'",
    f"'memory' in device.capacity['{DRIVER}'] && device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0",
    "device.attributes['topology.example.com'].?numa.orValue(-1) == 0",
    "!device.allowMultipleAllocations",
)
TAINTS = [
    {"key": key, "value": value, "effect": effect}
    for key, value, effect in (
        ("drain", "yes", "NoSchedule"),
        ("health", "bad", "NoSchedule"),
        ("failed", "", "NoExecute"),
        ("seen", "yes", "None"),
    )
]
TOLERATIONS = (
    {"operator": "Exists", "effect": "NoSchedule"},
    {"key": "drain", "value": "yes"},
    {"key": "drain", "value": "no"},
    {"key": "health", "operator": "Exists"},
    {"key": "health", "operator": "Equal", "value": "bad", "effect": "NoSchedule"},
    # Without an effect, the scheduler would bind the pod, and a controller would then evict it.
    {"key": "failed", "operator": "Exists", "effect": "NoExecute"},
)
POLICIES = (
    None,
    {"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]},
    {"default": "1Gi", "validRange": {"min": "1Gi", "max": "6Gi", "step": "1Gi"}},
    {"default": "1Gi", "validRange": {"min": "512Mi"}},
    {"default": "0"},
)


class ClaimGenerator:
    """A cluster drawn from a source of random numbers; names of nodes, pools and classes begin with a prefix."""

    def __init__(self, random: Random, prefix: str) -> None:
        self._random = random
        self._prefix = prefix
        self._drained = self._chance(0.15)
        """True if a rule taints all devices."""
        self._incomplete = 0.1 if self._chance(0.2) else 0.0
        """The share of incomplete pools, from which no request gets all devices."""
        self.nodes = [self._node(number) for number in range(random.randint(14, 20))]
        self.classes = [
            device_class(prefix + name, GPU if name == "gpu" and self._chance(0.9) else "", selector)
            for name, selector in CLASSES.items()
        ]
        self.slices = [*self._slices()]
        self.rules = [self._rule(number) for number in range(random.randint(0, 3) + self._drained)]
        self.templates = {f"t{number}": self._spec() for number in range(16)}
        self.claims = {f"c{number}": self._spec() for number in range(8)}

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _node(self, number: int) -> Object:
        draw = self._random
        return node(
            f"{self._prefix}n{number}",
            {"cpu": draw.choice(("4", "8", "16")), "memory": draw.choice(("16Gi", "64Gi")), "pods": "20"},
            labels={"zone": draw.choice("abc")},
            taints=["spot=yes:NoSchedule"] if self._chance(0.1) else [],
            unschedulable=self._chance(0.05),
        )

    # Devices

    def _slices(self) -> Iterator[Object]:
        draw = self._random
        for each in self.nodes:
            name = each["metadata"]["name"]
            kind = draw.choice(("gpu", "gpu", "gpu", "part", "part", "share", "share", "share", ""))
            cards = draw.randint(1, 2) if kind == "part" else 0
            devices = [device for card in range(cards) for device in self._partitions(card)]
            if kind and not cards:
                devices = self._devices(kind, draw.randint(1, 4))
            yield from self._pool(name, {"nodeName": name}, devices, cards=cards)
            nics = self._devices("nic", draw.choice((0, 0, 1, 2)))
            yield from self._pool(f"{name}-nics", {"nodeName": name}, nics, driver=OTHER_DRIVER)
        zone = {"key": "zone", "operator": "In", "values": draw.sample("abc", 2)}
        where = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
        yield from self._pool(f"{self._prefix}fabric", where, self._devices("fabric", 3))
        licences = self._devices("licence", 3)
        for each in licences:
            each.update(draw.choice((where, {"allNodes": True})))
        yield from self._pool(f"{self._prefix}licences", {"perDeviceNodeSelection": True}, licences)
        yield from self._pool(f"{self._prefix}tickets", {"allNodes": True}, self._devices("ticket", 2))

    def _devices(self, kind: str, count: int) -> list[Object]:
        return [self._device(kind, number) for number in range(count)]

    def _device(self, kind: str, number: int) -> Object:
        draw = self._random
        made: Object = {"name": f"{kind}-{number}", "attributes": {"type": {"string": kind}, "index": {"int": number}}}
        if self._chance(0.9):
            made["attributes"] |= {"model": {"string": draw.choice("xy")}, NUMA: {"int": draw.randint(0, 1)}}
        if kind == "share":
            made["allowMultipleAllocations"] = True
            policy = draw.choice(POLICIES)
            made["capacity"] = {"memory": {"value": "8Gi", **({"requestPolicy": policy} if policy else {})}}
        elif kind in ("gpu", "part"):
            made["capacity"] = {"memory": {"value": draw.choice(("20Gi", "80Gi"))}}
        if self._chance(0.1):
            made["taints"] = draw.sample(TAINTS, draw.randint(1, 2))
        return made

    def _partitions(self, card: int) -> Iterator[Object]:
        """Draw a card that is allocated whole or in parts."""
        for number, (kind, slices) in enumerate((("gpu", 7), ("part", 4), ("part", 3), *[("part", 1)] * 3)):
            uses = {"counterSet": f"card-{card}", "counters": counters({"slices": slices})}
            yield {**self._device(kind, card * 10 + number), "consumesCounters": [uses]}

    def _pool(
        self, name: str, where: Object, devices: Sequence[Object], *, driver: str = DRIVER, cards: int = 0
    ) -> Iterator[Object]:
        split = self._random.randint(0, len(devices)) if self._chance(0.2) else 0
        specs: list[Object] = [{"devices": part} for part in (devices[:split], devices[split:]) if part]
        if cards:
            shared = [{"name": f"card-{card}", "counters": counters({"slices": 7})} for card in range(cards)]
            specs.append({"sharedCounters": shared})
        count = len(specs) + self._chance(self._incomplete)
        for number, spec in enumerate(specs):
            yield resource_slice(name, name=f"{name}-{number}", driver=driver, count=count, **where, **spec)

    def _rule(self, number: int) -> Object:
        draw = self._random
        made: Object = {"taint": draw.choice(TAINTS)}
        spec = draw.choice([each["spec"] for each in self.slices if "devices" in each["spec"]])
        selected = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": spec["devices"][0]["name"]}
        if self._drained and not number:
            made = {"deviceSelector": {}, "taint": TAINTS[0]}
        else:  # without one, kube-scheduler 1.36 taints all devices
            made["deviceSelector"] = {key: selected[key] for key in draw.choice((["pool"], [*selected]))}
        return api_object("DeviceTaintRule", f"{self._prefix}rule-{number}", spec=made)

    # Claims

    def _spec(self) -> Object:
        """Draw the spec of a claim."""
        draw = self._random
        if self._chance(0.35):
            return {"devices": {"requests": [{"name": "p", "exactly": self._request(plain=True)}]}}
        requests: list[Object] = []
        names: list[str] = []
        for name in "pqr"[: draw.choice((1, 1, 1, 1, 2, 3))]:
            names.append(name)
            if self._chance(0.7):
                admin = {"adminAccess": True} if self._chance(0.08) else {}
                requests.append({"name": name, "exactly": {**self._request(), **admin}})
            else:
                subs = [{"name": sub, **self._request()} for sub in "stu"[: draw.randint(1, 3)]]
                names += [f"{name}/{each['name']}" for each in subs]
                requests.append({"name": name, "firstAvailable": subs})
        made: Object = {"requests": requests}
        if self._chance(0.3):
            kind = draw.choice(("matchAttribute", "distinctAttribute"))
            attribute = draw.choice((NUMA, f"{DRIVER}/model", f"{DRIVER}/index"))
            of = draw.sample(names, draw.randint(0, min(2, len(names))))
            made["constraints"] = [{kind: attribute, **({"requests": of} if of else {})}]
        return {"devices": made}

    def _request(self, *, plain: bool = False) -> Object:
        draw = self._random
        (name,) = draw.choices([*CLASSES, "missing"], (10, 6, 8, 2, 2, 2, 2, 0.2))
        made: Object = {"deviceClassName": self._prefix + name, "count": draw.choice((1, 1, 1, 1, 1, 2))}
        if self._drained or self._chance(0.25):
            tolerations = TOLERATIONS[:2] if self._drained and self._chance(0.8) else TOLERATIONS
            made["tolerations"] = draw.sample(tolerations, draw.randint(1, 2))
        if plain:
            return made
        if self._chance(0.15):
            made["selectors"] = [{"cel": {"expression": draw.choice(SELECTORS)}}]
        if self._chance(0.1):
            made |= {"allocationMode": "All", "count": 0}
        if self._chance(0.7 if name == "share" else 0.1):
            amount = draw.choice(("0", "700Mi", "1Gi", "3Gi", "5Gi", "20Gi"))
            made["capacity"] = {"requests": {draw.choice(("memory", f"{DRIVER}/memory")): amount}}
        return made

    # Pods

    def pod(self, name: str) -> Object:
        """Draw a pod to schedule."""
        draw = self._random
        count = draw.choice((0, 1, 1, 1, 1, 1, 1, 1, 2, 3))
        named = draw.sample([*self.claims], count)
        references = [
            {"resourceClaimTemplateName": draw.choice([*self.templates]) if self._chance(0.98) else "missing"}
            if self._chance(0.7)
            else {"resourceClaimName": each if self._chance(0.95) else "missing"}
            for each in named
        ]
        requests = {"cpu": draw.choice(("100m", "500m", "2")), **({GPU: "1"} if self._chance(0.12) else {})}
        spec: Object = {"resourceClaims": [{"name": f"r{at}", **each} for at, each in enumerate(references)]}
        if self._chance(0.15):
            spec["nodeSelector"] = {"zone": draw.choice("abc")}
        if self._chance(0.3):
            spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        return pod(name, requests, **(spec if references else {}))

    def specs(self, pod: Object) -> list[Object | None]:
        """Return the specs of a pod's claims; None for what does not exist."""
        return [
            self.templates.get(each.get("resourceClaimTemplateName", ""))
            or self.claims.get(each.get("resourceClaimName", ""))
            for each in pod["spec"].get("resourceClaims", ())
        ]
