"""Difference of rules for a large cluster (python -m bench.diff [--pods N] [--nodes N] [--admissions N] [--check]).

A dump of the cluster is generated as kubectl writes it. All of its pods request devices, half of them are of Jobs with
a template each, half of ReplicaSets with ten pods, and a rule reads a label that is different for each. Two rule sets
decide it, first with ladders that count all devices, then with ladders that count free ones.

A decision log is generated, too: each pod is submitted to both endpoints, and the view of the cluster changes after
every hundred. The log repeats a block of pods under other names.

The command runs in a new process. Its time and the peak of its memory count. With --check, the exit code is 1 if a
target is missed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from bench import doctor
from bench.process import ROOT
from bench.promise import Promise, exit_code
from rules_engine.evaluation import mutate, validate
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.sources.rule_files import RuleFiles, read_rules
from server.http.admission_record import AdmissionRecord
from server.state import ServedRules
from server.telemetry.decision_log import MAX_LINE_BYTES, encode_line
from server.telemetry.recorded_requests import Headers, Recorder

LIVE_SECONDS, RECORDED_SECONDS, MEMORY_MIB = 90, 900, 512

BLOCK = 10_000
"""Admissions of a block of the log."""

PODS_OF_VIEW = 100
"""Admissions on one view of the cluster."""

TASK = "example.com/task"
"""A label with another value for each pod, which a rule reads."""

PODS_OF_REPLICA_SET = 10

OLD = {"cpu": "4000m", "when": "object.metadata.?labels.team.orValue('') != 'team-4'"}
NEW = {"cpu": "6000m", "when": "object.metadata.?labels.team.orValue('') == 'team-4'"}

RULES = """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: mig}
spec:
  offered: %(offered)s
  nodes: {require: [MatchesPod]}
  rungs:
    - {resource: nvidia.com/mig-3g.40gb}
    - {resource: nvidia.com/mig-2g.20gb, when: "%(when)s"}
    - {resource: nvidia.com/mig-1g.10gb}
    - {resource: nvidia.com/gpu, assume: true}
  annotation: example.com/fallback
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {name: cards}
spec:
  gpuType: A100
  gpuTypeAnnotation: task.bkbcs.tencent.com/gpu-type
  coefficients: {cpu: %(cpu)s, memory: 8Gi}
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: task}
spec:
  match: {resources: ["nvidia.com/*"]}
  validations:
    - expression: object.metadata.?labels[?'example.com/task'].orValue('').size() < 64
      message: tasks have short names
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: images}
spec:
  match: {resources: ["*/*"]}
  validations:
    - expression: object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))
      message: images are of the site's registry
"""

REQUESTED = ("nvidia.com/mig-3g.40gb", "nvidia.com/gpu", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-1g.10gb")


def write_rules(folder: Path, offered: str) -> tuple[Path, Path]:
    """Write the two rule sets."""
    folder.mkdir()
    paths = folder / "old.yaml", folder / "new.yaml"
    for path, differing in zip(paths, (OLD, NEW), strict=True):
        path.write_text(RULES % {"offered": offered, **differing})
    return paths


def submitted(number: int, nodes: int) -> dict[str, Any]:
    """Return the pod of a dump as its controller submits it, with what is added later."""
    made = doctor.pod(number, nodes)
    metadata, spec = made["metadata"], made["spec"]
    metadata["labels"][TASK] = f"task-{number}"
    resource = REQUESTED[number // PODS_OF_REPLICA_SET % len(REQUESTED)]
    metadata["annotations"]["task.bkbcs.tencent.com/gpu-type"] = "A100"
    amounts = {"cpu": f"{500 + number // PODS_OF_REPLICA_SET % 5000}m", "memory": "2Gi", resource: "1"}
    spec["containers"][0]["resources"] = {"limits": dict(amounts), "requests": dict(amounts)}
    return made


def owned(pod: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Make a controller the owner of a pod, and yield it with its own one, if the pod is its first."""
    metadata = pod["metadata"]
    metadata["labels"].pop("pod-template-hash")
    is_job = number // PODS_OF_REPLICA_SET % 2 == 0
    index = number if is_job else number // PODS_OF_REPLICA_SET
    kind, name = ("Job", f"job-{index}") if is_job else ("ReplicaSet", f"service-{index}-7d9f8b6c5")
    version = "batch/v1" if is_job else "apps/v1"
    uid = f"{kind}-{index}"
    metadata["generateName"] = f"{name}-"
    metadata["name"] = f"{name}-{number:x}"
    metadata["ownerReferences"] = [{"apiVersion": version, "controller": True, "kind": kind, "name": name, "uid": uid}]
    if not is_job and number % PODS_OF_REPLICA_SET:
        return
    own = {key: metadata[key] for key in ("labels", "annotations")}
    own["labels"] = {key: value for key, value in own["labels"].items() if key != TASK}
    template = {"metadata": own, "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}}
    above = {"name": f"service-{index}", "namespace": metadata["namespace"], "uid": f"Deployment-{index}"}
    members = {
        "name": name,
        "namespace": metadata["namespace"],
        "uid": uid,
        "creationTimestamp": "2026-09-01T08:00:00Z",
    }
    if not is_job:
        owner = {"apiVersion": "apps/v1", "controller": True, "kind": "Deployment"}
        members["ownerReferences"] = [{**owner, "name": above["name"], "uid": above["uid"]}]
        yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": above, "spec": {"template": template}}
    yield {"apiVersion": version, "kind": kind, "metadata": members, "spec": {"replicas": 10, "template": template}}


def items(node_count: int, pods: int, rules: RuleFiles) -> Iterator[dict[str, Any]]:
    """Yield the objects of the dump: pods that the rules have admitted, their controllers, and nodes."""
    nodes = [doctor.node(number) for number in range(node_count)]
    cluster = cluster_of(nodes)
    for number in range(pods):
        pod = submitted(number, node_count)
        controllers = [*owned(pod, number)]
        yield from controllers
        request = pod_request(pod, namespace=pod["metadata"]["namespace"])
        admitted: Any = mutate(rules.rule_set, request, cluster).result
        yield {**admitted, "status": pod["status"]}
    yield from nodes
    yield from doctor.others()


def cluster_of(nodes: list[dict[str, Any]]) -> Cluster:
    """Return the cluster of nodes without pods."""
    return Cluster(nodes=tuple(read_node(node, lambda *_: None) for node in nodes))


def views(cluster: Cluster) -> Iterator[Cluster]:
    """Yield views of a cluster, each with other free devices on one node."""
    nodes = list(cluster.nodes)
    number = 0
    while True:
        yield replace(cluster, nodes=tuple(nodes))
        node = nodes[number % len(nodes)]
        used = {name: Quantity.of(number % 8) for name in node.allocatable if name.startswith("nvidia.com/")}
        nodes[number % len(nodes)] = replace(node, used=used)
        number += 1


class Log:
    """The lines of a decision log, as a server writes them."""

    def __init__(self, path: Path, served: ServedRules) -> None:
        self._served = served
        self._file = path.open("wb")
        # A clock on which no view changes too fast.
        self._recorder = Recorder(MARK, self._later)
        self._headers = Headers(self._recorder, MAX_LINE_BYTES, lambda: 0.0)
        self._now = 0.0

    def close(self) -> None:
        self._file.close()

    def _later(self) -> float:
        self._now += 1000.0
        return self._now

    def write(self, endpoint: str, request: AdmissionRequest, cluster: Cluster) -> Any:
        """Write the line of a decision, with what must precede it; return the pod after it."""
        record = AdmissionRecord(endpoint)
        record.uid, record.request, record.served, record.cluster = request.uid, request, self._served, cluster
        decide = mutate if endpoint == "mutate" else validate
        decision = record.decision = decide(self._served.rule_set, request, cluster)
        recorded = self._recorder(record)
        self._file.writelines(self._headers.take_announced())
        at = datetime.now(UTC)
        written = encode_line(record, decision, id=f"{MARK}-1", at=at, view=1, recorded=recorded)
        self._file.writelines(written.parts)
        return decision.result


MARK = "block-000"
"""The part of all names in a block of a log that is different in each block."""


def write_log(path: Path, node_count: int, admissions: int, rules: RuleFiles) -> int:
    """Write a log of admissions, in whole blocks, with two lines for each; return their number."""
    log = Log(path, ServedRules(rule_set=rules.rule_set, digest=rules.loaded.digest, records=True))
    changing = views(cluster_of([doctor.node(number) for number in range(node_count)]))
    cluster = next(changing)
    size = min(BLOCK, admissions)
    for number in range(size):
        if number % PODS_OF_VIEW == 0:
            cluster = next(changing)
        pod = submitted(number, node_count)
        for _ in owned(pod, number):
            pass
        metadata = pod["metadata"]
        metadata["generateName"] = f"{MARK}-{metadata['generateName']}"
        metadata["labels"][TASK] += f"-{MARK}"
        metadata["ownerReferences"][0]["name"] += f"-{MARK}"
        del metadata["name"], metadata["uid"], pod["status"]
        pod["spec"].pop("nodeName", None)
        request = pod_request(pod, namespace=metadata["namespace"], uid=f"{MARK}-{number}")
        made = log.write("mutate", request, cluster)
        log.write("validate", pod_request(made, namespace=request.namespace, uid=f"{MARK}-{number}-2"), cluster)
    log.close()
    block = path.read_bytes()
    with path.open("ab") as file:
        for number in range(1, admissions // size):
            file.write(block.replace(MARK.encode(), f"block-{number:03}".encode()))
    return admissions // size * size


def measured(rules: tuple[Path, Path], path: Path, pods: int) -> tuple[float, float]:
    """Run the command; return its time in seconds, and the peak of its memory in MiB."""
    answer = path.with_suffix(".answer")
    sides = [f"--{name}={file}" for name, file in zip(("old", "new"), rules, strict=True)]
    command = [sys.executable, "-m", "server", "diff", *sides, str(path), "--output", f"json={answer}"]
    begin = monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, used = os.wait4(process.pid, 0)
    seconds = monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 1:  # changes
        raise SystemExit(process.returncode or "nothing changed")
    found = json.loads(answer.read_text())
    [totals] = found["clusters"]
    differing = found["recorded"] and found["recorded"]["differing"]
    if (totals["pods"], totals["asTheyAreNow"]) != (pods, {}) or differing:
        raise SystemExit(f"not all pods were decided as they were submitted: {totals}, {found['recorded']}")
    return seconds, used.ru_maxrss / 1024


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--pods", type=int, default=100_000)
    arguments.add_argument("--admissions", type=int, default=1_000_000)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    promises = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        rules = {offered: write_rules(folder / offered, offered) for offered in ("Allocatable", "Available")}
        runs = []
        if given.pods:
            dump = folder / "dump.json"
            doctor.write_dump(dump, items(given.nodes, given.pods, read_rules([rules["Allocatable"][0]])))
            what = f"{given.pods:,} live pods"
            runs += [(f"{what}, {offered}", paths, dump, given.pods, LIVE_SECONDS) for offered, paths in rules.items()]
        if given.admissions:
            log, paths = folder / "decisions.log", rules["Available"]
            count = write_log(log, given.nodes, given.admissions, read_rules([paths[0]]))
            runs.append((f"{count:,} recorded admissions", paths, log, count, RECORDED_SECONDS))
        for what, paths, path, pods, most in runs:
            seconds, memory_mib = measured(paths, path, pods)
            promises.append(Promise(f"{what} ({path.stat().st_size / 1e6:.0f} MB)", seconds, most, unit=" s"))
            promises.append(Promise(f"{what}, memory", memory_mib, MEMORY_MIB, unit=" MiB"))
    code = exit_code(promises)
    return code if given.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
