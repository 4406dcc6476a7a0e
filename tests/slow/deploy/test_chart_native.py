"""The chart's `webhook.native`: paths and match conditions of the webhooks, the option of the server, and rights."""

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from rules_engine.exports.configuration import DIGEST_ANNOTATION, NATIVE_ANNOTATION
from rules_engine.server.commands import main
from tests.support.authoring import ladder
from tests.support.chart import NAME, one, rejection, rendered

CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Values of rules of which one is exported and one stays."""
    rules = tmp_path_factory.mktemp("rules") / "rules.yaml"
    stays = ladder("stays", "a.b/c", "a.b/d", offered="Available")
    rules.write_text(f"{ladder('exported', 'nvidia.com/mig-1g.10gb', 'nvidia.com/gpu')}---\n{stays}")
    made = CliRunner().invoke(main, ["webhook-config", "--native", "--rules", str(rules), "-o", "helm-values"])
    read: dict[str, Any] = yaml.safe_load(made.stdout)
    return read


def test_webhooks_get_the_rules_that_stay_at_their_own_paths(values: dict[str, Any]) -> None:
    objects = rendered(values)
    paths = []
    for kind, endpoint in zip(CONFIGURATIONS, ("mutating", "validating"), strict=True):
        made = one(objects, kind)
        (webhook,) = made["webhooks"]
        paths.append(webhook["clientConfig"]["service"]["path"])
        assert webhook["matchConditions"] == values["webhook"][endpoint]["matchConditions"]
        assert "nvidia.com" not in str(webhook["matchConditions"])
        annotations = made["metadata"]["annotations"]
        assert annotations == {NATIVE_ANNOTATION: "true", DIGEST_ANNOTATION: values["webhook"][endpoint]["digest"]}
    assert paths == ["/mutate/native", "/validate/native"]


def test_the_server_keeps_the_offers_of_its_name_current(values: dict[str, Any]) -> None:
    def arguments(given: dict[str, Any]) -> list[str]:
        spec = one(rendered(given), "Deployment")["spec"]["template"]["spec"]
        return [each for each in spec["containers"][0]["args"] if each.startswith("--offers")]

    assert arguments(values) == [f"--offers={NAME}"]
    assert arguments({}) == []
    offers = {"apiGroups": ["gpurules.io"], "resources": ["gpuoffers"], "resourceNames": [NAME]}
    assert one(rendered(values), "ClusterRole", f"{NAME}-offers")["rules"] == [{**offers, "verbs": ["create", "patch"]}]


def test_the_server_may_read_the_policies_that_it_compares(values: dict[str, Any]) -> None:
    def readable(**webhook: Any) -> set[str]:
        given = {**values, "tls": {"mode": "certManager"}, "webhook": {**values["webhook"], **webhook}}
        roles = [each for each in rendered(given) if each["kind"] == "ClusterRole"]
        rules = [rule for each in roles for rule in each["rules"] if rule["verbs"] == ["get"]]
        return {name for rule in rules for name in rule["resources"] if "polic" in name}

    assert readable() == {
        f"{kind}admissionpolic{end}" for kind in ("mutating", "validating") for end in ("ies", "ybindings")
    }
    assert readable(native=False) == readable(compare=False) == set()


def test_native_without_rules_is_refused() -> None:
    message = "webhook.native requires the values that gpu-rules webhook-config --native"
    assert message in rejection({"webhook": {"native": True}})


def test_a_cluster_without_the_policies_is_refused(values: dict[str, Any]) -> None:
    assert "webhook.native requires Kubernetes 1.36, not v1.35" in rejection(values, "--kube-version=1.35")
