"""Devices that drivers offer in a live cluster, and what nodes offer with them."""

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from rules_engine.documents.load import load_cluster
from rules_engine.evaluation.rule_set.rule_set import ClusterRequirements
from rules_engine.model.kubernetes.cluster import Cluster, Freshness, Node
from rules_engine.model.kubernetes.devices import DeviceClass, ResourceSlice
from server.cluster.capture import as_yaml, cluster_inventory
from server.cluster.device_store import Claim, DeviceStore
from server.cluster.reflector import RELIST_SECONDS
from server.cluster.store import Store
from tests.support.apiserver import ApiServer, Status, bound, node
from tests.support.cluster import settle, viewing

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb"
DRIVER = "gpu.nvidia.com"
NEEDS = ClusterRequirements(nodes=True, pods=True, devices=True)


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    for name in ("one", "two"):
        api.put("nodes", node(name, {"cpu": 8}))
    return api


def device_class(name: str, resource: str, expression: str) -> dict[str, Any]:
    selectors = [{"cel": {"expression": expression}}]
    return {"metadata": {"name": name}, "spec": {"extendedResourceName": resource, "selectors": selectors}}


GPUS = device_class("gpus", GPU, f"device.driver == '{DRIVER}'")


def resource_slice(name: str, node_name: str, devices: Sequence[Any], **pool: int) -> dict[str, Any]:
    spec = {
        "driver": DRIVER,
        "nodeName": node_name,
        "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1, **pool},
        "devices": [{"name": each} if isinstance(each, str) else each for each in devices],
    }
    return {"metadata": {"name": name}, "spec": spec}


def claim(name: str, node_name: str, *devices: str, extended: bool = True) -> dict[str, Any]:
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"} if extended else {}
    results = [{"driver": DRIVER, "pool": node_name, "device": device, "request": "r"} for device in devices]
    return {
        "metadata": {"name": name, "namespace": "ml", "annotations": annotations},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def free(cluster: Cluster, resource: str = GPU) -> dict[str, int]:
    return {
        each.name: each.available(resource).nanos // 10**9 for each in cluster.nodes if each.allocatable.get(resource)
    }


def test_nodes_offer_what_drivers_do(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", resource_slice("s1", "one", ["a", "b"]))
    api.put("resourceclaims", claim("c", "one", "a"))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 1}
        api.put("resourceslices", resource_slice("s2", "two", ["a", "b", "c"]))
        view.until(lambda cluster: free(cluster) == {"one": 1, "two": 3})
        api.put("resourceclaims", claim("d", "two", "b", "c", extended=False))
        view.until(lambda cluster: free(cluster) == {"one": 1, "two": 1})
        api.delete("resourceclaims", "c", "ml")
        view.until(lambda cluster: free(cluster) == {"one": 2, "two": 1})
        api.delete("resourceslices", "s2")
        view.until(lambda cluster: free(cluster) == {"one": 2})
        api.put("nodes", node("one", {"cpu": 8, GPU: 5}))
        view.until(lambda cluster: free(cluster) == {"one": 5})
        api.put("nodes", node("one", {"cpu": 8, GPU: 0}))
        view.until(lambda cluster: free(cluster) == {"one": 2})
        api.delete("deviceclasses", "gpus")
        view.until(lambda cluster: free(cluster) == {})


def test_a_pod_with_a_claim_counts_once_and_one_without_too(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", resource_slice("s1", "one", ["a", "b", "c"]))
    api.put("resourceclaims", claim("c", "one", "a"))
    api.put("pods", bound("p", "one", {GPU: 1}))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 2}
        api.put("pods", bound("q", "one", {GPU: 1}))
        view.until(lambda cluster: free(cluster) == {"one": 1})


def test_attributes_that_a_later_class_selects_by_are_read_then(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    device = {"name": "a", "attributes": {"profile": {"string": "3g.40gb"}, "uuid": {"string": "x"}}}
    api.put("resourceslices", resource_slice("s1", "one", [device, "b"]))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 2}
        expression = f"device.attributes['{DRIVER}'].?profile.orValue('') == '3g.40gb'"
        api.put("deviceclasses", device_class("migs", MIG, expression))
        view.until(lambda cluster: free(cluster, MIG) == {"one": 1})
        assert len(api.lists("resourceslices")) == 2


def test_classes_that_change_again_and_again_list_slices_in_intervals(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    device = {"name": "a", "attributes": {f"n{number}": {"bool": True} for number in range(4)}}
    api.put("resourceslices", resource_slice("s1", "one", [device]))
    with viewing(api, NEEDS) as view:
        view.synced()

        def select_by(number: int) -> None:
            api.put("deviceclasses", device_class("new", MIG, f"device.attributes['{DRIVER}'].n{number}"))
            view.until(lambda cluster: cluster.known and len(api.lists("resourceslices")) == number + 1)

        for number in range(1, 4):
            select_by(number)
        assert free(view.synced(), MIG) == {"one": 1}
        # The first list is made at once.
        assert [seconds > RELIST_SECONDS / 2 for seconds in view.pauses] == [False, True, True]


def test_names_of_attributes_of_old_classes_are_bounded(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.cluster.live.MAX_NAMES", 1)
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", resource_slice("s1", "one", ["a"]))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 1}
        api.put("deviceclasses", device_class("gpus", MIG, "true"))
        view.until(lambda cluster: free(cluster, MIG) == {"one": 1} and len(api.lists("resourceslices")) == 2)


@pytest.mark.parametrize("status", [Status(403), Status(404)])
def test_a_cluster_without_the_api_or_the_right_has_no_devices(api: ApiServer, status: Status) -> None:
    api.put("deviceclasses", GPUS)
    api.fail("deviceclasses", *[status] * 200)
    with viewing(api, NEEDS) as view:
        view.until(lambda cluster: cluster.known and str(status.code) in str(view.health("deviceclasses").failure))
        assert [str(status.code) in message for message in view.live.absent] == [True]
        # It is asked for again, and read once that is possible.
        view.until(lambda _: view.health("deviceclasses").synced)
        assert view.live.absent == []


def test_slices_and_claims_are_read_only_if_there_is_a_class(api: ApiServer) -> None:
    with viewing(api, NEEDS) as view:
        view.synced()
        assert not api.lists("resourceslices")
        assert not api.lists("resourceclaims")
        api.put("deviceclasses", GPUS)
        view.until(lambda _: api.lists("resourceslices") and api.lists("resourceclaims"))


def test_rules_that_read_nodes_wait_for_the_devices(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    api.put("resourceslices", resource_slice("s1", "one", ["a"]))
    with viewing(api, ClusterRequirements()) as view:
        assert view.live.need(NEEDS)
        assert free(view.synced()) == {"one": 1}


def test_an_unusable_slice_is_left_out(api: ApiServer) -> None:
    api.put("deviceclasses", GPUS)
    unusable = resource_slice("bad", "one", ["a", "a"])
    api.put("resourceslices", unusable)
    api.put("resourceslices", resource_slice("good", "two", ["a"]))
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
    counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
    pool = {"name": "one", "generation": 3, "resourceSliceCount": 2}
    half = [{"counterSet": "card", "counters": {"memory": {"value": "20Gi"}}}]
    attributes = {"kind": {"string": "mig"}, "n": {"int": 1}, "b": {"bool": True}, "v": {"version": "1.2.3"}}
    capacity = {"size": {"value": "20Gi"}}
    devices: list[Any] = [
        {"name": name, "attributes": attributes, "capacity": capacity, "consumesCounters": half}
        for name in ("a", "b", "c")
    ]
    devices[2]["taints"] = [{"key": "broken", "effect": "NoExecute"}]
    head = resource_slice("s0", "one", [])
    head["spec"] |= {"pool": pool, "sharedCounters": counters}
    del head["spec"]["devices"]
    api.put("resourceslices", head)
    body = resource_slice("s1", "one", devices)
    body["spec"]["pool"] = pool
    api.put("resourceslices", body)
    for name, place in (
        ("all", {"allNodes": True}),
        (
            "some",
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["two"]}]}
                    ]
                }
            },
        ),
    ):
        shared = resource_slice(
            name, "", [{"name": name, "allowMultipleAllocations": True, "bindingConditions": ["x"]}]
        )
        del shared["spec"]["nodeName"]
        shared["spec"] |= {**place, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}}
        api.put("resourceslices", shared)
    api.put("nodes", node("two", {"cpu": 8}, labels={"kubernetes.io/hostname": "two"}))
    api.put("resourceclaims", claim("c", "one", "a"))
    api.put("resourceclaims", claim("d", "all", "all", extended=False))
    with viewing(api, NEEDS) as view:
        live = view.synced()
        text = as_yaml(cluster_inventory(view.live.raw_cluster(), view.live.pod_usages()))
    file = tmp_path / "captured.yaml"
    file.write_text(text)
    loaded, problems, _ = load_cluster(file)
    assert problems == ()
    assert loaded is not None
    for resource in (GPU, MIG):
        assert offers(loaded, resource) == offers(live, resource)
    assert free(live, MIG) == {"one": 1}


def offers(cluster: Cluster, resource: str) -> dict[str, tuple[Any, Any]]:
    return {each.name: (each.allocatable.get(resource), each.used.get(resource)) for each in cluster.nodes}


def test_an_equal_object_touches_no_node() -> None:
    store = DeviceStore()
    first = ResourceSlice(name="s", driver=DRIVER, pool="p")
    store.put(first)
    assert store.update(["one", "two"]) == ["one", "two"]
    store.put(ResourceSlice(name="s", driver=DRIVER, pool="p"))
    store.remove(DeviceClass(name="absent"))
    assert store.update(["one"]) == ()
    store.replace(Claim, [Claim("ml/c", (((DRIVER, "p", "a"), True),))])
    assert store.update(["one"]) == ["one"]
    store.replace(ResourceSlice, [])
    assert store.update(["one"]) == ["one"]
    plain = Node(name="one")
    assert store.offered(plain) is plain


def test_a_view_whose_publication_takes_too_long_is_stale(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    api.put("deviceclasses", GPUS)
    with viewing(api, NEEDS, clock=lambda: now[0], max_staleness_seconds=60.0) as view:
        settle(api, view)
        publish, begun, end = Store.publish, Event(), Event()

        def take_long(store: Store, *, devices: bool = True) -> None:
            begun.set()
            end.wait()
            publish(store, devices=devices)

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
    api.put("resourceslices", resource_slice("s", "one", ["a", "b"]))
    with viewing(api, NEEDS) as view:
        assert free(view.synced()) == {"one": 2}
        bad = resource_slice("s", "one", ["a", "a"])
        if deleted:
            # An event is sent on open watches only.
            api.wait_for(lambda: api.watching("resourceslices"))
            api.event("resourceslices", "DELETED", {**bad, "metadata": {"name": "s", "resourceVersion": "9999"}})
        else:
            api.put("resourceslices", bad)
        view.until(lambda cluster: free(cluster) == {})


def test_a_view_that_cannot_be_published_is_stale_until_it_can(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.cluster.live.FAILED_PUBLISH_SECONDS", 0.01)
    with viewing(api, NEEDS) as view:
        view.synced()
        publish, failing = Store.publish, [True]

        def fail(store: Store, *, devices: bool = True) -> None:
            if failing[0]:
                raise RuntimeError("a bug")
            publish(store, devices=devices)

        monkeypatch.setattr(Store, "publish", fail)
        api.put("nodes", node("three", {"cpu": 8}))
        view.until(lambda cluster: cluster.freshness is Freshness.STALE)
        failing[0] = False
        view.until(lambda cluster: cluster.known and len(cluster.nodes) == 3)


def test_a_reservation_waits_for_no_devices(api: ApiServer) -> None:
    store = Store()
    store.replace_nodes([Node(name="one")])
    store.put_device(ResourceSlice(name="s", driver=DRIVER, pool="p"))
    store.publish(devices=False)
    assert store.changed.is_set()
    store.publish()
    assert not store.changed.is_set()
