"""Generated scenarios for tests of scheduling: a cluster, and pods that arrive at it one after the other.

Like the clusters of tests.support.clusters, they are valid for the API server. A scenario has a few templates, of which
each pod is one, so that equal pods come back.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from tests.support.api import GPU, NOW, node, taint
from tests.support.clusters import MIG, Generator

Object = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
"""The key by which the scheduler spreads pods of a controller."""

PRIORITIES: Mapping[str, Object] = {
    "low": {"value": -5},
    "middle": {"value": 10},
    "high": {"value": 1000},
    "polite": {"value": 1000, "preemptionPolicy": "Never"},
}
"""PriorityClasses, without the prefix of their names."""

OWNERS: Mapping[str, Object] = {
    "app": {"matchLabels": {"app": "x"}},
    "tier": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["x", "y"]}]},
}
"""The selectors of ReplicaSets, of which each namespace has one of each."""

OWNER_LABELS: Mapping[str, Mapping[str, str]] = {"app": {"app": "x"}, "tier": {"tier": "x"}}
"""Labels of the templates of ReplicaSets."""

_TAINTS = (
    "nvidia.com/gpu=present:NoSchedule",
    "spot=yes:NoSchedule",
    "spot=yes:PreferNoSchedule",
    "busy:PreferNoSchedule",
    "nvidia.com/gpu:PreferNoSchedule",
)
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod without its name; `owner`: the ReplicaSet that controls it, or ""."""

    pod: Object
    owner: str


@dataclass(frozen=True, slots=True)
class Arrives:
    """A pod of a template arrives."""

    template: PodTemplate


@dataclass(frozen=True, slots=True)
class Ends:
    """One of the bound pods ends: of n the one at `position` modulo n."""

    position: int


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """A node has another spec from now on."""

    name: str
    spec: Object


Step = Arrives | Ends | NodeChanges


@dataclass(frozen=True, slots=True)
class Scenario:
    nodes: tuple[Object, ...]
    bound: tuple[Object, ...]
    steps: tuple[Step, ...]


class ScenarioGenerator(Generator):
    """Scenarios drawn from a source of random numbers; all names of objects without a namespace begin with a prefix."""

    def __init__(self, random: Random, prefix: str = "") -> None:
        super().__init__(random, prefix, most_nodes=random.choice((2, 4, 8, 8, 8, 16, 40)))
        self._room = random.choice(("much", "some", "some", "some", "little"))
        self._roomy = self._room == "much"
        self._templates = random.randint(2, 6)

    def scenario(self) -> Scenario:
        nodes = self.nodes()
        names = [found["metadata"]["name"] for found in nodes]
        templates = [self.template(nodes) for _ in range(self._templates)]
        bound = self.bound(nodes)
        for number, made in enumerate(bound):
            if self._chance(0.5):
                made["spec"]["priorityClassName"] = f"{self._prefix}low"
            made["status"]["startTime"] = time_text(number - len(bound))
        changed = {found["metadata"]["name"]: deepcopy(found["spec"]) for found in nodes}
        steps: list[Step] = []
        for _ in range(self._random.randint(6, 24)):
            if self._chance(0.12):
                steps.append(Ends(self._random.randrange(1000)))
            elif self._chance(0.08):
                name = self._random.choice(names)
                changed[name] = self._changed(changed[name])
                steps.append(NodeChanges(name, changed[name]))
            else:
                steps.append(Arrives(self._random.choice(templates)))
        return Scenario(tuple(nodes), tuple(bound), tuple(steps))

    def bound(self, nodes: Any) -> list[Object]:
        found = super().bound(nodes)
        with_ports: set[str] = set()
        for made in found:
            # No kubelet ends pods that are being deleted.
            made["metadata"].pop("deletionTimestamp", None)
            # Of two pods with the same port, which no kubelet runs, the scheduler forgets the port when one ends.
            spec = made["spec"]
            containers = [*spec["containers"], *spec.get("initContainers", [])]
            if spec["nodeName"] in with_ports:
                for container in containers:
                    container.pop("ports", None)
            elif any(container.get("ports") for container in containers):
                with_ports.add(spec["nodeName"])
        return found

    def _node(self, number: int) -> Object:
        draw = self._random
        made = super()._node(number)
        labels, name = made["metadata"]["labels"], made["metadata"]["name"]
        if labels.get("zone"):
            labels[ZONE] = labels["zone"]
        amounts = {
            "much": {
                "cpu": ("16", "64"),
                "memory": ("64Gi", "256Gi"),
                GPU: ("8", "32"),
                MIG: ("32",),
                "pods": ("110",),
            },
            "some": {
                "cpu": ("4", "8", "6500m"),
                "memory": ("4Gi", "16Gi", "20000M"),
                GPU: ("0", "2", "4", "8"),
                MIG: ("7", "14"),
                "pods": ("5", "10", "110"),
            },
            "little": {
                "cpu": ("2", "4", "3500m"),
                "memory": ("2Gi", "4Gi"),
                GPU: ("1", "2"),
                MIG: ("1",),
                "pods": ("3", "5", "8"),
            },
        }[self._room]
        allocatable = {resource: draw.choice(values) for resource, values in amounts.items()}
        for resource in (GPU, MIG):
            if not self._roomy and self._chance(0.15):
                del allocatable[resource]
        if self._chance(0.8):
            allocatable["ephemeral-storage"] = "64Gi"
        unschedulable = self._chance(0.05)
        taints = draw.sample(_TAINTS, draw.choice((0, 0, 0, 0, 1, 1, 2)))
        return node(name, allocatable, labels=labels, taints=taints, unschedulable=unschedulable)

    def _changed(self, spec: Object) -> Object:
        if self._chance(0.5):
            return {**spec, "unschedulable": not spec.get("unschedulable")}
        return {**spec, "taints": [*map(taint, self._random.sample(_TAINTS, self._random.choice((0, 1, 2))))]}

    def template(self, nodes: list[Object]) -> PodTemplate:
        """Draw a pod with a few requirements and preferences, and perhaps an owner."""
        made = self.pending(nodes)
        labels = made["metadata"]["labels"]
        self._prioritize(made)
        affinity = made["spec"].setdefault("affinity", {})
        if self._chance(0.3):
            terms = [{"weight": self._weight(), "preference": self._node_term(nodes)} for _ in range(self._few())]
            affinity.setdefault("nodeAffinity", {})[_PREFERRED] = terms
        for kind in ("podAffinity", "podAntiAffinity"):
            if self._chance(0.15):
                terms = [{"weight": self._weight(), "podAffinityTerm": self._pod_term()} for _ in range(self._few())]
                affinity.setdefault(kind, {})[_PREFERRED] = terms
        owner = ""
        if self._chance(0.5):
            owner = self._random.choice([*OWNERS])
            labels.update(OWNER_LABELS[owner])
        return PodTemplate(made, owner)

    def pending(self, nodes: Any) -> Object:
        # Most pods have few requirements; their affinity and their spread would leave no node in small clusters.
        made = super().pending(nodes)
        for member, kept in (("affinity", 0.3), ("topologySpreadConstraints", 0.4), ("nodeSelector", 0.2)):
            if member in made["spec"] and not self._chance(kept):
                del made["spec"][member]
        return made

    def _pod_term(self) -> Object:
        term = super()._pod_term()
        if self._chance(0.15):
            term["topologyKey"] = ZONE
        if term.get("labelSelector") == {"matchLabels": {"app": "x"}} and self._chance(0.4):
            term[self._random.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["tier"]
        return term

    def _constraint(self, key: str) -> Object:
        constraint = super()._constraint(key)
        if "minDomains" not in constraint and self._chance(0.4):
            constraint["whenUnsatisfiable"] = "ScheduleAnyway"
        return constraint

    def _toleration(self) -> Object:
        if self._chance(0.4):
            return self._random.choice(
                (
                    {"key": "busy", "operator": "Exists", "effect": "PreferNoSchedule"},
                    {"key": "spot", "operator": "Exists"},
                    {"operator": "Exists", "effect": "PreferNoSchedule"},
                )
            )
        found = super()._toleration()
        # Not that of the node by which tests wait for the scheduler.
        return found if "key" in found else {**found, "effect": "NoSchedule"}

    def _prioritize(self, made: Object) -> None:
        if self._chance(0.6):
            made["spec"]["priorityClassName"] = self._prefix + self._random.choice(
                ("low", "middle", "middle", "high", "high", "polite")
            )

    def _weight(self) -> int:
        return self._random.choice((1, 2, 50, 100))

    def _few(self) -> int:
        return self._random.choice((1, 1, 2))


def time_text(second: int) -> str:
    """Write a time of a scenario as the API does; second 0 is that of its first step."""
    return (NOW + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def named(template: PodTemplate, name: str) -> Object:
    """Return a pod of a template."""
    made = deepcopy(template.pod)
    made["metadata"]["name"] = name
    return made


def with_priority(pod: Object, prefix: str = "") -> Object:
    """Return a pod with the priority of its PriorityClass, which the API server writes."""
    name = pod["spec"].get("priorityClassName")
    found = PRIORITIES[name.removeprefix(prefix)] if name else {"value": 0}
    own = {"priority": found["value"], "preemptionPolicy": found.get("preemptionPolicy", "PreemptLowerPriority")}
    return {**pod, "spec": {**pod["spec"], **own}}
