"""The trial of a release: its chart, installed and upgraded; the wheel is in tests/slow/deploy/test_wheel.py."""

import os
import re
import shutil
from pathlib import Path

import pytest

from deploy import render
from deploy.try_release import previous_chart, try_chart, try_image, try_release
from tests.support.real import REAL, kubectl
from tools.helm import HelmNotFoundError, run_helm


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the packaged chart, and an archive in place of the image."""
    package(render.CHART, tmp_path / "dist")
    (tmp_path / "dist" / "gpu-rules-0-image.tar").touch()
    return tmp_path / "dist"


def package(chart: Path, folder: Path) -> None:
    try:
        run_helm("package", chart, "--destination", folder)
    except HelmNotFoundError as error:
        pytest.skip(str(error))


needs_history = pytest.mark.skipif(not previous_chart(), reason="the repository has no earlier commit of the chart")


@needs_history
def test_the_chart_is_upgraded_as_templates_without_a_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    linted, upgraded, cluster = try_chart(folder)
    assert re.fullmatch(r"linted gpu-rules-[\d.]+\.tgz, and installed it as a dry run", linted)
    assert re.match(rf"upgraded from {previous_chart()} as templates: \d+ objects stay, ", upgraded)
    assert cluster == "not installed in a cluster: KUBECONFIG is not set"


@needs_history
def test_what_fails_is_named_and_the_rest_is_tried(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chart = Path(shutil.copytree(render.CHART, tmp_path / "chart" / "gpu-rules"))
    template = chart / "templates" / "deployment.yaml"
    template.write_text(re.sub(r"(  selector:\n    matchLabels:) .*", r"\1 {a: b}", template.read_text(), count=1))
    package(chart, folder)
    git = shutil.which("git")
    assert git
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # without podman and docker
    assert try_release(folder) == 2
    printed = capsys.readouterr().out
    assert "wheel: FAILED: " in printed
    assert "image: not run: neither podman nor docker works on this machine\n" in printed
    assert "chart: FAILED: Deployment/gpu-rules: the selector changed, which the API server refuses\n" in printed


def test_an_image_that_no_runtime_can_run_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert [*try_image(folder)] == ["not run: neither podman nor docker works on this machine"]


@needs_history
@REAL[0]
@REAL[1]
def test_the_chart_is_upgraded_in_a_real_cluster_and_leaves_nothing(folder: Path) -> None:
    assert os.environ["KUBECONFIG"]
    *_, upgraded, removed = try_chart(folder)
    assert upgraded == "installed and upgraded in the cluster: revision 2 is deployed"
    name = removed.removeprefix("removed the namespace ")
    kinds = "namespaces,mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings"
    assert name not in kubectl("get", kinds, "--output=name").stdout
