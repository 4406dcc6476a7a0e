"""The hook in .pre-commit-hooks.yaml, run by the real pre-commit on a repository of rules.

pre-commit clones this project and installs it into an environment of its own, as it does for users: this needs the
package registry, and takes some ten seconds.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.authoring import ladder, write

ROOT = Path(__file__).parents[2]
GOOD = ladder("mig", "nvidia.com/mig-2g.20gb", "nvidia.com/gpu")


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
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's repository whose configuration names this project's hook."""
    project = tmp_path_factory.mktemp("project")
    user = tmp_path_factory.mktemp("user")
    revision = tree_as_it_is(project)
    config = f"repos: [{{repo: {project}, rev: {revision}, hooks: [{{id: gpu-rules-check}}]}}]\n"
    write(user, {".pre-commit-config.yaml": config, "other/values.yaml": "kind: of no interest here\n"})
    git(user, "init", "--quiet")
    return user


def run_hook(repository: Path, *rules: str) -> subprocess.CompletedProcess[str]:
    shutil.rmtree(repository / "rules", ignore_errors=True)
    write(repository, {f"rules/{index}.yaml": rule for index, rule in enumerate(rules)})
    git(repository, "add", "--all")
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON", "COV"))}
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"],
        cwd=repository,
        env={**outside, "PRE_COMMIT_HOME": str(repository.parent / "pre-commit")},
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_good_rule_passes_and_other_files_are_ignored(repository: Path) -> None:
    result = run_hook(repository, GOOD)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gpu-rules check" in result.stdout
    assert "Passed" in result.stdout


def test_a_bad_rule_stops_the_commit_with_its_location(repository: Path) -> None:
    result = run_hook(repository, GOOD.replace("rungs", "rugns"))
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Failed" in result.stdout
    assert "rules/0.yaml:5:3: error: FallbackLadder spec has no field 'rugns' (did you mean 'rungs'?)" in result.stdout


def test_one_process_checks_all_files_for_unique_names(repository: Path) -> None:
    result = run_hook(repository, GOOD, GOOD)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "FallbackLadder 'mig' is already defined in rules/0.yaml:3:18" in result.stdout
