"""The step of action.yml that installs gpu-rules. It needs the package registry, as for users."""

import subprocess
from pathlib import Path

from tests.docs.test_action import run
from tests.slow.authoring.test_pre_commit import tree_as_it_is


def test_the_action_installs_its_own_commit(tmp_path: Path) -> None:
    for folder in ("action", "work"):
        (tmp_path / folder).mkdir()
    tree_as_it_is(tmp_path / "action")

    done = run(tmp_path, "Install gpu-rules", {}, ACTION=str(tmp_path / "action"))

    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "path").read_text().splitlines()
    version = subprocess.run(
        [f"{folder}/gpu-rules", "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith("gpu-rules, version ")
