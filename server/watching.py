"""Files and folders watched for changes: looked at now and then, and at once where the kernel tells.

Looking is what counts: it sees a ConfigMap's `..data` swap, an editor's rename and a plain write alike, on every file
system. inotify only says when to look.
"""

import logging
import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias

from rules_engine.loading.files import find_files
from rules_engine.loading.report import Report

if TYPE_CHECKING:
    from inotify_simple import INotify  # type: ignore[import-untyped]

POLL_SECONDS = 2.0
"""Between two looks that nothing asked for. A look costs some 10 µs a file."""

QUIET_SECONDS = 0.2
"""Files count as written when they have stayed the same for this long."""

MAX_ROUNDS = 25
"""Looks at files that go on changing, before they are taken as they are: 5 seconds."""

STOP_SECONDS = 1.0
"""For a thread that only waits, to end."""

Signature: TypeAlias = tuple[tuple[str, object], ...]
"""What a look saw: it differs when a file was written, replaced, added or removed."""

_log = logging.getLogger(__name__)


def signature(paths: Sequence[Path]) -> Signature:
    """What lies behind paths now, without reading it."""
    return tuple((str(path), _identity(path)) for path in find_files(paths, Report()))


def _identity(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class Watcher:
    """Calls `changed`, in a thread of its own, after what lies behind paths is not what `seen` says any more."""

    def __init__(self, paths: Sequence[Path], seen: Signature, changed: Callable[[], object], *, name: str) -> None:
        self._paths = tuple(paths)
        self._seen = seen
        self._changed = changed
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = False
        self._inotify: INotify | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """Look now; does not wait."""
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        self._stopping = True
        self.look()
        # A change that is being taken in is not waited for: the process ends.
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        self._inotify = _inotify()
        try:
            while not self._stopping:
                # Watched first, looked at then: what changes in between is told.
                self._watch()
                if self._settled():
                    try:
                        self._changed()
                    except Exception:
                        # Our bug; the next change shall be seen all the same.
                        _log.exception("unexpected error while a change was taken in")
                else:
                    self._wait(POLL_SECONDS)
        finally:
            if self._inotify is not None:
                self._inotify.close()

    def _settled(self) -> bool:
        """Whether something has changed, and is quiet again."""
        found = signature(self._paths)
        if found == self._seen:
            return False
        for _ in range(MAX_ROUNDS):
            self._wait(QUIET_SECONDS, told=False)
            before, found = found, signature(self._paths)
            if found == before:
                break
        self._seen = found
        return not self._stopping

    def _wait(self, seconds: float, *, told: bool = True) -> None:
        """Wait for that long, or until woken, or until inotify tells something."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if told and self._inotify is not None:
            poll.register(self._inotify.fileno(), select.POLLIN)
        poll.poll(seconds * 1000)
        if not self._stopping:
            with suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        if told and self._inotify is not None:
            self._inotify.read(timeout=0)

    def _watch(self) -> None:
        if self._inotify is None:
            return
        from inotify_simple import flags

        written = flags.CREATE | flags.CLOSE_WRITE | flags.ATTRIB
        gone = flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO | flags.DELETE_SELF | flags.MOVE_SELF
        for folder in self._folders():
            try:
                self._inotify.add_watch(folder, written | gone)
            except OSError:
                continue  # gone, not readable, or one too many: polling sees to it

    def _folders(self) -> set[str]:
        """Where something can change: of links, the folders of both ends."""
        folders = {str(path) if path.is_dir() else str(path.parent) for path in self._paths}
        for file in find_files(self._paths, Report()):
            folders.add(str(file.parent))
            folders.add(os.path.dirname(os.path.realpath(file)))  # noqa: PTH120 - a path that may be no path any more
        return folders


def _inotify() -> "INotify | None":
    try:
        from inotify_simple import INotify

        return INotify(nonblocking=True)
    except OSError as error:
        # A node has 128 instances for each user at first (inotify(7), max_user_instances).
        _log.info("changes are found by polling only: inotify: %s", error.strerror)
        return None
