"""The hooks in .pre-commit-hooks.yaml, run by the real pre-commit on commits to a repository of rules.

pre-commit clones this project and installs it into an environment of its own, as it does for users: this needs the
package registry, and takes some ten seconds.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rules_engine.authoring.check.problem_reference import PROJECT_URL
from tests.support.authoring import cli, write
from tests.support.hooked_rules import LADDER, RULE_SET, TEST
from tools.documents import blocks

ROOT = Path(__file__).parents[3]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def tree_as_it_is(target: Path) -> str:
    """Create a repository of the working tree, with uncommitted changes; return its commit."""
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(None, listed):
        source, copy = ROOT / name, target / name
        if source.exists() or source.is_symlink():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    git(target, "init", "--quiet")
    git(target, "add", "--all")
    git(target, "commit", "--quiet", "--message", "The tree as it is")
    return git(target, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The documented configuration of pre-commit with the hooks of this project, as a remote repository."""
    project = tmp_path_factory.mktemp("project")
    page = (ROOT / "docs/how-to/ci.md").read_text()
    (text,) = [block.text for block in blocks(page) if block.title.endswith(" of a remote repository")]
    return text.replace(PROJECT_URL, str(project)).replace("COMMIT", tree_as_it_is(project))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of pre-commit's environments, into which it installs this project once."""
    return tmp_path_factory.mktemp("pre-commit")


@pytest.fixture
def repository(tmp_path: Path, hooks: str) -> Path:
    """A user's repository with two rule sets, committed."""
    files = {f"clusters/{name}/gpu-rules/{file}": text for name in "ab" for file, text in RULE_SET.items()}
    write(tmp_path, {".pre-commit-config.yaml": hooks, "other/values.yaml": "{{ no.yaml }}\n", **files})
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "Rules", "--no-verify")
    return tmp_path


def commit(repository: Path, home: Path, files: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Change files and commit them, through the hook that `pre-commit install` sets up."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON", "COV"))}
    environment = {**outside, "PRE_COMMIT_HOME": str(home), "PRE_COMMIT_COLOR": "never", "LC_ALL": "C.UTF-8"}
    write(repository, files)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    for command in (
        [sys.executable, "-m", "pre_commit", "install"],
        ["git", "add", "--all"],
        ["git", *identity, "commit", "--message", "Change rules"],
    ):
        done = subprocess.run(
            command,
            cwd=repository,
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    return done


def results(output: str) -> list[str]:
    """Return the result of each hook."""
    return re.findall(r"^gpu-rules (?:check|test)\.+(?:\(.*\))?(\w+)$", output, re.MULTILINE)


def test_a_good_commit_passes(repository: Path, home: Path) -> None:
    files = {f"clusters/{name}/gpu-rules/ladder.yaml": f"{LADDER}  priority: 7\n" for name in "ab"}
    result = commit(repository, home, files)
    assert results(result.stdout) == ["Passed", "Passed"], result.stdout
    assert result.returncode == 0


def test_the_files_of_init_pass(repository: Path, home: Path, hooks: str) -> None:
    assert cli("init", repository).exit_code == 0
    result = commit(repository, home, {".pre-commit-config.yaml": hooks})
    assert results(result.stdout) == ["Passed", "Passed"], result.stdout
    assert result.returncode == 0


def test_a_bad_rule_is_refused_with_its_location(repository: Path, home: Path) -> None:
    result = commit(repository, home, {"clusters/b/gpu-rules/ladder.yaml": LADDER.replace("rungs", "rugns")})
    assert result.returncode == 1
    assert results(result.stdout)[0] == "Failed", result.stdout
    assert (
        "clusters/b/gpu-rules/ladder.yaml:5:3: error: FallbackLadder spec has no field 'rugns' "
        "(did you mean 'rungs'?)" in result.stdout
    )


def test_a_changed_rule_runs_its_unchanged_tests(repository: Path, home: Path) -> None:
    result = commit(repository, home, {"clusters/a/gpu-rules/ladder.yaml": f"{LADDER}  mode: Audit\n"})
    assert result.returncode == 1
    assert results(result.stdout) == ["Passed", "Failed"], result.stdout
    assert "FAIL  mig: falls to the whole card  clusters/a/gpu-rules/ladder.test.yaml:7:13" in result.stdout


def test_a_changed_test_finds_its_unchanged_rules(repository: Path, home: Path) -> None:
    result = commit(repository, home, {"clusters/a/gpu-rules/ladder.test.yaml": TEST.replace("/gpu: 1", "/gpu: 2")})
    assert result.returncode == 1
    assert results(result.stdout) == ["Passed", "Failed"], result.stdout
    assert "- expected 2\n        + actual   1\n" in result.stdout


def test_a_new_rule_is_checked_against_the_unchanged_ones(repository: Path, home: Path) -> None:
    result = commit(repository, home, {"clusters/a/gpu-rules/more/again.yaml": LADDER})
    assert result.returncode == 1
    assert "FallbackLadder 'mig' is already defined in clusters/a/gpu-rules/ladder.yaml:3:18" in result.stdout


def test_other_files_are_ignored(repository: Path, home: Path) -> None:
    result = commit(repository, home, {"other/values.yaml": "{{ still.no.yaml }}\n"})
    assert result.returncode == 0
    assert results(result.stdout) == ["Skipped", "Skipped"], result.stdout
