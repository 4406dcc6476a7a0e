"""Benchmark of the live cluster, in a small run."""

from tests.support.benches import run_bench


def test_the_bench_runs_and_prints_every_number() -> None:
    lines = run_bench("bench.cluster", "--nodes", "20", "--pods", "40", "--events", "60", "--samples", "20")
    heads = ["20 nodes", "time to synced", "RSS settled", "RSS peak", "first decision", "decisions", "Allocatable"]
    heads += ["Available, Ready, Schedulable", "Available, MatchesPod", "… while events arrive", "events processed"]
    assert [text.startswith(head) for text, head in zip(lines, heads, strict=True)] == [True] * len(heads)
