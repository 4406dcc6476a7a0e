"""Answers from a process with limits on time and memory: a text may take as much of both as the limits allow."""

import contextlib
import os
import resource
import signal
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from rules_engine.server.commands.playground.answer import EXAMPLES, answer_parts, write_texts

SECONDS = 2.0
"""Time of an answer, for YAML, compilation and evaluation together."""

MAX_MEMORY_BYTES = 1024**3
"""Address space of the process. 256 KiB of YAML need some 100 MiB."""

TOO_LONG = f"The answer is incomplete, since it takes more than {SECONDS:g} s."
BUSY = "There is no answer, since others are computed: try again."
FAILED = "The answer is incomplete, since its process failed: perhaps it takes too much memory."

_CONTEXT = get_context("spawn")  # a fork would copy locks of other threads


class AnswerProcess:
    """Computes answers one after the other, in a process that is replaced when an answer exceeds a limit."""

    def __init__(self, *, seconds: float = SECONDS, memory_bytes: int = MAX_MEMORY_BYTES) -> None:
        self._limits = seconds, memory_bytes
        self._lock = Lock()
        self._start()

    def answer(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return the answer on texts by file name. `limit`: why it is incomplete."""
        if not self._lock.acquire(timeout=self._limits[0]):
            return {"limit": BUSY}
        try:
            return self._compute(texts)
        finally:
            self._lock.release()

    def _compute(self, texts: Mapping[str, str]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        with TemporaryDirectory(prefix="gpu-rules-") as folder:
            write_texts(folder, texts)
            try:
                self._pipe.send(folder)
                while (part := self._pipe.recv()) is not None:
                    answer |= part
            except (EOFError, OSError):  # the process has ended
                self._process.join()
                answer["limit"] = TOO_LONG if self._process.exitcode == -signal.SIGALRM else FAILED
                self._start()
        return answer

    def _start(self) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_compute_answers, args=(theirs, *self._limits), daemon=True)
        self._process.start()
        theirs.close()


def _compute_answers(pipe: Connection, seconds: float, memory_bytes: int) -> None:
    """Receive folders with texts; send the parts of each answer, then None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends this process
    with TemporaryDirectory(prefix="gpu-rules-") as folder, contextlib.chdir(folder):
        write_texts(folder, EXAMPLES[0]["texts"])
        for _ in answer_parts():  # which loads what the first answer needs
            pass
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with contextlib.suppress(EOFError, BrokenPipeError, MemoryError):
        while True:
            os.chdir(pipe.recv())
            signal.setitimer(signal.ITIMER_REAL, seconds)  # its signal ends the process, whatever it does
            for part in answer_parts():
                pipe.send(part)
            signal.setitimer(signal.ITIMER_REAL, 0)
            pipe.send(None)
