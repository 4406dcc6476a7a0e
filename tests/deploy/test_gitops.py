"""The examples for Argo CD, Flux and kustomize: each installs the rules in git with their match conditions."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rules_engine.exports.configuration import derive_calls
from rules_engine.exports.drift import find_drift
from rules_engine.rules.sources.rule_files import read_rules
from tests.support.authoring import write
from tests.support.chart import Object, one
from tests.support.gitops import (
    EXAMPLES,
    NAMESPACE,
    argocd_objects,
    document,
    flux_objects,
    kustomize_objects,
    kustomized,
)
from tests.support.server import ROOT

TOOLS: dict[str, Callable[[Path], list[Object]]] = {
    "argocd": lambda _: argocd_objects(),
    "flux": flux_objects,
    "kustomize": kustomize_objects,
}


@pytest.fixture(params=TOOLS)
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> list[Object]:
    """Return the objects that a tool applies."""
    return TOOLS[request.param](tmp_path)


def test_the_derived_values_are_current(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "gitops")
    (tmp_path / "gitops" / "rules-values.yaml").unlink()
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "gpu-rules"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m rules_engine.server "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["sh", tmp_path / "gitops" / "derive.sh"], env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}, check=True
    )

    derived = (tmp_path / "gitops" / "rules-values.yaml").read_text()
    assert derived == (EXAMPLES / "rules-values.yaml").read_text(), "run examples/gitops/derive.sh"


def test_the_rules_in_git_are_installed_and_called(installed: list[Object], tmp_path: Path) -> None:
    rules = read_rules([EXAMPLES / "rules"])
    write(tmp_path / "installed", one(installed, "ConfigMap", "gpu-rules-rules")["data"])

    assert read_rules([tmp_path / "installed"]).loaded.digest == rules.loaded.digest
    for calls in derive_calls(rules.rule_set):
        assert find_drift(calls, "gpu-rules", one(installed, calls.endpoint.kind)) == ()


def test_kustomize_patches_the_rendered_chart(tmp_path: Path) -> None:
    assert one(kustomize_objects(tmp_path), "Deployment")["spec"]["replicas"] == 3


def test_the_namespace_admits_the_pods_by_the_restricted_standard(tmp_path: Path) -> None:
    managed = document("argocd.yaml", "Application")["spec"]["syncPolicy"]["managedNamespaceMetadata"]["labels"]
    for objects in (kustomized(EXAMPLES), kustomize_objects(tmp_path)):
        assert one(objects, "Namespace", NAMESPACE)["metadata"]["labels"] == managed


def test_only_what_the_server_writes_is_ignored(tmp_path: Path) -> None:
    """The server writes caBundle in its webhook configurations, the data of its Secret, and kept rules."""
    written = {
        ("MutatingWebhookConfiguration", "gpu-rules", "caBundle"),
        ("ValidatingWebhookConfiguration", "gpu-rules", "caBundle"),
        ("Secret", "gpu-rules-tls", "data"),
        ("ConfigMap", "gpu-rules-kept-rules", "binaryData"),
    }
    named = {(item["kind"], item["metadata"]["name"]) for item in argocd_objects()}
    ignored = set()
    for each in document("argocd.yaml", "Application")["spec"]["ignoreDifferences"]:
        (path,) = each.get("jqPathExpressions") or each["jsonPointers"]
        ignored.add((each["kind"], each["name"], path.replace("/", ".").rpartition(".")[2]))
    assert ignored == written
    assert {(kind, name) for kind, name, _ in written} <= named
    drift = document("flux.yaml", "HelmRelease")["spec"]["driftDetection"]["ignore"]
    assert {(each["target"]["kind"], path.rpartition("/")[2]) for each in drift for path in each["paths"]} == {
        (kind, member) for kind, _, member in written
    }


def test_the_chart_comes_from_the_projects_repository_at_its_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = yaml.safe_load((ROOT / "deploy/chart/gpu-rules/Chart.yaml").read_text())["version"]
    argocd, flux = (
        document("argocd.yaml", "Application")["spec"]["sources"][0],
        document("flux.yaml", "GitRepository")["spec"],
    )

    assert {argocd["repoURL"], flux["url"]} == {project["urls"]["Repository"]}
    assert {argocd["targetRevision"], flux["ref"]["tag"]} == {f"v{version}"}
