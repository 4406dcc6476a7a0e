"""Watching of files for changes."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from rules_engine.language.files import find_files
from rules_engine.model.problems.problem import Problems

POLL_SECONDS = 0.3
"""Interval of polling: an author hardly notices it, and reading the status of 500 files takes 3 ms of it."""

Signatures = Mapping[str, tuple[int, int, int] | None]
"""Modification time, size and inode by file; None for a file that does not exist."""


def read_signatures(paths: Sequence[Path], others: Iterable[str] = (), written: Collection[Path] = ()) -> Signatures:
    """Return the signatures of all files in files and folders, and of other files, by their names.

    `written`: files that the command itself writes, which are not watched: each run would cause another one.
    """
    unwatched = {os.path.realpath(file) for file in written}
    files = map(str, find_files(paths, Problems()))
    return {name: _file_signature(name) for name in chain(files, others) if os.path.realpath(name) not in unwatched}


def _file_signature(name: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(name)  # noqa: PTH116 - Path.stat does the same
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def wait_for_change(
    known: Signatures, paths: Sequence[Path], sleep: Callable[[float], None], written: Collection[Path] = ()
) -> None:
    """Return once a file has changed since the `known` signatures, is new in the folders, or is deleted."""
    while read_signatures(paths, known, written) == known:
        sleep(POLL_SECONDS)
