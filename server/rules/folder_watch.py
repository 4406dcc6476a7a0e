"""Watcher of files and folders: polls them.

Polling detects the swap of a ConfigMap's `..data`, an editor's rename and a plain write alike, on every file system.
"""

from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import TypeAlias

from rules_engine.language.files import file_state, find_files
from rules_engine.model.problems.problem import Problems
from rules_engine.server.timing import PeriodicTask

POLL_SECONDS = 1.0
"""Polling interval. A check takes some 10 µs a file."""

QUIET_SECONDS = 0.2
"""Time without a change after which files count as completely written."""

MAX_ROUNDS = 25
"""Checks of files that keep changing, before they are read regardless: 5 seconds."""

RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 300.0
"""Delay of a retry after a refusal, though no file has changed; it doubles up to the second value."""

Signature: TypeAlias = tuple[tuple[str, object], ...]
"""State of files: it differs when a file was written, replaced, added or removed."""


def files_signature(paths: Sequence[Path]) -> Signature:
    """Return the state of the files under paths, without reading them."""
    return tuple((str(path), file_state(path)) for path in find_files(paths, Problems()))


class Watcher(PeriodicTask):
    """Calls `changed`, in a thread of its own, after each change of the files under paths since `seen`.

    `changed` returns True if the files are active. Otherwise it is called again later, even without a change: the
    cause may be the time of day, or an API server that cannot be reached.
    """

    def __init__(self, paths: Sequence[Path], seen: Signature, changed: Callable[[], bool], *, name: str) -> None:
        self.name = name
        self._paths = tuple(paths)
        self._seen = seen
        self._changed = changed
        self._checked = False
        self._retry_at = inf
        self._retry_seconds = RETRY_SECONDS
        super().__init__(self._step, name=name, doing="a change was processed", retry_seconds=POLL_SECONDS)

    def check(self) -> None:
        """Check now, and retry refused files; does not wait."""
        self._checked = True
        self.wake()

    def _step(self) -> float:
        """Report a change, or retry; return the seconds to wait before the next check."""
        checked, self._checked = self._checked, False
        if self._has_settled():
            self._retry_seconds = RETRY_SECONDS
            self._call()
        elif monotonic() >= self._retry_at or (checked and self._retry_at < inf):
            self._call()
        return min(POLL_SECONDS, max(self._retry_at - monotonic(), 0.0))

    def _call(self) -> None:
        self._retry_at = monotonic() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)
        if self._changed():
            self._retry_at = inf

    def _has_settled(self) -> bool:
        """Return True if something has changed, once it has stayed the same for QUIET_SECONDS."""
        current = files_signature(self._paths)
        if current == self._seen:
            return False
        for _ in range(MAX_ROUNDS):
            sleep(QUIET_SECONDS)
            before, current = current, files_signature(self._paths)
            if current == before:
                break
        self._seen = current
        return True
