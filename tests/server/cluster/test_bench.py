"""Benchmarks of the live cluster, the listener, expensive and hostile pods, in small runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run_bench(*arguments: str, codes: tuple[int, ...] = (0,)) -> list[str]:
    """Run a benchmark and return its lines. `codes`: accepted exit codes."""
    line = [sys.executable, "-m", *arguments]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.no_cover
def test_the_bench_runs_and_prints_every_number() -> None:
    lines = run_bench("bench.cluster", "--nodes", "20", "--pods", "40", "--events", "60", "--samples", "20")
    heads = ["20 nodes", "time to synced", "RSS settled", "RSS peak", "first decision", "decisions", "Allocatable"]
    heads += ["Available, Ready, Schedulable", "Available, MatchesPod", "… while events arrive", "events processed"]
    assert [text.startswith(head) for text, head in zip(lines, heads, strict=True)] == [True] * len(heads)


@pytest.mark.no_cover
def test_the_bench_of_the_listener_prints_figures_with_bounds() -> None:
    lines = run_bench("bench.listener", "files")
    heads = ["files: time for a caller during 400 connections", "files: time for a caller after them"]
    assert [text.startswith(head) for text, head in zip(lines, heads, strict=True)] == [True] * len(heads)
    assert all("(at most 1 s)" in text for text in lines)


@pytest.mark.no_cover
def test_the_bench_of_hostile_pods_prints_figures_with_bounds() -> None:
    # A busy machine may exceed bounds of milliseconds.
    lines = run_bench("bench.hostile", "--nodes", "20", "--only", "100 owner", codes=(0, 1))
    heads = ["answered 200", "answer", "p99 of small pods", "small pods not", "peak RSS", "RSS kept"]
    expected = [f"100 owner references, {path}: {head}" for path in ("mutate", "validate") for head in heads]
    expected.append("longest line of the decision log")
    figures = [text for text in lines if text[0] != " "]
    assert [text.startswith(head) for text, head in zip(figures, expected, strict=True)] == [True] * len(expected)


@pytest.mark.no_cover
def test_the_bench_of_expensive_pods_runs() -> None:
    _, decided, reserved = run_bench("bench.pods", "--nodes", "20", "--only", "98,000 tolerations")
    assert (decided.split()[-1], reserved.split()[-2:]) == ("evaluation-error", ["0", "promised"])
