"""The server under load, beside itself with nothing to decide (python -m bench.server).

wrk sends AdmissionReviews over TLS on connections that are kept alive, in turns to servers that differ in one thing
each. They are of the pods of one Job, which differ as such pods do: rules that cannot tell two of them apart are asked
once, as long as the view of the cluster is the same, which that of a file always is. What it costs when every pod asks
for something of its own is shown besides, and nothing is promised of it.

What counts is the ratio to the same server when it allows every review without deciding it: absolute figures move with
whatever else the machine does. That server still reads the review and answers with its uid, as any admission server
has to; what TLS and HTTP cost alone is shown besides. It is measured twice: what the two differ by is what this machine
cannot tell. The exit code is 1 if a promise of the project is not kept.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any
from uuid import uuid4

from bench.reviews import different_pods, job_pods, review

THROUGHPUT = 0.6
THROUGHPUT_LOGGED = 0.5
P99 = 1.5
MANY_RULES = 1.5
RSS_MIB = 100.0
READY_SECONDS = 1.5

FIXED, AGAIN = "fixed allow", "fixed allow, once more"

FALLEN = "nvidia.com/mig-2g.20gb"
"""The packaged cluster does not offer it: the pod falls to whole GPUs, and gets what V100 injection brings."""


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk measured in one round."""

    requests_per_second: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Subject:
    """A server to measure: its arguments, and the file with the requests that it gets."""

    name: str
    arguments: tuple[str, ...]
    path: str
    reviews: Path
    fixed: str | None = None
    """What bench.fixed is to do in the server's place."""


@dataclass(slots=True)
class Running:
    url: str
    process: subprocess.Popen[bytes]
    ready_seconds: float

    @property
    def rss_mib(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the server has no VmRSS")

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(folder: Path, arguments: Sequence[str], *, fixed: str | None = None) -> Iterator[Running]:
    """A server of this working tree on a free port, or what bench.fixed makes of it."""
    ready, theirs = os.pipe()
    begin = monotonic()
    module = ["bench.fixed", fixed] if fixed else ["server"]
    line = [sys.executable, "-m", *module, "serve", "--listen", "127.0.0.1:0", "--ready-fd", str(theirs)]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen([*line, *arguments], pass_fds=[theirs], stdout=log, stderr=log)
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


def load(server: Running, subject: Subject, script: Path, *, seconds: int, connections: int) -> Load:
    """Let wrk send for a while. Raises SystemExit where an answer was no success."""
    line = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script)]
    found = subprocess.run(
        [*line, server.url + subject.path, "--", str(subject.reviews)], capture_output=True, text=True, check=True
    ).stdout
    if "Non-2xx" in found or "Socket errors" in found:
        raise SystemExit(f"{subject.name}: {found}")
    per_second = re.search(r"Requests/sec: +([0-9.]+)", found)
    p99 = re.search(r"99% +([0-9.]+)(us|ms|s)", found)
    if per_second is None or p99 is None:
        raise SystemExit(f"{subject.name}: wrk says {found}")
    return Load(float(per_second[1]), float(p99[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[p99[2]])


SCRIPT = """\
local requests, last = {}, 0
function init(arguments)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  for line in io.lines(arguments[1]) do
    requests[#requests + 1] = wrk.format(nil, nil, nil, line)
  end
end
function request()
  last = last % #requests + 1
  return requests[last]
end
"""

PODS = 500
"""Of one Job, that are sent in turn."""

DIFFERENT_PODS = 3000
"""Several times what is remembered."""


def reviews(pods: Sequence[dict[str, Any]], file: Path) -> Path:
    """A file with a review of each pod in a line of its own."""
    file.write_bytes(b"".join(review(pod, uid=str(uuid4())) + b"\n" for pod in pods))
    return file


def rules(count: int, folder: Path) -> Path:
    """Rules of all kinds, of which three apply to the benchmark's pod: the others are for other pods."""
    folder.mkdir()
    applying: list[dict[str, Any]] = [
        _ladder("applies", FALLEN, "nvidia.com/gpu"),
        _injection("applies", "V100"),
        _validation("applies", "gpu-training"),
    ]
    others: list[dict[str, Any]] = []
    for n in range(count - len(applying)):
        match n % 3:
            case 0:
                others.append(_ladder(f"other-{n}", f"vendor.example/large-{n}", f"vendor.example/small-{n}"))
            case 1:
                others.append(_injection(f"other-{n}", f"TYPE-{n}"))
            case _:
                others.append(_validation(f"other-{n}", f"team-{n}"))
    text = "\n---\n".join(json.dumps(rule) for rule in [*others, *applying])
    (folder / "rules.yaml").write_text(text)
    return folder


def _rule(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "gpurules.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _ladder(name: str, *resources: str) -> dict[str, Any]:
    return _rule("FallbackLadder", name, {"rungs": [{"resource": resource} for resource in resources]})


def _injection(name: str, gpu_type: str) -> dict[str, Any]:
    coefficients = {"cpu": "12", "memory": "80Gi", "nvidia.com/shm": "1Gi"}
    return _rule("ResourceInjection", name, {"gpuType": gpu_type, "coefficients": coefficients})


def _validation(name: str, namespace: str) -> dict[str, Any]:
    check = {"expression": "object.spec.containers.all(c, has(c.resources.limits))", "message": "no limits"}
    return _rule("Validation", name, {"match": {"namespaces": [namespace]}, "validations": [check]})


@dataclass(slots=True)
class Promise:
    """A figure and its bound; `least` when it must not be less."""

    what: str
    value: float
    bound: float
    least: bool = False
    unit: str = ""

    @property
    def kept(self) -> bool:
        return self.value >= self.bound if self.least else self.value <= self.bound

    def __str__(self) -> str:
        sign = "at least" if self.least else "at most"
        verdict = "" if self.kept else "   NOT KEPT"
        return f"{self.what:62} {self.value:8.2f}{self.unit}  ({sign} {self.bound:g}{self.unit}){verdict}"


def measured(subjects: Sequence[Subject], folder: Path, *, rounds: int, **how: int) -> dict[str, list[Load]]:
    """Rounds of every subject in turn, each by its name; prints a line for each subject."""
    script = folder / "post.lua"
    script.write_text(SCRIPT)
    found: dict[str, list[Load]] = {subject.name: [] for subject in subjects}
    cpu: dict[str, float] = {}
    with ExitStack() as stack:
        servers = {
            subject.name: stack.enter_context(running(folder, subject.arguments, fixed=subject.fixed))
            for subject in subjects
        }
        for number in range(rounds + 1):
            for subject in subjects:
                server = servers[subject.name]
                before = server.cpu_seconds
                one = load(server, subject, script, **({**how, "seconds": 1} if number == 0 else how))
                if number:  # the first is for warming up
                    found[subject.name].append(one)
                    spent = server.cpu_seconds - before
                    cpu[subject.name] = spent / (one.requests_per_second * how["seconds"]) * 1e6
        for subject in subjects:
            loads = found[subject.name]
            rate = statistics.median(one.requests_per_second for one in loads)
            p99 = best_p99(loads)
            rss = servers[subject.name].rss_mib
            print(
                f"  {subject.name:46} {rate:7.0f} requests/s  p99 {p99:6.2f} ms"
                f"  CPU {cpu[subject.name]:4.0f} µs  RSS {rss:4.0f} MiB",
                flush=True,
            )
    return found


def ratio(found: dict[str, list[Load]], name: str, to: str) -> tuple[float, float]:
    """Throughput and p99 of one subject as multiples of another's: the median of the rounds, and their best.

    What else the machine does makes a p99 several times as long, or leaves it as it is, and never makes it shorter.
    """
    pairs = list(zip(found[name], found[to], strict=True))
    return (
        statistics.median(left.requests_per_second / right.requests_per_second for left, right in pairs),
        best_p99(found[name]) / best_p99(found[to]),
    )


def best_p99(loads: Sequence[Load]) -> float:
    return min(one.p99_ms for one in loads)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__)
    parser.add_argument("--seconds", type=int, default=1, help="how long each round lasts")
    parser.add_argument("--rounds", type=int, default=15, help="how often each server gets its turn")
    parser.add_argument("--connections", type=int, default=8)
    asked = parser.parse_args()
    if shutil.which("wrk") is None:
        print("bench.server: wrk is not installed (Debian: apt-get install wrk): nothing is measured")
        return 0
    how = {"seconds": asked.seconds, "connections": asked.connections}
    promises: list[Promise] = []
    with TemporaryDirectory(prefix="gpu-rules-bench-") as name:
        folder = Path(name)
        other = reviews(job_pods("example.com/nic", PODS), folder / "other")
        stays = reviews(job_pods("nvidia.com/gpu", PODS), folder / "stays")
        falls = reviews(job_pods(FALLEN, PODS), folder / "falls")
        all_fall = reviews(different_pods(FALLEN, DIFFERENT_PODS), folder / "all-fall")
        all_stay = reviews(different_pods("nvidia.com/gpu", DIFFERENT_PODS), folder / "all-stay")
        log = ("--decision-log", str(folder / "decisions.jsonl"))
        print(f"packaged rules and cluster, reviews of {falls.stat().st_size // PODS} bytes, the pods of one Job:")
        promised = [
            Subject(FIXED, (), "/mutate", falls, fixed="allow"),
            Subject("/mutate, pods without GPUs", (), "/mutate", other),
            Subject("/mutate, pods are injected", (), "/mutate", stays),
            Subject("/mutate, pods fall and are injected", (), "/mutate", falls),
            Subject("/mutate, the same with the decision log", log, "/mutate", falls),
            Subject("/validate", (), "/validate", stays),
        ]
        shown = [
            Subject(AGAIN, (), "/mutate", falls, fixed="allow"),
            Subject("TLS and HTTP alone", (), "/mutate", falls, fixed="nothing"),
            Subject("/mutate, every pod asks for something else", (), "/mutate", all_fall),
            Subject("/validate, every pod asks for something else", (), "/validate", all_stay),
        ]
        subjects = [*promised, *shown]
        found = measured(subjects, folder, rounds=asked.rounds, **how)
        throughput, p99 = ratio(found, AGAIN, FIXED)
        print(f"  {AGAIN}, to fixed: throughput {throughput:.2f}, p99 {p99:.2f}")
        for subject in promised[1:]:
            throughput, p99 = ratio(found, subject.name, FIXED)
            least = THROUGHPUT_LOGGED if subject.arguments else THROUGHPUT
            promises.append(Promise(f"{subject.name}: throughput to fixed", throughput, least, least=True))
            promises.append(Promise(f"{subject.name}: p99 to fixed", p99, P99))

        print("many rules, three of which apply, every pod asks for something else:")
        few, many = (rules(count, folder / f"rules-{count}") for count in (10, 1000))
        for path in ("/mutate", "/validate"):
            subjects = [
                Subject(f"{path}, {where.name}", ("--rules", str(where)), path, all_fall) for where in (few, many)
            ]
            found = measured(subjects, folder, rounds=asked.rounds, **how)
            throughput, _ = ratio(found, subjects[1].name, subjects[0].name)
            promises.append(Promise(f"{path}: 1,000 rules cost, to 10", 1 / throughput, MANY_RULES))

        hundred = ("--rules", str(rules(100, folder / "rules-100")))
        starts = []
        for _ in range(3):
            with running(folder, hundred) as server:
                starts.append(server.ready_seconds)
                script = folder / "post.lua"
                load(server, Subject("100 rules", hundred, "/mutate", all_fall), script, **{**how, "seconds": 2})
                rss = server.rss_mib
        promises.append(Promise("100 rules: RSS after a load", rss, RSS_MIB, unit=" MiB"))
        promises.append(Promise("100 rules: start to ready", statistics.median(starts), READY_SECONDS, unit=" s"))
    print(*promises, sep="\n")
    return 0 if all(promise.kept for promise in promises) else 1


if __name__ == "__main__":
    raise SystemExit(main())
