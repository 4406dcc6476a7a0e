"""Comparison of simulations under several rule sets."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rules_engine.simulation.answer import build_answer
from rules_engine.simulation.comparison import METRICS, Verdict
from rules_engine.simulation.record import PodRecord, Record, State
from tests.support.simulation_records import (
    GPU,
    HOUR,
    MINUTE,
    SMALL,
    admitted_pod,
    fallen,
    record,
    recorded_node,
    recorded_pod,
    whole_record,
)

REPOSITORY = Path(__file__).parents[2]
WHOLE, PART = admitted_pod({GPU: 1}), admitted_pod({SMALL: 1})
ODD = admitted_pod({GPU: 3})


def of(*pods: PodRecord) -> Record:
    return record([recorded_node("a", gpu=4, small=7)], pods, HOUR)


RAN = of(recorded_pod("p", WHOLE, node="a"))
ENDED = of(recorded_pod("p", WHOLE, node="a", state=State.SUCCEEDED, ended=MINUTE))
WAITED = of(recorded_pod("p", WHOLE, node="a", bound=MINUTE))
WAITS = of(recorded_pod("p", WHOLE))


@pytest.mark.parametrize(
    ("metric", "good", "bad"),
    [
        ("bound", RAN, WAITS),
        ("succeeded", ENDED, RAN),
        ("pending", RAN, WAITS),
        ("waitingP50", RAN, WAITED),
        ("waitingP95", RAN, WAITED),
        ("preempted", RAN, of(recorded_pod("p", WHOLE, node="a", state=State.PREEMPTED, ended=MINUTE))),
        ("evicted", RAN, of(recorded_pod("p", WHOLE, node="a", state=State.EVICTED, ended=MINUTE))),
        ("fell", RAN, of(recorded_pod("p", fallen(), node="a"))),
        ("utilisation", RAN, WAITED),
        ("gpuHoursLost", RAN, of(recorded_pod("p", fallen(), node="a"))),
        ("gpuHoursShort", RAN, of(recorded_pod("p", admitted_pod({GPU: 1}, {SMALL: 1}), node="a"))),
        ("fragmentation", of(recorded_pod("p", WHOLE)), of(recorded_pod("p", ODD))),
    ],
)
def test_each_metric_is_better_in_its_direction(metric: str, good: Record, bad: Record) -> None:
    assert verdict(metric, bad, good) is Verdict.BETTER
    assert verdict(metric, good, bad) is Verdict.WORSE
    assert verdict(metric, good, good) is Verdict.EQUAL


def verdict(metric: str, first: Record, other: Record) -> Verdict:
    (found,) = [each for each in build_answer([first, other]).comparison if each.metric.name == metric]
    return found.verdicts[0]


@pytest.mark.parametrize("metric", ["denied", "gpuHoursGiven"])
def test_metrics_without_a_direction_are_different(metric: str) -> None:
    denied = of(recorded_pod("p", WHOLE, state=State.DENIED))

    assert verdict(metric, RAN, denied) is Verdict.DIFFERENT


def test_a_value_that_one_rule_set_lacks_is_not_compared() -> None:
    full = of(*[recorded_pod(f"p{number}", WHOLE, node="a") for number in range(4)])
    assert verdict("fragmentation", RAN, of()) is Verdict.UNKNOWN
    assert verdict("fragmentation", full, full) is Verdict.EQUAL


@pytest.mark.parametrize("state", [State.PENDING, State.DENIED])
def test_pods_that_never_run_make_no_shorter_waiting_times(state: State) -> None:
    first = of(*[recorded_pod(f"p{n}", WHOLE, node="a", bound=MINUTE) for n in range(86)])
    ran = [recorded_pod(f"p{n}", WHOLE, node="a") for n in range(6)]
    other = of(*ran, *[recorded_pod(f"p{n}", WHOLE, state=state) for n in range(6, 86)])
    for metric in ("waitingP50", "waitingP95"):
        assert verdict(metric, first, other) is Verdict.WORSE
        assert verdict(metric, other, first) is Verdict.BETTER
        assert verdict(metric, other, other) is Verdict.EQUAL


def test_fewer_pods_that_wait_are_no_better_if_more_were_denied() -> None:
    def states(waiting: int, denied: int) -> Record:
        found = [recorded_pod(f"p{n}", WHOLE) for n in range(waiting)]
        found += [recorded_pod(f"d{n}", WHOLE, state=State.DENIED) for n in range(denied)]
        return of(*found, *[recorded_pod(f"r{n}", WHOLE, node="a") for n in range(10 - waiting - denied)])

    verdicts = [verdict("pending", states(5, 0), states(*other)) for other in ((0, 10), (0, 5), (0, 4), (6, 4))]
    assert verdicts == [Verdict.DIFFERENT, Verdict.DIFFERENT, Verdict.BETTER, Verdict.WORSE]
    assert verdict("pending", states(0, 10), states(5, 0)) is Verdict.DIFFERENT


def test_all_are_compared_with_the_first() -> None:
    compared = build_answer([RAN, WAITS, RAN]).comparison[0]

    assert compared.values == [1, 0, 1]
    assert compared.verdicts == [Verdict.WORSE, Verdict.EQUAL]


def test_one_rule_set_and_parts_of_simulations_are_not_compared() -> None:
    part = replace(RAN, interrupted=True)

    assert build_answer([RAN]).comparison == ()
    assert build_answer([RAN, part]).comparison == ()
    assert (build_answer([RAN, part]).interrupted, build_answer([RAN, RAN]).interrupted) == (True, False)


def test_all_are_measured_up_to_the_same_time() -> None:
    short, long = build_answer([replace(RAN, ended=MINUTE), RAN]).results

    assert short.totals == long.totals
    assert short.record.ended == HOUR


def test_a_load_equals_itself() -> None:
    compared = build_answer([whole_record(), whole_record()])

    assert {verdict for each in compared.comparison for verdict in each.verdicts} == {Verdict.EQUAL}


def test_the_schema_lists_all_metrics() -> None:
    schema = json.loads((REPOSITORY / "schemas" / "output" / "simulate.json").read_text())
    listed = schema["properties"]["comparison"]["items"]["properties"]["metric"]["enum"]

    assert listed == [metric.name for metric in METRICS]
