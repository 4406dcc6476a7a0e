"""Commands as programs, on terminals and pipes."""

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

from tests.support.authoring import ladder, write
from tests.support.terminals import shown_on

PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rules_engine.cli import COMMANDS, Root; Root('gpu-rules', commands=list(COMMANDS))()"
)
"""A program that runs a command. It handles SIGINT even if a shell started the tests in the background."""


ROOT = Path(__file__).parents[2]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


def broken_rules(folder: Path) -> Path:
    """Write a.yaml, rules with an unknown field, and pod.txt."""
    pod = "kind: Pod\nspec: {containers: [{name: c}]}\n"
    return write(folder, {"a.yaml": ladder("mig", "nvidia.com/gpu").replace("rungs", "rugns"), "pod.txt": pod})


def on_a_terminal(arguments: list[str], columns: int = 40, **more: str) -> str:
    """Return the output of a command on a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (25, columns))
    with subprocess.Popen(arguments, stdout=theirs, stderr=theirs, env=environment(**more)):
        os.close(theirs)
        written = shown_on(ours)
    os.close(ours)
    return written.decode()
