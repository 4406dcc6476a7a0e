"""The share of the input that one of several processes decides."""

RUN_LENGTH = 64
"""Consecutive objects that one process takes: adjacent objects often belong to one workload, whose decisions are
cached."""

_FILE_BITS = 40
"""Bits of the position of an object within its file: no file has as many bytes."""


class Share:
    """The pods that one of several processes takes, in runs of RUN objects in turn. Every process reads all files.

    `number`: of the last object in its file. `position`: of it in the whole input, the same in every process.
    """

    def __init__(self, process: int = 0, processes: int = 1) -> None:
        self._process = process
        self._processes = processes
        self._file = -1
        self.number = -1

    def begin_file(self) -> None:
        """Begin the next file. Every process begins all files in the same order."""
        self._file += 1
        self.number = -1

    @property
    def takes_file(self) -> bool:
        """True if the process takes the whole file, whose objects cannot be skipped unread."""
        return self._file % self._processes == self._process

    def next_object(self) -> None:
        """Go to the next object of the file."""
        self.number += 1

    def takes(self) -> bool:
        """Go to the next object of the file; return True if the process takes it."""
        self.next_object()
        return self.number // RUN_LENGTH % self._processes == self._process

    @property
    def position(self) -> int:
        return (self._file << _FILE_BITS) + self.number
