"""Pods are scheduled as a real kube-scheduler of Kubernetes 1.36 schedules them, one after the other.

KUBECONFIG=… KUBE_SCHEDULER_LOG=… pytest -m cluster tests/questions/simulate

KUBE_SCHEDULER_LOG is the file that kube-scheduler logs into, with --vmodule=schedule_one=10. Without it, feasible nodes
and their scores are not known: only the node that was chosen is compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

import pytest

from rules_engine.cluster.nodes import NodeSet, numbers_of
from rules_engine.cluster.scheduling.cycle import BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.requirements import read_selector
from rules_engine.model.json.lenient import as_string_map, text_member
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.rules.simulation import SchedulerOptions
from tests.support.api import NOW
from tests.support.real import REAL
from tests.support.real_scheduler import Attempt, RealScheduler, real_scheduler
from tests.support.scenarios import (
    OWNERS,
    Arrives,
    Ends,
    NodeChanges,
    PodTemplate,
    Scenario,
    ScenarioGenerator,
    named,
    time_text,
    with_priority,
)
from tests.support.scheduler_log import SchedulerLog, Scores
from tests.support.scheduling import scores_by_plugin

Object = dict[str, Any]

pytestmark = REAL

SCENARIOS = 300
BATCH = 20
"""Scenarios of one test; a failure names its seed."""


@pytest.fixture(scope="module")
def real() -> Iterator[RealScheduler]:
    with real_scheduler() as made:
        made.create_priorities_and_owners()
        yield made


@pytest.mark.parametrize("first", range(0, SCENARIOS, BATCH))
def test_pods_are_scheduled_as_kube_scheduler_does(real: RealScheduler, first: int) -> None:
    log = SchedulerLog.given()
    for seed in range(first, first + BATCH):
        scenario = ScenarioGenerator(Random(seed), f"{real.kube.name}-").scenario()
        with real.cluster(scenario.nodes, scenario.bound, f"s{seed}"):
            Followed(real, log, f"s{seed}").follow(scenario)


@dataclass(frozen=True, slots=True)
class Running:
    """A bound pod, and its object."""

    pod: BoundPod
    stored: Object


class Followed:
    """A scheduling cycle that binds each pod to the node that the real scheduler chose."""

    def __init__(self, real: RealScheduler, log: SchedulerLog | None, name: str) -> None:
        self._real = real
        self._log = log
        self._name = name
        objects = real.objects()
        nodes = objects.view.nodes
        self._names = [node.name for node in nodes]
        namespaces = {found.name: as_string_map(found.metadata.get("labels")) for found in objects.of("Namespace")}
        self._cycle = SchedulingCycle(nodes, namespaces, SchedulerOptions(), seed=0)
        self._templates: dict[int, SchedulablePod] = {}
        """By the identity of templates, which the scenario keeps."""
        self._running: dict[str, Running] = {}
        for found in objects.pods:
            if found.node_name in self._names and not is_finished(found):
                pod = BoundPod(
                    f"{found.namespace}/{found.name}",
                    SchedulablePod.of(found),
                    self._names.index(found.node_name),
                    _milliseconds(found),
                )
                self._cycle.bind(pod)
                self._running[pod.name] = Running(pod, found)

    def follow(self, scenario: Scenario) -> None:
        for number, step in enumerate(scenario.steps):
            match step:
                case Arrives(template):
                    self._arrive(template, number)
                case Ends(position):
                    if self._running:
                        self._end(position)
                case NodeChanges(name, spec):
                    self._change(name, spec, number)

    def _arrive(self, template: PodTemplate, number: int) -> None:
        made = named(template, f"p{number}")
        if template.owner:
            self._real.own(made, template.owner)
        pod = self._templates.get(id(template))
        if pod is None:
            selector = read_selector(OWNERS[template.owner]) if template.owner else None
            # As in a simulation, defaults of the API server are left out.
            prioritized = with_priority(made, f"{self._real.kube.name}-")
            pod = self._templates[id(template)] = SchedulablePod.of(prioritized, selector)
        attempt = self._real.attempt(made)
        name = f"{made['metadata']['namespace']}/{made['metadata']['name']}"
        where = f"{self._name}, {name}"
        if attempt.message:
            running = self._preempt(name, pod, number, attempt, where)
        else:
            running = self._bind(name, pod, number, attempt, where)
        if running:
            self._real.started(attempt.pod, time_text(number))
            self._running[name] = Running(running, attempt.pod)

    def _bind(self, name: str, pod: SchedulablePod, number: int, attempt: Attempt, where: str) -> BoundPod:
        """Compare the choice of a node for a pod that could run at once."""
        if self._log:
            self._compare_scores(self._log.scores(name), pod, attempt, where)
        assert attempt.node in self._of(self._cycle.top(pod)), where
        bound = BoundPod(name, pod, self._names.index(attempt.node), number * 1000)
        self._cycle.bind(bound)
        return bound

    def _compare_scores(self, scores: Scores, pod: SchedulablePod, attempt: Attempt, where: str) -> None:
        """Compare the nodes that a pod can run on, and their scores by plugin."""
        assert self._of(self._cycle.feasible(pod)) == (scores.totals.keys() or {attempt.node}), where
        if not scores.totals:
            return
        nothing = dict.fromkeys(scores.totals, 0)
        by_plugin = scores_by_plugin(self._cycle._scores, pod.preferences, self._cycle.feasible(pod))
        ours = {
            str(plugin): {self._names[number]: score for number, score in found.items()}
            for plugin, found in by_plugin.items()
        }
        for plugin in scores.by_plugin.keys() | ours.keys():
            # One of us may skip a plugin that has no preference.
            assert ours.get(plugin, nothing) == scores.by_plugin.get(plugin, nothing), f"{where}, {plugin}"
        best = max(scores.totals.values())
        assert self._of(self._cycle.top(pod)) == {node for node, score in scores.totals.items() if score == best}, where

    def _preempt(self, name: str, pod: SchedulablePod, number: int, attempt: Attempt, where: str) -> BoundPod | None:
        """Compare the message of a pod that could not run at once, and the pods that ended for it."""
        found = self._cycle.explain(pod)
        message = found.message()
        assert message, where
        assert attempt.message == message or attempt.message.startswith(f"{message} "), where
        bound = self._cycle.schedule(name, pod, number * 1000)
        assert (self._names[bound.node] if bound else "") == attempt.node, where
        if not bound:
            return None
        victims = {victim.name for victim in bound.victims}
        assert victims == self._running.keys() - self._real.pod_names(), where
        for victim in victims:
            del self._running[victim]
        return BoundPod(name, pod, bound.node, number * 1000)

    def _end(self, position: int) -> None:
        name = [*self._running][position % len(self._running)]
        ended = self._running.pop(name)
        self._real.delete(ended.stored)
        self._cycle.release(ended.pod)

    def _change(self, name: str, spec: Object, number: int) -> None:
        stored = self._real.change_node(name, spec)
        self._real.wait_for_nodes(f"{self._name}-{number}")
        (node,) = ClusterObjects({"Node": [stored]}, now=NOW).view.nodes
        self._cycle.change_node(self._names.index(name), node)

    def _of(self, nodes: NodeSet) -> set[str]:
        return {self._names[number] for number in numbers_of(nodes)}


def _milliseconds(pod: PodObject) -> int:
    """Return the time at which a pod started."""
    started = datetime.fromisoformat(text_member(pod.status, "startTime"))
    return round((started - NOW).total_seconds() * 1000)
