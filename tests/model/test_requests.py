"""Amounts that the scheduler counts for the pods of a cluster."""

import pytest

from rules_engine.model.kubernetes import cluster_objects
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, requests_of
from rules_engine.model.kubernetes.quantity import NANOS
from tests.support.api import NOW, pod


def test_requests_include_all_containers_and_the_overhead() -> None:
    large = pod(requests={"cpu": "1"}, overhead={"cpu": "1"})
    large["spec"]["initContainers"] = [{"restartPolicy": "Always", "resources": {"limits": {"cpu": "2"}}}]
    cluster = ClusterObjects({"Pod": [large, pod(requests={"cpu": "1"}), pod(requests={"cpu": "x"})]}, now=NOW)
    assert [*map(requests_of, cluster.pods)] == [{"cpu": 4 * NANOS}, {"cpu": NANOS}, {}]


def test_equal_requests_are_cached_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_objects, "MAX_CACHED_REQUESTS", 1)
    pods = [pod(f"p{number}", {"cpu": "1" if number < 2 else "2"}) for number in range(4)]
    cluster = ClusterObjects({"Pod": pods}, now=NOW)
    first, second, third, fourth = map(requests_of, cluster.pods)
    assert first is second
    assert third == fourth == {"cpu": 2 * NANOS}
    assert len(cluster.requests) == 1
