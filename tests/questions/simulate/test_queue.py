"""Waiting pods: they are tried again when, and only when, a change may help them."""

from typing import Any

import pytest

from rules_engine.cluster.scheduling.cycle import SchedulingCycle
from rules_engine.model.rules.simulation import NodeState
from rules_engine.questions.simulate import play
from tests.support.api import GPU, node
from tests.support.simulation import at, by_name, load, played, states, template

ONE = [node("a", {GPU: "1"})]


def affinity(member: str, **labels: str) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": labels}}
    return {"affinity": {member: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def labelled(made: dict[str, Any], **labels: str) -> dict[str, Any]:
    made["metadata"] = {"labels": labels}
    return made


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of pods that were tried."""
    tried: list[str] = []
    schedule = SchedulingCycle.schedule

    def counted(self: SchedulingCycle, name: str, *rest: Any) -> Any:
        tried.append(name)
        return schedule(self, name, *rest)

    monkeypatch.setattr(SchedulingCycle, "schedule", counted)
    return tried


def test_of_equal_waiting_pods_only_the_first_is_tried_once_per_release(attempts: list[str]) -> None:
    record = played(ONE, load("p", count=50, every=1, run_for=1000))
    assert {*states(record).values()} == {"Succeeded"}
    # Each release runs one pod; then the node is full, so that the next one is not even tried.
    assert len(attempts) == 50 + 1


def test_a_release_looks_at_the_first_waiting_pods_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    may_fit = SchedulingCycle.may_fit

    def counted(self: SchedulingCycle, *rest: Any) -> bool:
        looks.append("")
        return may_fit(self, *rest)

    monkeypatch.setattr(SchedulingCycle, "may_fit", counted)
    loads = [load(f"p{number}", pod=template(1, {"cpu": f"{number + 1}m"}), run_for=1000) for number in range(50)]
    pods = by_name(played(ONE, *loads))
    assert [pods[f"p{number}"].bound for number in range(50)] == [1000 * number for number in range(50)]
    assert len(looks) < 50 * 10


def test_a_release_on_a_node_that_lacks_resources_tries_nobody(attempts: list[str]) -> None:
    nodes = [*ONE, node("b", {GPU: "4"})]
    played(nodes, load("small", count=5, run_for=1000), load("large", gpus=5, count=3))
    assert attempts.count("ml/large-1") == 1
    assert len(attempts) == 5 + 1


def test_a_release_on_a_node_that_is_not_selected_tries_nobody(attempts: list[str]) -> None:
    nodes = [node("a", {GPU: "1"}, labels={"pool": "x"}), node("b", {GPU: "0"}, labels={"pool": "y"})]
    record = played(nodes, load("p", run_for=1000), load("q", pod=template(1, nodeSelector={"pool": "y"})))
    assert attempts == ["ml/p", "ml/q"]
    assert by_name(record)["q"].message == (
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node affinity/selector."
    )


def test_the_number_of_pods_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "MAX_PODS", 20)
    # The pod tolerates a node that is not ready for a second only, and is created anew again and again.
    tolerations = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 1},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "operator": "Exists"},
    ]
    arrival, late = load("p", pod=template(1, tolerations=tolerations), controlled=True), load("late", at=30_000)
    record = played(ONE, arrival, late, events=(at(0, "a", NodeState.NOT_READY),))
    assert len(record.pods) == 20
    assert record.pods[-1].name == "p-1-r19"
    assert record.ended == 30_000
    assert record.notices == ("a simulation has at most 20 pods: 2 further pods did not arrive",)


def test_a_pod_whose_placement_costs_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.cluster.scheduling.cycle.COMPARISONS", 1)
    nodes = [node("a", labels={"zone": "1"}), node("b", labels={"zone": "2"})]
    others = load("x", pod=labelled(template(0), app="x"), count=5)
    near = load("near", pod=labelled(template(0, **affinity("podAffinity", app="x")), app="y"))
    ends = load("ends", pod=template(0), run_for=1000)
    pods = by_name(played(nodes, ends, others, near))["near"]
    assert pods.state == "Pending"
    assert "cost limit" in pods.message
