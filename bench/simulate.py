"""Simulation of a large load (python -m bench.simulate [--nodes N] [--pods N] [--check]).

100,000 pods arrive at 5,000 nodes with the default rules: bare pods and Jobs of 40 teams, most with one whole GPU or
one MIG device, some with several. A sixth falls back, a tenth may preempt others, thousands wait, some
nodes fail or are drained. Left out are pods with topology spread, pod affinity or host ports, and those of ReplicaSets,
which the scheduler spreads as well: for them it reads more than the resources of nodes.

The command runs in a new process, whose CPU time and peak of memory count. With --check, the exit code is 1 if a
target is missed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.process import ROOT
from bench.promise import Promise, exit_code

SECONDS, MEMORY_MIB = 60, 1024

GPU = "nvidia.com/gpu"
LARGE, MIDDLE, SMALL = (f"nvidia.com/mig-{profile}" for profile in ("3g.40gb", "2g.20gb", "1g.10gb"))
OFFERED: tuple[dict[str, int], ...] = ({GPU: 8}, {LARGE: 8, SMALL: 8}, {MIDDLE: 24}, {})
"""Devices of every fourth node, besides 96 cpus and a terabyte of memory."""

WORKLOADS = 500
PODS_OF_JOB = 4
STEP = 250
"""One node in so many fails or is drained."""

HOURS = 6
"""The time in which all pods arrive, on average: more GPUs are requested in it than there are."""

REQUESTED = (GPU, GPU, SMALL, MIDDLE, LARGE, "nvidia.com/mig-3g.30gb")
"""Resources that workloads request in turn; no node offers the last one."""


def pod(workload: int) -> dict[str, Any]:
    """Return the pod of a workload, as far as it decides where the pod runs."""
    requested = REQUESTED[workload % len(REQUESTED)]
    count = (1, 1, 1, 2, 1, 4)[workload // 6 % 6] if requested == GPU else 1
    amounts = {"cpu": f"{1 + workload % 7}", "memory": f"{4 + workload % 5}Gi", requested: str(count)}
    return {
        "metadata": {"labels": {"app": f"workload-{workload}", "team": f"team-{workload % 40}"}},
        "spec": {
            "containers": [{"name": "main", "image": "registry.example.com/train:1", "resources": {"limits": amounts}}],
            "tolerations": [{"key": GPU, "operator": "Exists"}],
            **({"nodeSelector": {"zone": f"zone-{workload % 3}"}} if workload % 5 == 0 else {}),
        },
    }


def arrival(workload: int, pods: int) -> dict[str, Any]:
    """Return the arrivals of a workload: every second one is of bare pods, the others of Jobs."""
    made, name = pod(workload), f"workload-{workload}"
    count = pods // WORKLOADS
    rest: dict[str, Any] = {
        "namespace": f"team-{workload % 40}",
        "at": f"{workload}s",
        "runFor": {"min": "10m", "max": "3h"},
        **({"priority": 1000} if workload % 10 == 3 else {}),
    }
    if workload % 2:
        made["metadata"]["name"] = name
        return {"pod": made, "count": count, "every": {"mean": f"{HOURS * 3600 // count}s"}, **rest}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": PODS_OF_JOB, "completions": PODS_OF_JOB, "template": made},
    }
    jobs = count // PODS_OF_JOB
    return {"workload": job, "count": jobs, "every": {"mean": f"{HOURS * 3600 // jobs}s"}, **rest}


def nodes(count: int) -> Iterator[dict[str, Any]]:
    """Yield the nodes: in three zones, those with devices tainted."""
    for number in range(count):
        offered = OFFERED[number % len(OFFERED)]
        yield {
            "name": f"node-{number:05}",
            "labels": {"zone": f"zone-{number % 3}", "pool": f"pool-{number % 12}"},
            "taints": [{"key": GPU, "effect": "NoSchedule"}] if offered else [],
            "allocatable": {"cpu": 96, "memory": "1056000000Ki", **offered},
        }


def events(count: int) -> Iterator[dict[str, Any]]:
    """Yield failures and drains of some nodes, which take pods again after an hour."""
    for number in range(0, count, STEP):
        minute = 30 + 10 * (number // STEP)
        becomes, ends = ("NotReady", "Ready") if number // STEP % 2 else ("Drained", "Uncordoned")
        yield {"at": f"{minute}m", "node": f"node-{number:05}", "becomes": becomes}
        yield {"at": f"{minute + 60}m", "node": f"node-{number:05}", "becomes": ends}


def scenario(node_count: int, pods: int) -> dict[str, Any]:
    return {
        "apiVersion": "gpurules.io/v1",
        "kind": "Simulation",
        "metadata": {"name": "bench"},
        "spec": {
            "cluster": {"nodes": [*nodes(node_count)]},
            "seed": 1,
            "arrivals": [arrival(workload, pods) for workload in range(WORKLOADS)],
            "events": [*events(node_count)],
        },
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=100_000)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    with TemporaryDirectory() as folder:
        file, answer = Path(folder) / "simulation.json", Path(folder) / "answer.json"
        file.write_text(json.dumps(scenario(given.nodes, given.pods)))
        command = [sys.executable, "-m", "rules_engine.server", "simulate", "-f", str(file)]
        command += ["--rules", "rules/gpu-allocation"]
        process = subprocess.Popen([*command, "--output", f"json={answer}"], stdout=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            return process.returncode
        totals = json.loads(answer.read_text())["results"][0]["totals"]
    waiting = f"half of the pods that ran had waited {totals['waiting']['p50Seconds'] / 60:.0f} minutes"
    print(", ".join(f"{count} {state}" for state, count in totals["states"].items()), waiting, sep="; ")
    seconds, memory_mib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    what = f"gpu-rules simulate of {given.pods} pods on {given.nodes} nodes"
    promises = [
        Promise(f"{what}, CPU time", seconds, SECONDS, unit=" s"),
        Promise(f"{what}, peak of memory", memory_mib, MEMORY_MIB, unit=" MiB"),
    ]
    code = exit_code(promises)
    return code if given.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
