"""Releases: one version, one address of the repository, the notes, and the workflow that publishes."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import render
from deploy.release import release_notes
from rules_engine.authoring.check.problem_reference import PROJECT_URL

WORKFLOW = render.ROOT / ".github" / "workflows" / "release.yaml"
PROJECT: Any = tomllib.loads((render.ROOT / "pyproject.toml").read_text())["project"]


def occurrences(pattern: str) -> set[str]:
    """Return what an extended regular expression matches in the text files of the repository, without tests."""
    command = ["git", "grep", "--no-color", "-IhoE", pattern, "--", ".", ":!tests", ":!deploy/manifests"]
    run = subprocess.run(command, cwd=render.ROOT, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stderr
    return set(run.stdout.split())


def test_chart_and_application_have_the_version_of_the_package() -> None:
    chart = yaml.safe_load((render.CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (PROJECT["version"], PROJECT["version"])


def test_no_document_has_the_version_of_an_image() -> None:
    assert occurrences(r"gpu-rules:[0-9]+\.[0-9.]+") == set()


def test_the_repository_has_one_address() -> None:
    assert occurrences(r"https?://github\.com/[A-Za-z0-9_.-]+/gpu-rules[A-Za-z0-9_-]*") == {PROJECT_URL}
    assert occurrences(r"ghcr\.io/[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+") == set()
    assert PROJECT["urls"]["Repository"] == PROJECT_URL


@pytest.mark.parametrize(
    ("version", "notes"),
    [("0.2.0", "### Added\n\n- b\n"), ("0.1.0", "- a [x]\n"), ("0.3.0", "- c\n"), ("0.2", "- c\n")],
)
def test_notes_are_of_the_version_else_unreleased(version: str, notes: str) -> None:
    text = (
        "# Changes\n\n## [Unreleased]\n\n- c\n\n## [0.2.0] - 2026-02-01\n\n### Added\n\n- b\n\n## [0.1.0]\n\n- a [x]\n"
    )
    assert release_notes(text, version) == notes


def test_notes_of_this_version_exist() -> None:
    assert len(release_notes((render.ROOT / "CHANGELOG.md").read_text(), PROJECT["version"])) > 100


def jobs() -> Any:
    return yaml.safe_load(WORKFLOW.read_text())["jobs"]


def test_the_workflow_runs_pinned_actions_only() -> None:
    uses = re.findall(r"uses: (\S+)(.*)", WORKFLOW.read_text())
    assert uses
    for action, comment in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


def test_the_workflow_builds_by_make_release_without_rights_and_publishes_what_was_built() -> None:
    build, publish = jobs()["build"], jobs()["publish"]

    assert yaml.safe_load(WORKFLOW.read_text())["permissions"] == {}
    assert build["permissions"] == {"contents": "read"}
    assert [step["run"] for step in build["steps"] if "make" in step.get("run", "")] == ["sudo make release"]
    assert publish["needs"] == "build"
    assert "actions/checkout" not in str(publish)


def test_the_workflow_refuses_a_tag_that_is_not_the_version(tmp_path: Path) -> None:
    (script,) = (step["run"] for step in jobs()["build"]["steps"] if step.get("name", "").startswith("The tag"))
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n## [0.2.0] - 2026-02-01\n")

    def code(tag: str) -> int:
        return subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env={"GITHUB_REF_NAME": tag}).returncode

    assert code("v0.2.0") == 0
    assert code("v0.2.1") != 0
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n")
    assert code("v0.2.0") != 0
