"""Causes of waiting pods, found by removing them one at a time until a naive scheduler starts the pod.

A cause is lifted for one node, as its remedy says: by another request, selector or toleration of the pod, by another
state of the node, or by the end of the pods that hold what is missing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

from rules_engine.questions.doctor.reasons import PendingReason
from tests.support import naive_scheduler
from tests.support.api import GPU, MIG1, MIG3, node, pod, taint, volume_claim

Object = dict[str, Any]

GPUS = (GPU, MIG1, MIG3)
NIC = "example.com/nic"
STRATEGY = "nvidia.com/mig.strategy"
PRODUCT = "nvidia.com/gpu.product"

FRIEND = "friend"
SPREAD = {"set": "spread"}

LIFECYCLE = "node.kubernetes.io/"
CORDON = f"{LIFECYCLE}unschedulable"
STATES = {
    CORDON: PendingReason.CORDON,
    f"{LIFECYCLE}not-ready": PendingReason.NOT_READY,
    f"{LIFECYCLE}unreachable": PendingReason.NOT_READY,
    f"{LIFECYCLE}disk-pressure": PendingReason.UNDER_PRESSURE,
    f"{LIFECYCLE}memory-pressure": PendingReason.UNDER_PRESSURE,
    "node.cilium.io/agent-not-ready": PendingReason.NOT_INITIALIZED,
    "ToBeDeletedByClusterAutoscaler": PendingReason.BEING_REMOVED,
    "karpenter.sh/disrupted": PendingReason.BEING_REMOVED,
}
"""Reasons of the taints that report a state."""

Lift = Callable[["World"], "World"]

BEFORE_NODES, NODES, NODE_STATES, OTHERS = range(4)
"""Groups of causes, in the order in which they must go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A reason of a group, and what lifts it for one node."""

    group: int
    reason: PendingReason
    lift: Lift
    resource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A waiting pod in a cluster. `claims`: its volume claims that exist, `resource_claims`: the names of others."""

    pod: Object
    nodes: Sequence[Object]
    bound: Sequence[Object] = ()
    claims: Sequence[Object] = ()
    resource_claims: Sequence[Object] = ()

    @property
    def objects(self) -> list[Object]:
        return [*self.nodes, *self.bound, *self.claims, *self.resource_claims, self.pod]

    def starting_nodes(self) -> set[str]:
        """Return the names of the nodes on which the pod may start now."""
        if self.pod["spec"].get("schedulingGates") or self.missing_claims() or self.missing_volumes():
            return set()
        found = naive_scheduler.node_reasons(self.pod, [*map(_with_state_taints, self.nodes)], self.bound, [])
        return {name for name, reasons in found.items() if not reasons}

    def missing_claims(self) -> list[str]:
        existing = {claim["metadata"]["name"] for claim in self.resource_claims}
        wanted = [claim["resourceClaimName"] for claim in self.pod["spec"].get("resourceClaims", [])]
        return [name for name in wanted if name not in existing]

    def missing_volumes(self) -> list[str]:
        bound = {claim["metadata"]["name"] for claim in self.claims if claim["status"]["phase"] == "Bound"}
        wanted = [volume["persistentVolumeClaim"]["claimName"] for volume in self.pod["spec"].get("volumes", [])]
        return [name for name in wanted if name not in bound]

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

    def _left(self, name: str, resource: str, held: "Iterator[Object] | Sequence[Object]") -> int:
        return max(_allocatable(self.node(name), resource) - sum(amounts(each).get(resource, 0) for each in held), 0)

    def with_spec(self, **members: Any) -> "World":
        """Return the world in which members of the pod's spec are replaced, or removed by None."""
        spec = {key: value for key, value in {**self.pod["spec"], **members}.items() if value is not None}
        return replace(self, pod={**self.pod, "spec": spec})

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


def _allocatable(of: Object, resource: str) -> int:
    return int(str(of["status"]["allocatable"].get(resource, 0)).removesuffix("Gi"))


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


# Causes


def minimal_causes(world: World) -> list[list[Cause]]:
    """Return the causes for each of the best nodes, in order; none if the pod starts.

    Best are nodes with enough GPUs or, if there are none, with some; of these the ones with the fewest causes: of what
    no ended pod removes, then of states, then of what others must end.
    """
    causes = {each["metadata"]["name"]: [*_causes_on(world, each["metadata"]["name"])] for each in world.nodes}
    if not all(causes.values()):
        return []
    requested = amounts(world.pod)
    enough = [world.offering(gpu, requested[gpu]) or world.offering(gpu) for gpu in requested_gpus(world)]

    def rank(name: str) -> tuple[int, ...]:
        groups = Counter(cause.group for cause in causes[name])
        return sum(name not in each for each in enough), *(groups[group] for group in (NODES, NODE_STATES, OTHERS))

    best = min(map(rank, causes))
    return [_named(world, name, causes) for name in causes if rank(name) == best]


def steps_of(causes: Sequence[Cause], reasons: Sequence[str]) -> list[list[Cause]]:
    """Return causes by reason, in the order of some reasons, or nothing if these are not the ones of the causes.

    Several resources of a group have one reason; the order within a group may be any.
    """
    left: dict[tuple[int, str], list[Cause]] = {}
    for cause in causes:
        left.setdefault((cause.group, cause.reason), []).append(cause)
    steps = []
    for reason in reasons:
        group = min((group for group, _ in left), default=None)
        if group is None or (group, reason) not in left:
            return []
        steps.append(left.pop((group, reason)))
    return [] if left else steps


def requested_gpus(world: World) -> list[str]:
    return [name for name in amounts(world.pod) if name in GPUS]


def _lasting_keys(causes: Sequence[Cause]) -> list[tuple[Any, ...]]:
    return [(cause.reason, cause.resource) for cause in causes if cause.group != OTHERS]


def _named(world: World, name: str, causes: Mapping[str, Sequence[Cause]]) -> list[Cause]:
    """Return the causes on a node; GPUs in use are on no single node if the nodes with the same causes have enough."""
    alike = [
        other
        for other in causes
        if _lasting_keys(causes[other]) == _lasting_keys(causes[name]) and any(map(_is_held, causes[other]))
    ]
    requested = amounts(world.pod)
    held = [cause.resource for cause in causes[name] if _is_held(cause)]
    enough = all(sum(world.free(other, gpu) for other in alike) >= requested[gpu] for gpu in held)
    reason = PendingReason.ON_NO_SINGLE_NODE if enough else PendingReason.ALL_ALLOCATED
    return [replace(cause, reason=reason) if _is_held(cause) else cause for cause in causes[name]]


def _is_held(cause: Cause) -> bool:
    return cause.group == OTHERS and cause.resource in GPUS


def _causes_on(world: World, name: str) -> Iterator[Cause]:
    """Yield the causes that must go for the pod to start on a node, in order."""
    lasting = [*_lasting_causes(world, name)]
    empty = _without_affinity(world, "podAffinity").without(_ending(world))
    for cause in lasting:
        others = [other for other in lasting if other is not cause]
        if name not in lift_all(empty, others).starting_nodes():
            yield cause
            world = cause.lift(world)
    yield from _causes_by_others(world, name)


def lift_all(world: World, causes: Sequence[Cause]) -> World:
    for cause in causes:
        world = cause.lift(world)
    return world


def _lasting_causes(world: World, name: str) -> Iterator[Cause]:
    """Yield every cause that there may be for a node, apart from other pods; a pod has only some of them."""
    yield Cause(
        group=BEFORE_NODES,
        reason=PendingReason.SCHEDULING_GATES,
        lift=lambda world: world.with_spec(schedulingGates=None),
    )
    yield Cause(group=BEFORE_NODES, reason=PendingReason.CLAIM_MISSING, lift=_create_resource_claims)
    yield Cause(group=BEFORE_NODES, reason=PendingReason.VOLUME_CLAIMS, lift=_bind_volumes)
    for resource in [each for each in amounts(world.pod) if each != "pods"]:
        yield Cause(group=NODES, reason=_shortage(world, resource), lift=_lower(name, resource), resource=resource)
    yield Cause(group=NODES, reason=PendingReason.SELECTOR_OR_AFFINITY, lift=_drop_selector)
    yield Cause(group=NODES, reason=PendingReason.TAINT, lift=lambda world: _tolerate(world, name))
    for reason in dict.fromkeys(STATES.values()):
        yield Cause(group=NODE_STATES, reason=reason, lift=_restore(name, reason))


def _shortage(world: World, resource: str) -> PendingReason:
    """Return the reason for which a node may have too little of a resource even without other pods."""
    if world.offering(resource):
        return PendingReason.ON_NO_SINGLE_NODE if resource in GPUS else PendingReason.OTHER_RESOURCES
    if resource not in GPUS:
        return PendingReason.OTHER_ON_NO_NODE
    missing = [gpu for gpu in requested_gpus(world) if not world.offering(gpu)]
    if all(any(_has_other_name(each, gpu) for each in world.nodes) for gpu in missing):
        return PendingReason.WRONG_MIG_STRATEGY
    return PendingReason.RESOURCE_ON_NO_NODE


def _has_other_name(of: Object, resource: str) -> bool:
    """Return True if a node offers the devices of a resource by another name, because of its MIG strategy."""
    labels = of["metadata"]["labels"]
    strategy = labels.get(STRATEGY)
    if resource == GPU:
        return strategy == "mixed" and any(_allocatable(of, name) for name in (MIG1, MIG3))
    if resource == MIG3 or not _allocatable(of, GPU):
        return False
    if strategy == "single":
        return str(labels[PRODUCT]).endswith("-MIG-1g.5gb")
    applied = labels.get("nvidia.com/mig.config"), labels.get("nvidia.com/mig.config.state")
    return strategy == "none" and applied == ("all-1g.5gb", "success")


def _causes_by_others(world: World, name: str) -> Iterator[Cause]:
    """Yield the causes that the end of other pods on a node removes, each with those that hold what is missing."""
    requested = amounts(world.pod)
    for resource in sorted(requested, key=lambda each: each not in GPUS):
        if world.free(name, resource) < requested[resource]:
            reason = PendingReason.ALL_ALLOCATED if resource in GPUS else PendingReason.OTHER_RESOURCES
            cause = Cause(group=OTHERS, reason=reason, lift=_end(name, resource), resource=resource)
            yield cause
            world = cause.lift(world)
    if name not in world.starting_nodes():
        yield Cause(group=OTHERS, reason=PendingReason.OTHER_FILTERS, lift=_resolve_conflicts(name))


# What lifts a cause


def _create_resource_claims(world: World) -> World:
    claims = [{"kind": "ResourceClaim", "metadata": {"name": name}} for name in world.missing_claims()]
    return replace(world, resource_claims=[*world.resource_claims, *claims])


def _bind_volumes(world: World) -> World:
    missing = world.missing_volumes()
    kept = [each for each in world.claims if each["metadata"]["name"] not in missing]
    return replace(world, claims=[*kept, *(volume_claim(name, "Bound") for name in missing)])


def _lower(name: str, resource: str) -> Lift:
    def lift(world: World) -> World:
        most = world.lasting(name, resource)
        lowers = amounts(world.pod).get(resource, 0) > most
        return world.with_request(resource, most) if lowers else world

    return lift


def _drop_selector(world: World) -> World:
    return _without_affinity(world.with_spec(nodeSelector=None), "nodeAffinity")


def _without_affinity(world: World, kind: str) -> World:
    affinity = world.pod["spec"].get("affinity", {})
    return world.with_spec(affinity={key: value for key, value in affinity.items() if key != kind})


def _tolerate(world: World, name: str) -> World:
    keys = [each["key"] for each in world.node(name)["spec"]["taints"] if each["key"] not in STATES]
    added = [{"key": key, "operator": "Exists"} for key in keys]
    return world.with_spec(tolerations=[*world.pod["spec"].get("tolerations", []), *added])


def _restore(name: str, reason: PendingReason) -> Lift:
    def restore(of: Object) -> Object:
        spec = {**of["spec"], "taints": [each for each in of["spec"]["taints"] if STATES.get(each["key"]) != reason]}
        conditions = of["status"]["conditions"]
        if reason is PendingReason.CORDON:
            spec.pop("unschedulable", None)
        elif reason is PendingReason.NOT_READY:
            conditions = [{**each, "status": "True"} if each["type"] == "Ready" else each for each in conditions]
        else:
            conditions = [each if each["type"] == "Ready" else {**each, "status": "False"} for each in conditions]
        return {**of, "spec": spec, "status": {**of["status"], "conditions": conditions}}

    return lambda world: world.with_node(name, restore)


def _end(name: str, resource: str) -> Lift:
    def lift(world: World) -> World:
        held = [each for each in _ending(world) if each["spec"]["nodeName"] == name and amounts(each).get(resource)]
        if resource == "pods":
            # Any of them will do: first those that are in the way only by their number.
            held.sort(key=lambda each: (_is_special(each), sum(map(bool, amounts(each).values()))))
            del held[len(world.on(name)) + 1 - _allocatable(world.node(name), resource) :]
        return world.without(held)

    return lift


def _is_special(of: Object) -> bool:
    return bool(of["metadata"]["labels"] or of["spec"].get("affinity") or of["spec"]["containers"][0].get("ports"))


def _ending(world: World) -> list[Object]:
    """Return the bound pods that may end, without the friends that the waiting pod needs."""
    held = [each for each in world.bound if not is_lasting(each)]
    return [each for each in held if each["metadata"]["labels"].get("app") != FRIEND]


def _resolve_conflicts(name: str) -> Lift:
    """Return what ends the pods in the way on a node; a pod that needs another one there does without it."""

    def lift(world: World) -> World:
        ending = _ending(world)
        if name not in world.without(ending).starting_nodes():  # it has no friend there
            world = _without_affinity(world, "podAffinity")
        alone = [(each, world.without([other for other in ending if other is not each])) for each in ending]
        return world.without([each for each, left in alone if name not in left.starting_nodes()])

    return lift


# Generated worlds


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
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
        world = world.with_spec(volumes=[volume])
        phase = self._random.choice(("", "Pending") if self._real else ("", "Pending", "Lost", "Bound"))
        # Without a class, a claim is bound before its pod has a node.
        claim = {**volume_claim(name, phase), "spec": {"storageClassName": ""}}
        return replace(world, claims=[claim]) if phase else world

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
"""What adds a cause."""


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
