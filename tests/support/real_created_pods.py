"""A real control plane with cases of PodCaseGenerator: what its controllers and API server make of workloads."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from click.testing import CliRunner

from rules_engine.server.commands import main
from tests.support.created_pod_cases import PodCase
from tests.support.real import GPU, LABEL, PATIENCE_SECONDS, Kube, eventually, kubectl, kubernetes, together
from tests.support.real_preflight import (
    BARRIER,
    BARRIER_TAINT,
    Outcome,
    condition_of,
    is_decided,
    pod_name,
    pod_summary,
    refusal_of,
)

Object = dict[str, Any]

PRIORITIES: Mapping[str, Object] = {
    "low": {"value": -5},
    "high": {"value": 1000},
    "never": {"value": 1000, "preemptionPolicy": "Never"},
    "last": {"value": -1_000_000},
    "base": {"value": 5, "globalDefault": True},
}
"""PriorityClasses of all cases, without the prefix of their names."""

PLUGINS = ("ExtendedResourceToleration", "PodNodeSelector")


class Changes:
    """Changes of objects in the API server, for which one can wait."""

    def __init__(self, *lists: Callable[..., Any]) -> None:
        self._changed = Event()
        for each in lists:
            Thread(target=self._watch, args=(each,), daemon=True).start()

    def _watch(self, read: Callable[..., Any]) -> None:
        with suppress(Exception):  # the API server ends with the test
            while True:
                for _ in read(watch=True, _preload_content=False).stream():
                    self._changed.set()

    def wait_until(self, holds: Callable[[], Any]) -> Any:
        """Return the first true result; it is asked for again after each change."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._changed.clear()
            if answer := holds():
                return answer
            assert self._changed.wait(max(0.0, end - time.monotonic())), "it never came"


@contextmanager
def real_created_pods(folder: Path) -> Iterator["RealCreatedPods"]:
    """Yield a control plane that no other test uses."""
    with kubernetes(alone=True) as kube:
        made = RealCreatedPods(kube, folder)
        try:
            made.start()
            yield made
        finally:
            made.stop()


class RealCreatedPods:
    """Clusters of cases, and the workloads that are applied to them."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        from kubernetes import client

        self.kube = kube
        self.folder = folder
        self.prefix = f"{kube.name}-"
        self._core = core = kube.core
        self._policy: Any = client.PolicyV1Api()
        self._scheduling: Any = client.SchedulingV1Api()
        self._changes = Changes(
            core.list_pod_for_all_namespaces,
            core.list_event_for_all_namespaces,
            core.list_resource_quota_for_all_namespaces,
            core.list_persistent_volume_claim_for_all_namespaces,
            core.list_persistent_volume,
            self._policy.list_pod_disruption_budget_for_all_namespaces,
        )
        self._barriers = 0
        self.namespace = self.other = ""
        self.plugins: frozenset[str] = frozenset()

    def start(self) -> None:
        for name, values in PRIORITIES.items():
            self._scheduling.create_priority_class({"metadata": {"name": self.prefix + name}, **values})
        eventually(lambda: self._probe(priorityClassName=f"{self.prefix}base").spec.priority == 5)
        self._create_node(
            {
                "metadata": {"name": f"{self.prefix}barrier", "labels": {BARRIER: "yes"}},
                "spec": {"taints": [BARRIER_TAINT]},
                "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "1"}},
            }
        )
        # Which optional plugins are on in this API server.
        limits = {"name": "main", "image": "app:1", "resources": {"limits": {GPU: "1"}}}
        on = {PLUGINS[0]} if len(self._probe(containers=[limits]).spec.tolerations) == 3 else set()
        annotations = {"scheduler.alpha.kubernetes.io/node-selector": "probe=yes"}
        self._core.patch_namespace(self.kube.name, {"metadata": {"annotations": annotations}})
        self.plugins = frozenset(on | ({PLUGINS[1]} if self._probe().spec.node_selector else set()))
        self._core.patch_namespace(self.kube.name, {"metadata": {"annotations": dict.fromkeys(annotations)}})
        eventually(lambda: not self._probe().spec.node_selector)

    def _probe(self, **spec: Any) -> Any:
        containers = [{"name": "main", "image": "app:1"}]
        return self.kube.create(
            {"metadata": {"name": "probe"}, "spec": {"containers": containers, **spec}}, dry_run="All"
        )

    def stop(self) -> None:
        self._core.delete_node(f"{self.prefix}barrier")
        for name in PRIORITIES:
            self._scheduling.delete_priority_class(self.prefix + name)

    def name_namespaces(self, number: int) -> None:
        """Take new namespaces for the next case: the end of others takes a while."""
        self.namespace, self.other = (f"{self.prefix}{number}-{name}" for name in ("ml", "other"))

    @contextmanager
    def cluster(self, case: PodCase) -> Iterator[Path]:
        """Create the cluster of a case, and yield a capture of it; delete it afterwards."""
        created = [item for item in case.objects if "namespace" not in item["metadata"]]
        try:
            for name in (self.namespace, self.other):
                self._core.create_namespace({"metadata": {"name": name, "labels": {LABEL: self.kube.name}}})
            for each in case.nodes:
                self._create_node(each)
            for number, pod in enumerate(case.old):
                self._create_old(pod, number)
            self._core.patch_namespace(
                self.namespace, {"metadata": {"labels": case.labels, "annotations": case.annotations}}
            )
            self._apply([*case.objects, *(self._sentinel() if _has_policy(case) else ())])
            self._changes.wait_until(self._is_settled)
            if _has_policy(case):
                eventually(lambda: self.namespace in refusal_of(self._probe_sentinel))
            self._wait_until_seen()
            captured = CliRunner().invoke(main, ["capture"])
            assert captured.exit_code == 0, captured.output
            path = self.folder / "cluster.json"
            path.write_text(captured.stdout)
            yield path
        finally:
            self._end(case)
            for each in case.nodes:
                self._core.delete_node(each["metadata"]["name"])
            if _has_policy(case):
                created += self._sentinel()
            ended = kubectl("delete", "--wait=false", "-f", "-", stdin=together(created))
            assert ended.returncode == 0, ended.stderr
            self._changes.wait_until(lambda: not self._core.list_persistent_volume().items)

    def _end(self, case: PodCase) -> None:
        """End all pods. Namespaces end later, which takes some seconds."""
        kind = case.manifest["kind"].lower()
        ended = kubectl("delete", kind, "new", "-n", self.namespace, "--wait=false", "--ignore-not-found")
        assert ended.returncode == 0, ended.stderr
        old = {pod_name(pod) for pod in case.old}
        self._changes.wait_until(lambda: {*map(pod_name, self._pods())} <= old)
        for name in (self.namespace, self.other):
            self._core.delete_collection_namespaced_pod(name)
            self._core.delete_collection_namespaced_persistent_volume_claim(name)
            self._core.delete_namespace(name)
        self._changes.wait_until(lambda: not self._pods())

    def applied(self, case: PodCase, *, one_by_one: bool) -> Outcome:
        """Apply the workload, and return what became of its pods.

        `one_by_one`: each pod is scheduled before the next one is created: a pod that preempts does not see yet that
        the victims of another one are gone.
        """
        manifest, kind = case.manifest, case.manifest["kind"]
        before = {pod_name(pod) for pod in self._pods()}
        if kind == "Pod":
            outcome = Outcome(refusal=refusal_of(lambda: self._core.create_namespaced_pod(self.namespace, manifest)))
            if outcome.refusal:
                outcome.refused = 1
                return outcome
            return self._follow(case, 1, before)
        field = "parallelism" if kind == "Job" else "replicas"
        steps = [*range(1, case.replicas + 1)] if one_by_one else [case.replicas]
        first = {**manifest, "spec": {**manifest["spec"], field: steps[0]}}
        ended = kubectl("create", "-f", "-", stdin=first)
        if ended.returncode:
            return Outcome(refused=case.replicas, refusal=ended.stderr.strip())
        outcome = self._follow(case, steps[0], before)
        for count in steps[1:]:
            self._wait_until_seen()
            patch = json.dumps({"spec": {field: count}})
            ended = kubectl("patch", kind.lower(), "new", "-n", self.namespace, "--type=merge", "-p", patch)
            assert ended.returncode == 0, ended.stderr
            outcome = self._follow(case, count, before)
        outcome.refused = case.replicas - len(outcome.nodes) - len(outcome.waiting)
        return outcome

    # Observation

    def _follow(self, case: PodCase, replicas: int, before: set[str]) -> Outcome:
        """Return the outcome once all pods are decided, and no further one can be created."""
        outcome, state = Outcome(), [dict[str, Any]()]

        def is_complete() -> bool:
            state[:] = [pod for pod in self._pods() if pod_name(pod) not in before]
            if not all(map(is_decided, state)):
                return False
            if len(state) == replicas:
                return True
            outcome.refusal = self._refusal(case)
            return bool(outcome.refusal)

        while True:
            self._changes.wait_until(is_complete)
            seen = [*map(pod_summary, state)]
            self._wait_until_seen()
            if is_complete() and [*map(pod_summary, state)] == seen:
                break
        for pod in state:
            name = pod["metadata"]["name"]
            if node := pod["spec"].get("nodeName"):
                outcome.nodes[name] = node
            else:
                outcome.waiting[name] = condition_of(pod).get("message", "")
        outcome.refused = replicas - len(state)
        outcome.victims = sorted(before - {*map(pod_name, self._pods())})
        return outcome

    def _refusal(self, case: PodCase) -> str:
        """Return why no further pod of a workload is created; "" if one can be."""
        events = [
            event
            for event in _items(self._core.list_namespaced_event, self.namespace)
            if event["reason"] == "FailedCreate"
        ]
        if not events:
            return ""
        owned = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "new", "uid": "x", "controller": True}]
        template = case.manifest["spec"]["template"]
        if case.manifest["kind"] != "Deployment":
            owned[0] |= {"kind": case.manifest["kind"]}
        labels = dict(template["metadata"]["labels"])
        if case.manifest["kind"] == "Job":
            labels["job-name"] = "new"
        pod = {
            "metadata": {"labels": labels, "generateName": "new-", "ownerReferences": owned},
            "spec": template["spec"],
        }
        if not refusal_of(lambda: self._core.create_namespaced_pod(self.namespace, pod, dry_run="All")):
            return ""
        last = max(events, key=lambda event: event["lastTimestamp"] or "")
        return str(last["message"])

    def _is_settled(self) -> bool:
        """Return True once controllers have counted all pods."""
        quotas = _items(self._core.list_namespaced_resource_quota, self.namespace)
        budgets = _items(self._policy.list_namespaced_pod_disruption_budget, self.other)
        old = [pod for pod in self._pods() if pod["metadata"]["namespace"] == self.other]
        return all(
            quota["status"].get("hard") == quota["spec"]["hard"] and "used" in quota["status"] for quota in quotas
        ) and all(budget["status"].get("currentHealthy") == len(old) for budget in budgets)

    def _pods(self) -> list[Object]:
        names = (self.namespace, self.other)
        return [pod for name in names for pod in _items(self._core.list_namespaced_pod, name)]

    # Changes

    def _apply(self, objects: list[Object]) -> None:
        ended = kubectl("create", "-f", "-", stdin=together(objects))
        assert ended.returncode == 0, ended.stderr

    def _sentinel(self) -> list[Object]:
        """Return a policy that is in force only after the others are."""
        version, kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        name = f"{self.namespace}-sentinel"
        constraints = {"resourceRules": [rule], "objectSelector": {"matchLabels": {"probe": "yes"}}}
        spec = {"matchConstraints": constraints, "validations": [{"expression": "false", "message": name}]}
        binding = {"policyName": name, "validationActions": ["Deny"]}
        return [
            {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec},
            {"apiVersion": version, "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": binding},
        ]

    def _probe_sentinel(self) -> Any:
        containers = [{"name": "main", "image": "app:1"}]
        pod = {"metadata": {"name": "probe", "labels": {"probe": "yes"}}, "spec": {"containers": containers}}
        return self.kube.create(pod, dry_run="All")

    def _create_node(self, node: Object) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        amounts = node["status"]["allocatable"]
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
        labels = {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]}
        self._core.create_node({"metadata": labels, "spec": node["spec"], "status": status})
        # The API server adds a taint to each new node.
        self._core.patch_node(node["metadata"]["name"], {"spec": {"taints": node["spec"]["taints"]}})

    def _create_old(self, pod: Object, number: int) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self._core.create_namespaced_pod(namespace, pod)
        # The time by which the scheduler chooses among victims, and what counts in a budget.
        ready = {"type": "Ready", "status": "True"}
        status = {"phase": "Running", "startTime": f"2026-01-01T00:{number:02}:00Z", "conditions": [ready]}
        self._core.patch_namespaced_pod_status(name, namespace, {"status": status})

    def _wait_until_seen(self) -> None:
        """Wait until the scheduler has seen all nodes and tried all pods: then it binds one of the lowest priority."""
        self._barriers += 1
        value = f"barrier-{self._barriers}"
        self._core.patch_node(f"{self.prefix}barrier", {"metadata": {"labels": {BARRIER: value}}})
        body = {
            "metadata": {"name": value},
            "spec": {
                "containers": [{"name": "main", "image": "app:1"}],
                "priorityClassName": f"{self.prefix}last",
                "tolerations": [{"operator": "Exists"}],
                "nodeSelector": {BARRIER: value},
                "terminationGracePeriodSeconds": 0,
            },
        }
        self.kube.create(body)
        self._changes.wait_until(lambda: self._core.read_namespaced_pod(value, self.kube.name).spec.node_name)
        self.kube.delete_pod(value)


def _items(read: Callable[..., Any], namespace: str) -> list[Object]:
    items: list[Object] = json.loads(read(namespace, _preload_content=False).data)["items"]
    return items


def _has_policy(case: PodCase) -> bool:
    return any(item["kind"] == "ValidatingAdmissionPolicy" for item in case.objects)
