"""ResourceQuotas refuse pods as the API server does."""

from collections.abc import Sequence
from typing import Any

import pytest

from rules_engine.cluster.creation.quota import Quota, charge, refusal
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.pod import Pod
from tests.support.api import NOW

GPU = "nvidia.com/gpu"


def objects(spec: Any, status: Any = None, pods: Any = ()) -> ClusterObjects:
    quota = {"metadata": {"name": "q", "namespace": "ml"}, "spec": spec, "status": status or {}}
    return ClusterObjects({"ResourceQuota": [quota], "Pod": pods}, now=NOW)


def pod(limits: Any = None, requests: Any = None, **spec: Any) -> Any:
    resources = {"limits": limits or {}, "requests": requests or {}}
    return {"metadata": {"namespace": "ml"}, "spec": {"containers": [{"name": "main", "resources": resources}], **spec}}


def refused(found: ClusterObjects, raw: Any) -> str:
    quotas = [Quota.read(item, found.pods) for item in found.of("ResourceQuota")]
    return refusal(quotas, Pod.parse(raw))


@pytest.mark.parametrize(
    ("hard", "raw", "expected"),
    [
        ({"pods": 1}, pod({"cpu": "1"}), ""),
        ({"pods": 0}, pod(), "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0"),
        ({"requests.cpu": "1"}, pod({"cpu": "1500m"}), "requests.cpu=1500m, used: requests.cpu=0, "),
        ({"cpu": "1"}, pod(requests={"cpu": "1"}), ""),
        ({"limits.cpu": "1"}, pod(requests={"cpu": "1"}), "failed quota: q: must specify limits.cpu for: main"),
        ({"limits.memory": "1Gi"}, pod({"memory": "2Gi"}), "limits.memory=2Gi, used: limits.memory=0, limited: "),
        ({"memory": "1Gi"}, pod(), "failed quota: q: must specify memory for: main"),
        ({"memory": "1Gi"}, pod(resources={"requests": {"memory": "1Gi"}}), ""),
        ({f"requests.{GPU}": "1"}, pod({GPU: "2"}), f"requested: requests.{GPU}=2, used: "),
        ({f"requests.{GPU}": "1"}, pod({"cpu": "2"}), ""),
        ({"services": "0", "hugepages-2Mi": "0", "limits.ephemeral-storage": "0"}, pod(), ""),
        ({"count/pods": "0"}, pod(), "exceeded quota: q, requested: count/pods=1, used: count/pods=0, "),
        ({"ephemeral-storage": "1Gi"}, pod({"ephemeral-storage": "2Gi"}), "requested: ephemeral-storage=2Gi, used: "),
        ({"limits.ephemeral-storage": "1"}, pod({"ephemeral-storage": "2"}), "requested: limits.ephemeral-storage=2, "),
        ({"hugepages-2Mi": "2Mi"}, pod({"hugepages-2Mi": "4Mi"}), "requested: hugepages-2Mi=4Mi, "),
        ({"requests.hugepages-2Mi": "2Mi"}, pod({"hugepages-2Mi": "4Mi"}), "requested: requests.hugepages-2Mi=4Mi, "),
        ({"limits.cpu": "1"}, pod(resources={"limits": {"cpu": "2"}}), "limits.cpu=2, used: limits.cpu=0, "),
        ({"limits.cpu": "1"}, pod(resources={"limits": {"memory": "1Gi"}}, overhead={"cpu": "2"}), ""),
        ({"memory": "1G"}, pod({"memory": "1500M"}), "requested: memory=1500M, used: memory=0, limited: memory=1G"),
        ({"persistentvolumeclaims": "many"}, pod(), ""),
    ],
)  # fmt: skip
def test_pods_beyond_a_quota_are_refused(hard: Any, raw: Any, expected: str) -> None:
    found = refused(objects({"hard": hard}), raw)
    assert (expected in found) if expected else found == ""


def test_recorded_usage_counts() -> None:
    found = objects({"hard": {"pods": 9}}, {"hard": {"pods": "2"}, "used": {"pods": "2"}})
    assert refused(found, pod()) == "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"


def test_a_quota_without_status_counts_the_pods_of_its_namespace() -> None:
    other = {**pod(), "metadata": {"namespace": "other"}}
    finished = {**pod(), "status": {"phase": "Succeeded"}}
    assert "count/pods=1" in refused(objects({"hard": {"count/pods": 1}}, pods=[finished]), pod())
    found = objects({"hard": {"pods": 2}}, pods=[pod(), other, finished])
    assert refused(found, pod()) == ""
    assert "used: pods=2" in refused(objects({"hard": {"pods": 2}}, pods=[pod(), pod()]), pod())


def test_what_a_quota_limits_beside_pods_is_not_checked() -> None:
    found = objects({"hard": {"count/jobs.batch": "0", "services": "0", "pods": "1"}})
    assert Quota.read(found.of("ResourceQuota")[0], ()).unchecked == ["count/jobs.batch", "services"]


def test_containers_without_amounts_are_named_before_any_amount() -> None:
    containers = [{"name": name} for name in ("b", "a")]
    raw = {"metadata": {"namespace": "ml"}, "spec": {"containers": containers}}
    quotas: list[Any] = [
        {"metadata": {"name": name, "namespace": "ml"}, "spec": {"hard": hard}}
        for name, hard in (("first", {"pods": "0"}), ("second", {"requests.cpu": "1"}))
    ]
    found = ClusterObjects({"ResourceQuota": quotas}, now=NOW)
    assert refused(found, raw) == "failed quota: second: must specify requests.cpu for: a,b"


def affine(term: Any, kind: str = "podAffinity", *, preferred: bool = False) -> Any:
    wanted = {"weight": 1, "podAffinityTerm": term} if preferred else term
    member = "preferred" if preferred else "required"
    return pod(affinity={kind: {f"{member}DuringSchedulingIgnoredDuringExecution": [wanted]}})


ALL_NAMESPACES: Any = {"namespaceSelector": {}}


@pytest.mark.parametrize(
    ("scope", "raw", "applies"),
    [
        ("Terminating", pod(activeDeadlineSeconds=0), True),
        ("Terminating", pod(), False),
        ("NotTerminating", pod(), True),
        ("NotTerminating", pod(activeDeadlineSeconds=60), False),
        ("BestEffort", pod({"cpu": "0", GPU: "1"}), True),
        ("BestEffort", pod(requests={"memory": "1Gi"}), False),
        ("BestEffort", pod({"cpu": "1"}, resources={}), True),
        ("BestEffort", pod(resources={"limits": {"cpu": "1"}}), False),
        ("NotBestEffort", pod({"cpu": "1"}), True),
        ("PriorityClass", pod(priorityClassName="gold"), True),
        ("PriorityClass", pod(), False),
        ("CrossNamespacePodAffinity", pod(), False),
        ("CrossNamespacePodAffinity", affine({"topologyKey": "zone"}), False),
        ("CrossNamespacePodAffinity", affine({"namespaces": ["ml"]}), True),
        ("CrossNamespacePodAffinity", affine(ALL_NAMESPACES, "podAntiAffinity", preferred=True), True),
        ("VolumeAttributesClass", pod(), False),
    ],
)
def test_a_quota_with_a_scope_applies_to_some_pods(scope: str, raw: Any, applies: bool) -> None:
    found = refused(objects({"hard": {"pods": 0}, "scopes": [scope]}), raw)
    assert found == ("exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0" if applies else "")


@pytest.mark.parametrize(
    ("operator", "values", "matched"),
    [
        ("In", ["gold"], {"gold"}),
        ("NotIn", ["gold"], {"silver", ""}),
        ("Exists", [], {"gold", "silver"}),
        ("DoesNotExist", [], {""}),
    ],
)
def test_a_scope_selector_of_classes(operator: str, values: Any, matched: set[str]) -> None:
    scope = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    found = objects({"hard": {"pods": 0}, "scopes": ["BestEffort"], "scopeSelector": {"matchExpressions": [scope]}})
    assert {name for name in ("gold", "silver", "") if refused(found, pod(priorityClassName=name))} == matched
    assert refused(found, pod({"cpu": "1"}, priorityClassName=next(iter(matched)))) == ""


def test_pods_count_in_the_quotas_that_apply_to_them() -> None:
    found = objects({"hard": {"pods": 2}, "scopes": ["BestEffort"]}, pods=[pod(), pod({"cpu": "1"})])
    quotas: Sequence[Quota] = [Quota.read(item, found.pods) for item in found.of("ResourceQuota")]
    for raw, expected in [(pod({"cpu": "1"}), ""), (pod(), ""), (pod(), "exceeded quota: q")]:
        parsed = Pod.parse(raw)
        assert refusal(quotas, parsed).partition(",")[0] == expected
        quotas = charge(quotas, parsed)
