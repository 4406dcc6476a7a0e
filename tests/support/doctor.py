"""A process of `gpu-rules doctor --watch`, and secrets that no output has."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.cluster_files import CONTAINER, METADATA
from tests.support.operating import fetched, until
from tests.support.server import PATIENCE_SECONDS, command, environment


def add_secrets(value: dict[str, Any]) -> dict[str, Any]:
    """Add the secret to all places of an object, and of its pods, in which values often are secrets."""
    value["metadata"] |= METADATA
    spec = value.get("spec", {})
    for container in spec.get("template", {}).get("spec", spec).get("containers", ()):
        container |= {**CONTAINER, "name": container["name"]}
    return value


CURIOUS = """
apiVersion: gpurules.io/v1
kind: Diagnostic
metadata: {name: annotations}
spec:
  description: Quotes all annotations.
  forEach: Pod
  when: "true"
  severity: Warning
  reason: Curious
  messageExpression: "object.metadata.annotations.map(name, name + '=' + object.metadata.annotations[name]).join()"
  evidence:
    - dyn(object.metadata).?managedFields[0].manager.orValue('none')
    - dyn(object.spec.containers[0]).?env[0].value.orValue('none')
    - dyn(object.spec.containers[0]).?args.optMap(a, a.join()).orValue('none')
  cause: None.
  remedies: [{text: None.}]
---
apiVersion: gpurules.io/v1
kind: Diagnostic
metadata: {name: values}
spec:
  description: Reads a value that is removed.
  forEach: Pod
  when: dyn(object.spec.containers[0]).args[0] != ''
  severity: Error
  reason: Wrong
  messageExpression: string(dyn(object.spec.containers[0]).args[0])
  cause: None.
  remedies: [{text: None.}]
---
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: secretive}
spec:
  matchConditions:
    - {name: token, expression: "object.spec.containers.all(c, c.?args.orValue([]).all(a, a != ''))"}
  rungs: [{resource: nvidia.com/mig-1g.5gb}, {resource: nvidia.com/gpu}]
"""
"""Diagnostics and a ladder that read such values."""


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
