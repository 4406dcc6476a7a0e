"""Diagnosis of a large cluster (python -m bench.doctor [--nodes N] [--pods N] [--runs N] [--check]).

A dump of more than 800 MB is generated as kubectl writes it, with the pods of ordinary workloads. It is diagnosed in a
new process, whose CPU time and peak of memory count. On a cluster of a tenth of the size, `doctor` and `check` of an
earlier commit run in turns with those of this checkout. With --check, the exit code is 1 if a target is missed.
"""

import argparse
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import json

from bench.process import ROOT, command_module, earlier, least, measured
from bench.promise import Promise, exit_code
from rules_engine.cluster.read.clusters import read_cluster

SECONDS, MEMORY_MIB = 60, 3072

BEFORE = "fca302c4"
"""The commit before all commands read clusters in the same way."""

CPU_RATIOS = {"doctor": 1.1, "check": 1.0}
"""CPU time by that of BEFORE, for a cluster of a tenth of the size."""

RULES = """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: mig}
spec: {offered: Available, rungs: [{resource: nvidia.com/mig-3g.40gb}, {resource: nvidia.com/gpu}]}
"""

GPU = "nvidia.com/gpu"
OFFERED: tuple[dict[str, int], ...] = (
    {GPU: 8},
    {"nvidia.com/mig-3g.40gb": 8, "nvidia.com/mig-1g.10gb": 8},
    {"nvidia.com/mig-2g.20gb": 24},
    {},
)
WORKLOADS = 500
PENDING = 100
"""One pod in so many is pending, and has an event."""


def node(number: int) -> dict[str, Any]:
    """Return a node with some 20 kB as kubectl indents it."""
    amounts = {"cpu": "96", "memory": "1056000000Ki", "pods": "110", "ephemeral-storage": "900Gi"}
    amounts |= {name: str(amount) for name, amount in OFFERED[number % len(OFFERED)].items()}
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{index}": "true" for index in range(60)}
    labels |= {"kubernetes.io/hostname": f"node-{number:05}", "nvidia.com/gpu.present": "true"}
    labels |= {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/mig.strategy": "mixed"}
    labels |= {"pool": f"pool-{number % 12}", "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    times = {"lastHeartbeatTime": f"2026-11-01T12:{number % 60:02}:00Z", "lastTransitionTime": "2026-09-01T08:00:00Z"}
    image = {"names": [f"registry.example.com/team/image@sha256:{'0123456789abcdef' * 4}", "registry.example.com/i:1"]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {"nfd.node.kubernetes.io/feature-labels": ",".join(labels), "volumes.example.com/x": "true"},
            "creationTimestamp": "2026-09-01T08:00:00Z",
            "labels": labels,
            "name": f"node-{number:05}",
            "resourceVersion": str(10**9 + number),
            "uid": f"6f6e6f64-0000-4000-8000-{number:012}",
        },
        "spec": {"taints": [{"effect": "NoSchedule", "key": GPU}] if number % 4 else [], "podCIDR": "10.0.0.0/24"},
        "status": {
            "addresses": [{"address": "10.1.2.3", "type": "InternalIP"}],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [
                {"message": "kubelet has no pressure", "reason": "Kubelet", "status": "False", "type": kind, **times}
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
            ]
            + [{"message": "kubelet is ready", "reason": "Ready", "status": "True", "type": "Ready", **times}],
            "images": [{**image, "sizeBytes": 123456789}] * 20,
            "nodeInfo": {"kubeletVersion": "v1.36.2", "kernelVersion": "6.8.0"},
        },
    }


def pod(number: int, nodes: int) -> dict[str, Any]:
    """Return a pod with some 7 kB as kubectl indents it: of a workload, with environment, mounts and probes."""
    workload = number % WORKLOADS
    team = f"team-{workload % 40}"
    pending = number % PENDING == 0
    holder = number % nodes
    offered = OFFERED[holder % len(OFFERED)]
    amounts = {"cpu": "500m", "memory": "2Gi"}
    if pending:
        amounts["nvidia.com/mig-7g.80gb" if number % (3 * PENDING) else GPU] = str(1 + workload % 8)
    elif offered and number < nodes:
        amounts[next(iter(offered))] = "1"
    time = f"2026-10-{1 + number % 30:02}T{number % 24:02}:{number % 60:02}:00Z"
    mounts = [{"mountPath": f"/mnt/volume-{index}", "name": f"volume-{index}", "readOnly": True} for index in range(2)]
    probe = {"failureThreshold": 3, "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 9}
    container = {
        "args": [f"--option-{index}=value" for index in range(3)],
        "command": ["python", "-m", "train"],
        "env": [{"name": f"VARIABLE_{index}", "value": f"a value of the workload {index}"} for index in range(3)],
        "image": f"registry.example.com/team/workload-{workload}:1.2.3",
        "imagePullPolicy": "IfNotPresent",
        "livenessProbe": probe,
        "name": "main",
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "resources": {"limits": amounts, "requests": amounts},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": mounts,
    }
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions: list[dict[str, Any]] = [
        {"lastProbeTime": None, "lastTransitionTime": time, "status": "True", "type": kind} for kind in kinds
    ]
    status: dict[str, Any] = {
        "conditions": conditions,
        "containerStatuses": [
            {
                "containerID": f"containerd://{number:064}",
                "image": container["image"],
                "imageID": f"registry.example.com/team/workload-{workload}@sha256:{'0123456789abcdef' * 4}",
                "lastState": {},
                "name": "main",
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": time}},
            }
        ],
        "hostIP": "10.1.2.3",
        "phase": "Running",
        "podIP": "10.2.3.4",
        "podIPs": [{"ip": "10.2.3.4"}],
        "qosClass": "Burstable",
        "startTime": time,
    }
    if pending:
        message = f"0/{nodes} nodes are available: {nodes} Insufficient nvidia.com/mig-7g.80gb."
        unschedulable = {"reason": "Unschedulable", "status": "False", "type": "PodScheduled", "message": message}
        status = {"conditions": [{**conditions[-1], **unschedulable}], "phase": "Pending", "qosClass": "Burstable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {"kubectl.kubernetes.io/restartedAt": time, "example.com/checksum": "0123456789abcdef" * 4},
            "creationTimestamp": time,
            "generateName": f"workload-{workload}-7d9f8b6c5-",
            "labels": {
                "app": f"workload-{workload}",
                "pod-template-hash": "7d9f8b6c5",
                "team": f"team-{workload % 40}",
            },
            "name": f"workload-{workload}-7d9f8b6c5-{number:06}",
            "namespace": team,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "blockOwnerDeletion": True,
                    "controller": True,
                    "kind": "ReplicaSet",
                    "name": f"workload-{workload}-7d9f8b6c5",
                    "uid": f"72657073-0000-4000-8000-{workload:012}",
                }
            ],
            "resourceVersion": str(10**9 + number),
            "uid": f"706f6473-0000-4000-8000-{number:012}",
        },
        "spec": {
            "containers": [container],
            "dnsPolicy": "ClusterFirst",
            **({} if pending else {"nodeName": f"node-{holder:05}"}),
            "nodeSelector": {"pool": f"pool-{holder % 12}"},
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "tolerations": [
                {
                    "effect": "NoExecute",
                    "key": f"node.kubernetes.io/{kind}",
                    "operator": "Exists",
                    "tolerationSeconds": 300,
                }
                for kind in ("not-ready", "unreachable")
            ]
            + [{"effect": "NoSchedule", "key": GPU, "operator": "Exists"}],
            "volumes": [
                {"configMap": {"defaultMode": 420, "name": f"volume-{i}"}, "name": f"volume-{i}"} for i in range(2)
            ],
        },
        "status": status,
    }


def event(number: int, about: dict[str, Any]) -> dict[str, Any]:
    """Return the event of a pending pod."""
    metadata = about["metadata"]
    involved = {key: metadata[key] for key in ("name", "namespace", "uid")}
    return {
        "apiVersion": "v1",
        "count": 7,
        "firstTimestamp": metadata["creationTimestamp"],
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **involved},
        "kind": "Event",
        "lastTimestamp": "2026-11-01T12:00:00Z",
        "message": about["status"]["conditions"][0]["message"],
        "metadata": {"name": f"{metadata['name']}.{number:x}", "namespace": metadata["namespace"]},
        "reason": "FailedScheduling",
        "source": {"component": "default-scheduler"},
        "type": "Warning",
    }


def others() -> Iterator[dict[str, Any]]:
    """Yield the other objects: namespaces, the device plugin and its runtime class."""
    for number in range(40):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}"}}
    yield {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin-daemonset", "namespace": "gpu-operator"},
        "status": {"desiredNumberScheduled": 0, "numberReady": 0},
    }
    yield {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}


def items(nodes: int, pods: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of the dump, in kubectl's order."""
    for number in range(nodes):
        yield node(number)
    for number in range(pods):
        made = pod(number, nodes)
        yield made
        if number % PENDING == 0:
            yield event(number, made)
    yield from others()


def write_dump(path: Path, objects: Iterable[dict[str, Any]]) -> None:
    """Write objects as `kubectl get … -o json` does."""
    with path.open("wb") as file:
        file.write(b'{\n    "apiVersion": "v1",\n    "items": [')
        for index, item in enumerate(objects):
            written = json.format(json.encode(item, order="sorted"), indent=4).replace(b"\n", b"\n        ")
            file.write((b",\n        " if index else b"\n        ") + written)
        file.write(b'\n    ],\n    "kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n    }\n}\n')


def ratios(folder: Path, dump: str, runs: int) -> Iterator[Promise]:
    """Yield the CPU times of commands by those of BEFORE."""
    before = earlier(BEFORE, folder)
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    for old, new in (
        (["doctor", "-f", dump], ["doctor", "--cluster", dump]),
        (["check", str(rules), "--cluster", dump],) * 2,
    ):
        (old_seconds, old_mib), (seconds, mib) = least(
            runs,
            partial(measured, ["-m", command_module(before), *old], before),
            partial(measured, ["-m", command_module(ROOT), *new]),
        )
        sides = f"{old_seconds:.1f} s, {old_mib:.0f} MiB → {seconds:.1f} s, {mib:.0f} MiB"
        yield Promise(f"{new[0]} by {BEFORE} ({sides})", seconds / old_seconds, CPU_RATIOS[new[0]])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=100_000)
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("--runs", type=int, default=2)
    given = arguments.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        dump = folder / "dump.json"
        write_dump(dump, items(given.nodes // 10, given.pods // 10))
        promises = [*ratios(folder, str(dump), given.runs)]
        write_dump(dump, items(given.nodes, given.pods))
        size = f"{dump.stat().st_size / 1e6:.0f} MB"
        reading = "import sys; from bench.doctor import read; read(sys.argv[1])"
        seconds, memory_mib = measured(["-c", reading, str(dump)])
        print(f"reading {size}: {seconds:.1f} s, {memory_mib:.0f} MiB")
        seconds, memory_mib = measured(
            ["-m", "rules_engine.server", "doctor", "--cluster", str(dump), "--output", "json"]
        )
    promises += [
        Promise(f"gpu-rules doctor of {size}, CPU time", seconds, SECONDS, unit=" s"),
        Promise(f"gpu-rules doctor of {size}, peak of memory", memory_mib, MEMORY_MIB, unit=" MiB"),
    ]
    code = exit_code(promises)
    return code if given.check else 0


def read(dump: str) -> None:
    """Read a dump alone."""
    reading = read_cluster([Path(dump)])
    if reading.objects is None:
        raise SystemExit("\n".join(map(str, reading.problems)))


if __name__ == "__main__":
    raise SystemExit(main())
