"""The model of kube-scheduler's scores agrees with a second implementation while pods come and go."""

from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.evaluation.nodes import NodeSet, node_set
from rules_engine.model.cluster import Node
from rules_engine.model.node import read_node
from rules_engine.model.rules import LabelSelector
from rules_engine.model.simulation import SchedulerOptions, Strategy
from rules_engine.scheduling.preferences import Preferences
from rules_engine.scheduling.requirements import Requirements
from rules_engine.scheduling.scoring import Scores
from rules_engine.scheduling.selectors import selector_of
from tests.support.naive_scores import scores
from tests.support.preferring import PreferringGenerator
from tests.support.scheduling import GPU

Object = dict[str, Any]

OPTIONS = (
    SchedulerOptions(),
    SchedulerOptions(strategy=Strategy.MOST_ALLOCATED, resources=(("cpu", 1), (GPU, 5))),
    SchedulerOptions(resources=(("memory", 2), ("ephemeral-storage", 1), (GPU, 3))),
)


def read(raw: Object) -> Node:
    def refuse(node: str, resource: str, error: Exception) -> None:
        raise error

    return read_node(raw, refuse)


def preferences(raw: Object, selector: LabelSelector | None = None) -> Preferences:
    return Preferences.of(raw, Requirements.of(raw), selector)


def by_name(found: Mapping[Any, Mapping[int, int]], names: list[str]) -> dict[str, dict[str, int]]:
    return {str(plugin): {names[number]: one for number, one in by.items()} for plugin, by in found.items()}


def best(total: Mapping[int, int]) -> NodeSet:
    most = max(total.values())
    return node_set([number for number, one in total.items() if one == most])


@given(st.randoms(use_true_random=True))
def test_scores_agree_with_a_second_implementation(random: Random) -> None:
    generator = PreferringGenerator(random, most_nodes=30)
    nodes, namespaces = generator.nodes(), generator.namespace_objects()
    names = [node["metadata"]["name"] for node in nodes]
    options = random.choice(OPTIONS)
    labels = {found["metadata"]["name"]: found["metadata"]["labels"] for found in namespaces}
    model = Scores([read(node) for node in nodes], labels, options)
    bound: list[tuple[Object, Preferences, int]] = []
    subjects = []
    for _ in range(3):
        raw, selector = generator.preferring(generator.pending(nodes), nodes), generator.owner_selector()
        subjects.append((raw, selector, preferences(raw, selector_of(selector))))
    for _ in range(random.randint(1, 12)):
        if bound and random.random() < 0.3:
            _, pod, number = bound.pop(random.randrange(len(bound)))
            model.release(pod, number)
        elif random.random() < 0.2:
            number = random.randrange(len(nodes))
            nodes[number] = generator.retainted(nodes[number])
            model.change_node(number, read(nodes[number]))
        else:
            number = random.randrange(len(nodes))
            raw = generator.preferring(generator.pending(nodes), nodes)
            raw = {**raw, "spec": {**raw["spec"], "nodeName": names[number]}}
            bound.append((raw, preferences(raw), number))
            model.bind(bound[-1][1], number)
        raw, selector, pod = random.choice(subjects)
        feasible = sorted(random.sample(range(len(nodes)), random.randint(1, len(nodes))))
        expected = scores(
            raw,
            nodes,
            [other for other, _, _ in bound],
            namespaces,
            [names[number] for number in feasible],
            most=options.strategy is Strategy.MOST_ALLOCATED,
            resources=options.resources,
            selector=selector,
        )
        among = node_set(feasible)
        assert by_name(model.by_plugin(pod, among), names) == expected
        assert model.top(pod, among) == best(model.of(pod, among))
