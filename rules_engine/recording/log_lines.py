"""Lines of a decision log, in bounded memory."""

from collections.abc import Iterator
from typing import Protocol

from msgspec import DecodeError

MAX_LINE_BYTES = 128 * 1024
"""Longest line that is read: the server's have 30 KiB, and programs that forward logs add to them."""

CHUNK_BYTES = 1024 * 1024
"""Bytes that are read at once."""


MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of a line that is cut or no JSON."""


class Readable(Protocol):
    """A binary file, or what reads one."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""


def log_lines(file: Readable) -> Iterator[bytes | None]:
    """Yield the lines without their ends; None for one of more than MAX_LINE_BYTES. Raises OSError."""
    rest = b""
    too_long = False
    while chunk := file.read(CHUNK_BYTES):
        *ended, last = chunk.split(b"\n")
        if ended:
            ended[0] = rest + ended[0]
            if too_long:
                yield None
                del ended[0]
            rest, too_long = b"", False
            for line in ended:
                yield line if len(line) <= MAX_LINE_BYTES else None
        rest = b"" if too_long else rest + last
        if len(rest) > MAX_LINE_BYTES:
            rest, too_long = b"", True
    if too_long:
        yield None
    elif rest:
        yield rest
