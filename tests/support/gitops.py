"""The objects that each GitOps tool makes of examples/gitops, as the tool renders them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import render
from tests.support.chart import Object
from tests.support.server import ROOT
from tools.helm import HelmNotFoundError, find_kubectl, run_helm

EXAMPLES = ROOT / "examples" / "gitops"
RELEASE = NAMESPACE = "gpu-rules"


def document(file: str, kind: str) -> Any:
    """Return the only document of a kind in a file of the examples."""
    (found,) = (item for item in yaml.safe_load_all((EXAMPLES / file).read_text()) if item["kind"] == kind)
    return found


def render_chart(*values: Path) -> str:
    """Render the chart with files of values, as all these tools do."""
    files = [f"--values={path}" for path in values]
    try:
        return run_helm("template", RELEASE, render.CHART, "--namespace", NAMESPACE, "--skip-tests", *files).stdout
    except HelmNotFoundError as error:
        pytest.skip(str(error))


def objects(text: str) -> list[Object]:
    return [item for item in yaml.safe_load_all(text) if item]


def kustomized(folder: Path) -> list[Object]:
    """Return the objects that kustomize builds from a folder."""
    try:
        kubectl = find_kubectl()
    except HelmNotFoundError as error:
        pytest.skip(str(error))
    built = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return objects(built.stdout)


def argocd_objects() -> list[Object]:
    """Return the objects of the Application: `$config` is the root of the repository with the values."""
    application = document("argocd.yaml", "Application")["spec"]
    chart, config = application["sources"]
    assert (ROOT / chart["path"], chart["helm"]["releaseName"]) == (render.CHART, RELEASE)
    assert application["destination"]["namespace"] == NAMESPACE
    prefix = f"${config['ref']}/"
    return objects(render_chart(*(ROOT / name.removeprefix(prefix) for name in chart["helm"]["valueFiles"])))


def flux_objects(folder: Path) -> list[Object]:
    """Return the objects of the HelmRelease, with the values that it takes from the ConfigMap of the Kustomization."""
    built = {(item["kind"], item["metadata"]["name"]): item for item in kustomized(EXAMPLES)}
    release = built["HelmRelease", RELEASE]
    assert release["metadata"]["namespace"] == NAMESPACE
    assert ROOT / release["spec"]["chart"]["spec"]["chart"] == render.CHART
    paths = []
    for source in release["spec"]["valuesFrom"]:
        text = built[source["kind"], source["name"]]["data"][source["valuesKey"]]
        paths.append(folder / source["valuesKey"])
        paths[-1].write_text(text)
    return objects(render_chart(*paths))


def kustomize_objects(folder: Path) -> list[Object]:
    """Return the objects of the overlay on the rendered chart."""
    shutil.copytree(EXAMPLES / "kustomize", folder / "kustomize")
    text = render_chart(EXAMPLES / "values.yaml", EXAMPLES / "rules-values.yaml")
    (folder / "kustomize" / "gpu-rules.yaml").write_text(text)
    return kustomized(folder / "kustomize")
