"""The store publishes the cluster of a file with the same objects, after any sequence of events."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import is_extended_resource, node_index_of, node_index_with_places
from rules_engine.cluster.nodes.reservations import (
    LIFETIME_SECONDS,
    MAX_PER_NAMESPACE,
    MAX_RELOCATIONS,
    MAX_RESERVATIONS,
    PodKey,
    Reservation,
    Reservations,
    ReservedAmounts,
    Room,
)
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.server.cluster.live import object_sink
from rules_engine.server.cluster.reading import (
    MAX_RESOURCES,
    HeldPod,
    Namespace,
    UnreadableError,
    read_namespace,
    read_node,
    read_pod,
)
from rules_engine.server.cluster.store import Store
from tests.support.apiserver import bound, namespace, node
from tests.support.cluster import reserve
from tests.support.evaluation import node as model_node
from tests.support.loading import load_view
from tests.support.placing import expression, lookups, requiring

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"

amounts = st.dictionaries(st.sampled_from([GPU, MIG, "cpu"]), st.integers(0, 3).map(str))
node_objects = st.builds(
    lambda name, has, labels, more: node(name, has, labels=labels, **more),
    st.sampled_from("abc"),
    amounts,
    st.dictionaries(st.just("zone"), st.sampled_from("xy")),
    st.fixed_dictionaries(
        {},
        optional={
            "ready": st.booleans(),
            "unschedulable": st.booleans(),
            "taints": st.just([{"key": "gpu", "effect": "NoSchedule"}]),
        },
    ),
)


@st.composite
def pod_objects(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"limits": draw(amounts)}}
        spec["initContainers"] = [sidecar, {"name": "i", "resources": {"requests": draw(amounts)}}]
    return bound(
        draw(st.sampled_from("pqr")),
        draw(st.sampled_from(["", "a", "b", "z"])),
        draw(amounts),
        phase=draw(st.sampled_from(["Running", "Pending", "Succeeded", "Failed"])),
        spec=spec,
    )


namespace_objects = st.builds(
    lambda name, team: namespace(name, team=team), st.sampled_from("mn"), st.sampled_from("xy")
)
objects = node_objects | pod_objects() | namespace_objects
SINKS: Mapping[str, Any] = {
    "Node": lambda store: object_sink(read_node, store.replace_nodes, store.set_node),
    "Pod": lambda store: object_sink(read_pod, store.replace_pods, store.set_pod),
    "Namespace": lambda store: object_sink(read_namespace, store.replace_namespaces, store.set_namespace),
}


def from_file(present: Mapping[tuple[str, str], dict[str, Any]]) -> Cluster:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.json"
        file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [node("always"), *present.values()]}))
        cluster, problems, _ = load_view(file)
        assert cluster is not None, problems
        return cluster


def plain(cluster: Cluster) -> tuple[Any, Any]:
    """Return a comparable cluster, without order and zero usage."""
    nodes = {
        n.name: (n.labels, n.taints, n.ready, n.unschedulable, n.allocatable, {k: v for k, v in n.used.items() if v})
        for n in cluster.nodes
    }
    return nodes, dict(cluster.namespaces)


@given(st.lists(st.tuples(objects, st.booleans(), st.booleans()), max_size=12), st.lists(objects, max_size=6))
def test_events_lead_to_the_cluster_of_an_equal_file(
    events: list[tuple[dict[str, Any], bool, bool]], start: list[dict[str, Any]]
) -> None:
    store = Store()
    sinks = {kind: sink(store) for kind, sink in SINKS.items()}
    present = {(o["kind"], o["metadata"]["name"]): o for o in start}
    for kind, sink in sinks.items():
        first = [node("always")] if kind == "Node" else []
        sink.replace([sink.read(o) for o in (*first, *(o for o in present.values() if o["kind"] == kind))])
    for object, gone, published in events:
        key = (object["kind"], object["metadata"]["name"])
        sink = sinks[object["kind"]]
        if not gone:
            present[key] = object
            sink.put(sink.read(object))
        elif present.pop(key, None) is not None:
            sink.remove(sink.read(object))
        if published:
            store.publish()
    store.publish()
    assert plain(store.cluster) == plain(from_file(present))
    # A new list changes nothing.
    before = store.cluster
    for kind, sink in sinks.items():
        first = [node("always")] if kind == "Node" else []
        sink.replace([sink.read(o) for o in (*first, *(o for o in present.values() if o["kind"] == kind))])
    assert plain(store.cluster) == plain(before)


def test_a_deletion_of_an_unknown_object_changes_nothing() -> None:
    store = Store()
    store.set_node(read_node(node("a")), gone=True)
    store.set_pod(read_pod(bound("p", "a", {GPU: 1})), gone=True)
    store.set_namespace(read_namespace(namespace("m")), gone=True)
    before = store.cluster
    store.publish()
    assert store.cluster is before


def test_declared_nodes_are_added_to_the_real_ones() -> None:
    store = Store([model_node("pool-x", {GPU: 8})])
    assert [n.name for n in store.cluster.nodes] == ["pool-x"]
    store.replace_nodes([read_node(node("a"))])
    assert [n.name for n in store.cluster.nodes] == ["a", "pool-x"]


def test_any_object_can_be_read_that_has_a_name() -> None:
    odds: list[dict[str, Any]] = [{}, {"labels": None}, {"labels": []}, {"labels": {"a": 1}}]
    for odd in odds:
        metadata: dict[str, Any] = {"metadata": {"name": "x", **odd}}
        assert read_node(metadata) == model_node("x")
        assert read_namespace(metadata) == Namespace("x", {})
        assert read_pod(metadata) == HeldPod(PodKey("/x", ""), "", ())
    odd_node: dict[str, Any] = {
        "metadata": {"name": "x"},
        "spec": {"taints": [7, {}, {"key": "k"}], "unschedulable": "yes"},
        "status": {"allocatable": {GPU: 4, "a/b": "four", "c/d": None, "e/f": True}, "conditions": {}},
    }
    read = read_node(odd_node)
    assert {key: str(value) for key, value in read.allocatable.items()} == {GPU: "4"}
    assert (len(read.taints), read.ready, read.unschedulable) == (2, True, False)


def test_a_pod_of_more_resources_than_a_node_has_is_left_out() -> None:
    """Such a pod cannot run, and thousands of them would fill the memory."""
    amounts = {f"example.com/{number}": 1 for number in range(MAX_RESOURCES + 1)}
    assert read_pod(bound("many", "", amounts)).usage == ()
    with pytest.raises(UnreadableError, match="ml/many: more than 64 resources"):
        read_pod(bound("many", "nowhere", amounts))
    del amounts["example.com/0"]
    assert len(read_pod(bound("many", "nowhere", amounts)).usage) == MAX_RESOURCES


ANYWHERE = -1
"""The set of all nodes."""


def reservation(name: str, namespace: str = "ml") -> Reservation:
    return Reservation(
        key=PodKey(f"{namespace}/{name}", name), node="a", nodes=ANYWHERE, usage=((GPU, 1),), expires=10.0
    )


def requesting(name: str, gpus: int = 1, resource: str = GPU, **spec: Any) -> tuple[PodKey, Pod]:
    raw = bound(name, "", {resource: gpus}, spec=spec)
    return PodKey(f"ml/{name}", f"uid-of-{name}"), Pod.parse(raw)


def free(store: Store, resource: str = GPU) -> dict[str, str]:
    return {n.name: str(n.available(resource)) for n in store.cluster.nodes}


def store_of(*nodes: dict[str, Any]) -> Store:
    store = Store()
    store.replace_nodes([read_node(one) for one in nodes])
    return store


def test_a_reservation_reduces_free_devices_at_once() -> None:
    store = store_of(node("a", {GPU: 2}))
    reserve(store, *requesting("p"), 0.0)
    assert free(store) == {"a": "1"}
    reserve(store, *requesting("p"), 1.0)
    assert free(store) == {"a": "1"}, "the same pod again"
    reserve(store, *requesting("q"), 1.0)
    assert free(store) == {"a": "0"}
    reserve(store, *requesting("r"), 1.0)
    assert (free(store), store.reservations) == ({"a": "0"}, 2), "who has to wait holds nothing"


def test_a_reservation_is_on_the_tightest_node_that_fits() -> None:
    taint = {"key": "x", "effect": "NoSchedule"}
    store = store_of(
        node("cordoned", {GPU: 1}, unschedulable=True),
        node("down", {GPU: 1}, ready=False),
        node("tainted", {GPU: 1}, taints=[taint]),
        node("big", {GPU: 8}),
        node("small", {GPU: 2}),
        node("other", {MIG: 9}),
    )
    reserve(store, *requesting("p"), 0.0)
    assert {name for name, left in free(store).items() if left == "1"} == {"cordoned", "down", "tainted", "small"}
    reserve(store, *requesting("q", nodeSelector={"kubernetes.io/hostname": "big"}), 0.0)
    assert free(store)["big"] == "7"


def test_a_reservation_ends_with_a_bound_gone_or_finished_pod() -> None:
    store = store_of(node("a", {GPU: 4}), node("b", {GPU: 8}))
    for name in ("bound", "gone", "finished", "waiting"):
        reserve(store, *requesting(name), 0.0)
    assert free(store) == {"a": "0", "b": "8"}
    store.set_pod(read_pod(bound("bound", "b", {GPU: 1})))
    store.set_pod(read_pod(bound("gone", "", {GPU: 1})), gone=True)
    store.set_pod(read_pod(bound("finished", "", {GPU: 1}, phase="Failed")))
    store.set_pod(read_pod(bound("waiting", "", {GPU: 1})))
    store.publish()
    assert (free(store), store.reservations) == ({"a": "3", "b": "7"}, 1)


def test_another_pod_of_the_same_name_ends_no_reservation() -> None:
    store = store_of(node("a", {GPU: 4}))
    store.set_pod(read_pod(bound("p", "a", {GPU: 1}, uid="old")))
    reserve(store, *requesting("p"), 0.0)
    store.set_pod(read_pod(bound("p", "a", {GPU: 1}, uid="old")), gone=True)
    store.publish()
    assert (free(store), store.reservations) == ({"a": "3"}, 1)


def test_a_list_ends_the_reservations_of_the_pods_in_it_only() -> None:
    store = store_of(node("a", {GPU: 4}))
    reserve(store, *requesting("p"), 0.0)
    reserve(store, *requesting("q"), 0.0)
    store.replace_pods([read_pod(bound("p", "a", {GPU: 1})), read_pod(bound("q", "", {GPU: 1}))])
    assert (free(store), store.reservations) == ({"a": "2"}, 1)


def test_a_reservation_ends_after_its_lifetime() -> None:
    store = store_of(node("a", {GPU: 4}))
    reserve(store, *requesting("p"), 0.0)
    store.expire(LIFETIME_SECONDS - 1)
    assert store.reservations == 1
    reserve(store, *requesting("q"), LIFETIME_SECONDS)
    assert (free(store), store.reservations) == ({"a": "3"}, 1)


CALL = PodKey("ml/@controller", "id")


def test_devices_of_a_pod_between_mutate_and_validate_are_not_free() -> None:
    store = store_of(node("a", {GPU: 4}))
    key, pod = requesting("p")
    reserve(store, CALL, pod, 0.0)
    assert (free(store), store.reservations) == ({"a": "3"}, 1)
    assert store.rename(CALL, key, 1.0)
    assert (free(store), store.reservations) == ({"a": "3"}, 1)
    assert not store.rename(CALL, key, 1.0)
    reserve(store, CALL, pod, 2.0)
    store.replace_pods([])
    assert free(store) == {"a": "2"}
    assert (store.holds(key, 11.0), store.holds(CALL, 11.0)) == (False, True)
    store.publish()
    assert (free(store), store.reservations) == ({"a": "3"}, 1)


def test_a_second_call_for_a_pod_does_not_see_its_own_devices() -> None:
    store = store_of(node("a", {GPU: 4}), node("b", {MIG: 1}))
    reserve(store, CALL, requesting("p")[1], 0.0)
    own = store.without(CALL)
    assert {each.name: str(each.available(GPU)) for each in own.nodes} == {"a": "4", "b": "0"}
    assert [*node_index_of(own).nodes.values()] == [*own.nodes]
    assert free(store) == {"a": "3", "b": "0"}, "other decisions do"
    reserve(store, CALL, requesting("p", 4)[1], 1.0)
    assert free(store) == {"a": "0", "b": "0"}, "in place of what it held"
    assert store.without(PodKey("ml/@other", "id")) is store.cluster


def test_a_reservation_moves_off_a_node_that_an_unexpected_pod_fills() -> None:
    store = store_of(*(node(name, {GPU: 1}) for name in "abc"))
    for name in ("o", "p", "q"):
        reserve(store, *requesting(name), 0.0)
    assert free(store) == {"a": "0", "b": "0", "c": "0"}
    store.set_pod(read_pod(bound("p", "c", {GPU: 1})))
    store.publish()
    assert free(store) == {"a": "0", "b": "0", "c": "0"}
    store.set_pod(read_pod(bound("other", "b", {GPU: 1})))
    store.publish()
    assert free(store) == {"a": "0", "b": "-1", "c": "0"}, "there is no other node"


def test_only_as_many_reservations_move_as_a_node_lacks() -> None:
    store = store_of(node("a", {GPU: 2}), node("b", {GPU: 3}))
    for name in ("p", "q"):
        reserve(store, *requesting(name), 0.0)
    store.set_pod(read_pod(bound("other", "a", {GPU: 1})))
    store.publish()
    assert free(store) == {"a": "0", "b": "2"}


def test_a_node_that_loses_all_its_devices_loses_all_reservations() -> None:
    """Each moves to the tightest node that has room, of several nodes that lose theirs at once."""
    store = store_of(node("a", {GPU: 40}), node("b", {GPU: 41}), node("c", {GPU: 100}))
    for number in range(81):
        reserve(store, *requesting(f"p{number}"), 0.0)
    assert free(store) == {"a": "0", "b": "0", "c": "100"}
    for name in "ab":
        store.set_node(read_node(node(name, {})))
    store.publish()
    assert free(store) == {"a": "0", "b": "0", "c": "19"}


def test_only_so_many_reservations_move_in_one_update() -> None:
    devices = MAX_RELOCATIONS + 10
    store = store_of(node("a", {GPU: devices}), node("b", {GPU: 2 * devices}))
    for number in range(devices):
        key, requested = requesting(f"p{number}")
        reserve(store, PodKey(f"ns{number % 2}/{key.name}", key.uid), requested, 0.0)
    store.set_node(read_node(node("a", {})))
    store.publish()
    assert free(store) == {"a": "-10", "b": str(2 * devices - MAX_RELOCATIONS)}


class Holding(Reservations):
    """Reservations with the sum of what they hold."""

    def __init__(self) -> None:
        super().__init__(self._count)
        one = model_node("a", {GPU: 1})
        self.room.update("a", one, Cluster(nodes=(one,)))
        self.held = 0

    def add(self, reservation: Reservation) -> None:
        self.reserve(reservation.key, reservation.usage, reservation.nodes, reservation.expires)

    def _count(self, node: str, usage: ReservedAmounts, sign: int) -> None:
        assert (node, usage) == ("a", ((GPU, 1),))
        self.held += sign


def test_the_oldest_reservation_over_the_maximum_is_dropped() -> None:
    reservations = Holding()
    made = [reservation(f"p{n}", f"team-{n % 50}") for n in range(MAX_RESERVATIONS + 1)]
    for one in made:
        reservations.add(one)
    assert list(reservations) == made[1:]
    assert reservations.held == MAX_RESERVATIONS


def test_the_oldest_reservation_of_a_full_namespace_is_dropped() -> None:
    reservations = Holding()
    other = reservation("first", "other")
    made = [reservation(f"p{n}") for n in range(MAX_PER_NAMESPACE + 2)]
    for one in (other, *made):
        reservations.add(one)
    assert list(reservations) == [other, *made[2:]]
    for one in made[1:]:
        reservations.drop(one.key)
    assert (list(reservations), reservations.held) == ([other], 1)
    for one in made[:MAX_PER_NAMESPACE]:
        reservations.add(one)
    assert reservations.held == len(reservations) == 1 + MAX_PER_NAMESPACE


def test_expired_reservations_do_not_count() -> None:
    reservations = Holding()
    made = [reservation(f"p{n}") for n in range(MAX_PER_NAMESPACE)]
    for _ in range(2):
        for one in made:
            reservations.add(one)
        reservations.expire(9.0)
        assert list(reservations) == made
        reservations.expire(10.0)
        assert (list(reservations), reservations.held) == ([], 0)


def test_a_dropped_reservation_frees_its_devices() -> None:
    store = store_of(node("a", {GPU: MAX_PER_NAMESPACE + 2}))
    for number in range(MAX_PER_NAMESPACE + 1):
        reserve(store, *requesting(f"p{number}"), 0.0)
    assert free(store) == {"a": "2"}


def test_a_reservation_is_on_a_node_where_the_pod_can_run() -> None:
    store = store_of(node("a", {GPU: 1}), node("b", {GPU: 4}, labels={"pool": "x"}), node("c", {GPU: 8}))
    reserve(store, *requesting("p", nodeSelector={"pool": "x"}), 0.0)
    assert free(store) == {"a": "1", "b": "3", "c": "8"}


def test_a_view_is_indexed_before_a_decision_reads_it() -> None:
    store = store_of(node("a", {GPU: 1}, labels={"zone": "x"}))
    assert node_index_with_places(store.cluster) is node_index_of(store.cluster)
    assert node_index_with_places(store.cluster).places.labels["zone"].present == 1
    store.replace_nodes([read_node(node("b", {GPU: 1}))])
    assert [*node_index_of(store.cluster).places.labels] == ["kubernetes.io/hostname"]


def test_a_reservation_reads_only_the_name_of_each_node() -> None:
    """Regression test: evaluating each term for each node delayed events."""
    store = store_of(*[node(f"n{number}", {GPU: 1}, labels={"host": f"h{number}"}) for number in range(500)])
    terms = [expression("host", "In", f"no-{number}") for number in range(1_000)]
    wanted = requesting("p", **requiring(*terms))
    with lookups() as counted:
        reserve(store, *wanted, 0.0)
    assert store.reservations == 0
    assert counted[0] <= 1_000 + 500


def test_a_node_is_skipped_at_the_first_missing_resource() -> None:
    class Counting(dict[str, int]):
        calls = 0

        def get(self, key: str, default: Any = None) -> Any:
            Counting.calls += 1
            return super().get(key, default)

    room = Room()
    one = model_node("a", {GPU: 8})
    room.update("a", one, Cluster(nodes=(one,)))
    demand = tuple((f"example.com/{number:05}", 1) for number in range(10_000))
    [vector] = room._free
    room._free[vector] = Counting(room._free[vector])
    assert room.tightest(demand, ANYWHERE) is None
    assert Counting.calls == 1


def test_a_namespace_reserves_at_most_its_share_for_a_short_time() -> None:
    store = store_of(node("a", {GPU: 1000}))
    for number in range(1000):
        reserve(store, *requesting(f"p{number}"), 0.0)
    assert free(store) == {"a": str(1000 - MAX_PER_NAMESPACE)}
    store.expire(10.0)
    store.publish()
    assert (free(store), store.reservations) == ({"a": "1k"}, 0)


def test_room_finds_the_tightest_fit() -> None:
    room = Room()
    has = {"a": {GPU: 8, "cpu": 64}, "b": {GPU: 4}, "c": {GPU: 4, MIG: 2}, "d": {MIG: 1}}
    on = Cluster(nodes=tuple(model_node(name, amounts) for name, amounts in has.items()))
    for one in on.nodes:
        room.update(one.name, one, on)
    two = ((GPU, 2 * 10**9),)
    assert room.tightest(two, ANYWHERE) == "b"
    assert room.tightest(two, ANYWHERE & ~node_index_of(on).by_name.values["b"]) == "c"
    assert room.tightest(two, 0) is None
    room.update("b", None, on)
    room.update("c", model_node("c", {GPU: 1}), on)
    assert room.tightest(two, ANYWHERE) == "a"
    assert room.tightest(((GPU, 9 * 10**9),), ANYWHERE) is None


def test_room_does_not_visit_each_node() -> None:
    """Regression test: pods of one pool were compared with all nodes of the pools before it, for each reservation."""

    class Counting(dict[int, str]):
        calls = 0

        def __getitem__(self, key: int) -> str:
            Counting.calls += 1
            return super().__getitem__(key)

    on = Cluster(nodes=tuple(model_node(f"n{number:04}", {GPU: 8}) for number in range(1_000)))
    room = Room()
    for one in on.nodes:
        room.update(one.name, one, on)
    room._names = Counting(room._names)
    assert room.tightest(((GPU, 10**9),), 1 << 999) == "n0999"
    assert room.tightest(((GPU, 10**9),), 0) is None
    assert Counting.calls == 1


def test_extended_resources_have_a_domain() -> None:
    others = ("cpu", "memory", "hugepages-2Mi", "kubernetes.io/batch-cpu", f"requests.{GPU}")
    assert [name for name in (GPU, *others) if is_extended_resource(name)] == [GPU]
