"""Workloads of all kinds on a real control plane, whose pods are admitted by the server between other webhooks."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rules_engine.model.json.patch import Json
from tests.support.real import GPU, LABEL, MIG, Kube, admitting, eventually, kubectl, together
from tests.support.recorded_admissions import AdmissionRecorder, recording

Object = dict[str, Any]

MIG3 = "nvidia.com/mig-3g.40gb"
ZONE = "topology.kubernetes.io/zone"

CONTROLLERS = "replicationcontrollers,replicasets,statefulsets,daemonsets,jobs"
KINDS = f"nodes,namespaces,pods,limitranges,deployments,controllerrevisions,{CONTROLLERS}"

HASH = "pod-template-hash"
PROXY: Object = {"name": "proxy", "image": "proxy:1", "resources": {"requests": {"cpu": "100m"}}}
LONG = "a-name-that-leaves-no-room-for-a-hash-and-the-end-of-pods"


class Group(NamedTuple):
    """Pods of one template, by labels of the pods. `namespace`: without the name of the test run."""

    namespace: str
    app: str
    version: str


def pod_template(name: str, limits: Mapping[str, str | None], version: str = "1", **spec: Any) -> Object:
    main = {"name": "main", "image": "app:1", "resources": {"limits": dict(limits)}}
    spec = {"containers": [main], "terminationGracePeriodSeconds": 0, **spec}
    return {"metadata": {"labels": {"app": name, "version": version}, "annotations": {"own": "1"}}, "spec": spec}


def proxied(template: Object, order: str) -> Object:
    """Let a webhook inject a proxy: `a` is called before the rules, `z` after them."""
    template["metadata"]["labels"]["proxy"] = order
    return template


def workload(kind: str, namespace: str, name: str, template: Object, **spec: Any) -> Object:
    group = {"Job": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    selector: Object = {"matchLabels": {"app": name}}
    if kind == "ReplicationController":
        selector = {"app": name}
    if kind == "Job":
        template = {**template, "spec": {"restartPolicy": "Never", **template["spec"]}}
    else:
        spec = {"selector": selector, **spec}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": {**spec, "template": template}}


def workloads(kube: Kube) -> list[Object]:
    """Build a workload of each kind; those that get more than two GPUs ask for them themselves."""
    plain, limited = (f"{kube.name}-{name}" for name in NAMESPACES)
    mine: Object = {"nodeSelector": {LABEL: kube.name}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "spread"}}}
    by_hash = {**term, "matchLabelKeys": [HASH]}
    spread: Object = {
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [by_hash]},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {**by_hash, "topologyKey": ZONE}},
                    {"weight": 2, "podAffinityTerm": term},
                ]
            },
        },
        "topologySpreadConstraints": [{"maxSkew": 9, "whenUnsatisfiable": "DoNotSchedule", **by_hash}],
    }
    sidecar = {"name": "side", "image": "side:1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    whole: Object = {
        "resources": {"limits": {"cpu": "9", "memory": "9Gi"}, "requests": {"memory": "2Gi"}},
        "initContainers": [sidecar],
        "priorityClassName": kube.name,
        "runtimeClassName": kube.name,
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }
    asked: Object = {"resources": {"requests": {"memory": "2Gi"}}}
    zoned = pod_template("zoned", {GPU: "1"})
    zoned["metadata"]["labels"][ZONE] = "mine"
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    partition = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    indexed = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1}
    parallel = {"serviceName": "none", "podManagementPolicy": "Parallel"}
    return [
        workload("Deployment", plain, "roll", pod_template("roll", {MIG: "1"}), replicas=2, strategy=rolling),
        workload("Deployment", plain, "spread", pod_template("spread", {GPU: "2"}, **spread), replicas=2),
        workload("Deployment", plain, "pinned", pod_template("pinned", {GPU: "3"}, nodeName=f"{kube.name}-b")),
        workload("Deployment", plain, "zoned", zoned),
        workload("Deployment", plain, LONG, pod_template(LONG, {GPU: "3"})),
        workload("ReplicaSet", plain, "whole", pod_template("whole", {MIG: "1", "cpu": "2"}, **whole)),
        workload("ReplicaSet", plain, "asked", pod_template("asked", {MIG: "1", "cpu": "2"}, **asked)),
        workload("ReplicationController", plain, "former", pod_template("former", {MIG: "2"})),
        workload(
            "StatefulSet",
            plain,
            "set",
            pod_template("set", {MIG: "1"}),
            replicas=2,
            updateStrategy=partition,
            **parallel,
        ),
        workload("StatefulSet", plain, "large", pod_template("large", {GPU: "4"}), serviceName="none"),
        workload("DaemonSet", plain, "agent", pod_template("agent", {MIG: "1"}, **mine)),
        workload(
            "DaemonSet", plain, "stale", pod_template("stale", {MIG: "1"}, **mine), updateStrategy={"type": "OnDelete"}
        ),
        workload("Job", plain, "indexed", pod_template("indexed", {GPU: "2"}), **indexed),
        workload("Job", plain, "single", pod_template("single", {GPU: "3"}), backoffLimit=0),
        workload("Deployment", limited, "bare", pod_template("bare", {MIG: "1"}), replicas=2),
        workload("Deployment", limited, "own", pod_template("own", {GPU: "1", "cpu": "3"})),
        workload("StatefulSet", limited, "set", pod_template("set", {GPU: "1"}), serviceName="none"),
        workload("Deployment", limited, "late", proxied(pod_template("late", {MIG: "1"}), "z")),
        workload("Deployment", plain, "early", proxied(pod_template("early", {MIG: "1"}), "a")),
        workload("Deployment", plain, "later", proxied(pod_template("later", {MIG: "1"}), "z")),
        workload("StatefulSet", plain, "huge", proxied(pod_template("huge", {GPU: "3"}), "z"), serviceName="none"),
    ]


NAMESPACES = ("plain", "limited")
"""The second one has a LimitRange and a ResourceQuota."""

ROLLED_OUT = (
    ("deployment", "roll", {GPU: "3", MIG: None}),
    ("statefulset", "set", {MIG: "2"}),
    ("daemonset", "stale", {GPU: "2", MIG: None}),
)
"""Limits of the second version of templates."""


class RealWorkloads:
    """Workloads in namespaces of a test run."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        from kubernetes import client

        self.kube = kube
        self.folder = folder
        self.namespaces = [f"{kube.name}-{name}" for name in NAMESPACES]
        self._scheduling: Any = client.SchedulingV1Api()
        self._node: Any = client.NodeV1Api()
        self.manifests = workloads(kube)

    def start(self) -> None:
        kube = self.kube
        enough = {"cpu": "999", "memory": "9Ti", GPU: "99"}
        for name, offered in (("a", enough), ("b", {**enough, MIG3: "99"})):
            node = kube.node(name)
            kube.core.patch_node(node, {"metadata": {"labels": {ZONE: f"zone-{name}"}}})
            kube.core.patch_node_status(node, {"status": {"capacity": offered, "allocatable": offered}})
        self._scheduling.create_priority_class({"metadata": {"name": kube.name}, "value": 7})
        overhead = {"podFixed": {"memory": "64Mi"}}
        self._node.create_runtime_class({"metadata": {"name": kube.name}, "handler": "x", "overhead": overhead})
        for namespace in self.namespaces:
            kube.core.create_namespace({"metadata": {"name": namespace, "labels": {LABEL: kube.name}}})
        requests = {"cpu": "250m", "memory": "1Gi"}
        limit = {"type": "Container", "default": {"memory": "2Gi"}, "defaultRequest": requests}
        _, limited = self.namespaces
        kube.core.create_namespaced_limit_range(limited, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
        hard = {f"requests.{GPU}": "32", "limits.memory": "64Gi"}
        kube.core.create_namespaced_resource_quota(limited, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        eventually(lambda: kube.core.read_namespaced_resource_quota("q", limited).status.hard)
        for namespace in self.namespaces:
            eventually(partial(kube.core.read_namespaced_service_account, "default", namespace))

    def stop(self) -> None:
        for namespace in self.namespaces:
            self.kube.core.delete_namespace(namespace)
        eventually(lambda: not self._ended())
        self._scheduling.delete_priority_class(self.kube.name)
        self._node.delete_runtime_class(self.kube.name)

    @contextmanager
    def under(self, rules: str, name: str, fallback: str, denial: str) -> Iterator[AdmissionRecorder]:
        """Run the server with rules between other webhooks; yield the one that is called just before it.

        The decision log, with requests, is NAME.log. `fallback` and `denial`: the fallback of a pod that asks for MIG,
        and a part of the message that denies five GPUs, by which both endpoints are recognized.
        """
        folder = self.folder / name
        folder.mkdir()
        with ExitStack() as stack:
            stack.enter_context(recording(self.kube, folder, "a", _injecting("a")))
            recorder = stack.enter_context(recording(self.kube, folder, "b"))
            stack.enter_context(recording(self.kube, folder, "z", _injecting("z")))
            log = ("--decision-log", self.folder / f"{name}.log", "--decision-log-requests")
            stack.enter_context(admitting(self.kube, folder, rules, "--cluster", "kubeconfig", *log))
            eventually(lambda: self._is_admitting(fallback, denial))
            recorder.requests.clear()
            yield recorder

    def _is_admitting(self, fallback: str, denial: str) -> bool:
        from kubernetes.client.exceptions import ApiException

        probe = {"metadata": {"name": "probe"}}
        made = self.kube.create({**probe, **_pod({MIG: "1"})}, dry_run="All")
        if fallback not in (made.metadata.annotations or {}).values():
            return False
        try:
            self.kube.create({**probe, **_pod({GPU: "5"})}, dry_run="All")
        except ApiException as error:
            return denial in str(error.body)
        return False

    def create(self) -> None:
        """Create the workloads and two pods without a controller, change templates, and wait for all pods."""
        plain, _ = self.namespaces
        alone = [
            {"metadata": {"name": "alone", "namespace": plain}, **_pod({MIG: "1"})},
            {"metadata": {"generateName": "alone-", "namespace": plain}, **_pod({GPU: "1"})},
        ]
        _run("create", "-f", "-", stdin=together([*self.manifests, *alone]))
        expected = Counter({self._group(item): _replicas(item) for item in self.manifests})
        eventually(lambda: self._running() == expected)
        for kind, name, limits in ROLLED_OUT:
            template = pod_template(name, limits, "2")
            _run("patch", kind, name, "-n", plain, "-p", json.dumps({"spec": {"template": template}}))
        expected[Group("plain", "roll", "2")] = 1
        expected[Group("plain", "set", "1")] = expected[Group("plain", "set", "2")] = 1
        eventually(lambda: self._running() == expected)

    def create_again(self) -> Mapping[Group, str]:
        """End all pods; return the messages of denials once the others were created again."""
        expected = self._running()
        # The pods that its controller did not replace become those of the second version.
        expected[Group("plain", "stale", "2")] = expected.pop(Group("plain", "stale", "1"))
        jobs = [item for item in self.manifests if item["kind"] == "Job"]
        for job in jobs:
            metadata = job["metadata"]
            _run("delete", "job", metadata["name"], "-n", metadata["namespace"], "--wait=false")
        before = {pod.metadata.uid for pod in self._ended()}
        eventually(lambda: before.isdisjoint(pod.metadata.uid for pod in self._pods()))
        _run("create", "-f", "-", stdin=together(jobs))
        eventually(lambda: self._has_come(expected))
        return self._denials()

    def _has_come(self, expected: Counter[Group]) -> bool:
        """Return True once the pods of each group were created, or denied."""
        denials, running = self._denials(), self._running()
        return all(running[group] == count or group in denials for group, count in expected.items())

    def _denials(self) -> Mapping[Group, str]:
        found: dict[Group, str] = {}
        for namespace in self.namespaces:
            items = json.loads(_run("get", CONTROLLERS, "-n", namespace, "-o", "json"))["items"]
            groups = {(item["kind"], item["metadata"]["name"]): self._group(item) for item in items}
            for event in self.kube.core.list_namespaced_event(namespace).items:
                of = event.involved_object
                _, denied, message = event.message.partition("denied the request: ")
                if denied and event.reason == "FailedCreate":
                    found[groups[of.kind, of.name]] = message
        return found

    def dump(self, name: str) -> Path:
        """Write the whole cluster as kubectl lists it."""
        path = self.folder / name
        path.write_text(_run("get", KINDS, "-A", "-o", "json"))
        return path

    def group(self, namespace: str, pod: Any) -> Group:
        """Return the group of a pod; its members are empty for a pod without a controller."""
        labels = pod["metadata"].get("labels", {})
        name = namespace.removeprefix(f"{self.kube.name}-")
        return Group(name, labels.get("app", ""), labels.get("version", ""))

    def _group(self, controller: Any) -> Group:
        return self.group(controller["metadata"]["namespace"], controller["spec"]["template"])

    def _running(self) -> Counter[Group]:
        """Count the pods of controllers that have a node. Pods that are being deleted are ended, as by a kubelet."""
        found: Counter[Group] = Counter()
        for pod in self._pods():
            if pod.metadata.deletion_timestamp:
                self._end(pod)
            elif pod.spec.node_name and pod.metadata.owner_references:
                found[self.group(pod.metadata.namespace, {"metadata": {"labels": pod.metadata.labels}})] += 1
        return found

    def _pods(self) -> list[Any]:
        return [pod for name in self.namespaces for pod in self.kube.core.list_namespaced_pod(name).items]

    def _ended(self) -> list[Any]:
        """End all pods; return them."""
        found = self._pods()
        for pod in found:
            self._end(pod)
        return found

    def _end(self, pod: Any) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        if pod.metadata.finalizers:
            # The Job that waits for the end of its pods may be gone before them.
            kubectl("patch", "pod", name, "-n", namespace, "-p", json.dumps({"metadata": {"finalizers": None}}))
        kubectl("delete", "pod", name, "-n", namespace, "--force", "--wait=false")


def _pod(limits: Mapping[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "spec": pod_template("", limits)["spec"]}


def _replicas(controller: Object) -> int:
    spec = controller["spec"]
    number: int = spec.get("replicas") or spec.get("completions") or (2 if controller["kind"] == "DaemonSet" else 1)
    return number


def _injecting(order: str) -> Callable[[Any], Sequence[Json]]:
    """Return a function that injects the proxy into pods that ask for it and have none yet."""

    def patch(request: Any) -> Sequence[Json]:
        pod = request["object"]
        if pod["metadata"].get("labels", {}).get("proxy") != order or len(pod["spec"]["containers"]) > 1:
            return ()
        return ({"op": "add", "path": "/spec/containers/-", "value": PROXY},)

    return patch


def _run(*arguments: str, stdin: Json = None) -> str:
    ended = kubectl(*arguments, stdin=stdin)
    assert not ended.returncode, ended.stderr
    return ended.stdout
