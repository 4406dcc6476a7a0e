"""Events of findings: contents, names and namespaces, and no repetition."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rules_engine.model.kubernetes.cluster_objects import API_KINDS, DIAGNOSED_RESOURCES, FINDINGS, ClusterObjects
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity
from rules_engine.questions.doctor.values import FindingGroup
from rules_engine.server.cluster.connection import Connection
from rules_engine.server.commands.doctor.finding_events import KINDS, finding_events
from rules_engine.server.telemetry.events import MAX_MESSAGE, MAX_QUEUED, NAMESPACE_BURST, Event, Events
from tests.support.apiserver import ApiServer, bound, node
from tests.support.cluster import plain
from tests.support.operating import until
from tests.support.reports import empty_report, group, pod_name, reported_finding

AT = datetime(2026, 11, 23, tzinfo=UTC)
CLUSTER = ClusterObjects({"Node": [node("worker-2")], "Pod": [bound("p")]}, now=AT)
POD = pod_name("p")


def sent(*groups: FindingGroup) -> list[Any]:
    """Return the Events of findings as they are created."""
    return [event.to_json(AT, "0") for event in finding_events(empty_report(findings=groups), CLUSTER)]


def test_the_event_of_a_node_is_in_the_default_namespace() -> None:
    """The API server refuses another one (apis/core/validation/events.go)."""
    (event,) = sent(group(reported_finding()))

    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default", "name": "worker-2.0"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "worker-2", "uid": "uid-of-worker-2"},
        "type": "Warning",
        "reason": "MIGLayoutNotApplied",
        "message": "node worker-2 has no MIG devices",
        "source": {"component": FINDINGS},
        "firstTimestamp": "2026-11-23T00:00:00Z",
        "lastTimestamp": "2026-11-23T00:00:00Z",
        "count": 1,
    }


def test_an_effect_has_an_event_too() -> None:
    caused = replace(group(reported_finding()), effects=(reported_finding(reason="NoAllocatableDevices"),))

    assert [event["reason"] for event in sent(caused)] == ["MIGLayoutNotApplied", "NoAllocatableDevices"]


def test_the_event_of_a_pod_is_in_its_namespace() -> None:
    (event,) = sent(group(reported_finding(object=POD)))

    assert event["metadata"] == {"namespace": "ml", "name": "p.0"}
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-of-p", "namespace": "ml"}
    assert event["involvedObject"] == about


def test_an_object_that_was_not_read_has_no_uid() -> None:
    (event,) = sent(group(reported_finding(object=ObjectName("Job", "train", "ml"))))

    about = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "namespace": "ml"}
    assert event["involvedObject"] == about


def test_each_object_of_a_group_has_an_event_that_names_the_first_one() -> None:
    nodes = [ObjectName("Node", f"worker-{number}") for number in (2, 3)]

    assert [
        (event["involvedObject"]["name"], event["message"]) for event in sent(group(reported_finding(), nodes))
    ] == [
        ("worker-2", "node worker-2 has no MIG devices"),
        ("worker-3", "like Node/worker-2: node worker-2 has no MIG devices"),
    ]


def test_an_event_names_no_object_of_another_namespace() -> None:
    pods = [ObjectName("Pod", f"train-{number}", f"team-{number}") for number in (1, 2)]
    finding = reported_finding(object=pods[0], message="pod train-1 of team-1 waits, as Pod/team-1/train-1 says")

    first, second = sent(group(finding, pods))

    assert first["message"] == finding.message
    assert second["involvedObject"]["namespace"] == "team-2"
    assert second["message"] == "pod … of … waits, as Pod/…/… says"


def test_the_worst_findings_come_first() -> None:
    groups = [group(reported_finding(severity=severity)) for severity in FindingSeverity]

    assert [event["type"] for event in sent(*groups)] == ["Warning", "Warning", "Normal"]


def test_an_event_marks_a_possible_finding() -> None:
    (event,) = sent(group(reported_finding(certainty=Certainty.POSSIBLE)))

    assert event["message"] == "possible: node worker-2 has no MIG devices"


@pytest.mark.parametrize(
    "name",
    [
        ObjectName("Cluster", ""),
        ObjectName("Event", "e", "ml"),
        ObjectName("Node", ""),
        ObjectName("Node", "../secrets"),
        ObjectName("Pod", "p", "ml/../x"),
        ObjectName("Pod", "p", "m" * 64),
    ],
)
def test_objects_without_a_valid_reference_have_no_event(name: ObjectName) -> None:
    assert sent(group(reported_finding(object=name))) == []


def test_a_long_message_is_cut() -> None:
    (event,) = sent(group(reported_finding(message="x" * 1_000_000)))

    assert len(event["message"]) == MAX_MESSAGE


@pytest.mark.parametrize("kind", sorted(DIAGNOSED_RESOURCES.keys() - {"Event"}))
def test_every_kind_of_object_can_have_events(kind: str) -> None:
    (event,) = sent(group(reported_finding(object=ObjectName(kind, "a"))))

    assert event["involvedObject"]["apiVersion"] == API_KINDS[kind].api_version
    assert kind in KINDS


def test_events_have_no_events() -> None:
    assert sent(group(reported_finding(object=ObjectName("Event", "a", "ml")))) == []


def events_of(finding: Finding) -> list[Event]:
    return list(finding_events(empty_report(findings=(group(finding),)), CLUSTER))


def test_a_finding_that_lasts_has_one_event(api: ApiServer, tmp_path: Path) -> None:
    sender = Events(Connection(plain(api)), quiet_seconds=1000.0)
    sender.start()
    for age in range(3):
        (event,) = events_of(reported_finding(message=f"for {age} minutes"))
        sender.add(event)
    (last,) = events_of(reported_finding(object=POD))
    sender.add(last)
    api.wait_for(lambda: any(namespace == "ml" for namespace, _ in api.events))
    sender.stop()

    assert [event["message"] for _, event in api.events] == ["for 0 minutes", "node worker-2 has no MIG devices"]
    assert json.dumps(api.events).count(FINDINGS) == 2


def test_findings_that_last_leave_room_for_others(api: ApiServer) -> None:
    sender = Events(Connection(plain(api)), quiet_seconds=1000.0)
    sender.start()
    (event,), (other,) = events_of(reported_finding()), events_of(reported_finding(object=POD))
    sender.add(event)
    until(lambda: sender.sent == 1, "the first Event")
    sender.add_new([event] * (MAX_QUEUED + 1))
    sender.add_new([other])
    until(lambda: sender.sent == 2, "the other Event")
    sender.stop()

    assert sender.dropped == 0


def test_findings_of_one_namespace_leave_room_for_others(api: ApiServer) -> None:
    sender = Events(Connection(plain(api)))
    pods = [ObjectName("Pod", f"train-{index}", "ml") for index in range(MAX_QUEUED + 1)]
    events = [event for pod in pods for event in events_of(reported_finding(object=pod))]
    sender.add_new([*events, *events_of(reported_finding(object=ObjectName("Pod", "other", "team")))])
    sender.start()
    api.wait_for(lambda: any(namespace == "team" for namespace, _ in api.events))
    sender.stop()
    until(lambda: sender.sent == NAMESPACE_BURST + 1, "the count of the last Event")

    assert [namespace for namespace, _ in api.events] == ["ml"] * NAMESPACE_BURST + ["team"]
    assert sender.dropped == len(events) - NAMESPACE_BURST
