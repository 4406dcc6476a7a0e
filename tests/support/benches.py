"""Small runs of the benchmarks."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_bench(*arguments: str, codes: tuple[int, ...] = (0,)) -> list[str]:
    """Run a benchmark and return its lines. `codes`: accepted exit codes."""
    line = [sys.executable, "-m", *arguments]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout.splitlines()
