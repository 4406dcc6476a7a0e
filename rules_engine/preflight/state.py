"""A cluster as it is, on which workloads are played without lasting effect."""

from bisect import insort
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace as replace_fields
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.cel import CostExceeded
from rules_engine.devices.offers import without_device_offers
from rules_engine.documents.workloads import SYSTEM_CLASSES, Priorities
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.nodes import NodeSet
from rules_engine.evaluation.nodes.reservations import PodKey
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.kubernetes.devices import Devices
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.rules.simulation import Arrival, Simulation
from rules_engine.preflight.quotas import read_quotas, usage_of
from rules_engine.scheduling.cycle import Bound, BoundPod, SchedulablePod
from rules_engine.scheduling.requirements import with_state_taints
from rules_engine.scheduling.scheduler import Scheduler
from rules_engine.simulation.admission import Admitted, Template
from rules_engine.simulation.arrivals import PlannedArrival, Run
from rules_engine.simulation.play import Play
from rules_engine.simulation.queue import is_selective
from rules_engine.simulation.record import Amounts


class Verdict(StrEnum):
    """What becomes of a pod that is created now."""

    STARTS = "Starts"
    WAITS = "Waits"
    NEVER = "Never"
    DENIED = "Denied"
    REFUSED = "Refused"


class PlayedPod(Struct, kw_only=True):
    """A pod of a workload after its play.

    `group`: the number of its template. `admitted` is None if the API server refused it before its rules. `node`: the
    number of its node, -1 without one; `equal`: the nodes that were as good. `victims`: pods that leave their nodes for
    it. `message`: of the rule or the API server.
    """

    name: str
    group: int
    verdict: Verdict
    admitted: Admitted | None = None
    node: int = -1
    equal: NodeSet = 0
    victims: tuple[str, ...] = ()
    message: str = ""


Plays = Sequence[Sequence[PlayedPod]]
"""The pods of each workload."""


class ClusterState:
    """A cluster with the pods that run, after those that wait and can run."""

    def __init__(self, simulation: Simulation, rule_set: RuleSet) -> None:
        """Take a cluster as a simulation without arrivals, and the rules."""
        self.simulation = simulation
        self.play = Play(simulation, rule_set)
        self.play.start()
        before = set(self.play.node_of_pod)
        self.play.settle()
        self.node_of_pod = self.play.node_of_pod
        """The nodes of pods that run, by namespace/name."""
        self.started = [name for name in self.node_of_pod if name not in before]
        """Pods that waited and can run now."""
        objects = simulation.objects
        self.priorities = Priorities.of(objects)
        self.quotas, self.scoped_quotas = read_quotas(objects.of("ResourceQuota"), objects.pods)
        self._empty = _empty_scheduler(simulation)

    @contextmanager
    def played(self, arrivals: Sequence[Arrival], *, ending: bool = False) -> Iterator[Plays]:
        """Let the pods of workloads arrive, one after the other. They are gone after the block.

        `ending`: where a pod cannot start, pods of its priority or a lower one end for it.
        """
        with ExitStack() as undo:
            played = _WorkloadPlay(self, undo, ending=ending)
            yield [played.pods_of(number, arrival) for number, arrival in enumerate(arrivals)]

    def could_hold(self, pod: SchedulablePod) -> bool:
        """Return True if a node could run a pod if all nodes were empty, ready and not cordoned."""
        alone = replace(pod.requirements, spread=(), affinity=(), anti_affinity=(), ports=())
        answer = self._empty.answer(alone)
        return bool(answer.failure or answer.passing)


def _empty_scheduler(simulation: Simulation) -> Scheduler:
    """Return a scheduler of all nodes without pods, those that are declared included."""
    existing = simulation.objects.view.nodes
    names = {node.name for node in existing}
    declared = [without_device_offers(node) for node in simulation.cluster.nodes if node.name not in names]
    nodes = [
        with_state_taints(replace_fields(node, ready=True, unschedulable=False)) for node in (*existing, *declared)
    ]
    devices = simulation.cluster.devices
    return Scheduler(nodes, {}, devices=Devices(classes=devices.classes, slices=devices.slices, allocated={}))


class _WorkloadPlay:
    """The play of workloads on a state; `undo` takes back each change."""

    def __init__(self, state: ClusterState, undo: ExitStack, *, ending: bool) -> None:
        self._state = state
        self._undo = undo
        self._ending = ending
        self._names = state.play.names.copy()
        self._usage: dict[str, dict[str, Quantity]] = {}
        """The usage of quotas by the pods so far, by namespace."""
        self._placed: dict[str, PlayedPod] = {}
        """The pods that run, by namespace/name."""
        self._waiting: list[tuple[PlayedPod, Admitted, SchedulablePod]] = []
        """The pods that others may help, the highest priority first."""
        self._failed: set[int] = set()
        """The identities of pods that could not start, since the last one that did."""

    def pods_of(self, number: int, arrival: Arrival) -> Sequence[PlayedPod]:
        """Let the pods of a workload arrive that run at the same time."""
        runs = PlannedArrival(number, arrival).arrive()
        return [self._create(run, group) for group, run in enumerate(runs) for _ in range(run.parallel)]

    def _retry(self) -> None:
        """Run the pods that wait and can run now, such as those with affinity to others."""
        while (started := next((each for each in self._waiting if self._starts(*each)), None)) is not None:
            self._waiting.remove(started)
            self._state.play.view.reservations.drop(PodKey(started[0].name, ""))

    def _create(self, run: Run, group: int) -> PlayedPod:
        state, template = self._state, run.template
        name = self._names.take(template.namespace, run.next_name())
        pod = PlayedPod(name=f"{template.namespace}/{name}", group=group, verdict=Verdict.REFUSED)
        pod.message = self._unknown_class(template)
        if pod.message:
            return pod
        admitted = pod.admitted = state.play.admissions.admit(template, name, state.play.view.cluster)
        if admitted.pod is None:
            pod.verdict, pod.message = Verdict.DENIED, admitted.record.message
            return pod
        pod.message = self._exceeded_quota(template.namespace, admitted)
        if pod.message:
            return pod
        if self._starts(pod, admitted, admitted.pod):
            self._retry()
        else:
            if is_selective(admitted.pod):
                insort(self._waiting, (pod, admitted, admitted.pod), key=lambda each: -each[2].priority)
            pod.verdict = Verdict.WAITS if state.could_hold(admitted.pod) else Verdict.NEVER
            state.play.view.reserve(pod.name, admitted.pod.requirements.placement, admitted.record.given, 0)
            self._undo.callback(state.play.view.reservations.drop, PodKey(pod.name, ""))
        return pod

    def _unknown_class(self, template: Template) -> str:
        """Return why the API server refuses the PriorityClass of a pod; "" if it knows it."""
        name = text_member(as_mapping(template.pod.get("spec")), "priorityClassName")
        known = self._state.priorities.classes
        # A cluster has the classes of the system at least: without others, they may not have been read.
        if not name or name in known or len(known) == len(SYSTEM_CLASSES):
            return ""
        return f"no PriorityClass with name {truncate(name)} was found"

    def _exceeded_quota(self, namespace: str, admitted: Admitted) -> str:
        """Return why a quota of the namespace refuses a pod; "" if none does, and the pod counts from then on."""
        quotas = self._state.quotas.get(namespace)
        if not quotas:
            return ""
        pod = Pod.parse(dict(admitted.object))
        usage, earlier = usage_of(pod), self._usage.setdefault(namespace, {})
        refused = next(filter(None, (quota.refusal(pod, usage, earlier) for quota in quotas)), "")
        if not refused:
            earlier.update({name: earlier.get(name, Quantity(0)) + amount for name, amount in usage.items()})
        return refused

    def _starts(self, pod: PlayedPod, admitted: Admitted, schedulable: SchedulablePod) -> bool:
        """Run a pod; return False if it has to wait."""
        bound = None if id(schedulable) in self._failed else self._bind(pod, schedulable)
        if bound is None:
            self._failed.add(id(schedulable))
            return False
        self._failed.clear()
        pod.verdict, pod.node, pod.equal = Verdict.STARTS, bound.node, bound.equal
        self._placed[pod.name] = pod
        self._hold(bound.node, admitted.record.given, 1)
        return True

    def _bind(self, pod: PlayedPod, schedulable: SchedulablePod) -> Bound | None:
        """Bind a pod to a node, where need be in place of others; None if no node can run it."""
        cycle = self._state.play.cycle
        if self._ending:
            # Preemption by a priority just above its own chooses which pods of its own priority end.
            above = replace(schedulable.requirements, priority=schedulable.priority + 1)
            schedulable = replace(schedulable, requirements=above, preempts=True)
        held = cycle.devices.held
        try:
            bound = cycle.schedule(pod.name, schedulable, 0)
        except CostExceeded as error:
            pod.message = error.message
            return None
        if bound is None:
            return None
        for victim in bound.victims:
            self._undo.callback(cycle.bind, victim, held.get(victim.name))
            self._evict(victim, pod.name)
        if bound.waits:
            return None
        self._undo.callback(cycle.release, BoundPod(pod.name, schedulable, bound.node, 0))
        pod.victims = tuple([victim.name for victim in bound.victims])
        return bound

    def _evict(self, victim: BoundPod, by: str) -> None:
        """Record that a pod has left its node, after the cycle did."""
        placed = self._placed.pop(victim.name, None)
        if placed is None or placed.admitted is None:
            given = self._state.play.given(victim)
        else:
            placed.verdict, placed.node, placed.message = Verdict.WAITS, -1, f"evicted for {by}"
            given = placed.admitted.record.given
        self._hold(victim.node, given, -1)

    def _hold(self, number: int, given: Amounts, sign: int) -> None:
        self._state.play.hold(number, given, sign)
        self._undo.callback(self._state.play.hold, number, given, -sign)
