"""Extended resources that a DeviceClass serves: the filter DynamicResources, and the devices of bound pods."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import numbers_of
from rules_engine.cluster.scheduling import Filter, KubeScheduler
from rules_engine.cluster.scheduling.cycle import Bound, BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.filters import devices as filters
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from tests.support.api import (
    GPU,
    NOW,
    Object,
    by_kind,
    card_with_partitions,
    cards,
    device,
    device_class,
    node,
    pod,
    resource_claim,
    resource_slice,
    taint_rule,
)
from tests.support.cycles import cycle
from tests.support.naive_devices import consumption, first_that_fit, requests_of
from tests.support.scheduling import REQUIRED, usable_devices

MIG = "nvidia.com/mig-1g.5gb"
GPUS = device_class("gpu", GPU, "gpu")
MIGS = device_class("mig", MIG, "mig")
PREFIX = 'running "DynamicResources" filter plugin: '


def _cycle(nodes: Sequence[Object], *objects: Object) -> SchedulingCycle:
    return cycle(nodes, devices=usable_devices(by_kind(*objects)))


def _gpus(count: int = 1, resource: str = GPU, **spec: Any) -> SchedulablePod:
    return SchedulablePod.of(pod(requests={resource: str(count)}, **spec))


def _containers(*requests: dict[str, str], init: Sequence[Object] = (), **spec: Any) -> SchedulablePod:
    containers = [{"name": f"c{number}", "resources": {"requests": each}} for number, each in enumerate(requests)]
    return SchedulablePod.of(pod(containers=containers, initContainers=[*init], **spec))


def _init(count: int, *, sidecar: bool = False) -> Object:
    restart = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": "i", "resources": {"requests": {GPU: str(count)}}, **restart}


def _message(subject: SchedulingCycle, made: SchedulablePod) -> str:
    return subject.explain(made).message()


def _fill(subject: SchedulingCycle, made: SchedulablePod) -> list[BoundPod]:
    """Schedule pods until one finds no node."""
    bound: list[BoundPod] = []
    while (found := subject.schedule(f"default/p{len(bound)}", made, 0)) is not None:
        bound.append(BoundPod(f"default/p{len(bound)}", made, found.node, 0))
    return bound


def test_pods_run_until_all_cards_are_taken_and_get_those_of_pods_that_leave() -> None:
    subject = _cycle([node("a"), node("b"), node("c")], GPUS, cards("a", 2), cards("b", 1))
    bound = _fill(subject, _gpus())
    assert sorted(each.node for each in bound) == [0, 0, 1]
    assert _message(subject, _gpus()) == "0/3 nodes are available: 3 cannot allocate all claims."
    last = next(each for each in bound if each.node == 1)
    subject.release(last)
    assert subject.schedule("default/new", _gpus(), 0) == Bound(1, equal=0b10)
    assert subject.schedule("default/newer", _gpus(), 0) is None


def test_a_node_without_devices_is_excluded_only_by_the_last_filter() -> None:
    subject = _cycle([node("a", taints=["x=y:NoSchedule"]), node("b")], GPUS)
    answer = subject.explain(_gpus())
    assert (
        answer.message() == "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) had untolerated taint(s)."
    )
    assert answer.excluded[Filter.DYNAMIC_RESOURCES] == {"cannot allocate all claims": 0b10}
    assert (answer.failing[Filter.DYNAMIC_RESOURCES], answer.resolvable, answer.waiting_for) == (
        {"cannot allocate all claims": 0b10},
        0,
        (),
    )


def test_a_pool_that_is_invalid_on_another_node_is_counted_on_every_node() -> None:
    counting, consuming = card_with_partitions("b")
    consuming["spec"]["devices"][1]["consumesCounters"][0]["counterSet"] = "absent"
    subject = _cycle([node("a"), node("b"), node("c")], GPUS, cards("c", 1), counting, consuming)
    assert subject.explain(_gpus()).feasible_nodes == ("c",)
    assert _message(subject, _gpus(2)) == "0/3 nodes are available: 3 invalid resource pools were encountered."


def test_without_a_class_the_resource_is_insufficient() -> None:
    subject = _cycle([node("a")], cards("a", 2), MIGS)
    assert _message(subject, _gpus()) == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_every_class_serves_its_implicit_resource() -> None:
    subject = _cycle([node("a")], device_class("any"), cards("a", 2))
    assert len(_fill(subject, _gpus(1, "deviceclass.resource.kubernetes.io/any"))) == 2


def test_a_device_plugin_keeps_drivers_out_of_its_node() -> None:
    nodes = [node("plugin", {GPU: "1"}), node("driver", {GPU: "0"})]
    subject = _cycle(nodes, GPUS, cards("plugin", 4), cards("driver", 1))
    assert sorted(each.node for each in _fill(subject, _gpus())) == [0, 1]
    message = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 cannot allocate all claims."
    assert _message(subject, _gpus()) == message


def test_a_node_is_served_by_drivers_once_its_device_plugin_stops() -> None:
    nodes = [node("a", {GPU: "1"})]
    view = ClusterObjects({"Node": [*nodes, node("b")]}, now=NOW).view
    subject = _cycle(nodes, GPUS, cards("a", 2))
    stopped = ClusterObjects({"Node": [node("a", {GPU: "0"})]}, now=NOW).view.nodes[0]
    assert _message(subject, _gpus(2)) == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    subject.change_node(0, stopped)
    assert subject.explain(_gpus(2)).feasible_nodes == ("a",)
    assert subject.explain(_containers({GPU: "3"})).feasible == 0
    subject.change_node(0, view.nodes[0])
    assert _message(subject, _gpus(2)) == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_drivers_serve_more_resources_of_a_node_once_its_device_plugin_stops() -> None:
    plugin, stopped = ClusterObjects({"Node": [node("a", {GPU: "1"}), node("a", {GPU: "0"})]}, now=NOW).view.nodes
    subject = _cycle([node("a", {GPU: "1"})], GPUS, MIGS, resource_slice("a", device("d", "mig")))
    both = _containers({GPU: "1", MIG: "1"})
    assert subject.explain(both).feasible == 1
    subject.change_node(0, stopped)
    assert _message(subject, both) == "0/1 nodes are available: 1 cannot allocate all claims."
    subject.change_node(0, plugin)
    assert subject.explain(both).feasible == 1


def test_profiles_share_the_counters_of_a_card() -> None:
    subject = _cycle([node("a")], GPUS, MIGS, *card_with_partitions("a"))
    card = subject.schedule("default/card", _gpus(), 0)
    assert card == Bound(0, equal=0b1)
    assert _fill(subject, _gpus(1, MIG)) == []
    subject.release(BoundPod("default/card", _gpus(), 0, 0))
    bound = _fill(subject, _gpus(2, MIG))
    assert len(bound) == 3
    assert subject.schedule("default/card", _gpus(), 0) is None
    for each in bound:
        subject.release(each)
    assert subject.schedule("default/card", _gpus(), 0) == Bound(0, equal=0b1)


def test_devices_that_several_nodes_reach_are_taken_once() -> None:
    anywhere = resource_slice("net", device("d0"), device("d1"), allNodes=True)
    subject = _cycle([node("a"), node("b")], GPUS, anywhere)
    assert subject.explain(_gpus(2)).feasible == 2
    bound = _fill(subject, _gpus())
    assert sorted(each.node for each in bound) == [0, 1]
    assert _message(subject, _gpus()) == "0/2 nodes are available: 2 cannot allocate all claims."
    assert subject.devices.neighbours(0) == (1,)
    subject.release(bound[0])
    assert subject.explain(_gpus()).feasible == 2


def test_devices_of_claims_are_in_use_until_their_pod_leaves() -> None:
    claim = resource_claim("c", "gpu-0", reserved="old", extended=True)
    subject = _cycle([node("a")], GPUS, cards("a", 2), claim)
    claimed = BoundPod("ml/old", _gpus(), 0, 0)
    subject.bind(claimed)
    assert subject.explain(_gpus(2)).feasible == 0
    assert subject.explain(_gpus()).feasible == 1
    subject.release(claimed)
    assert subject.explain(_gpus(2)).feasible == 1


def test_a_bound_pod_that_fits_nowhere_takes_nothing() -> None:
    subject = _cycle([node("a")], GPUS, cards("a", 2))
    for name, count in (("three", 3), ("many", 33)):
        subject.bind(BoundPod(f"default/{name}", _gpus(count), 0, 0))
    assert subject.explain(_gpus(2)).feasible == 1


def test_preemption_does_not_free_devices() -> None:
    subject = _cycle([node("a")], GPUS, cards("a", 1))
    low = subject.schedule("default/low", _gpus(), 0)
    assert low == Bound(0, equal=0b1)
    assert subject.schedule("default/high", _gpus(priority=10), 0) is None


def test_preemption_frees_other_resources_where_devices_are_free() -> None:
    nodes = [node("a", {"cpu": "1"}), node("b", {"cpu": "1"})]
    subject = _cycle(nodes, GPUS, cards("a", 1))
    cpu = SchedulablePod.of(pod(requests={"cpu": "1"}))
    for name, number in (("x", 0), ("y", 1)):
        subject.bind(BoundPod(f"default/{name}", cpu, number, 0))
    high = SchedulablePod.of(pod(requests={"cpu": "1", GPU: "1"}, priority=10))
    assert _message(subject, high) == "0/2 nodes are available: 2 Insufficient cpu."
    found = subject.schedule("default/high", high, 0)
    assert found is not None
    assert (found.node, [victim.name for victim in found.victims]) == (0, ["default/x"])


def test_a_dry_run_with_all_filters_frees_no_devices() -> None:
    ports = [{"hostPort": 80, "containerPort": 80}]
    subject = _cycle([node("a")], GPUS, cards("a", 1))
    subject.bind(BoundPod("default/low", SchedulablePod.of(pod(ports=ports, requests={GPU: "1"})), 0, 0))
    assert (
        subject.schedule("default/no", SchedulablePod.of(pod(ports=ports, requests={GPU: "1"}, priority=1)), 0) is None
    )
    found = subject.schedule("default/yes", SchedulablePod.of(pod(ports=ports, priority=1)), 0)
    assert found is not None
    assert [victim.name for victim in found.victims] == ["default/low"]
    assert subject.explain(_gpus()).feasible == 1


def test_init_containers_use_the_devices_of_later_containers() -> None:
    subject = _cycle([node("a")], GPUS, cards("a", 3))
    assert subject.explain(_containers({GPU: "1"}, {GPU: "1"}, init=[_init(3)])).feasible == 1
    assert subject.explain(_containers({GPU: "2"}, {GPU: "1"}, init=[_init(3), _init(2)])).feasible == 1
    assert subject.explain(_containers({GPU: "2"}, {GPU: "2"}, init=[_init(1)])).feasible == 0
    assert subject.explain(_containers({GPU: "1"}, init=[_init(2), _init(4)])).feasible == 0
    assert subject.explain(_containers({GPU: "1"}, init=[_init(3), _init(2)])).feasible == 1


def test_a_sidecar_keeps_its_devices() -> None:
    subject = _cycle([node("a")], GPUS, cards("a", 3))
    assert subject.explain(_containers({GPU: "2"}, init=[_init(1, sidecar=True)])).feasible == 1
    # An init container does not use those of an earlier sidecar, but those of a later one.
    after = _containers({GPU: "1"}, init=[_init(1, sidecar=True), _init(3)])
    before = _containers({GPU: "1"}, init=[_init(2), _init(1, sidecar=True)])
    assert (subject.explain(after).feasible, subject.explain(before).feasible) == (0, 1)


def test_requests_are_allocated_in_the_order_of_their_names_as_text() -> None:
    # Container 10 comes before container 2, and takes the first device, which suits both.
    classes = [
        device_class(name, f"x.com/{name}", f"device.attributes['gpu.nvidia.com'].type in ['both', '{name}']")
        for name in ("left", "right")
    ]
    slices = resource_slice("a", device("d0", "both"), device("d1", "left"), device("d2", "right"))
    requests: list[dict[str, str]] = [{} for _ in range(11)]
    requests[2], requests[10] = {"x.com/left": "1"}, {"x.com/right": "1"}
    subject = _cycle([node("a")], *classes, slices)
    assert subject.schedule("default/p", _containers(*requests), 0) == Bound(0, equal=0b1)
    assert {key[2] for key in subject.devices.offers.allocated} == {"d0", "d1"}


def test_requests_have_the_position_of_their_resource() -> None:
    made = _containers({"cpu": "1", GPU: "1", "memory": "1Gi"}, {"a.com/x": "0", GPU: "1"}, init=[_init(1)])
    assert [each.name for each in made.requirements.devices] == [
        "container-0-request-0",
        "container-1-request-2",
        "container-2-request-1",
    ]


def test_limits_count_as_requests_and_parts_of_devices_do_not() -> None:
    subject = _cycle([node("a")], GPUS, cards("a", 1))
    limited = SchedulablePod.of(pod(containers=[{"name": "c", "resources": {"limits": {GPU: "2"}}}]))
    half = SchedulablePod.of(pod(requests={GPU: "500m"}))
    assert (subject.explain(limited).feasible, subject.explain(half).feasible) == (0, 1)
    assert half.requirements.devices == ()


def test_a_selector_that_fails_ends_the_attempt_on_all_nodes() -> None:
    failing = device_class("gpu", GPU, "device.attributes['gpu.nvidia.com'].model == 'x'")
    suits = device("d", attributes={"model": {"string": "x"}})
    nodes = [node("a"), node("b"), node("c", taints=["x=y:NoSchedule"])]
    subject = _cycle(nodes, failing, resource_slice("a", suits), cards("b", 1), cards("c", 1))
    answer = subject.explain(_gpus(priority=1))
    assert answer.message() == answer.failure
    assert answer.failure.startswith(
        f"{PREFIX}a selector of DeviceClass gpu fails on device gpu-0 of gpu.nvidia.com: "
        "device.attributes['gpu.nvidia.com'].model: no such key"
    )
    assert (answer.feasible, dict(answer.failing), answer.resolvable) == (0, {}, 0)
    assert subject.schedule("default/p", _gpus(priority=1), 0) is None
    # A pod that cannot run there does not fail.
    assert subject.schedule("default/p", _gpus(nodeSelector={"kubernetes.io/hostname": "a"}), 0) == Bound(0, equal=0b1)


def test_a_failing_selector_is_not_evaluated_for_a_device_in_use() -> None:
    failing = device_class("gpu", GPU, "device.attributes['gpu.nvidia.com'].model == 'x'")
    suits = device("d0", attributes={"model": {"string": "x"}})
    slices = resource_slice("a", suits, device("d1", "mig"))
    subject = _cycle([node("a")], failing, device_class("any", MIG, "true"), slices)
    assert subject.schedule("default/p", _gpus(), 0) == Bound(0, equal=0b1)
    assert subject.explain(_gpus()).failure
    assert subject.schedule("default/q", _gpus(1, MIG), 0) == Bound(0, equal=0b1)
    assert _message(subject, _gpus()) == "0/1 nodes are available: 1 cannot allocate all claims."


@pytest.mark.parametrize("terminating", [False, True])
def test_victims_are_chosen_whatever_happens_on_other_nodes(terminating: bool) -> None:
    # Without the victim the pod passes the other filters on both nodes, and the last one fails on b.
    failing = device_class("gpu", GPU, "device.attributes['gpu.nvidia.com'].model == 'x'")
    suits = resource_slice("a", device("d", attributes={"model": {"string": "x"}}))
    nodes = [node(name, labels={"zone": "z"}) for name in ("a", "b")]
    subject = _cycle(nodes, failing, suits, cards("b", 1))
    low = pod(labels={"app": "x"})
    if terminating:
        low["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    subject.bind(BoundPod("default/low", SchedulablePod.of(low), 0, 0))
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    high = _gpus(priority=1, affinity={"podAntiAffinity": {REQUIRED: [term]}})
    found = subject.schedule("default/high", high, 0)
    assert found is not None
    assert (found.node, len(found.victims), found.waits) == (0, 1, False)


def test_preemption_passes_over_a_node_where_a_selector_fails() -> None:
    failing = device_class("gpu", GPU, "device.attributes['gpu.nvidia.com'].model == 'x'")
    subject = _cycle([node("a", {"cpu": "1"})], failing, cards("a", 1))
    subject.bind(BoundPod("default/low", SchedulablePod.of(pod(requests={"cpu": "1"})), 0, 0))
    high = SchedulablePod.of(pod(requests={"cpu": "1", GPU: "1"}, priority=1))
    assert _message(subject, high) == "0/1 nodes are available: 1 Insufficient cpu."
    assert subject.schedule("default/high", high, 0) is None


def test_more_than_32_devices_end_the_attempt() -> None:
    nodes = [node("a"), node("b", {GPU: "64"})]
    subject = _cycle(nodes, GPUS, cards("a", 40))
    assert subject.explain(_gpus(32)).feasible == 2
    message = f"{PREFIX}number of requested devices 33 of DeviceClass gpu exceeds the claim limit of 32"
    assert _message(subject, _gpus(33)) == message
    two = _containers({GPU: "16"}, {GPU: "17"})
    assert _message(subject, two) == message
    assert subject.schedule("default/p", _gpus(33), 0) is None


def test_a_search_of_too_many_steps_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_STEPS", 70)
    subject = _cycle([node("a")], MIGS, *card_with_partitions("a", 12))
    assert subject.explain(_gpus(7, MIG)).feasible == 1
    assert _message(subject, _gpus(8, MIG)) == (
        f"{PREFIX}it takes too many steps to find out which devices fit together"
    )


def test_too_few_devices_are_found_without_a_search_of_all_combinations() -> None:
    taints = [{"key": "x", "effect": "NoSchedule"}]
    tainted = [device(f"tainted-{number}", taints=taints) for number in range(10)]
    subject = _cycle([node("a")], GPUS, resource_slice("a", *cards("a", 30)["spec"]["devices"], *tainted))
    for made in (_gpus(31), _containers({GPU: "16"}, {GPU: "15"})):
        assert _message(subject, made) == "0/1 nodes are available: 1 cannot allocate all claims."


def test_the_cache_of_different_pods_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_KINDS", 2)
    subject = _cycle([node("a")], GPUS, cards("a", 3))
    for _ in range(2):
        assert [subject.explain(_gpus(count)).feasible for count in range(1, 5)] == [1, 1, 1, 0]


def test_pools_without_all_slices_and_invalid_ones_have_no_devices() -> None:
    partial = resource_slice("a", device("d"), count=2)
    twice = [resource_slice("b", device("d"), count=2, name=name) for name in ("b0", "b1")]
    subject = _cycle([node("a"), node("b")], GPUS, partial, *twice)
    assert _message(subject, _gpus()) == (
        "0/2 nodes are available: 1 cannot allocate all claims, 1 invalid resource pools were encountered."
    )


def test_the_taint_of_a_rule_keeps_pods_away_and_rules_that_were_not_read_are_named() -> None:
    drained = _cycle([node("a"), node("b")], GPUS, cards("a", 1), cards("b", 1), taint_rule("r", pool="a"))
    assert [each.node for each in _fill(drained, _gpus())] == [1]
    objects = ClusterObjects(by_kind(GPUS, cards("a", 1)), absent=frozenset(["DeviceTaintRule"]))
    subject = cycle([node("a")], devices=objects.devices)
    assert subject.explain(_gpus()).not_modelled == ("devicetaintrules, which were not read",)
    assert subject.explain(SchedulablePod.of(pod())).not_modelled == ()
    assert objects.view.unread == {GPU, "deviceclass.resource.kubernetes.io/gpu"}


@pytest.mark.parametrize(("policy", "pods"), [({}, 1), ({"requestPolicy": {"default": "1"}}, 4)])
def test_pods_share_a_device_until_its_capacity_is_consumed(policy: Object, pods: int) -> None:
    capacity = {"shares": {"value": "4", **policy}}
    shared = resource_slice("a", device("d", allowMultipleAllocations=True, capacity=capacity))
    subject = _cycle([node("a")], GPUS, shared)
    bound = _fill(subject, _gpus())
    assert len(bound) == pods
    subject.release(bound[0])
    assert len(_fill(subject, _gpus())) == 1


def test_without_capacities_any_number_of_pods_share_a_device() -> None:
    subject = _cycle([node("a")], GPUS, resource_slice("a", device("d", allowMultipleAllocations=True)))
    for number in range(9):
        assert subject.schedule(f"default/p{number}", _gpus(), 0) is not None
    assert subject.explain(_gpus(2)).feasible == 0, "a request has a device once"


def test_a_share_that_another_claim_consumes_is_in_use() -> None:
    capacity = {"shares": {"value": "4", "requestPolicy": {"default": "1"}}}
    shared = resource_slice("a", device("d", allowMultipleAllocations=True, capacity=capacity))
    claim = resource_claim("c", "d")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": "x", "consumedCapacity": {"shares": "3"}}
    subject = _cycle([node("a")], GPUS, shared, claim)
    assert len(_fill(subject, _gpus())) == 1


def test_conditional_devices_are_named() -> None:
    conditional = resource_slice("b", device("d", "mig", bindingConditions=["x"]))
    broken = device_class("broken", "x.com/broken", "device.attributes['gpu.nvidia.com'].model == 'x'")
    subject = _cycle([node("a")], GPUS, MIGS, broken, conditional)
    assert subject.explain(_gpus()).not_modelled == ()
    assert subject.explain(_gpus(1, MIG)).not_modelled == ("binding conditions of devices",)
    assert subject.explain(_gpus(1, "x.com/broken")).not_modelled == ("binding conditions of devices",)
    assert subject.explain(SchedulablePod.of(pod())).not_modelled == ()


def test_without_classes_nothing_is_computed() -> None:
    view = ClusterObjects({"Node": [node("a")]}, now=NOW).view
    without = KubeScheduler(view.nodes, {})
    assert without.devices.without_served(view.nodes[0]) is view.nodes[0]
    assert without.devices.having(_gpus().requirements, 1) == 1
    assert without.devices.neighbours(0) == ()


KINDS = {GPU: frozenset({"gpu", "both"}), MIG: frozenset({"mig", "both"})}


def _random_pod(random: Random) -> Object:
    def container(number: int) -> Object:
        names = random.sample([GPU, MIG, "cpu"], random.randrange(3))
        requests = {name: str(random.choice([0, 1, 1, 2])) for name in names}
        return {"name": f"c{number}", "resources": {"requests": requests}}

    initial = [container(number) for number in range(random.randrange(3))]
    for each in initial:
        if random.random() < 0.4:
            each["restartPolicy"] = "Always"
    return pod(containers=[container(number) for number in range(random.randrange(1, 3))], initContainers=initial)


@given(st.randoms(use_true_random=True))
def test_allocations_agree_with_a_second_implementation(random: Random) -> None:
    names = ["a", "b", "c"]
    plugin = {name: random.random() < 0.2 for name in names}
    nodes = [node(name, {"cpu": "100", **({GPU: "2"} if plugin[name] else {})}) for name in names]
    listed: dict[str, list[Object]] = {}
    objects = [
        device_class(name, resource, f"device.attributes['gpu.nvidia.com'].type in ['both', '{name}']")
        for name, resource in (("gpu", GPU), ("mig", MIG))
    ]
    for name in names:
        listed[name] = [
            device(
                f"d{number}",
                random.choice(["gpu", "mig", "both"]),
                {"slices": used} if (used := random.randrange(3)) else {},
            )
            for number in range(random.randrange(6))
        ]
        counters = {"name": "card", "counters": {"slices": {"value": "4"}}}
        objects += [
            resource_slice(name, count=2, sharedCounters=[counters]),
            resource_slice(name, *listed[name], count=2, name=f"{name}-1"),
        ]
    subject = _cycle(nodes, *objects)
    held: dict[str, tuple[BoundPod, frozenset[str]]] = {}
    for number in range(8):
        if held and random.random() < 0.3:
            subject.release(held.pop(random.choice(sorted(held)))[0])
            continue
        made = _random_pod(random)
        found: dict[int, frozenset[str]] = {}
        schedulable = SchedulablePod.of(made)
        for position, name in enumerate(names):
            taken = frozenset[str]().union(*[each for bound, each in held.values() if bound.node == position])
            served = [MIG] if plugin[name] else [GPU, MIG]
            in_use = sum(dict(bound.pod.amounts).get(GPU, 0) for bound, _ in held.values() if bound.node == position)
            if plugin[name] and dict(schedulable.amounts).get(GPU, 0) > 2 - in_use:
                continue
            free = frozenset(each["name"] for each in listed[name]) - taken
            left = 4 - sum(consumption(each) for each in listed[name] if each["name"] in taken)
            chosen = first_that_fit(requests_of(made["spec"], served), listed[name], free, KINDS, left)
            if chosen is not None:
                found[position] = chosen
        assert numbers_of(subject.feasible(schedulable)) == tuple(found)
        bound = subject.schedule(f"default/p{number}", schedulable, 0)
        assert (bound is None) is (not found)
        if bound is not None:
            binding = BoundPod(f"default/p{number}", schedulable, bound.node, 0)
            held[binding.name] = (binding, found[bound.node])
        expected = {(names[each.node], name) for each, chosen in held.values() for name in chosen}
        assert {(key[1], key[2]) for key in subject.devices.offers.allocated} == expected
