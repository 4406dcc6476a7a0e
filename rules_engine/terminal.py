"""Consoles of rich for text for people, on a terminal or in a pipe."""

import os
from io import TextIOWrapper
from typing import TextIO

from rich.console import Console

WIDTH = 100_000
"""Line width in columns, larger than any line: the terminal wraps long lines, so that no text is cut off."""


def console(stream: TextIO) -> Console:
    """Return the console of a stream, without other characters than ASCII's in the C locale."""
    if isinstance(stream, TextIOWrapper) and _is_ascii_locale():
        stream.reconfigure(encoding="ascii", errors=stream.errors)
    coloured = _is_coloured(stream)
    return Console(
        file=stream,
        color_system="standard" if coloured else None,
        force_terminal=coloured,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
        width=WIDTH,
    )


def _is_ascii_locale() -> bool:
    """Return True if the user chose the C locale, for which Python writes UTF-8.

    Python also sets LC_CTYPE to C.UTF-8 then (PEP 538), and if no locale is chosen: it is not the user's choice.
    """
    chosen = os.environ.get("LC_ALL") or os.environ.get("LANG")
    return chosen in ("C", "POSIX") and not os.environ.get("PYTHONIOENCODING")


def _is_coloured(stream: TextIO) -> bool:
    """Return True for a terminal, and for any stream with FORCE_COLOR (force-color.org).

    NO_COLOR (no-color.org) overrides both: colours that were not wanted are worse than none.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    )
