"""Pods that are in the cluster when a simulation begins."""

from pathlib import Path
from typing import Any

import pytest

from rules_engine.model.rules.simulation import NodeState
from rules_engine.rules.sources.rule_files import read_rules
from tests.support.api import GPU, node, pod
from tests.support.loading import rule
from tests.support.simulation import always, at, by_name, load, played, rules, states, template

NODES = [node("a", {GPU: "2"})]


def owned(made: dict[str, Any], kind: str) -> dict[str, Any]:
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "owner", "controller": True}]
    return made


def gpus(name: str, count: int = 1, **spec: Any) -> dict[str, Any]:
    return pod(name, {GPU: str(count)}, **spec)


def test_bound_pods_hold_their_resources_and_run_on_for_a_time() -> None:
    record = played(NODES, load("new"), pods=[gpus("old", 2, on="a")], running_for=always(5000))
    pods = by_name(record)
    assert (pods["old"].arrival, pods["old"].arrived, pods["old"].bound) == (None, 0, 0)
    assert (pods["old"].state, pods["old"].ended) == ("Succeeded", 5000)
    assert (pods["new"].arrival, pods["new"].bound) == (0, 5000)
    assert pods["old"].admitted.requested == pods["old"].admitted.given == {GPU: 2 * 10**9}


def test_pending_pods_are_scheduled_at_once_by_priority_without_another_admission() -> None:
    # The rules deny a GPU in requests alone; the pod is in the cluster, so they were not evaluated.
    waiting = [gpus("low", 2), gpus("high", 2, priority=5)]
    record = played(NODES, pods=waiting, rule_set=rules("rules/gpu-allocation"), running_for=always(1000))
    assert [(found.name, found.bound, found.ended) for found in record.pods] == [("low", 1000, 2000), ("high", 0, 1000)]


def test_finished_pods_and_pods_of_other_nodes_are_left_out() -> None:
    done = gpus("done", 2, on="a")
    done["status"]["phase"] = "Succeeded"
    record = played(NODES, load("new"), pods=[done, gpus("elsewhere", on="b")])
    assert states(record) == {"new": "Running"}


def test_a_lost_pod_of_a_controller_is_created_anew_by_the_rules() -> None:
    nodes = [*NODES, node("b", {GPU: "2"})]
    old = owned(gpus("old", on="a"), "ReplicaSet")
    del old["spec"]["containers"][0]["resources"]["limits"]
    record = played(nodes, pods=[old], events=(at(10, "a", NodeState.DRAINED),), rule_set=rules("rules/gpu-allocation"))
    first, second = record.pods
    assert (first.state, first.by) == ("Evicted", "Drained")
    # It has a GPU in requests alone, which the rules deny.
    assert (second.name, second.replaces, second.state) == ("old-r1", "old", "Denied")


def test_a_pod_of_a_stateful_set_is_created_anew_with_a_name_and_default_requests(tmp_path: Path) -> None:
    read = "'name ' + object.metadata.name + ', requests ' + object.spec.containers[0].resources.requests.cpu"
    validations = f'{{validations: [{{expression: "false", messageExpression: "{read}"}}]}}'
    (tmp_path / "rule.yaml").write_text(rule("Validation", validations))
    old = owned(pod("web-0", on="a"), "StatefulSet")
    old["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    events = (at(10, "a", NodeState.DRAINED),)
    record = played(NODES, pods=[old], events=events, rule_set=read_rules([tmp_path]).rule_set)
    assert record.pods[1].admitted.message.endswith(": name web-0, requests 1")
    assert record.pods[1].replaces == "web-0"


@pytest.mark.parametrize("arrives", [True, False])
def test_a_pod_waits_if_its_victim_is_being_deleted_and_topology_spread_does_not_count_it(arrives: bool) -> None:
    selector = {"labelSelector": {"matchLabels": {"app": "x"}}, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}
    spread = [{"topologyKey": "kubernetes.io/hostname", **selector}]
    deleted = pod("deleted", labels={"app": "x"}, on="a")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new = pod("new", labels={"app": "x"}, priority=5, topologySpreadConstraints=spread)
    arrivals, pods = ([load("new", pod=new)], []) if arrives else ([], [new])
    record = played(
        [node("a"), node("b", taints=["x=y:NoSchedule"])],
        *arrivals,
        pods=[pod("stays", labels={"app": "x"}, on="a", priority=5), deleted, *pods],
        running_for=always(5000),
    )
    found = by_name(record)
    assert (found["deleted"].state, found["deleted"].ended) == ("Preempted", 0)
    assert (found["stays"].state, found["new"].bound) == ("Succeeded", 5000)


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_pods_of_daemon_sets_and_static_pods_stay_on_a_drained_node(kind: str) -> None:
    record = played(NODES, pods=[owned(gpus("old", on="a"), kind)], events=(at(10, "a", NodeState.DRAINED),))
    assert states(record) == {"old": "Running"}


def test_the_latest_of_equal_victims_is_preempted() -> None:
    pods = [gpus("older", on="a"), gpus("newer", on="a"), gpus("unknown", on="b"), gpus("broken", on="b")]
    pods[0]["status"]["startTime"] = "2025-12-31T00:00:00Z"
    pods[1]["status"]["startTime"] = "2025-12-31T12:00:00Z"
    pods[2]["status"]["startTime"] = "soon"
    record = played([*NODES], load("high", pod=template(1, priority=1)), pods=pods[:2])
    assert states(record) == {"older": "Running", "newer": "Preempted", "high": "Running"}
    nodes = [*NODES, node("b", {GPU: "2"})]
    record = played(nodes, load("high", pod=template(1, priority=1)), pods=pods)
    assert sum(found.state == "Preempted" for found in record.pods if found.node == "b") == 1


def test_pods_without_a_name_get_one() -> None:
    record = played(NODES, pods=[pod(name, on="a") for name in ("", "pod", "")])
    assert [found.name for found in record.pods] == ["pod", "pod-2", "pod-3"]


def test_malformed_pods_are_left_out_with_a_notice() -> None:
    pods = [pod(f"p{number}", tolerations="all", on="a") for number in range(2)]
    record = played(NODES, pods=pods)
    assert record.pods == []
    assert record.notices == (
        "pod ml/p0 is left out: /spec/tolerations: must be a list, not a string",
        "pod ml/p1 is left out: /spec/tolerations: must be a list, not a string",
    )


def test_pods_on_unknown_nodes_are_left_out_with_a_notice() -> None:
    record = played(NODES, pods=[gpus("lost", on="absent"), gpus("old", on="a")])
    assert states(record) == {"old": "Running"}
    assert record.notices == ("pod ml/lost is left out: node 'absent' not found",)


def test_existing_pods_with_gates_wait() -> None:
    record = played(NODES, pods=[gpus("gated", schedulingGates=[{"name": "queue"}]), gpus("free")])
    assert states(record) == {"gated": "Pending", "free": "Running"}
    assert by_name(record)["gated"].message == "Scheduling is blocked due to non-empty scheduling gates"


def test_gates_and_unknown_labels_of_namespaces_are_named() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}}
    pods = [
        gpus("gated", schedulingGates=[{"name": "queue"}]),
        gpus(
            "near",
            affinity={
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
                }
            },
        ),
        gpus("apart", affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
    ]
    unknown = "namespace selectors, since no namespaces were read"
    found = by_name(played(NODES, pods=pods))
    named = {name: pod.admitted.not_modelled for name, pod in found.items()}
    assert named == {"gated": ("scheduling gates",), "near": (unknown,), "apart": (unknown,)}
    found = by_name(played(NODES, pods=pods, namespaces=[{"metadata": {"name": "ml", "labels": {}}}]))
    assert [pod.admitted.not_modelled for pod in found.values()] == [("scheduling gates",), (), ()]
