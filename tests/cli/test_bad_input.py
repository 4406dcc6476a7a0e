"""Bad input: every command answers a missing, binary, empty, cut or wrong file with one problem, in the same way."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.authoring import cli, ladder, write
from tools.documents import REPOSITORY

POD = "kind: Pod\nspec: {containers: [{name: main}]}\n"
FILES = {
    "binary": b"\x00\x01\xff\xfe",
    "empty": b"",
    "cut": b'{"kind": "Pod", "spec": {"contai',
    "list": b"[1, 2]\n",
    "text": b"hello\n",
}
COMMANDS = {
    "check": "check FILE",
    "check --cluster": "check ladder.yaml --cluster FILE",
    "explain -f": "explain -f FILE",
    "explain --rules": "explain -f pod.yaml --rules FILE",
    "explain --cluster": "explain -f pod.yaml --cluster FILE",
    "explain --from-log": "explain --from-log FILE --pod ml/train",
    "audit": "audit FILE",
    "list --cluster": "list -n ml ladder.yaml --cluster FILE",
    "eval -f": "eval 1 -f FILE",
    "eval --cluster": "eval 1 -f pod.yaml --cluster FILE",
    "eval --rules": "eval 1 -f pod.yaml --rules FILE --rule FallbackLadder/a",
    "convert": "convert gpuinjector FILE",
    "list": "list FILE",
    "test": "test FILE",
    "webhook-config": "webhook-config --rules FILE",
}
PRINTS = (
    "--help",
    "check ladder.yaml",
    "check ladder.yaml --output json",
    "convert webhook-ladder --resources x.io/a,x.io/b",
    "list -n ml ladder.yaml",
    "list ladder.yaml",
    "sets list",
    "sets show gpu-allocation",
    "eval 1 -f pod.yaml",
    "schema",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write(tmp_path, {"pod.yaml": POD, "ladder.yaml": ladder("a", "x.io/a", "x.io/b")}))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_bad_file_is_one_problem_with_its_name(folder: Path, command: str, content: bytes) -> None:
    (folder / "bad.yaml").write_bytes(content)
    result = cli(*command.replace("FILE", "bad.yaml").split())
    assert result.exit_code == (1 if command.startswith("check ") and "--cluster" not in command else 2)
    lines = (result.stdout + result.stderr).splitlines()
    [problem] = [line for line in lines if "bad.yaml" in line]
    assert re.search(r": error: .+ \[[a-z0-9-]+\]$|^gpu-rules explain: .+: no decision for pod ", problem), lines


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_missing_file_is_a_usage_error(command: str) -> None:
    result = cli(*command.replace("FILE", "missing.yaml").split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(r"'missing.yaml' (does not exist\.|is no file or folder)", result.stderr.splitlines()[-1])


def run(command: str, output: int) -> tuple[int, str]:
    """Run a command of its own process with this standard output; return its exit code and its errors."""
    result = subprocess.run(
        [sys.executable, "-m", "rules_engine.server", *command.split()],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return result.returncode, result.stderr


@pytest.mark.parametrize("command", PRINTS)
def test_a_full_disk_is_reported_in_the_last_line(command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        code, errors = run(command, full.fileno())
    assert (code, errors) == (2, "gpu-rules: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("command", PRINTS)
def test_a_closed_pipe_ends_quietly(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, errors = run(command, writer)
    os.close(writer)
    assert (code, errors) == (1, "")
