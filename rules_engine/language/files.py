"""Rule files: paths → text."""

import codecs
import gc
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from errno import EBADF, EINVAL
from functools import cache, cached_property
from gzip import GzipFile
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar

from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Largest rule file: a ConfigMap holds 1 MiB; four times that leaves room for tests and inventories."""

MAX_CLUSTER_BYTES = 2 * 1024 * 1024 * 1024
"""Largest file of a cluster, unpacked: the largest cluster that Kubernetes supports has some 1.5 GiB."""

HEAD_BYTES = 4096
"""Bytes of the beginning of a file that has our apiVersion if it is ours."""

_GROUP = b"gpurules.io/"

GZIP = b"\x1f\x8b"
"""The first bytes of a file that gzip compressed."""

_TAR_OFFSET = 257
"""The offset of the word ustar in an archive."""

MAX_FILES = 10_000
"""Files read in one run: bounds the walk of a folder given by mistake (a home, a root)."""

STDIN = Path("<stdin>")
"""Standard input in place of a file, and its name in messages. Its references are relative to the current folder."""

SUFFIXES = frozenset({".yaml", ".yml", ".json"})

NOT_REGULAR = "not a regular file: rules are not read from pipes, devices or kernel files such as /proc"

OTHER_TOOLS = re.compile(r"kustomization\.ya?ml|(?:.+[-_.])?values(?:[-_.].+)?\.(?:ya?ml|json)|.+\.schema\.json")
"""File names of Kustomize, Helm and JSON Schema: such files may be in a folder of rules, and may have no apiVersion."""

_KUBECTL_TEXT = re.compile(
    r"(?:NAMESPACE {2,})?NAME {2,}[A-Z](?:[A-Z0-9 ()-]*[A-Z0-9)])? *(?:\r?\n|\Z)"
    r"|(?P<describe>Name: {4,}\S.*\r?\n(?:Namespace|Roles|Labels|Priority): {2,})"
)
"""The beginning of what `kubectl get` and `kubectl describe` print for people."""


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector, which would visit many new objects again and again: they have no cycles.

    If several threads do this at once, the first to enter enables it again, when it leaves.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


LINE_END = re.compile(r"\r\n|\n|\r")
"""A line end as YAML counts lines."""


@dataclass(frozen=True)
class SourceFile:
    """A file's text; `name` is its name in messages."""

    name: str
    text: str
    is_json: bool = False
    other_tool: bool = False
    """A large file in JSON without gpu-rules' apiVersion, such as a list of kubectl: its text is not read."""

    @cached_property
    def lines(self) -> Sequence[str]:
        """Lines without their ends, as YAML counts them, with the last one even if it is empty."""
        return LINE_END.split(self.text)


def is_folder(path: Path) -> bool:
    """Return True for a folder. Path.is_dir itself raises for names that no file system accepts."""
    try:
        return path.is_dir()
    except OSError:
        return False


def path_exists(path: Path) -> bool:
    """Return True if a path exists. Path.exists itself raises for names that no file system accepts."""
    try:
        return path.exists()
    except OSError:
        return False


T = TypeVar("T")


def each_of(items: "str | Path | Iterable[T]") -> "Iterable[str | Path | T]":
    """Return several items as they are, and a single name as one."""
    return [items] if isinstance(items, str | Path) else items


def file_state(path: str | Path) -> object:
    """Return a value that differs once a file was written, replaced, added or removed; it is not read."""
    try:
        status = os.stat(path)  # noqa: PTH116 - Path.stat does the same
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def find_files(
    paths: Sequence[Path], problems: Problems, limit: int = MAX_FILES, *, packed: bool = False
) -> tuple[Path, ...]:
    """Find the files of paths, each once; folders are walked in order of name, without hidden entries.

    `packed`: also files in folders that gzip compressed.
    A mounted ConfigMap is a folder of links into `..data`, itself a link into `..2026_…`: both are hidden.
    """
    files: dict[str, Path] = {}
    for path in paths:
        if not is_folder(path):
            files.setdefault(_identity(path), path)
            continue
        before = len(problems.items)
        inside = list(islice(_walk_folder(path, frozenset(), problems, packed=packed), limit + 1))
        if len(inside) > limit:
            message = f"more than {limit:,} files: is this the right folder?"
            problems.error(Code.TOO_MANY_FILES, message, Location(str(path), 1, 1))
            continue
        if not inside and len(problems.items) == before:
            report_no_files(str(path), problems)
        for file in inside:
            files.setdefault(_identity(file), file)
    return tuple(files.values())


def _identity(file: Path) -> str:
    """Return the path of a file without links; of a link that leads nowhere, its own."""
    # realpath takes c.yaml/. for the file c.yaml, which cannot be opened by this path.
    return os.path.realpath(file) if os.path.exists(file) else str(file.absolute())  # noqa: PTH110 - never raises


def _walk_folder(folder: Path, above: frozenset[str], problems: Problems, *, packed: bool) -> Iterator[Path]:
    here = os.path.realpath(folder)
    if here in above:  # a link back up
        return
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        report_unreadable(folder, error, problems)
        return
    for path in entries:
        if path.name.startswith("."):
            continue
        if is_folder(path):
            yield from _walk_folder(path, above | {here}, problems, packed=packed)
        elif (path.with_suffix("") if packed and path.suffix == ".gz" else path).suffix in SUFFIXES and not _is_special(
            path
        ):
            yield path


def _is_special(path: Path) -> bool:
    """Return True for a pipe or a device: reading may block for ever. `read_file` reports a broken link."""
    return os.path.exists(path) and not os.path.isfile(path)  # noqa: PTH110, PTH113 - Path's raise where links go in a circle


def standard_input() -> BinaryIO:
    """Return standard input. Raises OSError if it is closed."""
    if sys.stdin is None:
        raise OSError(EBADF, os.strerror(EBADF))
    return sys.stdin.buffer


def read_file(path: Path, problems: Problems, *, regular: bool = False) -> SourceFile | None:
    """Read a file's text as UTF-8, without a byte order mark; None, with a problem, if it cannot be read.

    With `regular`, pipes, devices and kernel files are problems, and reading never waits for them. Links are followed.
    """
    data = _read_data(path, MAX_FILE_BYTES, problems, regular=regular)
    if data is not None and len(data) > MAX_FILE_BYTES:
        if path.suffix == ".json" and _GROUP not in data[:HEAD_BYTES]:
            return SourceFile(str(path), "", is_json=True, other_tool=True)
        report_too_large(str(path), MAX_FILE_BYTES, problems)
        return None
    return None if data is None else decode_source(path, data, problems)


def read_bytes(path: Path, limit: int, problems: Problems, *, regular: bool = False) -> bytes | None:
    """Read a file, which may be compressed, as UTF-8 without a byte order mark; None with a problem.

    `limit`: in bytes, compressed or not.
    """
    data, place = _read_data(path, limit, problems, regular=regular), Location(str(path), 1, 1)
    try:
        if data is not None and data.startswith(GZIP):
            data = GzipFile(fileobj=BytesIO(data)).read(limit + 1)
            if data[_TAR_OFFSET:].startswith(b"ustar"):
                problems.error(
                    Code.UNREADABLE_FILE, "the file is an archive: unpack it first", Location(str(path), 1, 1)
                )
                return None
        if data is not None and len(data) > limit:
            report_too_large(str(path), limit, problems)
            return None
        return None if data is None else to_utf_8(data)
    except (OSError, EOFError, zlib.error) as error:
        report_unreadable(path, OSError(EINVAL, f"the compressed data is damaged: {error}"), problems)
    except UnicodeDecodeError as error:
        problems.error(Code.NOT_UTF_8, f"the file is not UTF-16: {error.reason}", place)
    return None


def _read_data(path: Path, limit: int, problems: Problems, *, regular: bool) -> bytes | None:
    """Return the content of a file, cut after one more byte than a limit."""
    # Without waiting for a writer, which a pipe may never have.
    opener = (lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) if regular else None
    try:
        with nullcontext(standard_input()) if path == STDIN else open(path, "rb", opener=opener) as file:
            if regular and path != STDIN and not _is_regular(os.fstat(file.fileno())):
                problems.error(Code.NOT_A_REGULAR_FILE, NOT_REGULAR, Location(str(path), 1, 1))
                return None
            # A read of more bytes than a file has would take their memory.
            size = os.fstat(file.fileno()).st_size if path != STDIN else 0
            return file.read(min(limit, size) + 1 if size else limit + 1)
    except FileNotFoundError:
        report_missing(str(path), problems)
    except OSError as error:
        report_unreadable(path, error, problems)
    return None


def to_utf_8(data: bytes) -> bytes:
    """Return a text in UTF-8 without a byte order mark; one in UTF-16 has such a mark. Raises UnicodeDecodeError."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16").encode()
    return data.removeprefix(codecs.BOM_UTF8)


def not_utf_8(error: UnicodeDecodeError) -> str:
    """Return the message about a byte that is not UTF-8."""
    return f"byte 0x{error.object[error.start]:02X} is not UTF-8: save the file as UTF-8"


def decode_source(path: Path, data: bytes, problems: Problems) -> SourceFile | None:
    """Decode the content of a file: UTF-8, or UTF-16 with a byte order mark; None, with a problem, if it is neither."""
    is_json = path.suffix == ".json"
    try:
        text = to_utf_8(data).decode()
        if output := _KUBECTL_TEXT.match(text):
            form = "describe text" if output["describe"] else "table"
            message = f"this is kubectl's {form}: write it with kubectl get -o yaml"
            problems.error(Code.YAML_SYNTAX, message, Location(str(path), 1, 1))
            return None
        return SourceFile(str(path), text, is_json or (path == STDIN and text.lstrip().startswith("{")))
    except UnicodeDecodeError as error:
        before = SourceFile(str(path), error.object[: error.start].decode(error.encoding)).lines
        problems.error(Code.NOT_UTF_8, not_utf_8(error), Location(str(path), len(before), len(before[-1]) + 1))
        return None


def _is_regular(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_dev not in _kernel_devices()


@cache
def _kernel_devices() -> frozenset[int]:
    """Return devices of file systems whose files only seem regular, such as /proc/self/environ with its secrets."""
    return frozenset(os.stat(path).st_dev for path in ("/proc", "/sys") if os.path.ismount(path))  # noqa: PTH116 - as above


def report_missing(name: str, problems: Problems) -> None:
    """Report a file or folder that does not exist."""
    problems.error(Code.MISSING_FILE, "file or folder not found", Location(name, 1, 1))


def report_no_files(name: str, problems: Problems) -> None:
    """Report a folder without a file that may have rules."""
    problems.error(Code.NO_FILES, "no .yaml, .yml or .json file in this folder", Location(name, 1, 1))


def report_too_large(name: str, limit: int, problems: Problems) -> None:
    """Report a file that is larger than a bound in bytes."""
    problems.error(Code.FILE_TOO_LARGE, f"the file is larger than {limit // 2**20} MiB", Location(name, 1, 1))


def report_unreadable(path: Path, error: OSError, problems: Problems) -> None:
    """Report a file that cannot be read."""
    problems.error(Code.UNREADABLE_FILE, f"cannot be read: {error.strerror or error}", Location(str(path), 1, 1))
