"""The packaged Diagnostics: each finds what is unwell and not what is nearly so, and says what helps."""

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES, ClusterObjects
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Risk
from rules_engine.rules.diagnostic.evaluation import CompiledDiagnostic, compile_diagnostics, evaluate_diagnostics
from rules_engine.rules.diagnostic.value import Diagnostic, ForEach
from rules_engine.rules.sources.documents import load_documents
from tests.support.api import by_kind, cluster, node, pod
from tests.support.remedies import has_its_risk

FOLDER = Path(__file__).parents[3] / "rules" / "diagnostics"
LOADED = load_documents([FOLDER])
COMPILED, PROBLEMS = compile_diagnostics(LOADED.of(Diagnostic))
TESTS = [
    document for file in sorted(FOLDER.glob("*.test.yaml")) for document in yaml.safe_load_all(file.read_text("utf-8"))
]
NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
"""The moment of the recorded clusters: the newest of their timestamps."""


def recorded_cluster(test: Any) -> ClusterObjects:
    return ClusterObjects(by_kind(*test["spec"]["cluster"]["objects"]), now=NOW)


def recorded(one: CompiledDiagnostic) -> Iterator[ClusterObjects]:
    """Yield the recorded clusters of the tests of a Diagnostic."""
    for test in TESTS:
        if any(one.diagnostic.reason in diagnosis.get("reasons", ()) for diagnosis in test["spec"]["diagnoses"]):
            yield recorded_cluster(test)


def findings(one: CompiledDiagnostic, objects: ClusterObjects) -> tuple[Finding, ...]:
    evaluation = evaluate_diagnostics([one], objects, lambda _: True)
    assert evaluation.not_evaluated == ()
    return evaluation.findings


KINDS = ("Node", "Pod", "DaemonSet", "Event", "RuntimeClass")

EACH = pytest.mark.parametrize("one", [pytest.param(one, id=one.diagnostic.name) for one in COMPILED])


def test_there_are_no_problems() -> None:
    assert (LOADED.problems, PROBLEMS) == ((), ())
    assert len(COMPILED) == len(LOADED.of(Diagnostic)) > 30


def test_a_reason_belongs_to_one_diagnostic() -> None:
    reasons = [one.diagnostic.reason for one in COMPILED]

    assert len(set(reasons)) == len(reasons)


def test_causes_are_about_the_same_objects_and_are_listed_with_their_own_causes() -> None:
    known = {one.diagnostic.reason: one.diagnostic for one in COMPILED}
    for one in known.values():
        for cause in one.caused_by:
            assert known[cause].for_each is one.for_each
            assert {*known[cause].caused_by} <= {*one.caused_by}
            assert one.reason not in known[cause].caused_by


@EACH
def test_it_finds_an_object_and_not_one_that_is_nearly_unwell(one: CompiledDiagnostic) -> None:
    found = {finding.object for objects in recorded(one) for finding in findings(one, objects)}
    every = {item.object_name for objects in recorded(one) for item in objects.of(one.diagnostic.for_each.value)}

    assert found
    if one.diagnostic.for_each is ForEach.CLUSTER:
        assert not all(findings(one, objects) for objects in recorded(one))
    else:
        assert len(every - found) >= 2


@EACH
def test_it_has_a_cause_evidence_and_a_remedy_with_a_command(one: CompiledDiagnostic) -> None:
    assert one.diagnostic.description
    for objects in recorded(one):
        for finding in findings(one, objects):
            assert finding.cause
            assert finding.evidence
            assert all(finding.evidence)
            assert any(remedy.command for remedy in finding.remedies)


@pytest.mark.parametrize("one", [pytest.param(o, id=o.diagnostic.name) for o in COMPILED if o.diagnostic.on_host])
def test_a_finding_about_the_host_has_the_command_for_its_node(one: CompiledDiagnostic) -> None:
    for objects in recorded(one):
        for finding in findings(one, objects):
            name = finding.object
            pod = objects.find("Pod", name.name, name.namespace)
            node = name.name if pod is None else pod.spec["nodeName"]
            commands = [remedy.command for remedy in finding.remedies]
            assert any(command.startswith(f"kubectl debug node/{node} -it --image=busybox ") for command in commands)


@EACH
def test_commands_are_lines_of_kubectl_without_placeholders(one: CompiledDiagnostic) -> None:
    for objects in recorded(one):
        for finding in findings(one, objects):
            for remedy in finding.remedies:
                for command in filter(None, re.split(r"; | && ", remedy.command)):
                    words = shlex.split(command)
                    assert words[0] == "kubectl"
                    assert "\n" not in command
                    assert not [word for word in words if re.fullmatch(r"[A-Z]{3,}", word)]


@EACH
def test_the_risk_of_a_remedy_is_that_of_its_command(one: CompiledDiagnostic) -> None:
    """Upgrades, resets and layouts: High, after a drain. Restarts of the plugin: Medium. Looking: None."""
    for objects in recorded(one):
        for finding in findings(one, objects):
            for remedy in finding.remedies:
                if "kubectl drain" in remedy.command or "--force" in remedy.command:
                    assert remedy.risk is Risk.HIGH
                elif " delete pod " in remedy.command:
                    assert remedy.risk is Risk.MEDIUM
                assert has_its_risk(remedy)
                if remedy.risk is Risk.NONE:
                    reading = r"kubectl (-n \S+ )?(get|describe|logs|debug|exec|top) "
                    assert all(re.match(reading, line) for line in filter(None, remedy.command.split("; ")))


@EACH
def test_what_makes_a_finding_possible_only_is_its_certainty(one: CompiledDiagnostic) -> None:
    """A message that guesses is not certain, and an error is."""
    possible = one.diagnostic.certainty is Certainty.POSSIBLE
    for objects in recorded(one):
        for finding in findings(one, objects):
            assert not re.search(r"\bmay\b", finding.message) or possible
    assert not possible or one.diagnostic.severity is not FindingSeverity.ERROR


@pytest.mark.parametrize(("resource", "plugin"), [("nvidia.com/gpu", "nvidia"), ("rdma/hca", "rdma")])
def test_the_plugin_of_the_devices_is_restarted_and_no_other(resource: str, plugin: str) -> None:
    labels = {"config": "all-1g.10gb", "config.state": "success", "strategy": "mixed"}
    node: dict[str, Json] = {
        "metadata": {"name": "n", "labels": {f"nvidia.com/mig.{name}": value for name, value in labels.items()}},
        "status": {"capacity": {resource: "8"}, "allocatable": {resource: "0"}},
    }
    pods: list[dict[str, Json]] = [
        {"metadata": {"name": f"{kind}-device-plugin-a", "namespace": "gpu"}, "spec": {"nodeName": "n"}}
        for kind in ("rdma", "nvidia")
    ]
    found = {
        finding.reason: [remedy.command for remedy in finding.remedies if " delete pod " in remedy.command]
        for one in COMPILED
        if one.diagnostic.reason in ("NoAllocatableDevices", "MIGInstancesMissing")
        for finding in findings(one, ClusterObjects({"Node": [node], "Pod": pods}, now=NOW))
    }

    assert found == {
        "NoAllocatableDevices": [f"kubectl -n gpu delete pod {plugin}-device-plugin-a"],
        "MIGInstancesMissing": ["kubectl -n gpu delete pod nvidia-device-plugin-a"],
    }


def test_a_plugin_that_counts_a_device_as_lost_is_restarted_before_the_node_is_drained() -> None:
    """The errors (Xid) may be over: a device plugin never marks a device healthy again."""
    [one] = [one for one in COMPILED if one.diagnostic.reason == "UnhealthyDevices"]
    node: dict[str, Json] = {
        "metadata": {"name": "n"},
        "status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "7"}},
    }
    plugin: dict[str, Json] = {
        "metadata": {"name": "nvidia-device-plugin-a", "namespace": "gpu"},
        "spec": {"nodeName": "n"},
    }
    (finding,) = findings(one, ClusterObjects({"Node": [node], "Pod": [plugin]}, now=NOW))

    assert [(remedy.risk, remedy.command) for remedy in finding.remedies][-2:] == [
        (Risk.MEDIUM, "kubectl -n gpu delete pod nvidia-device-plugin-a"),
        (Risk.HIGH, "kubectl drain n --ignore-daemonsets"),
    ]


def test_labels_and_tolerations_that_keep_a_device_plugin_off_a_node_are_evidence() -> None:
    [test] = [test for test in TESTS if test["metadata"]["name"] == "excluded-device-plugins"]
    [one] = [one for one in COMPILED if one.diagnostic.reason == "NoDevicePlugin"]
    [finding] = findings(one, recorded_cluster(test))

    taints = "it lacks a toleration for nvidia.com/gpu=present:NoSchedule, it lacks a toleration for team:NoExecute"
    affinity = "zone In (a, b), or pool NotIn (batch), or pool DoesNotExist"
    assert finding.evidence[1].split("; ") == [
        f"DaemonSet gpu/a-device-plugin: the node lacks the label gpu=on, {taints}",
        f"DaemonSet gpu/b-device-plugin: the node does not match the node affinity {affinity}",
        "DaemonSet gpu/c-device-plugin: it matches the node, but has no pod there",
    ]
    test["spec"]["cluster"]["objects"] = test["spec"]["cluster"]["objects"][:2]
    [finding] = findings(one, recorded_cluster(test))
    assert finding.remedies[1].command == "kubectl label --overwrite node excluding gpu=on"


def test_messages_of_programs_are_not_quoted() -> None:
    [test] = [test for test in TESTS if test["metadata"]["name"] == "driver"]
    objects = recorded_cluster(test)

    assert "token=12345" in str(test)
    assert "token" not in str([findings(one, objects) for one in COMPILED])


@pytest.mark.parametrize("test", ["devices", "mig"])
def test_nodes_are_diagnosed_without_their_pods(test: str) -> None:
    [recorded] = [document for document in TESTS if document["metadata"]["name"] == test]
    whole = recorded_cluster(recorded)
    nodes = ClusterObjects({"Node": whole.nodes}, absent=frozenset(API_RESOURCES) - {"Node"}, now=NOW)
    reasons = recorded["spec"]["diagnoses"][0]["reasons"]
    found = [
        finding
        for one in COMPILED
        if one.diagnostic.reason in reasons
        for finding in evaluate_diagnostics([one], nodes, lambda _: True).findings
    ]
    expected = recorded["spec"]["diagnoses"][0]["expect"]

    assert sorted((finding.reason, str(finding.object)) for finding in found) == sorted(
        (one["reason"], one["object"]) for one in expected
    )
    assert not [line for finding in found for line in finding.evidence if "no pod" in line]


@EACH
def test_objects_with_no_more_than_their_names_are_evaluated(one: CompiledDiagnostic) -> None:
    """Objects are reduced on reading, and new ones have no status yet."""
    empty = ClusterObjects(
        {
            "Node": [{"metadata": {"name": "worker"}}],
            "Pod": [{"metadata": {"name": "train", "namespace": "ml"}, "spec": {"containers": [{"name": "main"}]}}],
            "DaemonSet": [{"metadata": {"name": "exporter", "namespace": "ml"}, "spec": {"template": {"spec": {}}}}],
            "Event": [{"metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "worker"}}],
        },
        now=NOW,
    )

    assert findings(one, empty) == ()


def test_clusters_with_many_pods_are_within_the_budget() -> None:
    pods = (pod(f"p{index}", on="a") for index in range(5_000))
    objects = cluster(node("a"), *pods)
    costly = [
        one.diagnostic.name for one in COMPILED if evaluate_diagnostics([one], objects, lambda _: True).not_evaluated
    ]
    assert costly == []


@pytest.mark.parametrize(
    "driver", ["nvidia-dra-driver-gpu-kubelet-plugin-x", "intel-gpu-resource-driver-kubelet-plugin-x"]
)
def test_no_device_plugin_is_missed_beside_a_dra_driver(driver: str) -> None:
    (one,) = (one for one in COMPILED if one.diagnostic.name == "no-device-plugin")
    marked = node("a", labels={"nvidia.com/gpu.present": "true"})
    kinds: dict[str, list[dict[str, Json]]] = {kind: [] for kind in KINDS}
    assert findings(one, ClusterObjects(kinds | by_kind(marked), now=NOW)) != ()
    assert findings(one, ClusterObjects(kinds | by_kind(marked, pod(driver, on="a")), now=NOW)) == ()


@pytest.mark.parametrize(("name", "found"), [("nvidia-driver-daemonset-x", True), ("nvidia-nim-0", False)])
def test_programs_are_no_pods_of_the_operator(name: str, found: bool) -> None:
    running = {"name": "fetch", "state": {"running": {"startedAt": "2026-11-20T08:00:00Z"}}}
    killed = {"name": "c", "ready": False, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    status = {"initContainerStatuses": [running], "containerStatuses": [{**killed, "restartCount": 1}]}
    raws = by_kind(node("a"), pod(name, on="a", phase="Pending", status=status))
    for diagnostic in ("operator-pod-initializing", "operator-pod-out-of-memory"):
        (one,) = (one for one in COMPILED if one.diagnostic.name == diagnostic)
        assert bool(findings(one, ClusterObjects(raws, now=NOW))) == found


@pytest.mark.parametrize(("since", "found"), [("2026-11-20T08:54:00Z", True), ("2026-11-20T08:56:00Z", False)])
def test_new_nodes_and_plugins_have_time_to_register(since: str, found: bool) -> None:
    marked = node("a", labels={"nvidia.com/gpu.present": "true"}, metadata={"creationTimestamp": since})
    ready = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}
    plugin = pod("nvidia-device-plugin-x", on="a", status=ready)
    kinds: dict[str, list[dict[str, Json]]] = {kind: [] for kind in KINDS}
    for name, objects in (("no-device-plugin", (marked,)), ("gpus-not-registered", (marked, plugin))):
        (one,) = (one for one in COMPILED if one.diagnostic.name == name)
        assert bool(findings(one, ClusterObjects(kinds | by_kind(*objects), now=NOW))) == found
