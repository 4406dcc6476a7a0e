"""Generated clusters with devices of drivers: classes, slices, pods that hold devices, and pods to schedule.

Everything generated is valid for the API server, so that the same clusters can be created on a real control plane.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.support.api import DRIVER, GPU, MIG1, device_class, node, pod, resource_claim, resource_slice

Object = dict[str, Any]

MIG = MIG1
OTHER_DRIVER = "other.example.com"
IMPLICIT = "deviceclass.resource.kubernetes.io/"
HOSTNAME = "kubernetes.io/hostname"

_SELECTORS = (
    f"device.driver == '{DRIVER}'",
    f"device.attributes['{DRIVER}'].type == 'gpu'",
    f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'",
    f"device.attributes['{DRIVER}'].?type.orValue('') == 'gpu'",
    f"device.attributes['{DRIVER}'].type.startsWith('g')",
    f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0",
    f"'memory' in device.capacity['{DRIVER}'] && device.capacity['{DRIVER}'].memory.isGreaterThan(quantity('10Gi'))",
    f"device.attributes['{DRIVER}'].version.isGreaterThan(semver('1.0.0'))",
    f"device.attributes['{DRIVER}'].cores > 2",
    f"device.attributes['{DRIVER}'].healthy",
    "device.attributes['absent.example.com'].type == 'gpu'",
    "!('absent.example.com' in device.attributes)",
    f"cel.bind(own, device.attributes['{DRIVER}'], own.type == 'gpu' && own.cores > 2)",
)
_MIG_SELECTORS = (
    f"device.attributes['{DRIVER}'].type == 'mig'",
    f"device.attributes['{DRIVER}'].?type.orValue('') == 'mig'",
    f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'",
)


class DeviceGenerator:
    """Objects drawn from a source of random numbers; all names of nodes, pools and classes begin with a prefix.

    `low`: a PriorityClass below zero.
    """

    def __init__(self, random: Random, prefix: str = "", low: str = "low") -> None:
        self._random = random
        self._low = low
        self._prefix = prefix
        self._sound = self._chance(0.5)
        """True if no selector fails and no pool is unusable, so that counts decide."""
        self._roomy = self._chance(0.7)
        """True if nodes have room for more pods than there are."""

    def nodes(self) -> list[Object]:
        """Draw nodes, some of which have a device plugin."""
        return [self._node(number) for number in range(self._random.randint(1, 4))]

    def _node(self, number: int) -> Object:
        draw = self._random
        allocatable = {"pods": "50", "cpu": "64"} if self._roomy else {"pods": draw.choice("234"), "cpu": "2"}
        if self._chance(0.25):
            allocatable[GPU] = draw.choice(("0", "1", "2", "4"))
        if self._chance(0.1):
            allocatable[MIG] = draw.choice(("0", "2"))
        return node(
            f"{self._prefix}n{number}",
            allocatable,
            labels={"zone": draw.choice("ab"), "number": str(number)},
            taints=["spot=yes:NoSchedule"] if self._chance(0.1) else [],
            unschedulable=self._chance(0.05),
        )

    def classes(self) -> list[Object]:
        """Draw DeviceClasses, in the order of their creation."""
        draw = self._random
        selectors = _SELECTORS[:4] if self._sound else _SELECTORS
        made = []
        if self._chance(0.9):
            made.append(self._class("gpu", GPU, draw.choice(selectors)))
        if self._chance(0.7):
            made.append(self._class("mig", MIG, draw.choice(_MIG_SELECTORS)))
        if self._chance(0.3):
            made.append(self._class(draw.choice(("again", "zero")), GPU, draw.choice(selectors)))
        if self._chance(0.5):
            made.append(self._class("implicit", "", *draw.sample(_SELECTORS[:4], draw.randint(0, 2))))
        draw.shuffle(made)
        return made

    def _class(self, name: str, resource: str, *selectors: str) -> Object:
        return device_class(f"{self._prefix}{name}", resource, *selectors)

    def slices(self, nodes: Sequence[Object]) -> list[Object]:
        """Draw ResourceSlices: pools of nodes, and some that several nodes reach."""
        made: list[Object] = []
        for each in nodes:
            if self._chance(0.85):
                made += self._pool(each["metadata"]["name"], {"nodeName": each["metadata"]["name"]})
            if self._chance(0.15):
                made += self._pool(f"{each['metadata']['name']}-second", {"nodeName": each["metadata"]["name"]})
        if self._chance(0.15):
            made += self._pool(f"{self._prefix}everywhere", {"allNodes": True})
        if self._chance(0.15):
            made += self._pool(f"{self._prefix}zone", {"nodeSelector": self._nodes_selected()})
        if self._chance(0.15):
            made += self._pool(f"{self._prefix}mixed", {"perDeviceNodeSelection": True}, nodes)
        self._random.shuffle(made)
        return made

    def _nodes_selected(self) -> Object:
        """Draw a selector of nodes."""
        draw = self._random
        number = {"key": "number", "operator": draw.choice(("Gt", "Lt")), "values": [draw.choice("12")]}
        zone = {"key": "zone", "operator": draw.choice(("In", "NotIn")), "values": ["a"]}
        exists = {"key": "number", "operator": draw.choice(("Exists", "DoesNotExist"))}
        name = {"key": "metadata.name", "operator": draw.choice(("In", "NotIn")), "values": [f"{self._prefix}n0"]}
        term: Object = {"matchExpressions": draw.choice(([zone], [number], [exists], [zone, number]))}
        if self._chance(0.3):
            term = {**(term if self._chance(0.5) else {}), "matchFields": [name]}
        return {"nodeSelectorTerms": [term]}

    def _pool(self, name: str, where: Object, nodes: Sequence[Object] = ()) -> list[Object]:
        """Draw the slices of a pool; `nodes`: among which each device has its own."""
        draw = self._random
        driver = OTHER_DRIVER if self._chance(0.1) else DRIVER
        counters = self._chance(0.45)
        # Of a slice, selectors may also fail on devices of other nodes, which is not modelled.
        sound = self._sound or bool(nodes)
        devices = self._partitioned(sound) if counters else self._cards(draw.randint(1, 5), sound)
        if nodes:
            for each in devices:
                each.update(self._selection(nodes))
        for each in devices:
            if self._chance(0.08):
                effect = draw.choice(("NoSchedule", "NoExecute", "None"))
                each["taints"] = [{"key": "example.com/broken", "effect": effect}]
        parts = draw.choice((1, 1, 2))
        split = draw.randint(0, len(devices)) if parts == 2 else len(devices)
        groups = [group for group in (devices[:split], devices[split:]) if group]
        specs: list[Object] = [{**where, "devices": group} for group in groups]
        if counters:
            total = {"slices": {"value": draw.choice("7778")}, "memory": {"value": "80Gi"}}
            shared = [{"name": f"card-{number}", "counters": total} for number in range(2)]
            if not self._sound and self._chance(0.1):
                shared.pop()
            everywhere = {"allNodes": True} if nodes else where
            specs.append({**everywhere, "sharedCounters": shared})
        if not self._sound and parts == 2 and len(groups) == 2 and self._chance(0.1):
            groups[1][0]["name"] = groups[0][0]["name"]
        generation = draw.randint(1, 3)
        count = len(specs)
        if not self._sound and self._chance(0.1):
            count += draw.choice((-1, 1)) if count > 1 else 1
        made = [
            resource_slice(
                name,
                name=f"{name}-{generation}-{draw.randint(0, 9)}{number}",
                driver=driver,
                generation=generation,
                count=count,
                **spec,
            )
            for number, spec in enumerate(specs)
        ]
        if self._chance(0.1):
            old = self._cards(draw.randint(1, 3), self._sound)
            place = {"nodeName": nodes[0]["metadata"]["name"]} if nodes else where
            made.append(resource_slice(name, name=f"{name}-0", driver=driver, generation=0, **place, devices=old))
        return made

    def _cards(self, count: int, sound: bool) -> list[Object]:
        return [self._device(f"gpu-{number}", "gpu", sound) for number in range(count)]

    def _partitioned(self, sound: bool) -> list[Object]:
        """Draw two cards that are allocated whole or in parts."""
        devices = []
        for card in range(2):
            devices.append(self._device(f"gpu-{card}", "gpu", sound, card, 7, 80))
            sizes = self._random.choice(((1, 10, 7), (3, 40, 2), (2, 20, 3)))
            devices += [
                self._device(f"gpu-{card}-part-{number}", "mig", sound, card, sizes[0], sizes[1])
                for number in range(sizes[2])
            ]
        if self._chance(0.3):
            self._random.shuffle(devices)
        return devices

    def _device(self, name: str, kind: str, sound: bool, card: int = 0, slices: int = 0, memory: int = 40) -> Object:
        """Draw a device; `sound`: no selector fails on it."""
        attributes: Object = {"type": {"string": kind}}
        if sound or self._chance(0.8):
            attributes["cores"] = {"int": self._random.randint(1, 4)}
            attributes["version"] = {"version": self._random.choice(("0.9.0", "1.2.3", "2.0.0-rc.1"))}
            attributes[f"{DRIVER}/healthy"] = {"bool": self._chance(0.8)}
        if not sound and self._chance(0.1):
            del attributes["type"]
        made: Object = {"name": name, "attributes": attributes}
        if sound or self._chance(0.8):
            made["capacity"] = {"memory": {"value": f"{memory}Gi"}}
        if slices:
            counters = {"slices": {"value": str(slices)}, "memory": {"value": f"{memory}Gi"}}
            made["consumesCounters"] = [{"counterSet": f"card-{card}", "counters": counters}]
        return made

    def _selection(self, nodes: Sequence[Object]) -> Object:
        return self._random.choice(
            (
                {"nodeName": self._random.choice(nodes)["metadata"]["name"]},
                {"allNodes": True},
                {"nodeSelector": self._nodes_selected()},
            )
        )

    def holders(self, nodes: Sequence[Object], slices: Sequence[Object]) -> list[tuple[Object, Object]]:
        """Draw pods that run, each with the claim that it holds: one for extended resources, or one of its own."""
        plugins = {each["metadata"]["name"] for each in nodes if each["status"]["allocatable"].get(GPU, "0") != "0"}
        free = [
            (each["spec"], device)
            for each in slices
            for device in each["spec"].get("devices", [])
            if "nodeName" in each["spec"]
        ]
        self._random.shuffle(free)
        made = []
        for number, (spec, held) in enumerate(free[: self._random.choice((0, 0, 1, 2, 3))]):
            # Devices of claims for extended resources match the class of the resource.
            own = self._sound and spec["driver"] == DRIVER and held["attributes"]["type"]["string"] == "gpu"
            extended = own and spec["nodeName"] not in plugins and self._chance(0.8)
            requests = {GPU: "1"} if extended else {}
            name, driver, pool = spec["nodeName"], spec["driver"], spec["pool"]["name"]
            holder = pod(f"holder-{number}", requests, on=name, **self._priority())
            claimed = resource_claim(
                f"claim-{number}", held["name"], pool=pool, node=name, driver=driver, extended=extended
            )
            made.append((holder, claimed))
        return made

    def _priority(self) -> Object:
        return {"priorityClassName": self._low} if self._chance(0.3) else {}

    def bound(self, nodes: Sequence[Object]) -> list[Object]:
        """Draw pods that run, and use the amounts of device plugins or none."""
        made = []
        for number in range(self._random.choice((0, 0, 1, 2))):
            each = self._random.choice(nodes)
            plugin = each["status"]["allocatable"].get(GPU, "0") != "0"
            requests = {GPU: "1"} if plugin else {"cpu": self._random.choice(("100m", "1500m"))}
            made.append(pod(f"plugin-{number}", requests, on=each["metadata"]["name"], **self._priority()))
        return made

    def pending(self, name: str, classes: Sequence[Object]) -> Object:
        """Draw a pod that requests one or two extended resources.

        kube-scheduler may forget the implicit resource of a class that shares its name with another one.
        """
        draw = self._random
        if self._chance(0.3):
            return pod(name, {draw.choice((GPU, MIG)): draw.choice("1112")})
        served = [each["spec"].get("extendedResourceName") for each in classes]
        names = [
            f"{IMPLICIT}{each['metadata']['name']}"
            for each, resource in zip(classes, served, strict=True)
            if resource is None or served.count(resource) == 1
        ]
        known = [*dict.fromkeys((GPU, MIG, *names))]
        containers = [
            {"name": f"c{number}", "resources": {"requests": self._requests(known)}}
            for number in range(draw.choice((1, 1, 1, 2, 3)))
        ]
        init = [
            {
                "name": f"i{number}",
                "resources": {"requests": self._requests(known)},
                **({"restartPolicy": "Always"} if self._chance(0.3) else {}),
            }
            for number in range(draw.choice((0, 0, 0, 1, 2)))
        ]
        made = pod(name, containers=containers, initContainers=init)
        spec = made["spec"]
        if self._chance(0.1):
            spec["tolerations"] = [{"operator": "Exists"}]
        if self._chance(0.15):
            spec["nodeSelector"] = {"zone": draw.choice("ab")}
        return made

    def _requests(self, known: Sequence[str]) -> dict[str, str]:
        draw = self._random
        requests = {
            resource: draw.choice(("1", "1", "1", "2", "2", "3", "4"))
            for resource in draw.sample(known, draw.choice((0, 1, 1, 1, 2)))
        }
        if self._chance(0.03):
            requests[GPU] = draw.choice(("20", "33"))
        if self._chance(0.2):
            requests["cpu"] = draw.choice(("100m", "1"))
        return requests

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability
