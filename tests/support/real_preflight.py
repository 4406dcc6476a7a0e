"""A real control plane on which workloads are applied, for comparison with the answers of preflight."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rules_engine import load_manifests
from rules_engine.accelerators.resources import is_gpu
from rules_engine.cluster.nodes import numbers_of
from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.cluster.scheduling.cycle import BoundPod
from rules_engine.questions.preflight.reading import read_inputs
from rules_engine.questions.preflight.state import ClusterState
from rules_engine.questions.simulate.arrivals import PlannedArrival
from rules_engine.rules.sources.rule_files import read_rules
from tests.support.preflight_cases import PRIORITIES, RULES, Case
from tests.support.real import LABEL, Kube, admitting, eventually, kubernetes

Object = dict[str, Any]

BARRIER = "example.com/barrier"
"""An extended resource of one node, whose amounts show that a change was seen."""

BARRIER_TAINT = {"key": "gpu-rules-test-barrier", "effect": "NoExecute"}

PROBE = f"""\
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {{name: probe}}
spec:
  match: {{objectSelector: {{matchLabels: {{probe: 'yes'}}}}}}
  validations:
    - expression: 'false'
      messageExpression: >-
        '[' + string(cluster.allocatable('{BARRIER}')) + ',' + string(cluster.available('{BARRIER}')) + ']'
"""
"""A rule whose denial shows which state of the nodes and pods the server has seen."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a workload. `nodes`: by pod, in the order of binding; `waiting`: messages by pod.

    `refused`: the number of pods that were not created, with the last `refusal`. `victims`: pods that were preempted.
    `given`: the number of pods by GPU resources.
    """

    nodes: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    refused: int = 0
    refusal: str = ""
    victims: list[str] = field(default_factory=list)
    given: Counter[str] = field(default_factory=Counter)


def can_choose(
    manifest: Path,
    cluster: Path,
    rules: Sequence[Path],
    namespace: str,
    outcome: Outcome,
    plugins: Collection[str] = (),
) -> bool:
    """Return True if pods run on their nodes after other choices among equal ones than the answer's."""
    nodes = Counter(outcome.nodes.values())
    objects = read_cluster([cluster]).objects
    assert objects is not None
    objects = objects.with_objects({}, plugins=frozenset(plugins))
    simulation, workloads, _ = read_inputs(load_manifests([manifest]), objects, name="cluster", namespace="")
    play = ClusterState(simulation, read_rules(rules).rule_set).play
    cycle = play.cycle
    (run,) = PlannedArrival(0, workloads[0].arrival).arrive()

    def choose(number: int) -> bool:
        if not nodes.total():
            return True
        admitted = play.admissions.admit(run.template, f"new-{number}", play.view.cluster)
        if admitted.pod is None:
            return False
        for chosen in numbers_of(cycle.top(admitted.pod)):
            name = cycle.scheduler.nodes[chosen].name
            if not nodes[name]:
                continue
            nodes[name] -= 1
            bound = BoundPod(f"{namespace}/new-{number}", admitted.pod, chosen, 0)
            cycle.bind(bound)
            play.hold(chosen, admitted.record.given, 1)
            if choose(number + 1):
                return True
            play.hold(chosen, admitted.record.given, -1)
            cycle.release(bound)
            nodes[name] += 1
        return False

    return choose(0)


@contextmanager
def real_preflight(folder: Path) -> Iterator["RealPreflight"]:
    """Yield a control plane that no other test uses, with the server as its webhook."""
    with kubernetes(alone=True) as kube:
        made = RealPreflight(kube, folder)
        try:
            made.start()
            with admitting(kube, folder, RULES + PROBE, "--cluster", "kubeconfig", *made.client_ca()):
                yield made
        finally:
            made.stop()


class RealPreflight:
    """Clusters of cases, and the workloads that are applied to them."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        from kubernetes import client

        self.kube = kube
        self.folder = folder
        self.rules = folder / "rules.yaml"
        self.prefix = f"{kube.name}-"
        self.namespace, self.other = (f"{kube.name}-{name}" for name in ("ml", "other"))
        self._core = kube.core
        self._apps: Any = client.AppsV1Api()
        self._batch: Any = client.BatchV1Api()
        self._scheduling: Any = client.SchedulingV1Api()
        self._api: Any = kube.core.api_client
        self._pool = ThreadPoolExecutor(8)
        self._changes = 0
        """The number of barriers so far."""
        self._existing: list[Object] = []
        """The pods of the case, with the nodes that they have when the workload is applied."""
        self._hard: Mapping[str, str] = {}
        self._used: Any = None

    @staticmethod
    def client_ca() -> Sequence[str]:
        import os

        path = os.environ.get("WEBHOOK_CLIENT_CA")
        return ("--client-ca", path) if path else ()

    def start(self) -> None:
        for name in (self.namespace, self.other):
            self._core.create_namespace({"metadata": {"name": name, "labels": {LABEL: self.kube.name}}})
        for name, values in {**PRIORITIES, "last": {"value": -1_000_000}}.items():
            self._scheduling.create_priority_class({"metadata": {"name": self.prefix + name}, **values})
        self._create_node(
            {
                "metadata": {"name": f"{self.prefix}barrier", "labels": {BARRIER: "yes"}},
                "spec": {"taints": [BARRIER_TAINT]},
                "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "1", BARRIER: "1000"}},
            }
        )

    def stop(self) -> None:
        self._pool.shutdown()
        self._core.delete_node(f"{self.prefix}barrier")
        for name in [*PRIORITIES, "last"]:
            self._scheduling.delete_priority_class(self.prefix + name)
        for name in (self.namespace, self.other):
            self._core.delete_namespace(name)

    @contextmanager
    def cluster(self, case: Case) -> Iterator[Path]:
        """Create the cluster of a case, and yield the file that shows it; delete it afterwards."""
        names = [node["metadata"]["name"] for node in case.nodes]
        try:
            self._all(self._create_node, case.nodes)
            self._hard = case.hard
            self._all(self._create_pod, [pod for pod in case.pods if "nodeName" in pod["spec"]])
            self._wait_until_seen()
            for pod in case.pods:
                if "nodeName" not in pod["spec"]:
                    self._create_pod(pod)
            self._settle()
            if self._hard:
                self._create_quota()
            self._existing = [self._as_created(pod) for pod in self._pods()]
            self._used = self._quota_used()
            yield self._write()
        finally:
            if self._hard:
                self._delete_quota()
            for namespace in (self.namespace, self.other):
                self._core.delete_collection_namespaced_pod(namespace, body={"gracePeriodSeconds": 0})
            eventually(lambda: not self._pods())
            self._all(self._core.delete_node, names)

    def applied(self, manifest: Object, replicas: int, *, one_by_one: bool = False) -> Outcome:
        """Apply a workload, and return what became of its pods; then restore the cluster.

        `one_by_one`: each pod is scheduled before the next one is created, unlike the pods that controllers create in
        batches: a rule that reads free devices may decide on one before the server reserved the devices of another.
        """
        outcome = Outcome()
        field = "parallelism" if manifest["kind"] == "Job" else "replicas"
        steps = [*range(1, replicas + 1)] if one_by_one and manifest["kind"] != "Pod" else [replicas]
        try:
            if manifest["kind"] != "Pod":
                manifest["spec"][field] = steps[0]
            refusal = self._create(manifest)
            if refusal:
                outcome.refused, outcome.refusal = 1, refusal
                return outcome
            for count in steps:
                if count > steps[0]:
                    self._wait_until_seen()
                    self._scale(manifest, {"spec": {field: count}})
                outcome = self._follow(manifest, count)
                if outcome.refused:
                    outcome.refused += replicas - count
                    break
        finally:
            self._remove(manifest)
            self.restore()
        return outcome

    def end(self, pods: Sequence[str]) -> None:
        """End pods by namespace/name, as their users do."""
        for name in pods:
            namespace, _, pod = name.partition("/")
            self._core.delete_namespaced_pod(pod, namespace, grace_period_seconds=0)
        self._settle()
        if self._hard:
            self._renew_quota()

    def restore(self) -> None:
        """Let the pods of the case be where they were."""
        wanted = {pod["metadata"]["name"]: pod for pod in self._existing}
        for pod in self._pods():
            metadata = pod["metadata"]
            before = wanted.get(metadata["name"])
            if before and pod["spec"].get("nodeName") == before["spec"].get("nodeName"):
                del wanted[metadata["name"]]
            else:
                self._delete_pod(pod)
        if self._hard:
            self._delete_quota()
        self._all(self._create_pod, [pod for pod in wanted.values() if "nodeName" in pod["spec"]])
        self._wait_until_seen()
        for pod in wanted.values():
            if "nodeName" not in pod["spec"]:
                self._create_pod(pod)
        self._settle()
        if self._hard:
            self._create_quota()
        while self._quota_used() != self._used:
            self._renew_quota()

    # Observation

    def _follow(self, manifest: Object, replicas: int) -> Outcome:
        outcome = Outcome()
        state: list[Object] = []

        def has_settled() -> bool:
            state[:] = [pod for pod in self._pods() if _is_new(pod)]
            if any(not is_decided(pod) for pod in state):
                return False
            if len(state) == replicas:
                return True
            outcome.refusal = self._refusal(manifest)
            return bool(outcome.refusal)

        while True:
            eventually(has_settled)
            seen = [pod_summary(pod) for pod in state]
            self._pass_barrier()
            if has_settled() and [pod_summary(pod) for pod in state] == seen:
                break
        for pod in sorted(state, key=lambda pod: pod["metadata"]["name"]):
            name = pod["metadata"]["name"]
            if node := pod["spec"].get("nodeName"):
                outcome.nodes[name] = node
            else:
                outcome.waiting[name] = condition_of(pod).get("message", "")
            outcome.given[_gpus(pod)] += 1
        outcome.refused = replicas - len(state)
        outcome.victims = sorted({*map(pod_name, self._existing)} - {*map(pod_name, self._pods())})
        return outcome

    def _refusal(self, manifest: Object) -> str:
        """Return why no further pod of a workload is created; "" if one can be."""
        template = manifest["spec"]["template"]
        pod = {"metadata": {**template["metadata"], "name": "new-dry-run"}, "spec": template["spec"]}
        refusal = refusal_of(lambda: self._core.create_namespaced_pod(self.namespace, pod, dry_run="All"))
        if not refusal:
            return ""
        events = [
            event
            for event in self._get(self._core.list_namespaced_event, self.namespace)
            if event["reason"] == "FailedCreate"
        ]
        last = max(events, key=lambda event: event["lastTimestamp"] or "", default=None)
        return "" if last is None else last["message"]

    def _pods(self) -> list[Object]:
        return [pod for name in (self.namespace, self.other) for pod in self._get(self._core.list_namespaced_pod, name)]

    def _get(self, read: Callable[..., Any], *arguments: str) -> list[Object]:
        items: list[Object] = json.loads(read(*arguments, _preload_content=False).data)["items"]
        return items

    def _quota_used(self) -> Any:
        items = self._get(self._core.list_namespaced_resource_quota, self.namespace)
        return items[0]["status"].get("used") if items else None

    def _write(self) -> Path:
        """Write the cluster as kubectl lists it."""
        core = self._core
        reads = {
            "Node": core.list_node,
            "Pod": core.list_pod_for_all_namespaces,
            "Namespace": core.list_namespace,
            "PriorityClass": self._scheduling.list_priority_class,
            "ResourceQuota": core.list_resource_quota_for_all_namespaces,
            "LimitRange": core.list_limit_range_for_all_namespaces,
        }
        items = [{**item, "kind": kind} for kind, read in reads.items() for item in self._get(read)]
        path = self.folder / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return path

    # Changes

    def _all(self, call: Callable[[Any], Any], arguments: Sequence[Any]) -> None:
        for _ in self._pool.map(call, arguments):
            pass

    def _create_quota(self) -> None:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": dict(self._hard)}}
        self._core.create_namespaced_resource_quota(self.namespace, quota)
        eventually(lambda: len(self._quota_used() or ()) == len(self._hard))

    def _renew_quota(self) -> None:
        """Let the controller count the usage now: after the end of pods it takes it minutes, where it overlooks one."""
        self._delete_quota()
        self._create_quota()

    def _delete_quota(self) -> None:
        self._core.delete_namespaced_resource_quota("q", self.namespace)

    def _create_node(self, node: Object) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        amounts = node["status"]["allocatable"]
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
        self._core.create_node({"metadata": node["metadata"], "spec": node["spec"], "status": status})
        # The API server adds a taint to each new node.
        self._core.patch_node(node["metadata"]["name"], {"spec": {"taints": node["spec"]["taints"]}})

    def _create_pod(self, pod: Object) -> Object:
        metadata = pod["metadata"]
        body = {"metadata": {key: metadata[key] for key in ("name", "namespace", "labels")}, "spec": pod["spec"]}
        read = self._core.create_namespaced_pod(metadata["namespace"], body, _preload_content=False)
        stored: Object = json.loads(read.data)
        if "nodeName" in pod["spec"]:
            # The time by which the scheduler chooses among victims.
            number = int(metadata["name"].rpartition("-")[2])
            start = {"status": {"startTime": f"2026-01-01T00:{number:02}:00Z"}}
            self._core.patch_namespaced_pod_status(
                metadata["name"], metadata["namespace"], start, _preload_content=False
            )
        return stored

    @staticmethod
    def _as_created(pod: Object) -> Object:
        """Return a stored pod as it can be created again."""
        spec = {
            key: value
            for key, value in pod["spec"].items()
            if key in ("containers", "nodeName", "nodeSelector", "priorityClassName", "schedulingGates", "volumes")
        }
        tolerations = [each for each in pod["spec"]["tolerations"] if "tolerationSeconds" not in each]
        return {**pod, "spec": {**spec, "terminationGracePeriodSeconds": 0, "tolerations": tolerations}}

    def _create(self, manifest: Object) -> str:
        """Create a workload; return the refusal of the API server, or ""."""
        create: Callable[..., Any] = {
            "Pod": self._core.create_namespaced_pod,
            "Job": self._batch.create_namespaced_job,
            "Deployment": self._apps.create_namespaced_deployment,
            "StatefulSet": self._apps.create_namespaced_stateful_set,
        }[manifest["kind"]]
        return refusal_of(lambda: create(self.namespace, manifest, _preload_content=False))

    def _scale(self, manifest: Object, change: Object) -> None:
        patch: Callable[..., Any] = {
            "Job": self._batch.patch_namespaced_job,
            "Deployment": self._apps.patch_namespaced_deployment,
            "StatefulSet": self._apps.patch_namespaced_stateful_set,
        }[manifest["kind"]]
        patch("new", self.namespace, change, _preload_content=False)

    def _remove(self, manifest: Object) -> None:
        """Delete a workload with its pods."""
        namespace, later = self.namespace, {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        if manifest["kind"] == "Job":
            self._batch.delete_collection_namespaced_job(namespace, body=later)
        elif manifest["kind"] == "StatefulSet":
            self._apps.delete_collection_namespaced_stateful_set(namespace, body=later)
        elif manifest["kind"] == "Deployment":
            self._apps.delete_collection_namespaced_deployment(namespace, body=later)
            eventually(lambda: not self._deleted_replica_sets(later))
        eventually(lambda: not self._deleted_pods())
        self._core.delete_collection_namespaced_event(namespace)

    def _deleted_replica_sets(self, later: Object) -> list[Object]:
        found = self._get(self._apps.list_namespaced_replica_set, self.namespace)
        if found:
            self._apps.delete_collection_namespaced_replica_set(self.namespace, body=later)
        return found

    def _deleted_pods(self) -> list[Object]:
        pods = [pod for pod in self._pods() if _is_new(pod)]
        self._all(self._delete_pod, pods)
        return pods

    def _delete_pod(self, pod: Object) -> None:
        metadata = pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        if metadata.get("finalizers"):
            # The Job that waits for the end of its pods may be gone before them.
            refusal_of(lambda: self._core.patch_namespaced_pod(name, namespace, {"metadata": {"finalizers": None}}))
        refusal_of(lambda: self._core.delete_namespaced_pod(name, namespace, grace_period_seconds=0))

    # Barriers

    def _settle(self) -> None:
        """Wait until all pods are decided, and the server has seen everything."""
        while True:
            eventually(lambda: all(map(is_decided, self._pods())))
            before = [*map(pod_summary, self._pods())]
            self._wait_until_seen()
            if [*map(pod_summary, self._pods())] == before:
                return

    def _wait_until_seen(self) -> None:
        """Wait until the scheduler and the server have seen all changes so far of nodes and pods."""
        self._changes += 1
        value = 1000 + self._changes
        amounts = {"status": {"allocatable": {BARRIER: str(value)}, "capacity": {BARRIER: str(value)}}}
        self._core.patch_node_status(f"{self.prefix}barrier", amounts)
        self._core.patch_node(f"{self.prefix}barrier", {"metadata": {"labels": {BARRIER: str(value)}}})
        with self._barrier({"nodeSelector": {BARRIER: str(value)}}):
            eventually(lambda: self._seen() == [value, value - 1])
        eventually(lambda: self._seen() == [value, value])

    def _pass_barrier(self) -> None:
        """Wait until the scheduler has tried all pods that are in its queue now."""
        with self._barrier({}):
            pass

    @contextmanager
    def _barrier(self, spec: Object) -> Iterator[None]:
        """Let the scheduler bind a pod of the lowest priority; it is gone after the block."""
        name = f"barrier-{self._changes}"
        resources = {"limits": {BARRIER: "1"}}
        body = {
            "metadata": {"name": "barrier", "namespace": self.kube.name, "labels": {"barrier": name}},
            "spec": {
                "containers": [{"name": "main", "image": "app:1", "resources": resources}],
                "priorityClassName": f"{self.prefix}last",
                "preemptionPolicy": None,
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                **spec,
            },
        }
        self._core.create_namespaced_pod(self.kube.name, body)
        try:
            eventually(lambda: self._core.read_namespaced_pod("barrier", self.kube.name).spec.node_name)
            yield
        finally:
            self._core.delete_namespaced_pod("barrier", self.kube.name, grace_period_seconds=0)

    def _seen(self) -> Any:
        """Return the amounts of the barrier as the server sees them."""
        container = {"name": "main", "image": "app:1"}
        probe = {"metadata": {"name": "probe", "labels": {"probe": "yes"}}, "spec": {"containers": [container]}}
        refusal = refusal_of(lambda: self._core.create_namespaced_pod(self.kube.name, probe, dry_run="All"))
        _, bracket, rest = refusal.partition("[")
        return json.loads(bracket + rest.partition("]")[0] + "]") if bracket else None


def refusal_of(call: Callable[[], Any]) -> str:
    """Return the message with which the API server refuses a call; "" if it does not."""
    from kubernetes.client.exceptions import ApiException

    try:
        call()
    except ApiException as error:
        message: str = json.loads(str(error.body))["message"]
        return message
    return ""


def pod_name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _is_new(pod: Object) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("app") == "new")


def condition_of(pod: Object) -> Mapping[str, Any]:
    return next((each for each in pod["status"].get("conditions", []) if each["type"] == "PodScheduled"), {})


def is_decided(pod: Object) -> bool:
    """Return True if a pod has a node, or none and no promise of one."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates"):
        return True
    return bool(condition_of(pod)) and not pod["status"].get("nominatedNodeName")


def pod_summary(pod: Object) -> tuple[Any, ...]:
    return pod["metadata"]["uid"], pod["spec"].get("nodeName"), condition_of(pod).get("message")


def _gpus(pod: Object) -> str:
    amounts: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        for name, amount in container["resources"].get("limits", {}).items():
            if is_gpu(name):
                amounts[name] += int(amount)
    return ", ".join(f"{amount} {name}" for name, amount in sorted(amounts.items()))
