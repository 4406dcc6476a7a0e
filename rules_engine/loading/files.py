"""Paths → the text of the files behind them."""

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from pathlib import Path

from rules_engine.loading.codes import Code
from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.model.source import Location

MAX_FILE_BYTES = 4 * 1024 * 1024
"""A ConfigMap holds 1 MiB; four times that leaves room for rule tests and inventories, which never enter one."""

MAX_CLUSTER_BYTES = 256 * 1024 * 1024
"""What kubectl prints for some 8,000 nodes, at 32 kB each."""

MAX_FILES = 10_000
"""Files read in one run: a folder given by mistake (a home, a root) ends early."""

STDIN = Path("<stdin>")
"""Standard input in place of a file, and how messages call it. What it refers to is sought in the current folder."""

SUFFIXES = frozenset({".yaml", ".yml", ".json"})

NOT_REGULAR = "it is no regular file: rules are not read from pipes, devices and the kernel's files, such as /proc"

_NOT_RULES = frozenset({"kustomization.yaml", "kustomization.yml"})
"""Kustomize finds these by name, beside the rules that it makes a ConfigMap of."""

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True)
class SourceFile:
    """A file's text; `name` is how messages call it."""

    name: str
    text: str
    is_json: bool = False

    @cached_property
    def lines(self) -> Sequence[str]:
        """Lines without their ends, as YAML counts them; the last one too where it is empty."""
        return _LINE_END.split(self.text)


def is_folder(path: Path) -> bool:
    """Path.is_dir, which itself raises for names that no file system takes."""
    try:
        return path.is_dir()
    except OSError:
        return False


def exists(path: Path) -> bool:
    """Path.exists, which itself raises for names that no file system takes."""
    try:
        return path.exists()
    except OSError:
        return False


def find_files(paths: Sequence[Path], diagnostics: Diagnostics) -> tuple[Path, ...]:
    """The files behind paths, each once: folders are walked in order of name, hidden entries left out.

    A mounted ConfigMap is a folder of links into `..data`, itself a link into `..2026_…`: both are hidden.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if not is_folder(path):
            found.setdefault(os.path.realpath(path), path)
            continue
        before = len(diagnostics.problems)
        inside = list(islice(_walk(path, frozenset(), diagnostics), MAX_FILES + 1))
        if len(inside) > MAX_FILES:
            message = f"more than {MAX_FILES:,} files: is this the right folder?"
            diagnostics.error(Code.TOO_MANY_FILES, message, Location(str(path), 1, 1))
            continue
        if not inside and len(diagnostics.problems) == before:
            message = "no .yaml, .yml or .json file in this folder"
            diagnostics.error(Code.NO_FILES, message, Location(str(path), 1, 1))
        for file in inside:
            found.setdefault(os.path.realpath(file), file)
    return tuple(found.values())


def _walk(folder: Path, above: frozenset[str], diagnostics: Diagnostics) -> Iterator[Path]:
    here = os.path.realpath(folder)
    if here in above:  # a link back up
        return
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        _report_unreadable(folder, error, diagnostics)
        return
    for path in entries:
        if path.name.startswith("."):
            continue
        if is_folder(path):
            yield from _walk(path, above | {here}, diagnostics)
        elif path.suffix in SUFFIXES and path.name not in _NOT_RULES and not _is_special(path):
            yield path


def _is_special(path: Path) -> bool:
    """A pipe or a device: to read one that nobody named may take for ever. A link that leads nowhere is a mistake."""
    return os.path.exists(path) and not os.path.isfile(path)  # noqa: PTH110, PTH113 - Path's raise where links go in a circle


def read_file(path: Path, diagnostics: Diagnostics, *, regular: bool = False) -> SourceFile | None:
    """A file's text: UTF-8, a byte order mark left out; None, and a problem, where it cannot be had.

    With `regular`, pipes, devices and files of the kernel are problems, and are never waited for. Links are followed.
    """
    is_json = path.suffix == ".json"
    limit = MAX_CLUSTER_BYTES if is_json else MAX_FILE_BYTES
    opener = _open_at_once if regular else None
    try:
        with nullcontext(sys.stdin.buffer) if path == STDIN else open(path, "rb", opener=opener) as file:
            if regular and path != STDIN and not _is_regular(os.fstat(file.fileno())):
                diagnostics.error(Code.NOT_A_REGULAR_FILE, NOT_REGULAR, Location(str(path), 1, 1))
                return None
            data = file.read(limit + 1)
    except FileNotFoundError:
        diagnostics.error(Code.MISSING_FILE, "there is no such file or folder", Location(str(path), 1, 1))
        return None
    except OSError as error:
        _report_unreadable(path, error, diagnostics)
        return None
    if len(data) > limit:
        report_too_large(str(path), limit, diagnostics)
        return None
    try:
        text = data.decode("utf-8-sig")
        return SourceFile(str(path), text, is_json or (path == STDIN and text.lstrip().startswith("{")))
    except UnicodeDecodeError as error:
        before = SourceFile(str(path), data[: error.start].decode("utf-8-sig")).lines
        message = f"byte 0x{data[error.start]:02X} is not UTF-8: save the file as UTF-8"
        diagnostics.error(Code.NOT_UTF_8, message, Location(str(path), len(before), len(before[-1]) + 1))
        return None


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for a writer, which a pipe may never have."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_regular(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_dev not in _kernel_devices()


@cache
def _kernel_devices() -> frozenset[int]:
    """Devices of file systems whose files pass for regular ones, such as /proc/self/environ with all its secrets."""
    return frozenset(os.stat(path).st_dev for path in ("/proc", "/sys") if os.path.ismount(path))  # noqa: PTH116 - as above


def report_too_large(name: str, limit: int, diagnostics: Diagnostics) -> None:
    """Reports a file that is larger than a bound in bytes."""
    diagnostics.error(Code.FILE_TOO_LARGE, f"the file is larger than {limit // 2**20} MiB", Location(name, 1, 1))


def _report_unreadable(path: Path, error: OSError, diagnostics: Diagnostics) -> None:
    diagnostics.error(Code.UNREADABLE_FILE, f"it cannot be read: {error.strerror or error}", Location(str(path), 1, 1))
