"""Claims of pods: the filter DynamicResources, and the devices of bound pods."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from rules_engine.cluster.scheduling.cycle import BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.filters import devices as filters
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.devices import Devices
from tests.support.api import (
    GPU,
    NOW,
    Object,
    by_kind,
    cards,
    claim_spec,
    claim_template,
    claims,
    device,
    device_class,
    node,
    pod,
    resource_claim,
    resource_slice,
    taint_rule,
)
from tests.support.cycles import cycle

CLASS = device_class("gpu", "", "gpu")
ONE = claim_template("one", 1)
NODES = [node("a"), node("b")]
CARDS = [CLASS, cards("a", 2), cards("b", 1)]
LIMIT = "number of requested devices 33 exceeds the claim limit of 32"


def _devices(*objects: Object, absent: Sequence[str] = ()) -> Devices:
    return ClusterObjects(by_kind(*objects), absent=frozenset(absent), now=NOW).devices


def _cycle(*objects: Object, nodes: Sequence[Object] = NODES, absent: Sequence[str] = ()) -> SchedulingCycle:
    return cycle(nodes, devices=_devices(*objects, absent=absent))


def _pod(requests: Mapping[str, str] | None = None, **names: str) -> SchedulablePod:
    return SchedulablePod.of(pod(requests=requests or {}, **claims(**names)))


def _run(subject: SchedulingCycle, *pods: SchedulablePod) -> list[str]:
    """Return the nodes of pods, in order; "": it has to wait."""
    found = [subject.schedule(f"ml/p{number}", each, 0) for number, each in enumerate(pods)]
    return ["" if each is None else subject.scheduler.nodes[each.node].name for each in found]


def _message(subject: SchedulingCycle, made: SchedulablePod) -> str:
    return subject.explain(made).message().removeprefix("0/2 nodes are available: ").removesuffix(".")


def test_each_pod_of_a_template_gets_its_own_devices_until_none_is_left() -> None:
    subject = _cycle(*CARDS, ONE)
    assert sorted(_run(subject, *[_pod(gpu="one")] * 4)) == ["", "a", "a", "b"]
    assert _message(subject, _pod(gpu="one")) == "2 cannot allocate all claims"
    assert subject.explain(_pod()).feasible == 2


def test_the_claims_of_a_pod_are_allocated_together() -> None:
    two = claim_template("two", 2)
    subject = _cycle(*CARDS, ONE, two, cards("c", 3), nodes=[*NODES, node("c")])
    assert _run(subject, _pod(x="one", y="two")) == ["c"]
    assert _run(_cycle(*CARDS, two), _pod(x="two")) == ["a"]


def test_claims_come_before_extended_resources() -> None:
    subject = _cycle(device_class("gpu", GPU, "gpu"), cards("a", 2), cards("b", 1), ONE)
    both = _pod({GPU: "1"}, x="one")
    assert subject.explain(both).feasible_nodes == ("a",)
    subject.bind(BoundPod("ml/p", both, 0, 0))
    allocated = {key[2]: [each.claim for each in uses] for key, uses in subject.devices.offers.allocated.items()}
    assert allocated == {"gpu-0": ["ml/p/0"], "gpu-1": ["ml/p/1"]}


def test_a_named_claim_is_shared_where_its_devices_are_until_its_last_pod_leaves() -> None:
    shared = resource_claim("shared", spec=claim_spec(1))
    subject = _cycle(*CARDS, shared, ONE)
    first = _run(subject, _pod(x="claim:shared"))[0]
    assert _run(subject, *[_pod(x="claim:shared")] * 3) == [first] * 3
    other = "b" if first == "a" else "a"
    elsewhere = SchedulablePod.of(pod(nodeSelector={"kubernetes.io/hostname": other}, **claims(x="claim:shared")))
    assert _message(subject, elsewhere) == (
        "1 node(s) didn't match Pod's node affinity/selector, 1 resourceclaim not available on the node"
    )
    assert len(subject.devices.offers.allocated) == 1
    for number in range(3):
        subject.devices.release(f"ml/p{number}")
    assert subject.devices.offers.allocated == {}
    assert subject.explain(elsewhere).feasible_nodes == (other,)


def test_a_claim_that_has_devices_keeps_its_pods_on_their_node() -> None:
    held = resource_claim("held", "gpu-0", pool="b", reserved="old", spec=claim_spec(1))
    subject = _cycle(*CARDS, held, ONE)
    assert subject.explain(_pod(x="claim:held")).feasible_nodes == ("b",)
    assert subject.explain(_pod(x="one")).feasible_nodes == ("a",)
    subject.bind(BoundPod("ml/old", _pod(x="claim:held"), 1, 0))
    subject.release(BoundPod("ml/old", _pod(x="claim:held"), 1, 0))
    assert subject.explain(_pod(x="claim:held")).feasible == 2


def test_network_devices_reach_their_nodes() -> None:
    zoned = resource_slice("zone", device("n"), nodeSelector={"nodeSelectorTerms": [_in_zone("x")]})
    nodes = [node(name, labels={"zone": zone}) for name, zone in (("a", "x"), ("b", "x"), ("c", "y"))]
    subject = _cycle(CLASS, zoned, resource_claim("shared", spec=claim_spec(1)), nodes=nodes)
    (found,) = _run(subject, _pod(x="claim:shared"))
    assert found in "ab"
    assert subject.explain(_pod(x="claim:shared")).feasible_nodes == ("a", "b")


def _in_zone(zone: str) -> Object:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}


DELETED = resource_claim("deleted", spec=claim_spec(1), deletionTimestamp="2026-01-01T00:00:00Z")
FULL = resource_claim("full", "gpu-0", spec=claim_spec(1))
FULL["status"]["reservedFor"] = [{"resource": "pods", "name": f"q{number}"} for number in range(256)]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (_pod(x="none"), 'resourceclaimtemplate "none" not found'),
        (_pod(x="claim:none"), 'resourceclaim "none" not found'),
        (_pod(x="claim:deleted"), 'resourceclaim "deleted" is being deleted'),
        (_pod(x="claim:full"), "resourceclaim in use"),
        (_pod(x="classless"), "request r0: device class nope does not exist"),
        (_pod(x="either"), "request r0/b: device class nope does not exist"),
    ],
)
def test_a_claim_that_cannot_be_used_rejects_its_pod(made: SchedulablePod, why: str) -> None:
    either = claim_template("either", {"firstAvailable": [_alternative("a"), _alternative("b", "nope")]})
    subject = _cycle(*CARDS, DELETED, FULL, claim_template("classless", 1, device_class="nope"), either)
    assert (subject.explain(made).rejected, _message(subject, made)) == (why, why)
    assert _run(subject, made) == [""]
    subject.bind(BoundPod("ml/p", made, 0, 0))  # it was bound before the claim vanished
    subject.release(BoundPod("ml/p", made, 0, 0))


def _alternative(name: str, of: str = "gpu", **members: Any) -> Object:
    return {"name": name, "deviceClassName": of, **members}


def test_a_claim_that_fails_ends_the_attempt() -> None:
    subject = _cycle(*CARDS, claim_template("many", 33), ONE)
    failure = subject.explain(_pod(x="many")).failure
    assert failure == f'running "DynamicResources" filter plugin: {LIMIT}'
    assert _run(subject, _pod(x="many")) == [""]
    subject.bind(BoundPod("ml/p", _pod(x="many"), 0, 0))
    assert not subject.devices.offers.allocated


def test_earlier_alternatives_score_higher() -> None:
    big, small = (device_class(each, "", each) for each in ("big", "small"))
    slices = [resource_slice("a", device("d", "small")), resource_slice("b", device("d", "big"))]
    either = claim_template("either", {"firstAvailable": [_alternative("x", "big"), _alternative("y", "small")]})
    subject = _cycle(big, small, *slices, either)
    assert _run(subject, *[_pod(x="either")] * 3) == ["b", "a", ""]


def test_tolerations_and_taint_rules_decide() -> None:
    tolerating = {"exactly": {"deviceClassName": "gpu", "tolerations": [{"key": "drain", "operator": "Exists"}]}}
    subject = _cycle(*CARDS, ONE, claim_template("any", tolerating), taint_rule("drain", pool="a"))
    assert subject.explain(_pod(x="one")).feasible_nodes == ("b",)
    assert subject.explain(_pod(x="any")).feasible_nodes == ("a", "b")


def test_admin_access_uses_no_device() -> None:
    admin = claim_template(
        "admin", {"exactly": {"deviceClassName": "gpu", "allocationMode": "All", "adminAccess": True}}
    )
    subject = _cycle(*CARDS, ONE, admin)
    assert len({*_run(subject, *[_pod(x="admin")] * 6)}) == 2
    assert not subject.devices.offers.allocated


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (claim_template("t", 1), ()),
        (
            claim_template("t", 1, config=[{"opaque": {}}]),
            ("the configuration of claimed devices, which their driver reads on the node",),
        ),
        (
            claim_template("t", 1, device_class="any", constraints=[{"matchAttribute": "gpu.nvidia.com/links"}]),
            ("binding conditions of devices", "the list gpu.nvidia.com/links in a constraint"),
        ),
        (
            claim_template("t", {"exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}}),
            ("the allocationMode Some of the request r0",),
        ),
        (claim_template("t", 1, device_class="bound"), ("binding conditions of devices",)),
    ],
)
def test_what_is_not_modelled_of_claims_is_named_and_may_be_satisfied(made: Object, named: Sequence[str]) -> None:
    plain, bound = device("d"), device("e", "bound", bindingConditions=["x"])
    if "any" in str(made):  # a list fails the selectors of other classes
        plain["attributes"]["links"] = {"strings": ["x"]}
    classes = [CLASS, device_class("bound", "", "bound"), device_class("any")]
    subject = _cycle(*classes, resource_slice("a", plain, bound), made)
    answer = subject.explain(_pod(x="t"))
    assert (answer.not_modelled, answer.feasible_nodes) == (named, ("a",) if "Some" not in str(made) else ("a", "b"))


@pytest.mark.parametrize(
    ("absent", "named"),
    [
        ("ResourceClaimTemplate", ("resourceclaimtemplate ml/t, which was not read",)),
        ("ResourceClaim", ("resourceclaim ml/c, which was not read",)),
        ("DeviceTaintRule", ("devicetaintrules, which were not read",)),
    ],
)
def test_what_was_not_read_is_named(absent: str, named: Sequence[str]) -> None:
    made = {"ResourceClaimTemplate": _pod(x="t"), "ResourceClaim": _pod(x="claim:c")}.get(absent, _pod(x="one"))
    subject = _cycle(*CARDS, ONE, absent=[absent])
    assert (subject.explain(made).not_modelled, subject.explain(made).feasible) == (named, 2)
    read = replace(_devices(*CARDS), unread={"resourceclaims": "ml", "resourceclaimtemplates": "ml"})
    assert cycle(NODES, devices=read).explain(made).not_modelled == ()


def test_searches_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_SEARCHES", 3)
    subject = _cycle(*CARDS, claim_template("two", 2))
    answer = subject.explain(_pod(x="two"))
    assert answer.not_modelled == ("requests for devices that take many steps to allocate",)
    assert answer.failure.endswith(filters.STEPS_EXCEEDED)


def test_nodes_of_equal_devices_are_searched_once() -> None:
    def steps(count: int) -> int:
        names = [f"n{number}" for number in range(count)]
        subject = _cycle(CLASS, ONE, *[cards(name, 8) for name in names], nodes=[node(name) for name in names])
        assert subject.explain(_pod(x="one")).feasible == count
        return subject.devices.budget.limit - subject.devices.budget.left

    assert steps(50) == steps(1) > 0


def test_a_claim_that_was_made_for_a_pod_ends_with_it() -> None:
    subject = _cycle(*CARDS, ONE)
    before = {**subject.devices._claims}
    _run(subject, _pod(x="one"))
    subject.devices.release("ml/p0")
    assert (subject.devices._claims, subject.devices._users) == (before, {})


def test_a_claim_that_a_pod_names_twice_is_one() -> None:
    subject = _cycle(*CARDS, resource_claim("shared", spec=claim_spec(2)))
    made = _pod(x="claim:shared", y="claim:shared")
    assert _run(subject, made) == ["a"]
    subject.devices.release("ml/p0")
    assert not subject.devices.offers.allocated


def test_pods_that_return_get_the_claims_that_they_released() -> None:
    subject = _cycle(*CARDS, ONE, resource_claim("shared", spec=claim_spec(1)))
    made = _pod(x="claim:shared")
    subject.bind(BoundPod("ml/p", made, 0, 0))
    before, claims_of = {**subject.devices.offers.allocated}, subject.devices.snapshot()
    subject.release(BoundPod("ml/p", made, 0, 0))
    subject.bind(BoundPod("ml/p", made, 0, 0), claims_of("ml/p"))
    assert subject.devices.offers.allocated == before
    assert subject.explain(made).feasible_nodes == ("a",)
