"""Periodic tasks: called again after the time that they return, when woken, and after an unexpected error."""

import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from rules_engine.server.timing import PeriodicTask
from tests.support.operating import until_ended
from tests.support.server import PATIENCE_SECONDS

NAME = "the task of a test"
NEVER_SECONDS = 3600.0


class Steps:
    """Task whose calls are counted; each returns or raises the next of `pauses`."""

    def __init__(self, *pauses: float | Exception, retry_seconds: float = NEVER_SECONDS) -> None:
        self._pauses = [*pauses]
        self._calls: SimpleQueue[None] = SimpleQueue()
        self.task = PeriodicTask(self._step, name=NAME, doing="a test ran", retry_seconds=retry_seconds)

    def _step(self) -> float:
        self._calls.put(None)
        pause = self._pauses.pop(0)
        if isinstance(pause, Exception):
            raise pause
        return pause

    def wait_for(self, calls: int) -> None:
        for _ in range(calls):
            self._calls.get(timeout=PATIENCE_SECONDS)

    @property
    def made_no_more(self) -> bool:
        return self._calls.empty()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    until_ended(NAME)


def test_a_task_is_called_again_after_the_time_that_it_returns() -> None:
    steps = Steps(0.0, 0.0, NEVER_SECONDS)
    steps.task.start()
    steps.wait_for(3)
    steps.task.stop()
    assert steps.made_no_more


def test_a_task_that_waits_is_woken() -> None:
    steps = Steps(NEVER_SECONDS, NEVER_SECONDS)
    steps.task.start(NEVER_SECONDS)
    for _ in range(2):
        steps.task.wake()
        steps.wait_for(1)
    steps.task.stop()


def test_a_task_that_is_woken_during_a_call_is_called_again() -> None:
    under_way, go_on = SimpleQueue[None](), threading.Event()

    def step() -> float:
        under_way.put(None)
        assert go_on.wait(PATIENCE_SECONDS)
        return NEVER_SECONDS

    task = PeriodicTask(step, name=NAME, doing="a test ran", retry_seconds=NEVER_SECONDS)
    task.start()
    under_way.get(timeout=PATIENCE_SECONDS)
    task.wake()
    go_on.set()
    under_way.get(timeout=PATIENCE_SECONDS)
    task.stop()


def test_a_task_stopped_before_its_first_call_is_never_called() -> None:
    steps = Steps()
    steps.task.start(NEVER_SECONDS)
    steps.task.stop()
    until_ended(NAME)
    assert steps.made_no_more


def test_an_unexpected_error_is_logged_and_the_task_called_again(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(ValueError("ours"), NEVER_SECONDS, retry_seconds=0.0)
    steps.task.start()
    steps.wait_for(2)
    steps.task.stop()
    assert caplog.messages == ["unexpected error while a test ran"]
