"""A second, slow implementation of kube-scheduler's scores: node by node, on the objects as they are."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.naive_scheduler import _amount, _holds, _matches, _requests, _units

Object = dict[str, Any]
Scores = dict[str, dict[str, int]]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOSTNAME = "kubernetes.io/hostname"
_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
}


def scores(
    pod: Object,
    nodes: Sequence[Object],
    bound: Sequence[Object],
    namespaces: Sequence[Object],
    feasible: Sequence[str],
    *,
    most: bool = False,
    resources: Sequence[tuple[str, int]] = (("cpu", 1), ("memory", 1)),
    selector: Object | None = None,
) -> Scores:
    """Return the scores of feasible nodes by plugin and name, times their weights, without plugins that are skipped."""
    world = _World(pod, nodes, bound, namespaces, feasible)
    found: dict[str, list[int] | None] = {
        "TaintToleration": world.toleration(),
        "NodeAffinity": world.affinity(),
        "NodeResourcesFit": world.fit(most, resources),
        "PodTopologySpread": world.spread(selector),
        "InterPodAffinity": world.near(),
        "NodeResourcesBalancedAllocation": world.balanced(),
    }
    return {
        plugin: {name: one * _WEIGHTS[plugin] for name, one in zip(feasible, listed, strict=True)}
        for plugin, listed in found.items()
        if listed is not None
    }


class _World:
    def __init__(
        self,
        pod: Object,
        nodes: Sequence[Object],
        bound: Sequence[Object],
        namespaces: Sequence[Object],
        feasible: Sequence[str],
    ) -> None:
        self.pod, self.all = pod, nodes
        by_name = {node["metadata"]["name"]: node for node in nodes}
        self.nodes = [by_name[name] for name in feasible]
        self.on: dict[str, list[Object]] = {name: [] for name in by_name}
        for other in bound:
            self.on[other["spec"]["nodeName"]].append(other)
        self.namespaces = {
            found["metadata"]["name"]: found["metadata"]["labels"]
            | {"kubernetes.io/metadata.name": found["metadata"]["name"]}
            for found in namespaces
        }

    def pods(self, node: Object) -> list[Object]:
        return self.on[node["metadata"]["name"]]

    # Taints and node affinity

    def tolerates(self, taint: Object) -> bool:
        for one in self.pod["spec"].get("tolerations", []):
            same = one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", "")
            if same and one.get("key") in (None, taint["key"]) and one.get("effect") in (None, taint["effect"]):
                return True
        return False

    def toleration(self) -> list[int]:
        counts = []
        for node in self.nodes:
            soft = [taint for taint in node["spec"]["taints"] if taint["effect"] == "PreferNoSchedule"]
            counts.append(sum(not self.tolerates(taint) for taint in soft))
        most = max(counts)
        return [100 - (100 * count // most if most else 0) for count in counts]

    def affinity(self) -> list[int] | None:
        terms = self.pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(_PREFERRED)
        if not terms:
            return None
        sums = []
        for node in self.nodes:
            total = 0
            for term in terms:
                preference = term["preference"]
                if preference and _selects(preference, node):
                    total += term["weight"]
            sums.append(total)
        most = max(sums)
        return [100 * total // most if most else 0 for total in sums]

    def required(self, node: Object) -> bool:
        """The pod's nodeSelector and required node affinity."""
        labels, spec = node["metadata"]["labels"], self.pod["spec"]
        if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
            return False
        terms = spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED)
        return terms is None or any(term and _selects(term, node) for term in terms["nodeSelectorTerms"])

    # Resources

    def fit(self, most: bool, resources: Sequence[tuple[str, int]]) -> list[int]:
        found = []
        for node in self.nodes:
            total = weights = 0
            for name, weight in resources:
                missing = {"cpu": 100, "memory": 209_715_200}.get(name, 0)
                capacity = _units(name, _amount(node["status"]["allocatable"].get(name, "0")))
                asked = _request({"spec": {**self.pod["spec"], "resources": {}}}, name, missing)
                if capacity == 0 or (asked == 0 and name not in ("cpu", "memory", "ephemeral-storage")):
                    continue
                used = asked + sum(_request(other, name, missing) for other in self.pods(node))
                if most:
                    share = min(used, capacity) * 100 // capacity
                else:
                    share = max(capacity - used, 0) * 100 // capacity
                total, weights = total + share * weight, weights + weight
            found.append(total // weights if weights else 0)
        return found

    def balanced(self) -> list[int] | None:
        asked = {name: _request(self.pod, name, 0) for name in ("cpu", "memory")}
        if not any(asked.values()):
            return None
        found = []
        for node in self.nodes:
            shares: list[tuple[float, float]] = []
            for name in ("cpu", "memory"):
                capacity = _units(name, _amount(node["status"]["allocatable"].get(name, "0")))
                used = sum(_request(other, name, 0) for other in self.pods(node))
                if capacity:
                    shares.append((min(used / capacity, 1.0), min((used + asked[name]) / capacity, 1.0)))
            before, after = (
                int((1 - (abs((shares[0][k] - shares[1][k]) / 2) if len(shares) == 2 else 0.0)) * 100) for k in (0, 1)
            )
            found.append(50 + (50 + after - before) // 2)
        return found

    # Topology spread

    def spread(self, selector: Object | None) -> list[int] | None:
        own = self.pod["spec"].get("topologySpreadConstraints", [])
        constraints = [one for one in own if one["whenUnsatisfiable"] == "ScheduleAnyway"]
        if not own and selector:
            constraints = [
                {"topologyKey": _HOSTNAME, "maxSkew": 3, "labelSelector": selector},
                {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 5, "labelSelector": selector},
            ]
        if not constraints:
            return None
        keys = [one["topologyKey"] for one in constraints] if own else []
        sums = [self.sum(node, constraints, keys) for node in self.nodes]
        left = [total for total in sums if total is not None]
        least, most = min(left, default=0), max(left, default=0)
        return [0 if one is None else 100 * (most + least - one) // most if most else 100 for one in sums]

    def sum(self, node: Object, constraints: Sequence[Object], keys: Sequence[str]) -> int | None:
        def labelled(other: Object) -> bool:
            return all(key in other["metadata"]["labels"] for key in keys)

        if not labelled(node):
            return None
        total = 0.0
        counted = [other for other in self.nodes if labelled(other)]
        for one in constraints:
            key = one["topologyKey"]
            if key not in node["metadata"]["labels"]:
                continue
            if key == _HOSTNAME:
                size, count = len(counted), self.count(one, node)
            else:
                size = len({other["metadata"]["labels"].get(key, "") for other in counted})
                count = sum(
                    self.count(one, other)
                    for other in self.all
                    if labelled(other)
                    and self.included(one, other)
                    and other["metadata"]["labels"].get(key, "") == node["metadata"]["labels"][key]
                )
            total += count * math.log(size + 2) + float(one["maxSkew"] - 1)
        return math.floor(total + 0.5)

    def included(self, constraint: Object, node: Object) -> bool:
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not self.required(node):
            return False
        repelled = any(
            taint["effect"] != "PreferNoSchedule" and not self.tolerates(taint) for taint in node["spec"]["taints"]
        )
        return constraint.get("nodeTaintsPolicy") != "Honor" or not repelled

    def count(self, constraint: Object, node: Object) -> int:
        selector, mine = constraint.get("labelSelector"), self.pod["metadata"]
        if not selector:
            return 0
        return sum(
            other["metadata"]["namespace"] == mine["namespace"]
            and "deletionTimestamp" not in other["metadata"]
            and _matches(selector, other["metadata"]["labels"])
            and all(
                other["metadata"]["labels"].get(key) == mine["labels"][key]
                for key in constraint.get("matchLabelKeys", [])
                if key in mine["labels"]
            )
            for other in self.pods(node)
        )

    # Pod affinity

    def near(self) -> list[int]:
        weights: Counter[tuple[str, str]] = Counter()
        for node in self.all:
            for other in self.pods(node):
                for weight, term in (*self.own(other), *self.others(other)):
                    key = term["topologyKey"]
                    if key in node["metadata"]["labels"]:
                        weights[key, node["metadata"]["labels"][key]] += weight
        sums = [sum(weights[label] for label in node["metadata"]["labels"].items()) for node in self.nodes]
        least, most = min(sums), max(sums)
        # Without any weight kube-scheduler skips the plugin, which is the same as scores of 0.
        return [int(100.0 * ((one - least) / (most - least))) if most > least else 0 for one in sums]

    def own(self, other: Object) -> list[tuple[int, Object]]:
        """The pod's terms that match another pod; their namespace selectors are also compared with no labels."""
        found = []
        for weight, term in _weighted(self.pod):
            namespace, selector = other["metadata"]["namespace"], term.get("namespaceSelector")
            listed = term.get("namespaces") or ([self.pod["metadata"]["namespace"]] if selector is None else [])
            selected = selector is not None and (
                _matches(selector, self.namespaces[namespace]) or _matches(selector, {})
            )
            if (namespace in listed or selected) and _applies(term, self.pod, other):
                found.append((weight, term))
        return found

    def others(self, other: Object) -> list[tuple[int, Object]]:
        """Another pod's terms that match the pod."""
        found = []
        required = other["spec"].get("affinity", {}).get("podAffinity", {}).get(_REQUIRED, [])
        for weight, term in (*((1, term) for term in required), *_weighted(other)):
            namespace, selector = self.pod["metadata"]["namespace"], term.get("namespaceSelector")
            listed = term.get("namespaces") or ([other["metadata"]["namespace"]] if selector is None else [])
            selected = selector is not None and _matches(selector, self.namespaces[namespace])
            if (namespace in listed or selected) and _applies(term, other, self.pod):
                found.append((weight, term))
        return found


def _applies(term: Object, owner: Object, other: Object) -> bool:
    """The selector of a pod's term matches another pod, with the label keys that the API server merges into it."""
    mine, labels = owner["metadata"]["labels"], other["metadata"]["labels"]
    return (
        _matches(term.get("labelSelector"), labels)
        and all(labels.get(key) == mine[key] for key in term.get("matchLabelKeys", []) if key in mine)
        and all(labels.get(key) != mine[key] for key in term.get("mismatchLabelKeys", []) if key in mine)
    )


def _weighted(pod: Object) -> list[tuple[int, Object]]:
    affinity = pod["spec"].get("affinity", {})
    return [
        (sign * one["weight"], one["podAffinityTerm"])
        for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1))
        for one in affinity.get(kind, {}).get(_PREFERRED, [])
    ]


def _selects(term: Object, node: Object) -> bool:
    name = {"metadata.name": node["metadata"]["name"]}
    return all(_holds(one, node["metadata"]["labels"]) for one in term.get("matchExpressions", [])) and all(
        _holds(one, name) for one in term.get("matchFields", [])
    )


def _request(pod: Object, resource: str, missing: int) -> int:
    """A pod's request in the scheduler's units; `missing`: that of a container without one."""
    level = pod["spec"].get("resources", {}).get("requests", {})
    if resource in level:
        return _units(resource, _amount(level[resource]))
    if level and resource in _requests(pod):
        missing = 0

    def of(container: Mapping[str, Any]) -> int:
        text = container["resources"]["requests"].get(resource)
        return missing if text is None else _units(resource, _amount(text))

    sidecars = peak = 0
    for one in pod["spec"].get("initContainers", []):
        if one.get("restartPolicy") == "Always":
            sidecars += of(one)
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + of(one))
    return max(sum(map(of, pod["spec"]["containers"])) + sidecars, peak)
