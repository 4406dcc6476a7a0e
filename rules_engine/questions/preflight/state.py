"""A cluster as it is, on which workloads are simulated without lasting effect."""

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from functools import partial
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.accelerators.resources import scheduler_for
from rules_engine.cluster.creation.quota import Quota, charge, refusal
from rules_engine.cluster.devices.offers import without_device_offers
from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.nodes.autoscalers import DECLARED, autoscalers_of, unknown_nodes
from rules_engine.cluster.nodes.reservations import PodKey
from rules_engine.cluster.scheduling.cycle import Bound, BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.requirements import DEFAULT_SCHEDULER, Footprint, Requirements
from rules_engine.cluster.scheduling.scheduler import MANY_STEPS, never_ends
from rules_engine.cluster.scheduling.scheduling import NO_AFFINE_POD, NO_VOLUME, OTHER_VOLUME_NODE
from rules_engine.cluster.state_taints import without_state_taints
from rules_engine.language.cel import CostExceeded
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NanosByResource
from rules_engine.model.rules.simulation import Arrival, SchedulerOptions, Simulation
from rules_engine.questions.preflight.volumes import with_volumes
from rules_engine.questions.simulate.admission import Admitted
from rules_engine.questions.simulate.arrivals import PlannedArrival, Run
from rules_engine.questions.simulate.play import Play
from rules_engine.questions.simulate.queue import is_selective
from rules_engine.rules.evaluation import RuleSet


class Verdict(StrEnum):
    """Outcome of creating a pod now, the best first. Unknown: something that is not known could prevent its start."""

    STARTS = "Starts"
    UNKNOWN = "Unknown"
    WAITS = "Waits"
    NEVER = "Never"
    DENIED = "Denied"
    REFUSED = "Refused"


def worst_verdict(verdicts: Collection[Verdict]) -> Verdict:
    """Return the worst of verdicts; Starts if there are none."""
    return next((verdict for verdict in reversed(Verdict) if verdict in verdicts), Verdict.STARTS)


class SimulatedPod(Struct, kw_only=True):
    """A pod of a workload with its outcome.

    `name`: namespace/name. `group`, `gang`: the numbers of its template and its gang. `node`: "" if it does not start.
    `equal`: the nodes among which the scheduler chose at random. `victims`: pods that leave their nodes for it.
    `message`: why it is denied or refused, or why its gang does not start. `alone`: what it would do without this gang.
    `unknown`: what may start it, if it waits.
    """

    name: str
    group: int
    gang: int
    admitted: Admitted
    verdict: Verdict
    node: str = ""
    equal: NodeSet = 0
    victims: tuple[str, ...] = ()
    message: str = ""
    alone: Verdict | None = None
    unknown: tuple[str, ...] = ()

    @property
    def starts(self) -> bool:
        return self.verdict is Verdict.STARTS

    @property
    def waits(self) -> bool:
        return self.verdict in (Verdict.WAITS, Verdict.NEVER)

    @property
    def outcome(self) -> Verdict:
        """The verdict of the answer: Unknown if something that is not known may start a pod that waits."""
        return Verdict.UNKNOWN if self.unknown else self.verdict

    @property
    def starts_alone(self) -> bool:
        return (self.alone or self.verdict) is Verdict.STARTS


PodsByWorkload = Sequence[Sequence[SimulatedPod]]


class ClusterState:
    """A cluster with the pods that run, after the pods that wait and can run."""

    def __init__(self, simulation: Simulation, rule_set: RuleSet) -> None:
        """Take a cluster, as a simulation whose arrivals are ignored, and the rules."""
        self.simulation = simulation
        self.play = Play(simulation, rule_set)
        self.play.admissions.with_volumes = partial(with_volumes, objects=simulation.objects)
        self.play.start()
        before = set(self.play.node_of_pod)
        self.play.settle()
        self.node_of_pod = self.play.node_of_pod
        """The nodes of pods that run, by namespace/name."""
        self.started = {name: node for name, node in self.node_of_pod.items() if name not in before}
        """Pods that waited and can run now, with their nodes."""
        objects = simulation.objects
        self.quotas: dict[str, list[Quota]] = {}
        """Quotas by namespace."""
        for item in sorted(objects.of("ResourceQuota"), key=lambda item: item.name):
            self.quotas.setdefault(item.namespace, []).append(Quota.read(item, objects.pods))
        self._empty = _empty_cycle(simulation)

    @contextmanager
    def simulated(self, arrivals: Sequence[Arrival], *, ending: int | None = None) -> Iterator[PodsByWorkload]:
        """Let the pods of workloads arrive, one after the other. They are gone after the block.

        A gang that does not start holds nothing: the others start as without it. `ending`: the number of a workload. If
        one of its pods cannot start, pods of the same or a lower priority end.
        """
        stopped: dict[int, Sequence[SimulatedPod]] = {}
        while True:
            with ExitStack() as undo:
                workloads = _WorkloadRun(self, undo, ending).create_pods(arrivals, stopped)
                if workloads is not None:
                    yield workloads
                    return

    def could_hold(self, pod: SchedulablePod) -> NodeSet:
        """Return the nodes that could run a pod without others, in their best state; all if the scheduler fails."""
        alone = replace(_with_bound_claims(pod.requirements), spread=(), affinity=(), anti_affinity=(), ports=())
        answer = self._empty.scheduler.answer(alone)
        return answer.every if answer.failure else answer.passing

    def may_start(self, pod: SimulatedPod) -> tuple[str, ...]:
        """Return what is not known and may start a pod that waits: another scheduler, or nodes that are added."""
        admitted, spec = pod.admitted.pod, as_mapping(pod.admitted.object.get("spec"))
        scheduler = text_member(spec, "schedulerName")
        if scheduler not in ("", DEFAULT_SCHEDULER):
            return (f"scheduler {scheduler}",)
        requested = admitted.requirements.requests if admitted else {}
        if other := next(filter(None, map(scheduler_for, requested)), None):
            return (f"whether a webhook sets schedulerName: {other.name}",)
        autoscalers = autoscalers_of(self.simulation.objects)
        if admitted is None or not (autoscalers or admitted.requirements.claims):
            return ()
        with suppress(CostExceeded):  # too many labels would be compared
            answer = self.play.cycle.explain(admitted)
            if MANY_STEPS in answer.not_modelled:
                return (MANY_STEPS,)
            lacks = (nodes for by in answer.excluded.values() for why, nodes in by.items() if why in _LACKED)
            if not (answer.rejected or answer.failure or answer.by_name is not None or answer.every in lacks):
                declared = self.could_hold(admitted) >> len(self.simulation.objects.nodes)
                return tuple(unknown_nodes(each for each in autoscalers if each != DECLARED or declared))
        return ()

    def could_hold_together(self, gang: Sequence[SimulatedPod]) -> Counter[int]:
        """Return how many pods of each template could run on these nodes together, apart from affinity to others."""
        bound: list[tuple[int, BoundPod]] = []
        for pod in gang:
            if (admitted := pod.admitted.pod) is not None:
                alone = replace(admitted, requirements=replace(_with_bound_claims(admitted.requirements), affinity=()))
                with suppress(CostExceeded):  # too many labels would be compared
                    if found := self._empty.schedule(pod.name, alone, 0):
                        bound.append((pod.group, BoundPod(pod.name, alone, found.node, 0)))
        for _, each in bound:
            self._empty.release(each)
        return Counter(group for group, _ in bound)


_LACKED = (NO_VOLUME, NO_AFFINE_POD)
"""Reasons for which a new node does not run a pod if they exclude all nodes."""


def _with_bound_claims(pod: Requirements) -> Requirements:
    return replace(pod, volumes=tuple(each for each in pod.volumes if each.otherwise == OTHER_VOLUME_NODE))


def missing_pods(arrival: Arrival, started: Counter[int]) -> tuple[str, int, int] | None:
    """Return of which pods of a gang too few start, how many it needs, and how many start; None if it starts.

    `started`: the number of pods that start, by the number of their template.
    """
    needs = [(f" of {each.name}", each.minimum, started[number]) for number, each in enumerate(arrival.groups)]
    every = ("", arrival.gang.minimum, started.total())
    return next(((which, minimum, count) for which, minimum, count in (every, *needs) if count < minimum), None)


def _stop_gang(arrival: Arrival, pods: Sequence[SimulatedPod]) -> Sequence[SimulatedPod]:
    """Return the pods of the first gang that does not start, and let them wait; () if there is none."""
    for _, gang in groupby(pods, key=lambda pod: pod.gang) if arrival.gang.minimum else ():
        members = [*gang]
        started = Counter(pod.group for pod in members if pod.starts)
        if members[0].alone is None and missing_pods(arrival, started):
            for pod in members:
                pod.alone, pod.node, pod.equal, pod.victims = pod.verdict, "", 0, ()
                pod.verdict = Verdict.WAITS if pod.starts else pod.verdict
            return members
    return ()


def _empty_cycle(simulation: Simulation) -> SchedulingCycle:
    """Return the scheduling of pods on all nodes, the declared ones last, with only the pods that never end."""
    existing = simulation.objects.empty_nodes
    names = {node.name for node in existing}
    declared = [without_device_offers(node) for node in simulation.cluster.nodes if node.name not in names]
    nodes = [*map(without_state_taints, (*existing, *declared))]
    devices = simulation.cluster.devices.unallocated
    cycle = SchedulingCycle(nodes, {}, SchedulerOptions(preemption=False), 0, devices)
    for number, node in enumerate(existing):
        for pod in filter(never_ends, simulation.objects.pods_on(node.name)):
            cycle.scheduler.bind(number, Footprint.read(pod))
    return cycle


MAX_PREEMPTIONS = 10
"""Attempts of a pod that still does not fit once its victims are gone; kube-scheduler tries again without a limit."""


class _WorkloadRun:
    """A simulation of workloads on a state; `undo` takes back each change."""

    def __init__(self, state: ClusterState, undo: ExitStack, ending: int | None) -> None:
        self._state = state
        self._undo = undo
        self._ending = ending
        self._is_ending = False
        self._names = state.play.names.copy()
        self._quotas: dict[str, Sequence[Quota]] = {**state.quotas}
        """Quotas by namespace, with the usage of the pods so far."""
        self._placed: dict[str, SimulatedPod] = {}
        """The pods that run, by name."""
        self._waiting: list[tuple[SimulatedPod, SchedulablePod]] = []
        """The pods that wait, the highest priority first."""
        self._failed: set[int] = set()
        """The identities of pods that could not start since the last one that did."""

    def create_pods(
        self, arrivals: Sequence[Arrival], stopped: dict[int, Sequence[SimulatedPod]]
    ) -> PodsByWorkload | None:
        """Return the pods of workloads that run at the same time; None if another gang does not start.

        `stopped`: the first gang of a workload that does not start, by number; None adds to it.
        """
        workloads: list[Sequence[SimulatedPod]] = []
        for number, arrival in enumerate(arrivals):
            self._is_ending = number == self._ending
            workloads.append(self._create_workload(PlannedArrival(number, arrival), stopped.get(number, ())))
            # If it starts, it may have evicted pods of a gang before it, which ends as other pods do for `ending`.
            for index in (number,) if self._is_ending else range(number, -1, -1):
                if gang := _stop_gang(arrivals[index], workloads[index]):
                    stopped[index] = gang
                    return None
        return workloads

    def _create_workload(self, planned: PlannedArrival, stopped: Sequence[SimulatedPod]) -> Sequence[SimulatedPod]:
        """Create the pods of a workload, up to a gang that does not start, as the equal ones after it."""
        runs, gangs, pods = planned.arrive(), planned.arrival.gang.number, list[SimulatedPod]()
        for gang in range(gangs):
            if stopped and stopped[0].gang == gang:
                return [*pods, *[*stopped] * (gangs - gang)]
            for group, run in enumerate(runs):
                count = run.parallel * (gang + 1) // gangs - run.parallel * gang // gangs
                pods += [self._create(run, group, gang) for _ in range(count)]
        return pods

    def _create(self, run: Run, group: int, gang: int) -> SimulatedPod:
        play, template = self._state.play, run.template
        name = self._names.take(template.namespace, run.next_name())
        admitted = play.admissions.admit(template, name, play.view.cluster)
        whole = f"{template.namespace}/{name}"
        pod = SimulatedPod(name=whole, group=group, gang=gang, admitted=admitted, verdict=Verdict.REFUSED)
        if admitted.pod is None:
            pod.message = admitted.record.message
            if admitted.record.denied_by is not None:
                pod.verdict = Verdict.UNKNOWN if admitted.record.undecided else Verdict.DENIED
        else:
            pod.message = self._exceeded_quota(template.namespace, admitted)
        if pod.message or admitted.pod is None:
            return pod
        if "Node" in self._state.simulation.objects.absent:
            pod.verdict = Verdict.UNKNOWN
            return pod
        play.expect(run, admitted.pod, 1)
        self._undo.callback(play.expect, run, admitted.pod, -1)
        if self._starts(pod, admitted.pod):
            self._retry(every=bool(pod.victims))
        else:
            insort(self._waiting, (pod, admitted.pod), key=lambda each: -each[1].priority)
            pod.verdict = Verdict.WAITS if self._state.could_hold(admitted.pod) else Verdict.NEVER
            play.view.reserve(pod.name, admitted.pod.requirements.placement, admitted.record.given, 0)
            self._undo.callback(play.view.reservations.drop, PodKey(pod.name, ""))
        return pod

    def _exceeded_quota(self, namespace: str, admitted: Admitted) -> str:
        """Return why a quota refuses a pod; "" if none does, and the pod counts from then on."""
        quotas = self._quotas.get(namespace)
        if not quotas:
            return ""
        pod = Pod.parse(dict(admitted.object))
        message = refusal(quotas, pod)
        if not message:
            self._quotas[namespace] = charge(quotas, pod)
        return message

    def _retry(self, *, every: bool) -> None:
        """Run the waiting pods that can run now: pods with affinity to others, or `every` pod after an eviction."""
        while True:
            waiting = [each for each in self._waiting if every or is_selective(each[1])]
            started = next((each for each in waiting if self._starts(*each)), None)
            if started is None:
                return
            self._waiting = [each for each in self._waiting if each is not started]
            self._state.play.view.reservations.drop(PodKey(started[0].name, ""))
            every = every or bool(started[0].victims)

    def _starts(self, pod: SimulatedPod, schedulable: SchedulablePod) -> bool:
        """Run a pod; return False if it has to wait."""
        if id(schedulable) in self._failed:
            return False
        tried = schedulable
        if self._is_ending:  # with a priority just above its own, preemption chooses which pods of its own end
            above = replace(schedulable.requirements, priority=schedulable.priority + 1)
            tried = replace(schedulable, requirements=above, preempts=True, frees_devices=True)
        bound = self._bind(pod, tried)
        if bound is None:
            self._failed.add(id(schedulable))
            return False
        self._failed.clear()
        pod.verdict, pod.equal = Verdict.STARTS, bound.equal
        pod.node = self._state.play.cycle.scheduler.nodes[bound.node].name
        self._placed[pod.name] = pod
        self._hold(bound.node, pod.admitted.record.given, 1)
        return True

    def _bind(self, pod: SimulatedPod, schedulable: SchedulablePod) -> Bound | None:
        """Bind a pod to a node, if necessary in place of other pods; None if no node can run it."""
        cycle = self._state.play.cycle
        for _ in range(MAX_PREEMPTIONS):
            claims_of, bound = cycle.devices.snapshot(), None
            with suppress(CostExceeded):  # too many labels would be compared
                bound = cycle.schedule(pod.name, schedulable, 0)
            if bound is None:
                return None
            for victim in bound.victims:
                pod.victims += (victim.name,)
                self._undo.callback(cycle.bind, victim, claims_of(victim.name))
                self._evict(victim)
            if not bound.waits:
                self._undo.callback(cycle.release, BoundPod(pod.name, schedulable, bound.node, 0))
                return bound
        return None

    def _evict(self, victim: BoundPod) -> None:
        """Record that a pod has left its node, after the cycle did."""
        placed = self._placed.pop(victim.name, None)
        if placed is None:
            given = self._state.play.given(victim)
        else:
            placed.verdict, placed.node, placed.equal = Verdict.WAITS, "", 0
            given = placed.admitted.record.given
        self._hold(victim.node, given, -1)

    def _hold(self, number: int, given: NanosByResource, sign: int) -> None:
        self._state.play.hold(number, given, sign)
        self._undo.callback(self._state.play.hold, number, given, -sign)
