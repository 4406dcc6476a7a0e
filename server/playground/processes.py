"""Answers from processes with limits of time, memory and number: texts of strangers may cost all that they may."""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, Lock
from time import monotonic
from typing import Any
from weakref import finalize

from server.playground.examples import write_texts

SECONDS = 2.0
"""Time of an answer, for YAML, compilation and evaluation together."""

TOGETHER = 4
"""Answers that are computed at the same time."""

WAIT_SECONDS = 1.0
"""Time to wait for a turn: the page asks again."""

MAX_MEMORY_BYTES = 1024**3
"""Address space of a process. 256 KiB of YAML need some 100 MiB; four processes fit on a small host."""

MAX_PART_BYTES = 4 * 1024 * 1024
"""Size of a part of an answer."""

TOO_LONG = f"The answer is incomplete, since it takes more than {SECONDS:g} s."
FAILED = "The answer is incomplete, since its process failed: perhaps it takes too much memory."


class BusyError(Exception):
    """Too many answers are being computed."""


class AnswerProcesses:
    """Computes answers, each in a process of its own, which ends at the time limit."""

    def __init__(
        self, *, seconds: float = SECONDS, wait_seconds: float = WAIT_SECONDS, memory_bytes: int = MAX_MEMORY_BYTES
    ) -> None:
        self._wait_seconds = wait_seconds
        self._limits = {"seconds": seconds, "memory_bytes": memory_bytes}
        self._turns = BoundedSemaphore(TOGETHER)
        self._lock = Lock()
        self._control = self._start()

    def answer(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return the answer on texts by file name. `limit`: why it is incomplete. Raises BusyError."""
        if not self._turns.acquire(timeout=self._wait_seconds):
            raise BusyError
        try:
            with TemporaryDirectory(prefix="gpu-rules-") as folder:
                write_texts(folder, texts)
                receiving, sending = Pipe(duplex=False)
                with receiving:
                    with sending:
                        self._request(json.dumps({"folder": folder, **self._limits}).encode(), sending.fileno())
                    return self._receive(receiving)
        finally:
            self._turns.release()

    def _start(self) -> socket.socket:
        """Start the process that forks, and return the socket for its messages. It ends when that is closed."""
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # In its own session, since Ctrl-C is for this process. A fork of this one would copy locks of other threads.
        command = [sys.executable, "-m", "server.playground.child"]
        with theirs:
            process = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True)  # noqa: S603 - our own
        finalize(self, _end, control, process)
        return control

    def _request(self, message: bytes, pipe: int) -> None:
        with self._lock:
            try:
                socket.send_fds(self._control, [message], [pipe])
            except OSError:  # the process is gone
                self._control = self._start()
                socket.send_fds(self._control, [message], [pipe])

    def _receive(self, parts: Connection) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        limit: dict[str, Any] = {}
        try:
            while part := parts.recv_bytes(MAX_PART_BYTES):
                answer |= json.loads(part)
        except (EOFError, OSError):
            limit = {"limit": TOO_LONG if monotonic() >= answer.get("end", inf) else FAILED}
        answer.pop("end", None)
        return answer | limit


def _end(control: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    control.close()
    process.wait()
