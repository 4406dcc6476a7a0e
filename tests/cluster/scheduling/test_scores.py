"""The model of kube-scheduler's scores agrees with a second implementation while pods come and go."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import NodeSet, node_set, numbers_of
from rules_engine.cluster.scheduling import scoring
from rules_engine.cluster.scheduling.preferences import Preferences
from rules_engine.cluster.scheduling.requirements import Requirements, read_selector
from rules_engine.cluster.scheduling.scheduler import KubeScheduler
from rules_engine.cluster.scheduling.scores import allocation
from rules_engine.cluster.scheduling.scoring import Plugin, Scores
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.rules.rule import LabelSelector
from rules_engine.model.rules.simulation import SchedulerOptions, Strategy
from tests.support.api import GPU, node, pod
from tests.support.naive_scores import scores
from tests.support.scenarios import OWNERS, ScenarioGenerator
from tests.support.scheduling import scores_by_plugin

Object = dict[str, Any]

OPTIONS = (
    SchedulerOptions(),
    SchedulerOptions(scoring=Strategy.MOST_ALLOCATED, resources={"cpu": 1, GPU: 5}),
    SchedulerOptions(resources={"memory": 2, "ephemeral-storage": 1, GPU: 3}),
)


def read(raw: Object) -> Node:
    def refuse(node: str, resource: str, error: Exception) -> None:
        raise error

    return read_node(raw, refuse)


def preferences(raw: Object, selector: LabelSelector | None = None) -> Preferences:
    return Preferences.of(raw, Requirements.of(raw), selector)


def namespace_labels(generator: ScenarioGenerator) -> dict[str, dict[str, str]]:
    return {found["metadata"]["name"]: found["metadata"]["labels"] for found in generator.namespace_objects()}


def drawn(generator: ScenarioGenerator, nodes: list[Object]) -> Preferences:
    return preferences(generator.template(nodes).pod)


def changed(node: Object, generator: ScenarioGenerator, random: Random) -> Object:
    """Return a node with other taints, and perhaps other amounts."""
    other = generator.nodes()[0]
    spec = {**node["spec"], "taints": other["spec"]["taints"]}
    return {**node, "spec": spec, "status": random.choice((node, other))["status"]}


class Model:
    """Scores, and the scheduler to which each change is made before."""

    tallies = 64

    def __init__(
        self, nodes: Sequence[Node], namespaces: Mapping[str, Mapping[str, str]], options: SchedulerOptions
    ) -> None:
        self.scheduler = KubeScheduler(nodes, namespaces, tallies=self.tallies)
        self.scores = Scores(self.scheduler, options)
        self.top = self.scores.top

    def bind(self, pod: Preferences, number: int) -> None:
        self.scheduler.bind(number, pod.requirements)
        self.scores.count(number, pod, 1)

    def release(self, pod: Preferences, number: int) -> None:
        self.scheduler.release(number, pod.requirements)
        self.scores.count(number, pod, -1)

    def change_node(self, number: int, node: Node) -> None:
        old = self.scheduler.nodes[number]
        self.scheduler.change_node(number, node)
        self.scores.change_node(number, old, node)

    def by_plugin(self, pod: Preferences, feasible: NodeSet) -> Mapping[Plugin, Mapping[int, int]]:
        return scores_by_plugin(self.scores, pod, feasible)

    def totals(self, pod: Preferences, feasible: NodeSet) -> Mapping[int, int]:
        """Return the total score of each feasible node."""
        plugins = self.by_plugin(pod, feasible).values()
        return {number: sum(scores[number] for scores in plugins) for number in numbers_of(feasible)}


def by_name(found: Mapping[Any, Mapping[int, int]], names: list[str]) -> dict[str, dict[str, int]]:
    return {str(plugin): {names[number]: one for number, one in by.items()} for plugin, by in found.items()}


def without_zeros(found: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """Return scores without those of InterPodAffinity if all are 0: kube-scheduler skips it if no pod counts."""
    return {plugin: by for plugin, by in found.items() if plugin != "InterPodAffinity" or any(by.values())}


def best(total: Mapping[int, int]) -> NodeSet:
    most = max(total.values())
    return node_set([number for number, one in total.items() if one == most])


@given(st.randoms(use_true_random=True))
def test_scores_agree_with_a_second_implementation(random: Random) -> None:
    generator = ScenarioGenerator(random)
    nodes, namespaces = generator.nodes(), generator.namespace_objects()
    names = [node["metadata"]["name"] for node in nodes]
    options = random.choice(OPTIONS)
    model = Model([read(node) for node in nodes], namespace_labels(generator), options)
    bound: list[tuple[Object, Preferences, int]] = []
    subjects = []
    for _ in range(3):
        template = generator.template(nodes)
        selector = OWNERS.get(template.owner)
        subjects.append((template.pod, selector, preferences(template.pod, read_selector(selector))))
    for _ in range(random.randint(1, 8)):
        if bound and random.random() < 0.3:
            _, one, number = bound.pop(random.randrange(len(bound)))
            model.release(one, number)
        elif random.random() < 0.2:
            number = random.randrange(len(nodes))
            nodes[number] = changed(nodes[number], generator, random)
            model.change_node(number, read(nodes[number]))
        else:
            number = random.randrange(len(nodes))
            raw = generator.template(nodes).pod
            raw = {**raw, "spec": {**raw["spec"], "nodeName": names[number]}}
            if random.random() < 0.2:
                raw["metadata"] = {**raw["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            bound.append((raw, preferences(raw), number))
            model.bind(bound[-1][1], number)
        raw, selector, subject = random.choice(subjects)
        feasible = sorted(random.sample(range(len(nodes)), random.randint(1, len(nodes))))
        expected = scores(
            raw,
            nodes,
            [other for other, _, _ in bound],
            namespaces,
            [names[number] for number in feasible],
            most=options.scoring is Strategy.MOST_ALLOCATED,
            resources=[*options.resources.items()],
            selector=selector,
        )
        among = node_set(feasible)
        assert without_zeros(by_name(model.by_plugin(subject, among), names)) == without_zeros(expected)
        assert model.top(subject, among) == best(model.totals(subject, among))


def test_one_feasible_node_is_the_best_one() -> None:
    model = Model([read(node("a")), read(node("b"))], {}, SchedulerOptions())
    assert model.top(preferences(pod()), 0b10) == 0b10
    assert model.top(preferences(pod()), 0) == 0


def test_preferred_terms_without_a_weight_change_no_score() -> None:
    model = Model([read(node(name)) for name in "abc"], {}, SchedulerOptions())
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    preferred = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}]}}
    subject = preferences(pod(affinity=preferred))
    for number in (0, 1, 1):
        model.bind(subject, number)
    assert model.by_plugin(subject, 0b111)[Plugin.INTER_POD_AFFINITY] == {0: 0, 1: 0, 2: 0}


@given(st.randoms(use_true_random=True))
def test_rankings_that_are_read_rarely_follow_all_changes(random: Random) -> None:
    capacities = [{"cpu": random.choice(("16", "32")), GPU: "8"} for _ in range(random.choice((3, 20, 60)))]
    nodes = [read(node(f"n{number}", capacity)) for number, capacity in enumerate(capacities)]
    model = Model(nodes, {}, SchedulerOptions(resources={"cpu": 1, GPU: 1}))
    kinds = [preferences(pod(requests={"cpu": str(cpu), GPU: str(count)})) for cpu in (1, 2) for count in (0, 1, 2)]
    bound: list[tuple[Preferences, int]] = []
    for _ in range(8):
        for _ in range(random.choice((1, 3, 60))):
            if bound and random.random() < 0.4:
                model.release(*bound.pop(random.randrange(len(bound))))
            else:
                bound.append((random.choice(kinds), random.randrange(len(nodes))))
                model.bind(*bound[-1])
        kind, feasible = random.choice(kinds), random.randrange(1, 1 << len(nodes))
        assert model.top(kind, feasible) == best(model.totals(kind, feasible))


def test_nodes_without_cpu_are_scored_by_what_they_have() -> None:
    nodes = [read(node(name, {"cpu": None, GPU: "4"})) for name in ("a", "b")]
    model = Model(nodes, {}, SchedulerOptions(resources={"cpu": 1, GPU: 1}))
    subject = preferences(pod(requests={"cpu": "1", GPU: "1"}))
    model.bind(subject, 1)
    found = model.by_plugin(subject, 0b11)
    assert found[Plugin.NODE_RESOURCES_FIT] == {0: 75, 1: 50}
    assert found[Plugin.BALANCED_ALLOCATION] == {0: 75, 1: 75}


@pytest.mark.parametrize(
    ("holder", "bound"),
    [
        (scoring, "MAX_KINDS"),
        (scoring, "MAX_RANKINGS"),
        (Model, "tallies"),
        (allocation, "MAX_STATES"),
        (allocation, "MAX_CACHED_SCORES"),
    ],
)
@given(seed=st.integers(0, 2**64))
def test_caches_that_are_full_change_no_score(seed: int, holder: object, bound: str) -> None:
    expected = scores_of_a_day(Random(seed))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(holder, bound, 1)
        assert scores_of_a_day(Random(seed)) == expected


def scores_of_a_day(random: Random) -> list[object]:
    """Return the scores of a few pods while others come and go."""
    generator = ScenarioGenerator(random)
    nodes = generator.nodes()
    model = Model([read(one) for one in nodes], namespace_labels(generator), SchedulerOptions())
    every = (1 << len(nodes)) - 1
    kinds = [drawn(generator, nodes) for _ in range(4)]
    bound: list[tuple[Preferences, int]] = []
    found: list[object] = []
    for _ in range(20):
        if bound and random.random() < 0.4:
            model.release(*bound.pop(random.randrange(len(bound))))
        else:
            bound.append((random.choice(kinds), random.randrange(len(nodes))))
            model.bind(*bound[-1])
        for kind in kinds:
            found.append((model.by_plugin(kind, every), model.top(kind, every)))
    return found
