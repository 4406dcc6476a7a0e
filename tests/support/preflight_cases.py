"""Generated clusters and workloads for tests of preflight on a real control plane."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.api import node
from tests.support.real import GPU

Object = dict[str, Any]

MIG = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-1g.10gb"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
PRESENT = f"{GPU}=present:NoSchedule"
TAINTS = (PRESENT, "dedicated=infer:NoSchedule", "spot:PreferNoSchedule")

PRIORITIES: Mapping[str, Object] = {
    "low": {"value": -5},
    "high": {"value": 1000},
    "polite": {"value": 1000, "preemptionPolicy": "Never"},
}
"""PriorityClasses, without the prefix of their names."""

FREE_DEVICES = ("available", "up")
"""Those whose ladder reads free devices."""

LADDERS = ("keep", "scale", "available", "up", "deny")
"""Values of the label `ladder` of pods, each of which one ladder of RULES matches."""

RULES = f"""\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: keep}}
spec:
  match: {{objectSelector: {{matchLabels: {{ladder: keep}}}}}}
  rungs: [{{resource: {MIG[0]}}}, {{resource: {MIG[1]}}}, {{resource: {MIG[2]}}}, {{resource: {GPU}, assume: true}}]
---
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: scale}}
spec:
  match: {{objectSelector: {{matchLabels: {{ladder: scale}}}}}}
  counts: Scale
  nodes: {{require: [MatchesPod]}}
  rungs:
    - {{resource: {MIG[0]}, weight: 3}}
    - {{resource: {MIG[1]}, weight: 2}}
    - {{resource: {MIG[2]}, weight: 1}}
---
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: available}}
spec:
  match: {{objectSelector: {{matchLabels: {{ladder: available}}}}}}
  offered: Available
  nodes: {{require: [MatchesPod]}}
  rungs: [{{resource: {MIG[0]}}}, {{resource: {MIG[1]}}}, {{resource: {MIG[2]}}}]
---
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: up}}
spec:
  match: {{objectSelector: {{matchLabels: {{ladder: up}}}}}}
  offered: Available
  direction: DownThenUp
  rungs: [{{resource: {GPU}}}, {{resource: {MIG[0]}}}, {{resource: {MIG[1]}}}]
---
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: deny}}
spec:
  match: {{objectSelector: {{matchLabels: {{ladder: deny}}}}}}
  whenExhausted: Deny
  rungs: [{{resource: {MIG[0]}}}, {{resource: {MIG[1]}}}]
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {{name: small}}
spec:
  match: {{objectSelector: {{matchExpressions: [{{key: ladder, operator: Exists}}]}}}}
  validations:
    - expression: "!object.spec.containers.exists(c, c.?resources.limits['{GPU}'].orValue('0') == '3')"
      message: three whole GPUs are not allowed
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster and a workload. `pods`: those that exist, on nodes or waiting; `hard`: of a ResourceQuota."""

    nodes: Sequence[Object]
    pods: Sequence[Object]
    hard: Mapping[str, str]
    manifest: Object
    replicas: int


class CaseGenerator:
    """Cases drawn from a source of random numbers. `prefix`: of names without a namespace; `nodes`: of nodes."""

    def __init__(self, random: Random, prefix: str, nodes: str, namespace: str, other: str) -> None:
        self._random = random
        self._prefix = prefix
        self._nodes = nodes
        self._namespace = namespace
        self._other = other
        self._limited = False
        self._free: dict[str, dict[str, int]] = {}

    def case(self) -> Case:
        nodes = [self._node(number) for number in range(self._random.choice((1, 2, 3, 4, 5, 6, 8, 10)))]
        hard = self._hard() if self._chance(0.3) else {}
        self._limited = bool(hard)
        pods = [made for number in range(self._random.choice((0, 4, 8, 16))) if (made := self._bound(number, nodes))]
        pods += [self._waiting(number) for number in range(self._random.choice((0, 0, 1, 2)))]
        offered = [name for each in nodes for name in each["status"]["allocatable"] if "/" in name]
        manifest, replicas = self._workload([*offered, GPU, *MIG])
        return Case(nodes, pods, hard, manifest, replicas)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _node(self, number: int) -> Object:
        draw, name = self._random, f"{self._nodes}{number}"
        gpus = draw.choice(
            (
                {GPU: draw.choice((1, 2, 4, 8))},
                {MIG[0]: draw.choice((1, 2, 4)), MIG[2]: draw.choice((1, 4))},
                {MIG[1]: draw.choice((2, 4, 6))},
                {MIG[1]: 2, MIG[2]: 3, GPU: 1},
                {},
            )
        )
        amounts = {
            "cpu": draw.choice((4, 8, 16, 32)),
            "memory": draw.choice((8, 32)),
            "pods": draw.choice((3, 110, 110)),
        }
        self._free[name] = {**amounts, **gpus}
        taints = [text for text, chance in zip(TAINTS, (0.3, 0.25, 0.15), strict=True) if self._chance(chance)]
        if not gpus and self._chance(0.7):
            taints = []
        cordoned = self._chance(0.08)
        if cordoned:
            # The node lifecycle controller, which does not run here, adds it.
            taints.append("node.kubernetes.io/unschedulable:NoSchedule")
        return node(
            name,
            {
                **{resource: str(amount) for resource, amount in {**amounts, **gpus}.items()},
                "memory": f"{amounts['memory']}Gi",
            },
            labels={HOST: name, ZONE: draw.choice("xyz"), "pool": draw.choice(("a", "a", "b"))},
            taints=taints,
            unschedulable=cordoned,
        )

    def _bound(self, number: int, nodes: Sequence[Object]) -> Object | None:
        draw = self._random
        name = draw.choice(nodes)["metadata"]["name"]
        free = self._free[name]
        gpus = [resource for resource, amount in free.items() if "/" in resource and amount]
        wanted = {"cpu": draw.choice((1, 1, 2)), "memory": draw.choice((1, 2)), "pods": 1}
        if gpus and self._chance(0.85):
            resource = draw.choice(gpus)
            wanted[resource] = draw.randint(1, free[resource])
        if any(free[resource] < amount for resource, amount in wanted.items()):
            return None
        for resource, amount in wanted.items():
            free[resource] -= amount
        spec: Object = {"nodeName": name, "terminationGracePeriodSeconds": 0}
        if self._chance(0.4):
            spec["priorityClassName"] = f"{self._prefix}low"
        else:
            self._prioritize(spec)
        namespace = draw.choice((self._namespace, self._other))
        if self._limited and namespace == self._namespace:
            # The usage of a quota falls when a pod without a controller is preempted, which preflight leaves out.
            spec["priorityClassName"] = f"{self._prefix}high"
        return self._pod(f"old-{number}", namespace, wanted, spec)

    def _waiting(self, number: int) -> Object:
        draw = self._random
        wanted = {"cpu": 1, "memory": 1, draw.choice((GPU, *MIG)): draw.choice((1, 2, 9))}
        spec: Object = {"terminationGracePeriodSeconds": 0}
        self._prioritize(spec)
        if self._chance(0.3):
            spec["nodeSelector"] = {"pool": "none"}
        if self._chance(0.5):
            spec["tolerations"] = [{"key": GPU, "operator": "Exists"}]
        if self._chance(0.2):
            spec["schedulingGates"] = [{"name": "example.com/gate"}]
        return self._pod(f"waiting-{number}", self._other, wanted, spec)

    def _pod(self, name: str, namespace: str, wanted: Mapping[str, int], spec: Object) -> Object:
        metadata = {"name": name, "namespace": namespace, "labels": {"app": "old"}}
        return {"metadata": metadata, "spec": {**spec, "containers": [self._container(wanted)]}}

    def _container(self, wanted: Mapping[str, int]) -> Object:
        amounts = {
            resource: f"{amount}Gi" if resource == "memory" else str(amount)
            for resource, amount in wanted.items()
            if resource != "pods"
        }
        return {"name": "main", "image": "app:1", "resources": {"limits": amounts}}

    def _prioritize(self, spec: Object) -> None:
        name = self._random.choice(("", "", "low", "high", "polite"))
        if name:
            spec["priorityClassName"] = self._prefix + name

    def _hard(self) -> Mapping[str, str]:
        draw = self._random
        hard = {
            "pods": draw.choice(("2", "5", "9")),
            "requests.cpu": draw.choice(("4", "12", "5500m")),
            "limits.memory": draw.choice(("6Gi", "20Gi")),
            f"requests.{draw.choice((GPU, *MIG))}": draw.choice(("2", "4", "6")),
        }
        return {name: hard[name] for name in draw.sample([*hard], draw.choice((1, 1, 2)))}

    def _workload(self, resources: Sequence[str]) -> tuple[Object, int]:
        draw = self._random
        kind = draw.choice(("Pod", "Job", "Job", "Deployment", "Deployment", "StatefulSet"))
        replicas = 1 if kind == "Pod" else draw.choice((1, 2, 3, 4, 6, 8))
        labels: Object = {"app": "new"}
        if self._chance(0.8):
            labels["ladder"] = draw.choice(LADDERS)
        wanted = {"cpu": draw.choice((1, 1, 2, 3)), "memory": draw.choice((1, 1, 2))}
        wanted[draw.choice(resources)] = draw.choice((1, 1, 1, 2, 2, 3, 4))
        containers = [self._container(wanted)]
        if self._chance(0.15):
            containers.append({**self._container({"cpu": 1, "memory": 1}), "name": "side"})
        spec: Object = {"containers": containers, "terminationGracePeriodSeconds": 0}
        self._prioritize(spec)
        if self._chance(0.04):
            spec["priorityClassName"] = f"{self._prefix}unknown"
        tolerations = []
        if self._chance(0.8):
            tolerations.append({"key": GPU, "operator": "Exists"})
        if self._chance(0.15):
            tolerations.append({"key": "dedicated", "value": "infer", "effect": "NoSchedule"})
        if tolerations:
            spec["tolerations"] = tolerations
        if self._chance(0.2):
            spec["nodeSelector"] = {"pool": draw.choice(("a", "b", "c"))}
        term = {"topologyKey": draw.choice((HOST, HOST, ZONE)), "labelSelector": {"matchLabels": {"app": "new"}}}
        affinity: Object = {}
        if self._chance(0.12):
            affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        if self._chance(0.1):
            expression = {"key": ZONE, "operator": "In", "values": draw.sample("xyz", 2)}
            affinity["nodeAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [expression]}]
                }
            }
        if affinity:
            spec["affinity"] = affinity
        if self._chance(0.12):
            unsatisfiable = draw.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))
            spec["topologySpreadConstraints"] = [{"maxSkew": 1, "whenUnsatisfiable": unsatisfiable, **term}]
        metadata = {"name": "new", "namespace": self._namespace}
        if kind == "Pod":
            return {"apiVersion": "v1", "kind": kind, "metadata": {**metadata, "labels": labels}, "spec": spec}, 1
        template = {"metadata": {"labels": labels}, "spec": spec}
        if kind == "Job":
            spec["restartPolicy"] = "Never"
            body = {"parallelism": replicas, "completions": replicas, "template": template}
            return {"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": body}, replicas
        body = {"replicas": replicas, "selector": {"matchLabels": {"app": "new"}}, "template": template}
        if kind == "StatefulSet":
            body |= {"serviceName": "none", "podManagementPolicy": "Parallel"}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": body}, replicas
