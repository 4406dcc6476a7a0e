"""The demo as a process: all scenarios, and interrupts."""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.server import PATIENCE_SECONDS, command, environment


def processes_that_name(text: str) -> list[str]:
    """Return the command lines of running processes that contain `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in line:
            found.append(line)
    return found


def test_every_scenario_has_its_result_and_all_servers_stop(tmp_path: Path) -> None:
    done = subprocess.run(
        command("demo"),
        # A setting of the user's own server must not leak into the demo's.
        env=environment(TMPDIR=str(tmp_path), GPU_RULES_RULES="/nowhere", COLUMNS="100"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    headings = [line[0] for line in lines if re.match(r"\d \w", line)]
    assert headings == ["1", "2", "3", "4", "5", "6", "7"]
    rows = [re.sub(r" [0-9]+\.[0-9]$", " ms", line) for line in lines if re.search(r" [0-9]+\.[0-9]$", line)]
    assert rows == [
        "gpu-test mig-2g.20gb: 1 gpu: 1 2g.20gb->gpu ms",
        *(f"gpu-test-{n} mig-2g.20gb: 1 gpu: 1 2g.20gb->gpu ms" for n in range(1, 11)),
        "gpu-test mig-2g.20gb: 1 mig-1g.10gb: 1 2g.20gb->1g.10gb ms",
        "gpu-test mig-2g.20gb: 1 mig-2g.20gb: 1 - ms",
        "gpu-test mig-1g.10gb: 1 mig-2g.20gb: 1 1g.10gb->2g.20gb ms",
        "train mig-3g.30gb: 1 mig-3g.30gb: 1 - ms",
        "train mig-3g.30gb: 1 mig-2g.20gb: 1 3g.30gb->2g.20gb ms",
        "train mig-3g.30gb: 1 gpu: 1 3g.30gb->gpu ms",
        "two-gpus gpu: 2 gpu: 2 - ms",
        "two-containers train: train: - ms",
        "in-gpu-training gpu: 2 gpu: 2 - ms",
    ]
    for amount in ("cpu: 8", "memory: 16Gi", "cpu: 7", "memory: 14Gi", "cpu: 12", "memory: 24Gi"):
        assert amount in done.stdout
    why = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu."
    begin = lines.index("Simulated, as by gpu-rules simulate -f ten-pods.yaml --rules set:gpu-allocation:")
    assert lines[begin + 1 : begin + 8] == [
        "gpu-sim-cluster-worker runs 4 of the pods",
        "gpu-sim-cluster-worker2 runs 4 of the pods",
        f"gpu-test-9 waits: {why}",
        f"gpu-test-10 waits: {why}",
        "gpu-test-9 runs on gpu-sim-cluster-worker2 after 52m, when another pod has ended",
        "gpu-test-10 runs on gpu-sim-cluster-worker2 after 52m, when another pod has ended",
        "",
    ]
    assert lines[-1] == "Every pod has the expected result."
    assert processes_that_name(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_the_demo_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    process = subprocess.Popen(
        command("demo"),
        env=environment(TMPDIR=str(tmp_path), PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert any(line.startswith("1  ") for line in process.stdout)
        # To the whole group, as a terminal does, or to the demo alone, as `timeout` does. Stopped first, so that
        # the demo does not end before.
        os.killpg(process.pid, signal.SIGSTOP)
        assert processes_that_name(str(tmp_path))
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        os.killpg(process.pid, signal.SIGCONT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, errors) == (130, "")
        assert processes_that_name(str(tmp_path)) == []
        assert list(tmp_path.iterdir()) == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
