"""Cost of hostile pods for a server and the pods beside them (python -m bench.hostile [--nodes N] [--only TEXT]).

Each of PODS is sent for some seconds over TLS on loopback to a server with rules of all kinds, a decision log and an
inventory of many nodes, while another process sends small pods. Memory is that of the server (VmRSS, and VmHWM for the
peak). The longest pause is that of the slowest small pod. A pod that is not answered in time is not sent again. Each of
CROWDS is sent by 60 callers at once. Each bound on the work for a pod (docs/how-to/operate.md) has its worst pod here.

The exit code is 1 if a promise is not kept.
"""

import argparse
import http.client
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import yaml

from bench.listener import KEPT_MIB, LARGE_PEAK_MIB, Client, head, send, serving, small_pods
from bench.process import ROOT, memory_mib
from bench.promise import Promise, exit_code
from bench.reviews import MIG, review, training_pod
from rules_engine.rules.evaluation.steps import MAX_PATCH_BYTES
from rules_engine.server.telemetry.decision_log import MAX_LINE_BYTES
from tests.support.server import Running

NODES = 5000
SECONDS = 3.0
"""Duration for which each pod is sent."""
LEAST = 3
"""Minimum number of times it is sent."""
KEPT_SECONDS = 10.0
"""Time for memory to be released."""

CROWD = 60
"""Callers of a crowd, each of which sends its next pod once it is answered."""
CROWD_BESIDE_SECONDS = 0.1
"""p99 of small pods beside a crowd."""

BESIDE_BYTES = 256 * 1024
"""Size up to which a pod delays small pods by at most BESIDE_SECONDS."""
BESIDE_SECONDS = 0.05
PAUSE_SECONDS = 0.25
"""Longest pause of small pods for a pod up to BESIDE_BYTES."""
BESIDE_LARGE_SECONDS = 0.3
"""Delay for each 3 MiB of a larger body: the JSON parser does not release the interpreter."""
LARGE_BYTES = 3 * 1024 * 1024

ANSWER_MIB = 1.5
"""A patch of MAX_PATCH_BYTES in base64, and the rest of the response."""
assert MAX_PATCH_BYTES * 4 / 3 < ANSWER_MIB * 1024 * 1024

DRIVERS = ROOT / "examples/inventories/dra-h100.yaml"

HOSTNAME = "kubernetes.io/hostname"
GPU, MIG2, MIG1 = "nvidia.com/gpu", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-1g.10gb"

Pod = dict[str, Any]


def small(*containers: Pod, **spec: Any) -> Pod:
    """Return a pod with only these containers."""
    metadata = {"name": "hostile", "annotations": {"task.bkbcs.tencent.com/gpu-type": "V100"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": list(containers), **spec}}


def requesting(count: int = 9, name: str = "main") -> Pod:
    """Return a container that requests more than a node has, so that all rungs are evaluated."""
    return {"name": name, "resources": {"limits": {MIG: str(count)}}}


def gpu_containers(count: int) -> Pod:
    return small(*(requesting(1, f"c{number}") for number in range(count)))


def plain_containers(count: int) -> Pod:
    return small(*({"name": f"container-{n}", "image": "registry.example.com/app:1"} for n in range(count)))


def empty_containers(count: int) -> Pod:
    return small(*({} for _ in range(count)))


def tolerations(count: int) -> Pod:
    return small(requesting(), tolerations=[{"operator": "Exists", "key": f"{n:05}"} for n in range(count)])


def annotations(count: int, size: int) -> Pod:
    pod = training_pod()
    pod["metadata"]["annotations"] |= {f"example.com/{n}": "x" * size for n in range(count)}
    return pod


def labels(count: int) -> Pod:
    pod = training_pod()
    pod["metadata"]["labels"] |= {f"label-{n}": "x" for n in range(count)}
    return pod


def owners(count: int) -> Pod:
    pod = training_pod()
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": f"job-{n}"} for n in range(count)]
    return pod


def environment(count: int) -> Pod:
    """Return a pod with values that the decision log must not contain in messages."""
    return small({"name": "main", "env": [{"value": f"{n:x}"} for n in range(count)]})


def term(*expressions: tuple[str, str, list[str]]) -> Pod:
    return {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in expressions]}


def requiring(*terms: Pod) -> Pod:
    """Return a pod with required node affinity."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return small(requesting(), affinity={"nodeAffinity": required})


def empty_terms(count: int) -> Pod:
    return requiring(term((HOSTNAME, "In", ["node-00001"])), *({} for _ in range(count)))


def plain_terms(count: int) -> Pod:
    return requiring(*(term((HOSTNAME, "In", [f"no-{number}"])) for number in range(count)))


def pool_expressions(count: int) -> Pod:
    """Return a pod of the first pool that fits in no pool, with expressions that nodes of all pools match."""
    pod = requiring(term(*(("stamp", "Gt", [str(number)]) for number in range(count))))
    pod["spec"]["nodeSelector"] = {"pool": "pool-0"}
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "9"}}
    return pod


def arguments(value: Any, count: int) -> Pod:
    return small({"name": "main", "args": [value] * count})


def updated(pod: Pod) -> bytes:
    """Return the review of an update, which has the pod twice."""
    body: Pod = json.loads(review(pod))
    body["request"] |= {"operation": "UPDATE", "oldObject": pod}
    return json.dumps(body, separators=(",", ":")).encode()


def parts(number: int) -> Pod:
    """Return a pod with many devices of three resources, which fit on few nodes: one of 24."""
    amounts = {MIG: 7 + number % 3, MIG2: 8 + number // 3 % 4 * 2, MIG1: 6 + number // 12 % 2 * 3}
    return small({"name": "main", "resources": {"limits": {name: str(amount) for name, amount in amounts.items()}}})


def label_keys(number: int, count: int) -> Pod:
    """Return a pod whose affinity names the hostname and unique labels."""
    keys: list[tuple[str, str, list[str]]] = [(f"k{number}-{index}", "DoesNotExist", []) for index in range(count)]
    return requiring(term((HOSTNAME, "NotIn", ["x"]), *keys))


PODS: Mapping[str, Callable[[], Sequence[Pod | bytes]]] = {
    "ordinary": lambda: [training_pod()],
    "20,000 containers {}": lambda: [empty_containers(20_000)],
    "2,000 labels": lambda: [labels(2_000)],
    "100 owner references": lambda: [owners(100)],
    "3,500 environment values": lambda: [environment(3_500)],
    "200 GPU containers": lambda: [gpu_containers(200)],
    "64 pods with a label key each": lambda: [label_keys(number, 1) for number in range(64)],
    "10 pods of 54 KiB of label keys": lambda: [label_keys(number, 900) for number in range(10)],
    "20,000 empty terms": lambda: [empty_terms(20_000)],
    "5,000 terms of a hostname": lambda: [plain_terms(5_000)],
    "12,000 GPU containers": lambda: [gpu_containers(12_000)],
    "1.3 MB in one annotation": lambda: [annotations(1, 1_300_000)],
    "1.3 MB in 20,000 annotations": lambda: [annotations(20_000, 45)],
    "100,000 owner references": lambda: [owners(100_000)],
    "98,000 tolerations": lambda: [tolerations(98_000)],
    "3 MiB of containers": lambda: [plain_containers(47_000)],
    "62 KiB of node affinity with 12 pools": lambda: [pool_expressions(1_300)],
    "2,700,000 empty strings": lambda: [arguments("", 2_700_000)],
    "1,000,000 empty strings, updated": lambda: [updated(arguments("", 1_000_000))],
    "450,000 empty lists": lambda: [arguments([], 450_000)],
    "24 pods with three resources of drivers": lambda: [parts(number) for number in range(24)],
}


def resource_names(count: int) -> Pod:
    return small({"name": "main", "resources": {"limits": {f"x{n:04}": "1" for n in range(count)}}})


def named_containers(count: int) -> Pod:
    return small(*({"name": f"c{n}"} for n in range(count)))


CROWDS: Mapping[str, tuple[str, Callable[[], Pod]]] = {
    "5,200 resource names": ("/mutate", lambda: resource_names(5_200)),
    "nested macros over 100 containers": ("/validate", lambda: named_containers(100)),
    "nested macros over 3,500 containers": ("/validate", lambda: named_containers(3_500)),
    "three resources of drivers": ("/mutate", lambda: parts(11)),
}
"""Endpoint and pod."""


def _rule(kind: str, name: str, spec: Pod) -> Pod:
    return {"apiVersion": "gpurules.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


RULES = (
    _rule(
        "FallbackLadder",
        "mig",
        {
            "rungs": [*({"resource": name} for name in (MIG, MIG2, MIG1)), {"resource": GPU, "assume": True}],
            "nodes": {"require": ["MatchesPod"]},
            "offered": "Available",
        },
    ),
    _rule(
        "FallbackLadder",
        "pools",
        {
            "rungs": [{"resource": GPU, "name": f"pool-{n}", "pool": {"pool": f"pool-{n}"}} for n in range(12)],
            "nodes": {"require": ["MatchesPod"]},
            "offered": "Available",
        },
    ),
    *(
        _rule(
            "ResourceInjection",
            kind.lower(),
            {
                "gpuType": kind,
                "gpuTypeAnnotation": "task.bkbcs.tencent.com/gpu-type",
                "coefficients": {"cpu": "12", "memory": "80Gi", "nvidia.com/shm": "1Gi"},
            },
        )
        for kind in ("V100", "T4")
    ),
    _rule(
        "Validation",
        "limits",
        {
            "validations": [
                {
                    "expression": "object.spec.containers.all(c, has(c.name))",
                    "messageExpression": "'the first container is ' + object.spec.containers[0].?name.orValue('?')",
                },
                {
                    "expression": "object.spec.containers.all(c, !has(c.env) || c.env.size() < 100)",
                    "messageExpression": "'it begins with ' + object.spec.containers[0].env[200].value",
                },
            ]
        },
    ),
)


NESTED = _rule(
    "Validation",
    "nested",
    {
        "validations": [
            {"expression": "object.spec.containers.all(a, object.spec.containers.all(b, a.name + b.name != ''))"}
        ]
    },
)


def _node(number: int) -> Pod:
    offered = [{GPU: 8}, {MIG: 8, MIG2: 16}, {MIG2: 24}, {MIG1: 56}, {"cpu": 8}][number % 5]
    labels = {HOSTNAME: f"node-{number:05}", "pool": f"pool-{number % 12}", "stamp": str(1_700_000_000 + number)}
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}] if number % 4 else []
    return {"name": f"node-{number:05}", "labels": labels, "taints": taints, "allocatable": offered}


def _with_drivers(nodes: int) -> Pod:
    """Return a cluster whose cards are partitioned by a driver, each node in another way."""
    spec: Pod = yaml.safe_load(DRIVERS.read_text())["spec"]
    (node, *_) = spec["nodes"]
    random = Random(1)
    names = [f"driver-{number:05}" for number in range(nodes)]
    pods = [
        {
            "metadata": {"name": f"{name}-{resource[-6]}", "namespace": "ml"},
            "spec": {"nodeName": name, **small({"name": "c", "resources": {"limits": {resource: amount}}})["spec"]},
        }
        for name in names
        for resource, most in ((MIG, 3), (MIG2, 6), (MIG1, 12))
        if (amount := random.randint(0, most))
    ]
    made = [{**node, "name": name, "count": 1, "labels": {HOSTNAME: name}} for name in names]
    return {**spec, "nodes": made, "pods": pods}


def written(folder: Path, nodes: int, *more_rules: Pod, drivers: bool = False) -> tuple[str | Path, ...]:
    """Write rules and an inventory, and return arguments of a server that reads them and writes a decision log."""
    rules, inventory = folder / "rules.yaml", folder / "inventory.json"
    rules.write_text("\n---\n".join(map(json.dumps, (*RULES, *more_rules))))
    spec = _with_drivers(nodes // 10) if drivers else {"nodes": [_node(number) for number in range(nodes)]}
    members = {"metadata": {"name": "many"}, "spec": spec}
    inventory.write_text(json.dumps({"apiVersion": "gpurules.io/v1", "kind": "ClusterInventory", **members}))
    return "--rules", rules, "--cluster", inventory, "--decision-log", folder / "decisions"


def measured(
    name: str, pods: Sequence[Pod | bytes], path: str, server: Running, client: Client, first: float, usual: float
) -> list[Promise]:
    """Send pods in turn. `first`: RSS in MiB before them; `usual`: p99 of small pods alone, in seconds."""
    bodies = [pod if isinstance(pod, bytes) else review(pod) for pod in pods]
    requests = [head(len(body), path) + body for body in bodies]
    size = max(map(len, requests))
    statuses: Counter[int] = Counter()
    seconds: list[float] = []
    answer = 0
    with small_pods(server) as beside, client.secure(1) as connection:
        end = monotonic() + SECONDS
        while not statuses[0] and (len(seconds) < max(LEAST, len(requests)) or monotonic() < end):
            begin = monotonic()
            try:
                connection.sendall(requests[len(seconds) % len(requests)])
                response = http.client.HTTPResponse(connection)
                response.begin()
                answer = max(answer, len(response.read()))
                statuses[response.status] += 1
            except TimeoutError:
                statuses[0] += 1
            seconds.append(monotonic() - begin)
        latencies, failed = beside()
    peak = memory_mib(server.process.pid, "VmHWM")
    end = monotonic() + KEPT_SECONDS
    while (kept := memory_mib(server.process.pid) - first) > KEPT_MIB and monotonic() < end:
        sleep(0.2)
    seconds.sort()
    print(
        f"  {name} at {path}: {size / 1024:.0f} KiB, {len(seconds)} times,",
        f"p50 {seconds[len(seconds) // 2] * 1000:.0f} ms, slowest {seconds[-1] * 1000:.0f} ms;",
        f"answers {dict(statuses)}, the largest {answer / 1024:.0f} KiB;",
        f"meanwhile {len(latencies)} small pods, slowest {max(latencies) * 1000:.0f} ms",
        flush=True,
    )
    allowed = BESIDE_SECONDS if size <= BESIDE_BYTES else BESIDE_LARGE_SECONDS * max(1.0, size / LARGE_BYTES)
    what = f"{name}, {path[1:]}"
    return [
        Promise(f"{what}: answered 200", statuses[200], len(seconds), least=True),
        Promise(f"{what}: answer", answer / 1024 / 1024, ANSWER_MIB, unit=" MiB"),
        Promise(f"{what}: p99 of small pods, increase", p99(latencies) - usual, allowed, unit=" s"),
        Promise(f"{what}: longest pause", max(latencies), PAUSE_SECONDS - BESIDE_SECONDS + allowed, unit=" s"),
        Promise(f"{what}: small pods not answered 200", failed, 0),
        Promise(f"{what}: peak RSS", peak, LARGE_PEAK_MIB, unit=" MiB"),
        Promise(f"{what}: RSS kept after 10 s", kept, KEPT_MIB, unit=" MiB"),
    ]


def crowd(name: str, server: Running, client: Client) -> list[Promise]:
    """Send a pod by many callers at once, for some seconds."""
    path, make = CROWDS[name]
    body = review(make())
    request = head(len(body), path) + body
    statuses: Counter[int] = Counter()
    over = threading.Event()

    def caller(number: int) -> None:
        with client.secure(number) as connection:
            while not over.is_set():
                statuses[send(connection, request)] += 1

    with small_pods(server) as beside, ThreadPoolExecutor(CROWD) as threads:
        callers = [threads.submit(caller, number) for number in range(CROWD)]
        sleep(2 * SECONDS)
        latencies, failed = beside()
        over.set()
        for each in callers:
            each.result()
    print(f"  {CROWD} callers, {name} at {path}: {len(body) / 1024:.0f} KiB, answers {dict(statuses)}", flush=True)
    return [
        Promise(f"crowd, {name}: p99 of small pods", p99(latencies), CROWD_BESIDE_SECONDS, unit=" s"),
        Promise(f"crowd, {name}: small pods not answered 200", failed, 0),
    ]


def p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--only", default="", help="send only pods whose name contains this")
    arguments = parser.parse_args()
    chosen = {name: make for name, make in PODS.items() if arguments.only in name}
    promises: list[Promise] = []
    longest = 0
    for kind, make in chosen.items():
        with TemporaryDirectory(prefix="gpu-rules-bench-") as name:
            folder = Path(name)
            files = written(folder, arguments.nodes, drivers="drivers" in kind)
            with serving(folder, *files) as (server, client):
                with small_pods(server) as alone:
                    sleep(1.0)
                    usual = p99(alone()[0])
                first = memory_mib(server.process.pid)
                for path in ("/mutate", "/validate"):
                    promises += measured(kind, make(), path, server, client, first, usual)
            with (folder / "decisions").open("rb") as log:
                longest = max(longest, *map(len, log))
    for kind in (kind for kind in CROWDS if arguments.only in kind):
        with TemporaryDirectory(prefix="gpu-rules-bench-") as name:
            folder = Path(name)
            files = written(folder, arguments.nodes, NESTED, drivers="drivers" in kind)
            with serving(folder, *files) as (server, client):
                promises += crowd(kind, server, client)
    promises.append(Promise("longest line of the decision log", longest / 1024, MAX_LINE_BYTES / 1024, unit=" KiB"))
    return exit_code(promises)


if __name__ == "__main__":
    sys.exit(main())
