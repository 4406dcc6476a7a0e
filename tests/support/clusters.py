"""Generated clusters for tests of the scheduler's model: nodes, bound pods, and a pod to schedule.

Everything generated is valid for the API server, so that the same clusters can be created on a real control plane.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.support.api import GPU, node, pod
from tests.support.naive_scheduler import _requests

Object = dict[str, Any]

MIG = "nvidia.com/mig-1g.10gb"
HOSTNAME = "kubernetes.io/hostname"
NAMESPACES = {"red": {"team": "a"}, "blue": {"team": "b"}, "green": {}}
_KEYS = (HOSTNAME, "zone", "pool")
_TAINTS = (
    "nvidia.com/gpu=present:NoSchedule",
    "nvidia.com/gpu:NoExecute",
    "spot=yes:NoSchedule",
    "spot=yes:PreferNoSchedule",
    "node.kubernetes.io/unschedulable:NoSchedule",
)
_NUMBER_TEXTS = ("0", "1", "2", "03", "1_0", "x", str(2**63 - 1), str(2**63), "0" * 30 + "7")


class Generator:
    """Objects drawn from a source of random numbers; all names of nodes and namespaces begin with a prefix."""

    def __init__(self, random: Random, prefix: str = "", *, most_nodes: int = 6) -> None:
        self._random = random
        self._most_nodes = most_nodes
        self._roomy = self._chance(0.5)
        """True if nodes have room and no taints, so that the last filters decide."""
        self._prefix = prefix
        self.namespaces = [f"{prefix}{name}" for name in NAMESPACES]

    def namespace_objects(self) -> list[Object]:
        return [
            {"metadata": {"name": f"{self._prefix}{name}", "labels": labels}} for name, labels in NAMESPACES.items()
        ]

    def nodes(self) -> list[Object]:
        return [self._node(number) for number in range(self._random.randint(1, self._most_nodes))]

    def _node(self, number: int) -> Object:
        draw = self._random
        labels = {}
        if self._chance(0.8):
            labels["zone"] = draw.choice(("a", "b", ""))
        if self._chance(0.7):
            labels["pool"] = draw.choice(("gpu", "cpu"))
        if self._chance(0.6):
            labels["number"] = draw.choice(_NUMBER_TEXTS)
        if self._roomy:
            roomy = {"cpu": "64", "memory": "64Gi", "pods": "20", GPU: "32", MIG: "32", "ephemeral-storage": "64Gi"}
            return node(f"{self._prefix}n{number}", roomy, labels=labels)
        allocatable = {
            "cpu": draw.choice(("1", "2500m", "4")),
            "memory": draw.choice(("1Gi", "2000Mi", "4Gi")),
            "pods": draw.choice(("1", "3", "5", "10")),
        }
        if self._chance(0.6):
            allocatable[GPU] = draw.choice(("0", "1", "2", "8"))
        if self._chance(0.3):
            allocatable[MIG] = draw.choice(("1", "7"))
        if self._chance(0.3):
            allocatable["ephemeral-storage"] = "10Gi"
        return node(
            f"{self._prefix}n{number}",
            allocatable,
            labels=labels,
            taints=draw.sample(_TAINTS, draw.choice((0, 0, 0, 0, 1, 2))),
            unschedulable=self._chance(0.1),
        )

    def bound(self, nodes: Sequence[Object]) -> list[Object]:
        found = []
        for number in range(self._random.randint(0, 12)):
            made = self._pod(f"b{number}")
            made["spec"]["nodeName"] = self._random.choice(nodes)["metadata"]["name"]
            if self._chance(0.3):
                made["spec"]["affinity"] = {"podAntiAffinity": {_REQUIRED: self._pod_terms()}}
            if self._chance(0.15):
                made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            found.append(made)
        return found

    def pending(self, nodes: Sequence[Object]) -> Object:
        """Draw a pod with a few requirements of some kinds."""
        made = self._pod("p")
        spec = made["spec"]
        if self._chance(0.5):
            spec["tolerations"] = [self._toleration() for _ in range(self._random.randint(1, 3))]
        if self._chance(0.25):
            spec["nodeSelector"] = {self._random.choice(("pool", "zone")): self._random.choice(("a", "gpu"))}
        affinity: Object = {}
        if self._chance(0.15 if self._roomy else 0.35):
            affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": self._node_terms(nodes)}}
        if self._chance(0.25):
            affinity["podAffinity"] = {_REQUIRED: self._pod_terms()}
        if self._chance(0.25):
            affinity["podAntiAffinity"] = {_REQUIRED: self._pod_terms()}
        if affinity:
            spec["affinity"] = affinity
        if self._chance(0.7 if self._roomy else 0.3):
            keys = self._random.sample(_KEYS, self._random.randint(1, 2))
            spec["topologySpreadConstraints"] = [self._constraint(key) for key in keys]
        return made

    def _pod(self, name: str) -> Object:
        draw = self._random
        labels = {key: draw.choice(("x", "y")) for key in ("app", "tier") if self._chance(0.7)}
        made = pod(name, self._requests(), labels=labels, namespace=draw.choice(self.namespaces))
        spec = made["spec"]
        if self._chance(0.25):
            spec["containers"][0]["ports"] = [self._port()]
        if self._chance(0.25):
            extra = pod(requests=self._requests())["spec"]["containers"][0] | {"name": "first"}
            if self._chance(0.5):
                extra["restartPolicy"] = "Always"
                extra["ports"] = [self._port() | {"hostPort": 9000, "containerPort": 9000}]
            spec["initContainers"] = [extra]
        if self._chance(0.2):
            needed = {"cpu": f"{_requests(made).get('cpu', 0) + 500}m", "memory": "6Gi"}
            spec["resources"] = {"requests": {name: needed[name] for name in needed if self._chance(0.5)}}
        return made

    def _requests(self) -> dict[str, str]:
        found = {}
        for resource, amounts in (
            ("cpu", ("100m", "1", "1500m", "3")),
            ("memory", ("100Mi", "1Gi", "3000M")),
            (GPU, ("1", "2", "0")),
            (MIG, ("1",)),
            ("ephemeral-storage", ("1Gi",)),
        ):
            if self._chance(0.4 if resource in ("cpu", "memory", GPU) else 0.08):
                found[resource] = self._random.choice(amounts)
        return found

    def _port(self) -> Object:
        number = self._random.choice((8000, 8001))
        found: Object = {"containerPort": number, "hostPort": number}
        if self._chance(0.4):
            found["hostIP"] = self._random.choice(("10.0.0.1", "10.0.0.2"))
        if self._chance(0.3):
            found["protocol"] = "UDP"
        return found

    def _toleration(self) -> Object:
        return self._random.choice(
            (
                {"operator": "Exists"},
                {"key": "nvidia.com/gpu", "operator": "Exists"},
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
                {"key": "spot", "value": "yes"},
                {"key": "spot", "value": "no"},
                {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
            )
        )

    def _node_terms(self, nodes: Sequence[Object]) -> list[Object]:
        return [self._node_term(nodes) for _ in range(self._random.randint(1, 2))]

    def _node_term(self, nodes: Sequence[Object]) -> Object:
        term: Object = {}
        if self._chance(0.7):
            term["matchExpressions"] = [self._node_expression() for _ in range(self._random.randint(1, 2))]
        if self._chance(0.4):
            names = [*(found["metadata"]["name"] for found in nodes), "nowhere"]
            term["matchFields"] = [
                {
                    "key": "metadata.name",
                    "operator": self._random.choice(("In", "In", "NotIn")),
                    "values": [self._random.choice(names)],
                }
                for _ in range(self._random.randint(1, 2))
            ]
        return term

    def _node_expression(self) -> Object:
        operator = self._random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            bound = self._random.choice(("0", "1", "5", str(2**63 - 2)))
            return {"key": "number", "operator": operator, "values": [bound]}
        key = self._random.choice(("zone", "pool", "missing"))
        return {"key": key, "operator": operator, **self._values(operator, ("a", "b", "gpu"))}

    def _values(self, operator: str, among: Sequence[str]) -> Object:
        if operator not in ("In", "NotIn"):
            return {}
        return {"values": self._random.sample(among, self._random.randint(1, len(among)))}

    def _pod_terms(self) -> list[Object]:
        return [self._pod_term() for _ in range(self._random.choice((1, 1, 2)))]

    def _pod_term(self) -> Object:
        term: Object = {"topologyKey": self._random.choice(_KEYS)}
        selector = self._selector()
        if selector is not None:
            term["labelSelector"] = selector
        if self._chance(0.3):
            term["namespaces"] = self._random.sample(self.namespaces, self._random.randint(1, 2))
        if self._chance(0.3):
            term["namespaceSelector"] = self._random.choice(
                (
                    {},
                    {"matchLabels": {"team": "a"}},
                    {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
                    {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
                )
            )
        return term

    def _selector(self) -> Object | None:
        operator = self._random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        expression = {"key": "tier", "operator": operator, **self._values(operator, ("x", "y"))}
        return self._random.choice(
            (
                {"matchLabels": {"app": "x"}},
                {"matchLabels": {"app": "x"}},
                {"matchLabels": {"app": "y"}},
                {"matchLabels": {"app": "x"}, "matchExpressions": [expression]},
                {"matchExpressions": [expression]},
                {},
                None,
            )
        )

    def _constraint(self, key: str) -> Object:
        draw = self._random
        constraint: Object = {"topologyKey": key, "maxSkew": draw.choice((1, 1, 2))}
        hard = self._chance(0.85)
        constraint["whenUnsatisfiable"] = "DoNotSchedule" if hard else "ScheduleAnyway"
        selector = self._selector()
        if selector is not None:
            constraint["labelSelector"] = selector
        if hard and self._chance(0.3):
            constraint["minDomains"] = draw.randint(1, 4)
        if self._chance(0.3):
            constraint["nodeAffinityPolicy"] = draw.choice(("Honor", "Ignore"))
        if self._chance(0.3):
            constraint["nodeTaintsPolicy"] = draw.choice(("Honor", "Ignore"))
        if selector == {"matchLabels": {"app": "x"}} and self._chance(0.4):
            constraint["matchLabelKeys"] = ["tier"]
        return constraint

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
