"""Answers for several clusters and rule sets, and their JSON."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rules_engine.questions.simulate.answer import Comparison, build_answer
from rules_engine.questions.simulate.figures import By
from rules_engine.questions.simulate.record import PodRecord, Record
from rules_engine.report.answer import answer_text
from tests.support.simulation_records import (
    GPU,
    HOUR,
    MESSAGE,
    MINUTE,
    SMALL,
    admitted_pod,
    record,
    recorded_node,
    recorded_pod,
    simulation,
    whole_record,
)

ONE = admitted_pod({GPU: 1})


def of(*pods: PodRecord, rules: str = "rules", cluster: str = "") -> Record:
    return record([recorded_node("a", gpu=4)], pods, HOUR, rules=rules, cluster=cluster)


RAN = of(recorded_pod("p", ONE, node="a"))
WAITED = of(recorded_pod("p", ONE, node="a", bound=MINUTE))
WAITS = of(recorded_pod("p", ONE))
EMPTY = record([], [], 0, simulation=simulation(until=1_500))


def compared(*records: Record, by: By = By.WAITING) -> Comparison:
    comparison = build_answer(records, by).comparison
    assert comparison is not None
    return comparison


def best(*records: Record, by: By = By.WAITING) -> list[int]:
    return [number for number, row in enumerate(compared(*records, by=by).rows) if row.best]


def document(*records: Record) -> Any:
    return json.loads(answer_text(build_answer(records)))


def test_ties_are_all_best() -> None:
    assert best(WAITED, RAN, WAITS, RAN) == [1, 3]
    assert best(WAITED, RAN, WAITS, RAN, by=By.UNSERVED) == [0, 1, 3]
    assert best(RAN) == [0]
    assert best(WAITS, WAITS) == []


def test_pods_that_ran_in_no_simulation_are_listed() -> None:
    never = recorded_pod("q", ONE)

    assert compared(of(*WAITS.pods, never), of(*RAN.pods, never)).never_ran == ("ml/q",)


def test_parts_of_simulations_are_measured_up_to_their_own_end_and_not_compared() -> None:
    part = replace(RAN, interrupted=True, ended=MINUTE)
    answer = build_answer([RAN, part])

    assert answer.comparison is None
    assert [(result.interrupted, result.ended_seconds) for result in answer.results] == [(False, 3600), (True, 60)]


def test_all_are_measured_up_to_the_same_time() -> None:
    short, long = build_answer([replace(RAN, ended=MINUTE), RAN]).results

    assert short == long


@pytest.mark.parametrize("by", By)
def test_a_load_ties_with_itself(by: By) -> None:
    assert best(whole_record(), whole_record(), by=by) == [0, 1]


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
    assert (wait["node"], wait["boundSeconds"], wait["waitedSeconds"], wait["message"]) == (None, None, 7080, MESSAGE)
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


def test_the_figures_of_a_result_are_exact() -> None:
    whole = whole_record()
    first, second, _ = document(whole, replace(whole, pods=whole.pods[:2]), EMPTY)["comparison"]["rows"]

    hours = [first["gpuHours"][name] for name in ("given", "lost", "unused", "stranded")]
    assert hours == [209 / 30, 178 / 70, 271 / 30, 0]
    assert (first["best"], first["pods"], first["ran"], first["meanWaitingSeconds"]) == (False, 7, 4, None)
    assert (second["best"], second["pods"], second["ran"], second["meanWaitingSeconds"]) == (True, 1, 1, 0)


def test_a_node_without_pods_is_unused_from_the_beginning() -> None:
    (node,) = document(record([recorded_node("a", gpu=1)], [], HOUR))["results"][0]["nodes"]

    assert node["resources"][GPU]["used"] == [[0, 0]]
