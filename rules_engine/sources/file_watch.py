"""Files that are watched for changes."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from rules_engine.loading.files import find_files
from rules_engine.model.problems.problem import Problems

POLL_SECONDS = 0.3
"""Time between two looks at the files: an author hardly notices it, and 500 files take 3 ms of it."""

Signature = Mapping[str, tuple[int, int, int] | None]
"""By file the time of its last change, its size and its inode; None for a file that does not exist."""


def signature(paths: Sequence[Path], others: Iterable[str] = (), written: Collection[Path] = ()) -> Signature:
    """Return the signature of all files in files and folders, and of others, by their names.

    `written`: files that the command itself writes, which are not watched.
    """
    ours = {os.path.realpath(file) for file in written}
    found = map(str, find_files(paths, Problems()))
    return {name: _signature_of(name) for name in chain(found, others) if os.path.realpath(name) not in ours}


def _signature_of(name: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(name)  # noqa: PTH116 - Path.stat is no different
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def wait_for_change(
    known: Signature, paths: Sequence[Path], sleep: Callable[[float], None], written: Collection[Path] = ()
) -> None:
    """Return once a file has another signature than a known one, is new in the folders, or is gone."""
    while signature(paths, known, written) == known:
        sleep(POLL_SECONDS)
