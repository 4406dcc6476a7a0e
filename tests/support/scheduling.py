"""Small objects of the API for tests of the scheduler's model."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rules_engine.evaluation.nodes import NodeSet, numbers_of
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.scheduling import Scheduler, Scheduling, scheduler_of
from rules_engine.scheduling.preferences import Preferences
from rules_engine.scheduling.scoring import Plugin, Scores

Object = dict[str, Any]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = "nvidia.com/gpu"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, labels: dict[str, str] | None = None, taints: Sequence[str] = (), **spec: Any) -> Object:
    """Build a node. Taints are written key=value:effect; `allocatable` adds to 4 cpu, 16Gi and 10 pods."""
    allocatable = {"cpu": "4", "memory": "16Gi", "pods": "10", **spec.pop("allocatable", {})}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [*map(taint, taints)], **spec},
        "status": {"allocatable": {key: value for key, value in allocatable.items() if value is not None}},
    }


def taint(written: str) -> Object:
    place, _, effect = written.rpartition(":")
    key, _, value = place.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def pod(name: str = "p", labels: dict[str, str] | None = None, *, namespace: str = "default", **spec: Any) -> Object:
    """Build a pod with one container; `requests` and `ports` are the container's, and `on` is its node."""
    requests, ports = spec.pop("requests", {}), spec.pop("ports", [])
    bound = {"nodeName": spec.pop("on")} if "on" in spec else {}
    container = {"name": "main", "resources": {"requests": requests}, "ports": ports}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container], **bound, **spec},
        "status": {"phase": "Running" if bound else "Pending"},
    }


def scheduler(nodes: Sequence[Object], pods: Sequence[Object] = (), namespaces: Sequence[Object] = ()) -> Scheduler:
    return scheduler_of(ClusterObjects({"Node": nodes, "Pod": pods, "Namespace": namespaces}, now=NOW))


def scheduled(subject: Object, nodes: Sequence[Object], pods: Sequence[Object] = ()) -> Scheduling:
    return scheduler(nodes, pods).explain(subject)


def scores_by_plugin(scores: Scores, pod: Preferences, feasible: NodeSet) -> Mapping[Plugin, Mapping[int, int]]:
    """Return the score of each feasible node, times its weight, by plugin; skipped plugins are left out."""
    kind, states = scores._kind(pod), scores._states
    amounts = {number: (states.allocatable[number], states.used[number]) for number in numbers_of(feasible)}
    found = {Plugin.NODE_RESOURCES_FIT: {n: states.scores.fit(*both, kind.scored) for n, both in amounts.items()}}
    if any(kind.scored[:2]):
        balanced = {n: states.scores.balanced(*both, kind.scored) for n, both in amounts.items()}
        found[Plugin.BALANCED_ALLOCATION] = balanced
    for plugin, partition in scores._normalize_scores(kind, feasible):
        found[plugin] = {number: score for score, nodes in partition.items() for number in numbers_of(nodes)}
    return found
