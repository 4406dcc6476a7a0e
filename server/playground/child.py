"""`python -m server.playground.child`: a process that forks for each answer, with schemas and grammars already loaded.

Standard input is a socket. A message has the folder with the texts and the limits as JSON, and the pipe for the answer.
"""

import contextlib
import json
import os
import resource
import signal
import socket
from itertools import chain
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from time import monotonic

from server.playground.answer import answer_parts
from server.playground.examples import EXAMPLES, write_texts

MAX_MESSAGE_BYTES = 16 * 1024


def main() -> None:
    """Fork for each message, until the other end of the socket is closed."""
    with TemporaryDirectory(prefix="gpu-rules-") as folder, contextlib.chdir(folder):
        write_texts(folder, EXAMPLES[0]["texts"])
        for _ in answer_parts():  # which loads what the first answer needs
            pass
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes
    with socket.socket(fileno=0) as control:
        while True:
            message, pipes, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 1)
            if not message:
                return
            if os.fork() == 0:
                try:
                    _send_answer(Connection(pipes[0], readable=False), **json.loads(message))
                finally:
                    os._exit(0)
            os.close(pipes[0])


def _send_answer(pipe: Connection, folder: str, seconds: float, memory_bytes: int) -> None:
    """Send the time at which this process ends, then each part of the answer, and an empty message after the last."""
    end = monotonic() + seconds
    signal.setitimer(signal.ITIMER_REAL, seconds)  # its signal ends the process, whatever it does
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(folder)
    with contextlib.suppress(MemoryError, BrokenPipeError):
        for part in chain([{"end": end}], answer_parts()):
            pipe.send_bytes(json.dumps(part).encode())
        pipe.send_bytes(b"")


if __name__ == "__main__":
    main()
