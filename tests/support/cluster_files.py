"""A small cluster in each form of file, and objects with values that may be secret."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED

Item = dict[str, Any]

SECRET = "hunter2"


def item(kind: str, name: str, namespace: str = "", version: str = "v1", **members: Any) -> Item:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "uid": f"{kind}-{name}"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **members}


def pod(name: str, gpus: int, node: str) -> Item:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}
    return item("Pod", name, "ml", spec={"nodeName": node, "containers": [{"name": "main", "resources": resources}]})


NODES = [
    item("Node", name, status={"allocatable": {"nvidia.com/gpu": "8"}, "images": [{"names": ["{", "é"]}]})
    for name in "ab"
]
NODES[1]["metadata"]["labels"] = {"nvidia.com/gpu.product": "NVIDIA-A30"}
OBJECTS = [
    *NODES,
    item("Namespace", "ml", metadata={"name": "ml", "labels": {"team": "ml"}}),
    pod("one", 3, "a"),
    pod("two", 2, "b"),
    item("PriorityClass", "high", version="scheduling.k8s.io/v1", value=5),
    item("ResourceQuota", "gpus", "ml", status={"hard": {"pods": "99"}, "used": {"pods": "2"}}),
    item("Secret", "s", "ml", data={"password": SECRET}),
]
OFFERS = item("GPUOffers", "offers", version="gpurules.io/v1", spec={"omitted": {}})


def autoscaler_status(text: str) -> Item:
    """Return the ConfigMap in which the cluster-autoscaler reports."""
    return item("ConfigMap", "cluster-autoscaler-status", "kube-system", data={"status": text, "other": SECRET})


def listed(items: Sequence[Item]) -> Item:
    """Return a list as kubectl writes it, with its kind after the items."""
    return {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}


def as_yaml(value: Any) -> str:
    return yaml.safe_dump(json.loads(json.dumps(value)), allow_unicode=True)  # without aliases


def outputs(items: Sequence[Item], write: Callable[[Any], str]) -> str:
    """Return several outputs in one text: a list of nodes, and one of the others."""
    nodes = [each for each in items if each["kind"] == "Node"]
    return "".join(write(listed(part)) for part in (nodes, [each for each in items if each not in nodes]))


def pretty(value: Any) -> str:
    return json.dumps(value, indent=4, ensure_ascii=False) + "\n"


def inventory(items: Sequence[Item]) -> Item:
    spec = {"nodes": [], "objects": [each for each in items if each["kind"] != "Secret"]}
    return {"apiVersion": "gpurules.io/v1", "kind": "ClusterInventory", "metadata": {"name": "c"}, "spec": spec}


FORMS: Mapping[str, tuple[str, Callable[[Sequence[Item]], str]]] = {
    "a list in JSON": ("c.json", lambda items: pretty(listed(items))),
    "a list in one line": ("c.json", lambda items: json.dumps(listed(items))),
    "a list in YAML": ("c.yaml", lambda items: as_yaml(listed(items))),
    "JSON in a file of YAML": ("c.yaml", lambda items: pretty(listed(items))),
    "YAML in a file of JSON": ("c.json", lambda items: as_yaml(listed(items))),
    "a file without a suffix": ("c", lambda items: pretty(listed(items))),
    "single objects in JSON": ("c.json", lambda items: "".join(map(pretty, items))),
    "JSON lines": ("c.json", lambda items: "".join(f"{json.dumps(each)}\n" for each in items)),
    "JSON without line ends": ("c.json", lambda items: "".join(json.dumps(each) for each in items)),
    "an array": ("c.json", pretty),
    "an array of lists": ("c.json", lambda items: pretty([listed([each]) for each in items])),
    "a list in flow style": ("c.yaml", lambda items: f"# kubectl\n{{kind: List, items: {json.dumps(items)}}}\n"),
    "a stream": ("c.yaml", lambda items: "---\n".join(map(as_yaml, items))),
    "outputs appended in JSON": ("c.json", lambda items: outputs(items, pretty)),
    "outputs appended in YAML": ("c.yaml", lambda items: outputs(items, as_yaml)),
    "an inventory": ("c.yaml", lambda items: as_yaml(inventory(items))),
    "an inventory in JSON": ("c.json", lambda items: pretty(inventory(items))),
}
"""The forms of a file, with its name."""


def written(folder: Path, form: str, items: Sequence[Item] = OBJECTS) -> Path:
    name, write = FORMS[form]
    path = folder / name
    path.write_text(write(items), encoding="utf-8")
    return path


ENCODINGS: Mapping[str, Callable[[str], bytes]] = {
    "UTF-8": str.encode,
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16 of PowerShell": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "big-endian UTF-16": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "gzip": lambda text: gzip.compress(text.encode()),
    "gzip of UTF-16": lambda text: gzip.compress(text.encode("utf-16")),
}


HANDLER = {"exec": {"command": [SECRET]}, "httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
CONTAINER: Item = {
    "name": "main",
    "command": [SECRET],
    "args": [SECRET],
    "env": [{"name": "PASSWORD", "value": SECRET}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s"}}}],
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), HANDLER),
    "lifecycle": {"postStart": HANDLER, "preStop": HANDLER},
}
"""Values that may be secret in each place of a container."""

METADATA = {"annotations": {LAST_APPLIED: SECRET, "kept": "yes"}, "managedFields": [{"manager": SECRET}]}
SPEC = {member: [CONTAINER] for member in ("containers", "initContainers", "ephemeralContainers")}
TEMPLATE = {"metadata": METADATA, "spec": SPEC}


def with_secrets(kind: str, version: str = "v1", **members: Any) -> Item:
    made = item(kind, "planted", "" if kind == "Node" else "ml", version, **members)
    return {**made, "metadata": {**made["metadata"], **METADATA}}


PLANTED = [
    with_secrets("Node"),
    with_secrets("Pod", spec=SPEC),
    with_secrets("ConfigMap", data={"a": SECRET}),
    with_secrets("Secret", data={"a": SECRET}, stringData={"a": SECRET}),
    *(
        with_secrets(kind, "apps/v1", spec={"template": TEMPLATE})
        for kind in ("DaemonSet", "ReplicaSet", "StatefulSet")
    ),
    with_secrets("Job", "batch/v1", spec={"template": TEMPLATE}),
    with_secrets("PersistentVolume", spec={"claimRef": {"name": "c"}, "csi": {"volumeAttributes": {"key": SECRET}}}),
    with_secrets("ServiceAccount", secrets=[{"name": SECRET}], imagePullSecrets=[{"name": "registry"}]),
    with_secrets("StorageClass", "storage.k8s.io/v1", provisioner="p", parameters={"key": SECRET}),
    with_secrets("ReplicationController", spec={"template": TEMPLATE}),
    with_secrets("ControllerRevision", "apps/v1", data={"spec": {"template": TEMPLATE}}),
    with_secrets(
        "Workload", "kueue.x-k8s.io/v1beta2", spec={"podSets": [{"name": "main", "template": TEMPLATE}, None]}
    ),
    with_secrets("GPUOffers", "gpurules.io/v1", spec={"omitted": 3, "other": SECRET}, status={"x": SECRET}),
]
