"""Freshness of the view, reservations, and the cost of waiting."""

from functools import partial
from threading import Thread
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.cluster.nodes.reservations import LIFETIME_SECONDS
from rules_engine.language.cel import Budget
from rules_engine.model.kubernetes.cluster import Cluster, Freshness
from rules_engine.model.kubernetes.kept_fields import RESERVATION
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Decision, HttpRefusal
from rules_engine.rules.rule_set.rule_set import ClusterRequirements
from rules_engine.server.cluster.connection import Connection
from rules_engine.server.cluster.live import LiveCluster
from rules_engine.server.cluster.source import ClusterSource, FixedCluster
from rules_engine.server.http.admission_record import Callers
from rules_engine.server.state import ServedRules, ServerState
from rules_engine.server.timing import FORGET_SECONDS, Backoff
from tests.support.apiserver import COLLECTIONS, ApiServer, End, Reset, Silence, Status, bound, node
from tests.support.cluster import NODES, PODS, Clock, View, plain, settle, used, viewing
from tests.support.evaluation import compiled, ladder, request, rung
from tests.support.placing import expression, requiring
from tests.support.server import application, call, encoded, review

GPU = "nvidia.com/gpu"


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    api.put("nodes", node("one", {GPU: 4}))
    return api


def test_a_view_without_contact_is_stale_and_with_it_fresh_again(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, NODES, clock=clock, max_staleness_seconds=60.0) as view:
        settle(api, view)
        fresh = view.live.current()
        api.stop()
        view.counted("nodes", "unreachable")
        clock.now = view.health("nodes").contact + 60.0
        assert view.live.current().freshness is Freshness.SYNCED
        clock.now += 0.1
        stale = view.live.current()
        assert (stale.freshness, stale.known, stale.nodes) == (Freshness.STALE, False, fresh.nodes)
        api.start()
        api.wait_for(lambda: api.watching("nodes"))
        assert view.live.current().freshness is Freshness.STALE
        api.bookmark("nodes")
        view.until(lambda cluster: cluster.known)


def test_headers_of_a_watch_are_no_contact(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, NODES, clock=clock, max_staleness_seconds=60.0) as view:
        settle(api, view)
        clock.now += 61.0
        api.send("nodes", Reset())
        api.wait_for(lambda: len(api.watches("nodes")) == 2 and api.watching("nodes"))
        assert view.live.current().freshness is Freshness.STALE
        api.bookmark("nodes")
        view.until(lambda cluster: cluster.known)


def test_an_api_server_that_sends_only_headers_becomes_stale(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, NODES, clock=clock, max_staleness_seconds=3.0, silence_seconds=0.1) as view:
        settle(api, view)
        clock.now += 3.0
        api.send("nodes", Silence())
        api.wait_for(lambda: len(api.watches("nodes")) == 2 and api.watching("nodes"))
        assert view.live.current().freshness is Freshness.SYNCED
        clock.now += 0.1
        assert view.live.current().freshness is Freshness.STALE


def test_a_quiet_api_server_never_becomes_stale(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, NODES, clock=clock, max_staleness_seconds=60.0) as view:
        for checks in range(5):
            view.counted("nodes", "checks", checks)
            api.wait_for(partial(watched, api, checks + 1))
            clock.now += 20.0
            assert view.synced() is view.live.current()
            api.send("nodes", End())
    assert view.pauses == []


def watched(api: ApiServer, watches: int) -> bool:
    return len(api.watches("nodes")) == watches and bool(api.watching("nodes"))


@pytest.mark.parametrize("drip", [b"\n", b" "], ids=["blank lines", "no line"])
def test_an_endless_watch_without_events_is_left(api: ApiServer, drip: bytes) -> None:
    clock = Clock()
    with viewing(api, NODES, clock=clock, max_staleness_seconds=60.0) as view:
        settle(api, view)
        clock.now += 26.0
        api.send("nodes", drip)
        view.counted("nodes", "timed-out")
        assert view.live.problems == ["cannot list and watch nodes: the watch sends no events and does not end"]


def test_a_silent_watch_is_no_contact_but_a_bookmark_is(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, NODES, clock=clock, max_staleness_seconds=60.0) as view:
        settle(api, view)
        clock.now += 61.0
        assert view.live.current().freshness is Freshness.STALE
        api.bookmark("nodes")
        view.until(lambda cluster: cluster.known)


def test_one_stale_collection_makes_the_view_stale(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, PODS, clock=clock) as view:
        settle(api, view)
        clock.now += 61.0
        api.bookmark("nodes")
        view.until(lambda _: view.health("nodes").contact == clock.now)
        assert view.live.current().freshness is Freshness.STALE


def test_nothing_is_known_before_everything_was_listed(api: ApiServer) -> None:
    api.fail("pods", Silence())
    with viewing(api, PODS) as view:
        view.counted("nodes", "watches")
        api.wait_for(lambda: api.lists("pods"))
        assert view.live.current().freshness is Freshness.NEVER
        assert view.live.current().nodes == ()
        assert not view.live.wait_until(lambda cluster: cluster.known, 0.0)
        api.stop()
        api.start()
        view.synced()


def test_stop_waits_for_a_pending_list_only_up_to_its_timeout(api: ApiServer) -> None:
    api.fail("nodes", Silence())
    with viewing(api, NODES, stop_seconds=0.0):
        api.wait_for(lambda: api.lists("nodes"))


def test_stop_waits_for_all_pending_lists_together(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waits = Clock(), list[float]()

    def wait(_: Thread, seconds: float) -> None:
        waits.append(seconds)
        clock.now += seconds

    for name in COLLECTIONS:
        api.fail(name, Silence())
    with viewing(api, stop_seconds=0.1) as view:
        api.wait_for(lambda: all(api.lists(name) for name in COLLECTIONS))
        with monkeypatch.context() as patched:
            patched.setattr("rules_engine.server.cluster.live.monotonic", clock)
            patched.setattr(Thread, "join", wait)
            view.live.stop()
    assert (len(waits), round(sum(waits), 3)) == (len(COLLECTIONS) + 1, 0.1)


def test_a_start_without_an_api_server_recovers_by_itself(api: ApiServer) -> None:
    api.stop()
    with viewing(api, NODES) as view:
        view.counted("nodes", "unreachable", 3)
        assert view.live.current().freshness is Freshness.NEVER
        assert "Connection refused" in view.live.problems[0]
        api.start()
        assert view.live.wait_until(lambda cluster: cluster.known, 30.0)
    assert len(view.live.problems) == 0


def test_a_rule_set_that_needs_nothing_has_its_view_at_once(api: ApiServer) -> None:
    with viewing(api, ClusterRequirements()) as view:
        assert view.live.current().known
        assert view.live.health == ()
    assert api.requests == []


def test_rules_that_need_more_collections_get_them(api: ApiServer) -> None:
    api.put("pods", bound("p", "one", {GPU: 1}))
    with viewing(api, NODES) as view:
        assert used(view.synced(), "one", GPU) == 0
        assert view.live.need(PODS)
        assert used(view.live.current(), "one", GPU) == 1
        assert view.live.need(NODES)
        assert [health.name for health in view.live.health] == ["nodes", "pods"]


def test_a_view_never_depends_on_an_unreadable_collection(api: ApiServer) -> None:
    api.forbidden = {"pods"}
    with viewing(api, NODES) as view:
        view.synced()
        assert not view.live.need(PODS, 0.1)
        assert view.live.current().known
        assert "pods is forbidden" in view.live.problems[0]
        api.forbidden = set()
        assert view.live.need(PODS)
        assert view.live.problems == []


def test_a_view_that_was_never_started_can_be_stopped(api: ApiServer) -> None:
    LiveCluster(Connection(plain(api)), NODES).stop()


def made(name: str, /, **metadata: Any) -> AdmissionRequest:
    """Return a request for a pod; `...` removes a member of its metadata."""
    pod = bound(name, "", {GPU: 1})
    pod["metadata"] = {key: value for key, value in {**pod["metadata"], **metadata}.items() if value is not ...}
    return request(pod)


def create(view: View, request_: AdmissionRequest, decision: Decision | None = None) -> None:
    """Reserve as /validate does."""
    decision = Decision(object=request_.object) if decision is None else decision
    assert view.live.reserve(request_, decision, Budget, created=True) == ""


def mutate(view: View, request_: AdmissionRequest, **annotations: str) -> str:
    """Reserve as /mutate does for a pod with these annotations; return the id."""
    pod = cast(dict[str, Any], request_.object)
    pod = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
    return view.live.reserve(replace(request_, object=pod), Decision(object=pod), Budget, created=False) or ""


def test_ten_pods_in_a_row_do_not_get_the_same_devices(api: ApiServer) -> None:
    with viewing(api, PODS) as view:
        view.synced()
        left = []
        for number in range(10):
            left.append(4 - used(view.live.current(), "one", GPU))
            create(view, made(f"p{number}"))
        assert left == [4, 3, 2, 1, 0, 0, 0, 0, 0, 0]
        assert view.live.reservations == 4
        api.put("pods", bound("p0", "one", {GPU: 1}))
        api.put("pods", bound("p1", "", {GPU: 1}))
        api.delete("pods", "p1", "ml")
        view.until(lambda cluster: used(cluster, "one", GPU) == 3)
        assert view.live.reservations == 2


TERMS: dict[str, Any] = requiring(expression("pool", "Exists"), *[{}] * 20_000)


@pytest.mark.parametrize(
    ("request_", "decision"),
    [
        (replace(made("p"), dry_run=True), None),
        (replace(made("p"), operation="UPDATE"), None),
        (made("p"), Decision(refusal=HttpRefusal(403, "Forbidden", "no"))),
        (made("p", uid=...), None),
        (made("p", name=...), None),
        (request(bound("p", "", {"cpu": 1})), None),
        (request(bound("p", "", {GPU: 0})), None),
        (request(bound("p", "", {GPU: 1}, spec=TERMS)), None),
        (request(bound("p", "", {GPU: 1}, spec={"tolerations": "odd"})), None),
        (request({"metadata": []}), None),
        (request({}), None),
        (request(None), None),
    ],
    ids=[
        *("dry-run", "update", "denied", "no-uid", "no-name", "no-device", "zero", "large", "malformed"),
        *("no-pod", "empty", "no-object"),
    ],
)
def test_only_admitted_pods_have_reservations(
    api: ApiServer, request_: AdmissionRequest, decision: Decision | None
) -> None:
    with viewing(api, PODS) as view:
        view.synced()
        create(view, request_, decision)
        assert view.live.reservations == 0


def test_calls_of_mutate_reserve_devices_until_validate_is_called(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, PODS, clock=clock) as view:
        view.synced()
        ids = [mutate(view, made("p", name=..., generateName="p-", uid=...)) for _ in range(3)]
        assert (len({*ids}), used(view.live.current(), "one", GPU)) == (3, 3)
        create(view, made("p-x", annotations={RESERVATION: ids[0]}))
        assert (used(view.live.current(), "one", GPU), view.live.reservations) == (3, 3)
        create(view, made("p-y", annotations={RESERVATION: ids[0]}))
        assert (used(view.live.current(), "one", GPU), view.live.reservations) == (4, 4), "an id serves once"
        api.put("pods", bound("p-x", "one", {GPU: 1}))
        view.until(lambda _: view.live.reservations == 3)
        clock.now += LIFETIME_SECONDS
        view.until(lambda cluster: used(cluster, "one", GPU) == 1)


def test_an_id_is_kept_for_its_namespace_and_caller_only(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, PODS, clock=clock) as view:
        view.synced()
        mine = made("p")
        id = mutate(view, mine)
        for other in (replace(mine, namespace="other"), replace(mine, raw={"userInfo": {"username": "mallory"}})):
            replaced = mutate(view, other, **{RESERVATION: id})
            assert replaced not in (id, "")
            assert used(view.live.current(), "one", GPU) > 1
        before = used(view.live.current(), "one", GPU)
        assert mutate(view, mine, **{RESERVATION: id}) == id
        assert used(view.live.current(), "one", GPU) == before
        assert mutate(view, mine, **{RESERVATION: "forged"}) not in (id, "forged", "")
        clock.now += LIFETIME_SECONDS
        assert mutate(view, mine, **{RESERVATION: id}) not in (id, "")


def test_a_second_call_does_not_count_its_own_reservation(api: ApiServer) -> None:
    with viewing(api, PODS) as view:
        view.synced()
        mine = made("p")
        assert view.live.view_for(mine) is view.live.current()
        again = made("p", annotations={RESERVATION: mutate(view, mine)})
        assert (used(view.live.current(), "one", GPU), used(view.live.view_for(again), "one", GPU)) == (1, 0)
        assert view.live.view_for(replace(again, dry_run=True)) is view.live.current()
        assert view.live.view_for(replace(again, namespace="other")) is view.live.current()


@pytest.mark.parametrize("moves", [False, True])
def test_a_reservation_takes_the_nodes_that_the_decision_found(api: ApiServer, moves: bool) -> None:
    """Regression test: each reservation searched them again, in the event loop and with a budget of its own."""
    rungs = (rung(GPU, name="Y", pool=(("pool", "y"),)), rung(GPU, name="X", pool=(("pool", "x"),)))
    matching = NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD}))
    rules = compiled(ladder(*(rungs if moves else (GPU,)), nodes=matching, offered=Offered.AVAILABLE))
    api.put("nodes", node("two", {GPU: 4}, labels={"pool": "x"}))
    wanted = request(bound("p", "", {GPU: 1}, spec={"nodeSelector": {"pool": "y" if moves else "x"}}))
    with viewing(api, PODS) as view:
        cluster = view.until(lambda cluster: len(cluster.nodes) == 2 and cluster.known)
        decision = rules.mutate(wanted, cluster)
        assert bool(decision.patch) is moves
        assert view.live.reserve(wanted, decision, lambda: Budget(0), created=False)
        assert used(view.live.current(), "two", GPU) == 1


def test_a_pod_whose_devices_are_reserved_meanwhile_is_decided_again(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the event loop decides a pod while a thread decides another one."""
    rules = compiled(ladder(GPU, rung("example.com/other", assume=True), offered=Offered.AVAILABLE))
    api.put("nodes", node("one", {GPU: 1}))
    with viewing(api, PODS) as view:
        view.synced()
        reserve = view.live.reserve

        def after_another(*arguments: Any, created: bool) -> str | None:
            monkeypatch.undo()
            assert mutate(view, made("another"))
            return reserve(*arguments, created=created)

        monkeypatch.setattr(view.live, "reserve", after_another)
        app = application(ServerState(ServedRules(rule_set=rules), view.live), callers=Callers.ALL)
        answer = call(app, "/mutate", encoded(review(bound("p", "", {GPU: 1}))))
        assert "example.com/other" in str(answer.patch)
        assert RESERVATION not in str(answer.patch)


def test_a_search_for_nodes_is_charged_to_the_request(api: ApiServer) -> None:
    wanted = request(bound("p", "", {GPU: 1}, spec=requiring(*[expression("pool", "Exists")] * 100)))
    with viewing(api, PODS) as view:
        view.synced()
        assert not view.live.reserve(wanted, Decision(object=wanted.object), lambda: Budget(100), created=False)
        assert view.live.reservations == 0


def test_nothing_is_reserved_if_no_rule_reads_free_devices(api: ApiServer) -> None:
    with viewing(api, NODES) as view:
        before = view.synced()
        create(view, made("p"))
        assert view.live.current() is before


def test_a_reservation_expires_without_any_event(api: ApiServer) -> None:
    clock = Clock()
    with viewing(api, PODS, clock=clock) as view:
        view.synced()
        create(view, made("p"))
        clock.now += LIFETIME_SECONDS
        view.until(lambda _: view.live.reservations == 0)


def test_a_file_is_a_source_that_never_changes() -> None:
    cluster = Cluster()
    source: ClusterSource = FixedCluster(cluster)
    source.start()
    assert source.view_for(made("p")) is cluster
    assert source.reserve(made("p"), Decision(), Budget, created=True) == ""
    assert source.need(PODS)
    assert source.current() is cluster
    assert source.problems == ()
    source.stop()


def test_delays_double_up_to_a_bound_with_jitter() -> None:
    clock = Clock()
    longest, shortest = Backoff(clock, lambda: 0.0), Backoff(clock, lambda: 1.0)
    assert [longest.seconds() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert [shortest.seconds() for _ in range(8)] == [0.25, 0.5, 1, 2, 4, 8, 15, 15]


def test_the_delay_starts_over_after_a_time_without_failures() -> None:
    clock = Clock()
    backoff = Backoff(clock, lambda: 0.0)
    first = [backoff.seconds() for _ in range(3)]
    clock.now += FORGET_SECONDS
    assert backoff.seconds() == 4.0
    clock.now += FORGET_SECONDS + 1
    assert [backoff.seconds() for _ in range(3)] == first


def test_retry_after_is_the_minimum_delay_up_to_a_bound() -> None:
    backoff = Backoff(Clock(), lambda: 0.0)
    assert [backoff.seconds(retry_after) for retry_after in (0.0, 20.0, 10_000.0)] == [0.5, 20.0, 30.0]


def test_a_missing_view_has_its_reason(api: ApiServer) -> None:
    api.fail("nodes", *[Status(500, "etcd is away")] * 1000)
    with viewing(api, NODES) as view:
        view.until(lambda _: view.live.problems)
        assert list(view.live.problems) == ["cannot list and watch nodes: 500: etcd is away"]
