"""Generated clusters and workloads, whose pods depend on what controllers and admission plugins add to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.api import node
from tests.support.real import GPU

Object = dict[str, Any]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
HASH = "pod-template-hash"
RESTRICTED: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""A securityContext of containers that the level `restricted` of Pod Security allows."""

POLICIES = (
    (
        "object.spec.containers.all(c, has(c.resources.limits) && 'cpu' in c.resources.limits)",
        "cpu limits are required",
    ),
    ("'team' in object.metadata.?labels.orValue({})", "a team is required"),
    ("object.spec.priority < 1000", "no high priority"),
    ("!has(object.spec.overhead)", "no overhead"),
    ("object.spec.serviceAccountName != 'default'", "an account is required"),
    ("!('job-name' in object.metadata.labels) || object.spec.containers.size() == 1", "Jobs have one container"),
    ("object.spec.tolerations.size() < 3", "at most the default tolerations"),
    ("object.spec.?nodeSelector.orValue({}).size() == 0", "no nodeSelector"),
    ("has(object.metadata.ownerReferences) && object.metadata.ownerReferences[0].kind != 'ReplicaSet'", "by its owner"),
    ("object.metadata.?annotations[?'kubernetes.io/limit-ranger'].hasValue() == false", "amounts are required"),
    ("quantity(object.spec.containers[0].resources.?requests[?'cpu'].orValue('0')).isLessThan(quantity('1'))", "small"),
    ("namespaceObject.metadata.labels.?tier.orValue('') == 'gold' || !has(object.spec.runtimeClassName)", "gold only"),
    ("variables.names.all(n, n in ['main', 'side', 'init'])", "known names"),
)
"""Expressions of policies with their messages."""


@dataclass(slots=True)
class PodCase:
    """A cluster and a workload. `old`: pods that run, created before `objects`.

    `labels`, `annotations`: of the workload's namespace. `plugin`: preflight gets --admission if the plugin is on.
    """

    nodes: Sequence[Object]
    manifest: Object
    replicas: int
    plugin: bool
    old: list[Object] = field(default_factory=list)
    objects: list[Object] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class PodCaseGenerator:
    """Cases drawn from a source of random numbers. `prefix`: of names without a namespace."""

    def __init__(self, random: Random, prefix: str, namespace: str, other: str, *, selects_nodes: bool) -> None:
        self._random = random
        self._prefix = prefix
        self._namespace = namespace
        self._other = other
        self._selects_nodes = selects_nodes

    def case(self) -> PodCase:
        nodes = [self._node(number) for number in range(self._random.choice((1, 2, 2, 3, 4)))]
        manifest, replicas = self._workload()
        case = PodCase(nodes, manifest, replicas, plugin=self._chance(0.7))
        if self._chance(0.25):
            case.labels["pod-security.kubernetes.io/enforce"] = self._pick(
                "privileged", "baseline", "baseline", "restricted"
            )
        if self._chance(0.3):
            case.labels["tier"] = "gold"
        if self._selects_nodes and self._chance(0.2):
            case.annotations["scheduler.alpha.kubernetes.io/node-selector"] = self._pick(
                "pool=a", "pool=b", "pool = a,"
            )
        limited = self._chance(0.3)
        case.old = [made for number in range(self._pick(0, 3, 6, 9)) if (made := self._old(number, nodes, limited))]
        case.objects = [*self._classes(), *self._limit_ranges(), *self._budgets(), *self._volumes(nodes)]
        case.objects.append(
            self._object("v1", "ServiceAccount", "trainer", automountServiceAccountToken=self._chance(0.5))
        )
        if limited:
            case.objects.append(self._quota())
        if self._chance(0.2):
            case.objects += self._policy()
        return case

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _pick(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _object(self, version: str, kind: str, name: str, namespace: str | None = None, **members: Any) -> Object:
        metadata = {"name": name, "namespace": namespace or self._namespace}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **members}

    def _global(self, version: str, kind: str, name: str, **members: Any) -> Object:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": f"{self._prefix}{name}"}, **members}

    # The cluster

    def _node(self, number: int) -> Object:
        name = f"{self._prefix}n{number}"
        labels = {HOST: name, ZONE: self._pick("x", "y"), "pool": self._pick("a", "a", "b")}
        if self._chance(0.5):
            labels["runtime"] = "gold"
        chances = {f"{GPU}=present:NoSchedule": 0.35, "dedicated=infer:NoSchedule": 0.15}
        amounts = {"cpu": self._pick(2, 4, 8), "memory": self._pick("4Gi", "16Gi")}
        if self._chance(0.75):
            amounts[GPU] = self._pick(1, 2, 4)
        return node(
            name, amounts, labels=labels, taints=[text for text, chance in chances.items() if self._chance(chance)]
        )

    def _old(self, number: int, nodes: Sequence[Object], limited: bool) -> Object | None:
        """Return a pod that runs; in the workload's namespace none that preemption may evict from a quota."""
        chosen = self._pick(*nodes)
        own = not limited and self._chance(0.4)
        limits = {"cpu": self._pick("250m", "1", "2")}
        if GPU in chosen["status"]["allocatable"] and number == 0:
            limits[GPU] = "1"
        labels = self._pick({"app": "old"}, {"app": "new", HASH: "5d6f7"}) if own else {"app": "old"}
        spec: Object = {
            "nodeName": chosen["metadata"]["name"],
            "containers": [{"name": "main", "image": "app:1", "resources": {"limits": limits}}],
            "terminationGracePeriodSeconds": 0,
            "priorityClassName": f"{self._prefix}{self._pick('low', 'high')}",
        }
        namespace = self._namespace if own else self._other
        made = self._object("v1", "Pod", f"{self._prefix}old-{number}", namespace, spec=spec)
        made["metadata"]["labels"] = labels
        return made

    def _classes(self) -> list[Object]:
        runtime = self._global("node.k8s.io/v1", "RuntimeClass", "gold", handler="gold")
        scheduling: Object = {}
        if self._chance(0.5):
            scheduling["nodeSelector"] = {"runtime": "gold"}
        if self._chance(0.4):
            scheduling["tolerations"] = [{"key": self._pick("dedicated", GPU), "operator": "Exists"}]
        if scheduling:
            runtime["scheduling"] = scheduling
        if self._chance(0.5):
            runtime["overhead"] = {"podFixed": {self._pick("cpu", "cpu", "memory"): self._pick("1", "500M")}}
        return [runtime]

    def _limit_ranges(self) -> list[Object]:
        made = []
        for name in ("one", "two")[: self._pick(0, 0, 0, 0, 1, 1, 1, 2)]:
            item: Object = {"type": "Container"}
            resource = self._pick("cpu", "cpu", "memory")
            low, request, limit, high = (
                ("100m", "500m", "1", "2") if resource == "cpu" else ("64Mi", "512Mi", "1Gi", "2Gi")
            )
            members = {"min": low, "defaultRequest": request, "default": limit, "max": high}
            item |= {member: {resource: amount} for member, amount in members.items() if self._chance(0.35)}
            if self._chance(0.1):
                item["maxLimitRequestRatio"] = {resource: self._pick("2", "4")}
            items = [item]
            if self._chance(0.25):
                items.append({"type": "Pod", self._pick("max", "max", "min"): {"cpu": self._pick("500m", "2", "3")}})
            made.append(self._object("v1", "LimitRange", name, spec={"limits": items}))
        return made

    def _quota(self) -> Object:
        hard = {
            "pods": self._pick("2", "3", "9"),
            "requests.cpu": self._pick("2", "3500m", "9"),
            "limits.cpu": self._pick("3", "9"),
            "limits.memory": self._pick("4Gi", "9Gi"),
            f"requests.{GPU}": self._pick("1", "2", "4"),
            "count/pods": self._pick("2", "4"),
        }
        spec: Object = {"hard": {name: hard[name] for name in self._random.sample([*hard], self._pick(1, 1, 2))}}
        if self._chance(0.25):
            names = [f"{self._prefix}high", f"{self._prefix}base"]
            spec["scopeSelector"] = {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": self._pick("In", "NotIn"), "values": names}
                ]
            }
        elif self._chance(0.15):
            spec["scopes"] = [self._pick("NotBestEffort", "NotTerminating")]
        return self._object("v1", "ResourceQuota", "quota", spec=spec)

    def _budgets(self) -> list[Object]:
        if self._chance(0.6):
            return []
        budget = {"minAvailable": self._pick(0, 1, 5), "selector": {"matchLabels": {"app": "old"}}}
        return [self._object("policy/v1", "PodDisruptionBudget", "old", self._other, spec=budget)]

    def _policy(self) -> list[Object]:
        expression, message = self._pick(*POLICIES)
        validation: Object = {"expression": expression}
        if self._chance(0.5):
            validation["message"] = message
        elif self._chance(0.5):
            validation["messageExpression"] = "'refused in ' + request.namespace"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        spec: Object = {
            "failurePolicy": self._pick("Fail", "Fail", "Ignore"),
            "matchConstraints": {"resourceRules": [rule]},
            "variables": [{"name": "names", "expression": "object.spec.containers.map(c, c.name)"}],
            "validations": [validation],
        }
        if self._chance(0.2):
            condition = self._pick("object.metadata.name.startsWith('new')", "has(object.metadata.generateName)")
            spec["matchConditions"] = [{"name": "some", "expression": condition}]
        if self._chance(0.2):
            selector = self._pick(
                {"matchLabels": {"team": "ml"}}, {"matchExpressions": [{"key": "job-name", "operator": "Exists"}]}
            )
            spec["matchConstraints"]["objectSelector"] = selector
        only = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}}}
        action = self._pick("Deny", "Deny", "Deny", "Warn", "Audit")
        binding = {"policyName": f"{self._prefix}policy", "validationActions": [action], "matchResources": only}
        version, kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
        return [
            self._global(version, kind, "policy", spec=spec),
            self._global(version, f"{kind}Binding", "policy", spec=binding),
        ]

    def _volumes(self, nodes: Sequence[Object]) -> list[Object]:
        """Return a StorageClass whose volumes are made by hand, some volumes, and a claim."""
        made = [
            self._global(
                "storage.k8s.io/v1",
                "StorageClass",
                "local",
                provisioner="kubernetes.io/no-provisioner",
                volumeBindingMode="WaitForFirstConsumer",
            )
        ]
        name = f"{self._prefix}local"
        for number in range(self._pick(0, 1, 2, 3)):
            host = self._pick(*nodes)["metadata"]["name"]
            term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [host]}]}
            spec: Object = {
                "capacity": {"storage": self._pick("1Gi", "2Gi")},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": name,
                "local": {"path": f"/{number}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            }
            made.append(self._global("v1", "PersistentVolume", f"v{number}", spec=spec))
        return [*made, self._object("v1", "PersistentVolumeClaim", "data", spec=self._claim())]

    def _claim(self) -> Object:
        return {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"{self._prefix}local",
            "resources": {"requests": {"storage": self._pick("1Gi", "2Gi")}},
        }

    # The workload

    def _workload(self) -> tuple[Object, int]:
        kind = self._pick("Pod", "Job", "Job", "Indexed", "Deployment", "Deployment", "StatefulSet")
        replicas = 1 if kind == "Pod" else self._pick(1, 2, 2, 3, 4)
        labels = {"app": "new", **({"team": "ml"} if self._chance(0.5) else {})}
        spec = self._pod_spec(kind)
        if kind == "Pod":
            made = self._object("v1", kind, "new", spec=spec)
            made["metadata"]["labels"] = labels
            return made, 1
        template: Object = {"metadata": {"labels": labels}, "spec": spec}
        if kind in ("Job", "Indexed"):
            spec["restartPolicy"] = "Never"
            body: Object = {"parallelism": replicas, "completions": replicas, "template": template}
            if kind == "Indexed":
                body["completionMode"] = "Indexed"
            return self._object("batch/v1", "Job", "new", spec=body), replicas
        body = {"replicas": replicas, "selector": {"matchLabels": {"app": "new"}}, "template": template}
        if kind == "StatefulSet":
            body |= {"serviceName": "none", "podManagementPolicy": "Parallel"}
            if self._chance(0.3):
                body["volumeClaimTemplates"] = [{"metadata": {"name": "own"}, "spec": self._claim()}]
        return self._object("apps/v1", kind, "new", spec=body), replicas

    def _pod_spec(self, kind: str) -> Object:
        containers = [self._container("main", self._chance(0.6))]
        if self._chance(0.2):
            containers.append(self._container("side", False))
        spec: Object = {"containers": containers, "terminationGracePeriodSeconds": 0}
        if self._chance(0.25):
            spec["initContainers"] = [self._container("init", False)]
            if self._chance(0.4):
                spec["initContainers"][0]["restartPolicy"] = "Always"
        if self._chance(0.5):
            for container in (*containers, *spec.get("initContainers", ())):
                container["securityContext"] = dict(RESTRICTED)
        if self._chance(0.08):
            spec |= self._pick(
                {"hostNetwork": True}, {"hostPID": True}, {"hostUsers": False}, {"securityContext": {"runAsUser": 0}}
            )
        if self._chance(0.1):
            containers[0].setdefault("securityContext", {})
            containers[0]["securityContext"] |= self._pick(
                {"runAsUser": 0},
                {"capabilities": {"add": ["NET_ADMIN"]}},
                {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
            )
        for member, name, missing in (
            ("priorityClassName", self._pick("low", "high", "never"), 0.03),
            ("runtimeClassName", "gold", 0.04),
        ):
            if self._chance(0.35):
                spec[member] = f"{self._prefix}{'missing' if self._chance(missing) else name}"
        if self._chance(0.25):
            spec["serviceAccountName"] = "missing" if self._chance(0.1) else "trainer"
        if self._chance(0.2):
            spec["tolerations"] = [
                self._pick(
                    {"key": "dedicated", "operator": "Exists"},
                    {"key": GPU, "operator": "Exists", "effect": "NoSchedule"},
                )
            ]
        if self._chance(0.15):
            spec["nodeSelector"] = {"pool": self._pick("a", "b")}
        if self._chance(0.2):
            volume = self._pick(
                {"persistentVolumeClaim": {"claimName": "data"}},
                {"persistentVolumeClaim": {"claimName": "missing"}},
                {"hostPath": {"path": "/data"}},
                {"ephemeral": {"volumeClaimTemplate": {"spec": self._claim()}}},
            )
            spec["volumes"] = [{"name": "data", **volume}]
        self._place(spec, kind)
        return spec

    def _container(self, name: str, gpu: bool) -> Object:
        resources: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
        for resource, amounts in {
            "cpu": ("200m", "500m", "1", "1500m"),
            "memory": ("256Mi", "1Gi", "2Gi"),
        }.items():
            low, high = sorted(self._random.sample(range(len(amounts)), 2))
            if self._chance(0.4):
                resources["limits"][resource] = amounts[high]
            if self._chance(0.4):
                resources["requests"][resource] = amounts[low]
        if gpu:
            resources["limits"][GPU] = self._pick("1", "1", "2")
        return {
            "name": name,
            "image": "app:1",
            "resources": {member: amounts for member, amounts in resources.items() if amounts},
        }

    def _place(self, spec: Object, kind: str) -> None:
        """Add affinity and spreading, most of them by labels that controllers add."""
        is_job = kind in ("Job", "Indexed")
        selector: Mapping[str, str] = {"job-name": "new"} if is_job and self._chance(0.7) else {"app": "new"}
        term: Object = {"topologyKey": self._pick(HOST, HOST, ZONE), "labelSelector": {"matchLabels": selector}}
        if kind == "Deployment" and self._chance(0.6):
            term["matchLabelKeys"] = [HASH]
        elif is_job and self._chance(0.3):
            term["matchLabelKeys"] = ["controller-uid"]
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        drawn = self._random.random()
        if drawn < 0.12:
            spec["affinity"] = {"podAntiAffinity": {required: [term]}}
        elif drawn < 0.24:
            spec["affinity"] = {"podAffinity": {required: [term]}}
        elif drawn < 0.4:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "whenUnsatisfiable": self._pick("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"),
                    **term,
                }
            ]
        if self._chance(0.05):
            spec["resources"] = {"requests": {"cpu": self._pick("500m", "3")}}
