"""pytest plugin that prints the CPU time of the most expensive test files and of all (`-p tests.support.cpu_report`).

CPU time includes ended child processes, and fixtures count for the file that sets them up or tears them down.
"""

import os
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

SHOWN_FILES = 40

_used: Counter[str] = Counter()
"""CPU seconds by file, in the process that reports."""


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


_begin = 0.0
"""CPU time of this process when its last test ended."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    global _begin
    _begin = cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add the CPU time since the last test ended to the report of a test's teardown; xdist sends it on."""
    global _begin
    report = yield
    if call.when == "teardown":
        end = cpu_seconds()
        report.cpu_seconds, _begin = end - _begin, end
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _used[report.nodeid.partition("::")[0]] += getattr(report, "cpu_seconds", 0.0)  # type: ignore[assignment]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        terminalreporter.section(f"CPU seconds: {sum(_used.values()):.0f} in {len(_used)} files")
        for name, seconds in _used.most_common(SHOWN_FILES):
            terminalreporter.write_line(f"{seconds:6.1f}  {name}")
