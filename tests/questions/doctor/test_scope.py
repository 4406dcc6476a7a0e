"""The objects that a diagnosis reports on."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.questions.doctor.scope import Scope
from tests.support.api import GPU, api_object, cluster, node, pod, volume_claim


def example() -> ClusterObjects:
    return cluster(
        node("a", {GPU: 8}),
        node("b", {GPU: 8}),
        pod(
            "train",
            {GPU: 1},
            on="a",
            owner=("Job", "job"),
            volumes=[{"persistentVolumeClaim": {"claimName": "data"}}, {"emptyDir": {}}],
        ),
        pod("refused", {GPU: 1}, on="a", phase="Failed"),
        pod("waiting", {GPU: 1}),
        pod("web", {GPU: 1}, on="b", namespace="shop"),
        api_object("Job", "job", "ml"),
        volume_claim("data", "Bound"),
        api_object("Namespace", "ml"),
        api_object("Namespace", "shop"),
    )


def in_scope(**fields: Any) -> set[str]:
    objects = example()
    is_in_scope = Scope(**fields).name_filter(objects)
    return {
        str(item.object_name)
        for kind in ("Node", "Pod", "Job", "PersistentVolumeClaim", "Namespace")
        for item in objects.of(kind)
        if is_in_scope(item.object_name)
    }


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        (
            {"pod": ObjectName("Pod", "train", "ml")},
            {"Pod/ml/train", "Node/a", "Job/ml/job", "PersistentVolumeClaim/ml/data"},
        ),
        ({"pod": ObjectName("Pod", "waiting", "ml")}, {"Pod/ml/waiting"}),
        ({"pod": ObjectName("Pod", "gone", "ml")}, set()),
        ({"node": "a"}, {"Node/a", "Pod/ml/train", "Pod/ml/refused"}),
        ({"node": "b", "namespace": "shop"}, {"Pod/shop/web"}),
        ({"namespace": "shop"}, {"Pod/shop/web", "Namespace/shop"}),
        ({"pod": ObjectName("Pod", "train", "ml"), "node": "a"}, {"Pod/ml/train", "Node/a"}),
        ({"pod": ObjectName("Pod", "train", "ml"), "node": "b"}, set()),
    ],
)
def test_a_scope_has_the_related_objects(fields: dict[str, Any], names: set[str]) -> None:
    assert in_scope(**fields) == names


def test_everything_is_in_the_scope_by_default() -> None:
    assert len(in_scope()) == 10
    assert Scope().name_filter(example())(ObjectName("Cluster", ""))


def test_findings_about_the_cluster_are_outside_of_a_smaller_scope() -> None:
    assert not Scope(namespace="ml").name_filter(example())(ObjectName("Cluster", ""))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, ""),
        ({"pod": ObjectName("Pod", "train", "ml"), "node": "a", "namespace": "ml"}, ""),
        ({"pod": ObjectName("Pod", "trian", "ml")}, "Pod ml/trian not found (did you mean 'ml/train'?)"),
        ({"node": "gpu-17"}, "Node gpu-17 not found"),
        ({"namespace": "shops"}, "Namespace shops not found (did you mean 'shop'?)"),
    ],
)
def test_objects_of_a_scope_must_exist(fields: dict[str, Any], message: str) -> None:
    assert Scope(**fields).not_found_message(example()) == message


def test_a_namespace_of_an_object_is_known_if_namespaces_were_not_read() -> None:
    objects = cluster(pod("train", {GPU: 1}, namespace="vision"), absent=["Namespace"])
    assert Scope(namespace="vision").not_found_message(objects) == ""
    assert Scope(namespace="visoin").not_found_message(objects) == (
        "Namespace visoin not found, since namespaces were not read (did you mean 'vision'?)"
    )


def test_a_pod_is_not_found_if_pods_were_not_read() -> None:
    scope = Scope(pod=ObjectName("Pod", "train", "ml"))

    assert scope.not_found_message(cluster(absent=["Pod"])) == "Pod ml/train not found, since pods were not read"


def test_errors_are_recent_from_the_first_year_on_at_most() -> None:
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    assert Scope(since_seconds=6 * 3600).recent_since(now) == datetime(2026, 11, 23, 6, tzinfo=UTC)
    assert Scope(since_seconds=10**12).recent_since(now) == datetime(1, 1, 1, tzinfo=UTC)
