"""Rule files of a git revision, read from the repository of the current folder without checking anything out.

Links are followed inside the tree, as a checkout would; submodules, and links that leave the tree, are problems.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from errno import ELOOP
from pathlib import Path

from rules_engine.loading.files import (
    MAX_CLUSTER_BYTES,
    MAX_FILE_BYTES,
    SUFFIXES,
    SourceFile,
    decoded,
    report_missing,
    report_no_files,
    report_too_large,
    report_unreadable,
)
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.excerpt import truncate, visible
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location

MAX_LINKS = 40
"""Links that one path may go through, as on Linux."""

MAX_MESSAGE = 512
"""Characters of git's error message in a problem."""

_LINK, _SUBMODULE = "120000", "160000"
"""Modes of entries; all others are files."""

LEAVES = "the path leaves the tree of the revision, which alone has known content"
SUBMODULE = "a submodule: its files are in another repository"


class _GitError(Exception):
    """Git cannot read a revision."""


class _RefusedError(Exception):
    """A path that is not read, since its content is not that of the revision."""


def revision_files(revision: str, path: str, problems: Problems) -> list[SourceFile]:
    """Read the rule files of a path at a revision, as `find_files` and `read_file` do for one on disk.

    `path` counts from the root of the repository, or from the current folder if it begins with `./` or `../`, as for
    `git show`. The name of a file in messages is `git:REVISION:PATH`.
    """
    name = f"git:{revision}:{path.rstrip('/') or '.'}"
    try:
        # Outside of a repository, this is what fails.
        prefix = os.fsdecode(_git("rev-parse", "--show-prefix")).removesuffix("\n")
        if path.split("/", 1)[0] not in (".", ".."):
            prefix = ""
        return [*_Revision(revision, problems).files(f"{prefix}{path}", name)]
    except _GitError as error:
        problems.error(Code.UNREADABLE_FILE, f"cannot be read: {error}", Location(name, 1, 1))
        return []


def _git(*arguments: str, given: bytes = b"") -> bytes:
    """Return what git prints in the current folder. Raises _GitError."""
    line = ("git", *arguments)
    try:
        done = subprocess.run(line, input=given, capture_output=True, check=False)  # noqa: S603 - our own arguments
    except OSError as error:
        raise _GitError(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        message = visible(" ".join(done.stderr.decode(errors="replace").split()))
        raise _GitError(message[:MAX_MESSAGE] or "git ended without a message")
    return done.stdout


def _contents(objects: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of objects by their names. Raises _GitError."""
    names = dict.fromkeys(objects)
    printed = _git("cat-file", "--batch", given="".join(f"{name}\n" for name in names).encode())
    found, at = dict[str, bytes](), 0
    for name in names:
        begin = printed.index(b"\n", at) + 1
        header = printed[at:begin].split()  # its name, its type and its size
        if len(header) < 3:
            raise _GitError(f"object {name} is not stored in this repository")
        at = begin + int(header[2]) + 1
        found[name] = printed[begin : at - 1]
    return found


class _Revision:
    """The tree of a revision, by paths from its root. Raises _GitError."""

    def __init__(self, revision: str, problems: Problems) -> None:
        self._problems = problems
        self._entries: dict[str, tuple[str, str]] = {}  # modes and object names of files, links and submodules
        self._folders: dict[str, set[str]] = {"": set()}  # the names in each folder
        self._seen: set[str] = set()  # folders and files that were read, by their paths after links
        try:
            # In two steps: git takes all of `HEAD@{1 day ago} x^{tree}` for a date.
            found = _git("rev-parse", "--verify", "--end-of-options", revision).decode().strip()
            tree = _git("rev-parse", "--verify", f"{found}^{{tree}}").decode().strip()
        except _GitError:
            message = f"revision '{truncate(revision)}' not found: fetch it first if this is a shallow clone"
            raise _GitError(message) from None
        for line in _git("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0")[:-1]:
            entry, _, written = line.partition(b"\t")
            mode, _, name = entry.decode("ascii").split()
            path = os.fsdecode(written)
            self._entries[path] = mode, name
            while path:
                path, _, last = path.rpartition("/")
                self._folders.setdefault(path, set()).add(last)
        self._targets = _contents(name for mode, name in self._entries.values() if mode == _LINK)

    def files(self, path: str, name: str) -> Iterator[SourceFile]:
        """Read a file, or the rule files of a folder; `name` is its name in messages."""
        reported = len(self._problems.items)
        if (found := self._resolved(path, name)) is None:
            return
        files = {name: found} if found in self._entries else dict(self._walk(found, name))
        if not files and len(self._problems.items) == reported:
            report_no_files(name, self._problems)
        contents = _contents(self._entries[path][1] for path in files.values())
        for file, path in files.items():
            content = contents[self._entries[path][1]]
            limit = MAX_CLUSTER_BYTES if file.endswith(".json") else MAX_FILE_BYTES
            if len(content) > limit:
                report_too_large(file, limit, self._problems)
            elif source := decoded(Path(file), content, self._problems):
                yield source

    def _walk(self, folder: str, name: str) -> Iterator[tuple[str, str]]:
        """Yield the names and paths of rule files of a folder in order of name, without hidden entries, each once."""
        self._seen.add(folder)
        for part in sorted(self._folders[folder]):
            if part.startswith("."):
                continue
            inside = f"{name}/{part}"
            is_rules = Path(part).suffix in SUFFIXES
            found = self._resolved(f"{folder}/{part}", inside, needed=is_rules)
            if found is None or found in self._seen:
                continue
            if found in self._folders:
                yield from self._walk(found, inside)
            elif is_rules:
                self._seen.add(found)
                yield inside, found

    def _resolved(self, path: str, name: str, *, needed: bool = True) -> str | None:
        """Return a path after links; None if there is none, which is a problem if it is `needed`."""
        try:
            return self._resolve(path)
        except FileNotFoundError:
            if needed:
                report_missing(name, self._problems)
        except OSError as error:  # a circle of links
            if needed:
                report_unreadable(Path(name), error, self._problems)
        except _RefusedError as error:
            self._problems.error(Code.NOT_A_REGULAR_FILE, str(error), Location(name, 1, 1))
        return None

    def _resolve(self, path: str) -> str:
        """Follow a path and its links. Raises OSError as a file system would, and _RefusedError."""
        above: list[str] = []
        left = path.split("/")[::-1]
        links = 0
        while left:
            part = left.pop()
            folder = self._folders.get("/".join(above))
            if folder is None:  # a file, even before "." and ".."
                raise FileNotFoundError
            if part in ("", "."):
                continue
            if part == "..":
                if not above:
                    raise _RefusedError(LEAVES)
                above.pop()
                continue
            if part not in folder:
                raise FileNotFoundError
            mode, name = self._entries.get("/".join((*above, part)), ("", ""))
            if mode == _SUBMODULE:
                raise _RefusedError(SUBMODULE)
            if mode != _LINK:
                above.append(part)
                continue
            target = os.fsdecode(self._targets[name])
            if target.startswith("/"):
                raise _RefusedError(LEAVES)
            links += 1
            if links > MAX_LINKS:
                raise OSError(ELOOP, os.strerror(ELOOP))
            left += target.split("/")[::-1]
        return "/".join(above)
