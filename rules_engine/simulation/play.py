"""Play of a simulation: pods arrive, are admitted, bound, and end; nodes change.

At one moment first pods end, then nodes change, then pods are evicted; then waiting pods are tried, and last pods
arrive, each after the one before it was scheduled.
"""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import IntEnum
from heapq import heappop, heappush

from msgspec import Struct

from rules_engine.cel import CostExceeded
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.nodes.reservations import PodKey
from rules_engine.evaluation.rule_set.rule_set import cluster_requirements
from rules_engine.model.json.lenient import strings, text
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.cluster_objects import PodObject
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.rules.simulation import MAX_PODS, Milliseconds, NodeEvent, NodeState, Simulation
from rules_engine.model.wording import counted
from rules_engine.scheduling.choice import uniform_fraction
from rules_engine.scheduling.cycle import BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.scheduling.requirements import DEFAULT_NAMESPACE, with_state_taints
from rules_engine.simulation.admission import Admissions, Admitted
from rules_engine.simulation.arrivals import ArrivedPod, ExistingPods, Names, PlannedArrival, Run
from rules_engine.simulation.node_states import in_state
from rules_engine.simulation.queue import Queue
from rules_engine.simulation.record import PodRecord, Record, State
from rules_engine.simulation.rules_view import RulesView

Progress = Callable[[int, int], None]
"""Called with the number of pods so far, and of those that will arrive in all."""

STEPS_PER_REPORT = 100
"""Events and arrivals between two reports of progress: some 10 ms."""

MAX_LEFT_OUT = 20
"""Pods of the cluster that are left out and named in notices; the others are counted."""

_RUN_TIME, _INTERVAL = "run time", "interval"
"""Purposes of draws."""


class _Kind(IntEnum):
    """Kinds of events, in their order at one moment."""

    END = 0
    NODE = 1
    EVICTION = 2
    ARRIVAL = 3


class _Running(Struct, eq=False):
    """A pod on its node. `eviction_planned`: one of the events is its eviction, maybe too early."""

    waited: ArrivedPod
    bound: BoundPod
    eviction_planned: bool = False

    @property
    def ended(self) -> bool:
        return self.waited.record.state is not State.RUNNING


_Payload = _Running | NodeEvent | PlannedArrival
_Event = tuple[Milliseconds, _Kind, int, _Payload]
"""An event with its moment and the number of the pod, event or arrival, which has one of this kind at a time."""


def play(simulation: Simulation, rule_set: RuleSet, rules: str, *, progress: Progress | None = None) -> Record:
    """Play a simulation with a rule set, whose name is `rules`.

    KeyboardInterrupt ends it with what there is. If `progress` raises it, the record is of a moment between two pods.
    """
    played = _Play(simulation, rule_set, progress)
    interrupted = False
    try:
        played.start()
        played.run()
    except KeyboardInterrupt:
        interrupted = True
    return played.record(rules, interrupted=interrupted)


class _Play:
    """A simulation at one moment."""

    def __init__(self, simulation: Simulation, rule_set: RuleSet, progress: Progress | None) -> None:
        self._simulation = simulation
        self._progress = progress
        self._now: Milliseconds = 0
        self._nodes = [*simulation.objects.view.nodes]
        self._numbers = {node.name: number for number, node in enumerate(self._nodes)}
        self._not_ready_since = [0] * len(self._nodes)
        """The last time that each node stopped to be ready."""
        self._cycle = SchedulingCycle(self._nodes, _namespaces(simulation), simulation.scheduler, simulation.seed)
        self._queue = Queue(self._cycle)
        self._view = RulesView(simulation.cluster, reads_pods=cluster_requirements(rule_set).pods)
        self._admissions = Admissions(rule_set, namespaces_read=bool(simulation.objects.of("Namespace")))
        self._names = Names()
        self._existing = ExistingPods()
        self._pods: list[PodRecord] = []
        self._running: list[dict[str, _Running]] = [{} for _ in self._nodes]
        """The pods on each node by their names."""
        self._events: list[_Event] = []
        self._arriving: deque[tuple[Run, ArrivedPod | None]] = deque()
        """Pods that arrive now, each with the pod that it replaces."""
        self._arrivals = [PlannedArrival(number, arrival) for number, arrival in enumerate(simulation.arrivals)]
        self._expected = sum(planned.pods for planned in self._arrivals)
        self._changes: list[NodeEvent] = []
        self._notices: list[str] = []
        self._left_out = 0
        """Pods of the cluster that are not in the simulation."""
        self._beyond = 0
        """Pods that did not arrive because of MAX_PODS."""

    def start(self) -> None:
        """Put the pods of the cluster on their nodes and into the queue, and plan all events."""
        for number in range(len(self._nodes)):
            self._change_node(number, with_state_taints)
        for pod in self._simulation.objects.pods:
            if not is_finished(pod):
                self._add_existing(pod)
        for number, event in enumerate(self._simulation.events):
            self._plan(event.at, _Kind.NODE, number, event)
        for planned in self._arrivals:
            self._plan(planned.arrival.at, _Kind.ARRIVAL, planned.number, planned)
        self._report()

    def run(self) -> None:
        """Play all events to the end."""
        steps = 0
        while self._step():
            steps += 1
            if steps % STEPS_PER_REPORT == 0:
                self._report()

    def _step(self) -> bool:
        """Play what comes next; return False if nothing does."""
        event = self._next_event()
        if event is not None and event[0] == self._now and event[1] is not _Kind.ARRIVAL:
            self._happen(event)
        elif self._queue.has_candidates:
            self._queue.flush(self._attempt)
        elif self._arriving:
            self._arrive(*self._arriving.popleft())
        elif event is not None:
            self._now = event[0]
            self._happen(event)
        else:
            return False
        return True

    def record(self, rules: str, *, interrupted: bool) -> Record:
        """Return the record so far, with the messages of the pods that wait."""
        for pod, waiting in self._queue.waiting():
            message = self._message(pod)
            for found in waiting:
                found.record.message = message
        until = self._simulation.until
        return Record(
            simulation=self._simulation,
            rules=rules,
            nodes=self._simulation.objects.view.nodes,
            pods=self._pods,
            changes=tuple(self._changes),
            ended=self._now if until is None or interrupted else until,
            interrupted=interrupted,
            notices=tuple(self._all_notices()),
        )

    def _all_notices(self) -> Iterator[str]:
        yield from self._notices
        if self._left_out > MAX_LEFT_OUT:
            yield f"further pods of the cluster that are left out: {self._left_out - MAX_LEFT_OUT:,}"
        if self._beyond:
            yield f"a simulation has at most {MAX_PODS:,} pods: {counted(self._beyond, 'further pod')} did not arrive"

    def _plan(self, at: Milliseconds, kind: _Kind, number: int, payload: _Payload) -> None:
        until = self._simulation.until
        if until is None or at <= until:
            heappush(self._events, (at, kind, number, payload))

    def _next_event(self) -> _Event | None:
        """Return the next event; those that will not happen any more are dropped."""
        events = self._events
        while events:
            at, kind, _, payload = events[0]
            if isinstance(payload, _Running):
                if payload.ended:
                    heappop(events)
                    continue
                if kind is _Kind.EVICTION and self._eviction(payload) != at:
                    heappop(events)
                    self._plan_eviction(payload)
                    continue
            return events[0]
        return None

    def _happen(self, event: _Event) -> None:
        """Play the next event."""
        heappop(self._events)
        _, kind, _, payload = event
        if isinstance(payload, NodeEvent):
            self._change(payload)
        elif isinstance(payload, PlannedArrival):
            self._start_runs(payload)
        elif kind is _Kind.END:
            self._end(payload, State.SUCCEEDED)
        else:
            self._end(payload, State.EVICTED, NodeState.NOT_READY)

    # Pods

    def _add_existing(self, pod: PodObject) -> None:
        """Add a pod that is in the cluster at the beginning; it was admitted before."""
        namespace = pod.namespace or DEFAULT_NAMESPACE
        if pod.node_name and pod.node_name not in self._numbers:
            self._leave_out(f"{namespace}/{pod.name}", f"node '{truncate(pod.node_name)}' not found")
            return
        name = self._names.take(namespace, pod.name or "pod")
        run = self._existing.run(pod, name, namespace, self._simulation.running_for)
        admitted = self._admissions.existing(run.template, pod.metadata.get("deletionTimestamp"))
        if admitted.pod is None:
            self._leave_out(f"{namespace}/{name}", admitted.record.message)
            return
        record = self._recorded(run, name, admitted)
        found = ArrivedPod(len(self._pods), record, run, admitted.pod, admitted.grace, name, 0)
        if pod.node_name:
            started = _started(pod, self._simulation.objects.now)
            bound = BoundPod(found.name, found.pod, self._numbers[pod.node_name], started)
            self._cycle.bind(bound)
            self._run_on(found, bound)
        else:
            self._queue.add(found, tried=False)

    def _leave_out(self, name: str, why: str) -> None:
        self._left_out += 1
        if self._left_out <= MAX_LEFT_OUT:
            self._notices.append(f"pod {name} is left out: {why}")

    def _start_runs(self, planned: PlannedArrival) -> None:
        """Let the pods of an arrival arrive, and plan the next time that they do."""
        for run in planned.arrive():
            run.created = run.parallel
            self._arriving.extend([(run, None)] * run.parallel)
        arrival = planned.arrival
        if planned.times < arrival.count:
            drawn = uniform_fraction(self._simulation.seed, _INTERVAL, f"{planned.number}/{planned.times}")
            self._plan(self._now + arrival.every.quantile(drawn), _Kind.ARRIVAL, planned.number, planned)

    def _arrive(self, run: Run, replaced: ArrivedPod | None) -> None:
        if len(self._pods) >= MAX_PODS:
            self._beyond += 1
            return
        if replaced is None:
            name = self._names.take(run.template.namespace, run.next_name())
        elif run.template.is_generated:
            name = self._names.take(run.template.namespace, f"{replaced.origin}-r{replaced.losses + 1}")
        else:
            # A StatefulSet gives it the name of the pod that was lost.
            name = replaced.record.name
        self._view.reservations.expire(self._now)
        admitted = self._admissions.admit(run.template, name, self._view.cluster)
        record = self._recorded(run, name, admitted)
        origin, losses = name, 0
        if replaced is not None:
            record.replaces = replaced.record.name
            origin, losses = replaced.origin, replaced.losses + 1
        if admitted.pod is None:
            record.state, record.ended = State.DENIED, self._now
            return
        found = ArrivedPod(len(self._pods), record, run, admitted.pod, admitted.grace, origin, losses)
        if self._queue.is_waiting(found.pod) or not self._attempt(found):
            self._queue.add(found)
            self._view.reserve(found.name, found.pod.requirements.placement, record.admitted.given, self._now)

    def _recorded(self, run: Run, name: str, admitted: Admitted) -> PodRecord:
        """Return the record of a new pod."""
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
        """Run a pod if it can run now."""
        name = pod.name
        try:
            found = self._cycle.schedule(name, pod.pod, self._now)
        except CostExceeded:
            return False
        if found is None:
            return False
        for victim in found.victims:
            self._left(self._running[victim.node][victim.name], State.PREEMPTED, name)
        if found.waits:
            return False
        self._view.reservations.drop(PodKey(name, ""))
        self._view.hold(self._nodes[found.node].name, pod.record.admitted.given, 1)
        self._run_on(pod, BoundPod(name, pod.pod, found.node, self._now))
        return True

    def _run_on(self, pod: ArrivedPod, bound: BoundPod) -> None:
        """Record that a pod was bound, and plan its end."""
        record, node = pod.record, self._nodes[bound.node]
        record.state, record.node, record.bound = State.RUNNING, node.name, self._now
        running = self._running[bound.node][bound.name] = _Running(pod, bound)
        self._queue.bound(pod.pod)
        if pod.run.run_for is not None:
            drawn = uniform_fraction(self._simulation.seed, _RUN_TIME, f"{record.namespace}/{pod.origin}")
            self._plan(self._now + pod.run.run_for.quantile(drawn), _Kind.END, pod.number, running)
        self._plan_eviction(running)

    def _eviction(self, pod: _Running) -> Milliseconds | None:
        """Return the time at which a pod is evicted, as its node is now; None: it is not."""
        node, grace = pod.bound.node, pod.waited.grace
        if grace is None or self._nodes[node].ready:
            return None
        return max(self._not_ready_since[node], pod.bound.start) + grace

    def _plan_eviction(self, pod: _Running) -> None:
        at = self._eviction(pod)
        pod.eviction_planned = at is not None
        if at is not None:
            self._plan(at, _Kind.EVICTION, pod.waited.number, pod)

    def _end(self, pod: _Running, state: State, by: str = "") -> None:
        """End a pod."""
        self._cycle.release(pod.bound)
        self._left(pod, state, by)

    def _left(self, pod: _Running, state: State, by: str) -> None:
        """Record that a pod has left its node, which the cycle knows already; its controller may create another one."""
        waited, node = pod.waited, pod.bound.node
        del self._running[node][pod.bound.name]
        self._view.hold(self._nodes[node].name, waited.record.admitted.given, -1)
        self._queue.released(waited.pod, node)
        record, run = waited.record, waited.run
        record.state, record.ended, record.by = state, self._now, by
        if state is not State.SUCCEEDED:
            if run.controlled:
                self._arriving.append((run, waited))
        elif run.created < run.total:
            run.created += 1
            self._arriving.append((run, None))

    # Nodes

    def _change(self, event: NodeEvent) -> None:
        self._changes.append(event)
        number = self._numbers[event.node]
        was_ready = self._nodes[number].ready
        self._change_node(number, lambda node: in_state(node, event.becomes))
        self._queue.changed(number)
        if event.becomes is NodeState.DRAINED:
            for pod in sorted(self._running[number].values(), key=lambda found: found.waited.number):
                if pod.waited.run.drained:
                    self._end(pod, State.EVICTED, NodeState.DRAINED)
        elif was_ready and not self._nodes[number].ready:
            self._not_ready_since[number] = self._now
            for pod in self._running[number].values():
                if not pod.eviction_planned:
                    self._plan_eviction(pod)

    def _change_node(self, number: int, change: Callable[[Node], Node]) -> None:
        before = self._nodes[number]
        after = self._nodes[number] = change(before)
        if after != before:
            self._cycle.change_node(number, after)
            self._view.change(after.name, change)

    def _message(self, pod: SchedulablePod) -> str:
        try:
            return self._cycle.explain(pod).message()
        except CostExceeded as error:
            return error.message

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(len(self._pods), max(self._expected, len(self._pods)))


def _namespaces(simulation: Simulation) -> dict[str, dict[str, str]]:
    """Return the labels of namespaces; those that pods arrive in exist, too."""
    found = {each.name: strings(each.metadata.get("labels")) for each in simulation.objects.of("Namespace")}
    return {**{arrival.namespace: {} for arrival in simulation.arrivals}, **found}


def _started(pod: PodObject, now: datetime) -> Milliseconds:
    """Return the time at which a pod of the cluster was started: 0 or earlier; 0 if that is not known."""
    try:
        found = datetime.fromisoformat(text(pod.status, "startTime")) - now
    except (TypeError, ValueError):
        return 0
    return min(0, found // timedelta(milliseconds=1))
