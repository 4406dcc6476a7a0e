"""DeviceClasses, ResourceSlices and ResourceClaims, read from their JSON."""

from typing import Any

import pytest

from rules_engine.model.kubernetes.device_objects import (
    DeviceError,
    SliceReader,
    named_attributes,
    read_allocated,
    read_claim,
    read_claim_spec,
    read_device_class,
    read_devices,
    read_taint_rule,
)
from rules_engine.model.kubernetes.devices import (
    NO_DEVICES,
    Alternative,
    ClaimSpec,
    Constraint,
    Device,
    DeviceClass,
    Devices,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    NodeSelection,
    RequestPolicy,
    ResourceSlice,
    Use,
    Version,
)
from rules_engine.model.kubernetes.placement import MAX_TERMS, NodeExpression, NodeTerm
from rules_engine.model.kubernetes.quantity import NANOS, Quantity
from tests.support import api
from tests.support.api import DRIVER, device_class, resource_claim, resource_slice, taint_rule

TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}, {}]}


def unexpected(_raw: Any, message: str) -> None:
    raise AssertionError(message)


READ_ALL = (DeviceClass(name="all", selectors=("size(device.attributes) > 0",)),)
"""Classes that may read each attribute."""


def read_resource_slice(raw: Any) -> ResourceSlice:
    return SliceReader(READ_ALL).slice(raw)


def spec(**members: Any) -> dict[str, Any]:
    """Return a ResourceSlice with a spec that has these members in addition to its driver and pool."""
    pool = {"name": "p", "generation": 3, "resourceSliceCount": 2}
    return {"metadata": {"name": "s"}, "spec": {"driver": DRIVER, "pool": pool, **members}}


def device(**members: Any) -> Device:
    """Return the only device of a slice."""
    (found,) = read_resource_slice(spec(devices=[{"name": "d", **members}])).devices
    return found


class TestClasses:
    def test_a_class_is_read(self) -> None:
        raw = device_class("gpu", "example.com/gpu", "true", "device.driver == 'a'", created="2026-01-02T03:04:05Z")
        assert read_device_class(raw) == DeviceClass(
            name="gpu",
            created="2026-01-02T03:04:05Z",
            resource="example.com/gpu",
            selectors=("true", "device.driver == 'a'"),
        )

    def test_absent_members_are_empty(self) -> None:
        assert read_device_class({"metadata": {"name": "gpu"}}) == DeviceClass(name="gpu")
        assert read_device_class({"spec": {"selectors": [{}]}}).selectors == ("",)


class TestSlices:
    def test_a_slice_is_read(self) -> None:
        assert read_resource_slice(spec(nodeName="n", devices=[{"name": "a"}, {"name": "b"}])) == ResourceSlice(
            name="s",
            driver=DRIVER,
            pool="p",
            generation=3,
            slice_count=2,
            nodes=NodeSelection(name="n"),
            devices=(Device(name="a"), Device(name="b")),
        )

    def test_counters_are_read_in_nanos(self) -> None:
        sets = [
            {"name": "g", "counters": {"memory": {"value": "1Gi"}, "slices": {"value": 7}}},
            {"name": "h", "counters": {"slices": {"value": "500m"}}},
        ]
        assert read_resource_slice(spec(sharedCounters=sets)).counters == {
            ("g", "memory"): 2**30 * NANOS,
            ("g", "slices"): 7 * NANOS,
            ("h", "slices"): NANOS // 2,
        }

    @pytest.mark.parametrize(
        ("members", "nodes"),
        [
            ({"nodeName": "n"}, NodeSelection(name="n")),
            ({"allNodes": True}, NodeSelection(every=True)),
            ({"nodeSelector": TERMS}, NodeSelection(terms=(NodeTerm((NodeExpression("zone", "In", ("a",)),), ()),))),
            ({"nodeSelector": {}}, NodeSelection()),
            ({"perDeviceNodeSelection": True}, None),
            ({"allNodes": False}, None),
            ({"nodeName": ""}, None),
        ],
    )
    def test_slices_and_devices_select_nodes_alike(self, members: Any, nodes: NodeSelection | None) -> None:
        assert read_resource_slice(spec(**members)).nodes == nodes
        assert device(**members).nodes == nodes

    @pytest.mark.parametrize(
        ("raw", "error"),
        [
            ({}, "it has no driver"),
            ({"spec": {"driver": 1, "pool": {"name": "p"}}}, "it has no driver"),
            ({"spec": {"driver": "d"}}, "it has no pool"),
            (spec(devices=[{"name": "a"}, {"name": "a"}]), "it has two devices of one name"),
        ],
    )
    def test_a_slice_that_cannot_be_used_is_an_error(self, raw: Any, error: str) -> None:
        with pytest.raises(DeviceError) as caught:
            read_resource_slice(raw)
        assert str(caught.value) == error

    @pytest.mark.parametrize("value", [None, True, [], "much", {"value": "1"}])
    def test_an_amount_that_is_no_quantity_is_an_error(self, value: Any) -> None:
        for members in (
            {"sharedCounters": [{"name": "g", "counters": {"c": {"value": value}}}]},
            {"devices": [{"name": "d", "capacity": {"c": {"value": value}}}]},
            {
                "devices": [
                    {"name": "d", "consumesCounters": [{"counterSet": "g", "counters": {"c": {"value": value}}}]}
                ]
            },
        ):
            with pytest.raises(DeviceError):
                read_resource_slice(spec(**members))

    def test_a_malformed_selector_is_an_error_with_its_path(self) -> None:
        terms = {"nodeSelectorTerms": [{"matchFields": [{"key": "a", "operator": "Near"}]}]}
        with pytest.raises(DeviceError) as caught:
            read_resource_slice(spec(nodeSelector=terms))
        assert str(caught.value).startswith("/spec/nodeSelector/nodeSelectorTerms/0/matchFields/0/operator")

    def test_selectors_are_bounded(self) -> None:
        large = spec(nodeSelector={"nodeSelectorTerms": [{}] * (MAX_TERMS + 1)})
        with pytest.raises(DeviceError) as caught:
            read_resource_slice(large)
        error = "/spec/nodeSelector/nodeSelectorTerms: 1001 terms of a node selector, more than 1000"
        assert str(caught.value) == error
        messages: list[str] = []
        assert read_devices({"ResourceSlice": [large]}, lambda _, message: messages.append(message)) == NO_DEVICES
        assert messages == [f"ResourceSlice s is left out: {error}"]


class TestDevices:
    def test_attributes_and_capacities_are_read_by_domain(self) -> None:
        found = device(
            attributes={
                "type": {"string": "gpu"},
                "index": {"int": 3},
                "healthy": {"bool": False},
                "driverVersion": {"version": "1.2.3"},
                "example.com/a/b": {"string": "x"},
                "many": {"strings": ["x"]},
                "nothing": {},
            },
            capacity={"memory": {"value": "40Gi"}, "example.com/cores": {"value": 8}},
        )
        assert found.attributes == {
            DRIVER: {
                "type": "gpu",
                "index": 3,
                "healthy": False,
                "driverVersion": Version("1.2.3"),
                "many": None,
                "nothing": None,
            },
            "example.com": {"a/b": "x"},
        }
        assert found.attributes[DRIVER]["healthy"] is False
        assert found.capacity == {DRIVER: {"memory": Quantity.parse("40Gi")}, "example.com": {"cores": Quantity.of(8)}}

    def test_a_name_in_the_drivers_domain_is_its_bare_name(self) -> None:
        assert device(attributes={f"{DRIVER}/type": {"string": "gpu"}}).attributes == {DRIVER: {"type": "gpu"}}

    @pytest.mark.parametrize(
        ("effects", "tainted"),
        [
            ([], False),
            (["NoSchedule"], True),
            (["NoExecute"], True),
            (["None"], False),
            (["None", "NoSchedule"], True),
            (["PreferNoSchedule"], False),
            ([None], False),
        ],
    )
    def test_taints_with_these_effects_keep_pods_away(self, effects: list[str], tainted: bool) -> None:
        assert device(taints=[{"key": "k", "effect": effect} for effect in effects]).tainted == tainted

    def test_consumed_counters_are_read(self) -> None:
        sets = [{"counterSet": "g", "counters": {"c": {"value": "2"}}}]
        assert device(consumesCounters=sets).consumes == {("g", "c"): 2 * NANOS}

    def test_flags_are_read(self) -> None:
        assert device(allowMultipleAllocations=True).shared
        assert not device(allowMultipleAllocations="true").shared
        assert device(bindingConditions=["ready"]).conditional
        assert not device(bindingConditions=[]).conditional


class TestShares:
    def test_policies_and_all_capacities_of_shared_devices_are_read(self) -> None:
        ranged = {"default": "2", "validRange": {"min": "1", "max": "4", "step": "1"}}
        capacity = {
            "memory": {"value": "8", "requestPolicy": ranged},
            "example.com/cores": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "4"]}},
            "links": {"value": "2", "requestPolicy": {}},
            "plain": {"value": "1"},
        }
        raw = spec(devices=[{"name": "d", "capacity": capacity, "allowMultipleAllocations": True}])
        (found,) = SliceReader().slice(raw).devices
        assert {name for members in found.capacity.values() for name in members} == {
            "memory",
            "cores",
            "links",
            "plain",
        }
        assert found.policies == {
            (DRIVER, "memory"): RequestPolicy(default=2 * NANOS, minimum=1 * NANOS, maximum=4 * NANOS, step=1 * NANOS),
            ("example.com", "cores"): RequestPolicy(default=1 * NANOS, values=(1 * NANOS, 4 * NANOS)),
            (DRIVER, "links"): RequestPolicy(),
        }
        assert device(capacity=capacity).policies == {}

    @pytest.mark.parametrize(
        ("policy", "requested", "consumed"),
        [
            (RequestPolicy(), None, 9),
            (RequestPolicy(default=2), None, 2),
            (RequestPolicy(default=2), 5, 5),
            (RequestPolicy(values=(1, 4)), 2, 4),
            (RequestPolicy(values=(1, 4)), 5, None),
            (RequestPolicy(minimum=3), 1, 3),
            (RequestPolicy(minimum=1, step=3), 5, 7),
            (RequestPolicy(minimum=1, step=3), 4, 4),
            (RequestPolicy(minimum=1, maximum=6, step=3), 5, None),
            (RequestPolicy(minimum=0, maximum=6), 6, 6),
        ],
    )
    def test_a_request_consumes_the_next_valid_amount(
        self, policy: RequestPolicy, requested: int | None, consumed: int | None
    ) -> None:
        assert policy.consumed(requested, 9) == consumed

    @pytest.mark.parametrize(
        ("toleration", "tolerated"),
        [
            (DeviceToleration(operator="Exists"), True),
            (DeviceToleration(key="drain", value="yes"), True),
            (DeviceToleration(key="drain"), False),
            (DeviceToleration(key="drain", operator="Exists", effect="NoSchedule"), True),
            (DeviceToleration(key="drain", operator="Exists", effect="NoExecute"), False),
            (DeviceToleration(key="other", operator="Exists"), False),
            (DeviceToleration(key="drain", operator="Unknown", value="yes"), False),
        ],
    )
    def test_tolerations_match_as_those_of_nodes(self, toleration: DeviceToleration, tolerated: bool) -> None:
        assert toleration.tolerates(DeviceTaint("drain", "yes", "NoSchedule")) == tolerated


class TestSpecs:
    def test_a_spec_is_read(self) -> None:
        exactly: Any = {
            "deviceClassName": "gpu",
            "selectors": [{"cel": {"expression": "true"}}],
            "count": 2,
            "adminAccess": True,
            "tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"operator": "Exists"}],
            "capacity": {"requests": {"memory": "1Gi"}},
        }
        subs: Any = [
            {"name": "s", "deviceClassName": "mig", "allocationMode": "All"},
            {"name": "t", "deviceClassName": "x"},
        ]
        constraints: Any = [
            {"matchAttribute": "a.b/numa", "requests": ["p", 1]},
            {"distinctAttribute": "a.b/uuid"},
        ]
        requests: Any = [{"name": "p", "exactly": exactly}, {"name": "q", "firstAvailable": subs}]
        found = read_claim_spec({"devices": {"requests": requests, "constraints": constraints}})
        tolerations = (DeviceToleration(key="k", value="v", effect="NoSchedule"), DeviceToleration(operator="Exists"))
        first = Alternative(
            name="p",
            device_class="gpu",
            selectors=("true",),
            count=2,
            admin=True,
            tolerations=tolerations,
            capacity=(("memory", 2**30 * NANOS),),
        )
        others = (
            Alternative(name="q/s", device_class="mig", count=None),
            Alternative(name="q/t", device_class="x", count=1),
        )
        match = Constraint(attribute="a.b/numa", requests=frozenset(["p"]))
        assert found == ClaimSpec(
            requests=((first,), others),
            constraints=(match, Constraint(attribute="a.b/uuid", distinct=True)),
        )
        assert [match.applies(name) for name in ("p", "p/s", "q")] == [True, True, False]
        assert found.constraints[1].applies("q/s")
        names: object = named_attributes([found])
        assert names == {"true", "memory", "numa", "uuid"}

    @pytest.mark.parametrize(
        ("request_", "unsupported"),
        [
            ({}, "the request p without exactly or firstAvailable"),
            ({"exactly": {"allocationMode": "Some"}}, "the allocationMode Some of the request p"),
            ({"firstAvailable": [{"name": "s", "selectors": [{"x": 1}]}]}, "a selector without cel of the request p/s"),
        ],
    )
    def test_what_is_not_supported_is_named(self, request_: dict[str, Any], unsupported: str) -> None:
        assert read_claim_spec({"devices": {"requests": [{"name": "p", **request_}]}}).unsupported == unsupported

    def test_a_constraint_of_another_kind_is_not_supported(self) -> None:
        found = read_claim_spec({"devices": {"constraints": [{"matchExpression": "x"}]}})
        assert found.unsupported == "a constraint without matchAttribute or distinctAttribute"


class TestTaintRules:
    def read(self, **selector: str) -> DeviceTaintRule:
        return read_taint_rule(taint_rule("r", **selector))

    def test_a_rule_is_read(self) -> None:
        taint = DeviceTaint("drain", "yes", "NoSchedule")
        assert self.read(driver="d", pool="p", device="x") == DeviceTaintRule(
            name="r", driver="d", pool="p", device="x", taints=(taint,)
        )
        assert taint.text == "drain=yes:NoSchedule"
        assert DeviceTaint("drain", "", "NoExecute").text == "drain:NoExecute"

    @pytest.mark.parametrize("spec", [{}, {"deviceSelector": None}])
    def test_a_rule_without_a_selector_or_an_effect_taints_nothing(self, spec: dict[str, Any]) -> None:
        taint: Any = {"key": "drain", "effect": "NoSchedule"}
        assert read_taint_rule({"metadata": {"name": "r"}, "spec": {**spec, "taint": taint}}).taints == ()
        assert self.read(effect="None").taints == ()

    @pytest.mark.parametrize(
        ("selector", "tainted"),
        [
            ({}, "a1 a2 b1"),
            ({"driver": "x"}, "a1 a2"),
            ({"pool": "b"}, "b1"),
            ({"device": "1"}, "a1 b1"),
            ({"pool": "a", "device": "2"}, "a2"),
            ({"driver": "x", "pool": "b"}, ""),
            ({"device": "1", "effect": "None"}, ""),
        ],
    )
    def test_the_taint_of_a_rule_stands_in_the_devices_that_match(self, selector: dict[str, str], tainted: str) -> None:
        own = DeviceTaint("own", "", "NoExecute")
        one, two = Device(name="1", taints=(own,)), Device(name="2")
        slices = (
            ResourceSlice(name="a", driver="x", pool="a", devices=(one, two)),
            ResourceSlice(name="b", driver="y", pool="b", devices=(one,)),
        )
        rule = self.read(**selector)
        found = Devices(slices=slices, taint_rules=(rule, self.read(effect="None"))).tainted_slices
        every = [(each.name, item) for each in found for item in each.devices]
        added = {name + item.name: item.taints[-1:] for name, item in every if item not in (one, two)}
        assert added == dict.fromkeys(tainted.split(), rule.taints)
        assert all(own in item.taints for _, item in every if item.name == "1")

    def test_equal_devices_stay_one_value(self) -> None:
        one = Device(name="1")
        slices = tuple(ResourceSlice(name=name, driver="x", pool=name, devices=(one,)) for name in "ab")
        first, second = Devices(slices=slices, taint_rules=(self.read(),)).tainted_slices
        assert first.devices[0] is second.devices[0]


class TestClaims:
    def test_allocated_devices_are_read(self) -> None:
        keys = [("a", "p", "d"), ("a", "p", "e")]
        for extended in (True, False):
            claim = resource_claim("c", "d", "e", driver="a", pool="p", extended=extended)
            assert [*read_allocated(claim)] == [(key, Use("ml/c", extended)) for key in keys]

    def test_admin_access_uses_no_device_and_a_share_what_it_consumes(self) -> None:
        claim = resource_claim("c", "d", driver="a", pool="p", extended=True)
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        result["adminAccess"] = True
        assert not [*read_allocated(claim)]
        result |= {"adminAccess": False, "shareID": "x", "consumedCapacity": {"memory": "1Gi", "b/cores": "2"}}
        consumed = ((("a", "memory"), 2**30 * NANOS), (("b", "cores"), 2 * NANOS))
        assert [*read_allocated(claim)] == [(("a", "p", "d"), Use("ml/c", True, consumed))]

    def test_an_allocated_claim_has_its_nodes_and_reservations(self) -> None:
        claim = resource_claim("c", "d", driver="a", pool="p", node="n1", reserved="pod", extended=True)
        claim["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        found = read_claim(claim)
        assert (found.name, found.allocated, found.reserved_for) == ("ml/c", True, ("ml/pod",))
        assert (found.deleted, found.extended, [*found.pools]) == (True, True, [("a", "p")])
        assert found.terms is not None
        spec: Any = {"devices": {"requests": [{"name": "p", "exactly": {"deviceClassName": "gpu"}}]}}
        pending = read_claim({"metadata": {"name": "c", "namespace": "ml"}, "spec": spec})
        assert (pending.allocated, pending.spec, pending.uses, pending.terms) == (
            False,
            read_claim_spec(spec),
            (),
            None,
        )

    def test_a_template_has_the_spec_of_its_claims(self) -> None:
        spec: Any = {"devices": {"requests": [{"name": "p", "exactly": {"deviceClassName": "gpu"}}]}}
        template = {"metadata": {"name": "t", "namespace": "ml"}, "spec": {"spec": spec}}
        assert read_devices({"ResourceClaimTemplate": [template]}, unexpected).templates == {
            "ml/t": read_claim_spec(spec)
        }
        spec["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"m": "much"}}
        messages: list[str] = []
        read_devices({"ResourceClaimTemplate": [template]}, lambda _, message: messages.append(message))
        assert messages[0].startswith("ResourceClaimTemplate t is left out: ")

    def test_a_claim_with_a_malformed_amount_cannot_be_used(self) -> None:
        spec: Any = {"devices": {"requests": [{"name": "p", "exactly": {"capacity": {"requests": {"m": "much"}}}}]}}
        with pytest.raises(DeviceError):
            read_claim({"metadata": {"name": "c"}, "spec": spec})

    def test_a_claim_without_allocation_uses_no_device(self) -> None:
        assert not [*read_allocated({"metadata": {"name": "c"}, "spec": {}})]


def test_slices_keep_what_claims_and_templates_select_by() -> None:
    attributes = {name: {"string": name} for name in ("a", "b", "c", "d")}
    capacity = {name: {"value": "1"} for name in ("x", "y")}
    exactly = {"selectors": [{"cel": {"expression": "device.attributes['g'].a == 'a'"}}]}
    asking = {"capacity": {"requests": {"x": "1"}}}
    specs: list[Any] = [
        {"devices": {"requests": [{"name": "p", "exactly": exactly}], "constraints": [{"matchAttribute": "g/b"}]}},
        {"devices": {"requests": [{"name": "p", "firstAvailable": [{"name": "s", **asking}]}]}},
    ]
    found = read_devices(
        {
            "ResourceClaim": [{"metadata": {"name": "c", "namespace": "ml"}, "spec": specs[0]}],
            "ResourceClaimTemplate": [{"metadata": {"name": "t", "namespace": "ml"}, "spec": {"spec": specs[1]}}],
            "ResourceSlice": [spec(devices=[{"name": "d", "attributes": attributes, "capacity": capacity}])],
        },
        unexpected,
    )
    (read,) = found.slices[0].devices
    assert {*read.attributes[DRIVER]} == {"a", "b"}
    assert {*read.capacity[DRIVER]} == {"x"}


def test_objects_are_read_by_kind() -> None:
    objects: dict[str, Any] = {
        "DeviceClass": [device_class("gpu", "example.com/gpu", "true")],
        "ResourceSlice": [resource_slice("n1", {"name": "d"})],
        "ResourceClaim": [resource_claim("c", "d", pool="n1", extended=True)],
        "DeviceTaintRule": [taint_rule("r")],
        "Node": [{"metadata": {"name": "n1"}}],
    }
    assert read_devices(objects, unexpected) == Devices(
        classes=(read_device_class(objects["DeviceClass"][0]),),
        slices=(read_resource_slice(objects["ResourceSlice"][0]),),
        claims={"ml/c": read_claim(objects["ResourceClaim"][0])},
        allocated={(DRIVER, "n1", "d"): (Use("ml/c", True),)},
        taint_rules=(read_taint_rule(taint_rule("r")),),
    )
    assert read_devices({}, unexpected) == NO_DEVICES


def test_objects_that_cannot_be_used_are_left_out_with_their_reason() -> None:
    messages: list[str] = []
    terms = {"nodeSelectorTerms": [{"matchFields": 1}]}
    slices: list[Any] = [
        {"metadata": {"name": "a"}},
        resource_slice("b", api.device("d", uses={"c": "much"})),
        {**spec(nodeSelector=terms), "metadata": 1},
        resource_slice("good"),
    ]
    found = read_devices({"ResourceSlice": slices}, lambda _, message: messages.append(message))
    assert [each.name for each in found.slices] == ["good"]
    assert messages[0] == "ResourceSlice a is left out: it has no driver"
    assert messages[1].startswith("ResourceSlice b is left out: ")
    assert messages[2].startswith("ResourceSlice  is left out: /spec/nodeSelector/nodeSelectorTerms/0/matchFields")
    assert len(messages) == 3


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("device.attributes['d'].type == 'gpu'", {"type", "gpu"}),
        ("'x' in device.attributes['d'] && device.capacity['d'].memory.isInteger()", {"x", "memory"}),
        ("device.attributes['d'].exists(name, name == 'x')", None),
        ("device.attributes['d']['ty' + 'pe'] == 'gpu'", None),
        ("device.attributes['d'] == {'type': 'gpu'}", None),
    ],
)
def test_selectors_name_the_attributes_that_they_read(selector: str, names: set[str] | None) -> None:
    found = named_attributes([DeviceClass(name="c", selectors=(selector,))])
    assert found is None if names is None else found is not None and names <= found


def test_attributes_that_no_selector_names_are_left_out_but_for_those_that_fail() -> None:
    reader = SliceReader([DeviceClass(name="c", selectors=("device.attributes['d'].type == 'gpu'",))])
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": "x"}, "list": {"strings": ["x"]}, "e.com/y": {"int": 1}}
    (found,) = reader.slice(spec(devices=[{"name": "d", "attributes": attributes}])).devices
    assert found.attributes == {DRIVER: {"type": "gpu", "list": None}, "e.com": {}}


def test_equal_devices_are_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = SliceReader()
    raw = [spec(devices=[{"name": "d", "attributes": {"uuid": {"string": uuid}}}]) for uuid in "ab"]
    (first,), (second,) = (reader.slice(each).devices for each in raw)
    assert first is second
    (different,) = reader.slice(spec(devices=[{"name": "d", "taints": [{"effect": "NoSchedule"}]}])).devices
    assert different != first
    monkeypatch.setattr("rules_engine.model.kubernetes.device_objects.MAX_SHARED", 1)
    reader.slice(spec(devices=[{"name": "new"}]))
    (again,) = reader.slice(raw[0]).devices
    assert (again == first, again is first) == (True, False)
