"""Play of a simulation: pods arrive, are admitted, bound, and end; nodes change.

At one moment, first pods end, then nodes change, then pods are evicted, then waiting pods are tried, and last pods
arrive, each after the previous one was scheduled.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from enum import IntEnum
from functools import partial
from heapq import heappop, heappush
from itertools import product

from msgspec import Struct

from rules_engine.cluster.creation.plugins import ApiServer
from rules_engine.cluster.nodes.reservations import PodKey
from rules_engine.cluster.scheduling.choice import uniform_fraction
from rules_engine.cluster.scheduling.cycle import BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.disruption_budgets import DisruptionBudgets
from rules_engine.cluster.scheduling.requirements import DEFAULT_SCHEDULER, with_state_taints
from rules_engine.language.cel import CostExceeded
from rules_engine.model.json.lenient import as_string_map, text_member
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.cluster_objects import PodObject
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.kubernetes.quantity import NanosByResource
from rules_engine.model.problems.source import truncate
from rules_engine.model.rules.simulation import MAX_PODS, Milliseconds, NodeEvent, NodeState, Simulation
from rules_engine.model.wording import format_count
from rules_engine.questions.simulate.admission import Admissions, Admitted
from rules_engine.questions.simulate.answer import SimulationAnswer, build_answer
from rules_engine.questions.simulate.arrivals import ArrivedPod, ExistingPods, PlannedArrival, Run, UniquePodNames
from rules_engine.questions.simulate.figures import By
from rules_engine.questions.simulate.queue import Queue
from rules_engine.questions.simulate.record import PodRecord, Record, State
from rules_engine.questions.simulate.rules_view import RulesView
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.rule_set.rule_set import cluster_requirements

SimulationProgress = Callable[[int, int], None]
"""Called with the number of pods so far and the total number of pods."""

STEPS_PER_REPORT = 100
"""Events and arrivals between two reports of progress: some 10 ms."""

GATED = "Scheduling is blocked due to non-empty scheduling gates"
"""Message of existing pods with scheduling gates (pkg/scheduler/framework/plugins/schedulinggates)."""


class _EventKind(IntEnum):
    """Kinds of events, in their order at one moment."""

    END = 0
    NODE = 1
    EVICTION = 2
    ARRIVAL = 3


class _Running(Struct, eq=False):
    """A pod on its node. `eviction_planned`: its eviction is one of the events, possibly too early."""

    arrived_pod: ArrivedPod
    bound: BoundPod
    eviction_planned: bool = False

    @property
    def ended(self) -> bool:
        return self.arrived_pod.record.state is not State.RUNNING


class _SimulatedNode(Struct, eq=False):
    """A node with its running pods by name. `not_ready_since`: the last time that it stopped being ready."""

    node: Node
    running: dict[str, _Running]
    not_ready_since: Milliseconds = 0


_Payload = _Running | NodeEvent | PlannedArrival
_QueuedEvent = tuple[Milliseconds, _EventKind, int, _Payload]
"""An event: time, kind, and the pod, node event or arrival with its number, which has one event of a kind at a time."""


def simulate(
    rules: RuleSet | Mapping[str, RuleSet],
    simulations: Simulation | Mapping[str, Simulation],
    *,
    by: By = By.WAITING,
    progress: Callable[[str, int, int], None] | None = None,
) -> SimulationAnswer:
    """Simulate a workload under rules; or under several sets by name, and on several clusters by name, compared.

    `by`: the figure of which the best result has least. `progress` gets the result's title, and the events so far and
    in all. A KeyboardInterrupt ends it with the results so far; `progress` may raise it, since it is called between
    pods.

    >>> from rules_engine import load_rules, load_simulation, simulate
    >>> answer = simulate(load_rules(["set:gpu-allocation"]), load_simulation("rules_engine/scenarios/ten-pods.yaml"))
    >>> answer.results[0].totals.pods
    10
    """
    sets = {"rules": rules} if isinstance(rules, RuleSet) else rules
    by_cluster = {"": simulations} if isinstance(simulations, Simulation) else simulations
    records: list[Record] = []
    for (cluster, simulation), (name, rule_set) in product(by_cluster.items(), sets.items()):
        title = f"{cluster} {name}" if len(by_cluster) > 1 else name
        played = None if progress is None else partial(progress, title)
        record = play_simulation(simulation, rule_set, name, progress=played)
        records.append(replace(record, cluster=cluster))
        if record.interrupted:
            break
    return build_answer(records, by)


def play_simulation(
    simulation: Simulation, rule_set: RuleSet, rules: str, *, progress: SimulationProgress | None = None
) -> Record:
    """Play a simulation with a rule set of the name `rules`.

    KeyboardInterrupt ends it with the record so far. If `progress` raises it, that is a moment between two pods.
    """
    played = Play(simulation, rule_set, progress)
    try:
        played.start()
        played.run()
    except KeyboardInterrupt:
        return played.record(rules, interrupted=True)
    return played.record(rules, interrupted=False)


class Play:
    """A simulation at one moment.

    `cycle`: the scheduler; `view`: the cluster as rules see it; `admissions`: decisions; `names`: of pods.
    """

    def __init__(self, simulation: Simulation, rule_set: RuleSet, progress: SimulationProgress | None = None) -> None:
        self._simulation = simulation
        self._progress = progress
        self._now: Milliseconds = 0
        nodes = simulation.objects.empty_nodes
        self._nodes = [_SimulatedNode(node, {}) for node in nodes]
        self._numbers = {node.name: number for number, node in enumerate(nodes)}
        devices = simulation.cluster.devices
        self.cycle = SchedulingCycle(
            nodes,
            # The namespaces of arrivals exist, too.
            {each.namespace: {} for each in simulation.arrivals}
            | {each.name: as_string_map(each.metadata.get("labels")) for each in simulation.objects.of("Namespace")},
            simulation.scheduler,
            simulation.seed,
            devices,
            DisruptionBudgets(simulation.objects),
        )
        offers = self.cycle.devices.offers
        self._offering_nodes = [*map(offers.capacity, nodes)] if devices.classes else nodes
        """The nodes at the beginning, with the devices of drivers."""
        self._queue = Queue(self.cycle)
        self.view = RulesView(
            simulation.cluster,
            reads_pods=cluster_requirements(rule_set).pods,
            offers=offers if devices.classes else None,
        )
        self.admissions = Admissions(
            rule_set,
            ApiServer(simulation.objects),
            namespaces_read=bool(simulation.objects.of("Namespace")),
            devices_not_modelled=self.cycle.devices.not_modelled,
        )
        self.names = UniquePodNames()
        self._existing = ExistingPods()
        self._pods: list[PodRecord] = []
        self._events: list[_QueuedEvent] = []
        self._arriving: deque[tuple[Run, ArrivedPod | None]] = deque()
        """Pods that arrive now, each with the pod that it replaces."""
        self._expected = 0
        """The number of pods that arrive in all."""
        self._changes: list[NodeEvent] = []
        self._notices: list[str] = []
        self._beyond_bound = 0
        """Pods that did not arrive because of MAX_PODS."""

    def start(self) -> None:
        """Put the pods of the cluster on their nodes and into the queue, and plan all events."""
        for number in range(len(self._nodes)):
            self._change_node(number, with_state_taints)
        for pod in self._simulation.objects.pods:
            if not is_finished(pod):
                self._add_existing(pod)
        self.cycle.budgets.use_statuses()
        for number, event in enumerate(self._simulation.events):
            self._plan(event.at, _EventKind.NODE, number, event)
        for number, arrival in enumerate(self._simulation.arrivals):
            planned = PlannedArrival(number, arrival)
            self._expected += planned.arrival.pods
            self._plan(arrival.at, _EventKind.ARRIVAL, number, planned)
        self._report()

    def settle(self) -> None:
        """Run the waiting pods that can run, and the pods that replace their victims."""
        while self._queue.has_candidates or self._arriving:
            self._settle_one()

    def _settle_one(self) -> None:
        if self._queue.has_candidates:
            self._queue.flush(self._attempt)
        else:
            self._arrive(*self._arriving.popleft())

    def run(self) -> None:
        """Play all events to the end."""
        steps = 0
        while self._step():
            steps += 1
            if steps % STEPS_PER_REPORT == 0:
                self._report()

    def _step(self) -> bool:
        """Play the next step; return False if there is none."""
        event = self._next_event()
        if event is not None and event[0] == self._now and event[1] is not _EventKind.ARRIVAL:
            self._happen(event)
        elif self._queue.has_candidates or self._arriving:
            self._settle_one()
        elif event is not None:
            self._now = event[0]
            self._happen(event)
        else:
            return False
        return True

    @property
    def node_of_pod(self) -> Mapping[str, str]:
        """The nodes of the pods that run, by namespace/name."""
        return {name: simulated.node.name for simulated in self._nodes for name in simulated.running}

    def given(self, pod: BoundPod) -> NanosByResource:
        """Return the amounts of a pod that runs."""
        return self._nodes[pod.node].running[pod.name].arrived_pod.record.admitted.given

    def record(self, rules: str, *, interrupted: bool) -> Record:
        """Return the record so far, with the messages of the pods that wait."""
        for pod, waiting in self._queue.waiting():
            message = self.scheduler_message(pod)
            for waiting_pod in waiting:
                waiting_pod.record.message = message
        until, notices = self._simulation.until, self._notices
        if self._beyond_bound:
            further = format_count(self._beyond_bound, "further pod")
            notices = [f"a simulation has at most {MAX_PODS:,} pods: {further} did not arrive", *notices]
        return Record(
            simulation=self._simulation,
            rules=rules,
            nodes=self._offering_nodes,
            pods=self._pods,
            changes=tuple(self._changes),
            ended=self._now if until is None or interrupted else until,
            interrupted=interrupted,
            notices=tuple(notices),
        )

    def _plan(self, at: Milliseconds, kind: _EventKind, number: int, payload: _Payload) -> None:
        until = self._simulation.until
        if until is None or at <= until:
            heappush(self._events, (at, kind, number, payload))

    def _next_event(self) -> _QueuedEvent | None:
        """Return the next event; outdated events are dropped."""
        events = self._events
        while events:
            at, kind, _, payload = events[0]
            if isinstance(payload, _Running):
                if payload.ended:
                    heappop(events)
                    continue
                # The state of the node has changed since the eviction was planned.
                if kind is _EventKind.EVICTION and self._eviction_time(payload) != at:
                    heappop(events)
                    self._plan_eviction(payload)
                    continue
            return events[0]
        return None

    def _happen(self, event: _QueuedEvent) -> None:
        """Play the next event."""
        heappop(self._events)
        _, kind, _, payload = event
        if isinstance(payload, NodeEvent):
            self._change_state(payload)
        elif isinstance(payload, PlannedArrival):
            self._start_runs(payload)
        elif kind is _EventKind.END:
            self._end_pod(payload, State.SUCCEEDED)
        else:
            self._end_pod(payload, State.EVICTED, NodeState.NOT_READY)

    # Pods

    def _add_existing(self, pod: PodObject) -> None:
        """Add a pod that exists at the beginning; it was admitted before."""
        namespace, node_name = pod.namespace or DEFAULT_NAMESPACE, pod.node_name
        if node_name and node_name not in self._numbers:
            self._notices.append(f"pod {namespace}/{pod.name} is left out: node '{truncate(node_name)}' not found")
            return
        name = self.names.take(namespace, pod.name or "pod")
        run = self._existing.run(pod, name, namespace, self._simulation.running_for)
        admitted = self.admissions.admit_existing(run.template, pod.metadata.get("deletionTimestamp"))
        if admitted.pod is None:
            self._notices.append(f"pod {namespace}/{name} is left out: {admitted.record.message}")
            return
        record = self._create_record(run, name, admitted)
        arrived = ArrivedPod(len(self._pods), record, run, admitted.pod, admitted.grace, name, 0)
        self.expect(run, admitted.pod, 1)
        if node_name:
            started = _start_time(pod, self._simulation.objects.now)
            bound = BoundPod(arrived.name, arrived.pod, self._numbers[node_name], started)
            self.cycle.bind(bound)
            self._run_on(arrived, bound)
        elif pod.spec.get("schedulingGates"):
            record.message = GATED
        elif (scheduler := text_member(pod.spec, "schedulerName")) not in ("", DEFAULT_SCHEDULER):
            record.message = f"scheduler {truncate(scheduler)} decides"
        else:
            self._queue.add(arrived, tried=False)

    def _start_runs(self, planned: PlannedArrival) -> None:
        """Let the pods of an arrival arrive, and plan its next time."""
        for run in planned.arrive():
            run.created = run.parallel
            self._arriving.extend([(run, None)] * run.parallel)
        arrival = planned.arrival
        if planned.times < arrival.count:
            next_time = self._now + planned.interval(self._simulation.seed)
            self._plan(next_time, _EventKind.ARRIVAL, planned.number, planned)

    def _arrive(self, run: Run, replaced: ArrivedPod | None) -> None:
        if len(self._pods) >= MAX_PODS:
            self._beyond_bound += 1
            return
        if replaced is None:
            name = self.names.take(run.template.namespace, run.next_name())
        elif run.template.is_generated:
            name = self.names.take(run.template.namespace, f"{replaced.origin}-r{replaced.losses + 1}")
        else:
            # A StatefulSet reuses the name of the lost pod.
            name = replaced.record.name
        self.view.reservations.expire(self._now)
        admitted = self.admissions.admit(run.template, name, self.view.cluster)
        record = self._create_record(run, name, admitted)
        origin, losses = name, 0
        if replaced is not None:
            record.replaces = replaced.record.name
            origin, losses = replaced.origin, replaced.losses + 1
        if admitted.pod is None:
            record.state = State.REFUSED if admitted.record.denied_by is None else State.DENIED
            record.ended = self._now
            return
        arrived = ArrivedPod(len(self._pods), record, run, admitted.pod, admitted.grace, origin, losses)
        if replaced is None:
            self.expect(run, admitted.pod, 1)
        # If an equal pod waits, this one cannot run either.
        if self._queue.is_waiting(arrived.pod) or not self._attempt(arrived):
            self._queue.add(arrived)
            self.view.reserve(arrived.name, arrived.pod.requirements.placement, record.admitted.given, self._now)

    def _create_record(self, run: Run, name: str, admitted: Admitted) -> PodRecord:
        record = PodRecord(
            name=name,
            namespace=run.template.namespace,
            arrival=run.arrival,
            priority=admitted.priority,
            admitted=admitted.record,
            arrived=self._now,
        )
        self._pods.append(record)
        return record

    def _attempt(self, pod: ArrivedPod) -> bool:
        """Run a pod; return False if it cannot run now."""
        name, placement = pod.name, None
        with suppress(CostExceeded):  # too many labels would be compared
            placement = self.cycle.schedule(name, pod.pod, self._now)
        if placement is None:
            return False
        for victim in placement.victims:
            self._record_exit(self._nodes[victim.node].running[victim.name], State.PREEMPTED, name)
        # Its victims have left, but it was not bound even so.
        if placement.waits:
            return False
        self.view.reservations.drop(PodKey(name, ""))
        self.hold(placement.node, pod.record.admitted.given, 1)
        self._run_on(pod, BoundPod(name, pod.pod, placement.node, self._now))
        return True

    def _run_on(self, pod: ArrivedPod, bound: BoundPod) -> None:
        """Record that a pod was bound, and plan its end."""
        record, simulated = pod.record, self._nodes[bound.node]
        record.state, record.node, record.bound = State.RUNNING, simulated.node.name, self._now
        running = simulated.running[bound.name] = _Running(pod, bound)
        self._queue.on_bind(pod.pod)
        if pod.run.run_for is not None:
            # By its origin: a pod that replaces a lost one runs as long as that one would have.
            drawn = uniform_fraction(self._simulation.seed, "run time", f"{record.namespace}/{pod.origin}")
            self._plan(self._now + pod.run.run_for.quantile(drawn), _EventKind.END, pod.number, running)
        self._plan_eviction(running)

    def _eviction_time(self, pod: _Running) -> Milliseconds | None:
        """Return the time of a pod's eviction, given the current state of its node; None: no eviction."""
        simulated, grace = self._nodes[pod.bound.node], pod.arrived_pod.grace
        if grace is None or simulated.node.ready:
            return None
        return max(simulated.not_ready_since, pod.bound.start) + grace

    def _plan_eviction(self, pod: _Running) -> None:
        at = self._eviction_time(pod)
        pod.eviction_planned = at is not None
        if at is not None:
            self._plan(at, _EventKind.EVICTION, pod.arrived_pod.number, pod)

    def _end_pod(self, pod: _Running, state: State, by: str = "") -> None:
        self.cycle.release(pod.bound)
        self._record_exit(pod, state, by)

    def _record_exit(self, pod: _Running, state: State, by: str) -> None:
        """Record that a pod has left its node, after the cycle did; its controller may create another pod."""
        arrived_pod, simulated = pod.arrived_pod, self._nodes[pod.bound.node]
        del simulated.running[pod.bound.name]
        self.hold(pod.bound.node, arrived_pod.record.admitted.given, -1)
        self._queue.on_release(arrived_pod.pod, pod.bound.node)
        record, run = arrived_pod.record, arrived_pod.run
        record.state, record.ended, record.by = state, self._now, by
        if state is not State.SUCCEEDED:
            if run.controlled:
                self._arriving.append((run, arrived_pod))
            return
        if run.scaled:  # other controllers keep their ended pods
            self.expect(run, arrived_pod.pod, -1)
        if run.created < run.total:
            run.created += 1
            self._arriving.append((run, None))

    def expect(self, run: Run, pod: SchedulablePod, number: int) -> None:
        """Let budgets count a pod that its controller should have from now on (1) or no longer (-1)."""
        if run.controlled:
            self.cycle.budgets.count_expected(pod.requirements, number, scaled=run.scaled)

    def hold(self, number: int, amounts: NanosByResource, sign: int) -> None:
        """Let rules see that a pod holds amounts of a node or, with the sign -1, has left it."""
        self.view.hold(self._nodes[number].node.name, amounts, sign)
        if neighbours := self.cycle.devices.neighbours(number):
            self.view.on_device_change({self._nodes[other].node.name for other in neighbours})

    # Nodes

    def _change_state(self, event: NodeEvent) -> None:
        self._changes.append(event)
        number = self._numbers[event.node]
        simulated = self._nodes[number]
        was_ready = simulated.node.ready
        self._change_node(number, lambda node: node_in_state(node, event.becomes))
        self._queue.on_node_change(number)
        if event.becomes is NodeState.DRAINED:
            for pod in sorted(simulated.running.values(), key=lambda running: running.arrived_pod.number):
                if pod.arrived_pod.run.drained:
                    self._end_pod(pod, State.EVICTED, NodeState.DRAINED)
        elif was_ready and not simulated.node.ready:
            simulated.not_ready_since = self._now
            for pod in simulated.running.values():
                if not pod.eviction_planned:
                    self._plan_eviction(pod)

    def _change_node(self, number: int, change: Callable[[Node], Node]) -> None:
        simulated = self._nodes[number]
        before = simulated.node
        after = simulated.node = change(before)
        if after != before:
            self.cycle.change_node(number, after)
            self.view.change(after.name, change)

    def scheduler_message(self, pod: SchedulablePod) -> str:
        """Return the scheduler's message for a pod that cannot run now."""
        try:
            return self.cycle.explain(pod).message()
        except CostExceeded as error:
            return error.message

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(len(self._pods), max(self._expected, len(self._pods)))


def _start_time(pod: PodObject, now: datetime) -> Milliseconds:
    """Return the time at which a pod of the cluster started: 0 or earlier; 0 if unknown."""
    try:
        start = datetime.fromisoformat(text_member(pod.status, "startTime")) - now
    except (TypeError, ValueError):
        return 0
    return min(0, start // timedelta(milliseconds=1))


def node_in_state(node: Node, state: NodeState) -> Node:
    """Return a node in another state. A cordoned node that becomes ready stays cordoned, and vice versa."""
    if state in (NodeState.NOT_READY, NodeState.READY):
        return with_state_taints(replace(node, ready=state is NodeState.READY))
    return with_state_taints(replace(node, unschedulable=state is not NodeState.UNCORDONED))
