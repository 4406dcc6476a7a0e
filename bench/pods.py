"""Cost of expensive pods: time and memory of one decision each, in a cluster of many nodes.

Each row is measured in a new process, after the decision of one ordinary pod.
"""

import argparse
import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from types import FrameType
from typing import Any

from bench.cluster import GPU, MIG1, MIG2, MIG3
from bench.process import memory_mib
from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.cluster.nodes.reservations import PodKey
from rules_engine.language.cel import CostExceeded
from rules_engine.model.json.strict import TooLargeError
from rules_engine.model.kubernetes.cluster import Cluster, Node, Taint
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.rules.evaluation import RuleSet
from rules_engine.server.cluster.store import Store
from tests.support.cluster import reserve
from tests.support.evaluation import compiled, container, injection, ladder, pod, request, rung

HOSTNAME = "kubernetes.io/hostname"
STAMP = "nvidia.com/gfd.timestamp"
_PROCESSES = multiprocessing.get_context("spawn")


def nodes(number: int) -> tuple[Node, ...]:
    """Return nodes with 33 labels, two of which have a different value on each node."""
    made = []
    for index in range(number):
        labels = {f"feature.node.kubernetes.io/cpu-{feature}": "true" for feature in range(29)}
        labels |= {"pool": f"pool-{index % 12}", "zone": f"zone-{index % 3}"}
        labels |= {HOSTNAME: f"node-{index:05}", STAMP: str(1_700_000_000 + index)}
        offered = [{GPU: 8}, {MIG3: 8, MIG2: 16}, {MIG2: 24}, {MIG1: 56}, {}][index % 5]
        taints = (Taint(key="nvidia.com/gpu", effect="NoSchedule"),) if index % 4 else ()
        amounts = {name: Quantity.of(count) for name, count in offered.items()}
        made.append(Node(name=f"node-{index:05}", labels=labels, taints=taints, allocatable=amounts))
    return tuple(made)


def term(*expressions: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in expressions]}


def requiring(*terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def requesting(**spec: Any) -> dict[str, Any]:
    """Return a pod that requests more than one node has, so that every rung is tried."""
    return pod(container("main", {MIG3: 9}), **spec)


def empty(count: int) -> list[dict[str, Any]]:
    return [requesting(**requiring(term((HOSTNAME, "In", ["node-00001"])), *[{}] * count))]


def plain(count: int) -> list[dict[str, Any]]:
    return [requesting(**requiring(*(term((HOSTNAME, "In", [f"no-{index}"])) for index in range(count))))]


def keys(pods: int, count: int) -> list[dict[str, Any]]:
    """Return pods that each name labels of their own and the hostname."""
    return [
        requesting(
            **requiring(
                term(
                    (HOSTNAME, "NotIn", ["x"]),
                    *((f"k{number}-{index}", "DoesNotExist", []) for index in range(count)),
                )
            )
        )
        for number in range(pods)
    ]


def numbers(count: int) -> list[dict[str, Any]]:
    terms = (term((STAMP, "Gt", [str(1_700_000_000 + index)]), ("none", "Exists", [])) for index in range(count))
    return [requesting(**requiring(*terms))]


def values(count: int) -> list[dict[str, Any]]:
    named = [f"node-{index:05}" for index in range(count)]
    return [requesting(**requiring(term((HOSTNAME, "In", named), ("none", "Exists", []))))]


def tolerations(count: int) -> list[dict[str, Any]]:
    return [requesting(tolerations=[{"key": f"k{index}", "operator": "Exists"} for index in range(count)])]


def containers(count: int) -> list[dict[str, Any]]:
    made = (container(f"c{index}", limits={MIG3: 1, GPU: 1}) for index in range(count))
    return [pod(*made, annotations={"task.bkbcs.tencent.com/gpu-type": "V100"})]


PODS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "one ordinary pod": lambda: [requesting(nodeSelector={"pool": "pool-1"})],
    "2,000 empty terms": lambda: empty(2_000),
    "20,000 empty terms": lambda: empty(20_000),
    "900 terms of a hostname": lambda: plain(900),
    "5,000 terms of a hostname": lambda: plain(5_000),
    "900 terms of Gt": lambda: numbers(900),
    "4,000 hostnames in one term": lambda: values(4_000),
    "10 pods of 900 labels": lambda: keys(10, 900),
    "64 pods of two labels": lambda: keys(64, 1),
    "1,000 tolerations": lambda: tolerations(1_000),
    "98,000 tolerations": lambda: tolerations(98_000),
    "200 GPU containers": lambda: containers(200),
    "12,000 GPU containers": lambda: containers(12_000),
}
RESERVING = ("900 terms of a hostname", "5,000 terms of a hostname", "98,000 tolerations", "12,000 GPU containers")


def rules() -> RuleSet:
    require = frozenset({NodeRequirement.MATCHES_POD})
    rungs = (MIG3, MIG2, MIG1, rung("nvidia.com/assumed", assume=True))
    return compiled(
        ladder(*rungs, nodes=NodeFilter(require=require), offered=Offered.AVAILABLE),
        injection({"cpu": 2, "memory": "4Gi"}, gpu_resource=GPU),
    )


class _OutOfTimeError(Exception):
    pass


def _stop(_: int, __: FrameType | None) -> None:
    raise _OutOfTimeError


def measure(pipe: Pipe, name: str, size: int, limit: float, *, reserving: bool) -> None:
    """Send the seconds of the slowest pod, the last outcome, the MiB before and after, and the largest pod's bytes."""
    signal.signal(signal.SIGALRM, _stop)
    rule_set, cluster, store = rules(), Cluster(nodes=nodes(size)), Store()
    store.replace_nodes(cluster.nodes)
    pods = PODS[name]()
    ordinary = PODS["one ordinary pod"]()[0]
    _decide(rule_set, cluster, ordinary)
    reserve(store, PodKey("ml/first", "0"), Pod.parse(_small(ordinary)), 0.0)
    before, slowest, outcome = memory_mib(), 0.0, ""
    for made in pods:
        begin = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            if reserving:
                with suppress(CostExceeded, TooLargeError):
                    reserve(store, PodKey("ml/p", "1"), Pod.parse(_small(made)), 0.0)
                outcome = f"{store.reservations} promised"
            else:
                outcome = _decide(rule_set, cluster, made)
        except _OutOfTimeError:
            outcome = "stopped"
        signal.setitimer(signal.ITIMER_REAL, 0)
        slowest = max(slowest, time.perf_counter() - begin)
    pipe.send((slowest, outcome, before, memory_mib(), max(len(json.dumps(made)) for made in pods)))


def _small(made: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with a request that many nodes can satisfy."""
    spec = made["spec"]
    return {**made, "spec": {**spec, "containers": [container("main", {MIG2: 1}), *spec["containers"][1:]]}}


def _decide(rule_set: RuleSet, cluster: Cluster, made: dict[str, Any]) -> str:
    decision = rule_set.mutate(request(made), cluster, indexed=True)
    return ", ".join(step.reason for step in decision.trace) or "no rule"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000, help="nodes of the cluster (default: 5000)")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds after which a decision is stopped (default: 60)"
    )
    parser.add_argument("--only", default="", help="measure only rows whose name contains this text")
    arguments = parser.parse_args()
    print(f"{'pods, at ' + str(arguments.nodes) + ' nodes':38} {'KiB':>6} {'ms':>9} {'RSS':>5} {'after':>6}")
    rows = [*((name, False) for name in PODS), *((name, True) for name in RESERVING)]
    for name, reserving in rows:
        if arguments.only not in name:
            continue
        ours, theirs = _PROCESSES.Pipe()
        process = _PROCESSES.Process(
            target=measure, args=(theirs, name, arguments.nodes, arguments.limit), kwargs={"reserving": reserving}
        )
        process.start()
        theirs.close()
        seconds, outcome, before, after, size = ours.recv()
        process.join()
        label = f"reserve: {name}" if reserving else name
        print(f"{label:38} {size / 1024:6.0f} {seconds * 1000:9.1f} {before:5.0f} {after:6.0f}  {outcome}", flush=True)


if __name__ == "__main__":
    main()
