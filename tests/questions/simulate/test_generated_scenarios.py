"""Generated scenarios reach what the comparison with kube-scheduler is about."""

from collections import Counter
from random import Random

from rules_engine.cluster.scheduling.cycle import BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.requirements import read_selector
from rules_engine.cluster.scheduling.scoring import Plugin
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.rules.simulation import SchedulerOptions
from tests.support.api import NOW
from tests.support.clusters import NAMESPACES
from tests.support.scenarios import OWNERS, Arrives, NodeChanges, ScenarioGenerator, named, with_priority
from tests.support.scheduling import scores_by_plugin

SCENARIOS = 60


def test_scenarios_have_each_outcome_and_scores_of_each_plugin() -> None:
    found: Counter[str] = Counter()
    for seed in range(SCENARIOS):
        _play(seed, found)

    outcomes = ("one node", "several nodes", "no node", "preempted", "not preempted", "cordoned", "tainted")
    assert all(found[outcome] >= SCENARIOS / 10 for outcome in (*outcomes, *{*Plugin} - {Plugin.DYNAMIC_RESOURCES})), (
        found
    )


def _play(seed: int, found: Counter[str]) -> None:
    scenario = ScenarioGenerator(Random(seed)).scenario()
    nodes = ClusterObjects({"Node": scenario.nodes}, now=NOW).view.nodes
    names = [node.name for node in nodes]
    cycle = SchedulingCycle(nodes, NAMESPACES, SchedulerOptions(), seed=0)
    for made in scenario.bound:
        pod = SchedulablePod.of(with_priority(made))
        name = made["metadata"]["name"]
        cycle.bind(BoundPod(name, pod, names.index(made["spec"]["nodeName"]), 0))
    for number, step in enumerate(scenario.steps):
        match step:
            case Arrives(template):
                selector = read_selector(OWNERS[template.owner]) if template.owner else None
                pod = SchedulablePod.of(with_priority(named(template, f"p{number}")), selector)
                feasible = cycle.feasible(pod).bit_count()
                found["no node" if not feasible else "one node" if feasible == 1 else "several nodes"] += 1
                if feasible > 1:
                    # Plugins with which it matters where the pod runs.
                    scores = scores_by_plugin(cycle._scores, pod.preferences, cycle.feasible(pod)).items()
                    found.update(plugin for plugin, by_node in scores if len({*by_node.values()}) > 1)
                bound = cycle.schedule(f"p{number}", pod, number)
                if not feasible:
                    found["preempted" if bound else "not preempted"] += 1
            case NodeChanges(_, spec):
                found["cordoned" if spec.get("unschedulable") else "tainted"] += 1
