"""Lines of a decision log, read in bounded memory."""

import re
from collections.abc import Iterator
from typing import Protocol

CHUNK_BYTES = 1024 * 1024
"""Bytes per read."""

MAX_LINE_BYTES = 128 * 1024
"""Longest line that is read: the server writes up to 30 KiB, and programs that forward logs add to the lines."""

DECISION_LOG = "this is a decision log: audit reads it, and explain and diff do by --from-log"

_DECISION = re.compile(rb'^[ \t]*\{[^\n]*"endpoint": ?"(?:mutate|validate)"', re.MULTILINE)


def is_decision_log(data: bytes) -> bool:
    """Return True if a line near the beginning has a decision: lines of other programs may precede."""
    return _DECISION.search(data, 0, MAX_LINE_BYTES) is not None


class Readable(Protocol):
    """A binary file, or what reads one."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""


def log_lines(file: Readable) -> Iterator[bytes | None]:
    """Yield the lines without their ends; None for a line of more than MAX_LINE_BYTES. Raises OSError."""
    # The beginning of a line whose end is in a later chunk; b"" if it is already too long.
    begin = b""
    too_long = False
    while chunk := file.read(CHUNK_BYTES):
        *ended, last = chunk.split(b"\n")
        if ended:
            ended[0] = begin + ended[0]
            if too_long:
                yield None
                del ended[0]
            begin, too_long = b"", False
            for line in ended:
                yield line if len(line) <= MAX_LINE_BYTES else None
        begin = b"" if too_long else begin + last
        if len(begin) > MAX_LINE_BYTES:
            begin, too_long = b"", True
    if too_long:
        yield None
    elif begin:
        yield begin
