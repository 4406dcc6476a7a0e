"""Settings of all tests."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from zlib import crc32

import pytest
from hypothesis import HealthCheck, seed, settings

from rules_engine.accelerators.catalogue import _added
from tests.support.cpu_report import cpu_seconds

# A law has no deadline and no health check: they depend on the load of the machine and on the seed, not on the product.
settings.register_profile(
    "laws",
    max_examples=20,
    deadline=None,
    database=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("laws")

LAW_SECONDS = 0.5
"""CPU time in which a law is checked with 20 examples of one seed after the other."""

ORDER = os.environ.get("ORDER", "")
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
    "server/commands/doctor/test_command.py",
    "server/tls/test_renewal.py",
    "models/test_models.py",
    "rules/evaluation/test_laws.py",
    "docs/test_documents.py",
    "questions/diff/test_command.py",
    "server/cluster/test_serving.py",
    "server/telemetry/test_observers.py",
    "server/rules/test_reload.py",
    "rules/rule_set/test_index.py",
)
"""Files that take longest for their number of tests. They run first, so that none is left alone at the end."""

UNMEASURED = (
    "cli/test_bad_input.py",
    "authoring/check/test_problem_reference.py",
    "docs/test_documents.py",
    "docs/test_action.py",
    "rules/evaluation/test_costs.py",
    "language/test_conformance.py::test_patterns",
    "rules/sources/test_card_sets.py",
    "rules/sources/test_shipped_rules.py",
    "server/cluster/test_bench.py",
    "server/cluster/test_serving.py",
    "questions/diff/test_command.py",
    "server/commands/doctor/test_command.py",
    "server/commands/doctor/test_preparation.py",
    "exports/test_configuration.py",
)
"""Beginnings of the names of tests that take long and run code that others cover."""

MEASURED_PROCESSES = (
    "server/commands/doctor/test_watch.py",
    "server/rules/test_reload.py",
    "server/commands/test_command_line.py",
    "server/http/test_https.py",
    "server/test_processes.py",
)
"""Files of which coverage measures the processes they start. Other tests of commands call them in their own process."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files: first those of `LONGEST`, then by their number of tests; with a seed at random."""
    if ORDER:
        items.sort(key=lambda item: Random(f"{ORDER} {item.path}").random())
        return
    folder = Path(__file__).parent
    ranks = {folder / name: rank for rank, name in enumerate(LONGEST)}
    named = {folder / name.partition("::")[0] for name in (*LONGEST, *UNMEASURED, *MEASURED_PROCESSES)}
    if missing := [path for path in named if not path.exists()]:
        raise pytest.UsageError(f"files named in tests/conftest.py not found: {missing}")
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -counts[item.path]))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take the first seed of laws from the date and the commit; processes of pytest-xdist get it as an option."""
    if config.option.hypothesis_seed is None:
        commit = subprocess.getoutput("git rev-parse HEAD")
        config.option.hypothesis_seed = crc32(f"{datetime.now(UTC):%F} {commit}".encode())


def pytest_report_header(config: pytest.Config) -> list[str]:
    order = f"files shuffled by ORDER={ORDER}" if ORDER else "files in order: longest first"
    return [order, f"laws: SEED={config.option.hypothesis_seed}"]


@pytest.fixture(autouse=True)
def _packaged_catalogue() -> Generator[None]:
    """Leave the process without the accelerators that a test adds."""
    yield
    _added.clear()


@pytest.fixture(scope="session")
def run_seed(pytestconfig: pytest.Config) -> int:
    """Return the seed of a law that is no Hypothesis test."""
    return int(pytestconfig.option.hypothesis_seed)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, object, object]:
    """Check a law with the examples of further seeds until it used its CPU time."""
    number, end = int(item.config.option.hypothesis_seed), cpu_seconds() + LAW_SECONDS
    law = getattr(item.cls, "machine", item.function) if item.get_closest_marker("hypothesis") else None
    try:
        if law:
            seed(number)(law)
        result = yield
        while law and cpu_seconds() < end:
            number += 1
            seed(number)(law)
            item.runtest()
    except Exception as error:
        if law or "run_seed" in item.fixturenames:
            error.add_note(
                f"Seed {number} is new: the change may not be to blame. `make test SEED={number}`, or pytest's option "
                f"--hypothesis-seed={number}, repeats its examples. Commit this one as a test (@example)."
            )
        raise
    return result


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
