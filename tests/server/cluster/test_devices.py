"""Devices that drivers offer in a live cluster, and what nodes offer with them."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from rules_engine.cluster.nodes.reservations import PodKey
from rules_engine.model.kubernetes.cluster import Cluster, Freshness, Node
from rules_engine.model.kubernetes.devices import Claim, Device, DeviceClass, NodeSelection, ResourceSlice, Use
from rules_engine.model.kubernetes.placement import NodeExpression, NodeTerm
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.rules.rule_set.rule_set import ClusterRequirements
from rules_engine.server.cluster.device_store import DeviceStore
from rules_engine.server.cluster.reading import read_node, read_pod
from rules_engine.server.cluster.reflector import RELIST_SECONDS
from rules_engine.server.cluster.store import Store
from tests.support.api import (
    DRIVER,
    GPU,
    cards,
    claim_spec,
    claim_template,
    device,
    device_class,
    resource_claim,
    resource_slice,
    taint_rule,
)
from tests.support.apiserver import PATIENCE_SECONDS, ApiServer, Status, bound, node
from tests.support.cluster import Clock, capture, reserve, settle, viewing
from tests.support.loading import load_view

MIG = "nvidia.com/mig-3g.40gb"
NEEDS = ClusterRequirements(nodes=True, pods=True, devices=True)


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    for name in ("one", "two"):
        api.put("nodes", node(name, {"cpu": 8}))
    return api


GPUS = device_class("gpus", GPU, f"device.driver == '{DRIVER}'")


def free(cluster: Cluster, resource: str = GPU) -> dict[str, int]:
    return {
        each.name: each.available(resource).nanos // 10**9 for each in cluster.nodes if each.allocatable.get(resource)
    }


def test_nodes_offer_what_drivers_do(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 2))
    api.put("resourceclaims", resource_claim("c", "gpu-0", pool="one", extended=True))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 1}
        api.put("resourceslices", cards("two", 3))
        view.until(lambda cluster: free(cluster) == {"one": 1, "two": 3})
        api.put("resourceclaims", resource_claim("d", "gpu-1", "gpu-2", pool="two"))
        view.until(lambda cluster: free(cluster) == {"one": 1, "two": 1})
        api.delete("resourceclaims", "c", "ml")
        view.until(lambda cluster: free(cluster) == {"one": 2, "two": 1})
        api.delete("resourceslices", "two")
        view.until(lambda cluster: free(cluster) == {"one": 2})
        api.put("nodes", node("one", {"cpu": 8, GPU: 5}))
        view.until(lambda cluster: free(cluster) == {"one": 5})
        api.put("nodes", node("one", {"cpu": 8, GPU: 0}))
        view.until(lambda cluster: free(cluster) == {"one": 2})
        api.delete("deviceclasses", "gpus")
        view.until(lambda cluster: free(cluster) == {})


def test_a_pod_with_a_claim_counts_once_and_one_without_too(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 3))
    api.put("resourceclaims", resource_claim("c", "gpu-0", pool="one", extended=True))
    api.put("pods", bound("p", "one", {GPU: 1}))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 2}
        api.put("pods", bound("q", "one", {GPU: 1}))
        view.until(lambda cluster: free(cluster) == {"one": 1})


@pytest.mark.parametrize("missing", range(4))
def test_the_taints_of_rules_of_any_version_keep_pods_away(api: ApiServer, missing: int) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 2))
    api.put("resourceslices", cards("two", 1))
    api.put("devicetaintrules", taint_rule("r", pool="one", device="gpu-0"))
    # An API server without any of the three versions has no rules.
    api.fail("devicetaintrules", *[Status(404)] * (100 if missing == 3 else missing))
    with viewing(api, NEEDS) as view:
        if missing == 3:
            assert free(view.synced()) == {"one": 2, "two": 1}
            assert view.live.absent == []
            api.mend("devicetaintrules")
        view.until(lambda cluster: free(cluster) == {"one": 1, "two": 1})
        api.put("devicetaintrules", taint_rule("all"))
        view.until(lambda cluster: free(cluster) == {})
        api.delete("devicetaintrules", "all")
        api.put("devicetaintrules", taint_rule("r", pool="two"))
        view.until(lambda cluster: free(cluster) == {"one": 2})


def test_rules_that_may_not_be_read_leave_what_drivers_offer_unknown(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 2))
    api.forbidden = {"devicetaintrules"}
    with viewing(api, NEEDS) as view:
        assert view.synced().unread == {GPU, "deviceclass.resource.kubernetes.io/gpus"}
        assert "devicetaintrules is forbidden" in view.live.absent[0]


def test_a_version_that_goes_away_is_followed_by_another(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 2))
    api.fail("devicetaintrules", Status(404))
    with viewing(api, NEEDS) as view:
        settle(api, view)
        api.fail("devicetaintrules", Status(404), watch=True)
        lists = len(api.lists("devicetaintrules"))
        api.end_watches("devicetaintrules")
        view.until(lambda _: len(api.lists("devicetaintrules")) == lists + 1)
        api.put("devicetaintrules", taint_rule("all"))
        view.until(lambda cluster: free(cluster) == {})


def test_attributes_that_a_later_class_selects_by_are_read_then(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    attributes = {"profile": {"string": "3g.40gb"}, "uuid": {"string": "x"}}
    api.put("resourceslices", resource_slice("one", device("a", attributes=attributes), device("b")))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 2}
        expression = f"device.attributes['{DRIVER}'].?profile.orValue('') == '3g.40gb'"
        api.put("deviceclasses", device_class("migs", MIG, expression))
        view.until(lambda cluster: free(cluster, MIG) == {"one": 1})
        assert len(api.lists("resourceslices")) == 2


def test_classes_that_change_again_and_again_list_slices_in_intervals(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    attributes = {f"n{number}": {"bool": True} for number in range(4)}
    api.put("resourceslices", resource_slice("one", device("a", attributes=attributes)))
    with viewing(api, NEEDS) as view:
        view.synced()

        known = []

        def is_listed(cluster: Cluster, lists: int) -> bool:
            known.append((cluster.known, cluster.unread, free(cluster)))
            return len(api.lists("resourceslices")) == lists

        for number in range(1, 4):
            api.put("deviceclasses", device_class("new", MIG, f"device.attributes['{DRIVER}'].n{number}"))
            view.until(partial(is_listed, lists=number + 1))
        view.until(lambda cluster: free(cluster, MIG) == {"one": 1})
        assert {*map(str, known)} == {str((True, frozenset(), {"one": 1}))}
        # The first list is made at once.
        assert [seconds > RELIST_SECONDS / 2 for seconds in view.pauses] == [False, True, True]


def test_names_of_attributes_of_old_classes_are_bounded(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.cluster.device_store.MAX_NAMES", 1)
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 1))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 1}
        api.put("deviceclasses", device_class("gpus", MIG, "true"))
        view.until(lambda cluster: free(cluster, MIG) == {"one": 1} and len(api.lists("resourceslices")) == 2)


@pytest.mark.parametrize(("status", "unread"), [(Status(403), {""}), (Status(404), set())])
def test_without_the_right_it_is_unknown_what_drivers_offer_without_the_api_it_is_nothing(
    api: ApiServer, status: Status, unread: set[str]
) -> None:
    api.put("deviceclasses", GPUS)
    api.fail("deviceclasses", *[status] * 200)
    with viewing(api, NEEDS) as view:
        view.until(lambda cluster: cluster.known and str(status.code) in str(view.health("deviceclasses").failure))
        assert view.live.current().unread == unread
        assert [str(status.code) in message for message in view.live.absent] == [True]
        # It is asked for again, and read once that is possible.
        view.until(lambda cluster: view.health("deviceclasses").synced and not cluster.unread)
        assert view.live.absent == []


PROFILES = device_class("migs", MIG, f"device.attributes['{DRIVER}'].?profile.orValue('') == '3g.40gb'")


def test_a_class_whose_slices_cannot_be_read_leaves_the_view_as_it_was(api: ApiServer) -> None:
    """Regression test: one class took the server out of service until slices were read again, or for ever."""
    clock = Clock()
    api.put("deviceclasses", GPUS)
    attributes = {"profile": {"string": "3g.40gb"}}
    api.put("resourceslices", resource_slice("one", device("a", attributes=attributes), device("b")))
    with viewing(api, NEEDS, clock=clock) as view:
        settle(api, view)
        api.forbidden = {"resourceslices"}
        api.put("deviceclasses", PROFILES)
        view.counted("resourceslices", "forbidden")
        before = view.live.current()
        assert (before.known, before.unread, free(before), free(before, MIG)) == (True, frozenset(), {"one": 2}, {})
        clock.now += 61.0
        for name in ("nodes", "pods", "deviceclasses", "resourceclaims"):
            api.bookmark(name)
        view.until(lambda cluster: cluster.known)
        assert view.live.current().unread > {GPU, MIG}
        assert "resourceslices is forbidden" in view.live.absent[0]
        api.forbidden = set()
        view.until(lambda cluster: not cluster.unread and free(cluster, MIG) == {"one": 1})
        assert free(view.live.current()) == {"one": 2}


def test_slices_that_cannot_be_read_from_the_start_leave_only_their_resources_unknown(api: ApiServer) -> None:
    api.put("deviceclasses", device_class("nic", "example.com/nic", "true"))
    api.forbidden = {"resourceslices"}
    with viewing(api, NEEDS) as view:
        unread = {"example.com/nic", "deviceclass.resource.kubernetes.io/nic"}
        assert view.synced().unread == unread
        api.put("nodes", node("one", {GPU: 1}))
        view.until(lambda cluster: cluster.unread == unread and free(cluster) == {"one": 1})


def test_a_class_that_is_deleted_while_it_waits_for_slices_offers_nothing(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 2))
    with viewing(api, NEEDS) as view:
        settle(api, view)
        api.forbidden = {"resourceslices"}
        api.put("deviceclasses", device_class("gpus", GPU, "device.attributes['x'].y"))
        view.counted("resourceslices", "forbidden")
        assert free(view.live.current()) == {"one": 2}, "its former version is in force"
        api.delete("deviceclasses", "gpus")
        view.until(lambda cluster: free(cluster) == {})


def test_slices_and_claims_are_read_only_if_there_is_a_class(api: ApiServer) -> None:
    with viewing(api, NEEDS) as view:
        view.synced()
        assert not api.lists("resourceslices")
        assert not api.lists("resourceclaims")
        api.put("deviceclasses", GPUS)
        view.until(lambda _: api.lists("resourceslices") and api.lists("resourceclaims"))


def requested(cluster: Cluster) -> dict[str, int | None]:
    """Return the number of devices that each template and each claim requests."""
    specs = {**cluster.devices.templates, **{name: each.spec for name, each in cluster.devices.claims.items()}}
    return {name: spec.requests[0][0].count for name, spec in specs.items()}


def test_templates_and_claims_are_in_the_view(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceclaimtemplates", claim_template("t", 2))
    api.put("resourceclaims", resource_claim("c", spec=claim_spec(3)))
    with viewing(api, NEEDS) as view:
        assert requested(view.synced()) == {"ml/t": 2, "ml/c": 3}
        assert not view.live.current().devices.unread
        api.put("resourceclaimtemplates", claim_template("u", 4))
        view.until(lambda cluster: requested(cluster) == {"ml/t": 2, "ml/u": 4, "ml/c": 3})
        api.delete("resourceclaims", "c", "ml")
        view.until(lambda cluster: requested(cluster) == {"ml/t": 2, "ml/u": 4})
        api.delete("resourceclaimtemplates", "t", "ml")
        view.until(lambda cluster: requested(cluster) == {"ml/u": 4})
        exactly = {"deviceClassName": "gpus", "capacity": {"requests": {"memory": "much"}}}
        api.put("resourceclaimtemplates", claim_template("u", {"exactly": exactly}))
        view.until(lambda cluster: requested(cluster) == {})
        assert view.health("resourceclaimtemplates").counts["unreadable"] == 1


def test_a_template_changes_nothing_of_slices_and_nodes(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 2))
    selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].uuid != ''"}}
    with viewing(api, NEEDS) as view:
        before = view.synced()
        for number in range(5):
            exactly = {"deviceClassName": "gpus", "selectors": [selector], "count": number}
            api.put("resourceclaimtemplates", claim_template("t", {"exactly": exactly}))
            now = view.until(partial(lambda number, cluster: requested(cluster) == {"ml/t": number}, number))
            assert (now.nodes is before.nodes, now.views is before.views) == (True, True)
            assert now.devices.slices is before.devices.slices
        assert len(api.lists("resourceslices")) == 1


def test_without_the_right_to_read_templates_only_they_are_unknown(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 2))
    api.forbidden = {"resourceclaimtemplates"}
    with viewing(api, NEEDS) as view:
        cluster = view.synced()
        assert (cluster.known, cluster.unread, free(cluster)) == (True, frozenset(), {"one": 2})
        assert cluster.devices.unread == {"resourceclaimtemplates": ""}
        assert "resourceclaimtemplates is forbidden" in view.live.absent[0]
        api.forbidden = set()
        view.until(lambda cluster: not cluster.devices.unread)


def test_rules_that_read_nodes_wait_for_the_devices(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 1))
    with viewing(api, ClusterRequirements()) as view:
        assert view.live.need(NEEDS)
        assert free(view.synced()) == {"one": 1}


def test_an_unusable_slice_is_left_out(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    unusable = resource_slice("one", device("a"), device("a"))
    api.put("resourceslices", unusable)
    api.put("resourceslices", cards("two", 1))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"two": 1}
        assert view.health("resourceslices").counts["unreadable"] == 1


def test_a_captured_cluster_offers_the_same(api: ApiServer, tmp_path: Path) -> None:
    api.put("deviceclasses", GPUS)
    expression = (
        f"device.attributes['{DRIVER}'].?kind.orValue('') == 'mig' && "
        f"device.capacity['{DRIVER}'].size.isGreaterThan(quantity('1Gi'))"
    )
    api.put("deviceclasses", device_class("migs", MIG, expression))
    attributes = {"kind": {"string": "mig"}, "n": {"int": 1}, "b": {"bool": True}, "v": {"version": "1.2.3"}}
    capacity = {"size": {"value": "20Gi"}}
    halves = [device(name, uses={"memory": "20Gi"}, attributes=attributes, capacity=capacity) for name in "abc"]
    halves[2]["taints"] = [{"key": "broken", "effect": "NoExecute"}]
    api.put("resourceslices", resource_slice("one", name="s0", generation=3, count=2, card={"memory": "40Gi"}))
    api.put("resourceslices", resource_slice("one", *halves, name="s1", generation=3, count=2))
    on_two = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["two"]}]}
    for name, place in (("all", {"allNodes": True}), ("some", {"nodeSelector": {"nodeSelectorTerms": [on_two]}})):
        shared = device(name, allowMultipleAllocations=True, bindingConditions=["x"])
        api.put("resourceslices", resource_slice(name, shared, **place))
    api.put("nodes", node("two", {"cpu": 8}, labels={"kubernetes.io/hostname": "two"}))
    api.put("resourceclaims", resource_claim("c", "a", pool="one", extended=True))
    api.put("resourceclaims", resource_claim("d", "all", pool="all"))
    api.put("devicetaintrules", taint_rule("r", pool="one", device="b"))
    api.put("resourceclaimtemplates", claim_template("t", 2))
    with viewing(api, NEEDS) as view:
        live = view.synced()
    loaded, problems, _ = load_view(capture(api, tmp_path))
    assert problems == ()
    assert loaded is not None
    for resource in (GPU, MIG):
        assert offers(loaded, resource) == offers(live, resource)
    assert free(live, MIG) == {"one": 0}
    assert loaded.devices.templates.keys() == {"ml/t"}
    assert loaded.devices.templates == live.devices.templates
    assert loaded.devices.claims == live.devices.claims
    api.delete("devicetaintrules", "r")
    loaded, _, _ = load_view(capture(api, tmp_path))
    assert loaded is not None
    assert free(loaded, MIG) == {"one": 1}


def offers(cluster: Cluster, resource: str) -> dict[str, tuple[Any, Any]]:
    return {each.name: (each.allocatable.get(resource), each.used.get(resource)) for each in cluster.nodes}


def nodes(*names: str, **labels: str) -> dict[str, Node]:
    return {name: Node(name=name, labels=labels) for name in names}


def test_an_equal_object_touches_no_node() -> None:
    store = DeviceStore()
    everywhere = NodeSelection(every=True)
    store.put(ResourceSlice(name="s", driver=DRIVER, pool="p", nodes=everywhere))
    assert store.update(nodes("one", "two")) == {"one", "two"}
    store.put(ResourceSlice(name="s", driver=DRIVER, pool="p", nodes=everywhere))
    store.remove(DeviceClass(name="absent"))
    assert store.update(nodes("one")) == ()
    store.replace(Claim, [Claim(name="ml/c", uses=(((DRIVER, "p", "a"), Use("ml/c", True)),))])
    assert store.update(nodes("one")) == {"one"}
    store.replace(ResourceSlice, [])
    assert store.update(nodes("one")) == {"one"}
    plain = Node(name="one")
    assert store.offered(plain) is plain


def test_only_nodes_that_a_pool_reaches_are_touched() -> None:
    """Regression test: a claim of a rack's devices rebuilt all nodes of the cluster."""
    store = DeviceStore()
    rack = NodeSelection(terms=(NodeTerm((NodeExpression("rack", "In", ("x",)),), ()),))
    store.put(ResourceSlice(name="s", driver=DRIVER, pool="rack", nodes=rack))
    devices = (Device(name="a", nodes=NodeSelection(name="four")), Device(name="b", nodes=rack), Device(name="c"))
    store.put(ResourceSlice(name="t", driver=DRIVER, pool="own", devices=devices))
    everything = {**nodes("one", "two", rack="x"), **nodes("three", "four", rack="y")}
    assert store.update(everything) == {"one", "two", "four"}
    store.put(Claim(name="ml/c", uses=(((DRIVER, "rack", "a"), Use("ml/c", True)),)))
    assert store.update(everything) == {"one", "two"}
    store.put(DeviceClass(name="nic"))
    assert store.update(everything) == everything.keys()


def test_a_view_whose_publication_takes_too_long_is_stale(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    api.put("deviceclasses", GPUS)
    with viewing(api, NEEDS, clock=lambda: now[0], max_staleness_seconds=60.0) as view:
        settle(api, view)
        publish, begun, end = Store.publish, Event(), Event()

        def take_long(store: Store) -> None:
            begun.set()
            end.wait()
            publish(store)

        monkeypatch.setattr(Store, "publish", take_long)
        api.put("nodes", node("three", {"cpu": 8}))
        begun.wait()
        now[0] = 59.0
        for health in view.live.health:
            api.bookmark(health.name)
        view.until(lambda _: all(health.contact == 59.0 for health in view.live.health))
        assert view.live.current().known
        now[0] = 61.0
        assert view.live.current().freshness is Freshness.STALE
        end.set()
        view.until(lambda cluster: cluster.known and len(cluster.nodes) == 3)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_slice_that_becomes_unreadable_offers_nothing(api: ApiServer, deleted: bool) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", cards("one", 2))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 2}
        bad = resource_slice("one", device("a"), device("a"))
        if deleted:
            # An event is sent on open watches only.
            api.wait_for(lambda: api.watching("resourceslices"))
            api.event("resourceslices", "DELETED", {**bad, "metadata": {"name": "one", "resourceVersion": "9999"}})
        else:
            api.put("resourceslices", bad)
        view.until(lambda cluster: free(cluster) == {})


def test_a_view_that_cannot_be_published_is_stale_until_it_can(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.cluster.live.FAILED_PUBLISH_SECONDS", 0.01)
    with viewing(api, NEEDS) as view:
        view.synced()
        publish, failing = Store.publish, [True]

        def fail(store: Store) -> None:
            if failing[0]:
                raise RuntimeError("a bug")
            publish(store)

        monkeypatch.setattr(Store, "publish", fail)
        api.put("nodes", node("three", {"cpu": 8}))
        view.until(lambda cluster: cluster.freshness is Freshness.STALE)
        failing[0] = False
        view.until(lambda cluster: cluster.known and len(cluster.nodes) == 3)


def test_a_reservation_waits_for_no_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: it waited for the lock that a publication held, and all decisions with it."""
    store = Store()
    store.replace_nodes([read_node(node(name, {GPU: 2})) for name in ("one", "two")])
    update, begun, end = DeviceStore.update, Event(), Event()

    def take_long(devices: DeviceStore, nodes: Mapping[str, Node]) -> Iterable[str]:
        begun.set()
        assert end.wait(PATIENCE_SECONDS)
        return update(devices, nodes)

    monkeypatch.setattr(DeviceStore, "update", take_long)
    store.set_node(read_node(node("one", {GPU: 4})))
    store.set_node(read_node(node("two")), gone=True)
    store.set_node(read_node(node("three", {GPU: 8})))
    publication = Thread(target=store.publish)
    publication.start()
    assert begun.wait(PATIENCE_SECONDS)
    for name in "pq":
        key, pod = PodKey(f"ml/{name}", f"uid-of-{name}"), Pod.parse(bound(name, "", {GPU: 1}))
        reservation = Thread(target=reserve, args=(store, key, pod, 0.0))
        reservation.start()
        reservation.join(PATIENCE_SECONDS)
        assert not reservation.is_alive()
    assert free(store.cluster) == {"one": 0, "two": 2}
    store.set_pod(read_pod(bound("p", "three", {GPU: 1})))
    end.set()
    publication.join(PATIENCE_SECONDS)
    # What was held meanwhile is held on the new nodes as well.
    assert free(store.cluster) == {"one": 3, "three": 7}
    store.publish()
    assert free(store.cluster) == {"one": 3, "three": 7}


def test_a_view_that_could_not_be_built_is_built_later(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()

    def fail(*_: object) -> Node:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(DeviceStore, "offered", fail)
        with pytest.raises(RuntimeError):
            store.replace_nodes([read_node(node("one", {GPU: 1}))])
    assert store.changed.is_set()
    store.publish()
    assert free(store.cluster) == {"one": 1}
