"""Preferences for generated pods: what score plugins read."""

from random import Random
from typing import Any

from tests.support.clusters import HOSTNAME, Generator

Object = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class PreferringGenerator(Generator):
    """A generator of nodes and pods, which also draws preferences; zones have their well-known label too."""

    def __init__(self, random: Random, prefix: str = "", *, most_nodes: int = 6) -> None:
        super().__init__(random, prefix, most_nodes=most_nodes)
        self._zoned = self._chance(0.7)

    def _node(self, number: int) -> Object:
        made = super()._node(number)
        if self._zoned and self._chance(0.9):
            made["metadata"]["labels"][ZONE] = self._random.choice(("a", "b", "c"))
        if self._chance(0.2):
            made["spec"]["taints"] = [*made["spec"]["taints"], *self._soft_taints()]
        return made

    def _soft_taints(self) -> list[Object]:
        keys = self._random.sample(("slow", "old"), self._random.randint(1, 2))
        return [{"key": key, "effect": "PreferNoSchedule"} for key in keys]

    def retainted(self, node: Object) -> Object:
        """Return a node with other taints, and perhaps other amounts."""
        other = self._node(0)
        spec = {**node["spec"], "taints": other["spec"]["taints"]}
        return {**node, "spec": spec, "status": self._random.choice((node, other))["status"]}

    def preferring(self, pod: Object, nodes: list[Object]) -> Object:
        """Return a pod with a few preferences of some kinds; its requirements stay."""
        spec = dict(pod["spec"])
        affinity = {name: dict(value) for name, value in spec.get("affinity", {}).items()}
        if self._chance(0.3):
            affinity.setdefault("nodeAffinity", {})[_PREFERRED] = [
                {"weight": self._random.choice((1, 7, 50, 100)), "preference": self._preference(nodes)}
                for _ in range(self._random.randint(1, 3))
            ]
        for kind in ("podAffinity", "podAntiAffinity"):
            if self._chance(0.3):
                affinity.setdefault(kind, {})[_PREFERRED] = [
                    {"weight": self._random.choice((1, 10, 100)), "podAffinityTerm": self._pod_term()}
                    for _ in range(self._random.randint(1, 2))
                ]
        if affinity:
            spec["affinity"] = affinity
        if self._chance(0.4):
            keys = self._random.sample((HOSTNAME, ZONE, "zone", "pool"), self._random.randint(1, 2))
            soft = [self._constraint(key) | {"whenUnsatisfiable": "ScheduleAnyway"} for key in keys]
            for constraint in soft:
                constraint.pop("minDomains", None)
            spec["topologySpreadConstraints"] = [*spec.get("topologySpreadConstraints", []), *soft]
        if self._chance(0.2):
            spec["tolerations"] = [*spec.get("tolerations", []), {"key": "slow", "effect": "PreferNoSchedule"}]
        return {**pod, "spec": spec}

    def _pod_term(self) -> Object:
        term = super()._pod_term()
        if term.get("labelSelector") == {"matchLabels": {"app": "x"}} and self._chance(0.4):
            term[self._random.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["tier"]
        return term

    def _preference(self, nodes: list[Object]) -> Object:
        term = self._node_term(nodes)
        for field in term.get("matchFields", []):
            field["values"] = field["values"][:1]
        return term

    def owner_selector(self) -> Object | None:
        """Draw the selector of the pod's controller."""
        return self._random.choice((None, {"matchLabels": {"app": "x"}}, {"matchLabels": {"tier": "y"}}))
