"""The command as a plugin of kubectl."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rules_engine.server.__main__ import program_name
from tests.support.server import PATIENCE_SECONDS, environment
from tools.documents import REPOSITORY
from tools.helm import HelmNotFoundError, find_kubectl


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/local/bin/kubectl-gpu_rules", "kubectl gpu-rules"),
        ("/usr/local/bin/gpu-rules", "gpu-rules"),
        ("/src/server/__main__.py", "gpu-rules"),
    ],
)
def test_the_command_has_the_name_that_the_user_typed(path: str, name: str) -> None:
    assert program_name(path) == name


def test_both_names_run_the_same_command() -> None:
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]

    assert scripts["kubectl-gpu_rules"] == scripts["gpu-rules"]


@pytest.fixture
def kubectl() -> Path:
    try:
        return find_kubectl()
    except HelmNotFoundError as error:
        pytest.skip(str(error))


def test_kubectl_runs_the_plugin(kubectl: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "kubectl-gpu_rules"
    plugin.write_text(f"#!{sys.executable}\nfrom rules_engine.server.__main__ import main\nmain()\n")
    plugin.chmod(0o755)
    rule = tmp_path / "rule.yaml"
    rule.write_text("apiVersion: gpurules.io/v1\nkind: FallbackLadder\n")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [kubectl, "gpu-rules", *arguments],
            cwd=tmp_path,
            env={**environment(), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    checked = run("check", "rule.yaml")
    assert checked.returncode == 1
    assert checked.stdout.endswith("1 file checked, 2 errors\n")
    assert run("check", "--help").stdout.startswith("Usage: kubectl gpu-rules check ")
    wrong = run("test", "--output", "junit=absent/file", "rule.yaml")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "gpu-rules test: Could not open file 'absent/file': No such file or directory\n",
    )
