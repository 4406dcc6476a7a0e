"""Simulations of a cluster whose drivers allocate devices for extended resources."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.nodes import Offered
from rules_engine.model.rules.simulation import NodeState
from rules_engine.questions.simulate.answer import build_answer
from rules_engine.rules.evaluation import RuleSet
from tests.questions.simulate.test_command import KEEP, document
from tests.questions.simulate.test_command import load as written
from tests.support.api import (
    GPU,
    by_kind,
    card_with_partitions,
    cards,
    claim_template,
    claims,
    device,
    device_class,
    node,
    pod,
    resource_claim,
    resource_slice,
)
from tests.support.authoring import write
from tests.support.evaluation import check, compiled, ladder, validation
from tests.support.simulation import always, at, by_name, load, played, states, template

MIG = "nvidia.com/mig-1g.5gb"
GPUS = device_class("gpu", GPU, "gpu")
MIGS = device_class("mig", MIG, "mig")
NODES = [node("a"), node("b")]
DRIVERS = by_kind(GPUS, cards("a", 2), cards("b", 1))


def test_pods_run_until_all_cards_are_taken_and_those_that_wait_follow() -> None:
    record = played(NODES, load("p", count=5, every=1000, run_for=10_000), drivers=DRIVERS)
    assert {*states(record).values()} == {"Succeeded"}
    assert [each.bound for each in record.pods] == [0, 1000, 2000, 10_000, 11_000]
    assert sorted(each.node for each in record.pods[:3]) == ["a", "a", "b"]


def test_waiting_pods_have_the_scheduler_s_message() -> None:
    mixed = [*NODES, node("plugin", {GPU: "1"})]
    record = played(mixed, load("p", count=5), drivers=DRIVERS)
    assert [each.state for each in record.pods] == ["Running"] * 4 + ["Pending"]
    message = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 cannot allocate all claims."
    assert record.pods[-1].message == message


def test_devices_that_fit_together_are_the_capacity() -> None:
    counters = [{"name": f"card{number}", "counters": {"slices": {"value": "7"}}} for number in range(6)]
    parts = [
        device(f"d{number}-{part}", "mig")
        | {"consumesCounters": [{"counterSet": f"card{number}", "counters": {"slices": {"value": "1"}}}]}
        for number in range(6)
        for part in range(7)
    ]
    slices = [resource_slice("a", count=2, sharedCounters=counters), resource_slice("a", *parts, count=2, name="a-1")]
    arrival = load("p", pod=template(0, {MIG: "21"}), count=3, run_for=1000)
    record = played(NODES, arrival, drivers=by_kind(GPUS, MIGS, *slices, cards("b", 2)), until=1000)
    (result,) = build_answer([record]).results
    totals = result.totals
    assert totals.resources[MIG].capacity == totals.resources[MIG].peak == 42
    assert totals.resources[GPU].capacity == 2
    assert [each.resources.keys() & {GPU, MIG} for each in result.nodes] == [{MIG}, {GPU}]


def _available(least: int) -> RuleSet:
    return compiled(validation(check(f"cluster.available('{GPU}') >= {least}", "")))


@pytest.mark.parametrize("running", [0, 1, 2])
def test_rules_see_the_devices_that_are_left(running: int) -> None:
    arrivals = load("p", count=3 - running), load("q", pod=template(0), at=1000)
    old = [pod(f"old{number}", {GPU: "1"}, on="a") for number in range(running)]
    for least in (0, 1):
        record = played(NODES, *arrivals, pods=old, drivers=DRIVERS, rule_set=_available(least))
        assert states(record)["q"] == ("Denied" if least else "Running")
    record = played(NODES, *arrivals, pods=old, drivers=DRIVERS, rule_set=_available(1), running_for=always(500))
    assert states(record)["q"] == ("Running" if running else "Denied")


def test_a_ladder_falls_back_once_the_counters_of_a_card_are_used() -> None:
    rules = compiled(ladder(GPU, MIG, offered=Offered.AVAILABLE))
    drivers = by_kind(GPUS, MIGS, *card_with_partitions("a"), cards("b", 1))
    small = load("small", pod=template(0, {MIG: "1"}))
    record = played(NODES, small, load("p", at=1000, count=2), drivers=drivers, rule_set=rules)
    given = [{name: amount // 10**9 for name, amount in each.admitted.given.items()} for each in record.pods]
    assert given == [{MIG: 1}, {GPU: 1}, {MIG: 1}]
    assert [each.node for each in record.pods] == ["a", "b", "a"]


def test_rules_see_devices_that_pods_of_another_node_hold() -> None:
    anywhere = resource_slice("net", device("d0"), device("d1"), allNodes=True)
    arrivals = load("p", run_for=5000), load("q", count=2, at=1000), load("r", count=2, at=6000)
    record = played(NODES, *arrivals, drivers=by_kind(GPUS, anywhere), rule_set=_available(2))
    assert states(record) == {"p": "Succeeded", "q-1": "Denied", "q-2": "Denied", "r-1": "Running", "r-2": "Denied"}


def test_rules_see_at_once_which_devices_existing_pods_of_another_node_hold() -> None:
    anywhere = resource_slice("net", device("d0"), device("d1"), allNodes=True)
    old = pod("old", {GPU: "1"}, on="a")
    record = played(NODES, load("q"), pods=[old], drivers=by_kind(GPUS, anywhere), rule_set=_available(2))
    assert states(record) == {"old": "Running", "q": "Denied"}


def test_a_waiting_pod_gets_a_device_that_a_pod_of_another_node_leaves() -> None:
    anywhere = resource_slice("net", device("d0"), allNodes=True)
    first = load("p", pod=template(1, nodeSelector={"kubernetes.io/hostname": "a"}), run_for=5000)
    second = load("q", pod=template(1, nodeSelector={"kubernetes.io/hostname": "b"}), at=1000)
    record = played(NODES, first, second, drivers=by_kind(GPUS, anywhere))
    assert by_name(record)["q"].bound == 5000


def test_a_waiting_pod_reserves_devices_for_ten_seconds() -> None:
    arrivals = load("waits", pod=template(2, {"cpu": "5"})), load("p", count=12, every=1000)
    record = played([node("a")], *arrivals, drivers=by_kind(GPUS, cards("a", 3)), rule_set=_available(2))
    denied = [each.arrived for each in record.pods if each.state == "Denied"]
    assert denied == [*range(0, 10_000, 1000)]


def test_the_claim_of_a_pod_ends_with_it() -> None:
    old = pod("old", {GPU: "2"}, on="a") | {
        "status": {"phase": "Running", "extendedResourceClaimStatus": {"resourceClaimName": "c"}}
    }
    held = resource_claim("c", "gpu-0", "gpu-1", reserved="old", extended=True)
    other = resource_claim("other", "gpu-0", pool="b")
    drivers = by_kind(GPUS, cards("a", 3), cards("b", 1), held, other)
    record = played(NODES, load("p", gpus=1), load("q", gpus=2), pods=[old], drivers=drivers, running_for=always(5000))
    assert {name: (each.node, each.bound) for name, each in by_name(record).items()} == {
        "old": ("a", 0),
        "p": ("a", 0),
        "q": ("a", 5000),
    }
    # Without the claim, the pod gets devices as those of an inventory do.
    del drivers["ResourceClaim"]
    record = played([node("a")], load("p", gpus=2), pods=[old], drivers=drivers, running_for=always(5000))
    assert by_name(record)["p"].bound == 5000


def test_preemption_does_not_free_devices() -> None:
    high = load("high", pod=template(1, priority=10), at=1000)
    record = played([node("a")], load("low"), high, drivers=by_kind(GPUS, cards("a", 1)))
    assert states(record) == {"low": "Running", "high": "Pending"}


def test_an_evicted_pod_leaves_its_devices_behind() -> None:
    arrival = load("p", controlled=True)
    record = played(NODES, arrival, drivers=by_kind(GPUS, cards("a", 1)), events=(at(1000, "a", NodeState.DRAINED),))
    assert [(each.state.value, each.node) for each in record.pods] == [("Evicted", "a"), ("Pending", "")]
    events = (at(1000, "a", NodeState.DRAINED), at(2000, "a", NodeState.UNCORDONED))
    record = played(NODES, arrival, drivers=by_kind(GPUS, cards("a", 1)), events=events)
    assert [(each.state.value, each.bound) for each in record.pods] == [("Evicted", 0), ("Running", 2000)]


def test_a_pod_whose_attempt_fails_waits_with_the_reason() -> None:
    failing = device_class("gpu", GPU, "device.attributes['gpu.nvidia.com'].model == 'x'")
    record = played(NODES, load("p", count=2), load("many", gpus=33), drivers=by_kind(failing, cards("a", 1)))
    assert {*states(record).values()} == {"Pending"}
    message = 'running "DynamicResources" filter plugin: a selector of DeviceClass gpu fails on device gpu-0 of '
    assert all(each.message.startswith(message) for each in record.pods[:2])
    assert record.pods[2].message == (
        'running "DynamicResources" filter plugin: number of requested devices 33 of DeviceClass gpu exceeds the claim '
        "limit of 32"
    )


def test_what_is_not_modelled_is_named() -> None:
    shared = resource_slice("a", device("d", allowMultipleAllocations=True, bindingConditions=["x"]))
    claimed = template(0, **claims(c="configured"))
    configured = claim_template("configured", 1, device_class="mig", config=[{"opaque": {}}])
    drivers = by_kind(GPUS, device_class("mig", "", "mig"), configured, shared)
    record = played(NODES, load("p"), load("q", pod=claimed), load("r", pod=template(0)), drivers=drivers)
    assert {name: each.admitted.not_modelled for name, each in by_name(record).items()} == {
        "p": ("binding conditions of devices",),
        "q": ("the configuration of claimed devices, which their driver reads on the node",),
        "r": (),
    }


def _simulated(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, cluster: dict[str, Any]) -> Any:
    arrival = f"{{count: 4, pod: {json.dumps({'metadata': {'name': 'p'}, 'spec': template()['spec']})}}}"
    files = {name: json.dumps(cluster), "load.yaml": written(arrival, cluster=f"{{file: {name}}}"), "keep.yaml": KEEP}
    monkeypatch.chdir(write(folder, files))
    (result,) = document("--rules", "keep.yaml")["results"]
    return result


def test_drivers_of_kubectl_take_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = [GPUS, cards("a", 3), cards("b", 1), resource_claim("c", "gpu-0", pool="b", extended=True)]
    nodes = [{"kind": "Node", **each} for each in NODES]
    result = _simulated(tmp_path, monkeypatch, "cluster.json", {"kind": "List", "items": [*nodes, *objects]})
    assert [(each["state"], each["node"]) for each in result["pods"]] == [("Running", "a")] * 3 + [("Pending", None)]
    assert result["pending"][0]["message"] == "0/2 nodes are available: 2 cannot allocate all claims."
    assert result["totals"]["resources"][GPU]["capacity"] == 4


def test_drivers_of_an_inventory_take_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = {
        "apiVersion": "gpurules.io/v1",
        "kind": "ClusterInventory",
        "metadata": {"name": "small"},
        "spec": {"nodes": [{"name": "a"}, {"name": "b", "cards": 1}], "objects": [GPUS, cards("a", 2)]},
    }
    result = _simulated(tmp_path, monkeypatch, "cluster.yaml", inventory)
    assert sorted(each["node"] or "" for each in result["pods"]) == ["", "a", "a", "b"]
    message = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 cannot allocate all claims."
    assert result["pending"][0]["message"] == message


def test_classes_alone_change_nothing_for_device_plugins() -> None:
    nodes = [node("a", {GPU: "2"})]
    arrival = load("p", count=3, every=1000, run_for=1500)
    with_class, without = (played(nodes, arrival, drivers=drivers) for drivers in (by_kind(GPUS), {}))
    assert [(each.node, each.bound) for each in with_class.pods] == [(each.node, each.bound) for each in without.pods]
