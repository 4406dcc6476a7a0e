"""The scheduler's model of small clusters."""

from collections.abc import Mapping, Sequence

from rules_engine.cluster.nodes import NodeSet, numbers_of
from rules_engine.cluster.scheduling import KubeScheduler, Scheduling, scheduler_of
from rules_engine.cluster.scheduling.preferences import Preferences
from rules_engine.cluster.scheduling.scoring import Plugin, Scores
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.devices import Devices
from tests.support.api import NOW, Object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def scheduler(nodes: Sequence[Object], pods: Sequence[Object] = (), namespaces: Sequence[Object] = ()) -> KubeScheduler:
    return scheduler_of(ClusterObjects({"Node": nodes, "Pod": pods, "Namespace": namespaces}, now=NOW))


def scheduled(subject: Object, nodes: Sequence[Object], pods: Sequence[Object] = ()) -> Scheduling:
    return scheduler(nodes, pods).explain(subject)


def usable_devices(objects: Mapping[str, Sequence[Object]]) -> Devices:
    """Read objects of drivers by kind, all of which must be usable."""
    read = ClusterObjects(objects, now=NOW)
    assert not read.unusable_slices
    return read.devices


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
