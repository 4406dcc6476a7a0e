"""Completion in bash, zsh and fish, by the commands in docs/how-to/install.md."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.documents import REPOSITORY, blocks

SHELLS = ("bash", "zsh", "fish")

PATIENCE_SECONDS = 300
"""Time without output after which a shell is taken to hang."""

COMPLETED = [
    ("gpu-rules ev", "eval"),
    ("gpu-rules check --output sa", "sarif"),
    ("gpu-rules check --explain cel-undec", "cel-undeclared"),
    ("gpu-rules schema fallb", "FallbackLadder"),
    ("gpu-rules eval object --rul", "--rule"),
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with a folder in PATH that has the command of this checkout."""
    command = tmp_path / "bin" / "gpu-rules"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rules_engine.server "$@"\n')
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("_GPU_RULES")}
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path), "TERM": "dumb"}


def start_up(shell: str) -> str:
    """Return the line of docs/how-to/install.md that a shell runs when it starts."""
    text = (REPOSITORY / "docs/how-to/install.md").read_text()
    (lines,) = [block.text for block in blocks(text) if "_GPU_RULES_COMPLETE" in block.text]
    (line,) = [line for line in lines.splitlines() if f"={shell}_source" in line]
    return line


def present(shell: str) -> None:
    """Skip the test if the shell is not installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


@pytest.mark.parametrize("shell", ["zsh", "fish"])  # these may be missing
@pytest.mark.parametrize(("line", "word"), COMPLETED)
def test_the_command_answers_each_shell(shell: str, line: str, word: str, environment: dict[str, str]) -> None:
    words = line.split()
    current = str(len(words) - 1) if shell == "zsh" else words[-1]
    variables = {"_GPU_RULES_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": current}
    answer = subprocess.run(
        ["gpu-rules"], env={**environment, **variables}, capture_output=True, text=True, check=True
    ).stdout
    assert word in re.split(r"[,\s]+", answer)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_completes_gpu_rules(shell: str, environment: dict[str, str]) -> None:
    registrations = {
        "bash": "-F _gpu_rules_completion gpu-rules\n",
        "zsh": "compdef _gpu_rules_completion gpu-rules\n",
        "fish": "--command gpu-rules ",
    }
    variables = {"_GPU_RULES_COMPLETE": f"{shell}_source"}
    script = subprocess.run(
        ["gpu-rules"], env={**environment, **variables}, capture_output=True, text=True, check=True
    ).stdout
    assert registrations[shell] in script


@pytest.mark.parametrize(("line", "word"), COMPLETED)
def test_bash_completes(line: str, word: str, environment: dict[str, str]) -> None:
    present("bash")
    program = (
        f"{start_up('bash')}\nCOMP_WORDS=({line}) COMP_CWORD={len(line.split()) - 1}\n"
        f'_gpu_rules_completion gpu-rules\necho "${{COMPREPLY[@]}}"'
    )
    result = subprocess.run(["bash", "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert word in result.stdout.split()


@pytest.mark.parametrize(("line", "word"), COMPLETED)
def test_fish_completes(line: str, word: str, environment: dict[str, str]) -> None:
    present("fish")
    program = f"{start_up('fish')}\ncomplete -C '{line}'"
    result = subprocess.run(["fish", "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert word in result.stdout.split()


@pytest.mark.parametrize(("line", "word"), COMPLETED)
def test_zsh_completes(line: str, word: str, environment: dict[str, str]) -> None:
    present("zsh")
    # The echo of the commands does not have the word that their output has.
    setup = f"autoload -Uz compinit && compinit -D\n{start_up('zsh')}\nprint -n re; print ady\n"
    ours, theirs = pty.openpty()
    with subprocess.Popen(["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        os.write(ours, setup.encode())
        _read_until(ours, "ready")
        os.write(ours, f"{line}\t".encode())
        _read_until(ours, word)
        process.kill()
    os.close(ours)


def _read_until(descriptor: int, text: str) -> None:
    """Read from a terminal until a text."""
    written = b""
    while text not in written.decode(errors="replace"):
        ready, _, _ = select.select([descriptor], [], [], PATIENCE_SECONDS)
        assert ready, written
        written += os.read(descriptor, 1)
