"""Difference of rules for a large cluster (python -m bench.diff [--pods N] [--nodes N] [--runs N] [--check]).

A cluster is generated as kubectl writes it. All of its pods request devices, half of them are of Jobs with a template
each, half of ReplicaSets with ten pods, and a rule reads a label that is different for each. Two rule sets decide it,
first with ladders that count all devices, then with ladders that count free ones. A decision log is generated, too:
each pod is submitted to both endpoints.

The command of an earlier commit runs in turns with that of this checkout. CPU time counts, the least of the runs. With
--check, the exit code is 1 if a target is missed.
"""

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import doctor, process
from bench.promise import Promise, exit_code
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.rule_files import RuleFiles, read_rules
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.state import ServedRules
from rules_engine.server.telemetry.decision_log import encode_line

BEFORE = "fca302c4"
"""The commit before clusters were read into memory and decisions not cached."""

CPU_RATIO, MEMORY_RATIO = 0.9, 5
"""CPU time by that of BEFORE, and the peak of memory by the size of the file, or by MEMORY_MIB if that is more."""

MEMORY_MIB = 100

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
    metadata["namespace"] = f"team-{number // PODS_OF_REPLICA_SET % 40}"
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
        admitted: Any = rules.rule_set.mutate(request, cluster).result
        yield {**admitted, "status": pod["status"]}
    yield from nodes
    yield from doctor.others()


def cluster_of(nodes: list[dict[str, Any]]) -> Cluster:
    """Return the cluster of nodes without pods."""
    return Cluster(nodes=tuple(read_node(node, lambda *_: None) for node in nodes))


def log_line(served: ServedRules, endpoint: str, request: AdmissionRequest, cluster: Cluster) -> tuple[bytes, Any]:
    """Return the line of a decision as a server writes it, and the pod after it."""
    record = AdmissionRecord(endpoint)
    record.uid, record.request, record.served, record.cluster = request.uid, request, served, cluster
    decide = RuleSet.mutate if endpoint == "mutate" else RuleSet.validate
    decision = record.decision = decide(served.rule_set, request, cluster)
    line = encode_line(record, decision, id="1", at=datetime.now(UTC), view=1, requests=True)
    return line.text, decision.result


def write_log(path: Path, node_count: int, admissions: int, rules: RuleFiles) -> None:
    """Write a log of admissions, with two lines for each."""
    served = ServedRules(rule_set=rules.rule_set, digest=rules.loaded.digest)
    cluster = cluster_of([doctor.node(number) for number in range(node_count)])
    with path.open("wb") as file:
        for number in range(admissions):
            pod = submitted(number, node_count)
            for _ in owned(pod, number):
                pass
            metadata = pod["metadata"]
            metadata["generateName"] = f"{number}-{metadata['generateName']}"
            del metadata["name"], metadata["uid"], pod["status"]
            pod["spec"].pop("nodeName", None)
            request = pod_request(pod, namespace=metadata["namespace"], uid=f"{number}")
            mutation, made = log_line(served, "mutate", request, cluster)
            later = pod_request(made, namespace=request.namespace, uid=f"{number}-2")
            validation, _ = log_line(served, "validate", later, cluster)
            file.write(mutation + validation)


def measured(checkout: Path, rules: tuple[Path, Path], pods: int, *options: str) -> tuple[float, float]:
    """Run the command of a checkout; return its CPU time in seconds, and the peak of its memory in MiB."""
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        sides = [f"--{name}={file}" for name, file in zip(("old", "new"), rules, strict=True)]
        command = ["-m", process.command_module(checkout), "diff", *sides, *options, "--output", f"json={answer}"]
        used = process.measured(command, checkout, codes=(1,))  # changes
        found = json.loads(answer.read_text())
    [totals] = found["clusters"]
    if (totals["pods"], totals["unknown"]) != (pods, {}):
        raise SystemExit(f"not all pods were decided: {totals}, {found['recorded']}")
    return used


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=500)
    arguments.add_argument("--pods", type=int, default=10_000)
    arguments.add_argument("--runs", type=int, default=2)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    promises = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        before = process.earlier(BEFORE, folder)
        rules = {offered: write_rules(folder / offered, offered) for offered in ("Allocatable", "Available")}
        dump, log, nodes = folder / "dump.json", folder / "decisions.log", str(folder / "nodes.json")
        doctor.write_dump(dump, items(given.nodes, given.pods, read_rules([rules["Allocatable"][0]])))
        doctor.write_dump(Path(nodes), map(doctor.node, range(given.nodes)))
        write_log(log, given.nodes, given.pods, read_rules([rules["Available"][0]]))
        recorded = ("--cluster", nodes, "--from-log")
        for what, paths, file, old, new in (
            # BEFORE took live objects as arguments.
            ("live pods, Allocatable", rules["Allocatable"], dump, (), ("--cluster",)),
            ("live pods, Available", rules["Available"], dump, (), ("--cluster",)),
            ("recorded admissions", rules["Available"], log, recorded, recorded),
        ):
            (old_seconds, _), (seconds, memory_mib) = process.least(
                given.runs,
                partial(measured, before, paths, given.pods, *old, str(file)),
                partial(measured, process.ROOT, paths, given.pods, *new, str(file)),
            )
            size_mib = max(file.stat().st_size / 2**20, MEMORY_MIB)
            shown = f"{given.pods:,} {what} ({size_mib:.0f} MiB, {seconds:.1f} s)"
            promises.append(Promise(f"{shown}, by {BEFORE}", seconds / old_seconds, CPU_RATIO))
            promises.append(Promise(f"{shown}, memory by size", memory_mib / size_mib, MEMORY_RATIO))
    code = exit_code(promises)
    return code if given.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
