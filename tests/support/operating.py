"""Operations on a running server, and callers that observe it meanwhile."""

import http.client
import json
import re
import ssl
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from threading import Event, Thread
from time import monotonic
from typing import Any

from tests.support.server import PATIENCE_SECONDS, Running, encoded, review

METRICS = ("--metrics-listen", "127.0.0.1:0")


def saying(message: str) -> str:
    """Return a rule set that denies everything at /validate with a message, which identifies the set."""
    return (
        "apiVersion: gpurules.io/v1\nkind: Validation\nmetadata: {name: told-apart}\n"
        f'spec: {{validations: [{{expression: "false", message: "{message}"}}]}}\n'
    )


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for a condition that another thread or process fulfils."""
    end = monotonic() + PATIENCE_SECONDS
    while not holds():
        assert monotonic() < end, f"{what}: not in {PATIENCE_SECONDS} seconds"
        Event().wait(0.02)


def until_ended(thread: str) -> None:
    """Wait until no thread has this name. A test that leaves one alive may disturb the next."""
    until(lambda: thread not in [other.name for other in threading.enumerate()], f"the end of thread {thread}")


class Mounted:
    """Folder as the kubelet mounts a ConfigMap or Secret: links into `..data`, a link that is swapped atomically."""

    def __init__(self, folder: Path, files: Mapping[str, str | bytes]) -> None:
        self.folder = folder
        self._count = 0
        folder.mkdir()
        self._write(files)
        (folder / "..data").symlink_to(self._current)
        self._link(files)

    def swap(self, files: Mapping[str, str | bytes]) -> None:
        """Swap the content as AtomicWriter does (kubernetes, pkg/volume/util/atomic_writer.go)."""
        old = self.folder / self._current
        self._write(files)
        (self.folder / "..data_tmp").symlink_to(self._current)
        (self.folder / "..data_tmp").rename(self.folder / "..data")
        self._link(files)
        for path in self.folder.iterdir():
            if not path.name.startswith("..") and path.name not in files:
                path.unlink()
        rmtree(old)

    @property
    def _current(self) -> str:
        return f"..2026_11_21_{self._count}"

    def _write(self, files: Mapping[str, str | bytes]) -> None:
        self._count += 1
        folder = self.folder / self._current
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def _link(self, files: Mapping[str, str | bytes]) -> None:
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")


def metrics_url(running: Running) -> str:
    found = re.search(r"metrics at (http://[^\s\"]+)", running.logged())
    assert found, running.logged()
    return found[1]


def fetched(url: str) -> tuple[int, str]:
    """Return status and body of a GET without TLS."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def rules_report(running: Running) -> dict[str, Any]:
    """Return the body of GET /rules."""
    status, body = fetched(f"{metrics_url(running)}/rules")
    assert status == 200
    report: dict[str, Any] = json.loads(body)
    return report


def memory_kib(running: Running) -> int:
    """Return the resident memory."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{running.process.pid}/status").read_text())
    assert found
    return int(found[1])


class Load:
    """Callers that keep sending requests to /validate: some on a kept connection, some on a new one each time."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.answers: Counter[str] = Counter()
        """Number of responses, by the message of the denial."""
        self.failures: Counter[str] = Counter()
        """Number of failures, by phase: connecting, on a kept connection, or on a new one."""
        self.kept: list[list[str]] = []
        """For each caller with a kept connection, the sequence of different messages."""
        self._port = port
        self._context = context
        self._stopping = Event()
        self._body = encoded(review())

    @contextmanager
    def running(self, kept: int = 3, fresh: int = 2) -> Iterator[None]:
        threads = [Thread(target=self._keep) for _ in range(kept)] + [Thread(target=self._anew) for _ in range(fresh)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def wait_for(self, message: str, count: int = 50) -> None:
        """Wait for more responses with a message."""
        goal = self.answers[message] + count
        until(lambda: self.failures or self.answers[message] >= goal, f"{count} answers {message!r}")
        assert not self.failures

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self._port, context=self._context, timeout=PATIENCE_SECONDS)

    def ask(self, connection: http.client.HTTPSConnection) -> tuple[str, bool]:
        """Send a request; return the message, and True if the server closes the connection."""
        connection.request("POST", "/validate", self._body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        message: str = json.loads(answer.read())["response"]["status"]["message"]
        assert answer.status == 200
        return message, answer.will_close

    def _keep(self) -> None:
        seen: list[str] = []
        self.kept.append(seen)
        connection = self.connect()
        while not self._stopping.is_set():
            doing = "kept"
            try:
                if connection.sock is None:
                    doing = "connecting"
                    connection.connect()
                    doing = "kept"
                message, closes = self.ask(connection)
            except (OSError, http.client.HTTPException) as error:
                self.failures[f"{doing}: {error!r}"] += 1
                connection.close()
                continue
            self.answers[message] += 1
            if seen[-1:] != [message]:
                seen.append(message)
            if closes:
                connection.close()
        connection.close()

    def _anew(self) -> None:
        while not self._stopping.is_set():
            connection = self.connect()
            try:
                message, _ = self.ask(connection)
                self.answers[message] += 1
            except (OSError, http.client.HTTPException) as error:
                self.failures[f"anew: {error!r}"] += 1
            with suppress(OSError):
                connection.close()
