"""The playground as a server on loopback, in a thread."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from waitress.wasyncore import close_all

from rules_engine.server.commands.playground.serve import playground_server

_END_SECONDS = 300


@contextmanager
def running_playground(start: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a playground; yield its URL."""
    server: Any
    server, url = playground_server(socket.create_server(("127.0.0.1", 0)), start or {})
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        # The loop ends when it has no connections.
        server.trigger.pull_trigger(lambda: close_all(server._map))  # noqa: SLF001
        thread.join(_END_SECONDS)
        server.task_dispatcher.shutdown()
