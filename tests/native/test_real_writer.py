"""Two replicas with `--native` on a real API server, given by KUBECONFIG."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy import render
from rules_engine.model.kubernetes.native_objects import STAMP_ANNOTATION
from server.cli import main
from tests.support.chart import helm
from tests.support.real import GPU, MIG, REAL, Kube, eventually, kubectl, kubernetes, together
from tests.support.real_load import Load, decided, gpu_pod, written
from tests.support.server import Running, started

pytestmark = REAL


OTHER_OFFERS = '{"spec": {"known": false, "ladders": null}}'
SYSTEM = "kube-system"
"""Namespace of the Lease: no policy applies to its pods."""


@pytest.fixture
def kube() -> Iterator[Kube]:
    with kubernetes(alone=True) as made:
        yield made


@contextmanager
def replicas(
    kube: Kube, folder: Path, *arguments: str, namespace: str = SYSTEM, kubeconfig: str = ""
) -> Iterator[list[Running]]:
    """Run two servers, and delete afterwards what they wrote."""
    with ExitStack() as stack:
        try:
            made = []
            for index in range(2):
                own = folder / str(index)
                own.mkdir()
                line: tuple[str | Path, ...] = (
                    "--rules", folder / "rules.yaml", "--cluster", "kubeconfig", "--native", f"{namespace}/{kube.name}",
                    *arguments,
                )  # fmt: skip
                made.append(stack.enter_context(started(own, *line, KUBECONFIG=kubeconfig or os.environ["KUBECONFIG"])))
            yield made
        finally:
            stack.close()
            selector = f"gpurules.io/slot in ({kube.name}-a,{kube.name}-b)"
            kinds = ",".join(
                f"{kind}admissionpolic{end}" for kind in ("mutating", "validating") for end in ("ybindings", "ies")
            )
            kubectl("delete", kinds, "-l", selector)
            kubectl("delete", "gpuoffers", "-l", selector)
            kubectl("delete", "lease", f"{kube.name}-native", "-n", SYSTEM)


def in_force(kube: Kube, cores: int) -> str:
    """Wait until pods are decided by the rules of an amount; return their stamp."""

    def stamp() -> str:
        name, _, cpu = decided(kube, gpu_pod(GPU))
        return name if cpu == str(cores) else ""

    text: str = eventually(stamp, 150)
    return text


def holder(kube: Kube, namespace: str = SYSTEM) -> str:
    line = ("get", "lease", f"{kube.name}-native", "-n", namespace, "-o", "jsonpath={.spec.holderIdentity}")
    return kubectl(*line).stdout


def named_objects(kube: Kube, kind: str) -> set[str]:
    listed = kubectl("get", kind, "-o", "jsonpath={.items[*].metadata.name}").stdout.split()
    return {name for name in listed if name.startswith(kube.name)}


def seconds_until(holds: Callable[[], Any]) -> float:
    begin = time.monotonic()
    eventually(holds)
    return time.monotonic() - begin


def test_a_change_of_a_node_reaches_decisions(kube: Kube, tmp_path: Path) -> None:
    node = kube.node("a", gpu="4")
    written(tmp_path, 2)
    with replicas(kube, tmp_path):
        in_force(kube, 2)
        assert decided(kube, gpu_pod())[1] == GPU
        durations = []
        for index in range(10):
            kube.offer(node, mig="0" if index % 2 else "4", gpu="4")
            durations.append(seconds_until(lambda: decided(kube, gpu_pod())[1] == (GPU if index % 2 else MIG)))  # noqa: B023
    print("node to decision:", sorted(round(each, 2) for each in durations))
    assert max(durations) < 2


def test_another_replica_takes_over(kube: Kube, tmp_path: Path) -> None:
    node = kube.node("a", gpu="4")
    written(tmp_path, 2)
    with replicas(kube, tmp_path) as servers:
        in_force(kube, 2)
        before = holder(kube)
        (writer,) = (each for each in servers if "this replica writes" in each.logged())
        other = next(each for each in servers if each is not writer)
        assert "this replica writes" not in other.logged()
        writer.process.send_signal(signal.SIGSTOP)
        kube.offer(node, mig="4", gpu="4")
        assert decided(kube, gpu_pod())[1] == GPU  # the last offers stand
        took = seconds_until(lambda: decided(kube, gpu_pod())[1] == MIG)
        print("takeover:", round(took, 1))
        assert took < 20
        assert holder(kube) not in ("", before)
        # The former writer finds the Lease taken when it runs again.
        writer.process.send_signal(signal.SIGCONT)
        kube.offer(node, mig="0", gpu="4")
        eventually(lambda: decided(kube, gpu_pod())[1] == GPU)
        held = holder(kube)
        time.sleep(5)
        assert holder(kube) == held
        # Times in the Lease, as of a clock that jumped, do not matter.
        for year in (1970, 2970):
            renewed = json.dumps({"spec": {"renewTime": f"{year}-01-01T00:00:00.000000Z"}})
            kubectl("patch", "lease", f"{kube.name}-native", "-n", SYSTEM, "--type=merge", "-p", renewed)
            time.sleep(4)
            assert holder(kube) == held
        # A replica that ends gives the Lease back.
        other.stop(signal.SIGTERM)
        assert seconds_until(lambda: holder(kube) == before) < 10


def test_objects_that_others_delete_or_edit_are_restored(kube: Kube, tmp_path: Path) -> None:
    kube.node("a", gpu="4", mig="4")
    written(tmp_path, 2)
    refused = gpu_pod(GPU)
    refused["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    name = f"{kube.name}-a"

    def works() -> bool:
        # Injected cpu is there only with the mutating policy; cpu of the pod's own is refused by a validating one.
        return decided(kube, gpu_pod(GPU))[2] == "2" and "not 2" in decided(kube, refused)[0]

    with replicas(kube, tmp_path):
        in_force(kube, 2)
        eventually(works)
        nothing = json.dumps({"spec": {"matchConstraints": {"objectSelector": {"matchLabels": {"no": "pod"}}}}})
        audit = json.dumps({"spec": {"validationActions": ["Audit"]}})
        for what, line in {
            "mutating policy deleted": ("delete", "mutatingadmissionpolicy", name),
            "validating policy deleted": ("delete", "validatingadmissionpolicy", f"{name}-deny-fail"),
            "binding deleted": ("delete", "mutatingadmissionpolicybinding", kube.name),
            "offers deleted": ("delete", "gpuoffers", name),
            "definition deleted": ("delete", "crd", "gpuoffers.gpurules.io"),
            "mutating policy edited": ("patch", "mutatingadmissionpolicy", name, "--type=merge", "-p", nothing),
            "label removed": ("label", "mutatingadmissionpolicy", name, "gpurules.io/slot-"),
            "binding edited": (
                "patch", "validatingadmissionpolicybinding", f"{name}-deny-fail", "--type=merge", "-p", audit,
            ),
            "switch edited": (
                "patch", "mutatingadmissionpolicybinding", kube.name, "--type=merge", "-p",
                '{"spec": {"policyName": "no-policy"}}',
            ),
            "offers changed": (
                "patch", "gpuoffers", name, "--type=merge", "-p", OTHER_OFFERS,
            ),
        }.items():  # fmt: skip
            # A write may be undone before pods show it: the object tells.
            verb, kind, edited = line[:3]
            member = (
                "get",
                kind,
                edited,
                "-o",
                f"jsonpath={{.metadata.{'uid' if verb == 'delete' else 'resourceVersion'}}}",
            )
            before = kubectl(*member).stdout
            done = kubectl(*line, *(() if verb == "delete" else member[-2:]))
            assert done.returncode == 0, done.stderr
            changed = before if verb == "delete" else done.stdout
            again = seconds_until(lambda: kubectl(*member).stdout not in ("", changed))  # noqa: B023
            restored = again + seconds_until(lambda: works() and offers(name).get("known") is True)
            print(what, "written again after", round(again, 1), "restored after", round(restored, 1))


def offers(name: str) -> Any:
    got = kubectl("get", "gpuoffers", name, "-o", "jsonpath={.spec}").stdout
    return json.loads(got) if got else {}


def test_no_pod_is_decided_by_a_mixture_of_rules(kube: Kube, tmp_path: Path) -> None:
    kube.node("a", gpu="4")
    written(tmp_path, 2)
    with replicas(kube, tmp_path):
        stamps = {in_force(kube, 2): "2"}
        eventually(lambda: named_objects(kube, "validatingadmissionpolicies"))
        with Load(kube, 100) as load:
            for cores in (3, 4):
                written(tmp_path, cores)
                stamps[in_force(kube, cores)] = str(cores)
                # A rule set with errors, and one that the API server refuses, leave all as it is.
                written(tmp_path, cores + 10, "---\n{}")
                time.sleep(3)
                assert decided(kube, gpu_pod(GPU))[2] == str(cores)
        assert set(load.results) == {(stamp, GPU, cores) for stamp, cores in stamps.items()}
        # The former slot is deleted, and a forged stamp of it does not help.
        written(tmp_path, 4)
        eventually(lambda: len(named_objects(kube, "mutatingadmissionpolicies")) == 1)
        forged = gpu_pod(GPU, annotations={STAMP_ANNOTATION: next(iter(stamps))})
        forged["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
        assert "not 4" in decided(kube, forged)[0]


RIGHTS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"}
POLICIES = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def test_the_chart_has_the_rights_and_uninstalling_leaves_nothing(kube: Kube, tmp_path: Path) -> None:
    """Needs a controller manager, which collects garbage."""
    kube.node("a", gpu="4")
    rules = written(tmp_path, 2)
    values = tmp_path / "values.yaml"
    made = CliRunner().invoke(main, ["webhook-config", "--native", "--rules", str(rules), "-o", "helm-values"])
    values.write_text(made.stdout)
    line = ("--namespace", kube.name, "-f", values, "--set", f"fullnameOverride={kube.name}")
    code, output, errors = helm("template", kube.name, render.CHART, "--kube-version=1.36", *line)
    assert code == 0, errors
    objects = [
        each
        for each in yaml.safe_load_all(output)
        if each
        and (each["kind"] in RIGHTS or (each["kind"] in POLICIES and "ca-bundle" not in each["metadata"]["name"]))
    ]
    try:
        ended = kubectl("create", "-f", "-", stdin=together(objects))
        assert ended.returncode == 0, ended.stderr
        config = kube.service_account(tmp_path, kube.name)
        with replicas(kube, tmp_path, "--native-only", namespace=kube.name, kubeconfig=str(config)) as servers:
            eventually(lambda: decided(kube, gpu_pod(GPU), "default")[2] == "2")
            eventually(lambda: named_objects(kube, "validatingadmissionpolicybindings") > {f"{kube.name}-offers"})
            written(tmp_path, 3)
            eventually(lambda: decided(kube, gpu_pod(GPU), "default")[2] == "3")
            # Nobody else writes offers, and the server writes no other policies.
            offered = json.dumps({"spec": {"known": False}})
            edited = kubectl("patch", "gpuoffers", f"{kube.name}-b", "--type=merge", "-p", offered)
            assert "only the server of gpu-rules writes GPUOffers" in edited.stderr
            for verb in ("create", "patch", "delete"):
                for kind in ("mutatingadmissionpolicies", "validatingadmissionpolicybindings"):
                    asked = ("auth", "can-i", verb, f"{kind}.admissionregistration.k8s.io/other")
                    user = f"system:serviceaccount:{kube.name}:{kube.name}"
                    assert kubectl(*asked, "--as", user).stdout.strip() == "no"
            kubectl("delete", "-f", "-", stdin=together(objects))
            gone = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies",
                    "validatingadmissionpolicybindings", "customresourcedefinitions")  # fmt: skip
            eventually(lambda: not any(named_objects(kube, kind) for kind in gone))
            eventually(lambda: kubectl("get", "crd", "gpuoffers.gpurules.io").returncode != 0)
            eventually(lambda: not holder(kube, kube.name))
            assert [each.logged().count("Traceback") for each in servers] == [0, 0]
    finally:
        kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=together(objects))
