"""Reports as JSON, with their schema."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rules_engine.diagnosis.document import diagnosis_document as rendered
from rules_engine.diagnosis.scope import Scope
from rules_engine.diagnosis.values import Diagnosis
from tests.support.output_schemas import objects_of
from tests.support.reports import empty_report, group, pod_name, reported_finding, reported_node, whole_report

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "output" / "doctor.json").read_text())


def document(report: Diagnosis) -> Any:
    return json.loads(json.dumps(rendered(report)))


@pytest.mark.parametrize(
    "report",
    [
        whole_report(),
        empty_report(),
        empty_report(scope=Scope(pod=pod_name("a"), node="worker-1", namespace="ml", since=timedelta(minutes=5))),
    ],
)
def test_every_report_matches_the_schema(report: Diagnosis) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document(report))] == []


def test_every_member_is_described_and_required() -> None:
    for each in objects_of(SCHEMA):
        assert each["additionalProperties"] is False
        assert sorted(each["required"]) == sorted(each["properties"])


def test_a_possible_finding_is_possible_in_json() -> None:
    members = document(whole_report())

    assert [(each["severity"], each["certainty"], each["reason"]) for each in members["findings"]] == [
        ("Error", "Certain", "MIGLayoutNotApplied"),
        ("Error", "Possible", "GPUsAllocated"),
        ("Info", "Certain", "TimeSlicing"),
    ]
    assert [each["finding"]["certainty"] for each in members["pendingPods"]] == ["Possible", "Possible"]


def test_a_finding_has_its_objects_and_its_source() -> None:
    first, second, third = document(whole_report())["findings"]

    assert (first["objects"], first["diagnostic"], first["source"], first["onHost"]) == (
        ["Node/worker-2"],
        "Diagnostic/mig-layout",
        {"file": "rules/mig.yaml", "line": 3, "column": 1},
        True,
    )
    assert first["remedies"][1] == {
        "text": "Apply the layout again.",
        "command": "kubectl drain worker-2\nkubectl label node worker-2 a=b",
        "risk": "High",
    }
    assert second["objects"] == [f"Pod/ml/train-{n}" for n in range(7)]
    assert (third["objects"], third["diagnostic"], third["source"]) == (["Cluster"], None, None)


def test_effects_are_findings() -> None:
    effect = group(reported_finding(reason="NoAllocatableDevices"))
    report = empty_report(findings=(replace(group(reported_finding()), effects=(effect.finding,)),))

    (cause,) = document(report)["findings"]
    assert cause["effects"] == document(empty_report(findings=(effect,)))["findings"]
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document(report))] == []


def test_amounts_that_are_not_known_are_null() -> None:
    overview = empty_report().overview
    report = empty_report(
        overview=type(overview)(nodes=(reported_node("a", None),), device_plugins=(), pods=(), pending=(), errors=())
    )

    assert document(report)["nodes"][0]["resources"]["nvidia.com/gpu"] == {
        "capacity": 8,
        "allocatable": 8,
        "allocated": None,
        "free": None,
    }
