"""Server processes under measurement, and their resource usage as counted by Linux."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[1]


def memory_mib(process: int | str = "self", field: str = "VmRSS") -> float:
    """Return the resident memory of a process in MiB. `field`: VmHWM for its peak (proc_pid_status(5))."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


@dataclass(slots=True)
class Running:
    """A server that is ready."""

    url: str
    process: subprocess.Popen[bytes]
    ready_seconds: float

    @property
    def rss_mib(self) -> float:
        return memory_mib(self.process.pid)

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(
    folder: Path,
    arguments: Sequence[str],
    *,
    checkout: Path = ROOT,
    fixed: str | None = None,
    config: Path | None = None,
) -> Iterator[Running]:
    """Run the server of a checkout on a free port, or its variant of bench.fixed.

    `fixed`: argument of bench.fixed. `config`: kubeconfig. The process is killed afterwards.
    """
    ready, theirs = os.pipe()
    begin = monotonic()
    module = ["bench.fixed", fixed] if fixed else [command_module(checkout)]
    line = [interpreter(checkout), "-m", *module, "serve", "--listen", "127.0.0.1:0", "--ready-fd", str(theirs)]
    environment = {**os.environ, **({"KUBECONFIG": str(config)} if config else {}), "PYTHONPATH": str(checkout)}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [*line, *arguments], pass_fds=[theirs], stdout=log, stderr=log, env=environment, cwd=checkout
        )
    os.close(theirs)
    try:
        with os.fdopen(ready) as readable:
            url = readable.readline().strip()
        if not url:
            raise SystemExit((folder / "server.log").read_text())
        yield Running(url, process, monotonic() - begin)
    finally:
        process.kill()
        process.wait()


def earlier(commit: str, folder: Path) -> Path:
    """Write the files of a commit below a folder, and return their checkout."""
    checkout = folder / commit
    checkout.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=checkout, input=archive, check=True)
    return checkout


def command_module(checkout: Path) -> str:
    """Return the module that runs `gpu-rules` in a checkout: in earlier commits, `server` was a package of its own."""
    return "rules_engine.server" if (checkout / "rules_engine" / "server").exists() else "server"


def measured(arguments: Sequence[str], checkout: Path = ROOT, codes: Collection[int] = (0, 1)) -> tuple[float, float]:
    """Run the Python of a checkout; return its CPU time in seconds, and the peak of its memory in MiB.

    `codes`: its exit codes, by default with and without findings.
    """
    # As after an installation, modules are compiled once.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPATH": str(checkout)}
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, cwd=checkout, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        raise SystemExit(f"exit code {process.returncode} of {' '.join(arguments)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def least(runs: int, *sides: Callable[[], tuple[float, float]]) -> list[tuple[float, float]]:
    """Measure sides in turns; return the least CPU time and the least peak of memory of each."""
    found = zip(*[[side() for side in sides] for _ in range(runs)], strict=True)
    return [(min(seconds), min(peaks)) for seconds, peaks in (zip(*side, strict=True) for side in found)]


def interpreter(checkout: Path) -> str:
    """Return the Python of a checkout's virtual environment, else the current one."""
    own = checkout / ".venv" / "bin" / "python"
    return str(own) if checkout != ROOT and own.exists() else sys.executable
