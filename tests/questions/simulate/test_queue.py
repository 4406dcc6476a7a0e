"""Waiting pods: they are tried again when, and only when, a change may help them."""

from typing import Any

import pytest

from rules_engine.cluster.nodes import Offered
from rules_engine.cluster.scheduling.cycle import SchedulingCycle
from rules_engine.model.rules.simulation import NodeState, SchedulerOptions
from rules_engine.questions.simulate import play
from tests.support.api import GPU, node
from tests.support.clusters import MIG
from tests.support.evaluation import compiled, ladder
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


def test_the_order_among_workloads_is_priority_then_arrival() -> None:
    low, middle = load("low", run_for=10), load("middle", count=2, at=1, run_for=10)
    other = load("other", pod=template(1, nodeSelector={"kubernetes.io/hostname": "a"}), at=1, run_for=10)
    high = load("high", pod=template(1, priority=9, preemptionPolicy="Never"), at=2, run_for=10)
    pods = by_name(played(ONE, low, other, middle, high))
    assert [pods[name].bound for name in ("low", "high", "other", "middle-1", "middle-2")] == [0, 10, 20, 30, 40]


def test_a_pod_that_wants_to_be_near_another_runs_once_that_one_does() -> None:
    nodes = [node("a", labels={"zone": "1"}), node("b", labels={"zone": "2"})]
    near = load("near", pod=template(0, **affinity("podAffinity", app="x")))
    far = load("far", pod=template(0, **affinity("podAffinity", app="nowhere")))
    pods = by_name(played(nodes, near, far, load("x", pod=labelled(template(0), app="x"), at=1000)))
    assert (pods["near"].bound, pods["near"].node) == (1000, pods["x"].node)
    assert pods["far"].state == "Pending"


@pytest.mark.parametrize("repelled", [True, False])
def test_a_pod_that_another_keeps_away_runs_when_that_one_ends(repelled: bool) -> None:
    nodes = [node("a", labels={"zone": "1"}), node("b", {"pods": "5"}, labels={"zone": "1"})]
    alone = affinity("podAntiAffinity", app="y" if repelled else "x")
    on_a, on_b = ({"nodeSelector": {"kubernetes.io/hostname": name}} for name in "ab")
    first = labelled(template(0, **on_a, **(alone if repelled else {})), app="x")
    second = labelled(template(0, **on_b, **({} if repelled else alone)), app="y")
    pods = by_name(played(nodes, load("first", pod=first, run_for=1000), load("second", pod=second)))
    assert pods["second"].bound == 1000


def test_a_pod_with_topology_spread_runs_when_a_node_joins() -> None:
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "nodeTaintsPolicy": "Honor",
        "minDomains": 2,
    }
    nodes = [node("a"), node("b", unschedulable=True)]
    arrival = load("p", pod=labelled(template(0, topologySpreadConstraints=[spread]), app="x"), count=2)
    pods = by_name(played(nodes, arrival, events=(at(1000, "b", NodeState.UNCORDONED),)))
    assert [pods[name].bound for name in ("p-1", "p-2")] == [0, 1000]


def test_a_victim_of_a_controller_arrives_anew_and_waits() -> None:
    low = load("low", controlled=True, run_for=1000)
    high = load("high", pod=template(1, priority=1), at=500, run_for=1000)
    record = played(ONE, low, high)
    assert [(pod.name, pod.state, pod.bound, pod.ended, pod.by, pod.replaces) for pod in record.pods] == [
        ("low-1", "Preempted", 0, 500, "ml/high", ""),
        ("high", "Succeeded", 500, 1500, "", ""),
        ("low-1-r1", "Succeeded", 1500, 2500, "", "low-1"),
    ]


def test_waiting_pods_use_devices_freed_by_preemption() -> None:
    nodes = [node("a", {GPU: "4"})]
    low = load("low", gpus=4)
    small = load("small", pod=template(1, preemptionPolicy="Never"), at=1)
    high = load("high", pod=template(3, priority=1), at=2)
    assert states(played(nodes, low, small, high)) == {"low": "Preempted", "small": "Running", "high": "Running"}


def test_without_preemption_nobody_is_preempted() -> None:
    low, high = load("low"), load("high", pod=template(1, priority=1), at=1)
    record = played(ONE, low, high, scheduler=SchedulerOptions(preemption=False))
    assert states(record) == {"low": "Running", "high": "Pending"}


def test_rules_see_the_devices_that_are_free_at_each_arrival() -> None:
    nodes = [node("a", {MIG: "2", GPU: "2"})]
    arrival = load("p", pod=template(0, {MIG: "1"}), count=5, every=1000, run_for=2500)
    record = played(nodes, arrival, rule_set=compiled(ladder(MIG, GPU, offered=Offered.AVAILABLE)))
    given = [next(iter(pod.admitted.given)) for pod in record.pods]
    assert given == [MIG, MIG, GPU, MIG, MIG]
    assert {*states(record).values()} == {"Succeeded"}


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
