"""A load on a cluster, played to its end: who runs where and when, who waits, and why."""

import tracemalloc
from collections import Counter
from typing import Any

import pytest

from rules_engine.model.rules.simulation import Distribution, NodeState
from rules_engine.rules.evaluation import RuleSet
from tests.support.api import GPU, node
from tests.support.evaluation import check, compiled, validation
from tests.support.simulation import always, at, load, played, rules, states, template

WAITING = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu."
MIG = "nvidia.com/mig-2g.20gb"


@pytest.fixture(scope="module")
def default_rules() -> RuleSet:
    return rules("rules/gpu-allocation")


def two_workers() -> list[dict[str, Any]]:
    control_plane = node("control-plane", taints=["node-role.kubernetes.io/control-plane:NoSchedule"])
    return [control_plane, *(node(name, {GPU: "4"}) for name in ("worker", "worker2"))]


def test_eight_of_ten_pods_run_four_on_each_node_and_two_wait(default_rules: RuleSet) -> None:
    arrival = load("gpu-test", pod=template(0, {MIG: "1"}), count=10, every=1000)
    record = played(two_workers(), arrival, rule_set=default_rules)
    assert [pod.name for pod in record.pods] == [f"gpu-test-{number}" for number in range(1, 11)]
    assert Counter(pod.node for pod in record.pods[:8]) == {"worker": 4, "worker2": 4}
    assert [pod.arrived for pod in record.pods] == [*range(0, 10_000, 1000)]
    assert [pod.state for pod in record.pods] == ["Running"] * 8 + ["Pending"] * 2
    assert [pod.message for pod in record.pods] == [""] * 8 + [WAITING] * 2
    assert all(pod.admitted is record.pods[-1].admitted for pod in record.pods[1:])
    admitted = record.pods[0].admitted
    assert (admitted.requested, admitted.given) == ({MIG: 10**9}, {GPU: 10**9})
    [fallback] = admitted.fallbacks
    assert (fallback.rule, fallback.requested, fallback.given, fallback.devices) == (
        "FallbackLadder/mig-to-gpu",
        MIG,
        GPU,
        1,
    )
    assert record.ended == 9000


def test_a_denied_pod_never_waits(default_rules: RuleSet) -> None:
    pod = template(0)
    pod["spec"]["containers"][0]["resources"] = {"requests": {GPU: "1"}}
    record = played(two_workers(), load("p", pod=pod), rule_set=default_rules)
    [found] = record.pods
    assert (found.state, found.bound, found.ended) == ("Denied", None, 0)
    assert found.admitted.denied_by == "Validation/well-formed-gpus"
    assert "nvidia.com/gpu" in found.admitted.message


def test_a_waiting_pod_reserves_its_devices_for_ten_seconds() -> None:
    both = compiled(validation(check("cluster.available('nvidia.com/gpu') > 1", "")))
    node_ = node("n", {GPU: "2", "cpu": "4"})
    runs = load("runs", pod=template(0, {"cpu": "4"}), run_for=3000)
    waits = load("waits", pod=template(0, {"cpu": "5", GPU: "1"}), at=1000)
    asks = load("asks", pod=template(0), at=2000, count=10, every=1000)
    record = played([node_], runs, waits, asks, rule_set=both)
    allowed = {pod.arrived: pod.state.value for pod in record.pods if pod.name.startswith("asks")}
    assert allowed == {moment: "Denied" if moment < 11_000 else "Running" for moment in range(2000, 12_000, 1000)}


def test_a_malformed_pod_is_refused() -> None:
    record = played([node("n")], load("p", pod=template(0, {"cpu": "many"}), controlled=True))
    [found] = record.pods
    assert (found.state, found.admitted.denied_by, found.admitted.requested) == ("Refused", None, {})
    assert "the pod is malformed" in found.admitted.message


def test_a_pod_beyond_the_bounds_of_the_model_is_refused() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term] * 101}}
    [found] = played([node("n")], load("p", pod=template(0, affinity=affinity))).pods
    assert (found.state, found.admitted.denied_by) == ("Refused", None)
    assert "terms of pod affinity" in found.admitted.message


def test_a_pod_of_a_job_arrives_when_another_ends() -> None:
    nodes = [node("n", {GPU: "8"})]
    record = played(nodes, load("job", controlled=True, parallel=2, total=5, run_for=1000))
    assert [(pod.name, pod.arrived) for pod in record.pods] == [
        ("job-1", 0),
        ("job-2", 0),
        ("job-3", 1000),
        ("job-4", 1000),
        ("job-5", 2000),
    ]
    assert record.ended == 3000


def test_no_two_pods_have_one_name() -> None:
    record = played([node("n")], load("p", gpus=0, count=2), load("p-1", gpus=0), load("p-1", gpus=0))
    assert [pod.name for pod in record.pods] == ["p-1", "p-2", "p-1-2", "p-1-3"]


# Nodes


def test_a_pod_on_a_node_that_is_not_ready_is_evicted_after_its_grace_and_created_anew() -> None:
    nodes = [node("a", {GPU: "1"}), node("b", {GPU: "0"})]
    arrival = load("job", controlled=True)
    record = played(nodes, arrival, events=(at(1000, "a", NodeState.NOT_READY), at(400_000, "a", NodeState.READY)))
    first, second = record.pods
    assert (first.state, first.ended, first.by) == ("Evicted", 301_000, "NotReady")
    assert (second.name, second.replaces, second.arrived) == ("job-1-r1", "job-1", 301_000)
    assert (second.state, second.node, second.bound) == ("Running", "a", 400_000)
    assert [change.becomes for change in record.changes] == ["NotReady", "Ready"]


def test_a_node_that_fails_often_takes_no_more_memory() -> None:
    becomes = (NodeState.NOT_READY, NodeState.READY)
    events = [at(1 + number, "a", becomes[number % 2]) for number in range(2000)]
    tracemalloc.start()
    try:
        record = played([node("a", {GPU: "100", "pods": "100"})], load("p", count=100), events=events)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert Counter(states(record).values()) == {"Running": 100}
    assert peak < 5_000_000  # 100,000 planned evictions take more than 10 MB


@pytest.mark.parametrize(
    ("toleration", "ended"),
    [
        ({"operator": "Exists", "tolerationSeconds": 5}, 6000),
        ({"operator": "Exists"}, None),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 7}, 8000),
        ({"key": "node.kubernetes.io/not-ready", "value": "x", "effect": "NoExecute"}, 1000),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}, 301_000),
        ({"key": "other", "operator": "Exists"}, 301_000),
        ({"operator": "Exists", "tolerationSeconds": -1}, 1000),
    ],
)
def test_a_toleration_sets_the_grace(toleration: dict[str, Any], ended: int | None) -> None:
    pod = template(1, tolerations=[toleration])
    record = played([node("a", {GPU: "1"})], load("p", pod=pod), events=(at(1000, "a", NodeState.NOT_READY),))
    assert record.pods[0].ended == ended


def test_an_interruption_keeps_the_record_so_far() -> None:
    reports: list[tuple[int, int]] = []

    def interrupt(done: int, total: int) -> None:
        reports.append((done, total))
        if done >= 100:
            raise KeyboardInterrupt

    nodes = [node("a", {GPU: "1"})]
    record = played(nodes, load("p", count=1000, every=1), progress=interrupt, until=10**6)
    assert record.interrupted
    assert reports[0] == (0, 1000)
    assert len(reports) > 2
    assert reports[-1] == (len(record.pods), 1000)
    assert record.pods[-1].arrived <= record.ended < 1000
    assert record.pods[-1].message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_run_times_depend_on_the_seed_alone() -> None:
    def ends(seed: int) -> list[int | None]:
        arrival = load("p", count=5, every=always(1), run_for=Distribution(mean=10_000))
        return [found.ended for found in played([node("a", {GPU: "8"})], arrival, seed=seed).pods]

    assert ends(1) == ends(1)
    assert ends(1) != ends(2)
