"""Answers as JSON, with their schema."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rules_engine.simulation.answer import build_answer
from rules_engine.simulation.document import simulation_document as rendered
from rules_engine.simulation.record import Record
from tests.support.output_schemas import objects_of
from tests.support.simulation_records import (
    GPU,
    HOUR,
    MESSAGE,
    SMALL,
    record,
    recorded_node,
    simulation,
    whole_record,
)

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "output" / "simulate.json").read_text())


def document(*records: Record) -> Any:
    return json.loads("".join(rendered(build_answer(records), json.dumps)))


EMPTY = record([], [], 0, simulation=simulation(until=1_500))


@pytest.mark.parametrize(
    "records",
    [
        [whole_record()],
        [EMPTY],
        [whole_record(), replace(whole_record(), rules="other", pods=())],
        [replace(whole_record(), interrupted=True, notices=("left out",)), EMPTY],
    ],
)
def test_every_answer_matches_the_schema(records: list[Record]) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document(*records))] == []


def test_every_member_is_described_and_required() -> None:
    for each in objects_of(SCHEMA):
        assert each["additionalProperties"] is False
        assert sorted(each["required"]) == sorted(each["properties"])


def test_a_pod_records_its_requested_and_given_resources() -> None:
    old, fell, _, low, _, wait, replacing, denied = document(whole_record())["results"][0]["pods"]

    assert fell == {
        "namespace": "ml",
        "name": "train-1",
        "arrival": "Job/train",
        "priority": 0,
        "requested": {"cpu": 1, SMALL: 1},
        "given": {"cpu": 1, GPU: 1},
        "fallbacks": [{"rule": "FallbackLadder/mig-80gb", "requested": SMALL, "given": GPU, "devices": 1}],
        "warnings": [],
        "state": "Succeeded",
        "node": "a",
        "arrivedSeconds": 0,
        "boundSeconds": 0,
        "endedSeconds": 3600,
        "waitedSeconds": 0,
        "message": None,
        "deniedBy": None,
        "replaces": None,
        "by": None,
    }
    assert (old["arrival"], old["waitedSeconds"], old["by"]) == (None, None, "b became Drained")
    assert (low["given"], low["by"]) == ({"cpu": 0.5, GPU: 1}, "ml/high")
    assert (wait["node"], wait["boundSeconds"], wait["message"]) == (None, None, MESSAGE)
    assert replacing["replaces"] == "old"
    assert (denied["message"], denied["deniedBy"]) == ("Validation/limit: no more than 8 GPUs", "Validation/limit")


def test_a_node_has_its_use_over_time() -> None:
    first, _ = document(whole_record())["results"][0]["nodes"]

    assert first["resources"][GPU] == {
        "capacity": 4,
        "mean": 149 / 60,
        "peak": 3,
        "end": 2,
        "used": [[0, 2], [120, 3], [3600, 2]],
    }


def test_the_comparison_has_a_row_for_each_result() -> None:
    whole = replace(whole_record(), cluster="a.yaml")
    comparison = document(whole, replace(whole, cluster="b.yaml", pods=whole.pods[:2]), EMPTY)["comparison"]
    assert comparison["by"] == "waiting"
    assert comparison["rows"][:2] == [
        {
            "cluster": "a.yaml",
            "rules": "rules",
            "best": False,
            "pods": 7,
            "ran": 4,
            "waitingSeconds": None,
            "gpuHours": {"given": 209 / 30, "lost": 178 / 70, "unused": 271 / 30, "stranded": 0},
        },
        {
            "cluster": "b.yaml",
            "rules": "rules",
            "best": True,
            "pods": 1,
            "ran": 1,
            "waitingSeconds": 0,
            "gpuHours": {"given": 3, "lost": 6 / 7, "unused": 13, "stranded": 0},
        },
    ]
    assert comparison["neverRan"] == ["ml/wait-1", "ml/wait-2", "ml/greedy"]


def test_one_result_is_a_table_of_one_row_and_a_part_has_no_table() -> None:
    assert len(document(whole_record())["comparison"]["rows"]) == 1
    assert document(replace(whole_record(), interrupted=True))["comparison"] is None


def test_the_same_record_gives_the_same_bytes() -> None:
    assert list(rendered(build_answer([whole_record()]), json.dumps)) == list(
        rendered(build_answer([whole_record()]), json.dumps)
    )


def test_a_node_without_pods_is_unused_from_the_beginning() -> None:
    (node,) = document(record([recorded_node("a", gpu=1)], [], HOUR))["results"][0]["nodes"]

    assert node["resources"][GPU]["used"] == [[0, 0]]
