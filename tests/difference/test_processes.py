"""Work of several processes: results, ends of processes, interrupts."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EAGAIN
from select import select

import pytest

from rules_engine.difference.processes import ProcessError, end_without_parent, run_in_processes
from tests.support.server import PATIENCE_SECONDS


def no_poll() -> None:
    pass


@contextmanager
def held() -> Iterator[tuple[int, int]]:
    """Yield a pipe whose reader gets its end once no other process has its writer."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(writer)
    assert select([reader], [], [], PATIENCE_SECONDS)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


@contextmanager
def leaving() -> Iterator[None]:
    """End a forked process, whatever is raised: coverage may fail to write its data. It must not run other tests."""
    try:
        yield
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def test_results_are_in_order() -> None:
    parent = os.getpid()
    with held():
        found = run_in_processes(3, lambda number: (number, os.getpid(), b"x" * 1_000_000), no_poll)
    assert [number for number, _, _ in found] == [0, 1, 2]
    assert len({parent, *(process for _, process, _ in found)}) == 4


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "a process was killed by SIGKILL: was there too little memory?"),
        (lambda: os.kill(os.getpid(), signal.SIGUSR1), "a process was killed by SIGUSR1"),
        (lambda: os._exit(3), "a process ended with exit code 3"),
        (lambda: os._exit(0), "a process ended with exit code 0"),
        (lambda: bytearray(2**62), "a process had too little memory"),
    ],
)
def test_a_process_that_ends_without_a_result_ends_all(end: object, message: str) -> None:
    def work(number: int) -> int:
        if number:
            assert callable(end)
            end()
        signal.pause()
        return number

    with held(), pytest.raises(ProcessError) as caught:
        run_in_processes(2, work, no_poll)
    assert str(caught.value) == message


def test_an_interrupt_ends_all_processes() -> None:
    def work(_number: int) -> None:
        signal.pause()

    def poll() -> None:
        raise KeyboardInterrupt

    with held(), pytest.raises(KeyboardInterrupt):
        run_in_processes(2, work, poll)


def test_an_interrupt_while_processes_are_started_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fork = os.fork
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted() -> int:
        signal.raise_signal(signal.SIGINT)
        return fork()

    monkeypatch.setattr(os, "fork", interrupted)
    try:
        with held(), pytest.raises(KeyboardInterrupt):
            run_in_processes(2, lambda _number: signal.pause(), no_poll)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_that_cannot_be_started_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    forks = iter([os.fork])

    def no_more() -> int:
        raise OSError(EAGAIN, os.strerror(EAGAIN))

    monkeypatch.setattr(os, "fork", lambda: next(forks, no_more)())
    with held(), pytest.raises(ProcessError) as caught:
        run_in_processes(2, lambda _number: signal.pause(), no_poll)
    assert str(caught.value) == "a process cannot be started: Resource temporarily unavailable"


def test_an_interrupt_is_left_to_the_parent() -> None:
    """Ctrl-C on a terminal goes to all processes."""

    def work(number: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return number

    assert run_in_processes(2, work, no_poll) == [0, 1]


def test_progress_is_polled_until_the_end() -> None:
    reader, writer = os.pipe()
    polled = 0

    def work(_number: int) -> bytes:
        return os.read(reader, 1)

    def poll() -> None:
        nonlocal polled
        polled += 1
        if polled == 3:
            os.write(writer, b"x")

    assert run_in_processes(1, work, poll) == [b"x"]
    assert polled >= 3
    os.close(reader)
    os.close(writer)


def test_a_process_ends_without_its_parent() -> None:
    """The grandchild ends once it finds that its parent has been killed."""
    with held() as (_, writer):
        child = os.fork()
        if not child:
            with leaving():
                parent = os.getpid()
                if os.fork():
                    os.close(writer)
                    os.kill(parent, signal.SIGKILL)
                while True:
                    end_without_parent(parent)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_no_process_waits_for_a_parent_that_was_killed_to_read_its_result() -> None:
    with held():
        child = os.fork()
        if not child:
            parent = os.getpid()

            def work(_number: int) -> bytes:
                while os.getppid() == parent:
                    pass
                return b"x" * 1_000_000

            with leaving():
                run_in_processes(2, work, lambda: os.kill(parent, signal.SIGKILL))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
