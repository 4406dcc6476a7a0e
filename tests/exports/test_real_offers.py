"""Printed policies and `serve --offers` on a real API server, given by KUBECONFIG."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy import render
from rules_engine.server.commands import main
from tests.support.chart import VERSION, helm
from tests.support.real import GPU, MIG, REAL, Kube, eventually, kubectl, kubernetes, together
from tests.support.real_load import decided, gpu_pod, written
from tests.support.server import Running, started

pytestmark = REAL


@pytest.fixture
def kube() -> Iterator[Kube]:
    with kubernetes(alone=True) as made:
        yield made


@contextmanager
def replicas(kube: Kube, folder: Path, kubeconfig: str = "") -> Iterator[list[Running]]:
    """Apply the policies of rules, run two servers, and delete all afterwards."""
    rules = written(folder, 2)
    line = ("native", "--rules", str(rules), "--name", kube.name, "--namespace", "kube-system", "-o", "json")
    policies = json.loads(CliRunner().invoke(main, line).stdout)
    with ExitStack() as stack:
        stack.callback(kubectl, "delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=policies)
        assert kubectl("apply", "-f", "-", stdin=policies).returncode == 0
        kubectl("wait", "--for=condition=Established", "crd/gpuoffers.gpurules.io")
        made = []
        for index in range(2):
            own = folder / str(index)
            own.mkdir()
            serve = ("--rules", rules, "--cluster", "kubeconfig", "--offers", kube.name)
            made.append(stack.enter_context(started(own, *serve, KUBECONFIG=kubeconfig or os.environ["KUBECONFIG"])))
        eventually(lambda: decided(kube, gpu_pod(GPU))[2] == "2", 150)
        yield made


def seconds_until(holds: Callable[[], Any]) -> float:
    begin = time.monotonic()
    eventually(holds)
    return time.monotonic() - begin


def offers(name: str) -> Any:
    got = kubectl("get", "gpuoffers", name, "-o", "jsonpath={.spec}").stdout
    return json.loads(got) if got else {}


def version(name: str) -> str:
    return kubectl("get", "gpuoffers", name, "-o", "jsonpath={.metadata.resourceVersion}").stdout


def test_a_change_of_a_node_reaches_decisions_also_of_one_replica(kube: Kube, tmp_path: Path) -> None:
    node = kube.node("a", gpu="4")
    with replicas(kube, tmp_path) as servers:
        eventually(lambda: decided(kube, gpu_pod())[1] == GPU)
        durations = []
        for index in range(10):
            if index == 5:
                servers[0].process.kill()
            kube.offer(node, mig="0" if index % 2 else "4", gpu="4")
            durations.append(seconds_until(lambda: decided(kube, gpu_pod())[1] == (GPU if index % 2 else MIG)))  # noqa: B023
    print("node to decision:", sorted(round(each, 2) for each in durations))
    assert max(durations) < 2


def test_replicas_change_nothing_of_each_other_and_restore_what_others_change(kube: Kube, tmp_path: Path) -> None:
    kube.node("a", gpu="4")
    with replicas(kube, tmp_path):
        eventually(lambda: offers(kube.name).get("known") is True)
        before = version(kube.name)
        time.sleep(12)  # both restore twice
        assert version(kube.name) == before
        kubectl("delete", "gpuoffers", kube.name)
        eventually(lambda: offers(kube.name).get("known") is True)
        edited = '{"spec": {"known": false, "omitted": {"a": "b"}}}'
        assert kubectl("patch", "gpuoffers", kube.name, "--type=merge", "-p", edited).returncode == 0
        eventually(lambda: offers(kube.name).get("known") is True)
        assert "omitted" not in offers(kube.name)


def test_the_chart_has_the_rights(kube: Kube, tmp_path: Path) -> None:
    kube.node("a", gpu="4")
    values = tmp_path / "values.yaml"
    line = ("webhook-config", "--native", "--rules", str(written(tmp_path, 2)), "-o", "helm-values")
    values.write_text(CliRunner().invoke(main, line).stdout)
    options = ("--namespace", kube.name, "-f", values, "--set", f"fullnameOverride={kube.name}")
    code, output, errors = helm("template", kube.name, render.CHART, VERSION, *options)
    assert code == 0, errors
    rights = {"ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
    objects = [each for each in yaml.safe_load_all(output) if each and each["kind"] in rights]
    try:
        ended = kubectl("create", "-f", "-", stdin=together(objects))
        assert ended.returncode == 0, ended.stderr
        config = kube.service_account(tmp_path, kube.name)
        with replicas(kube, tmp_path, str(config)) as servers:
            eventually(lambda: offers(kube.name).get("known") is True)
            eventually(lambda: decided(kube, gpu_pod())[1] == GPU)
            user = f"system:serviceaccount:{kube.name}:{kube.name}"
            for verb in ("create", "patch", "delete"):
                asked = ("auth", "can-i", verb, "gpuoffers.gpurules.io/other", "--as", user)
                assert kubectl(*asked).stdout.strip() == "no"
            readable = ("auth", "can-i", "get", "mutatingadmissionpolicies.admissionregistration.k8s.io", "--as", user)
            assert kubectl(*readable).stdout.strip() == "yes"
            assert [each.logged().count("cannot be written") for each in servers] == [0, 0]
    finally:
        kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=together(objects))
