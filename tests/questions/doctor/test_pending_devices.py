"""Pending pods that wait for devices of drivers: a recorded cluster for each reason, and near misses."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.model.rules.finding import Certainty
from rules_engine.questions.doctor.doctor import doctor
from rules_engine.questions.doctor.pending import PendingPod, pending_pods
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.questions.doctor.scope import Scope
from tests.support.api import (
    DRIVER,
    GPU,
    MIG1,
    Object,
    ago,
    cluster,
    device,
    device_class,
    event,
    node,
    pod,
    reference,
    resource_claim,
    resource_slice,
)
from tests.support.remedies import has_its_risk
from tests.support.reports import reported_amounts

DEVICE_REASONS = frozenset(
    {
        PendingReason.TOO_MANY_DEVICES,
        PendingReason.SELECTOR_FAILS,
        PendingReason.DEVICES_TAINTED,
        PendingReason.POOL_UNUSABLE,
        PendingReason.CLASS_SHADOWED,
        PendingReason.NO_CLASS_NAMES_RESOURCE,
        PendingReason.NO_DEVICE,
        PendingReason.COUNTERS_EXHAUSTED,
        PendingReason.DEVICES_ALLOCATED,
        PendingReason.CLAIM_MISSING,
        PendingReason.CLAIM_ELSEWHERE,
    }
)
"""Reasons that only pods with devices of drivers have."""

NOTHING = "0/1 nodes are available: 1 cannot allocate all claims."
CLASS = device_class("gpu.nvidia.com", GPU, "gpu")
UNNAMED = device_class("gpu.nvidia.com", "", "gpu")
H100 = resource_slice("a", device("gpu-0", attributes={"productName": {"string": "NVIDIA H100 80GB HBM3"}}))
TWO = resource_slice("a", device("gpu-0"), device("gpu-1"))
XID = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
CLAIMS = [{"name": "gpu", "resourceClaimName": "shared"}]
TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
CREATED = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}

DELETED = resource_claim("shared", "gpu-0", deletionTimestamp="2026-01-01T00:00:00Z")


CARDS = (
    resource_slice("a", name="counters", count=2, card={"memory": "40Gi"}),
    resource_slice(
        "a",
        device("gpu-0", uses={"memory": "40Gi"}),
        device("gpu-0-mig-0", "mig", uses={"memory": "5Gi"}),
        name="devices",
        count=2,
    ),
)
"""A card and one of its partitions."""


def answer(*objects: Object) -> PendingPod:
    recorded = cluster(*objects)
    (pending,) = pending_pods(recorded, scheduler_of(recorded), None)
    return pending


def held(device: str, holder: str = "x", on: str = "a") -> Object:
    """Return the claim that the scheduler makes for an extended resource of a pod."""
    return resource_claim(f"{holder}-gpu", device, pool=on, reserved=holder, extended=True)


POSITIVE: dict[str, tuple[PendingReason, list[Object]]] = {
    "33 devices": (PendingReason.TOO_MANY_DEVICES, [node("a"), CLASS, TWO, pod("p", {GPU: 33})]),
    "two resources with 34 devices": (
        PendingReason.TOO_MANY_DEVICES,
        [node("a"), CLASS, device_class("mig", MIG1, "mig"), TWO, pod("p", {GPU: 17, MIG1: 17})],
    ),
    "a selector that reads an absent attribute": (
        PendingReason.SELECTOR_FAILS,
        [
            node("a"),
            device_class("gpu.nvidia.com", GPU, f"device.attributes['{DRIVER}'].uuid == 'x'"),
            TWO,
            pod("p", {GPU: 1}),
        ],
    ),
    "a selector that fails on devices of a node with a taint": (
        PendingReason.SELECTOR_FAILS,
        [
            node("a", taints=["gpu:NoSchedule"]),
            device_class("gpu.nvidia.com", GPU, f"device.attributes['{DRIVER}'].uuid == 'x'"),
            TWO,
            pod("p", {GPU: 1}),
        ],
    ),
    "a newer class without devices": (
        PendingReason.CLASS_SHADOWED,
        [node("a"), CLASS, device_class("new", GPU, "vfio", created=ago(hours=1)), TWO, pod("p", {GPU: 1})],
    ),
    "a newer class, while the devices of the older one are in use": (
        PendingReason.CLASS_SHADOWED,
        [
            node("a"),
            CLASS,
            device_class("amd", GPU, "vfio"),
            TWO,
            held("gpu-0"),
            held("gpu-1", "y"),
            pod("p", {GPU: 1}),
        ],
    ),
    "an equally old class with an earlier name": (
        PendingReason.CLASS_SHADOWED,
        [node("a"), CLASS, device_class("amd", GPU, "vfio"), TWO, pod("p", {GPU: 1})],
    ),
    "a class without a name": (PendingReason.NO_CLASS_NAMES_RESOURCE, [node("a"), UNNAMED, TWO, pod("p", {GPU: 1})]),
    "no class": (PendingReason.NO_CLASS_NAMES_RESOURCE, [node("a"), TWO, pod("p", {GPU: 1})]),
    "a class of another resource": (
        PendingReason.NO_CLASS_NAMES_RESOURCE,
        [node("a"), CLASS, TWO, pod("p", {MIG1: 1})],
    ),
    "a class without a name, of other devices": (
        PendingReason.NO_CLASS_NAMES_RESOURCE,
        [node("a"), device_class("mig", "", "mig"), *CARDS, pod("p", {GPU: 1})],
    ),
    "a class without devices": (
        PendingReason.NO_DEVICE,
        [node("a"), device_class("mig", MIG1, "mig"), TWO, pod("p", {MIG1: 1})],
    ),
    "a driver without slices": (PendingReason.NO_DEVICE, [node("a"), CLASS, pod("p", {GPU: 1})]),
    "devices on a node that does not exist": (PendingReason.NO_DEVICE, [node("b"), CLASS, TWO, pod("p", {GPU: 1})]),
    "a pool that lacks a slice": (
        PendingReason.POOL_UNUSABLE,
        [node("a"), CLASS, resource_slice("a", device("gpu-0"), count=2), pod("p", {GPU: 1})],
    ),
    "a pool with a device twice": (
        PendingReason.POOL_UNUSABLE,
        [
            node("a"),
            CLASS,
            resource_slice("a", device("gpu-0"), name="one", count=2),
            resource_slice("a", device("gpu-0"), name="two", count=2),
            pod("p", {GPU: 1}),
        ],
    ),
    "tainted devices": (
        PendingReason.DEVICES_TAINTED,
        [node("a"), CLASS, resource_slice("a", device("gpu-0", taints=[XID])), pod("p", {GPU: 1})],
    ),
    "devices of other claims": (
        PendingReason.DEVICES_ALLOCATED,
        [
            node("a"),
            CLASS,
            TWO,
            held("gpu-0"),
            held("gpu-1", "y"),
            pod("x", {GPU: 1}, on="a"),
            pod("y", {GPU: 1}, on="a"),
            pod("p", {GPU: 1}),
        ],
    ),
    "a card with an allocated partition": (
        PendingReason.COUNTERS_EXHAUSTED,
        [node("a"), CLASS, *CARDS, held("gpu-0-mig-0"), pod("p", {GPU: 1})],
    ),
    "a claim that does not exist": (
        PendingReason.CLAIM_MISSING,
        [node("a"), CLASS, TWO, pod("p", resourceClaims=CLAIMS)],
    ),
    "a claim that does not exist in a cluster without classes": (
        PendingReason.CLAIM_MISSING,
        [node("a"), pod("p", resourceClaims=CLAIMS)],
    ),
    "a claim that is being deleted": (
        PendingReason.CLAIM_MISSING,
        [node("a"), CLASS, TWO, DELETED, pod("p", resourceClaims=CLAIMS)],
    ),
    "a deleted claim of a template": (
        PendingReason.CLAIM_MISSING,
        [node("a"), CLASS, TWO, pod("p", resourceClaims=TEMPLATE, status=CREATED)],
    ),
    "a template that does not exist": (
        PendingReason.CLAIM_MISSING,
        [
            node("a"),
            CLASS,
            TWO,
            pod("p", resourceClaims=TEMPLATE),
            event(
                pod("p"), "FailedResourceClaimCreation", 'PodResourceClaim gpu: resourceclaimtemplate "one" not found'
            ),
        ],
    ),
    "a claim on a node that excludes the pod": (
        PendingReason.CLAIM_ELSEWHERE,
        [
            node("a"),
            node("b", labels={"zone": "b"}),
            CLASS,
            TWO,
            resource_claim("shared", "gpu-0", reserved="x"),
            pod("p", resourceClaims=CLAIMS, nodeSelector={"zone": "b"}),
        ],
    ),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_the_reason_of_a_pod_that_waits_for_devices(name: str) -> None:
    expected, objects = POSITIVE[name]
    finding = answer(*objects).finding
    assert finding.reason == expected
    assert all(remedy.text.endswith(".") and has_its_risk(remedy) for remedy in finding.remedies)


def test_every_reason_of_devices_has_a_recorded_cluster() -> None:
    assert {expected for expected, _ in POSITIVE.values()} == DEVICE_REASONS


NEAR_MISSES: dict[str, tuple[PendingReason, list[Object]]] = {
    "32 devices": (PendingReason.ON_NO_SINGLE_NODE, [node("a"), CLASS, TWO, pod("p", {GPU: 32})]),
    "33 devices, some of a device plugin": (
        PendingReason.ON_NO_SINGLE_NODE,
        [node("a", {MIG1: 17}), CLASS, TWO, pod("p", {GPU: 16, MIG1: 17})],
    ),
    "a selector that fails only on a device that is not tried": (
        PendingReason.NO_SCHEDULER_MESSAGE,
        [
            node("a"),
            device_class("gpu.nvidia.com", GPU, f"device.attributes['{DRIVER}'].uuid == 'x'"),
            resource_slice(
                "a", device("gpu-0", attributes={"type": {"string": "gpu"}, "uuid": {"string": "x"}}), device("gpu-1")
            ),
            pod("p", {GPU: 1}),
        ],
    ),
    "an older generation of a whole pool": (
        PendingReason.NO_SCHEDULER_MESSAGE,
        [
            node("a"),
            CLASS,
            resource_slice("a", device("gpu-0"), name="old"),
            resource_slice("a", device("gpu-0"), name="new", generation=2),
            pod("p", {GPU: 1}),
        ],
    ),
    "a taint without effect": (
        PendingReason.NO_SCHEDULER_MESSAGE,
        [node("a"), CLASS, resource_slice("a", device("gpu-0", taints=[XID | {"effect": "None"}])), pod("p", {GPU: 1})],
    ),
    "a free partition": (
        PendingReason.NO_SCHEDULER_MESSAGE,
        [node("a"), device_class("mig", MIG1, "mig"), *CARDS, pod("p", {MIG1: 1})],
    ),
    "a free device on a node with a taint": (
        PendingReason.TAINT,
        [node("a", taints=["gpu:NoSchedule"]), CLASS, TWO, pod("p", {GPU: 1})],
    ),
    "a device plugin whose devices are allocated, beside a driver": (
        PendingReason.ALL_ALLOCATED,
        [
            node("a"),
            node("b", {GPU: 1}),
            CLASS,
            resource_slice("a", device("gpu-0")),
            held("gpu-0"),
            pod("x", {GPU: 1}, on="b"),
            pod("p", {GPU: 1}),
        ],
    ),
    "no class, and devices of another vendor": (
        PendingReason.RESOURCE_ON_NO_NODE,
        [node("a"), resource_slice("a", device("gpu-0"), driver="gpu.amd.com"), pod("p", {GPU: 1})],
    ),
    "no class, and the driver of compute domains": (
        PendingReason.RESOURCE_ON_NO_NODE,
        [node("a"), resource_slice("a", device("channel-0"), driver="compute-domain.nvidia.com"), pod("p", {GPU: 1})],
    ),
    "no class, and a slice without devices": (
        PendingReason.RESOURCE_ON_NO_NODE,
        [node("a"), resource_slice("a"), pod("p", {GPU: 1})],
    ),
    "no class, and a profile that the card lacks": (
        PendingReason.RESOURCE_ON_NO_NODE,
        [node("a"), CLASS, H100, pod("p", {MIG1: 1})],
    ),
    "a class without a name, and a device plugin": (
        PendingReason.ALL_ALLOCATED,
        [node("a"), UNNAMED, TWO, node("b", {GPU: 1}), pod("x", {GPU: 1}, on="b"), pod("p", {GPU: 1})],
    ),
    "cpu": (PendingReason.OTHER_RESOURCES, [node("a", {"cpu": "1"}), CLASS, TWO, pod("p", {GPU: 1, "cpu": 2})]),
    "a claim on the node that fits": (
        PendingReason.NO_SCHEDULER_MESSAGE,
        [node("a"), node("b"), CLASS, TWO, resource_claim("shared", "gpu-0"), pod("p", resourceClaims=CLAIMS)],
    ),
    "a claim that was not created yet": (
        PendingReason.NO_SCHEDULER_MESSAGE,
        [node("a"), CLASS, TWO, pod("p", resourceClaims=TEMPLATE)],
    ),
    "the scheduler's message about a claim": (
        PendingReason.SCHEDULER_MESSAGE,
        [node("a"), CLASS, TWO, resource_claim("shared"), pod("p", resourceClaims=CLAIMS, message=NOTHING)],
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_has_another_reason(name: str) -> None:
    expected, objects = NEAR_MISSES[name]
    assert answer(*objects).finding.reason == expected


def evidence(name: str) -> str:
    return "\n".join(answer(*POSITIVE[name][1]).finding.evidence)


def test_the_holders_of_devices_are_evidence() -> None:
    lines = evidence("devices of other claims")
    assert f"{DRIVER}/a/gpu-0 is allocated to ResourceClaim ml/x-gpu, reserved for Pod ml/x\n" in lines
    assert "ml/y holds 1 nvidia.com/gpu on a" in lines


def test_many_holders_are_counted() -> None:
    names = [f"gpu-{number}" for number in range(7)]
    objects = [node("a"), CLASS, resource_slice("a", *map(device, names)), *map(held, names), pod("p", {GPU: 1})]
    assert answer(*objects).finding.evidence[-1] == "2 other allocated devices"


def test_the_partitions_that_consume_counters_are_evidence() -> None:
    line = f"{DRIVER}/a/gpu-0 lacks counters: gpu-0-mig-0 (allocated to ResourceClaim ml/x-gpu, reserved for Pod ml/x)"
    assert line in evidence("a card with an allocated partition")


def test_the_owner_of_a_claim_that_no_pod_uses_is_named() -> None:
    claim = resource_claim("left", "gpu-0", ownerReferences=[reference("Job", "j")], deletionTimestamp=ago(hours=1))
    pending = answer(node("a"), CLASS, resource_slice("a", device("gpu-0")), claim, pod("p", {GPU: 1}))
    line = f"{DRIVER}/a/gpu-0 is allocated to ResourceClaim ml/left of Job ml/j, which is being deleted"
    assert line in pending.finding.evidence


def test_pools_taints_and_classes_are_evidence() -> None:
    assert f"{DRIVER}/a: it has 1 of 2 slices of generation 1" in evidence("a pool that lacks a slice")
    assert f"{DRIVER}/a: it has two devices gpu-0" in evidence("a pool with a device twice")
    assert f"{DRIVER}/a/gpu-0 has the taint gpu.nvidia.com/xid=79:NoSchedule" in evidence("tainted devices")
    assert f"new was created {ago(hours=1)}" in evidence("a newer class without devices")
    assert "drivers offer 2 devices in all: gpu.nvidia.com" in evidence("a class without devices")
    message = answer(*POSITIVE["a selector that reads an absent attribute"][1]).finding.message
    assert message.startswith("a selector of DeviceClass gpu.nvidia.com fails on device gpu-0 of gpu.nvidia.com: ")


def test_a_class_without_a_name_gets_the_name_by_a_command() -> None:
    finding = answer(*POSITIVE["a class without a name"][1]).finding
    patch = '{"spec":{"extendedResourceName":"nvidia.com/gpu"}}'
    assert [(each.text, each.command) for each in finding.remedies] == [
        (
            "Set extendedResourceName: nvidia.com/gpu on the DeviceClass gpu.nvidia.com.",
            f"kubectl patch deviceclass gpu.nvidia.com --type merge -p '{patch}'",
        ),
        ("Or request deviceclass.resource.kubernetes.io/gpu.nvidia.com in the pod.", ""),
    ]


@pytest.mark.parametrize(
    "name", ["no class", "a class of another resource", "a class without a name, of other devices"]
)
def test_no_class_gets_the_name_of_devices_that_it_may_not_have(name: str) -> None:
    finding = answer(*POSITIVE[name][1]).finding
    assert not any("patch" in each.command for each in finding.remedies)


def test_without_classes_that_were_read_a_missing_name_is_possible() -> None:
    recorded = cluster(node("a"), TWO, pod("p", {GPU: 1}), absent=["DeviceClass"])
    (pending,) = pending_pods(recorded, scheduler_of(recorded), None)
    assert (pending.finding.reason, pending.finding.certainty) == (
        PendingReason.NO_CLASS_NAMES_RESOURCE,
        Certainty.POSSIBLE,
    )


@pytest.mark.parametrize(
    "members",
    [{}, {"message": NOTHING}, {"requests": {GPU: 3}}, {"requests": {"cpu": 100}}, {"nodeSelector": {"zone": "b"}}],
)
def test_what_is_not_evaluated_of_a_pod_with_claims_is_named(members: Object) -> None:
    recorded = cluster(
        node("a"), CLASS, TWO, pod("p", resourceClaims=TEMPLATE, **members), absent=["ResourceClaimTemplate"]
    )
    (finding,) = [each.finding for each in pending_pods(recorded, scheduler_of(recorded), None)]
    assert "not evaluated: resourceclaimtemplate ml/one, which was not read" in finding.evidence
    assert not any("pass all filters" in line for line in finding.evidence)


def test_slices_of_an_old_generation_are_evidence() -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}
    old = resource_slice("a", device("gpu-0"), name="old", count=2)
    new = resource_slice("a", name="new", generation=2, nodeSelector=selector)
    pending = answer(node("a"), CLASS, old, new, pod("p", {GPU: 1}))
    assert pending.finding.reason == PendingReason.POOL_UNUSABLE
    assert f"the pool {DRIVER}/a: some of its slices are older than generation 2" in pending.finding.evidence


def test_devices_that_the_scheduler_cannot_use_are_evidence_of_too_large_requests() -> None:
    slices = (
        resource_slice("a", device("gpu-0"), device("gpu-1", taints=[XID])),
        resource_slice("b", device("x"), count=2),
    )
    finding = answer(node("a"), node("b"), CLASS, *slices, pod("p", {GPU: 2})).finding
    assert finding.reason == PendingReason.ON_NO_SINGLE_NODE
    assert finding.evidence[-2:] == (
        f"{DRIVER}/a/gpu-1 has the taint gpu.nvidia.com/xid=79:NoSchedule",
        f"the pool {DRIVER}/b: it has 1 of 2 slices of generation 1",
    )


def test_tainted_devices_may_keep_counters() -> None:
    tainted = device("gpu-0-mig-0", "mig", taints=[XID], uses={"memory": "40Gi"})
    slices = CARDS[0], resource_slice("a", tainted, device("mig-1", "mig", uses={"memory": "5Gi"}), name="x", count=2)
    finding = answer(node("a"), device_class("mig", MIG1, "mig"), *slices, pod("p", {MIG1: 1})).finding
    assert (
        finding.message
        == f"tainted devices of DeviceClass mig, which serves {MIG1}, hold the counters that its other devices need"
    )


def test_two_resources_of_one_card_do_not_fit_together() -> None:
    classes = CLASS, device_class("mig", MIG1, "mig")
    finding = answer(node("a"), *classes, *CARDS, pod("p", {GPU: 1, MIG1: 1})).finding
    assert finding.reason == PendingReason.ON_NO_SINGLE_NODE


@pytest.mark.parametrize(("absent", "certainty"), [([], Certainty.CERTAIN), (["ResourceSlice"], Certainty.POSSIBLE)])
def test_without_slices_the_reason_is_possible(absent: list[str], certainty: Certainty) -> None:
    recorded = cluster(*POSITIVE["a driver without slices"][1], absent=absent)
    (pending,) = pending_pods(recorded, scheduler_of(recorded), None)
    assert pending.finding.certainty is certainty


def test_objects_that_cannot_be_used_are_evidence() -> None:
    broken = resource_slice("a", device("gpu-0"), driver="")
    lines = answer(node("a"), CLASS, broken, pod("p", {GPU: 1})).finding.evidence
    assert "ResourceSlice a is left out: it has no driver" in lines


def test_a_selector_with_too_many_terms_leaves_a_slice_out() -> None:
    broken = resource_slice("a", device("gpu-0"), nodeSelector={"nodeSelectorTerms": [{}] * 100_000})
    assert answer(node("a"), CLASS, broken, pod("p", {GPU: 1})).finding.reason == PendingReason.NO_DEVICE


@st.composite
def drivers(draw: st.DrawFn) -> tuple[list[Object], dict[str, list[Object]]]:
    """Nodes with devices of drivers and claims of some, two classes of a resource, and the devices by node."""
    objects, by_node = (
        [CLASS, device_class("other", GPU, "vfio", created=draw(st.sampled_from(("", ago(days=9)))))],
        {},
    )
    for on in ("a", "b", "c")[: draw(st.integers(1, 3))]:
        types = draw(st.lists(st.sampled_from(("gpu", "gpu", "vfio")), max_size=3))
        taints = [draw(st.sampled_from(([], [], [XID]))) for _ in types]
        names = [f"{type}-{number}" for number, type in enumerate(types)]
        devices = [device(name, type, taints=taint) for name, type, taint in zip(names, types, taints, strict=True)]
        count = draw(st.sampled_from((1, 1, 2)))
        taken = draw(st.sets(st.sampled_from(names))) if names else ()
        objects += [node(on), resource_slice(on, *devices, count=count)]
        objects += [held(name, f"{on}-{name}", on) for name in sorted(taken)]
        by_node[on] = [{**each, "whole": count == 1, "taken": each["name"] in taken} for each in devices]
    return objects, by_node


def expected_reason(by_node: dict[str, list[Object]], type: str, count: int) -> PendingReason:
    """Return the reason of a pod by the table of docs/reference/diagnostics.md."""
    every = [each for devices in by_node.values() for each in devices]
    of_class = [each for each in every if each["attributes"]["type"]["string"] == type]
    usable = [
        [each for each in devices if each in of_class and each["whole"] and not each["taints"]]
        for devices in by_node.values()
    ]
    free = [sum(not each["taken"] for each in devices) for devices in usable if len(devices) >= count]
    if max(free, default=0) >= count:
        return PendingReason.NO_SCHEDULER_MESSAGE
    if free:
        return PendingReason.DEVICES_ALLOCATED if sum(free) < count else PendingReason.ON_NO_SINGLE_NODE
    if any(usable):
        return PendingReason.ON_NO_SINGLE_NODE
    if any(each["whole"] for each in of_class):
        return PendingReason.DEVICES_TAINTED
    if of_class:
        return PendingReason.POOL_UNUSABLE
    others = [each for each in every if each not in of_class and each["whole"] and not each["taints"]]
    return PendingReason.CLASS_SHADOWED if others else PendingReason.NO_DEVICE


@given(drivers(), st.integers(1, 3))
def test_the_reason_is_that_of_the_table(made: tuple[list[Object], dict[str, list[Object]]], count: int) -> None:
    objects, by_node = made
    # Of equally old classes, gpu.nvidia.com is before other.
    assert answer(*objects, pod("p", {GPU: count})).finding.reason == expected_reason(by_node, "gpu", count)


def test_nodes_have_the_devices_of_drivers() -> None:
    recorded = cluster(node("a"), node("b"), CLASS, TWO, held("gpu-0"), pod("x", {GPU: 1}, on="a"))
    (shown,) = doctor(recorded, (), None, Scope()).nodes
    assert (shown.name, shown.resources) == ("a", {GPU: reported_amounts(2, 2, 1)})


def test_a_device_of_a_claim_counts_as_allocated() -> None:
    recorded = cluster(node("a"), CLASS, TWO, resource_claim("shared", "gpu-1"))
    (shown,) = doctor(recorded, (), None, Scope()).nodes
    assert shown.resources[GPU].free == 1


def test_objects_of_an_earlier_version_are_not_read(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    items = [node("a"), {**CLASS, "apiVersion": "resource.k8s.io/v1beta1"}]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    objects = read_cluster([dump]).objects
    assert objects is not None
    assert "DeviceClass" in objects.absent
