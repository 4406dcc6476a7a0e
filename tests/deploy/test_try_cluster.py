"""`make try-cluster`: what its report keeps, and that a real cluster keeps nothing of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real import LABEL, REAL, Kube, eventually, kubectl, kubernetes
from tests.support.server import environment
from tools.try_cluster_report import Names, describe_node, refusal_reason, report_text

NODE = {
    "metadata": {
        "name": "secret-1.corp.example",
        "labels": {
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.machine": "secret-machine",
            "nvidia.com/mig.config": "secret-layout",
            "team": "secret-team",
        },
        "annotations": {"note": "secret-note"},
    },
    "spec": {
        "taints": [
            {"key": "nvidia.com/gpu", "value": "secret-value", "effect": "NoSchedule"},
            {"key": "secret.example/taint", "effect": "NoExecute"},
            {"key": "secret", "effect": "NoSchedule"},
        ]
    },
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "secret.example/fpga": "1", "cpu": "64"},
        "nodeInfo": {"kubeletVersion": "v1.36.2", "machineID": "secret-id"},
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
    },
}


def test_a_node_is_described_without_names() -> None:
    assert describe_node(NODE, Names()) == {
        "node": "node-1",
        "versions": ["v1.36.2", ""],
        "ready": [],
        "taints": ["nvidia.com/gpu:NoSchedule", "taint-1:NoExecute", "taint-2:NoSchedule"],
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "allocatable": {"nvidia.com/gpu": "8", "resource-1": "1", "cpu": "64"},
    }


def test_the_report_replaces_names_in_all_texts_by_the_same_words() -> None:
    names = Names()
    for noun, name in (("namespace", "ml"), ("pod", "ml-0"), ("serviceaccount", "sets"), ("node", "a.corp.example")):
        names.word(noun, name)
    describe_node(NODE, names)
    report = {
        "gpuRules": "1",
        "kubernetes": "v1",
        "sets": ["mig-a100-80gb"],
        "problems": ["node a.corp.example: ml/ml-0 lacks secret.example/fpga."],
        "nodes": [],
        "pods": [{"apiServer": "accepted"}],
        "doctor": {"ml/ml-0": "(a.corp.example, secret-1.corp.example)"},
    }
    text = report_text(names.replace(report))
    assert "- problems: node node-1: namespace-1/pod-1 lacks resource-1.\n" in text
    document = json.loads(text.partition("```json\n")[2].removesuffix("```\n"))
    assert document["doctor"] == {"namespace-1/pod-1": "(node-1, node-2)"}
    assert document["sets"] == ["mig-a100-80gb"]


def test_resources_keep_their_names_where_an_object_has_a_part_of_them() -> None:
    names = Names()
    for noun, name in (("namespace", "gpu"), ("node", "a.nvidia.com")):
        names.word(noun, name)
    assert names.replace(["nvidia.com/gpu is assumed", "gpu/a.nvidia.com", "node a.nvidia.com/gpu"]) == [
        "nvidia.com/gpu is assumed",
        "namespace-1/node-1",
        "node node-1/namespace-1",
    ]


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ('Warning: a (secret)\nError from server (Forbidden): error when creating "STDIN": no (secret)', "Forbidden"),
        (
            'Error from server: error when creating "STDIN": admission webhook "x" denied the request: (secret)',
            "Unknown",
        ),
        ("The pods \"x\" is invalid: : ValidatingAdmissionPolicy 'secret' denied request: no (secret)", "Invalid"),
    ],
)
def test_a_refusal_is_reported_by_its_reason_only(errors: str, reason: str) -> None:
    assert refusal_reason(errors) == reason


def try_cluster(report: Path, **variables: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-P", "-m", "tools.try_cluster", str(report)]
    return subprocess.Popen(line, env=environment(**variables), stdout=subprocess.PIPE, text=True)


def test_without_a_cluster_there_is_no_report(tmp_path: Path) -> None:
    process = try_cluster(tmp_path / "report.md", KUBECONFIG=str(tmp_path / "absent"))
    printed, _ = process.communicate()
    assert (process.returncode, "try-cluster: failed, without a report: " in printed) == (2, True)
    assert "absent" in printed
    assert not (tmp_path / "report.md").exists()


@pytest.fixture
def kube() -> Iterator[Kube]:
    with kubernetes(alone=True) as made:
        yield made


def namespaces() -> set[str]:
    found = json.loads(kubectl("get", "namespaces", "--output=json").stdout)["items"]
    return {item["metadata"]["name"] for item in found if item["metadata"]["name"].startswith("gpu-rules-try-")}


@REAL[0]
@REAL[1]
def test_the_report_of_a_real_cluster_has_decisions_and_no_names(kube: Kube, tmp_path: Path) -> None:
    before = namespaces()
    node = kube.node("secret", gpu="4", mig="2")
    product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.machine": "secret-machine"}
    kube.core.patch_node(node, {"metadata": {"labels": product}})
    eventually(lambda: kube.core.read_node(node).spec.taints is None)
    process = try_cluster(tmp_path / "report.md", KUBECONFIG=os.environ["KUBECONFIG"])
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert namespaces() == before
    text = (tmp_path / "report.md").read_text()
    assert [name for name in (kube.name, "secret", LABEL, "try-cluster", "app:1") if name in text] == []
    report = json.loads(text.partition("```json\n")[2].removesuffix("```\n"))
    assert report["sets"] == ["mig-a100-80gb"]
    assert {pod["apiServer"] for pod in report["pods"]} == {"accepted"}
    assert {pod["kind"] for pod in report["pods"]} == {"Pod", "Job", "Deployment", "StatefulSet"}
    assert all([d["endpoint"] for d in pod["decisions"]] == ["mutate", "validate"] for pod in report["pods"])
    assert report["doctor"]["counts"]["error"] == 0


@REAL[0]
@REAL[1]
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_removes_the_namespace(kube: Kube, tmp_path: Path, number: int) -> None:
    before = namespaces()
    kube.node("one", gpu="4", mig="2")
    with try_cluster(tmp_path / "report.md", KUBECONFIG=os.environ["KUBECONFIG"]) as process:
        assert process.stdout is not None
        assert any("as a dry run" in line for line in process.stdout)
        process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode == 2
    assert f"without a report: {signal.Signals(number).name}" in rest
    assert namespaces() == before
    assert not (tmp_path / "report.md").exists()
