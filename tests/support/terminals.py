"""Pseudo-terminals of commands."""

import os


def shown_on(terminal: int) -> bytes:
    """Read what a command shows on a terminal until the command closes it."""
    shown = b""
    while chunk := _read(terminal):
        shown += chunk
    return shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: Linux reports a closed terminal as an error
        return b""
