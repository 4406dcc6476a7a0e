"""Lines of a decision log, in bounded memory."""

from collections.abc import Iterator

from msgspec import DecodeError

from rules_engine.loading.json_list import CHUNK_BYTES, Readable

MAX_LINE_BYTES = 128 * 1024
"""Longest line that is read: the server's have 30 KiB, and programs that forward logs add to them."""

RECORDS = ("fields", "view")
"""Values of `record` in lines of recorded requests; a line of a decision has no such member."""

MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of a line that is cut or no JSON."""


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
