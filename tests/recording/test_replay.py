"""Law of recorded requests: decided again under the same rules, they get the recorded outcome and patch."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cel import Budget
from rules_engine.devices.offers import with_device_offers
from rules_engine.difference.decisions import depends_on_devices
from rules_engine.evaluation import RuleSet, mutate, validate
from rules_engine.evaluation.nodes import NodeFilter, Offered
from rules_engine.kinds.ladder.value import FallbackLadder
from rules_engine.model.kubernetes.cluster import Cluster, Freshness, Node, Served, Service, Taint
from rules_engine.model.kubernetes.devices import DeviceClass, NodeSelection
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED, keeps_path
from rules_engine.model.kubernetes.quantity import Format, Quantity
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint, pod_request
from rules_engine.model.rules.decision import Decision
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector, Rule
from rules_engine.recording.fields import RecordedFields, Unrecorded
from rules_engine.recording.views import HOSTNAME, MAX_VIEW_BYTES, ViewFields, read_view, view_parts
from server.rules.sources import prepare_sources
from tests.evaluation.test_decision_cache import changed, requests, rule_sets
from tests.support.api import DRIVER
from tests.support.devices import device, devices_of, kind_class, part
from tests.support.evaluation import check, cluster, compiled, container, ladder, node, pod, request, validation
from tests.support.laws import clusters, driver_clusters, ladder_sets, pods

SPEND = Budget().spend

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
PART_BYTES = 20 * 1024


def of(*expressions: str) -> RecordedFields:
    """Return the fields that expressions read."""
    return RecordedFields.of(compiled(validation(*map(check, expressions))).rules)


def through_json(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


def again(cluster: Cluster, rule_set: RuleSet, part_bytes: int = PART_BYTES) -> Cluster:
    """Return the view as it is read from its lines."""
    parts = view_parts(cluster, ViewFields.of(rule_set), part_bytes)
    assert parts is not None
    return read_view(through_json(parts))


def facts(decision: Decision) -> Any:
    return decision.allowed, decision.patch, [(step.rule, step.action) for step in decision.trace]


@given(st.data(), rule_sets(), requests(), clusters())
def test_a_recorded_request_is_decided_alike(
    data: st.DataObject, rule_set: RuleSet, raw: dict[str, Any], on: Cluster
) -> None:
    view = again(on, rule_set)
    for _ in range(3):
        made = AdmissionRequest.parse(raw)
        for endpoint, decide in ((Endpoint.MUTATE, mutate), (Endpoint.VALIDATE, validate)):
            decision = decide(rule_set, made, on)
            if decision.refusal is not None:
                continue
            before = copy.deepcopy(raw)
            reduced = RecordedFields.of(rule_set.rules_at(endpoint)).reduce_request(made)
            assert raw == before
            assert not isinstance(reduced, Unrecorded)
            repeated = decide(rule_set, AdmissionRequest.parse(through_json(reduced)), view)
            assert facts(repeated) == facts(decision)
        raw = data.draw(changed(raw))


@given(pods(), ladder_sets(), driver_clusters())
def test_a_decision_on_devices_of_drivers_is_repeated_or_known_to_be_unknown(
    made: dict[str, Any], rules: list[FallbackLadder], on: Cluster
) -> None:
    rule_set = compiled(*rules)
    view = again(on, rule_set)
    raw = pod_request(made, namespace="default")
    decision, repeated = (mutate(rule_set, raw, each) for each in (on, view))
    if not depends_on_devices(repeated.trace, view):
        assert facts(repeated) == facts(decision)
    services = [node.service for node in view.nodes if node.service]
    assert [service.resources for service in services] == [node.service.resources for node in on.nodes if node.service]


class TestDevicesOfDrivers:
    """A recorded view has amounts. It answers for one resource; for several, whether they fit together is unknown."""

    devices = (
        device("whole", "card", {"g/parts": 2}),
        device("left", "part", {"g/parts": 1}),
        device("right", "part", {"g/parts": 1}),
    )

    def recorded(self, *classes: DeviceClass, used: str = "", offered: Offered = Offered.ALLOCATABLE) -> Service:
        slices = (
            part("counts", counts={"g/parts": 2}, nodes=NodeSelection("n1"), slice_count=2),
            part("devices", *self.devices, nodes=NodeSelection("n1"), slice_count=2),
        )
        allocated = {(DRIVER, "p", used): True} if used else {}
        cluster = with_device_offers(
            Cluster(nodes=(Node(name="n1"),), devices=devices_of(classes, *slices, allocated=allocated))
        )
        (read,) = again(cluster, compiled(ladder(GPU, MIG, offered=offered))).nodes
        assert read.service is not None
        return read.service

    card, half = kind_class("card", GPU), kind_class("part", MIG)

    def test_single_amounts_are_known(self) -> None:
        service = self.recorded(self.card, self.half)
        assert [service.serve({MIG: count}, SPEND, free=False) for count in (1, 2, 3)] == [
            Served.YES,
            Served.YES,
            Served.NO,
        ]
        assert service.serve({GPU: 1}, SPEND, free=False) is Served.YES

    def test_what_is_free_is_known(self) -> None:
        service = self.recorded(self.card, self.half, used="left", offered=Offered.AVAILABLE)
        assert [service.serve({MIG: count}, SPEND, free=True) for count in (1, 2)] == [Served.YES, Served.NO]
        assert service.serve({MIG: 2}, SPEND, free=False) is Served.YES
        assert service.serve({GPU: 1}, SPEND, free=True) is Served.NO
        assert service.shape(free=True) != service.shape(free=False)

    def test_amounts_together_are_unknown_if_each_is_offered(self) -> None:
        service = self.recorded(self.card, self.half)
        assert service.serve({GPU: 1, MIG: 1}, SPEND, free=False) is Served.UNKNOWN
        assert service.serve({GPU: 2, MIG: 1}, SPEND, free=False) is Served.NO

    def test_too_many_devices_are_given_up(self) -> None:
        service = self.recorded(self.card, self.half)
        assert service.serve({MIG: 33}, SPEND, free=False) is Served.GIVEN_UP
        assert service.failure({MIG: 33}, free=False) == "33 devices are requested, and a claim has at most 32"

    def test_all_is_unknown_with_a_failing_selector(self) -> None:
        failing = DeviceClass(name="part", resource=MIG, selectors=("device.attributes['gpu.nvidia.com'].other == 1",))
        service = self.recorded(failing)
        assert not service.simple
        assert service.serve({MIG: 1}, SPEND, free=False) is Served.UNKNOWN
        assert service.node.allocatable == {}


def reduced(fields: RecordedFields, made: Any, **other: Any) -> Any:
    return fields.reduce_request(request(made, **other))


def test_a_request_without_expressions_has_what_every_decision_reads() -> None:
    made: Any = pod(container("main", limits={GPU: "1"}), labels={"app": "a"}, annotations={"a/b": "c"})
    made["spec"] |= {"nodeName": "n", "volumes": []}
    made["spec"]["containers"][0] |= {"image": "a", "env": [{"name": "A", "value": "secret"}]}
    record = reduced(of(), made)
    assert record["object"]["spec"] == {
        "nodeName": "n",
        "containers": [{"name": "main", "resources": made["spec"]["containers"][0]["resources"]}],
    }
    assert record["object"]["metadata"]["labels"] == {}
    assert "userInfo" not in record
    assert record["operation"] == "CREATE"


def test_a_field_below_one_that_is_always_recorded_changes_nothing() -> None:
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity: Any = {"nodeAffinity": {preferred: []}, "podAffinity": {preferred: []}}
    made: Any = pod(container("main"))
    made["spec"]["affinity"] = copy.deepcopy(affinity)
    record = reduced(
        of("has(object.spec.affinity.podAffinity)", f"has(object.spec.affinity.nodeAffinity.{preferred})"), made
    )
    assert record["object"]["spec"]["affinity"] == made["spec"]["affinity"] == affinity


def test_only_the_members_of_containers_that_expressions_name_are_recorded() -> None:
    made: Any = pod(container("main"))
    made["spec"]["containers"][0] |= {"image": "a", "command": ["x"], "env": [{"name": "A", "value": "secret"}]}
    [kept] = reduced(of("object.spec.containers.all(c, c.image != 'b')"), made)["object"]["spec"]["containers"]
    assert (kept["image"], "command" in kept, "env" in kept) == ("a", False, False)
    [kept] = reduced(of("object.spec.containers.all(c, c.env.all(e, e.name != 'b'))"), made)["object"]["spec"][
        "containers"
    ]
    assert kept["env"] == [{"name": "A"}]


def test_no_rule_of_the_packaged_set_reads_the_environment() -> None:
    prepared, _ = prepare_sources()
    rule_set = prepared.rules.rule_set
    kept = RecordedFields.of(rule_set.rules).kept
    assert not any(
        keeps_path(kept, "object", "spec", name, "env", "value") for name in ("containers", "initContainers")
    )


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.containers.all(c, c.env.all(e, e.value != 'b'))",
        "object.spec.containers.all(c, c[object.metadata.name] == c[object.metadata.namespace])",
        "object.spec.containers.map(c, [[c]]).all(l, l[0] == l[1])",
    ],
)
def test_a_request_whose_environment_decides_is_not_recorded(expression: str) -> None:
    made: Any = pod(container("main"))
    assert isinstance(reduced(of(expression), made), dict)
    made["spec"]["containers"][0]["env"] = [{"name": "A", "valueFrom": {}}]
    assert isinstance(reduced(of(expression), made), dict)
    made["spec"]["containers"][0]["env"] = [{"name": "A", "value": "secret"}]
    assert reduced(of(expression), made) is Unrecorded.REDACTED


@pytest.mark.parametrize(
    "expression",
    [
        f"object.metadata.annotations['{LAST_APPLIED}'] != ''",
        f"object.metadata.annotations['{LAST_APPLIED}'].size() > 1",
        f"object.metadata.?annotations[?'{LAST_APPLIED}'].hasValue()",
        "object.metadata.annotations.size() > 1",
        "object.metadata.annotations.exists(k, object.metadata.annotations[k] == 'b')",
    ],
)
def test_the_last_applied_configuration_is_never_recorded(expression: str) -> None:
    made: Any = pod(annotations={LAST_APPLIED: "{}", "a": "b"})
    assert reduced(of(expression), made) is Unrecorded.REDACTED
    del made["metadata"]["annotations"][LAST_APPLIED]
    assert isinstance(reduced(of(expression), made), dict)


def test_the_last_applied_configuration_that_no_rule_reads_is_left_out() -> None:
    made: Any = pod(annotations={LAST_APPLIED: "{}", "a": "b"})
    record = reduced(of("object.metadata.annotations['a'] == 'b'"), made)
    assert record["object"]["metadata"]["annotations"] == {"a": "b"}


def test_the_whole_request_includes_both_pods() -> None:
    fields = of("request == request")
    assert fields.kept is None
    made: Any = pod(container("main"), labels={"app": "a"})
    record: Any = fields.reduce_request(pod_request(made, namespace="ml", operation="UPDATE", old_pod=made))
    assert record["userInfo"]["username"]
    assert record["oldObject"]["metadata"]["labels"] == record["object"]["metadata"]["labels"] == {"app": "a"}


def test_another_kind_of_object_is_not_recorded() -> None:
    made = AdmissionRequest.parse({"kind": {"kind": "Job"}, "operation": "CREATE", "object": {"spec": {}}})
    assert of("object.spec.priority == 1").reduce_request(made) == {"kind": {"kind": "Job"}, "operation": "CREATE"}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (None, None),
        ({"metadata": None, "spec": None}, {"metadata": None, "spec": None}),
        (
            {"metadata": {"labels": None}, "spec": {"containers": None, "affinity": None}},
            {"metadata": {"labels": None}, "spec": {"containers": None, "affinity": None}},
        ),
        (
            {"spec": {"securityContext": 1, "tolerations": [{"key": "a"}], "containers": [None]}},
            {"spec": {"securityContext": 1, "tolerations": [{"key": "a"}], "containers": [None]}},
        ),
    ],
)
def test_members_that_are_null_or_of_another_type_are_recorded_as_they_are(made: Any, expected: Any) -> None:
    fields = of("object.spec.securityContext.runAsUser == 1 && object.spec.tolerations.size() > object.spec.priority")
    assert reduced(fields, made).get("object") == expected


def test_a_field_below_one_that_every_request_has_adds_nothing() -> None:
    made: Any = pod(container("main"), resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})
    fields = of("object.spec.resources.limits.cpu == '1'")
    assert reduced(fields, made) == reduced(of(), made)


def test_fields_are_read_again() -> None:
    for fields in (
        of("object.metadata.labels.app == 'a'"),
        of("object.spec.containers.all(c, c[object.metadata.name].size() > 1)"),
    ):
        parsed = RecordedFields.parse(through_json(fields.to_json()))
        assert parsed.to_json() == fields.to_json()
        assert parsed.name == fields.name
    assert RecordedFields.parse({"members": []}) == RecordedFields({})


@pytest.mark.parametrize(
    ("recorded", "read", "included"),
    [
        ("object.spec.priority == 1", "object.spec.priority == 2", True),
        ("object.spec.priority == 1", "object.spec.nodeName == 'a'", True),
        ("object.spec.priority == 1", "object.spec.hostNetwork", False),
        ("object.metadata.labels == {}", "object.metadata.labels.app == 'a'", True),
        ("object.spec.priority == 1", "object.metadata.annotations['gpurules.io/skip'] == 'a'", True),
        ("object.spec.priority == 1", "object.metadata.annotations == {}", False),
        ("object.spec.priority == 1", "object.metadata.labels.app == 'a'", False),
        ("object.spec.containers.all(c, c.image == '')", "object.spec.containers.all(c, c.command == [])", False),
        ("object.spec.containers.all(c, c.image == '')", "object.spec.containers.all(c, c.image == '')", True),
        ("object.spec.containers.all(c, c[object.spec.nodeName] == '')", "object.spec.containers[0].image == ''", True),
        (
            "object.spec.containers[0].image == ''",
            "object.spec.containers.all(c, c[object.spec.nodeName] == '')",
            False,
        ),
    ],
)
def test_other_rules_can_decide_what_includes_their_fields(recorded: str, read: str, included: bool) -> None:
    assert (not [*of(recorded).missing(of(read))]) is included


@pytest.mark.parametrize(
    "expression",
    [
        "object.metadata.?labels.team.orValue('') != '{}'",
        "object.metadata.labels.team in ['{}']",
        "'{}' in object.spec.containers.map(c, c.name)",
        "{{'{}': 1}}[object.metadata.labels.team] == 1",
        "cel.bind(team, object.metadata.labels['team'], team.startsWith('{}'))",
    ],
)
def test_rules_with_another_text_read_the_same_fields(expression: str) -> None:
    containers = "object.spec.containers.all(c, c.image == '')"
    recorded, read = (of(f"{expression.format(text)} && {containers}") for text in ("team-3", "team-4"))
    assert recorded == read
    assert not [*recorded.missing(read)]


AVAILABLE = compiled(validation("cluster.available('cpu') > 1 || namespaceObject.metadata.name == 'a'"))


def test_a_view_is_read_again() -> None:
    taint = Taint(key="a", effect="NoSchedule", value="b")
    made = Cluster(
        nodes=(
            *(node(f"n{n}", {GPU: 1}, labels={"a": "b", HOSTNAME: f"n{n}"}, taints=(taint,)) for n in range(20)),
            node(
                "other", {"cpu": 3}, {"cpu": 1}, ready=False, unschedulable=True, taints=(Taint(key="a", effect="b"),)
            ),
        ),
        namespaces={"a": {"x": "y"}, "b": {}},
        namespaces_complete=False,
        freshness=Freshness.STALE,
        unread=frozenset(["", GPU]),
    )
    assert again(made, AVAILABLE) == made
    assert again(made, AVAILABLE, part_bytes=200) == made
    parts = view_parts(made, ViewFields.of(AVAILABLE), 200)
    assert parts is not None
    assert len(parts) > 2
    assert all(len(orjson.dumps(part)) <= 300 for part in parts)
    assert read_view([]) == Cluster(namespaces_complete=False, freshness=Freshness.NEVER)


def test_a_view_has_only_what_rules_read() -> None:
    memory = Quantity(1, Format.BINARY_SI)
    made = Cluster(
        nodes=tuple(
            Node(name=f"n{n}", allocatable={GPU: Quantity.of(8), "memory": memory}, used={GPU: Quantity.of(n)})
            for n in range(3)
        ),
        namespaces={"a": {}},
    )
    [part] = view_parts(made, ViewFields.of(compiled(ladder(GPU, "amd.com/gpu"))), PART_BYTES) or []
    assert part == {
        "freshness": "synced",
        "reads": ["nodes"],
        "resources": ["amd.com/gpu", GPU],
        "namespacesComplete": True,
        "nodes": [{"names": ["n0", "n1", "n2"], "allocatable": {GPU: "8"}}],
    }
    assert view_parts(made, ViewFields.of(compiled()), PART_BYTES) == [
        {"freshness": "synced", "reads": [], "resources": [], "namespacesComplete": True}
    ]


def test_labels_that_are_nearly_unique_are_omitted() -> None:
    labels = [{"zone": f"z{n % 4}", "serial": str(n), "rack": str(n // 2), HOSTNAME: f"n{n}"} for n in range(200)]
    made = Cluster(nodes=tuple(node(f"n{n}", {GPU: 1}, labels=own) for n, own in enumerate(labels)))
    few = Cluster(nodes=made.nodes[:64])

    def omitted(on: Cluster, *rules: Rule) -> tuple[Any, set[str]]:
        parts = view_parts(on, ViewFields.of(compiled(*rules)), MAX_VIEW_BYTES) or []
        return parts[0].get("omittedLabels"), {key for each in read_view(parts).nodes for key in each.labels}

    everything = {"zone", "serial", "rack", HOSTNAME}
    assert omitted(made, ladder(GPU, "amd.com/gpu")) == (["serial"], everything - {"serial"})
    selecting = NodeFilter(LabelSelector((LabelRequirement("serial", ConditionKind.EXISTS),)))
    assert omitted(made, ladder(GPU, "amd.com/gpu", nodes=selecting)) == (None, everything)
    assert omitted(few, ladder(GPU, "amd.com/gpu")) == (None, everything)


def test_a_view_that_is_too_large_is_not_recorded() -> None:
    fields = ViewFields.of(AVAILABLE)
    assert view_parts(cluster(node(labels={"a": "b" * PART_BYTES})), fields, PART_BYTES) is None
    many = Cluster(namespaces={str(n): {"a": "b" * 10_000} for n in range(MAX_VIEW_BYTES // 10_000 + 1)})
    assert view_parts(many, fields, PART_BYTES) is None
