"""Rule files of a git revision, read from the repository of the current folder without checking anything out.

One process of git, `git cat-file --batch`, reads trees and blobs. It runs no hook and no shell, and reaches no network.
Links are followed inside the tree, as a checkout would; submodules, and links that leave the tree, are problems.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import ELOOP, ENAMETOOLONG
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Timer
from typing import IO, NamedTuple, cast

from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.files import (
    MAX_CLUSTER_BYTES,
    MAX_FILE_BYTES,
    MAX_FILES,
    SUFFIXES,
    SourceFile,
    decoded,
    report_missing,
    report_no_files,
    report_too_large,
    report_too_many,
    report_unreadable,
)
from rules_engine.model.excerpt import truncate, visible
from rules_engine.model.problem_codes import Code
from rules_engine.model.source import Location

GIT_SECONDS = 60.0
"""Timeout of reading a revision: 10,000 files of a packed repository take 0.7 s."""

MAX_TREE_BYTES = 4 * 1024 * 1024
"""Largest folder: some 80,000 entries of 50 bytes."""

MAX_LINK_BYTES = 4096
"""Longest target of a link, PATH_MAX of Linux."""

MAX_LINKS = 40
"""Links that one path may go through, as on Linux."""

MAX_DEPTH = 256
"""Depth of folders. Paths of 4,096 characters could have more, which no repository has."""

MAX_FOLDERS = 20_000
"""Folders below a path. Small trees that contain each other many times could have any number."""

MAX_PATH = 4096
"""Characters of a name in messages, PATH_MAX of Linux: entries of a tree may have longer names than a file system."""

MAX_HEADER_BYTES = 64 * 1024
"""Longest line before an object: it repeats a name that was not found."""

MAX_MESSAGE = 512
"""Characters of git's error message in a problem."""

_CHUNK_BYTES = 256 * 1024

_FOLDER, _LINK, _SUBMODULE = "40000", "120000", "160000"
"""Modes of entries; all others are files."""


_HEADER = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (blob|tree|commit|tag) ([0-9]+)\n")
"""The line before an object: its hash, its type and its size."""

_ENTRIES = {size: re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{%d})" % size, re.DOTALL) for size in (20, 32)}
"""An entry of a folder by the size of hashes, SHA-1 or SHA-256: its mode, its name and its hash."""

_NOT_FETCHED = re.compile("could not fetch [0-9a-f]+ from promisor remote|transport '[^']*' not allowed")
"""Messages of git about an object that a partial clone lacks: git before 2.45 may end with the second one alone."""

LEAVES = "the path leaves the tree of the revision, which alone has known content"

SUBMODULE = "a submodule: its files are in another repository"


class GitError(Exception):
    """Git cannot read a revision; the message is one line."""


class _RefusedError(Exception):
    """A path that is not read, since its content is not that of the revision."""


class _Entry(NamedTuple):
    """An entry of a folder: its mode and the name of its object."""

    mode: str
    object: str


class _Found(NamedTuple):
    """The place of a path after links: its path from the root of the tree, and its entry."""

    path: tuple[str, ...]
    entry: _Entry


def revision_files(
    revision: str, path: str, diagnostics: Diagnostics, seconds: float = GIT_SECONDS
) -> list[SourceFile]:
    """Read the rule files of a path at a revision, as `find_files` and `read_file` do for one on disk.

    `path` counts from the root of the repository, or from the current folder if it begins with `./` or `../`, as for
    `git show`. The name of a file in messages is `git:REVISION:PATH`.
    """
    name = f"git:{revision}:{path.rstrip('/') or '.'}"
    try:
        from_root = _from_root(path, seconds)
        with _objects(seconds) as objects:
            return _Revision(revision, objects, diagnostics).files(from_root, name)
    except GitError as error:
        diagnostics.error(Code.UNREADABLE_FILE, f"cannot be read: {error}", Location(name, 1, 1))
        return []


def _from_root(path: str, seconds: float) -> str:
    """Return a path from the root of the repository."""
    if path.split("/", 1)[0] not in (".", ".."):
        return path
    try:
        done = subprocess.run(  # noqa: S603 - our own arguments
            _command("rev-parse", "--show-prefix"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            env=_environment(),
        )
    except OSError as error:
        raise GitError(_not_run(error)) from None
    except subprocess.TimeoutExpired:
        raise GitError(_timed_out(seconds)) from None
    if done.returncode:
        raise GitError(_message(done.stderr))
    return f"{os.fsdecode(done.stdout).removesuffix(chr(10))}{path}"


def _command(*arguments: str) -> Sequence[str]:
    return ("git", "--no-pager", "-c", "core.fsmonitor=false", *arguments)


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        # A partial clone fetches an object that it lacks, and the configuration of the repository may allow a protocol
        # that runs a command: an empty list allows none. Versions of git before 2.45 do not know the second variable.
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


def _not_run(error: OSError) -> str:
    return f"git cannot be run: {error.strerror or error}"


def _timed_out(seconds: float) -> str:
    return f"git takes longer than {seconds:g} s"


def _message(stderr: bytes) -> str:
    """Return git's error message in one line."""
    text = " ".join(stderr.decode(errors="replace").split())
    if _NOT_FETCHED.search(text):
        return _not_stored("an object")
    return visible(text)[:MAX_MESSAGE] or "git ended without a message"


def _not_stored(name: str) -> str:
    return f"{name} is not stored here: fetch it first if this is a partial clone"


class Objects:
    """Objects of a repository by name, read from `git cat-file --batch`."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests = requests
        self._answers = answers

    def read(self, name: str, kind: str, limit: int) -> tuple[str, bytes | None] | None:
        """Return an object's hash, and its content: None if that is larger. Return None if there is none of this kind.

        `name` has no line end. Raises EOFError if git ends.
        """
        try:
            self._requests.write(os.fsencode(name) + b"\n")
            self._requests.flush()
        except OSError:  # git has ended
            raise EOFError from None
        line = self._answers.readline(MAX_HEADER_BYTES)
        if not line.endswith(b"\n"):
            raise EOFError
        header = _HEADER.fullmatch(line)
        if header is None:  # missing or ambiguous
            return None
        size = int(header[3])
        content = None
        if size <= limit:
            content = self._exactly(size)
        else:
            self._skip(size)
        self._skip(1)
        return (header[1].decode("ascii"), content) if header[2] == kind.encode("ascii") else None

    def _exactly(self, size: int) -> bytes:
        content = self._answers.read(size)
        if len(content) < size:
            raise EOFError
        return content

    def _skip(self, size: int) -> None:
        while size:
            size -= len(self._exactly(min(size, _CHUNK_BYTES)))


@contextmanager
def _objects(seconds: float) -> Iterator[Objects]:
    """Run git while the block runs, at most so many seconds. Raises GitError if it ends before the block."""
    late = Event()

    def end() -> None:
        late.set()
        process.kill()

    with TemporaryFile() as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own arguments
                _command("cat-file", "--batch"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(),
            )
        except OSError as error:
            raise GitError(_not_run(error)) from None
        timer = Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield Objects(cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout))
        except EOFError:
            process.wait()
            errors.seek(0)
            raise GitError(_timed_out(seconds) if late.is_set() else _message(errors.read(8 * MAX_MESSAGE))) from None
        finally:
            timer.cancel()
            timer.join()  # no thread may be left when the caller forks
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):  # a request that git did not read
                    cast(IO[bytes], stream).close()


class _Revision:
    """The tree of a revision. Every method raises EOFError if git ends."""

    def __init__(self, revision: str, objects: Objects, diagnostics: Diagnostics) -> None:
        self._objects = objects
        self._diagnostics = diagnostics
        self._seen: set[tuple[str, ...]] = set()
        """Folders and files that were read, by their paths after links."""
        self._folders = 0
        found = objects.read(f"{revision}^{{tree}}", "tree", 0)
        if found is None:
            raise GitError(f"revision '{truncate(revision)}' not found: fetch it first if this is a shallow clone")
        self._root = _Entry(_FOLDER, found[0])

    def files(self, path: str, name: str) -> list[SourceFile]:
        """Read a file, or the rule files of a folder; `name` is its name in messages."""
        files: list[SourceFile] = []
        left = MAX_CLUSTER_BYTES
        reported = len(self._diagnostics.problems)
        found = self._resolved(path.split("/"), name)
        if found is None:
            return files
        is_folder = found.entry.mode == _FOLDER
        inside = self._walk(found, name, 0) if is_folder else iter([(name, found.entry)])
        count = 0
        for file, entry in inside:
            count += 1
            if count > MAX_FILES:
                report_too_many(name, MAX_FILES, self._diagnostics)
                return []
            limit = MAX_CLUSTER_BYTES if file.endswith(".json") else MAX_FILE_BYTES
            content = self._content(entry, min(limit, left))
            if content is not None:
                left -= len(content)
                source = decoded(Path(file), content, self._diagnostics)
                files.extend(() if source is None else (source,))
            elif left < limit:
                message = f"more than {MAX_CLUSTER_BYTES // 2**20} MiB of files: is this the right folder?"
                self._diagnostics.error(Code.TOO_MANY_FILES, message, Location(name, 1, 1))
                return []
            else:
                report_too_large(file, limit, self._diagnostics)
        if not count and len(self._diagnostics.problems) == reported:
            report_no_files(name, self._diagnostics)
        return files

    def _walk(self, folder: _Found, name: str, depth: int) -> Iterator[tuple[str, _Entry]]:
        """Yield the rule files of a folder in order of name, without hidden entries, each once."""
        if folder.path in self._seen:
            return
        self._seen.add(folder.path)
        self._folders += 1
        if self._folders > MAX_FOLDERS:
            raise GitError(f"more than {MAX_FOLDERS:,} folders: is this the right one?")
        if depth == MAX_DEPTH:
            self._report_unreadable(name, f"more than {MAX_DEPTH} folders in one another")
            return
        for part, entry in sorted(self._entries(folder.entry).items()):
            if part.startswith("."):
                continue
            inside = f"{name}/{part}"
            if len(inside) > MAX_PATH:
                self._report_unreadable(name, f"an entry has a path of more than {MAX_PATH:,} characters")
                continue
            is_rules = Path(part).suffix in SUFFIXES
            found: _Found | None = _Found((*folder.path, part), entry)
            if entry.mode in (_LINK, _SUBMODULE):
                found = self._resolved((*folder.path, part), inside, needed=is_rules)
            if found is None:
                continue
            if found.entry.mode == _FOLDER:
                yield from self._walk(found, inside, depth + 1)
            elif is_rules and found.path not in self._seen:
                self._seen.add(found.path)
                yield inside, found.entry

    def _resolved(self, parts: Sequence[str], name: str, *, needed: bool = True) -> _Found | None:
        """Return the file or folder of a path; None, with a problem, if there is none.

        A path that is not `needed` may be missing or unreadable.
        """
        try:
            return self._resolve(parts)
        except FileNotFoundError:
            if needed:
                report_missing(name, self._diagnostics)
        except OSError as error:
            if needed:
                report_unreadable(Path(name), error, self._diagnostics)
        except _RefusedError as error:
            self._diagnostics.error(Code.NOT_A_REGULAR_FILE, str(error), Location(name, 1, 1))
        return None

    def _resolve(self, parts: Sequence[str]) -> _Found:
        """Follow a path and its links. Raises OSError as a file system would, and _RefusedError."""
        above: list[tuple[str, _Entry]] = [("", self._root)]
        left = list(reversed(parts))
        links = 0
        while left:
            part = left.pop()
            if above[-1][1].mode != _FOLDER:  # even before "." and ".."
                raise FileNotFoundError
            if part in ("", "."):
                continue
            if part == "..":
                above.pop()
                if not above:
                    raise _RefusedError(LEAVES)
                continue
            entry = self._entries(above[-1][1]).get(part)
            if entry is None:
                raise FileNotFoundError
            if entry.mode == _SUBMODULE:
                raise _RefusedError(SUBMODULE)
            if entry.mode != _LINK:
                above.append((part, entry))
                continue
            links += 1
            target = self._content(entry, MAX_LINK_BYTES)
            if target is None:
                raise OSError(ENAMETOOLONG, os.strerror(ENAMETOOLONG))
            if links > MAX_LINKS:
                raise OSError(ELOOP, os.strerror(ELOOP))
            if target.startswith(b"/"):
                raise _RefusedError(LEAVES)
            left.extend(reversed(os.fsdecode(target).split("/")))
        return _Found(tuple(part for part, _ in above[1:]), above[-1][1])

    def _entries(self, folder: _Entry) -> Mapping[str, _Entry]:
        """Return the entries of a folder by name."""
        content = self._content(folder, MAX_TREE_BYTES)
        if content is None:
            raise GitError(f"a folder has an index of more than {MAX_TREE_BYTES // 2**20} MiB")
        entries: dict[str, _Entry] = {}
        form = _ENTRIES[len(folder.object) // 2]
        end = 0
        while end < len(content):
            found = form.match(content, end)
            if found is None:
                raise GitError(f"object {folder.object} is malformed")
            entries[os.fsdecode(found[2])] = _Entry(found[1].decode("ascii").lstrip("0"), found[3].hex())
            end = found.end()
        return entries

    def _content(self, entry: _Entry, limit: int) -> bytes | None:
        """Return the content of an entry; None if it is larger than `limit`. Raises GitError if it is not stored."""
        found = self._objects.read(entry.object, "tree" if entry.mode == _FOLDER else "blob", limit)
        if found is None:
            raise GitError(_not_stored(f"object {entry.object}"))
        return found[1]

    def _report_unreadable(self, name: str, reason: str) -> None:
        self._diagnostics.error(Code.UNREADABLE_FILE, f"cannot be read: {reason}", Location(name, 1, 1))
