"""A process of `gpu-rules doctor --watch`."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.operating import fetched, until
from tests.support.server import PATIENCE_SECONDS, command, environment


@dataclass
class Process:
    """A running `doctor --watch`."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def url(self) -> str:
        found = re.search(r"metrics at (http://[^\s\"]+)", self.log.read_text())
        return found[1] if found else ""

    def get(self, path: str) -> tuple[int, str]:
        return fetched(f"{self.url}{path}")

    def samples(self) -> dict[str, float]:
        _, text = self.get("/metrics")
        return {
            sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples
        }


@contextmanager
def watching(folder: Path, config: Path, *arguments: str | Path) -> Iterator[Process]:
    """Run `doctor --watch` on a free port; yield it once it listens."""
    log = folder / "doctor.log"
    line = command("doctor", "--watch", "--metrics-listen", "127.0.0.1:0", *arguments)
    with log.open("wb") as stderr:
        process = subprocess.Popen(line, env=environment(KUBECONFIG=str(config)), stderr=stderr, stdout=stderr)
    found = Process(process, log)
    try:
        until(lambda: found.url or process.poll() is not None, "the address")
        assert process.poll() is None, log.read_text()
        yield found
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
