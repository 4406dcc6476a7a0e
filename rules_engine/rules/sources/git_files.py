"""Rule files of a git revision, read from the repository of the current folder without checking anything out.

Links within the tree are followed, as in a checkout; submodules, and links that leave the tree, are problems.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from errno import ELOOP
from pathlib import Path

from rules_engine.language import files as reading
from rules_engine.language.files import MAX_CLUSTER_BYTES, MAX_FILE_BYTES, SUFFIXES, SourceFile
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location, escape_controls, truncate

MAX_LINKS = 40
"""Links that one path may go through, as in Linux (path_resolution(7))."""

MAX_MESSAGE = 512
"""Characters of git's error message in a problem."""

_LINK, _SUBMODULE = "120000", "160000"
"""Modes of entries; entries of any other mode are files."""

LEAVES = "the path leaves the tree of the revision, which alone has known content"
SUBMODULE = "a submodule: its files are in another repository"


class _GitError(Exception):
    """Git cannot read a revision."""


class _RefusedError(Exception):
    """A path is not read, since its content is not part of the revision."""


def revision_files(revision: str, path: str, problems: Problems) -> list[SourceFile]:
    """Read the rule files of a path at a revision, as `find_files` and `read_file` do on disk.

    `path` is relative to the root of the repository, or to the current folder if it begins with `./` or `../`, as in
    `git show`. The name of a file in messages is `git:REVISION:PATH`.
    """
    name = f"git:{revision}:{path.rstrip('/') or '.'}"
    try:
        # Outside of a repository, this command fails, with a message about it.
        prefix = os.fsdecode(_run_git("rev-parse", "--show-prefix")).removesuffix("\n")
        if path.split("/", 1)[0] not in (".", ".."):
            prefix = ""
        return [*_Revision(revision, problems).files(f"{prefix}{path}", name)]
    except _GitError as error:
        problems.error(Code.UNREADABLE_FILE, f"cannot be read: {error}", Location(name, 1, 1))
        return []


def _run_git(*arguments: str, stdin: bytes = b"") -> bytes:
    """Run git in the current folder and return its output. Raises _GitError."""
    line = ("git", *arguments)
    try:
        process = subprocess.run(line, input=stdin, capture_output=True, check=False)  # noqa: S603 - our own arguments
    except OSError as error:
        raise _GitError(f"git cannot be run: {error.strerror}") from None
    if process.returncode:
        message = escape_controls(" ".join(process.stderr.decode(errors="replace").split()))
        raise _GitError(message[:MAX_MESSAGE] or "git ended without a message")
    return process.stdout


def _read_objects(objects: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of objects by their names. Raises _GitError."""
    names = dict.fromkeys(objects)
    output = _run_git("cat-file", "--batch", stdin="".join(f"{name}\n" for name in names).encode())
    contents, position = dict[str, bytes](), 0
    for name in names:
        begin = output.index(b"\n", position) + 1
        header = output[position:begin].split()  # its name, its type and its size
        if len(header) < 3:
            raise _GitError(f"object {name} is not stored in this repository")
        position = begin + int(header[2]) + 1
        contents[name] = output[begin : position - 1]
    return contents


class _Revision:
    """The tree of a revision, by paths from its root. Raises _GitError."""

    def __init__(self, revision: str, problems: Problems) -> None:
        self._problems = problems
        self._entries: dict[str, tuple[str, str]] = {}  # modes and object names of files, links and submodules
        self._folders: dict[str, set[str]] = {"": set()}  # the names of entries in each folder
        self._seen: set[str] = set()  # paths after links of the folders and files read so far
        try:
            # In two steps: git would parse all of `HEAD@{1 day ago} x^{tree}` as a date.
            commit = _run_git("rev-parse", "--verify", "--end-of-options", revision).decode().strip()
            tree = _run_git("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()
        except _GitError:
            message = f"revision '{truncate(revision)}' not found: fetch it first if this is a shallow clone"
            raise _GitError(message) from None
        for line in _run_git("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0")[:-1]:
            entry, _, raw_path = line.partition(b"\t")
            mode, _, name = entry.decode("ascii").split()
            path = os.fsdecode(raw_path)
            self._entries[path] = mode, name
            while path:
                path, _, last = path.rpartition("/")
                self._folders.setdefault(path, set()).add(last)
        self._targets = _read_objects(name for mode, name in self._entries.values() if mode == _LINK)

    def files(self, path: str, name: str) -> Iterator[SourceFile]:
        """Read a file, or the rule files of a folder; `name` is its name in messages."""
        reported = len(self._problems.items)
        if (target := self._resolve_or_report(path, name)) is None:
            return
        files = {name: target} if target in self._entries else dict(self._walk(target, name))
        if not files and len(self._problems.items) == reported:
            reading.report_no_files(name, self._problems)
        contents = _read_objects(self._entries[path][1] for path in files.values())
        for file, path in files.items():
            content = contents[self._entries[path][1]]
            limit = MAX_CLUSTER_BYTES if file.endswith(".json") else MAX_FILE_BYTES
            if len(content) > limit:
                reading.report_too_large(file, limit, self._problems)
            elif source := reading.decode_source(Path(file), content, self._problems):
                yield source

    def _walk(self, folder: str, name: str) -> Iterator[tuple[str, str]]:
        """Yield name and path of each rule file in a folder, by name, without hidden entries and duplicates."""
        self._seen.add(folder)
        for part in sorted(self._folders[folder]):
            if part.startswith("."):
                continue
            inside = f"{name}/{part}"
            is_rules = Path(part).suffix in SUFFIXES
            target = self._resolve_or_report(f"{folder}/{part}", inside, needed=is_rules)
            if target is None or target in self._seen:
                continue
            if target in self._folders:
                yield from self._walk(target, inside)
            elif is_rules:
                self._seen.add(target)
                yield inside, target

    def _resolve_or_report(self, path: str, name: str, *, needed: bool = True) -> str | None:
        """Return a path after links; None if it is not found, which is reported if it is `needed`."""
        try:
            return self._resolve(path)
        except FileNotFoundError:
            if needed:
                reading.report_missing(name, self._problems)
        except OSError as error:  # a circle of links
            if needed:
                reading.report_unreadable(Path(name), error, self._problems)
        except _RefusedError as error:
            self._problems.error(Code.NOT_A_REGULAR_FILE, str(error), Location(name, 1, 1))
        return None

    def _resolve(self, path: str) -> str:
        """Follow a path and its links. Raises OSError as a file system would, and _RefusedError."""
        resolved: list[str] = []
        remaining = path.split("/")[::-1]
        links = 0
        while remaining:
            part = remaining.pop()
            folder = self._folders.get("/".join(resolved))
            if folder is None:  # `file/.` and `file/..` do not exist either
                raise FileNotFoundError
            if part in ("", "."):
                continue
            if part == "..":
                if not resolved:
                    raise _RefusedError(LEAVES)
                resolved.pop()
                continue
            if part not in folder:
                raise FileNotFoundError
            mode, name = self._entries.get("/".join((*resolved, part)), ("", ""))
            if mode == _SUBMODULE:
                raise _RefusedError(SUBMODULE)
            if mode != _LINK:
                resolved.append(part)
                continue
            target = os.fsdecode(self._targets[name])
            if target.startswith("/"):
                raise _RefusedError(LEAVES)
            links += 1
            if links > MAX_LINKS:
                raise OSError(ELOOP, os.strerror(ELOOP))
            remaining += target.split("/")[::-1]
        return "/".join(resolved)
