"""Benchmarks of the listener, of expensive and hostile pods, of diff and of the command line, in small runs."""

from tests.support.benches import run_bench


def test_the_bench_of_the_listener_prints_figures_with_bounds() -> None:
    lines = run_bench("bench.listener", "files")
    heads = ["files: time for a caller during 16 connections", "files: time for a caller after them"]
    assert [text.startswith(head) for text, head in zip(lines, heads, strict=True)] == [True] * len(heads)
    assert [text.partition("(at most ")[2] for text in lines] == ["12 s)", "1 s)"]


def test_the_bench_of_hostile_pods_prints_figures_with_bounds() -> None:
    # A busy machine may exceed bounds of milliseconds.
    lines = run_bench("bench.hostile", "--nodes", "20", "--only", "100 owner", codes=(0, 1))
    heads = ["answered 200", "answer", "p99 of small pods", "longest pause", "small pods not", "peak RSS", "RSS kept"]
    expected = [f"100 owner references, {path}: {head}" for path in ("mutate", "validate") for head in heads]
    expected.append("longest line of the decision log")
    figures = [text for text in lines if text[0] != " "]
    assert [text.startswith(head) for text, head in zip(figures, expected, strict=True)] == [True] * len(expected)


def test_the_bench_of_expensive_pods_runs() -> None:
    _, decided, reserved = run_bench("bench.pods", "--nodes", "20", "--only", "98,000 tolerations")
    assert (decided.split()[-1], reserved.split()[-2:]) == ("evaluation-error", ["0", "promised"])


def test_the_bench_of_diff_prints_figures_with_bounds() -> None:
    figures = run_bench("bench.diff", "--nodes", "12", "--pods", "30")
    heads = [f"30 {what}" for what in ("live pods, Allocatable", "live pods, Available", "recorded admissions")]
    assert [text.startswith(head) for text, head in zip(figures[::2], heads, strict=True)] == [True] * 3
    assert all("(at most " in text for text in figures)


def test_the_bench_of_the_command_line_prints_figures_with_bounds() -> None:
    help_text, files, nodes = run_bench("bench.check", "--runs", "1", "--files", "50", "--nodes", "20")
    assert help_text.startswith("gpu-rules --help ")
    assert "(at most 0.2 s)" in help_text
    assert files.startswith("gpu-rules check of 50 files ")
    assert "(at most 0.5 s)" in files
    assert nodes.startswith("gpu-rules check of 20 nodes ")
    assert "(at most 2.5 s)" in nodes


def test_the_bench_of_doctor_prints_figures_with_bounds() -> None:
    _, doctor, check, seconds, memory = run_bench("bench.doctor", "--nodes", "20", "--pods", "200", "--runs", "1")
    assert (doctor.split()[0], check.split()[0]) == ("doctor", "check")
    assert all("  (at most " in text for text in (doctor, check, seconds, memory))
