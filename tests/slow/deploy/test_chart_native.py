"""The chart's modes `native` and `auto`: rights by name, the guard of the offers, and options of the server."""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy import render
from server.cli import main
from tests.support.chart import NAME, NAMESPACE, helm, one, rejection, rendered, set_options

KINDS = ("ClusterRole", "Role")
VALUES: dict[str, Any] = {"mode": "auto", "native": {"policies": ["warnings", "deny-fail"]}}


def arguments(values: dict[str, Any]) -> list[str]:
    deployment = one(rendered(values), "Deployment")
    listed: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return [each for each in listed if each.startswith("--native")]


def test_the_mode_selects_the_options() -> None:
    installation = f"--native={NAMESPACE}/{NAME}"
    assert arguments({}) == []
    assert arguments(VALUES) == [installation]
    assert arguments({**VALUES, "mode": "native"}) == [installation, "--native-only"]
    assert "mode" in rejection({"mode": "other"})


@pytest.mark.parametrize("mode", ["auto", "native"])
def test_a_mode_without_the_values_of_its_rules_is_refused(mode: str) -> None:
    assert f"mode {mode} requires the values that gpu-rules webhook-config --native" in rejection({"mode": mode})


def test_a_mode_that_its_rules_or_kubernetes_do_not_allow_is_refused() -> None:
    native = {**VALUES["native"], "staying": ["FallbackLadder/a", "FallbackLadder/b"]}
    rendered({**VALUES, "native": native})
    assert "mode native, but FallbackLadder/a, FallbackLadder/b cannot be exported" in rejection(
        {"mode": "native", "native": native}
    )
    older = rejection(VALUES, "--kube-version=1.35.9-gke.1")
    assert "mode auto requires Kubernetes 1.36, not v1.35.9-gke.1" in older
    assert "unless it has --kube-version" in older
    assert "not v1.35" in rejection(VALUES, "--kube-version=1.35")
    assert rendered()
    for version in ("1.36.0-rc.1", "1.37"):
        options = set_options(json.dumps(VALUES))
        assert helm("template", NAME, render.CHART, f"--kube-version={version}", *options)[0] == 0


def test_the_server_may_write_its_own_objects_only() -> None:
    objects = rendered(VALUES)
    own = [each for each in objects if each["kind"] in KINDS and each["metadata"]["name"] == f"{NAME}-native"]
    rules = [rule for each in own for rule in each["rules"]]
    writable = {
        resource: rule.get("resourceNames")
        for rule in rules
        if set(rule["verbs"]) - {"get", "list"}
        for resource in rule["resources"]
    }
    slots = [f"{NAME}-a", f"{NAME}-b"]
    checks = [f"{slot}-{name}" for name in VALUES["native"]["policies"] for slot in slots]
    assert writable == {
        "mutatingadmissionpolicies": slots,
        "mutatingadmissionpolicybindings": [NAME],
        "validatingadmissionpolicies": checks,
        "validatingadmissionpolicybindings": checks,
        "customresourcedefinitions": ["gpuoffers.gpurules.io"],
        "gpuoffers": slots,
        "leases": [f"{NAME}-native"],
    }
    assert not [each for each in rendered() if each["metadata"]["name"] == f"{NAME}-native"]


@pytest.mark.parametrize("mode", ["auto", "native"])
def test_nobody_else_writes_offers(mode: str) -> None:
    objects = rendered({**VALUES, "mode": mode})
    (check,) = one(objects, "ValidatingAdmissionPolicy", f"{NAME}-offers")["spec"]["validations"]
    assert check["expression"] == f"request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{NAME}'"
    binding = one(objects, "ValidatingAdmissionPolicyBinding", f"{NAME}-offers")
    assert binding["spec"]["validationActions"] == ["Deny"]


def test_webhooks_have_all_rules_until_policies_are_active() -> None:
    """Without a cluster, the chart does not know that they are."""
    made = CliRunner().invoke(main, ["webhook-config", "--native", "--rules", "set:mig-a100-80gb", "-o", "helm-values"])
    values: dict[str, Any] = yaml.safe_load(made.stdout)
    assert (values["mode"], values["native"]["staying"]) == ("native", [])
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        webhooks = one(rendered(values), kind)["webhooks"]
        assert webhooks == one(rendered({key: values[key] for key in ("rules", "webhook", "rbac")}), kind)["webhooks"]
        assert webhooks
