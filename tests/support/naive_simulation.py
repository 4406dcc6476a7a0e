"""A second, slow implementation of the engine of simulations: it plans nothing and tries every waiting pod each time.

Only filters, scores and preemption are those of the product.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any

from rules_engine.cluster.scheduling.choice import uniform_fraction
from rules_engine.cluster.scheduling.cycle import BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.disruption_budgets import DisruptionBudgets
from rules_engine.cluster.scheduling.requirements import Footprint
from rules_engine.model.kubernetes.cluster import Cluster, Node, Taint
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.simulation import Arrival, PodGroup, Simulation
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.admission import admit_pod
from tests.support.naive_preemption import Running, exceeding
from tests.support.placing import takes

Object = dict[str, Any]
_NOT_READY = "node.kubernetes.io/not-ready"
_CORDONED = "node.kubernetes.io/unschedulable"


@dataclass(kw_only=True, eq=False)
class NaivePod:
    """A pod, with all that is ever known of it."""

    number: int
    name: str
    namespace: str
    origin: str
    losses: int
    arrival: Arrival | None
    batch: "Batch"
    controlled: bool
    stays: bool
    stateful: bool
    raw: Object
    arrived: int
    replaces: str
    state: str = "Pending"
    node: str = ""
    bound: int | None = None
    ended: int | None = None
    message: str = ""
    by: str = ""
    given: dict[str, int] = field(default_factory=dict)
    schedulable: SchedulablePod | None = None

    @property
    def metadata(self) -> Object:
        return {**self.raw["metadata"], "name": self.name, "namespace": self.namespace}

    @property
    def scaled(self) -> bool:
        """True if its controller has a scale."""
        if self.batch.group is not None:
            return self.batch.group.selector is not None
        owners = self.raw["metadata"].get("ownerReferences", [])
        return any(owner["kind"] in ("ReplicaSet", "StatefulSet") for owner in owners)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def key(self) -> tuple[object, ...]:
        return (
            self.name,
            self.namespace,
            self.arrived,
            self.state,
            self.node,
            self.bound,
            self.ended,
            self.message,
            self.replaces,
            self.by,
            self.given,
        )


@dataclass(kw_only=True, eq=False)
class Batch:
    """Pods of one group of one arrival."""

    group: PodGroup | None
    base: str
    left: int = 0
    numbers: int = 0


class NaiveBudgets(DisruptionBudgets):
    """PodDisruptionBudgets, whose statuses are computed from all pods each time."""

    def __init__(self, simulated: "NaiveSimulation") -> None:
        super().__init__()
        self.simulated = simulated

    def of(self, pod: Footprint) -> Any:
        return ["possibly"]

    def count_running(self, pod: BoundPod, number: int) -> None:
        pass

    def exceeding(self, pods: Iterable[BoundPod]) -> dict[str, BoundPod]:
        made: Any = self.simulated.simulation.objects.of("PodDisruptionBudget")
        running = {pod.full_name: Running({**pod.raw, "metadata": pod.metadata}, 0) for pod in self.simulated.running()}
        budgets = [{**found, "status": {"disruptionsAllowed": self.allowed(found)}} for found in made]
        lower = {pod.name: pod for pod in pods}
        return {found.name: lower[found.name] for found in exceeding([running[name] for name in lower], budgets)}

    def allowed(self, budget: Object) -> int:
        """Return what the controller would compute (pkg/controller/disruption)."""
        namespace, labels = budget["metadata"]["namespace"], budget["spec"]["selector"]["matchLabels"].items()
        pods = [
            pod
            for pod in self.simulated.pods
            if pod.namespace == namespace and labels <= pod.metadata.get("labels", {}).items() and pod.schedulable
        ]
        healthy = sum(pod.state == "Running" and not pod.metadata.get("deletionTimestamp") for pod in pods)
        controlled = [pod for pod in pods if pod.controlled and not pod.replaces]
        ended = sum(pod.state == "Succeeded" and pod.controlled and pod.scaled for pod in pods)
        expected = len(controlled) - ended
        least, most = (budget["spec"].get(name) for name in ("minAvailable", "maxUnavailable"))
        if isinstance(least, int):
            return max(0, healthy - least)
        if expected <= 0 or not all(pod.scaled for pod in controlled):
            return 0
        share = least if most is None else most
        number = share if isinstance(share, int) else ceil(Fraction(share.rstrip("%")) * expected / 100)
        return max(0, healthy - (number if most is None else max(0, expected - number)))


class NaiveSimulation:
    def __init__(self, simulation: Simulation, rule_set: RuleSet) -> None:
        self.simulation, self.rule_set = simulation, rule_set
        self.now = 0
        self.nodes = {node.name: self.put(replace(node, used={}), "") for node in simulation.objects.view.nodes}
        self.names = [*self.nodes]
        listed: Any = simulation.objects.of("Namespace")
        labels: dict[str, dict[str, str]] = {found.name: found["metadata"]["labels"] for found in listed}
        spaces = {**{arrival.namespace: {} for arrival in simulation.arrivals}, **labels}
        self.cycle = SchedulingCycle(
            [*self.nodes.values()], spaces, simulation.scheduler, simulation.seed, budgets=NaiveBudgets(self)
        )
        self.not_ready_since = {name: 0 for name, node in self.nodes.items() if not node.ready}
        self.pods: list[NaivePod] = []
        self.reserved: dict[int, tuple[str, dict[str, int]]] = {}
        """The node and the devices that a pod reserves while it waits, for 10 seconds."""
        self.arriving: list[tuple[Batch, Arrival | None, NaivePod | None]] = []
        self.events = [event for event in simulation.events if self.in_time(event.at)]
        self.due = {number: arrival.at for number, arrival in enumerate(simulation.arrivals)}
        self.arrived = dict.fromkeys(self.due, 0)
        self.add_existing()

    def in_time(self, moment: int) -> bool:
        return self.simulation.until is None or moment <= self.simulation.until

    def add_existing(self) -> None:
        existing: Any = self.simulation.objects.pods
        for raw in existing:
            owners = raw["metadata"].get("ownerReferences", [])
            made = NaivePod(
                number=len(self.pods),
                name=raw["metadata"]["name"],
                namespace=raw["metadata"]["namespace"],
                origin=raw["metadata"]["name"],
                losses=0,
                arrival=None,
                batch=Batch(group=None, base=""),
                controlled=bool(owners),
                stays=any(owner["kind"] == "DaemonSet" for owner in owners),
                stateful=any(owner["kind"] == "StatefulSet" for owner in owners),
                raw={"metadata": dict(raw["metadata"]), "spec": dict(raw["spec"])},
                arrived=0,
                replaces="",
            )
            node = made.raw["spec"].pop("nodeName", "")
            self.pods.append(made)
            self.read(made)
            if node:
                assert made.schedulable is not None
                self.cycle.bind(BoundPod(made.full_name, made.schedulable, self.names.index(node), 0))
                made.state, made.node, made.bound = "Running", node, 0

    def read(self, pod: NaivePod) -> None:
        metadata = {**pod.raw["metadata"], "namespace": pod.namespace}
        group = pod.batch.group
        pod.schedulable = SchedulablePod.of({**pod.raw, "metadata": metadata}, group.selector if group else None)
        pod.given = dict(Pod.parse(pod.raw).effective_requests())

    # Time

    def play(self) -> list[NaivePod]:
        while self.step():
            pass
        for pod in self.waiting():
            assert pod.schedulable is not None
            pod.message = self.cycle.explain(pod.schedulable).message()
        return self.pods

    def step(self) -> bool:
        ends = [pod for pod in self.running() if self.end_of(pod) == self.now]
        events = [event for event in self.events if event.at == self.now]
        evicted = [pod for pod in self.running() if self.eviction_of(pod) == self.now]
        starting = [number for number, moment in self.due.items() if moment == self.now]
        if ends:
            self.leave(ends[0], "Succeeded", "")
        elif events:
            self.events.remove(events[0])
            self.change(events[0].node, events[0].becomes.value)
        elif evicted:
            self.leave(evicted[0], "Evicted", "NotReady")
        elif any(self.attempt(pod) for pod in self.waiting()):
            # A pod that runs no time at all ends after the others were tried.
            while any(self.attempt(pod) for pod in self.waiting()):
                pass
        elif self.arriving:
            self.arrive(*self.arriving.pop(0))
        elif starting:
            self.start(starting[0])
        else:
            return self.go_on()
        return True

    def go_on(self) -> bool:
        times = [event.at for event in self.events] + [*self.due.values()]
        for pod in self.running():
            times += [moment for moment in (self.end_of(pod), self.eviction_of(pod)) if moment is not None]
        later = [moment for moment in times if moment > self.now and self.in_time(moment)]
        self.now = min(later, default=self.now)
        return bool(later)

    def end_of(self, pod: NaivePod) -> int | None:
        draw = pod.arrival.run_for if pod.arrival else self.simulation.running_for
        if draw is None or pod.bound is None or pod.stays:
            return None
        drawn = draw.quantile(uniform_fraction(self.simulation.seed, "run time", f"{pod.namespace}/{pod.origin}"))
        return pod.bound + drawn

    def eviction_of(self, pod: NaivePod) -> int | None:
        since = self.not_ready_since.get(pod.node)
        grace = self.grace(pod)
        return None if since is None or grace is None or pod.bound is None else max(since, pod.bound) + grace

    def grace(self, pod: NaivePod) -> int | None:
        for found in pod.raw["spec"].get("tolerations", []):
            if found.get("key", _NOT_READY) == _NOT_READY and found.get("effect", "NoExecute") == "NoExecute":
                seconds = found.get("tolerationSeconds")
                return None if seconds is None else seconds * 1000
        return 300_000

    # Pods

    def running(self) -> list[NaivePod]:
        return [pod for pod in self.pods if pod.state == "Running"]

    def waiting(self) -> list[NaivePod]:
        found = [pod for pod in self.pods if pod.state == "Pending"]
        return sorted(found, key=lambda pod: (-pod.raw["spec"].get("priority", 0), pod.number))

    def start(self, number: int) -> None:
        arrival = self.simulation.arrivals[number]
        self.arrived[number] += 1
        for group in arrival.groups:
            base = group.name if arrival.count == 1 else f"{group.name}-{self.arrived[number]}"
            parallel = min(group.parallel, group.total)
            batch = Batch(group=group, base=base, left=group.total - parallel)
            self.arriving += [(batch, arrival, None)] * parallel
        del self.due[number]
        if self.arrived[number] < arrival.count:
            drawn = uniform_fraction(self.simulation.seed, "interval", f"{number}/{self.arrived[number]}")
            moment = self.now + arrival.every.quantile(drawn)
            if self.in_time(moment):
                self.due = dict(sorted({**self.due, number: moment}.items()))

    def arrive(self, batch: Batch, arrival: Arrival | None, lost: NaivePod | None) -> None:
        group = batch.group
        namespace = arrival.namespace if arrival else lost.namespace if lost else ""
        submitted: Any = group.pod.get("metadata") if group else None
        stateful = lost.stateful if lost else bool(group and group.controlled and submitted.get("name"))
        if lost is not None:
            name = lost.name if stateful else f"{lost.origin}-r{lost.losses + 1}"
        elif group is not None and group.controlled:
            batch.numbers += 1
            name = f"{batch.base}-{batch.numbers - stateful}"
        else:
            name = batch.base
        number, wanted = 1, name
        while not (stateful and lost) and any((pod.namespace, pod.name) == (namespace, name) for pod in self.pods):
            number += 1
            name = f"{wanted}-{number}"
        if group is not None:
            raw: Object = dict(group.pod)
            if stateful or not group.controlled:
                raw["metadata"] = {**raw.get("metadata", {}), "name": name}
        else:
            assert lost is not None
            owner = lost.raw["metadata"]["ownerReferences"][0]
            metadata = {key: value for key, value in lost.raw["metadata"].items() if key in ("labels", "annotations")}
            names = {"generateName": f"{owner['name']}-", **({"name": name} if stateful else {})}
            raw = {"metadata": {**metadata, **names}, "spec": lost.raw["spec"]}
        admission = admit_pod(self.rule_set, pod_request(raw, namespace=namespace), self.cluster())
        pod = NaivePod(
            number=len(self.pods),
            name=name,
            namespace=namespace,
            origin=lost.origin if lost else name,
            losses=lost.losses + 1 if lost else 0,
            arrival=arrival,
            batch=batch,
            controlled=lost is not None or (group is not None and group.controlled),
            stays=lost.stays if lost else False,
            stateful=stateful,
            raw=dict(admission.result) if isinstance(admission.result, dict) else {},
            arrived=self.now,
            replaces=lost.name if lost else "",
        )
        if lost is not None and lost.arrival is None:
            pod.raw["metadata"] = {**pod.raw["metadata"], "ownerReferences": lost.raw["metadata"]["ownerReferences"]}
        self.pods.append(pod)
        if admission.allowed:
            self.read(pod)
            self.attempt(pod)
            if pod.state == "Pending":
                self.reserve(pod)
        else:
            pod.state, pod.ended = "Denied", self.now

    def cluster(self) -> Cluster:
        nodes = []
        held = [(pod.node, pod.given) for pod in self.running()]
        for pod in self.waiting():
            if pod.number in self.reserved and pod.arrived + 10_000 > self.now:
                held.append(self.reserved[pod.number])
        for node in self.nodes.values():
            used: dict[str, int] = {}
            for name, amounts in held:
                if name == node.name:
                    for resource, nanos in amounts.items():
                        used[resource] = used.get(resource, 0) + nanos
            nodes.append(replace(node, used={resource: Quantity(nanos) for resource, nanos in used.items() if nanos}))
        return Cluster(nodes=tuple(nodes), namespaces=self.simulation.cluster.namespaces)

    def reserve(self, pod: NaivePod) -> None:
        """Reserve the devices of a waiting pod on the node where the fewest are left."""
        assert pod.schedulable is not None
        devices = {resource: nanos for resource, nanos in pod.given.items() if "/" in resource and nanos > 0}
        fitting = []
        for node in self.cluster().nodes:
            free = {
                resource: node.available(resource).nanos for resource in sorted(node.allocatable) if "/" in resource
            }
            left = [free.get(resource, 0) - nanos for resource, nanos in devices.items()]
            open_ = node.ready and not node.unschedulable and takes(node, pod.schedulable.requirements.placement)
            if open_ and min(left, default=-1) >= 0:
                fitting.append((sum(left), [*free.items()], node.name))
        if fitting:
            self.reserved[pod.number] = min(fitting)[2], devices

    def attempt(self, pod: NaivePod) -> bool:
        assert pod.schedulable is not None
        found = self.cycle.schedule(pod.full_name, pod.schedulable, self.now)
        if found is None:
            return False
        victims = {victim.name for victim in found.victims}
        lost = {other.full_name: other for other in self.running() if other.full_name in victims}
        for victim in found.victims:
            self.leave(lost[victim.name], "Preempted", pod.full_name, released=True)
        if not found.waits:
            pod.state, pod.node, pod.bound = "Running", self.names[found.node], self.now
        return True

    def leave(self, pod: NaivePod, state: str, by: str, *, released: bool = False) -> None:
        assert pod.schedulable is not None
        assert pod.bound is not None
        if not released:
            number = self.names.index(pod.node)
            self.cycle.release(BoundPod(pod.full_name, pod.schedulable, number, pod.bound))
        pod.state, pod.ended, pod.by = state, self.now, by
        if state != "Succeeded":
            if pod.controlled:
                self.arriving.append((pod.batch, pod.arrival, pod))
        elif pod.batch.left:
            pod.batch.left -= 1
            self.arriving.append((pod.batch, pod.arrival, None))

    # Nodes

    def change(self, name: str, state: str) -> None:
        before = self.nodes[name]
        after = self.nodes[name] = self.put(before, state)
        self.cycle.change_node(self.names.index(name), after)
        if before.ready and not after.ready:
            self.not_ready_since[name] = self.now
        elif after.ready:
            self.not_ready_since.pop(name, None)
        if state == "Drained":
            for pod in self.running():
                if pod.node == name and not pod.stays:
                    self.leave(pod, "Evicted", "Drained")

    @staticmethod
    def put(node: Node, state: str) -> Node:
        ready = state == "Ready" if state in ("Ready", "NotReady") else node.ready
        cordoned = state != "Uncordoned" if state in ("Cordoned", "Drained", "Uncordoned") else node.unschedulable
        taints = {taint for taint in node.taints if taint.key not in (_NOT_READY, _CORDONED)}
        if not ready:
            taints |= {Taint(key=_NOT_READY, effect=effect) for effect in ("NoSchedule", "NoExecute")}
        if cordoned:
            taints.add(Taint(key=_CORDONED, effect="NoSchedule"))
        return replace(node, ready=ready, unschedulable=cordoned, taints=tuple(taints))
