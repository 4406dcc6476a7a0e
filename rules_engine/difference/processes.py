"""Work in several forked processes, which share the input and the compiled rules instead of copying them."""

import gc
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import ENOMEM
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

POLL_SECONDS = 0.2
"""Time between two calls of `poll`."""

_NO_MEMORY = ENOMEM
"""Exit code of a process that cannot allocate memory."""

Result = TypeVar("Result")

_CONTEXT = get_context("fork")


class ProcessError(Exception):
    """A process ended without its result; the message is one line."""


def run_in_processes(count: int, work: Callable[[int], Result], poll: Callable[[], None]) -> list[Result]:
    """Return the results of `work` for each number below `count`, each from a process of its own.

    The caller must have no other thread. `poll` is called repeatedly until all results have arrived. The caller handles
    Ctrl-C: no process outlives the call. Raises ProcessError if a process ends without its result.
    """
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    processes: list[BaseProcess] = []
    results: dict[int, Result] = {}
    # Garbage collection would write to memory that the processes share.
    gc.freeze()
    try:
        # SIGINT that arrives before a process ignores it would end the process with a traceback.
        with _block_interrupts():
            for number in range(count):
                reader, process = _start_process(work, number, running)
                processes.append(process)
                running[reader] = number, process
        while running:
            for reader in cast(list[Connection], wait(list(running), POLL_SECONDS)):
                number, process = running.pop(reader)
                with reader:
                    results[number] = _receive_result(reader, process)
            poll()
    finally:
        for process in processes:
            process.kill()
            process.join()
        gc.unfreeze()
    return [results[number] for number in range(count)]


@contextmanager
def _block_interrupts() -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _start_process(
    work: Callable[[int], Result], number: int, readers: Iterable[Connection]
) -> tuple[Connection, BaseProcess]:
    reader, writer = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_run_work, args=(work, number, writer, [*readers, reader]), daemon=True)
    with writer:
        try:
            process.start()
        except OSError as error:
            reader.close()
            raise ProcessError(f"a process cannot be started: {error.strerror}") from None
    return reader, process


def _run_work(work: Callable[[int], object], number: int, writer: Connection, readers: Iterable[Connection]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # Only the parent may read results: with a reader of its own, a process would outlive a killed parent forever.
    for reader in readers:
        reader.close()
    try:
        with suppress(BrokenPipeError):
            writer.send(work(number))
    except MemoryError:
        os._exit(_NO_MEMORY)


def end_without_parent(parent: int) -> None:
    """End a forked process if its parent, by process ID, was killed: nobody waits for the result."""
    if os.getppid() != parent:
        os._exit(1)


def _receive_result(reader: Connection, process: BaseProcess) -> Any:
    try:
        return reader.recv()
    except (EOFError, OSError):
        process.join()
        raise ProcessError(_describe_end(process)) from None


def _describe_end(process: BaseProcess) -> str:
    """Return a sentence on the end of a process without a result."""
    code = process.exitcode or 0
    if code == _NO_MEMORY:
        return "a process had too little memory"
    if code >= 0:
        return f"a process ended with exit code {code}"
    name = signal.Signals(-code).name
    more = ": was there too little memory?" if -code == signal.SIGKILL else ""
    return f"a process was killed by {name}{more}"
