"""Temporary file that one process writes and several processes read."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile


class Spool:
    """A temporary file without a name: nothing is left of it, however the processes end. `size`: bytes written.

    Raises OSError with a message that names the disk as the cause.
    """

    def __init__(self) -> None:
        self.size = 0
        with _explain_errors():
            self._file = TemporaryFile()  # noqa: SIM115 - closed by close

    def write(self, data: bytes) -> None:
        """Append bytes."""
        with _explain_errors():
            self._file.write(data)
        self.size += len(data)

    def flush(self) -> None:
        """Write all to the file, so that it can be read."""
        with _explain_errors():
            self._file.flush()

    def fileno(self) -> int:
        """Return its descriptor, whose offset forked processes share."""
        return self._file.fileno()

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # from writing buffered data
            self._file.close()


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(f"no temporary file in TMPDIR: {error.strerror}") from None
