"""Servers that fail to start."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.server import PATIENCE_SECONDS, command, environment


def failed_start(*arguments: str | Path, code: int = 1, prefix: Sequence[str] = (), **variables: str) -> str:
    """Return the output of a `gpu-rules serve` that fails to start."""
    done = subprocess.run(
        [*prefix, *command("serve", *arguments)],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr
