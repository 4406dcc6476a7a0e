"""The server under load, compared with the same server without decisions (python -m bench.server).

wrk sends AdmissionReviews over TLS on kept connections, in turns to servers that differ in one thing each. The reviews
are of the pods of one Job.

The promises are ratios to a *fixed* server, the same server that allows every review without a decision: absolute
figures depend on other work of the machine. The fixed server still reads the review and answers with its uid, as any
admission server does. It is measured twice, and the difference is the error of measurement. The cost of TLS and HTTP
alone is printed too.

Throughput is measured at full load, and p99 at the same load for all servers: at full load, a server with half the
throughput has twice the latency for that reason alone. The p99 at full load is printed too. The exit code is 1 if a
promise is not kept, or if wrk is not found.

With --against PATH, the server of this checkout is compared with that of another one, such as a git worktree of an
earlier commit: each row of the table, in turns on both. Its Python is PATH/.venv/bin/python if that exists, else the
current one. The promises are then the median over the rounds of the ratio of throughputs, and the ratio of the median
p99 at the same load; the ratio of the best p99 is printed too.
"""

import argparse
import json
import re
import shutil
import ssl
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import uuid4

from bench import cluster
from bench.process import ROOT, Running, running
from bench.promise import Promise, exit_code
from bench.reviews import job_pods, review
from tests.support.apiserver import kubeconfig

THROUGHPUT = 0.18
THROUGHPUT_LOGGED = 0.14
P99 = 5.0
LOGGED = 0.99
"""Least share of logged decisions: a killed server loses its queued lines, and dropped lines cost nothing."""
MANY_RULES = 1.5
RSS_MIB = 100.0
READY_SECONDS = 1.5
LIVE_RSS_MIB = 200.0
LIVE_READY_SECONDS = 3.0
"""With nothing to list."""
LIVE_NODES, LIVE_PODS = 5000, 100_000

AGAINST_THROUGHPUT = 0.85
AGAINST_P99 = 1.2
"""Compared with the server of another checkout."""

ROUNDS, AGAINST_ROUNDS = 10, 5

PAUSE_MS = 6
"""With 8 connections about 1,200 requests a second: a third to a half of the server's maximum."""

FIXED, AGAIN = "fixed allow", "fixed allow, once more"

FALLEN = "nvidia.com/mig-2g.20gb"
"""The packaged cluster does not offer it: the pod falls back to whole GPUs, and V100 injection applies."""


@dataclass(frozen=True, slots=True)
class Load:
    """Results of wrk in one round."""

    requests: int
    requests_per_second: float
    p99_ms: float


@dataclass(slots=True)
class Measured:
    """Results of one server by round: at full load, and at the same load as the others."""

    warm_up: list[Load] = field(default_factory=list)
    full: list[Load] = field(default_factory=list)
    paced: list[Load] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Subject:
    """A server to measure: its arguments, and the file with the requests that it gets."""

    name: str
    arguments: tuple[str, ...]
    path: str
    reviews: Path
    fixed: str | None = None
    """Argument of bench.fixed, which then runs in the server's place."""
    checkout: Path = ROOT


def load(server: Running, subject: Subject, script: Path, *, seconds: int, connections: int, pause_ms: int = 0) -> Load:
    """Run wrk. `pause_ms`: average pause of a connection between a response and its next request.

    Raises SystemExit if a response was an error.
    """
    line = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script)]
    found = subprocess.run(
        [*line, server.url + subject.path, "--", str(subject.reviews), str(pause_ms)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    if "Non-2xx" in found or "Socket errors" in found:
        raise SystemExit(f"{subject.name}: {found}")
    per_second = re.search(r"Requests/sec: +([0-9.]+)", found)
    p99 = re.search(r"99% +([0-9.]+)(us|ms|s)", found)
    requests = re.search(r"([0-9]+) requests in", found)
    if per_second is None or p99 is None or requests is None:
        raise SystemExit(f"{subject.name}: wrk says {found}")
    return Load(int(requests[1]), float(per_second[1]), float(p99[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[p99[2]])


SCRIPT = """\
local requests, last = {}, 0
function init(arguments)
  local pause = tonumber(arguments[2])
  if pause > 0 then
    function delay()
      return math.random(0, 2 * pause)
    end
  end
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
"""Pods of one Job, sent in turn."""


def reviews(pods: Sequence[dict[str, Any]], file: Path) -> Path:
    """Write a file with one review per line, and return its path."""
    file.write_bytes(b"".join(review(pod, uid=str(uuid4())) + b"\n" for pod in pods))
    return file


def rules(count: int, folder: Path, **ladder: str) -> Path:
    """Write rules of all kinds, of which three apply to the benchmark's pod, and return their folder.

    `ladder`: more members for the spec of the ladder that applies.
    """
    folder.mkdir()
    applying: list[dict[str, Any]] = [
        _ladder("applies", FALLEN, "nvidia.com/gpu", **ladder),
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


def _ladder(name: str, *resources: str, **spec: str) -> dict[str, Any]:
    return _rule("FallbackLadder", name, {**spec, "rungs": [{"resource": resource} for resource in resources]})


def live(folder: Path, nodes: int, pods: int, falls: Path, **how: int) -> tuple[float, float]:
    """Return seconds to ready, and MiB under load, of a server with 100 rules, one of which reads free devices."""
    folder.mkdir()
    asking = ("--rules", str(rules(100, folder / "rules", offered="Available")), "--cluster", "kubeconfig")
    script = folder / "post.lua"
    script.write_text(SCRIPT)
    with (
        cluster.standin(nodes, pods) as (url, _),
        running(folder, asking, config=kubeconfig(folder, url)) as server,
    ):
        listening = monotonic()
        while not answers(f"{server.url}/readyz"):
            sleep(0.02)
        ready = server.ready_seconds + monotonic() - listening
        load(server, Subject("live", asking, "/mutate", falls), script, **{**how, "seconds": 2})
        rss = server.rss_mib
    return ready, rss


def answers(url: str) -> bool:
    """Return True if a server answers with success; its certificate is not verified."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        with urlopen(url, context=trusting):
            return True
    except HTTPError:
        return False


def _injection(name: str, gpu_type: str) -> dict[str, Any]:
    coefficients = {"cpu": "12", "memory": "80Gi", "nvidia.com/shm": "1Gi"}
    return _rule(
        "ResourceInjection",
        name,
        {"gpuType": gpu_type, "gpuTypeAnnotation": "task.bkbcs.tencent.com/gpu-type", "coefficients": coefficients},
    )


def _validation(name: str, namespace: str) -> dict[str, Any]:
    check = {"expression": "object.spec.containers.all(c, has(c.resources.limits))", "message": "no limits"}
    return _rule("Validation", name, {"match": {"namespaces": [namespace]}, "validations": [check]})


def measured(
    subjects: Sequence[Subject], folder: Path, *, rounds: int, seconds: int, connections: int
) -> dict[str, Measured]:
    """Measure every subject in each round, and return the results by name. Prints a line for each subject."""
    script = folder / "post.lua"
    script.write_text(SCRIPT)
    found = {subject.name: Measured() for subject in subjects}
    cpu: dict[str, float] = {}
    with ExitStack() as stack:
        servers = {
            subject.name: stack.enter_context(
                running(folder, subject.arguments, checkout=subject.checkout, fixed=subject.fixed)
            )
            for subject in subjects
        }
        for subject in subjects:  # for warming up
            one = load(servers[subject.name], subject, script, seconds=1, connections=connections)
            found[subject.name].warm_up.append(one)
        for _ in range(rounds):
            for subject in subjects:
                server = servers[subject.name]
                before = server.cpu_seconds
                one = load(server, subject, script, seconds=seconds, connections=connections)
                found[subject.name].full.append(one)
                cpu[subject.name] = (server.cpu_seconds - before) / (one.requests_per_second * seconds) * 1e6
            for subject in subjects:
                one = load(
                    servers[subject.name],
                    subject,
                    script,
                    seconds=seconds,
                    connections=connections,
                    pause_ms=PAUSE_MS,
                )
                found[subject.name].paced.append(one)
        for subject in subjects:
            full, paced = found[subject.name].full, found[subject.name].paced
            print(
                f"  {subject.name:46} {rate(full):6.0f}/s  p99 {best_p99(full):5.2f} ms"
                f"  CPU {cpu[subject.name]:4.0f} µs  RSS {servers[subject.name].rss_mib:3.0f} MiB"
                f"  at {rate(paced):4.0f}/s p99 {best_p99(paced):5.2f} ms",
                flush=True,
            )
    return found


def throughput(one: Measured, to: Measured) -> float:
    """Return one subject's throughput as a multiple of another's: the median of the rounds."""
    pairs = zip(one.full, to.full, strict=True)
    return statistics.median(left.requests_per_second / right.requests_per_second for left, right in pairs)


def p99(one: Measured, to: Measured) -> float:
    """Return one subject's p99 as a multiple of another's, under the same load."""
    return best_p99(one.paced) / best_p99(to.paced)


def rate(loads: Sequence[Load]) -> float:
    """Return the requests per second: the median of the rounds."""
    return statistics.median(one.requests_per_second for one in loads)


def median_p99(loads: Sequence[Load]) -> float:
    """Return the p99 in milliseconds: the median of the rounds."""
    return statistics.median(one.p99_ms for one in loads)


def best_p99(loads: Sequence[Load]) -> float:
    """Return the p99 of the best round in milliseconds: other work of the machine can only make a round slower."""
    return min(one.p99_ms for one in loads)


def rows(folder: Path, checkout: Path = ROOT) -> Sequence[Subject]:
    """Return the rows for the server of a checkout; write their files to `folder`."""
    other = reviews(job_pods("example.com/nic", PODS), folder / "other")
    stays = reviews(job_pods("nvidia.com/gpu", PODS), folder / "stays")
    falls = reviews(job_pods(FALLEN, PODS), folder / "falls")
    log = ("--decision-log", str(folder / "decisions.jsonl"))
    return (
        Subject("/mutate, pods without GPUs", (), "/mutate", other, checkout=checkout),
        Subject("/mutate, pods are injected", (), "/mutate", stays, checkout=checkout),
        Subject("/mutate, pods fall back and are injected", (), "/mutate", falls, checkout=checkout),
        Subject("/mutate, the same with the decision log", log, "/mutate", falls, checkout=checkout),
        Subject("/validate", (), "/validate", stays, checkout=checkout),
    )


def compared(there: Path, folder: Path, **how: int) -> list[Promise]:
    """Measure every row here and in another checkout in turns. Prints a line for each server, and for each row."""
    pairs = []
    for name, checkout in (("here", ROOT), ("there", there)):
        (folder / name).mkdir()
        made = rows(folder / name, checkout)
        pairs.append([replace(row, name=f"{row.name}, {name}") for row in made])
    both = list(zip(*pairs, strict=True))
    print(f"packaged rules and cluster, here ({ROOT}) and there ({there}) in turns:")
    found = measured([row for pair in both for row in pair], folder, **how)
    print("here to there:                                    throughput    p99   best p99")
    promises = []
    for mine, its in both:
        name = mine.name.removesuffix(", here")
        one, to = found[mine.name], found[its.name]
        ratio = throughput(one, to)
        slower = median_p99(one.paced) / median_p99(to.paced)
        print(f"  {name:46} {ratio:11.2f} {slower:6.2f} {p99(one, to):10.2f}")
        promises += [
            Promise(f"{name}: throughput", ratio, AGAINST_THROUGHPUT, least=True),
            Promise(f"{name}: p99", slower, AGAINST_P99),
        ]
    return promises


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__)
    parser.add_argument("--seconds", type=int, default=1, help="duration of a round")
    parser.add_argument("--rounds", type=int, help="number of rounds (10; 5 with --against)")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--against", type=Path, metavar="PATH", help="compare with the server of another checkout")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("bench.server: wrk is not installed (Debian: apt-get install wrk): nothing is measured")
    rounds = arguments.rounds or (ROUNDS if arguments.against is None else AGAINST_ROUNDS)
    how = {"seconds": arguments.seconds, "connections": arguments.connections}
    with TemporaryDirectory(prefix="gpu-rules-bench-") as name:
        if arguments.against is not None:
            return exit_code(compared(arguments.against.resolve(), Path(name), rounds=rounds, **how))
        return exit_code(own(Path(name), rounds, how))


def own(folder: Path, rounds: int, how: Mapping[str, int]) -> list[Promise]:
    """Compare the server with one without decisions, and measure it with many rules and with a live cluster."""
    promises: list[Promise] = []
    table = rows(folder)
    falls = table[2].reviews
    print(f"packaged rules and cluster, reviews of {falls.stat().st_size // PODS} bytes, the pods of one Job:")
    promised = [Subject(FIXED, (), "/mutate", falls, fixed="allow"), *table]
    shown = [
        Subject(AGAIN, (), "/mutate", falls, fixed="allow"),
        Subject("TLS and HTTP alone", (), "/mutate", falls, fixed="nothing"),
    ]
    subjects = [*promised, *shown]
    found = measured(subjects, folder, rounds=rounds, **how)
    fixed = found[FIXED]
    print("to fixed:                                         throughput    p99   p99 at full load")
    for subject in [*promised[1:], shown[0]]:
        one = found[subject.name]
        full = best_p99(one.full) / best_p99(fixed.full)
        print(f"  {subject.name:46} {throughput(one, fixed):11.2f} {p99(one, fixed):6.2f} {full:18.2f}")
    for subject in promised[1:]:
        one = found[subject.name]
        least = THROUGHPUT_LOGGED if subject.arguments else THROUGHPUT
        promises.append(Promise(f"{subject.name}: throughput to fixed", throughput(one, fixed), least, least=True))
        promises.append(Promise(f"{subject.name}: p99 to fixed", p99(one, fixed), P99))
        if subject.arguments:
            requests = sum(load.requests for load in [*one.warm_up, *one.full, *one.paced])
            with Path(subject.arguments[1]).open("rb") as lines:
                logged = sum(1 for _ in lines) / requests
            promises.append(Promise("lines of the decision log to requests", logged, LOGGED, least=True))

    print("many rules, three of which apply:")
    few, many = (rules(count, folder / f"rules-{count}") for count in (10, 1000))
    for path in ("/mutate", "/validate"):
        subjects = [Subject(f"{path}, {where.name}", ("--rules", str(where)), path, falls) for where in (few, many)]
        found = measured(subjects, folder, rounds=rounds, **how)
        costs = throughput(found[subjects[0].name], found[subjects[1].name])
        promises.append(Promise(f"{path}: 1,000 rules cost, to 10", costs, MANY_RULES))

    hundred = ("--rules", str(rules(100, folder / "rules-100")))
    starts = []
    for _ in range(3):
        with running(folder, hundred) as server:
            starts.append(server.ready_seconds)
            script = folder / "post.lua"
            load(server, Subject("100 rules", hundred, "/mutate", falls), script, **{**how, "seconds": 2})
            rss = server.rss_mib
    promises.append(Promise("100 rules: RSS after a load", rss, RSS_MIB, unit=" MiB"))
    promises.append(Promise("100 rules: start to ready", statistics.median(starts), READY_SECONDS, unit=" s"))

    ready, _ = live(folder / "live-empty", 0, 0, falls, **how)
    promises.append(Promise("100 rules, live: start to ready", ready, LIVE_READY_SECONDS, unit=" s"))
    ready, rss = live(folder / "live", LIVE_NODES, LIVE_PODS, falls, **how)
    print(f"{LIVE_NODES:,} nodes and {LIVE_PODS:,} pods are read within {ready:.0f} s of the start")
    promises.append(Promise("the same, live: RSS after a load", rss, LIVE_RSS_MIB, unit=" MiB"))
    return promises


if __name__ == "__main__":
    raise SystemExit(main())
