"""Generated clusters with a pod that waits, as values that change by copies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

from tests.support import naive_scheduler
from tests.support.api import GPU, MIG1, MIG3, api_object, node, pod, taint, volume_claim

Object = dict[str, Any]

GPUS = (GPU, MIG1, MIG3)
NIC = "example.com/nic"
STRATEGY = "nvidia.com/mig.strategy"
PRODUCT = "nvidia.com/gpu.product"

FRIEND = "friend"
SPREAD = {"set": "spread"}

LIFECYCLE = "node.kubernetes.io/"
CORDON = f"{LIFECYCLE}unschedulable"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A waiting pod in a cluster. `claims`: of volumes; `volumes`: those that only the nodes of one zone reach."""

    pod: Object
    nodes: Sequence[Object]
    bound: Sequence[Object] = ()
    claims: Sequence[Object] = ()
    resource_claims: Sequence[Object] = ()
    volumes: Sequence[Object] = ()

    @property
    def objects(self) -> list[Object]:
        return [*self.nodes, *self.bound, *self.claims, *self.resource_claims, *self.volumes, self.pod]

    def starting_nodes(self) -> set[str]:
        """Return the names of the nodes on which the pod may start now."""
        if self.pod["spec"].get("schedulingGates") or self.missing_claims() or self.missing_volumes():
            return set()
        found = naive_scheduler.node_reasons(self.pod, [*map(_with_state_taints, self.nodes)], self.bound, [])
        zones = self.volume_zones()
        return {name for name, reasons in found.items() if not reasons and zones <= {_zone(self.node(name))}}

    def volume_zones(self) -> set[str]:
        """Return the zones in which the volumes of the pod are."""
        used = self.volume_claim_names()
        return {each["metadata"]["labels"]["zone"] for each in self.volumes if each["spec"]["claimRef"]["name"] in used}

    def volume_claim_names(self) -> list[str]:
        return [volume["persistentVolumeClaim"]["claimName"] for volume in self.pod["spec"].get("volumes", [])]

    def missing_claims(self) -> list[str]:
        existing = {claim["metadata"]["name"] for claim in self.resource_claims}
        wanted = [claim["resourceClaimName"] for claim in self.pod["spec"].get("resourceClaims", [])]
        return [name for name in wanted if name not in existing]

    def missing_volumes(self) -> list[str]:
        bound = {claim["metadata"]["name"] for claim in self.claims if claim["status"]["phase"] == "Bound"}
        return [name for name in self.volume_claim_names() if name not in bound]

    def node(self, name: str) -> Object:
        return next(each for each in self.nodes if each["metadata"]["name"] == name)

    def on(self, name: str) -> list[Object]:
        return [each for each in self.bound if each["spec"]["nodeName"] == name]

    def offering(self, resource: str, amount: int = 1) -> set[str]:
        """Return the names of the nodes that have an amount of a resource, in use or not."""
        names = [each["metadata"]["name"] for each in self.nodes]
        return {name for name in names if self.lasting(name, resource) >= amount}

    def lasting(self, name: str, resource: str) -> int:
        """Return what a node has of a resource when only pods run there that start again by themselves."""
        return self._left(name, resource, filter(is_lasting, self.on(name)))

    def free(self, name: str, resource: str) -> int:
        return self._left(name, resource, self.on(name))

    def _left(self, name: str, resource: str, held: Iterable[Object]) -> int:
        return max(allocatable_of(self.node(name), resource) - sum(amounts(each).get(resource, 0) for each in held), 0)

    def with_spec(self, **members: Any) -> "World":
        """Return the world in which members of the pod's spec are replaced, or removed by None."""
        spec = {key: value for key, value in {**self.pod["spec"], **members}.items() if value is not None}
        return replace(self, pod={**self.pod, "spec": spec})

    def without_affinity(self, kind: str) -> "World":
        affinity = self.pod["spec"].get("affinity", {})
        return self.with_spec(affinity={key: value for key, value in affinity.items() if key != kind})

    def with_request(self, resource: str, amount: int) -> "World":
        (container,) = deepcopy(self.pod["spec"]["containers"])
        for section in container["resources"].values():
            section.pop(resource, None)
            if amount:
                section[resource] = str(amount)
        return self.with_spec(containers=[container])

    def with_node(self, name: str, change: Callable[[Object], Object]) -> "World":
        return replace(self, nodes=[change(each) if each["metadata"]["name"] == name else each for each in self.nodes])

    def without(self, ended: Sequence[Object]) -> "World":
        return replace(self, bound=[each for each in self.bound if each not in ended])


def amounts(of: Object) -> dict[str, int]:
    """Return what a pod requests, with its place among the pods of its node."""
    requests = of["spec"]["containers"][0]["resources"]["requests"]
    return {**{name: int(count) for name, count in requests.items()}, "pods": 1}


def allocatable_of(of: Object, resource: str) -> int:
    return int(str(of["status"]["allocatable"].get(resource, 0)).removesuffix("Gi"))


def _zone(of: Object) -> str:
    return str(of["metadata"]["labels"]["zone"])


def is_lasting(of: Object) -> bool:
    """Return True for the pods of DaemonSets and of the node itself."""
    return any(owner["kind"] in ("DaemonSet", "Node") for owner in of["metadata"].get("ownerReferences", []))


def _with_state_taints(of: Object) -> Object:
    """Return a node with the taints that the control plane sets for its state, perhaps later."""
    taints = [*of["spec"]["taints"]]
    keys = {each["key"] for each in taints}
    ready = next(each["status"] for each in of["status"]["conditions"] if each["type"] == "Ready")
    if ready != "True" and keys.isdisjoint((f"{LIFECYCLE}not-ready", f"{LIFECYCLE}unreachable")):
        taints += map(taint, (f"{LIFECYCLE}not-ready:NoSchedule", f"{LIFECYCLE}not-ready:NoExecute"))
    return {**of, "spec": {**of["spec"], "taints": taints}}


class WorldGenerator:
    """A generator of waiting pods that have one node at least to run on, but for the causes that it adds.

    `real`: only what a control plane without kubelets accepts and keeps.
    """

    def __init__(self, random: Random, prefix: str = "", *, real: bool = False) -> None:
        self._random = random
        self._prefix = prefix
        self._real = real
        self._numbers = count()

    def world(self, causes: int) -> World:
        """Return a world with a number of causes; some hide each other, and others come by chance."""
        random = self._random
        nodes = [self._node(f"{self._prefix}node-{number}") for number in range(random.randint(1, 5))]
        bound = [
            self._holder(random.choice(nodes), random.choice(({GPU: 1, "cpu": 1}, {"cpu": 2}, {"cpu": 1})), on_daemon)
            for on_daemon in random.choices((True, False), k=random.randint(0, 3))
        ]
        requests = {GPU: random.randint(1, 3), "cpu": random.randint(1, 4)}
        world = World(
            pod=pod(f"{self._prefix}waiting", requests, labels={"app": "waiting", **SPREAD}), nodes=nodes, bound=bound
        )
        for add in random.sample(_ADDED, causes):
            world = add(self, world)
        return world

    def _node(self, name: str) -> Object:
        random = self._random
        labels = {"zone": random.choice("ab")}
        if random.randint(0, 1):
            labels |= {STRATEGY: random.choice(("single", "mixed", "none")), "nvidia.com/mig.config": "all-1g.5gb"}
            labels |= {PRODUCT: random.choice(("A100", "A100-MIG-1g.5gb"))}
            labels |= random.choice(({}, {"nvidia.com/mig.config.state": "success"}))
        offered = {GPU: random.choice((0, 2, 4, 4, 8)), "cpu": random.choice((8, 16)), "pods": random.choice((9, 110))}
        offered |= random.choice(({}, {}, {MIG1: 2}, {NIC: 1}))
        return node(name, offered, labels=labels, taints=random.choice(((), (), (), ("soft:PreferNoSchedule",))))

    def _holder(self, of: Object, requests: Mapping[str, int], daemon: bool = False, **spec: Any) -> Object:
        """Return a pod on a node."""
        owner = ("DaemonSet", "d") if daemon else None
        name = f"{self._prefix}held-{next(self._numbers)}"
        return pod(name, requests, on=of["metadata"]["name"], owner=owner, **spec)

    def _some(self, world: World) -> list[str]:
        """Return the names of all nodes, or of some."""
        names = [each["metadata"]["name"] for each in world.nodes]
        return names if self._random.randint(0, 2) else [name for name in names if self._random.randint(0, 1)]

    def _change(self, world: World, change: Callable[[Object], Object]) -> World:
        names = self._some(world)
        return replace(
            world, nodes=[change(each) if each["metadata"]["name"] in names else each for each in world.nodes]
        )

    # Causes to add

    def gates(self, world: World) -> World:
        return world.with_spec(schedulingGates=[{"name": "example.com/queue"}])

    def volumes(self, world: World) -> World:
        name = f"{self._prefix}v"
        world = _with_volume(world, name)
        phase = self._random.choice(("", "Pending") if self._real else ("", "Pending", "Lost", "Bound"))
        # Without a class, a claim is bound before its pod has a node.
        claim = {**volume_claim(name, phase), "spec": {"storageClassName": ""}}
        return replace(world, claims=[*world.claims, claim]) if phase else world

    def volumes_elsewhere(self, world: World) -> World:
        """Let a volume be in one zone only."""
        if self._real:  # doctor does not read volumes of a live cluster
            return world
        zone, claim = self._random.choice("abc"), volume_claim("w", "Bound")
        reached = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}
        spec = {"nodeAffinity": {"required": reached}, "claimRef": {"namespace": "ml", "name": "w"}}
        volume = api_object("PersistentVolume", "w", metadata={"labels": {"zone": zone}}, spec=spec)
        bound = {**claim, "spec": {"volumeName": "w"}}
        return replace(_with_volume(world, "w"), claims=[*world.claims, bound], volumes=[volume])

    def resource_claims(self, world: World) -> World:
        return world.with_spec(resourceClaims=[{"name": "c", "resourceClaimName": f"{self._prefix}c"}])

    def gpus(self, world: World) -> World:
        return world.with_request(GPU, self._random.choice((4, 5, 8, 9)))

    def other_gpus(self, world: World) -> World:
        world = world.with_request(GPU, 0) if self._random.randint(0, 1) else world
        return world.with_request(self._random.choice((MIG1, MIG1, MIG3)), self._random.randint(1, 3))

    def cpu(self, world: World) -> World:
        return world.with_request("cpu", self._random.choice((6, 9, 17)))

    def nic(self, world: World) -> World:
        return world.with_request(NIC, self._random.randint(1, 2))

    def selector(self, world: World) -> World:
        if self._random.randint(0, 1):
            return world.with_spec(nodeSelector={"zone": self._random.choice("abc")})
        expression = {"key": "zone", "operator": self._random.choice(("In", "NotIn")), "values": ["a"]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        return world.with_spec(affinity={**world.pod["spec"].get("affinity", {}), **affinity})

    def taints(self, world: World) -> World:
        written = self._random.choice(("gpu=yes:NoSchedule", "spot:NoExecute"))
        if not self._random.randint(0, 3):
            world = world.with_spec(tolerations=[{"key": "gpu", "operator": "Exists"}])
        return self._change(world, lambda of: _tainted(of, written))

    def cordons(self, world: World) -> World:
        # The node lifecycle controller adds the taint; the scheduler reads the cordon, too.
        taints = self._random.choice(((), (f"{CORDON}:NoSchedule",))) if not self._real else (f"{CORDON}:NoSchedule",)

        def change(of: Object) -> Object:
            of = _tainted(of, *taints)
            return {**of, "spec": {**of["spec"], "unschedulable": True}}

        return self._change(world, change)

    def not_ready(self, world: World) -> World:
        key = self._random.choice((f"{LIFECYCLE}not-ready", f"{LIFECYCLE}unreachable"))
        taints = [f"{key}:{effect}" for effect in self._random.choice((("NoSchedule",), ("NoSchedule", "NoExecute")))]
        if not self._real and not self._random.randint(0, 3):
            taints = []
        return self._change(world, lambda of: _with_condition(_tainted(of, *taints), "Ready", "Unknown"))

    def pressure(self, world: World) -> World:
        name = self._random.choice(("Disk", "Memory"))
        written = f"{LIFECYCLE}{name.lower()}-pressure:NoSchedule"
        return self._change(world, lambda of: _with_condition(_tainted(of, written), f"{name}Pressure", "True"))

    def starting_or_ending(self, world: World) -> World:
        key = self._random.choice(
            ("node.cilium.io/agent-not-ready", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")
        )
        return self._change(world, lambda of: _tainted(of, f"{key}:NoSchedule"))

    def held(self, world: World) -> World:
        """Let pods hold most of some resources of nodes; of several, one each, or all together."""
        resources = self._random.choice(((GPU,), ("cpu",), (GPU, "cpu")))
        together = bool(self._random.randint(0, 1))
        for name in self._some(world):
            left = {each: max(world.free(name, each) - self._random.randint(0, 2), 0) for each in resources}
            for requests in [left] if together else [{each: left[each]} for each in resources]:
                world = self._with_pod(world, name, requests)
        return world

    def full(self, world: World) -> World:
        """Let nodes have as many pods as they may."""
        for name in self._some(world):
            for _ in range(room if (room := world.free(name, "pods")) < 10 else 0):
                world = self._with_pod(world, name, {})
        return world

    def ports(self, world: World) -> World:
        ports = [{"containerPort": 80, "hostPort": 80}]
        (container,) = world.pod["spec"]["containers"]
        return self._with_held(world.with_spec(containers=[{**container, "ports": ports}]), ports=ports)

    def enemies(self, world: World) -> World:
        """Let pods be on nodes from which the waiting pod keeps away, or which keep it away."""
        key = self._random.choice(("kubernetes.io/hostname", "zone"))
        if self._random.randint(0, 1):
            return self._with_held(world, affinity=_affinity("podAntiAffinity", "waiting", key))
        return self._with_held(_with_affinity(world, "podAntiAffinity", "enemy", key), labels={"app": "enemy"})

    def friends(self, world: World) -> World:
        """Let pods be on nodes without which the waiting pod does not start there."""
        world = _with_affinity(world, "podAffinity", FRIEND, "kubernetes.io/hostname")
        return self._with_held(world, labels={"app": FRIEND})

    def spread(self, world: World) -> World:
        """Let nodes have pods that are spread."""
        # With the policy Honor, another selector would change where they have to be.
        constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "nodeAffinityPolicy": "Ignore"}
        selector = {"labelSelector": {"matchLabels": SPREAD}, "whenUnsatisfiable": "DoNotSchedule"}
        world = world.with_spec(topologySpreadConstraints=[{**constraint, **selector}])
        return self._with_held(world, labels=SPREAD)

    def _with_held(self, world: World, **fields: Any) -> World:
        """Return the world with such pods on some nodes."""
        for name in self._some(world):
            world = self._with_pod(world, name, {}, **fields)
        return world

    def _with_pod(self, world: World, name: str, requests: Mapping[str, int], **fields: Any) -> World:
        """Return the world with a pod on a node, if it has room for one."""
        held = self._holder(world.node(name), requests, **fields)
        return replace(world, bound=[*world.bound, held]) if world.free(name, "pods") else world


_ADDED: Sequence[Callable[[WorldGenerator, World], World]] = (
    WorldGenerator.gates,
    WorldGenerator.volumes,
    WorldGenerator.volumes_elsewhere,
    WorldGenerator.resource_claims,
    WorldGenerator.gpus,
    WorldGenerator.other_gpus,
    WorldGenerator.cpu,
    WorldGenerator.nic,
    WorldGenerator.selector,
    WorldGenerator.taints,
    WorldGenerator.cordons,
    WorldGenerator.not_ready,
    WorldGenerator.pressure,
    WorldGenerator.starting_or_ending,
    WorldGenerator.held,
    WorldGenerator.held,
    WorldGenerator.full,
    WorldGenerator.ports,
    WorldGenerator.enemies,
    WorldGenerator.friends,
    WorldGenerator.spread,
)
"""Functions that add a cause to a world."""


def _with_volume(world: World, claim: str) -> World:
    volume = {"name": claim, "persistentVolumeClaim": {"claimName": claim}}
    return world.with_spec(volumes=[*world.pod["spec"].get("volumes", []), volume])


def _affinity(kind: str, app: str, key: str) -> Object:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _with_affinity(world: World, kind: str, app: str, key: str) -> World:
    affinity = world.pod["spec"].get("affinity", {})
    return world.with_spec(affinity={**affinity, **_affinity(kind, app, key)})


def _tainted(of: Object, *written: str) -> Object:
    return {**of, "spec": {**of["spec"], "taints": [*of["spec"]["taints"], *map(taint, written)]}}


def _with_condition(of: Object, name: str, status: str) -> Object:
    others = [each for each in of["status"]["conditions"] if each["type"] != name]
    return {**of, "status": {**of["status"], "conditions": [*others, {"type": name, "status": status}]}}
