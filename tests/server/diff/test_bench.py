"""Benchmark of diff, in a small run: it decides what it has generated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.no_cover
def test_the_bench_of_diff_prints_figures_with_bounds() -> None:
    line = [sys.executable, "-m", "bench.diff", "--nodes", "12", "--pods", "30", "--admissions", "30"]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    heads = [f"30 {what}" for what in ("live pods, Allocatable", "live pods, Available", "recorded admissions")]
    figures = done.stdout.splitlines()
    assert [text.startswith(head) for text, head in zip(figures[::2], heads, strict=True)] == [True] * 3
    assert all("(at most " in text for text in figures)
