"""The bench of the live cluster runs, small."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_bench_runs_and_prints_every_number() -> None:
    line = [sys.executable, "-m", "bench.cluster", "--nodes", "20", "--pods", "40", "--events", "60", "--samples", "20"]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    heads = ["20 nodes", "time to synced", "RSS settled", "RSS peak", "first decision", "decisions", "Allocatable"]
    heads += ["Available, Ready, Schedulable", "Available, MatchesPod", "… while events come", "events absorbed"]
    assert [text.startswith(head) for text, head in zip(done.stdout.splitlines(), heads, strict=True)] == [True] * len(
        heads
    )
