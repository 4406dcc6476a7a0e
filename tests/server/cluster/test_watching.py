"""The view stays in step with its API server through all faults of lists and watches."""

import logging

import pytest

from rules_engine.model.kubernetes.cluster import Cluster, Freshness
from rules_engine.server.cluster import reading
from rules_engine.server.cluster.connection import MAX_OBJECT_BYTES
from rules_engine.server.cluster.paging import PAGE_BYTES
from rules_engine.server.cluster.reflector import QUIET_SECONDS, RELIST_SECONDS
from rules_engine.server.timing import UNREACHABLE_SECONDS
from tests.support.apiserver import (
    COLLECTIONS,
    ApiServer,
    Body,
    Nothing,
    Reset,
    Silence,
    Status,
    bound,
    namespace,
    node,
)
from tests.support.cluster import EVERYTHING, NODES, PODS, Clock, View, names, settle, used, viewing

GPU = "nvidia.com/gpu"


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    api.put("nodes", node("one", {GPU: 4}))
    return api


def test_objects_from_before_the_start_are_listed(api: ApiServer) -> None:
    api.put("pods", bound("job", "one", {GPU: 3}))
    api.put("namespaces", namespace("ml", team="vision"))
    with viewing(api) as view:
        cluster = view.synced()
    assert names(cluster) == ["one"]
    assert used(cluster, "one", GPU) == 3
    assert cluster.namespaces == {"ml": {"team": "vision"}}
    assert cluster.namespace_labels("unheard-of") is None


def test_only_collections_that_rules_need_are_listed(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        view.synced()
    assert {request.collection for request in api.requests} == {"nodes"}


def test_a_cluster_of_many_pages_is_listed_completely(api: ApiServer) -> None:
    for number in range(1201):
        api.put("nodes", node(f"n{number}"))
    with viewing(api, NODES) as view:
        assert len(view.synced().nodes) == 1202
    pages = [request for request in api.requests if not request.watches]
    assert [("continue" in page.query, page.query["limit"]) for page in pages] == [
        (False, "50"),
        (True, "500"),
        (True, "500"),
        (True, "500"),
    ]


def test_pages_of_large_objects_have_few_of_them(api: ApiServer) -> None:
    size = PAGE_BYTES // 20
    for number in range(120):
        api.put("nodes", node(f"n{number}", labels={"large": "x" * size}))
    with viewing(api, NODES) as view:
        assert len(view.synced().nodes) == 121
    limits = [int(request.query["limit"]) for request in api.requests if not request.watches]
    assert all(PAGE_BYTES * 0.9 < limit * size <= PAGE_BYTES for limit in limits[1:]), limits


def test_an_object_larger_than_a_page_gets_one_of_its_own(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.cluster.paging.PAGE_BYTES", 100)
    for number in range(52):
        api.put("nodes", node(f"n{number}"))
    with viewing(api, NODES) as view:
        assert len(view.synced().nodes) == 53
    limits = [request.query["limit"] for request in api.requests if not request.watches]
    assert limits == ["50", "1", "1", "1"]


def test_a_page_too_large_is_requested_with_fewer_objects(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can create many large pods in a row, which would share a page."""
    monkeypatch.setattr("rules_engine.server.cluster.paging.MAX_PAGE_BYTES", 50_000)
    monkeypatch.setattr("rules_engine.server.cluster.paging.PAGE_BYTES", 20_000)
    for number in range(60):
        api.put("nodes", node(f"a{number:02}"))
    for number in range(20):
        api.put("nodes", node(f"b{number:02}", labels={"large": "x" * 60_000}))
    with viewing(api, NODES) as view:
        assert len(view.synced().nodes) == 81
        assert view.health("nodes").counts["lists"] == 1
    limits = [int(request.query["limit"]) for request in api.requests if not request.watches]
    assert (limits[0], min(limits), view.pauses) == (50, 1, [])


def test_a_page_of_one_object_that_is_too_large_is_a_failure(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.cluster.paging.MAX_PAGE_BYTES", 100)
    api.fail("nodes", Nothing(), Nothing(), Body(b" " * (MAX_OBJECT_BYTES + 1)))
    with viewing(api, NODES) as view:
        view.synced()
        assert view.health("nodes").counts["too-large"] == 1


def test_an_endless_list_is_a_failure(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.cluster.paging.MAX_OBJECTS", 20)
    page = Body(b'{"metadata": {"resourceVersion": "7", "continue": "x"}, "items": []}')
    api.fail("nodes", *[page] * 40)
    with viewing(api, NODES) as view:
        view.counted("nodes", "too-large")


def test_added_changed_and_deleted_objects_are_watched(api: ApiServer) -> None:
    with viewing(api) as view:
        view.synced()
        api.put("nodes", node("two", {GPU: 8}))
        view.until(lambda cluster: names(cluster) == ["one", "two"])
        api.put("nodes", node("two", {GPU: 8}, unschedulable=True))
        view.until(lambda cluster: any(n.unschedulable for n in cluster.nodes))
        api.put("pods", bound("job", "two", {GPU: 2}))
        view.until(lambda cluster: used(cluster, "two", GPU) == 2)
        api.delete("pods", "job", "ml")
        view.until(lambda cluster: used(cluster, "two", GPU) == 0)
        api.put("namespaces", namespace("ml", team="vision"))
        view.until(lambda cluster: cluster.namespaces == {"ml": {"team": "vision"}})
        api.put("namespaces", namespace("ml", team="speech"))
        view.until(lambda cluster: cluster.namespaces == {"ml": {"team": "speech"}})
        api.delete("namespaces", "ml")
        view.until(lambda cluster: not cluster.namespaces)
        api.delete("nodes", "two")
        view.until(lambda cluster: names(cluster) == ["one"])
    assert view.pauses == []


def test_a_pod_counts_from_its_binding_to_its_end(api: ApiServer) -> None:
    with viewing(api, PODS) as view:
        view.synced()
        api.put("pods", bound("job", "", {GPU: 2}))
        api.put("pods", bound("other", "one", {GPU: 1}))
        view.until(lambda cluster: used(cluster, "one", GPU) == 1)
        api.put("pods", bound("job", "one", {GPU: 2}))
        view.until(lambda cluster: used(cluster, "one", GPU) == 3)
        terminating = bound("job", "one", {GPU: 2})
        terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        api.put("pods", terminating)
        api.put("pods", bound("third", "one", {GPU: 1}))
        view.until(lambda cluster: used(cluster, "one", GPU) == 4)
        api.put("pods", bound("job", "one", {GPU: 2}, phase="Succeeded"))
        view.until(lambda cluster: used(cluster, "one", GPU) == 2)


def test_a_pod_counts_on_a_node_that_is_added_later(api: ApiServer) -> None:
    api.put("pods", bound("early", "two", {GPU: 1}))
    with viewing(api, PODS) as view:
        view.synced()
        api.put("nodes", node("two", {GPU: 4}))
        view.until(lambda cluster: len(cluster.nodes) == 2 and used(cluster, "two", GPU) == 1)
        api.delete("nodes", "two")
        view.until(lambda cluster: names(cluster) == ["one"])
        api.put("nodes", node("two", {GPU: 4}))
        view.until(lambda cluster: len(cluster.nodes) == 2 and used(cluster, "two", GPU) == 1)


def test_heartbeats_make_no_new_view(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        before = view.synced()
        for _ in range(3):
            api.put("nodes", node("one", {GPU: 4}))
        view.counted("nodes", "events", 3)
        assert view.live.current() is before


def test_a_watch_that_ends_resumes_at_its_version(api: ApiServer) -> None:
    with viewing(api, NODES, clock=_Steps()) as view:
        view.synced()
        added = api.put("nodes", node("two"))
        view.until(lambda cluster: len(cluster.nodes) == 2)
        api.end_watches("nodes")
        api.wait_for(lambda: len(api.watches("nodes")) == 2 and api.watching("nodes"))
        api.put("nodes", node("three"))
        view.until(lambda cluster: len(cluster.nodes) == 3)
    assert api.watches("nodes")[1].query["resourceVersion"] == added["metadata"]["resourceVersion"]
    assert len(api.lists("nodes")) == 1
    assert view.pauses == []


class _Steps:
    """Clock that advances by a second with each read: no watch is short."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_watch_that_keeps_ending_at_once_is_a_failure(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.end_watches("nodes")
        view.counted("nodes", "broken")
        api.wait_for(lambda: len(api.watches("nodes")) == 2)
    assert view.pauses == [0.5]
    assert len(api.lists("nodes")) == 1


def test_the_next_watch_begins_at_the_last_bookmark(api: ApiServer) -> None:
    with viewing(api, NODES, clock=_Steps()) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        for number in range(50):
            api.put("pods", bound(f"p{number}"))
        api.bookmark("nodes")
        here = str(api.version)
        api.end_watches("nodes")
        api.wait_for(lambda: len(api.watches("nodes")) == 2)
    assert api.watches("nodes")[1].query["resourceVersion"] == here
    assert api.watches("nodes")[0].query["allowWatchBookmarks"] == "true"


def test_a_watch_ends_by_itself_in_time(api: ApiServer) -> None:
    with viewing(api, NODES, max_staleness_seconds=3.0) as view:
        view.synced()
        api.wait_for(lambda: len(api.watches("nodes")) == 3)
    assert {watch.query["timeoutSeconds"] for watch in api.watches("nodes")} == {"1"}
    assert view.pauses == []


@pytest.mark.parametrize("as_status", [True, False], ids=["status", "event"])
def test_an_expired_version_means_a_new_list(api: ApiServer, as_status: bool) -> None:
    api.gone_as_status = as_status
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.put("nodes", node("missed"), announce=False)
        api.delete("nodes", "one")
        view.until(lambda cluster: names(cluster) == [])
        api.compact()
        api.send("nodes", Reset())
        view.until(lambda cluster: names(cluster) == ["missed"])
    assert view.health("nodes").counts["gone"] == 1
    assert len(api.lists("nodes")) == 2


def test_an_expired_continue_token_means_a_new_list(api: ApiServer) -> None:
    for number in range(600):
        api.put("nodes", node(f"n{number}"))
    api.fail("nodes", Nothing(), Status(410, "The provided continue parameter is too old"))
    with viewing(api, NODES) as view:
        assert len(view.synced().nodes) == 601
    assert view.health("nodes").counts["gone"] == 1
    assert len(api.lists("nodes")) == 2


def test_a_list_that_breaks_off_changes_nothing(api: ApiServer) -> None:
    for number in range(60):
        api.put("nodes", node(f"n{number}"))
    seen: list[int] = []
    views: list[View] = []
    with viewing(api, NODES, wait=lambda _: seen.append(len(views[0].live.current().nodes))) as view:
        views.append(view)
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.put("nodes", node("missed"), announce=False)
        api.compact()
        api.fail("nodes", Nothing(), Status(500))
        api.send("nodes", Reset())
        view.until(lambda cluster: len(cluster.nodes) == 62)
    assert view.health("nodes").counts["refused"] == 1
    assert set(seen) == {61}


@pytest.mark.parametrize(
    ("fault", "count"),
    [
        (Status(500), "refused"),
        (Status(503, headers={"Retry-After": "7"}), "refused"),
        (Status(429, headers={"Retry-After": "7"}), "throttled"),
        (Status(401), "unauthorized"),
        (Status(403), "forbidden"),
        (Reset(), "unreachable"),
        (Body(b'{"kind": "NodeList", "metadata"', 400), "broken"),
        (Body(b'{"kind": "NodeList", "metadata"'), "malformed"),
        (Body(b"null"), "malformed"),
        (Body(b'{"metadata": {"resourceVersion": "7"}, "items": {}}'), "malformed"),
        (Body(b'{"metadata": {}, "items": []}'), "malformed"),
        (Body(b'{"metadata": null, "items": []}'), "malformed"),
    ],
    ids=["500", "503", "429", "401", "403", "reset", "cut", "no-json", "null", "no-items", "no-version", "no-metadata"],
)
def test_a_failed_list_is_retried(api: ApiServer, fault: Status, count: str) -> None:
    api.fail("nodes", fault)
    with viewing(api, NODES) as view:
        assert names(view.synced()) == ["one"]
        health = view.health("nodes")
    assert health.counts[count] == 1
    assert health.counts["lists"] == 2
    assert len(view.pauses) == 1


def test_an_empty_list_is_a_list(api: ApiServer) -> None:
    api.delete("nodes", "one")
    with viewing(api, NODES) as view:
        assert view.synced().nodes == ()


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_respected(api: ApiServer, code: int) -> None:
    api.fail("nodes", Status(code, headers={"Retry-After": "7"}), Status(code, headers={"Retry-After": "100000"}))
    api.fail("nodes", Status(code, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}))
    with viewing(api, NODES) as view:
        view.synced()
    assert view.pauses == [7.0, 30.0, 2.0]


def test_delays_grow_and_are_bounded(api: ApiServer) -> None:
    api.fail("nodes", *[Status(500)] * 9)
    with viewing(api, NODES) as view:
        view.synced()
    assert view.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "ADDED", "object": {"metadata": {"name": "tw\n',
        b"[]\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "RENAMED", "object": {"metadata": {"resourceVersion": "1"}}}\n',
        b'{"type": "ADDED", "object": {"kind": "Node"}}\n',
        b'{"type": "BOOKMARK", "object": {"metadata": {}}}\n',
        b'{"type": "ERROR", "object": {"code": 500, "message": "etcdserver: mvcc"}}\n',
        b'{"type": "ERROR", "object": {}}\n',
    ],
    ids=["cut", "list", "no-object", "unknown-type", "no-metadata", "no-version", "error", "bare-error"],
)
def test_a_malformed_event_means_a_new_list(api: ApiServer, line: bytes) -> None:
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.put("nodes", node("missed"), announce=False)
        api.send("nodes", line)
        view.until(lambda cluster: names(cluster) == ["missed", "one"])
    assert len(api.lists("nodes")) == 2


def test_an_event_truncated_by_a_disconnect_is_received_again(api: ApiServer) -> None:
    with viewing(api, NODES, clock=_Steps()) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.send("nodes", b'{"type": "ADDED", "object": {"metadata": {"na')
        api.end_watches("nodes")
        api.wait_for(lambda: len(api.watches("nodes")) == 2 and api.watching("nodes"))
        api.put("nodes", node("two"))
        view.until(lambda cluster: len(cluster.nodes) == 2)
    assert len(api.lists("nodes")) == 1


def test_an_event_in_pieces_is_one_event(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        line = b'{"type":"ADDED","object":{"metadata":{"name":"two","resourceVersion":"5000"}}}\n\n'
        api.send("nodes", *(line[at : at + 7] for at in range(0, len(line), 7)))
        view.until(lambda cluster: names(cluster) == ["one", "two"])
    assert view.pauses == []


def test_an_endless_event_is_aborted(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.send("nodes", b" " * 17 * 1024 * 1024)
        view.counted("nodes", "malformed")
        view.counted("nodes", "lists", 2)


def test_a_reset_watch_resumes_at_its_version(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.send("nodes", Reset())
        api.wait_for(lambda: len(api.watches("nodes")) == 2 and api.watching("nodes"))
        api.put("nodes", node("two"))
        view.until(lambda cluster: len(cluster.nodes) == 2)
    assert len(api.lists("nodes")) == 1
    assert [watch.query["timeoutSeconds"] for watch in api.watches("nodes")] == ["20", "1"]
    assert view.pauses == [0.5]


def test_a_half_open_connection_is_detected(api: ApiServer) -> None:
    with viewing(api, NODES, max_staleness_seconds=3.0, silence_seconds=0.1) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.send("nodes", Silence())
        view.counted("nodes", "timed-out")
        api.wait_for(lambda: len(api.watches("nodes")) >= 2)
        api.put("nodes", node("two"))
        view.until(lambda cluster: len(cluster.nodes) == 2)
    assert len(api.lists("nodes")) == 1


def test_an_api_server_that_restarts_is_reconnected(api: ApiServer) -> None:
    with viewing(api) as view:
        view.synced()
        api.stop()
        view.counted("nodes", "unreachable")
        assert view.live.current().known
        api.put("nodes", node("two"))
        api.start()
        view.until(lambda cluster: names(cluster) == ["one", "two"])


def test_repeated_events_change_nothing(api: ApiServer) -> None:
    pod = api.put("pods", bound("job", "one", {GPU: 3}))
    with viewing(api, PODS) as view:
        view.synced()
        api.wait_for(lambda: api.watching("pods"))
        api.event("pods", "ADDED", pod)
        api.event("pods", "DELETED", pod)
        view.counted("pods", "ignored", 2)
        assert used(view.live.current(), "one", GPU) == 3
    assert len(api.lists("pods")) == 1


def test_an_event_older_than_the_view_means_a_new_list(api: ApiServer) -> None:
    older = api.put("pods", bound("job", "one", {GPU: 1}))
    api.put("pods", bound("job", "one", {GPU: 3}))
    with viewing(api, PODS) as view:
        view.synced()
        api.wait_for(lambda: api.watching("pods"))
        api.put("pods", bound("other", "one", {GPU: 1}), announce=False)
        api.event("pods", "MODIFIED", older)
        view.until(lambda cluster: used(cluster, "one", GPU) == 4)
    assert view.health("pods").counts["went-back"] == 1
    assert len(api.lists("pods")) == 2


def test_a_bookmark_older_than_the_view_means_a_new_list(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.put("nodes", node("ghost"))
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.restore(500, nodes=[node("kept")])
        api.bookmark("nodes")
        view.until(lambda cluster: names(cluster) == ["kept"])
        api.wait_for(lambda: api.watching("nodes") == 1)
        api.put("nodes", node("new"))
        view.until(lambda cluster: names(cluster) == ["kept", "new"])
    assert view.health("nodes").counts["went-back"] == 1
    assert "cannot list and watch nodes: the resourceVersion went back from 1002 to 501" in caplog.text


def test_a_silent_restored_api_server_is_detected_after_a_watch(api: ApiServer) -> None:
    api.put("nodes", node("ghost"))
    with viewing(api, NODES, max_staleness_seconds=3.0) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.restore(500, nodes=[node("kept")])
        view.until(lambda cluster: names(cluster) == ["kept"])
    assert view.health("nodes").counts["checks"] >= 1
    assert view.health("nodes").counts["went-back"] == 1


@pytest.mark.parametrize("as_status", [True, False], ids=["status", "event"])
def test_a_list_follows_an_expired_version_at_once(api: ApiServer, as_status: bool) -> None:
    api.gone_as_status = as_status
    clock = Clock()
    with viewing(api, NODES, clock=clock) as view:
        settle(api, view)
        for count in (1, 2):
            clock.now += RELIST_SECONDS
            api.compact()
            api.send("nodes", Reset())
            view.counted("nodes", "gone", count)
            settle(api, view)
            view.counted("nodes", "bookmarks", 1 + count)
    assert view.pauses == [0.5, 1.0], "after each broken watch, and not after the 410"


def test_an_api_server_is_tried_often_until_it_accepts_connections(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.stop()
        view.counted("nodes", "unreachable", 20)
        api.fail("nodes", Status(503), Status(503), watch=True)
        api.start()
        view.counted("nodes", "refused", 2)
        view.until(lambda _: not view.live.problems)
    tried = [seconds for seconds in view.pauses if seconds == UNREACHABLE_SECONDS]
    others = [seconds for seconds in view.pauses if seconds < UNREACHABLE_SECONDS]
    assert len(tried) >= 20
    assert max(view.pauses) == UNREACHABLE_SECONDS, "delays while it was down do not count"
    assert others[-1] == 0.5


def test_a_list_that_is_older_than_the_view_replaces_it(api: ApiServer) -> None:
    api.put("nodes", node("ghost"))
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.restore(500, nodes=[node("kept")])
        api.fail("nodes", Status(410, "too old"), watch=True)
        api.send("nodes", Reset())
        view.until(lambda cluster: names(cluster) == ["kept"])
        api.wait_for(lambda: api.watching("nodes") == 1)
        api.put("nodes", node("new"))
        view.until(lambda cluster: names(cluster) == ["kept", "new"])
    assert "went-back" not in view.health("nodes").counts


@pytest.mark.parametrize("version", ["9" * 6000, "x" * 6000, ""])
def test_an_invalid_version_means_a_new_list_without_a_traceback(
    api: ApiServer, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    odd = Body(b'{"metadata": {"resourceVersion": "%s"}, "items": []}' % version.encode())
    api.fail("nodes", odd)
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        api.put("nodes", node("missed"), announce=False)
        changed = node("one")
        changed["metadata"]["resourceVersion"] = version
        api.event("nodes", "MODIFIED", changed)
        view.until(lambda cluster: names(cluster) == ["missed", "one"])
    assert view.health("nodes").counts["malformed"] == 2
    assert all(record.exc_info is None and len(record.getMessage()) < 200 for record in caplog.records)


def test_the_message_of_a_failure_is_bounded(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.fail("nodes", Status(500, "no\n" + "x" * 100_000))
    with viewing(api, NODES) as view:
        view.synced()
    message = caplog.records[0].getMessage()
    assert message.startswith("cannot list and watch nodes: 500: no xxx")
    assert len(message) < 600


@pytest.mark.parametrize("as_status", [True, False], ids=["status", "event"])
def test_versions_always_gone_are_logged_once_and_delays_grow(
    api: ApiServer, caplog: pytest.LogCaptureFixture, as_status: bool
) -> None:
    def gone(number: int) -> Status | Body:
        message = f"too old resource version: {number} ({number + 1})"
        if as_status:
            return Status(410, message)
        return Body(b'{"type": "ERROR", "object": {"code": 410, "message": "%s"}}\n' % message.encode())

    clock = Clock()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.now += seconds

    api.fail("nodes", *[gone(number) for number in range(12)], watch=True)
    with viewing(api, NODES, clock=clock, wait=pause) as view:
        view.counted("nodes", "gone", 12)
        api.wait_for(lambda: api.watching("nodes"))
        api.put("nodes", node("two"))
        view.until(lambda cluster: names(cluster) == ["one", "two"])
        view.until(lambda _: not view.live.problems)
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("rules_engine.server.cluster")]
    assert logged == ["cannot list and watch nodes: 410: too old resource version: 0 (1)", "nodes: current again"]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, *[30.0] * 5], "only the first list follows at once"
    assert sum(pauses) > QUIET_SECONDS


def fail_and_recover(api: ApiServer, view: View) -> None:
    """Send both on the watch that is open by then."""

    def has_failed(_: Cluster) -> bool:
        api.send("nodes", b"[]\n")
        return bool(view.live.problems)

    def has_recovered(_: Cluster) -> bool:
        api.bookmark("nodes")
        return not view.live.problems

    view.until(has_failed)
    view.until(has_recovered)


def test_a_failure_that_comes_and_goes_is_logged_now_and_then(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with viewing(api, NODES, clock=clock) as view:
        view.synced()
        for _ in range(7):
            fail_and_recover(api, view)
            clock.now += QUIET_SECONDS / 3
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("rules_engine.server.cluster")]
    failure = "cannot list and watch nodes: watch event: not a JSON object"
    assert logged == [failure, "nodes: current again"] * 3


def test_versions_that_are_no_numbers_count_as_newer(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        seen: list[str] = []
        for gpus, version in (("5", "zz"), ("6", "aa")):
            odd = node("one", {GPU: gpus})
            odd["metadata"]["resourceVersion"] = version
            api.event("nodes", "MODIFIED", odd)
            cluster = view.until(lambda cluster: str(cluster.nodes[0].allocatable[GPU]) not in ("4", *seen))
            seen.append(str(cluster.nodes[0].allocatable[GPU]))
    assert seen == ["5", "6"]


def test_a_malformed_object_hides_no_other(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.put("nodes", {"metadata": {"labels": 3}})
    api.put("pods", bound("odd", "one", {GPU: "many"}))
    api.put("pods", bound("job", "one", {GPU: 1}))
    api.put("namespaces", {"metadata": {}})
    with viewing(api) as view:
        cluster = view.synced()
        assert used(cluster, "one", GPU) == 1
        api.put("pods", bound("odder", "one", {GPU: "none"}))
        view.counted("pods", "unreadable", 2)
    warned = [record.getMessage() for record in caplog.records if record.name.startswith("rules_engine.server.cluster")]
    nameless = "object skipped, further ones are not logged: metadata.name missing"
    assert sorted(warned)[:2] == [f"namespaces: {nameless}", f"nodes: {nameless}"]
    path = "/spec/containers/0/resources/requests/nvidia.com~1gpu"
    assert sorted(warned)[2:] == [f"pods: object skipped, further ones are not logged: ml/odd: {path} cannot be read"]


def test_items_of_a_list_that_are_no_objects_are_skipped(api: ApiServer) -> None:
    api.fail("nodes", Body(b'{"metadata": {"resourceVersion": "1001"}, "items": [7, {"metadata": {"name": "x"}}, {}]}'))
    with viewing(api, NODES) as view:
        assert names(view.synced()) == ["x"]


def test_a_failure_and_its_end_are_logged_once(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.fail("nodes", *[Status(500, "etcd is away")] * 4)
    with viewing(api, NODES) as view:
        view.synced()
        assert view.live.problems == []
    logged = [(r.levelno, r.getMessage()) for r in caplog.records if r.name.startswith("rules_engine.server.cluster")]
    assert logged == [
        (logging.WARNING, "cannot list and watch nodes: 500: etcd is away"),
        (logging.WARNING, "nodes: current again"),
    ]


def test_a_missing_permission_is_named(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.forbidden = {"pods"}
    with viewing(api, EVERYTHING) as view:
        view.counted("pods", "forbidden", 3)
        [problem] = view.live.problems
        assert view.live.current().freshness is Freshness.NEVER
        api.forbidden = set()
        view.synced()
    assert problem == (
        "cannot list and watch pods: 403: pods is forbidden: "
        'User "system:serviceaccount:gpu:rules" cannot list resource "pods" in API group "" at the cluster scope'
    )
    assert [record.getMessage() for record in caplog.records].count(problem) == 1


def test_an_unexpected_error_ends_no_view(
    api: ApiServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with viewing(api, NODES) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        with monkeypatch.context() as broken:
            broken.setattr(reading, "_read_name", None)
            api.put("nodes", node("two"))
            view.until(lambda _: view.pauses)
        view.until(lambda cluster: names(cluster) == ["one", "two"])
    assert "unexpected error while reading nodes" in caplog.text


def test_stop_waits_for_no_watch_and_no_delay(api: ApiServer) -> None:
    with viewing(api, wait=None) as view:
        view.synced()
        api.wait_for(lambda: all(api.watching(name) for name in COLLECTIONS))
    with viewing(api, wait=None) as view:
        api.fail("nodes", Status(429, headers={"Retry-After": "300"}))
    assert view.live.health[0].name == "nodes"
