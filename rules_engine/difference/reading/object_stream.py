"""Objects of a list in JSON, such as the output of `kubectl get … -A -o json`, read one by one in several passes."""

import os
from collections.abc import Callable, Iterator
from errno import EFBIG
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Self, cast

from rules_engine.loading.files import STDIN, standard_input
from rules_engine.loading.json_items import LenientItems, ListError, parse_lenient
from rules_engine.loading.json_list import CHUNK_BYTES, JsonList
from rules_engine.model.json.lenient import Object, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problems

MAX_LIST_BYTES = 64 * 1024 * 1024 * 1024
"""Largest list. Memory does not depend on it, but standard input is copied to a disk that others use."""

Progress = Callable[[int], None]
"""A function that gets the number of bytes that were just read."""


class ObjectFile:
    """A file that is read from its beginning several times; standard input and pipes are copied to a temporary file.

    Opening it raises OSError.
    """

    def __init__(self, path: Path, progress: Progress = lambda _read: None) -> None:
        self.name = str(path)
        self._progress = progress
        self._file = _open_file(path)
        self._at = 0
        self._end: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    @property
    def size(self) -> int:
        """The number of its bytes."""
        return os.fstat(self._file.fileno()).st_size

    def rewind(self) -> None:
        """Go back to the beginning."""
        self._at = 0

    def read(self, size: int, /) -> bytes:
        """Return the next bytes: in later passes, no more than in the first pass, since a log may grow.

        Raises OSError, also if the file has become shorter.
        """
        if self._end is not None:
            size = min(size, self._end - self._at)
        chunk = os.pread(self._file.fileno(), size, self._at)
        self._at += len(chunk)
        if size and not chunk:
            if self._end is not None:
                raise OSError("it was made shorter while it was read")
            self._end = self._at
        self._progress(len(chunk))
        return chunk

    def objects(self, problems: Problems) -> Iterator[dict[str, Json]]:
        """Yield the objects of the list from its beginning, or the object of a file without a list.

        Items without a kind get the kind of their list. A list that is cut or not JSON is an error after its last
        readable object. Raises OSError.
        """
        self.rewind()
        listed = JsonList(self.name, self.read(CHUNK_BYTES), self, MAX_LIST_BYTES, LenientItems(parse_lenient).scan)
        try:
            for _, item in listed.items():  # noqa: PERF102 - no dict
                if isinstance(item, dict):
                    yield item if "kind" in item else {"kind": _kind_of_items(listed.members), **item}
        except ListError as error:
            problems.error(error.code, str(error), listed.here())
        else:
            if not listed.listed and listed.members:
                yield listed.members


def _kind_of_items(members: Object) -> str:
    """Return the kind of items without a kind: kubectl writes the kind of a PodList before its items."""
    return text_member(members, "kind").removesuffix("List")


def _open_file(path: Path) -> BinaryIO:
    if path == STDIN:
        return _copy_to_disk(standard_input())
    file = path.open("rb")
    if file.seekable():
        return file
    with file:
        return _copy_to_disk(file)


def _copy_to_disk(source: BinaryIO) -> BinaryIO:
    """Copy a stream to a temporary file. Raises OSError, also if the disk is full or the stream too long."""
    file = cast(BinaryIO, TemporaryFile())  # noqa: SIM115 - closed by ObjectFile
    try:
        while chunk := source.read(CHUNK_BYTES):
            if file.tell() + len(chunk) > MAX_LIST_BYTES:
                raise OSError(EFBIG, os.strerror(EFBIG))
            file.write(chunk)
        file.flush()
    except BaseException:
        file.close()
        raise
    return file
