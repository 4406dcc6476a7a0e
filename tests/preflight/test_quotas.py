"""ResourceQuotas refuse pods as the API server does."""

from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.preflight.quotas import read_quotas, usage_of
from tests.support.scheduling import NOW

GPU = "nvidia.com/gpu"


def objects(spec: Any, status: Any = None, pods: Any = ()) -> ClusterObjects:
    quota = {"metadata": {"name": "q", "namespace": "ml"}, "spec": spec, "status": status or {}}
    return ClusterObjects({"ResourceQuota": [quota], "Pod": pods}, now=NOW)


def pod(limits: Any = None, requests: Any = None, **spec: Any) -> Any:
    resources = {"limits": limits or {}, "requests": requests or {}}
    return {"metadata": {"namespace": "ml"}, "spec": {"containers": [{"name": "main", "resources": resources}], **spec}}


def refusal(found: ClusterObjects, raw: Any) -> str:
    quotas, _ = read_quotas(found.of("ResourceQuota"), found.pods)
    parsed = Pod.parse(raw)
    return quotas["ml"][0].refusal(parsed, usage_of(parsed), {})


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
        ({"count/pods": "0", "services": "0"}, pod(), "count/pods=1, used: count/pods=0, limited: count/pods=0"),
        ({"persistentvolumeclaims": "many"}, pod(), ""),
    ],
)  # fmt: skip
def test_pods_beyond_a_quota_are_refused(hard: Any, raw: Any, expected: str) -> None:
    found = refusal(objects({"hard": hard}), raw)
    assert (expected in found) if expected else found == ""


def test_recorded_usage_counts() -> None:
    found = objects({"hard": {"pods": 9}}, {"hard": {"pods": "2"}, "used": {"pods": "2"}})
    assert refusal(found, pod()) == "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"


def test_a_quota_without_status_counts_the_pods_of_its_namespace() -> None:
    other = {**pod(), "metadata": {"namespace": "other"}}
    finished = {**pod(), "status": {"phase": "Succeeded"}}
    found = objects({"hard": {"pods": 2}}, pods=[pod(), other, finished])
    assert refusal(found, pod()) == ""
    assert "used: pods=2" in refusal(objects({"hard": {"pods": 2}}, pods=[pod(), pod()]), pod())


@pytest.mark.parametrize("scope", [{"scopes": ["BestEffort"]}, {"scopeSelector": {"matchExpressions": []}}])
def test_quotas_with_scopes_are_listed_apart(scope: Any) -> None:
    found = objects({"hard": {"pods": 0}, **scope})
    assert read_quotas(found.of("ResourceQuota"), ()) == ({}, {"ml": ["q"]})
