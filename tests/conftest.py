"""Settings of all tests."""

import os
import signal
import sys
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
    "slow/server/test_bounds.py",
    "slow/authoring/test_pre_commit.py",
    "slow/server/test_processes.py",
    "slow/deploy/test_chart.py",
    "slow/deploy/test_image.py",
    "slow/authoring/test_terminals.py",
    "slow/bench/test_benches.py",
    "slow/cel/test_operation_costs.py",
    "server/doctor/test_command.py",
    "server/tls/test_renewal.py",
    "models/test_models.py",
    "evaluation/test_decision_cache.py",
    "evaluation/test_laws.py",
    "rules/test_shipped_rules.py",
    "docs/test_documents.py",
    "server/diff/test_command.py",
    "server/cluster/test_serving.py",
    "server/telemetry/test_observers.py",
    "server/rules/test_reload.py",
    "evaluation/test_index.py",
)
"""Files that take longest for their number of tests. They run first, so that none is left alone at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files: first those of `LONGEST`, then by their number of tests; with a seed at random."""
    if SEED:
        items.sort(key=lambda item: Random(f"{SEED} {item.path}").random())
        return
    folder = Path(__file__).parent
    ranks = {folder / name: rank for rank, name in enumerate(LONGEST)}
    if missing := [path for path in ranks if not path.exists()]:
        raise pytest.UsageError(f"files of LONGEST in tests/conftest.py not found: {missing}")
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -counts[item.path]))


def pytest_report_header() -> str:
    return f"files shuffled by ORDER={SEED}" if SEED else "files in order: longest first"


def pytest_xdist_auto_num_workers() -> int:
    """Return half as many workers again as there are processors: many tests wait for processes and servers."""
    processors = len(os.sched_getaffinity(0))
    return processors + (processors + 1) // 2


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Measure no coverage of laws and of tests with the marker `unmeasured`, nor in their processes.

    Laws repeat the same code with many examples, and their examples change: other tests cover the code.
    pytest-cov's own marker starts coverage again after each such test, and each start patches os.fork and os._exit.
    """
    if not (item.get_closest_marker("unmeasured") or item.get_closest_marker("hypothesis")):
        return (yield)
    name = "COVERAGE_PROCESS_CONFIG"  # by which coverage measures processes
    config, trace = os.environ.pop(name, None), sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(trace)
        if config is not None:
            os.environ[name] = config
