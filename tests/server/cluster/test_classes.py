"""PriorityClasses and RuntimeClasses of a live cluster."""

from pathlib import Path

import pytest

from rules_engine.model.kubernetes.cluster import Classes, ClassScheduling, Freshness
from rules_engine.rules.rule_set.rule_set import ClusterRequirements
from tests.support.apiserver import ApiServer, Object, Status, node
from tests.support.cluster import NODES, Clock, capture, settle, viewing
from tests.support.loading import load_view

NEEDS = ClusterRequirements(classes=True)
TOLERATION = {"key": "gpu", "operator": "Exists"}
BOTH = ("priorityclasses", "runtimeclasses")


def priority_class(name: str, *, default: bool = False) -> Object:
    # The API server leaves out a false globalDefault.
    return {"metadata": {"name": name}, "value": 5, **({"globalDefault": True} if default else {})}


def runtime_class(name: str, **scheduling: object) -> Object:
    return {"metadata": {"name": name}, "handler": name, **({"scheduling": scheduling} if scheduling else {})}


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    api.put("priorityclasses", priority_class("normal", default=True))
    api.put("runtimeclasses", runtime_class("nvidia", nodeSelector={"pool": "gpu"}, tolerations=[TOLERATION]))
    return api


CLASSES = Classes({"normal": True}, {"nvidia": ClassScheduling({"pool": "gpu"}, (TOLERATION,))})


def test_the_view_follows_the_classes(api: ApiServer) -> None:
    with viewing(api, NEEDS) as view:
        assert view.synced().classes == CLASSES
        api.put("priorityclasses", priority_class("high"))
        view.until(lambda cluster: cluster.classes.priority == {"normal": True, "high": False})
        api.put("priorityclasses", priority_class("normal"))
        view.until(lambda cluster: cluster.classes.priority == {"normal": False, "high": False})
        api.delete("priorityclasses", "normal")
        view.until(lambda cluster: cluster.classes.priority == {"high": False})
        api.put("runtimeclasses", runtime_class("nvidia"))
        view.until(lambda cluster: cluster.classes.runtime == {"nvidia": ClassScheduling()})
        api.delete("runtimeclasses", "nvidia")
        view.until(lambda cluster: cluster.classes == Classes({"high": False}, {}))


def test_a_cluster_without_classes_is_known_to_have_none(api: ApiServer) -> None:
    api.delete("priorityclasses", "normal")
    api.delete("runtimeclasses", "nvidia")
    with viewing(api, NEEDS) as view:
        assert view.synced().classes == Classes({}, {})


def test_a_captured_cluster_has_the_same_classes(api: ApiServer, tmp_path: Path) -> None:
    assert load_classes(api, tmp_path) == CLASSES
    api.delete("priorityclasses", "normal")
    assert load_classes(api, tmp_path) == Classes({}, CLASSES.runtime)
    api.forbidden = {"runtimeclasses"}
    assert load_classes(api, tmp_path) == Classes({}, None)


def load_classes(api: ApiServer, folder: Path) -> Classes:
    cluster, _, _ = load_view(capture(api, folder))
    assert cluster is not None
    return cluster.classes


def test_nobody_reads_classes_that_no_rule_needs(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        assert view.synced().classes == Classes()
        assert not any(api.lists(name) for name in BOTH)
        assert view.live.need(NEEDS)
        assert view.synced().classes == CLASSES


@pytest.mark.parametrize("status", [Status(403), Status(404)])
@pytest.mark.parametrize("collection", BOTH)
def test_classes_that_cannot_be_read_are_unknown_until_they_can(
    api: ApiServer, collection: str, status: Status
) -> None:
    api.fail(collection, *[status] * 200)
    member = "priority" if collection == "priorityclasses" else "runtime"
    with viewing(api, NEEDS) as view:
        view.until(lambda cluster: cluster.known and str(status.code) in str(view.health(collection).failure))
        assert getattr(view.live.current().classes, member) is None
        assert [str(status.code) in message for message in view.live.absent] == [True]
        assert view.live.problems == []
        view.until(lambda cluster: cluster.classes == CLASSES)
        assert view.live.absent == []


def test_new_rules_do_not_wait_for_classes_that_are_forbidden(api: ApiServer) -> None:
    api.forbidden = {*BOTH}
    with viewing(api, NODES) as view:
        view.synced()
        assert view.live.need(NEEDS)
        assert view.synced().classes == Classes()
        api.forbidden = set()
        view.until(lambda cluster: cluster.classes == CLASSES)


def test_another_failure_keeps_the_view_unknown(api: ApiServer) -> None:
    api.fail("runtimeclasses", *[Status(500)] * 5)
    with viewing(api, NEEDS) as view:
        assert view.synced().classes == CLASSES, "not known before both were read"


def test_classes_that_are_not_confirmed_in_time_are_unknown_and_nothing_else(api: ApiServer) -> None:
    clock = Clock()
    api.put("nodes", node("one", {"cpu": 8}))
    with viewing(api, ClusterRequirements(nodes=True, classes=True), clock=clock) as view:
        settle(api, view)
        before = view.live.current()
        api.forbidden = {"priorityclasses"}
        api.end_watches("priorityclasses")
        view.counted("priorityclasses", "forbidden")
        assert view.live.current() is before
        clock.now += 61.0
        for name in ("nodes", "runtimeclasses"):
            api.bookmark(name)
        view.until(lambda cluster: cluster.known and cluster.classes == Classes(runtime=CLASSES.runtime))
        cluster = view.live.current()
        assert (cluster.freshness, cluster.nodes, cluster.views) == (Freshness.SYNCED, before.nodes, before.views)
        assert view.live.current() is cluster
        assert "priorityclasses is forbidden" in view.live.absent[0]
        api.forbidden = set()
        api.put("priorityclasses", priority_class("high"))
        view.until(lambda cluster: cluster.classes == Classes({"normal": True, "high": False}, CLASSES.runtime))


def test_classes_stay_known_while_nodes_are_stale(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, ClusterRequirements(nodes=True, classes=True), clock=clock) as view:
        settle(api, view)
        api.forbidden = {"nodes"}
        api.end_watches("nodes")
        view.counted("nodes", "forbidden")
        clock.now += 61.0
        for name in BOTH:
            api.bookmark(name)
        view.until(lambda cluster: cluster.freshness is Freshness.STALE and cluster.classes == CLASSES)
