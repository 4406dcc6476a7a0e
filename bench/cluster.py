"""Cost of a large live cluster (python -m bench.cluster [--nodes N] [--pods N] [--events N] [--samples N]).

A stand-in API server in its own process serves the cluster. Its view is measured in a new process, and compared in the
same run with the view of an empty cluster.
"""

import argparse
import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from typing import Any

from bench.process import memory_mib
from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.rule_set.rule_set import ClusterRequirements
from rules_engine.server.cluster.connection import Connection
from rules_engine.server.cluster.live import LiveCluster
from rules_engine.server.cluster.reading import read_node
from tests.support.apiserver import ApiServer, Object, bound, node
from tests.support.evaluation import compiled, container, ladder, pod, request, rung

GPU, MIG3, MIG2, MIG1 = "nvidia.com/gpu", "nvidia.com/mig-3g.30gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-1g.10gb"
POOLS, ZONES = 12, 3
NODE_BYTES, POD_BYTES = 20_000, 8_000
MIB = 1024 * 1024
_PROCESSES = multiprocessing.get_context("spawn")


def filler(size: int) -> dict[str, Any]:
    """Return fields of about this many bytes, with many small members like managedFields and images."""
    entry: dict[str, Any] = {
        "names": ["registry.example.com/team/image@sha256:0123456789abcdef", "registry.example.com/team/image:1.2.3"]
    }
    entry |= {"sizeBytes": 123456789, "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:annotations": {"f:a": {}}}}
    return {"images": [entry] * (size // len(json.dumps(entry)))}


def big_node(number: int, filling: Object) -> Object:
    labels = {f"feature.node.kubernetes.io/cpu-{feature}": "true" for feature in range(30)}
    labels |= {
        "pool": f"pool-{number % POOLS}",
        "zone": f"zone-{number % ZONES}",
        "node.kubernetes.io/instance-type": "x8",
    }
    offered = [{GPU: 8}, {MIG3: 8, MIG2: 16}, {MIG2: 24}, {MIG1: 56}, {}][number % 5]
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}] if number % 4 else []
    made = node(
        f"node-{number:05}", {**offered, "pods": 110, "ephemeral-storage": "900Gi"}, labels=labels, taints=taints
    )
    made["status"]["images"] = filling["images"]
    return made


def big_pod(number: int, nodes: int, filling: Object, resource: str | None = None) -> Object:
    holder = number % nodes
    offered = [GPU, MIG2, MIG2, MIG1, None][holder % 5]
    # One pod in eight holds a device.
    amounts: dict[str, Any] = {"cpu": "500m", "memory": "2Gi"}
    if offered and number % 8 == 0:
        amounts[resource or offered] = 1
    made = bound(f"pod-{number:06}", f"node-{holder:05}", amounts)
    made["metadata"]["managedFields"] = filling["images"]
    return made


def serve(pipe: Pipe, nodes: int, pods: int) -> None:
    """Run the stand-in. A number received from the pipe sends that many events at once; "end" ends it."""
    api = ApiServer()
    node_filling, pod_filling = filler(NODE_BYTES - 2500), filler(POD_BYTES - 800)

    def store(collection: str, made: Object) -> None:
        api.version += 1
        made["metadata"]["resourceVersion"] = str(api.version)
        api.objects[collection][f"{made['metadata'].get('namespace', '')}/{made['metadata']['name']}"] = made

    for number in range(nodes):
        store("nodes", big_node(number, node_filling))
    for number in range(pods):
        store("pods", big_pod(number, nodes, pod_filling))
    api.start()
    pipe.send(api.url)
    while (order := pipe.recv()) != "end":
        for number in range(order):
            made = big_pod(pods + number // 3, nodes, pod_filling, GPU)
            with api.changed:
                # A pod is created, changed and deleted; one event in ten is of a node.
                if number % 10 == 9:
                    changed = big_node(number % nodes, node_filling)
                    changed["spec"]["unschedulable"] = bool(number // 10 % 2)
                    store("nodes", changed)
                    api.announce("nodes", "MODIFIED", changed, changed)
                else:
                    store("pods", made)
                    kind = ("ADDED", "MODIFIED", "DELETED")[number % 3]
                    api.announce("pods", kind, made, made if number % 3 else None)
    api.stop()


@contextmanager
def standin(nodes: int, pods: int) -> Iterator[tuple[str, Pipe]]:
    """Run the stand-in in its own process. Yields its URL, and a pipe for the number of events to send."""
    ours, theirs = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=serve, args=(theirs, nodes, pods), daemon=True)
    process.start()
    theirs.close()
    yield ours.recv(), ours
    ours.send("end")
    process.join()


def rule_sets() -> Mapping[str, RuleSet]:
    rungs = (MIG3, MIG2, MIG1, rung(GPU, assume=True))
    matching = NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD, NodeRequirement.READY}))
    counted = NodeFilter(require=frozenset({NodeRequirement.READY, NodeRequirement.SCHEDULABLE}))
    return {
        "Allocatable": compiled(ladder(*rungs)),
        "Available, Ready, Schedulable": compiled(ladder(*rungs, offered=Offered.AVAILABLE, nodes=counted)),
        "Available, MatchesPod": compiled(ladder(*rungs, offered=Offered.AVAILABLE, nodes=matching)),
    }


def requests() -> list[AdmissionRequest]:
    """Return pods that request 3g.30gb, most of them more than one node has, in every pool."""
    made = []
    for number in range(POOLS * 3):
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["zone-0", "zone-1"]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        object = pod(
            container("main", {MIG3: 9 if number % 3 else 1}),
            nodeSelector={"pool": f"pool-{number % POOLS}"},
            tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
            affinity={"nodeAffinity": required} if number % 2 else {},
        )
        made.append(request(object))
    return made


def percentiles(seconds: list[float]) -> dict[str, float]:
    seconds.sort()
    return {"p50": seconds[len(seconds) // 2] * 1e6, "p99": seconds[int(len(seconds) * 0.99)] * 1e6}


def decide(rule_set: RuleSet, large: Callable[[], Cluster], small: Cluster, samples: int) -> dict[str, Any]:
    """Measure decisions with the two clusters in turn, in microseconds."""
    took: tuple[list[float], list[float]] = ([], [])
    pods = requests()
    for number in range(samples):
        request = pods[number % len(pods)]
        for index in (0, 1) if number % 2 else (1, 0):
            begin = time.perf_counter()
            rule_set.mutate(request, large() if index == 0 else small)
            took[index].append(time.perf_counter() - begin)
    found = {"large": percentiles(took[0]), "small": percentiles(took[1])}
    ratios = {name: found["large"][name] / found["small"][name] for name in ("p50", "p99")}
    return {**found, "ratio": ratios}


def measure(pipe: Pipe, url: str, nodes: int, events: int, samples: int) -> None:
    """Measure the view in a new process, and send the results. Requests `events` over the pipe."""

    def configure(configuration: Any) -> None:
        configuration.host = url

    live = LiveCluster(Connection(configure), ClusterRequirements(nodes=True, pods=True, namespaces=True))
    before = memory_mib()
    begin = time.perf_counter()
    live.start()
    if not live.wait_until(lambda cluster: cluster.known, 600):
        sys.exit(f"not synced: {live.health}")
    found: dict[str, Any] = {"synced_seconds": time.perf_counter() - begin, "before_mib": before}
    assert len(live.current().nodes) == nodes
    gc.collect()
    found["settled_mib"], found["peak_mib"] = memory_mib(), memory_mib(field="VmHWM")
    if events:
        small = Cluster(nodes=tuple(read_node(big_node(number, filler(100))) for number in (0, 1)))
        sets = rule_sets()
        cold = time.perf_counter()
        sets["Available, MatchesPod"].mutate(requests()[1], live.current())
        found["first_microseconds"] = (time.perf_counter() - cold) * 1e6
        for rule_set in sets.values():
            decide(rule_set, live.current, small, 200)
        found["quiet"] = {name: decide(rule_set, live.current, small, samples) for name, rule_set in sets.items()}
        found["busy"] = busy(pipe, live, small, sets, events)
        found["after_events_mib"] = memory_mib()
    live.stop()
    pipe.send(found)


def busy(pipe: Pipe, live: LiveCluster, small: Cluster, sets: Mapping[str, RuleSet], events: int) -> dict[str, Any]:
    """Measure decisions while events arrive at full speed."""

    def seen() -> int:
        return sum(health.counts.get("events", 0) for health in live.health)

    start, begin = seen(), time.perf_counter()
    pipe.send(events)
    results: list[dict[str, Any]] = []
    decisions = 0
    while not results or seen() < start + events:
        results.append(decide(sets["Available, MatchesPod"], live.current, small, 200))
        decisions += 400
        # Pauses between admissions, as on a network, since a busy loop would not release the interpreter.
        time.sleep(0.001)
    seconds = time.perf_counter() - begin
    middle = sorted(results, key=lambda result: result["large"]["p99"])[len(results) // 2]
    return {"events_per_second": events / seconds, "decisions_per_second": decisions / seconds, **middle}


def run(nodes: int, pods: int, events: int, samples: int) -> dict[str, Any]:
    """Measure the views of both clusters, each in its own process."""
    found = {}
    for name, size in (("empty", (0, 0)), ("full", (nodes, pods))):
        with standin(*size) as (url, api):
            mine, its = _PROCESSES.Pipe()
            viewer = _PROCESSES.Process(
                target=measure, args=(its, url, size[0], events if name == "full" else 0, samples), daemon=True
            )
            viewer.start()
            its.close()  # so that recv() fails if the viewer fails
            while isinstance(message := mine.recv(), int):
                api.send(message)
            found[name] = message
            viewer.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=30_000)
    parser.add_argument("--samples", type=int, default=4000)
    arguments = parser.parse_args()
    sizes = (
        len(json.dumps(big_node(0, filler(NODE_BYTES - 2500)))),
        len(json.dumps(big_pod(0, 1, filler(POD_BYTES - 800)))),
    )
    print(f"{arguments.nodes} nodes of {sizes[0]:,} bytes, {arguments.pods} pods of {sizes[1]:,} bytes")
    found = run(arguments.nodes, arguments.pods, arguments.events, arguments.samples)
    full, empty = found["full"], found["empty"]
    print(f"time to synced            {full['synced_seconds']:.1f} s")
    more = full["settled_mib"] - empty["settled_mib"]
    print(f"RSS settled               {full['settled_mib']:.0f} MiB, {more:+.0f} MiB compared with an empty cluster")
    print(f"RSS peak                  {full['peak_mib']:.0f} MiB; after all events {full['after_events_mib']:.0f} MiB")
    print(f"first decision of a kind  {full['first_microseconds']:.0f} µs")
    rows = {**full["quiet"], "… while events arrive": full["busy"]}
    print(
        f"{'decisions, µs':34} {'large p50':>10} {'p99':>8} {'small p50':>10} {'p99':>8} {'ratio p50':>10} {'p99':>6}"
    )
    for name, row in rows.items():
        large, small, ratio = row["large"], row["small"], row["ratio"]
        print(
            f"{name:34} {large['p50']:10.0f} {large['p99']:8.0f} {small['p50']:10.0f} {small['p99']:8.0f}"
            f" {ratio['p50']:10.2f} {ratio['p99']:6.2f}"
        )
    busy = full["busy"]
    print(f"events processed          {busy['events_per_second']:.0f} per second,", end=" ")
    print(f"with {busy['decisions_per_second']:.0f} decisions per second")


if __name__ == "__main__":
    main()
