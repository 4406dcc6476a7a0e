"""Serving of the playground on this host. The only module that imports waitress."""

import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import closing

from waitress.server import BaseWSGIServer, MultiSocketServer, create_server

from rules_engine.server.commands.playground.app import MAX_BODY_BYTES, create_playground
from rules_engine.server.option_types import Address

THREADS = 16
"""Requests that are served together: one is computed, others wait for it or receive the page."""

CONNECTIONS = 100
"""Connections at the same time; each waits for 30 s for its next request."""


def playground_server(bound: socket.socket, start: Mapping[str, str]) -> tuple[BaseWSGIServer | MultiSocketServer, str]:
    """Return a server of the playground on a bound socket, and its URL."""
    host, port = bound.getsockname()[:2]
    address = Address(host, port)
    server = create_server(
        create_playground(hosts={str(address), str(Address("localhost", port))}, start=start),
        sockets=[bound],
        threads=THREADS,
        connection_limit=CONNECTIONS,
        channel_timeout=30,
        max_request_body_size=MAX_BODY_BYTES,
        max_request_header_size=16 * 1024,
        ident=None,
    )
    return server, f"http://{address}/"


def serve_playground(
    bound: socket.socket, start: Mapping[str, str], *, browser: bool, announce: Callable[[str], None]
) -> None:
    """Serve the playground on a bound socket until interrupted. `announce` gets the URL; `browser`: open it."""
    server, url = playground_server(bound, start)
    announce(url)
    if browser:
        # Some browsers start in the foreground.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    with closing(server):
        server.run()
