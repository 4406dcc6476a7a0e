"""Watching of files for changes."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from rules_engine.language.files import file_state, find_files
from rules_engine.model.problems.problem import Problems

POLL_SECONDS = 0.3
"""Interval of polling: an author hardly notices it, and reading the status of 500 files takes 3 ms of it."""

Signatures = Mapping[str, object]
"""State of each file, by its name."""


def read_signatures(paths: Sequence[Path], others: Iterable[str] = (), written: Collection[Path] = ()) -> Signatures:
    """Return the signatures of all files in files and folders, and of other files, by their names.

    `written`: files that the command itself writes, which are not watched: each run would cause another one.
    """
    unwatched = {os.path.realpath(file) for file in written}
    files = map(str, find_files(paths, Problems()))
    return {name: file_state(name) for name in chain(files, others) if os.path.realpath(name) not in unwatched}


def wait_for_change(
    known: Signatures, paths: Sequence[Path], sleep: Callable[[float], None], written: Collection[Path] = ()
) -> None:
    """Return once a file has changed since the `known` signatures, is new in the folders, or is deleted."""
    while read_signatures(paths, known, written) == known:
        sleep(POLL_SECONDS)
