"""Demand of a workload, and bounds of what any simulation of it on some devices can reach.

A bound is admissible: no play has a better figure, whatever the rules and the scheduler decide. Each pod needs at least
one of some resources while it runs. If d pods can run at once, the k-th one starts only after k - d others have ended,
and these took at least as much of the devices' time as the k - d shortest ones.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate

from rules_engine.evaluation import RuleSet
from rules_engine.model.durations import UNITS
from rules_engine.model.gpu.mig import card_share
from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster_objects import requests_of
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.simulation import Milliseconds, Simulation
from rules_engine.scheduling.requirements import DEFAULT_NAMESPACE, priority_of
from rules_engine.simulation.arrivals import PlannedArrival, draw_run_time
from rules_engine.simulation.figures import By, Key, count_cards
from rules_engine.simulation.words import arrival_title

MAX_PODS = 300
"""Pods of a template that count for waiting times in bounds, the first ones: 200 pods take 100 µs for a candidate."""

FOREVER: Milliseconds = 10**26
"""The run time of a pod that does not end: longer than any sum of others."""

_NEVER: Milliseconds = 10**20
"""A time after all others, even after one pod that does not end was shared among all devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Pods of one template, which need GPUs.

    `resources`: each pod needs one of them; None: rules may give it anything. `devices`: the least number that it
    needs. `pods`: arrival and run time of the first ones, without pods that arrive only after another one has ended.
    `hours`: requested GPU-hours of all pods.
    """

    title: str
    resources: frozenset[str] | None
    devices: int
    pods: Sequence[tuple[Milliseconds, Milliseconds]]
    hours: Fraction


def possible_resources(requested: frozenset[str], rule_set: RuleSet) -> frozenset[str] | None:
    """Return the GPU resources that pods may get in place of the requested ones; None: any."""
    rules = [compiled.rule.interests for compiled in rule_set.rules_at(Endpoint.MUTATE)]
    resources = requested
    while True:
        matching = [each for each in rules if each.resources is None or not resources.isdisjoint(each.resources)]
        # A rule that does not move a request may change its number.
        if any(each.resources is None or (not each.moves and any(map(is_gpu, each.gives))) for each in matching):
            return None
        given = resources.union(*(filter(is_gpu, each.gives) for each in matching))
        if given == resources:
            return resources
        resources = given


def read_demands(simulation: Simulation, rule_set: RuleSet) -> Sequence[Demand]:
    """Return the demands of a workload, in the order of its arrivals."""
    demands: list[Demand] = []
    seed = simulation.seed
    names = Counter(f"{pod.namespace or DEFAULT_NAMESPACE}/{pod.name}" for pod in simulation.objects.pods)
    until = FOREVER if simulation.until is None else simulation.until
    for number, arrival in enumerate(simulation.arrivals):
        needs = [_read_needs(group.pod, rule_set) for group in arrival.groups]
        pods: list[list[tuple[Milliseconds, Milliseconds]]] = [[] for _ in needs]
        times = [0 for _ in needs]
        planned, at = PlannedArrival(number, arrival), arrival.at
        while planned.times < arrival.count and at <= until:
            for group, run in enumerate(planned.arrive()):
                for order in range(run.total):
                    name = f"{arrival.namespace}/{run.next_name()}"
                    names[name] += 1
                    time = FOREVER if arrival.run_for is None else draw_run_time(arrival.run_for, seed, name)
                    times[group] += min(time, until - at)
                    if order < run.parallel and len(pods[group]) < MAX_PODS:
                        pods[group].append((at, time))
            at += planned.interval(seed)
        demands += [
            Demand(
                title=arrival_title(arrival),
                resources=resources,
                devices=devices,
                pods=pods[group],
                hours=cards * Fraction(times[group], UNITS["h"]),
            )
            for group, (resources, devices, cards) in enumerate(needs)
            if resources is None or resources
        ]
    if max(names.values(), default=0) > 1:
        # A name that is taken gets a number, in the order of arrivals, and the run time is drawn by the name.
        return [replace(each, pods=[(at, 0) for at, _ in each.pods], hours=Fraction(FOREVER)) for each in demands]
    return demands


def _read_needs(pod: Mapping[str, Json], rule_set: RuleSet) -> tuple[frozenset[str] | None, int, Fraction]:
    """Return the resources of which a pod needs one, the least number of devices, and the cards that it requests."""
    try:
        requests = Pod.parse(dict(pod)).effective_requests()
    except PodError:  # which no play admits
        return frozenset(), 1, Fraction()
    devices = {name: nanos // NANOS for name, nanos in requests.items() if nanos and is_gpu(name)}
    resources = possible_resources(frozenset(devices), rule_set)
    least = devices[next(iter(devices))] if resources == devices.keys() and len(devices) == 1 else 1
    return resources, least, count_cards(requests)


@dataclass(frozen=True, slots=True)
class _Group:
    """Demands that compete for devices. `areas`: the least device time that any number of their pods takes."""

    resources: frozenset[str]
    devices: int
    arrivals: Sequence[Milliseconds]
    areas: Sequence[Milliseconds]
    hours: Fraction


class Bounds:
    """Bounds for any devices."""

    def __init__(self, simulation: Simulation, demands: Sequence[Demand]) -> None:
        self._demands = demands
        self._until = simulation.until
        waiting = [pod for pod in simulation.objects.pods if not pod.node_name]
        groups = [(arrival.count, group) for arrival in simulation.arrivals for group in arrival.groups]
        pods = len(waiting) + sum(count * group.total for count, group in groups)
        pending = [priority_of(pod.spec) for pod in waiting]
        pending += [priority_of(as_mapping(group.pod.get("spec"))) for _, group in groups]
        lowest = min([*pending, *(priority_of(pod.spec) for pod in simulation.objects.pods)], default=0)
        preempted = simulation.scheduler.preemption and lowest < max(pending, default=0)
        # Otherwise pods may leave their nodes before they end, and others replace them.
        self._stays = not simulation.events and not preempted
        self._hours = sum((each.hours for each in demands if each.resources is None), Fraction())
        self._pods = pods if self._stays else FOREVER
        if not self._stays or any(is_gpu(name) for pod in simulation.objects.pods for name in requests_of(pod)):
            self._hours += FOREVER
        self._groups: dict[frozenset[str], Sequence[_Group]] = {}

    def key(self, by: By, devices: Mapping[str, int]) -> Key:
        """Return a key by a figure that no play on these numbers of devices surpasses."""
        offered = frozenset(name for name, number in devices.items() if number)
        groups = self._groups.get(offered)
        if groups is None:
            groups = self._groups[offered] = [*_group_demands(self._demands, offered)]
        until = _NEVER if self._until is None else self._until
        never_ran = waited = 0
        given = self._hours
        for group in groups:
            starts = [*self._starts(group, devices)]
            never = sum(start > until for start in starts)
            never_ran += never
            # Without `until`, no time counts for pods that never run, whichever these are.
            if self._until is not None or not never:
                waited += sum(min(start, until) - at for at, start in zip(group.arrivals, starts, strict=True))
            given += group.hours if never < len(starts) or not starts else 0
        match by:
            case By.WAITING:
                return never_ran if self._until is None else 0, Fraction(waited, max(self._pods, 1))
            case By.GIVEN:
                time = FOREVER if self._until is None else self._until
                cards = sum((number * card_share(name) for name, number in devices.items()), Fraction())
                return (-min(given, cards * Fraction(time, UNITS["h"])),)
            case By.UNSERVED:
                return (never_ran,)

    def _starts(self, group: _Group, devices: Mapping[str, int]) -> Iterator[Milliseconds]:
        """Yield the earliest time at which each number of pods of a group can have started."""
        number = sum(devices[name] for name in group.resources)
        at_once = number // group.devices
        for order, arrived in enumerate(group.arrivals):
            ended = order + 1 - at_once
            if not at_once:
                yield FOREVER
            elif ended <= 0 or not self._stays:
                yield arrived
            else:
                yield max(arrived, group.arrivals[0] + group.areas[ended] // number)


def _group_demands(demands: Sequence[Demand], offered: frozenset[str]) -> Iterator[_Group]:
    """Group the demands that share resources, among those that are offered."""
    groups: list[tuple[frozenset[str], list[Demand]]] = []
    for demand in demands:
        if demand.resources is None:
            continue
        resources, members = demand.resources & offered, [demand]
        for other in [group for group in groups if group[0] & resources]:
            groups.remove(other)
            resources, members = resources | other[0], other[1] + members
        groups.append((resources, members))
    for resources, members in groups:
        yield _Group(
            resources,
            devices=min(demand.devices for demand in members),
            arrivals=sorted(at for demand in members for at, _ in demand.pods),
            areas=[0, *accumulate(sorted(demand.devices * time for demand in members for _, time in demand.pods))],
            hours=sum((demand.hours for demand in members), Fraction()),
        )
