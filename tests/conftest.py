"""Settings of all tests."""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings

# `make test` checks few examples of a law, `make test-all` all of them (tests.support.laws.examples, which must not be
# imported here: the command line's profile is loaded later). None has a deadline: its time depends on the load of the
# machine, not on the product. None is random, or else it would fail changes that
# have nothing to do with it; `make fuzz` has random ones.
settings.register_profile("full", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)
settings.load_profile("quick")

SEED = os.environ.get("ORDER", "")
"""Seed that shuffles the files; "" runs those first that take longest."""

# Background jobs of a shell, such as CI, ignore SIGINT, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    "slow/deploy/test_image.py",
    "slow/server/test_bounds.py",
    "slow/rules/test_shipped_lines.py",
    "slow/authoring/test_pre_commit.py",
    "slow/server/test_processes.py",
    "slow/deploy/test_chart.py",
    "slow/authoring/test_terminals.py",
    "slow/bench/test_benches.py",
    "slow/cel/test_operation_costs.py",
    "server/doctor/test_command.py",
    "server/tls/test_renewal.py",
    "models/test_models.py",
    "evaluation/test_decision_cache.py",
    "evaluation/test_laws.py",
    "docs/test_documents.py",
    "server/diff/test_command.py",
    "server/cluster/test_serving.py",
    "server/telemetry/test_observers.py",
    "server/rules/test_reload.py",
    "evaluation/test_index.py",
)
"""Files that take longest for their number of tests. They run first, so that none is left alone at the end."""

UNMEASURED = (
    "authoring/test_bad_input.py",
    "authoring/test_problem_reference.py",
    "docs/test_documents.py",
    "docs/test_pull_request_job.py",
    "evaluation/test_decision_cache.py::test_any_difference_in_a_request_is_decided_as_without_the_cache",
    "native/test_slots.py",
    "rules/test_card_sets.py",
    "server/cluster/test_bench.py",
    "server/diff/test_command.py",
    "server/diff/test_recorded_law.py",
    "server/doctor/test_command.py",
    "webhooks/test_configuration.py",
)
"""Beginnings of the names of tests that take long and run code that others cover."""

MEASURED_PROCESSES = (
    "server/doctor/test_watch.py",
    "server/rules/test_reload.py",
    "server/test_command_line.py",
    "server/test_https.py",
    "server/test_processes.py",
)
"""Files of which coverage measures the processes they start. Other tests of commands call them in their own process."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files: first those of `LONGEST`, then by their number of tests; with a seed at random."""
    if SEED:
        items.sort(key=lambda item: Random(f"{SEED} {item.path}").random())
        return
    folder = Path(__file__).parent
    ranks = {folder / name: rank for rank, name in enumerate(LONGEST)}
    named = {folder / name.partition("::")[0] for name in (*LONGEST, *UNMEASURED, *MEASURED_PROCESSES)}
    if missing := [path for path in named if not path.exists()]:
        raise pytest.UsageError(f"files named in tests/conftest.py not found: {missing}")
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -counts[item.path]))


def pytest_report_header() -> str:
    return f"files shuffled by ORDER={SEED}" if SEED else "files in order: longest first"


def pytest_xdist_auto_num_workers() -> int:
    """Return half as many workers again as there are processors: many tests wait for processes and servers."""
    processors = len(os.sched_getaffinity(0))
    return processors + (processors + 1) // 2


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure coverage, which doubles the time of a test, only where other tests do not cover the same code.

    Laws repeat the same code with many examples, and their examples change. pytest-cov's own marker starts coverage
    again after each such test.
    """
    name = "COVERAGE_PROCESS_CONFIG"  # by which coverage measures processes
    test = item.nodeid.removeprefix("tests/")
    config = None if test.startswith(MEASURED_PROCESSES) else os.environ.pop(name, None)
    trace, threads = sys.gettrace(), threading.gettrace()
    if test.startswith(UNMEASURED) or item.get_closest_marker("hypothesis"):
        sys.settrace(None)
        threading.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(trace)
        threading.settrace(threads)
        if config is not None:
            os.environ[name] = config
