"""Watcher of files and folders: polls them, and checks at once when inotify reports a change.

Polling detects the swap of a ConfigMap's `..data`, an editor's rename and a plain write alike, on every file system;
inotify only makes it faster.
"""

import logging
import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from rules_engine.loading.files import find_files, is_folder
from rules_engine.model.problems.problem import Problems

if TYPE_CHECKING:
    from inotify_simple import INotify  # type: ignore[import-untyped]

POLL_SECONDS = 2.0
"""Polling interval. A check takes some 10 µs a file."""

QUIET_SECONDS = 0.2
"""Time without a change after which files count as completely written."""

MAX_ROUNDS = 25
"""Checks of files that keep changing, before they are read regardless: 5 seconds."""

RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 300.0
"""Delay of a retry after a refusal, though no file has changed; it doubles up to the second value."""

STOP_SECONDS = 1.0
"""Timeout for the thread to end."""

Signature: TypeAlias = tuple[tuple[str, object], ...]
"""State of files: it differs when a file was written, replaced, added or removed."""

_log = logging.getLogger(__name__)


def files_signature(paths: Sequence[Path]) -> Signature:
    """Return the state of the files under paths, without reading them."""
    return tuple((str(path), _file_identity(path)) for path in find_files(paths, Problems()))


def _file_identity(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class Watcher:
    """Calls `changed`, in a thread of its own, after each change of the files under paths since `seen`.

    `changed` returns True if the files are in force. Otherwise it is called again later, even without a change: the
    cause may be the time of day, or an API server that cannot be reached.
    """

    def __init__(self, paths: Sequence[Path], seen: Signature, changed: Callable[[], bool], *, name: str) -> None:
        self.name = name
        self._paths = tuple(paths)
        self._seen = seen
        self._changed = changed
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = Event()
        self._retry_at = inf
        self._retry_seconds = RETRY_SECONDS
        self._inotify: INotify | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Check now, and retry refused files; does not wait."""
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        self._stopping.set()
        self.check()
        # A pending call of `changed` is not waited for: the process ends.
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        self._inotify = _open_inotify()
        try:
            while not self._stopping.is_set():
                try:
                    # Watches come first: inotify reports a change between the two steps.
                    self._watch()
                    if self._has_settled():
                        self._retry_seconds = RETRY_SECONDS
                        self._call()
                    elif monotonic() >= self._retry_at:
                        self._call()
                    else:
                        self._wait(POLL_SECONDS)
                except Exception:
                    # A bug must not end the thread: no later change would be seen.
                    _log.exception("unexpected error while processing a change")
                    self._wait(POLL_SECONDS)
        finally:
            if self._inotify is not None:
                self._inotify.close()

    def _call(self) -> None:
        self._retry_at = monotonic() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)
        if self._changed():
            self._retry_at = inf

    def _has_settled(self) -> bool:
        """Return True if something has changed, and stayed the same for QUIET_SECONDS."""
        current = files_signature(self._paths)
        if current == self._seen:
            return False
        for _ in range(MAX_ROUNDS):
            self._stopping.wait(QUIET_SECONDS)
            before, current = current, files_signature(self._paths)
            if current == before:
                break
        self._seen = current
        return not self._stopping.is_set()

    def _wait(self, seconds: float) -> None:
        """Wait for so long, or until woken, or until inotify reports a change."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._inotify is not None:
            poll.register(self._inotify.fileno(), select.POLLIN)
        poll.poll(min(seconds, max(self._retry_at - monotonic(), 0.0)) * 1000)
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
            if self._retry_at < inf:
                self._retry_at = monotonic()
        if self._inotify is not None:
            self._inotify.read(timeout=0)

    def _watch(self) -> None:
        if self._inotify is None:
            return
        from inotify_simple import flags

        writes = flags.CREATE | flags.CLOSE_WRITE | flags.ATTRIB
        removals = flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO | flags.DELETE_SELF | flags.MOVE_SELF
        for folder in self._folders():
            try:
                self._inotify.add_watch(folder, writes | removals)
            except OSError:
                continue  # deleted, unreadable or over the limit: polling suffices

    def _folders(self) -> set[str]:
        """Return the folders to watch; for a link, also the folder of its target."""
        folders = {str(path) if is_folder(path) else str(path.parent) for path in self._paths}
        for file in find_files(self._paths, Problems()):
            folders.add(str(file.parent))
            folders.add(os.path.dirname(os.path.realpath(file)))  # noqa: PTH120 - the path may no longer exist
        return folders


def _open_inotify() -> "INotify | None":
    try:
        from inotify_simple import INotify

        return INotify(nonblocking=True)
    except OSError as error:
        # The default limit is 128 instances for each user of a node (inotify(7), max_user_instances).
        _log.info("inotify unavailable, files are only polled: %s", error.strerror)
        return None
