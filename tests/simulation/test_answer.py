"""Answers for several clusters and rule sets."""

from dataclasses import replace

import pytest

from rules_engine.simulation.answer import build_answer
from rules_engine.simulation.figures import By
from rules_engine.simulation.record import PodRecord, Record
from tests.support.simulation_records import (
    GPU,
    HOUR,
    MINUTE,
    admitted_pod,
    record,
    recorded_node,
    recorded_pod,
    whole_record,
)

ONE = admitted_pod({GPU: 1})


def of(*pods: PodRecord, rules: str = "rules", cluster: str = "") -> Record:
    return record([recorded_node("a", gpu=4)], pods, HOUR, rules=rules, cluster=cluster)


RAN = of(recorded_pod("p", ONE, node="a"))
WAITED = of(recorded_pod("p", ONE, node="a", bound=MINUTE))
WAITS = of(recorded_pod("p", ONE))


def test_ties_are_all_best() -> None:
    assert build_answer([WAITED, RAN, WAITS, RAN]).best == [1, 3]
    assert build_answer([WAITED, RAN, WAITS, RAN], By.UNSERVED).best == [0, 1, 3]
    assert build_answer([RAN]).best == [0]
    assert build_answer([WAITS, WAITS]).best == ()


def test_pods_that_ran_in_no_simulation_are_listed() -> None:
    never = recorded_pod("q", ONE)

    assert [pod.name for pod in build_answer([of(*WAITS.pods, never), of(*RAN.pods, never)]).never_ran] == ["q"]


def test_parts_of_simulations_are_measured_up_to_their_own_end() -> None:
    part = replace(RAN, interrupted=True, ended=MINUTE)
    answer = build_answer([RAN, part])

    assert (answer.interrupted, build_answer([RAN, RAN]).interrupted) == (True, False)
    assert [result.record.ended for result in answer.results] == [HOUR, MINUTE]


def test_all_are_measured_up_to_the_same_time() -> None:
    short, long = build_answer([replace(RAN, ended=MINUTE), RAN]).results

    assert short.totals == long.totals
    assert short.record.ended == HOUR


@pytest.mark.parametrize("by", By)
def test_a_load_ties_with_itself(by: By) -> None:
    assert build_answer([whole_record(), whole_record()], by).best == [0, 1]


def test_results_are_named_by_what_differs() -> None:
    a, b = of(cluster="a"), of(cluster="b")

    assert build_answer([a]).names == [""]
    assert build_answer([a, b]).names == ["a", "b"]
    assert build_answer([a, replace(a, rules="new")]).names == ["rules", "new"]
    assert build_answer([a, replace(a, rules="new"), b]).names == ["a, rules rules", "a, rules new", "b, rules rules"]
