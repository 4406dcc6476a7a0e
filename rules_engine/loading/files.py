"""Paths → the text of the files behind them."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rules_engine.loading.report import Report
from rules_engine.model.source import Location

MAX_FILE_BYTES = 4 * 1024 * 1024
"""A ConfigMap holds 1 MiB; four times that leaves room for rule tests and inventories, which never enter one."""

MAX_FILES = 10_000
"""Files read in one run: a folder given by mistake (a home, a root) ends early."""

SUFFIXES = frozenset({".yaml", ".yml", ".json"})

_NOT_RULES = frozenset({"kustomization.yaml", "kustomization.yml"})
"""Kustomize finds these by name, beside the rules that it makes a ConfigMap of."""

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file's text; `name` is how messages call it, `lines` are without their ends."""

    name: str
    text: str
    lines: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(self.lines_of(self.text)))

    @staticmethod
    def lines_of(text: str) -> list[str]:
        """Lines as YAML counts them, the last one too where it is empty."""
        return _LINE_END.split(text)

    @property
    def is_json(self) -> bool:
        return self.name.endswith(".json")


def find_files(paths: Sequence[Path], report: Report) -> tuple[Path, ...]:
    """The files behind paths, each once: folders are walked in order of name, hidden entries left out.

    A mounted ConfigMap is a folder of links into `..data`, itself a link into `..2026_…`: both are hidden.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if not path.is_dir():
            found.setdefault(os.path.realpath(path), path)
            continue
        before = len(found)
        any_file = False
        for file in _walk(path, frozenset()):
            any_file = True
            found.setdefault(os.path.realpath(file), file)
            if len(found) > MAX_FILES:
                message = f"more than {MAX_FILES:,} files: is this the right folder?"
                report.error("too-many-files", message, Location(str(path), 1, 1))
                return tuple(found.values())[:before]
        if not any_file:
            report.error("no-files", "no .yaml, .yml or .json file in this folder", Location(str(path), 1, 1))
    return tuple(found.values())


def _walk(folder: Path, above: frozenset[str]) -> Iterator[Path]:
    real = os.path.realpath(folder)
    if real in above:  # a link back up
        return
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return
    for name in names:
        path = folder / name
        if name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk(path, above | {real})
        elif path.suffix in SUFFIXES and name not in _NOT_RULES:
            yield path


def read_file(path: Path, report: Report, limit: int = MAX_FILE_BYTES) -> SourceFile | None:
    """A file's text; None, and a problem, where it cannot be had."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        report.error("missing-file", "there is no such file or folder", Location(str(path), 1, 1))
        return None
    except OSError as error:
        message = f"the file cannot be read: {error.strerror or error}"
        report.error("unreadable-file", message, Location(str(path), 1, 1))
        return None
    return decode(str(path), data, report, limit)


def decode(name: str, data: bytes, report: Report, limit: int = MAX_FILE_BYTES) -> SourceFile | None:
    """Bytes as text: UTF-8, a byte order mark left out; None, and a problem, where it is not that or too much."""
    if len(data) > limit:
        report.error("file-too-large", f"the file is larger than {limit / 2**20:g} MiB", Location(name, 1, 1))
        return None
    try:
        return SourceFile(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        lines = SourceFile.lines_of(before)
        message = f"byte 0x{data[error.start]:02X} is not UTF-8: save the file as UTF-8"
        report.error("not-utf-8", message, Location(name, len(lines), len(lines[-1]) + 1))
        return None
