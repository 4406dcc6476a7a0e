"""`native` and `webhook-config --native`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rules_engine.server.commands import main
from tests.support.apiserver import api_server, kubeconfig, node
from tests.support.authoring import ladder

LADDER = "---\n".join(
    [ladder("a", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu"), ladder("b", "a.b/c", "a.b/d", offered="Available")]
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(LADDER)
    return path


def test_objects_are_printed_as_yaml_or_as_a_list_and_staying_rules_on_standard_error(rules: Path) -> None:
    text, listed = run("native", "--rules", rules), run("native", "--rules", rules, "--output", "json")

    documents: list[Any] = [*yaml.safe_load_all(text.stdout)]
    assert json.loads(listed.stdout)["items"] == documents
    assert [each["kind"] for each in documents] == [
        "CustomResourceDefinition", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    ]  # fmt: skip
    reason = "offered: Available: free devices change with every pod"
    assert text.stderr == f"{rules}:16:3: FallbackLadder/b stays with the webhook: {reason}\n"
    assert (text.exit_code, listed.exit_code) == (0, 0)


def test_offers_of_a_cluster_are_printed(rules: Path, tmp_path: Path) -> None:
    printed = run("native", "--rules", rules, "--cluster", "rules_engine/inventories/two-workers.yaml", "--name", "x")

    *_, offers = yaml.safe_load_all(printed.stdout)
    assert (offers["kind"], offers["metadata"]["name"]) == ("GPUOffers", "x")
    assert offers["spec"]["ladders"] == {"a": [{"nvidia.com/gpu": 4}]}
    served = run("native", "--rules", rules, "--cluster", "rules_engine/inventories/dra-h100.yaml")
    assert "warning: FallbackLadder/a has no offers: drivers serve nvidia.com/mig-1g.10gb\n" in served.stderr
    without = tmp_path / "validation.yaml"
    without.write_text("""{apiVersion: gpurules.io/v1, kind: Validation, metadata: {name: v},
        spec: {validations: [{expression: "true"}]}}""")
    policies = run("native", "--rules", without, "--cluster", "rules_engine/inventories/two-workers.yaml")
    assert "GPUOffers" not in policies.stdout


def test_rules_with_errors_export_nothing(rules: Path, tmp_path: Path) -> None:
    rules.write_text(f"{LADDER}---\n{LADDER.replace('rungs', 'rung')}")
    broken = run("native", "--rules", rules)
    assert (broken.exit_code, broken.stdout) == (2, "")

    rules.write_text(LADDER)
    (tmp_path / "cluster.yaml").write_text("a: b\n")
    unknown = run("native", "--rules", rules, "--cluster", tmp_path / "cluster.yaml")
    assert (unknown.exit_code, unknown.stdout) == (2, "")


@pytest.mark.parametrize(("minor", "warned"), [("35", True), ("36+", False), ("?", False)])
def test_a_cluster_before_1_36_is_named(rules: Path, tmp_path: Path, minor: str, warned: bool) -> None:
    with api_server() as server:
        server.put("nodes", node("n", {"nvidia.com/gpu": 2}))
        server.single["/version"] = {"major": "1", "minor": minor}
        config = kubeconfig(tmp_path, server.url)
        printed = run(
            "native", "--rules", rules, "--cluster", "kubeconfig", "--kubeconfig", config, "--context", "here"
        )

    assert printed.exit_code == 0, printed.stderr
    assert ("warning: the cluster has Kubernetes 1.35, and these policies need 1.36" in printed.stderr) is warned


def test_webhooks_leave_out_exported_rules(rules: Path) -> None:
    mutating, _ = yaml.safe_load_all(run("webhook-config", "--rules", rules, "--native").stdout)

    (condition,) = mutating["webhooks"][0]["matchConditions"]
    assert "a.b/c" in condition["expression"]
    assert "nvidia.com" not in condition["expression"]
    assert mutating["metadata"]["annotations"]["gpurules.io/native"] == "true"
    assert mutating["webhooks"][0]["clientConfig"]["service"]["path"] == "/mutate/native"
    values = yaml.safe_load(run("webhook-config", "--rules", rules, "--native", "--output", "helm-values").stdout)
    webhook = values.pop("webhook")
    assert webhook.pop("native") is True
    assert webhook["mutating"]["matchConditions"] == [condition]
    assert webhook["validating"]["operations"] == ["CREATE"]  # reserves devices for the rule that stays
    whole = yaml.safe_load(run("webhook-config", "--rules", rules, "--output", "helm-values").stdout)
    assert whole.pop("webhook").keys() == webhook.keys()
    assert values == whole
