"""Files and folders watched for changes: looked at now and then, and at once where the kernel tells.

Looking is what counts: it sees a ConfigMap's `..data` swap, an editor's rename and a plain write alike, on every file
system. inotify only says when to look.
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

from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.files import find_files, is_folder

if TYPE_CHECKING:
    from inotify_simple import INotify  # type: ignore[import-untyped]

POLL_SECONDS = 2.0
"""Between two looks that nothing asked for. A look costs some 10 µs a file."""

QUIET_SECONDS = 0.2
"""Files count as written when they have stayed the same for this long."""

MAX_ROUNDS = 25
"""Looks at files that go on changing, before they are taken as they are: 5 seconds."""

RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 300.0
"""Until what was refused is tried again though nothing has changed; each time twice as long, up to a bound."""

STOP_SECONDS = 1.0
"""For a thread that only waits, to end."""

Signature: TypeAlias = tuple[tuple[str, object], ...]
"""What a look saw: it differs when a file was written, replaced, added or removed."""

_log = logging.getLogger(__name__)


def signature(paths: Sequence[Path]) -> Signature:
    """What lies behind paths now, without reading it."""
    return tuple((str(path), _identity(path)) for path in find_files(paths, Diagnostics()))


def _identity(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class Watcher:
    """Calls `changed`, in a thread of its own, after what lies behind paths is not what `seen` says any more.

    `changed` says whether what is there is in force. Where it is not, it is called again now and then: what is wrong
    may be the time of day, or an API server that cannot be reached, and not what lies in files.
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

    def look(self) -> None:
        """Look now, and try again what was refused; does not wait."""
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        self._stopping.set()
        self.look()
        # A change that is being taken in is not waited for: the process ends.
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        self._inotify = _inotify()
        try:
            while not self._stopping.is_set():
                try:
                    # Watched first, looked at then: what changes in between is told.
                    self._watch()
                    if self._settled():
                        self._retry_seconds = RETRY_SECONDS
                        self._take_in()
                    elif monotonic() >= self._retry_at:
                        self._take_in()
                    else:
                        self._wait(POLL_SECONDS)
                except Exception:
                    # Our bug, or a file system's; the next change shall be seen all the same.
                    _log.exception("unexpected error while a change was taken in")
                    self._wait(POLL_SECONDS)
        finally:
            if self._inotify is not None:
                self._inotify.close()

    def _take_in(self) -> None:
        self._retry_at = monotonic() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)
        if self._changed():
            self._retry_at = inf

    def _settled(self) -> bool:
        """Whether something has changed, and is quiet again."""
        found = signature(self._paths)
        if found == self._seen:
            return False
        for _ in range(MAX_ROUNDS):
            self._stopping.wait(QUIET_SECONDS)
            before, found = found, signature(self._paths)
            if found == before:
                break
        self._seen = found
        return not self._stopping.is_set()

    def _wait(self, seconds: float) -> None:
        """Wait for that long, or until woken, or until inotify tells something."""
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

        written = flags.CREATE | flags.CLOSE_WRITE | flags.ATTRIB
        gone = flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO | flags.DELETE_SELF | flags.MOVE_SELF
        for folder in self._folders():
            try:
                self._inotify.add_watch(folder, written | gone)
            except OSError:
                continue  # gone, not readable, or one too many: polling sees to it

    def _folders(self) -> set[str]:
        """Where something can change: of links, the folders of both ends."""
        folders = {str(path) if is_folder(path) else str(path.parent) for path in self._paths}
        for file in find_files(self._paths, Diagnostics()):
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
