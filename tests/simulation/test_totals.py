"""Totals of simulations: the use of nodes over time, GPU-hours, waiting times and fallbacks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.simulation.figures import GpuHours
from rules_engine.simulation.record import Record, State
from rules_engine.simulation.totals import WaitingTimes, compute_totals
from rules_engine.simulation.usage import PARTS, mean_curve, run_time, waiting_time
from tests.support.simulation_records import (
    GPU,
    HOUR,
    MESSAGE,
    MINUTE,
    SMALL,
    admitted_pod,
    fallen,
    record,
    recorded_node,
    recorded_pod,
    whole_record,
)

ONE = admitted_pod({GPU: 1})
TWO = admitted_pod({GPU: 2, "cpu": 3})


def test_denials_that_differ_only_in_the_pod_name_are_merged() -> None:
    kinds = [admitted_pod({GPU: 1}, message=f"no rung for pod ml/{name}") for name in ("a", "b", "c")]
    pods = [recorded_pod(name, kind, state=State.DENIED) for name, kind in zip("abd", kinds, strict=True)]

    [many, one] = compute_totals(record([recorded_node("n", gpu=1)], pods, HOUR)).denials

    assert (many.text, [pod.name for pod in many.pods]) == ("no rung for pod ml/a", ["a", "b"])
    assert (one.text, [pod.name for pod in one.pods]) == ("no rung for pod ml/c", ["d"])


def test_totals_of_a_record_with_each_state() -> None:
    measured = compute_totals(whole_record())

    assert (measured.time, measured.pods, measured.bound, measured.fell_back, measured.replaced) == (
        2 * HOUR,
        8,
        5,
        2,
        1,
    )
    assert measured.states == {
        State.DENIED: 1,
        State.PENDING: 2,
        State.RUNNING: 2,
        State.SUCCEEDED: 1,
        State.PREEMPTED: 1,
        State.EVICTED: 1,
    }
    assert measured.waiting == WaitingTimes(p50=0, p95=MINUTE, waiting=2, longest=2 * HOUR - 2 * MINUTE)
    assert list(measured.resources) == [GPU, "cpu", "memory"]
    assert [
        (fallback.requested, fallback.given, fallback.pods, fallback.devices) for fallback in measured.fallbacks
    ] == [(SMALL, GPU, 2, 2)]
    assert [(group.text, group.rule, len(group.pods)) for group in measured.denials] == [
        ("Validation/limit: no more than 8 GPUs", "Validation/limit", 1)
    ]
    assert [(group.text, [pod.name for pod in group.pods]) for group in measured.pending] == [
        (MESSAGE, ["wait-1", "wait-2"])
    ]
    assert [(group.text, [pod.name for pod in group.pods]) for group in measured.not_modelled] == [
        ("volumes", ["low", "high"])
    ]


def test_the_use_of_a_resource_is_an_average_over_time() -> None:
    use = compute_totals(whole_record()).resources[GPU]

    held = 4 * 30 + 60 + 118 + 1 + 119  # GPU-minutes
    assert use.capacity == 8 * NANOS
    assert use.mean == Fraction(held * NANOS, 120)
    assert use.peak == 7 * NANOS
    assert use.end == 2 * NANOS
    assert use.share == Fraction(held, 120 * 8)


def test_a_fall_to_a_whole_card_loses_the_rest_of_it() -> None:
    hours = compute_totals(whole_record()).figures.hours

    fell = Fraction(60 + 118, 60)
    others = Fraction(4 * 30 + 1 + 119, 60)
    assert hours == GpuHours(
        capacity=Fraction(16),
        requested=others + fell / 7,
        given=others + fell,
        lost=fell * Fraction(6, 7),
        short=Fraction(),
        stranded=Fraction(),
    )


def test_a_fall_to_a_smaller_device_gives_too_little() -> None:
    small = admitted_pod({GPU: 1}, {SMALL: 1})
    hours = compute_totals(
        record([recorded_node("a", small=7)], [recorded_pod("p", small, node="a")], HOUR)
    ).figures.hours

    assert hours == GpuHours(
        capacity=Fraction(1),
        requested=Fraction(1),
        given=Fraction(1, 7),
        lost=Fraction(),
        short=Fraction(6, 7),
        stranded=Fraction(),
    )


@pytest.mark.parametrize(
    ("times", "p50", "p95"),
    [
        ((), None, None),
        ((5,), 5, 5),
        ((1, 2), 1, 2),
        ((3, 1, 2), 2, 3),
        (range(1, 101), 50, 95),
        (range(1, 21), 10, 19),
    ],
)
def test_percentiles_are_nearest_ranks(times: Sequence[int], p50: int | None, p95: int | None) -> None:
    pods = [recorded_pod(f"p-{n}", ONE, node="a", arrived=0, bound=time) for n, time in enumerate(times)]

    measured = compute_totals(record([recorded_node("a", gpu=8)], pods, 100)).waiting

    assert (measured.p50, measured.p95) == (p50, p95)


def test_pods_that_ran_from_the_beginning_did_not_wait() -> None:
    there = recorded_pod("there", ONE, arrival=None, node="a")
    freed = recorded_pod("freed", ONE, arrival=None, node="a", bound=7)

    assert (waiting_time(there), waiting_time(freed), waiting_time(recorded_pod("new", ONE, node="a"))) == (None, 7, 0)


def test_a_denied_pod_neither_fell_nor_uses_anything() -> None:
    denied = fallen()
    pods = [recorded_pod("p", denied, state=State.DENIED)]

    measured = compute_totals(record([recorded_node("a", cpu=1)], pods, MINUTE))

    assert (measured.fell_back, measured.fallbacks, measured.bound) == (0, [], 0)


def test_a_simulation_without_duration_is_measured_at_its_moment() -> None:
    measured = compute_totals(record([recorded_node("a", gpu=4)], [recorded_pod("p", ONE, node="a")], 0))

    assert measured.resources[GPU].share == Fraction(1, 4)
    assert measured.resources[GPU].curve == [Fraction(NANOS)]
    assert measured.time == 0


def test_a_resource_that_no_node_offers_has_no_share() -> None:
    pods = [recorded_pod("p", admitted_pod({SMALL: 1}))]

    measured = compute_totals(record([recorded_node("a")], pods, MINUTE)).resources[SMALL]

    assert (measured.capacity, measured.share) == (0, None)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A record with pods at any times, whether they fit or not."""
    end = draw(st.integers(0, 300))
    nodes = [recorded_node(name, gpu=draw(st.integers(0, 4)), cpu=4) for name in "ab"]
    kinds = [ONE, TWO, fallen(), admitted_pod({})]
    pods = []
    for number in range(draw(st.integers(0, 8))):
        arrived = draw(st.integers(0, end))
        bound = draw(st.none() | st.integers(arrived, end))
        ended = None if bound is None else draw(st.none() | st.integers(bound, end))
        state = State.PENDING if bound is None else State.RUNNING if ended is None else State.SUCCEEDED
        pods.append(
            recorded_pod(
                f"p-{number}",
                draw(st.sampled_from(kinds)),
                arrived=arrived,
                bound=bound,
                ended=ended,
                state=state,
                node="" if bound is None else draw(st.sampled_from("ab")),
            )
        )
    return record(nodes, pods, end)


def held(found: Record, node: str | None, resource: str, at: int) -> int:
    """Return the amount in use during one millisecond."""
    amounts = 0
    for pod in found.pods:
        if pod.bound is not None and node in (None, pod.node):
            start, end = run_time(pod, found)
            amounts += pod.admitted.given.get(resource, 0) if start <= at < end else 0
    return amounts


@given(found=records())
def test_the_use_equals_the_sum_over_milliseconds(found: Record) -> None:
    measured = compute_totals(found)
    times = range(max(found.ended, 1))
    for resource, use in measured.resources.items():
        each = [held(found, None, resource, at) for at in times]
        assert use.mean == Fraction(sum(each), len(times))
        assert use.peak == max(*each, use.end)
        edges = [part * len(times) // len(use.curve) for part in range(len(use.curve) + 1)]
        assert use.curve == [Fraction(sum(each[start:end]), end - start) for start, end in pairwise(edges)]
        for node in measured.nodes:
            if resource in node.resources:
                alone = [held(found, node.node, resource, at) for at in times]
                assert node.resources[resource].mean == Fraction(sum(alone), len(times))
                assert node.resources[resource].peak == max(*alone, node.resources[resource].end)


def test_a_pod_that_is_bound_at_the_last_moment_counts_in_the_peak() -> None:
    pods = [recorded_pod("first", ONE, node="a"), recorded_pod("last", TWO, node="a", arrived=HOUR)]

    measured = compute_totals(record([recorded_node("a", gpu=4)], pods, HOUR))

    for use in (measured.resources[GPU], measured.nodes[0].resources[GPU]):
        assert [use.mean, use.peak, use.end] == [NANOS, 3 * NANOS, 3 * NANOS]


@given(found=records())
def test_gpu_hours_equal_the_sums_over_milliseconds(found: Record) -> None:
    measured = compute_totals(found)
    times = range(max(found.ended, 1))
    asked = given_ = lost = short = Fraction()
    for at in times:
        for pod in found.pods:
            if pod.bound is not None and run_time(pod, found)[0] <= at < run_time(pod, found)[1]:
                wanted, got = _cards(pod.admitted.requested), _cards(pod.admitted.given)
                asked, given_ = asked + wanted, given_ + got
                lost, short = lost + max(got - wanted, Fraction()), short + max(wanted - got, Fraction())
    hours = measured.figures.hours
    assert [hours.requested, hours.given, hours.lost, hours.short] == [
        total / HOUR for total in (asked, given_, lost, short)
    ]


@given(found=records())
def test_the_order_of_nodes_does_not_matter(found: Record) -> None:
    turned = compute_totals(replace(found, nodes=found.nodes[::-1]))

    assert replace(turned, nodes=turned.nodes[::-1]) == compute_totals(found)


@given(found=records())
def test_parts_add_up(found: Record) -> None:
    measured = compute_totals(found)

    assert sum(measured.states.values()) == measured.pods
    assert (
        measured.figures.hours.given - measured.figures.hours.requested
        == measured.figures.hours.lost - measured.figures.hours.short
    )
    for name, use in measured.resources.items():
        assert use.mean == sum(node.resources[name].mean for node in measured.nodes if name in node.resources)


@pytest.mark.parametrize("end", [1, 7, PARTS, 1_000, 12_345])
def test_a_curve_keeps_the_sum(end: int) -> None:
    found = mean_curve([(0, end // 2, 6), (end // 2, end, 2)], end)

    assert len(found) == min(PARTS, end)
    widths = [(part + 1) * end // len(found) - part * end // len(found) for part in range(len(found))]
    assert sum(mean * width for mean, width in zip(found, widths, strict=True)) == 6 * (end // 2) + 2 * (end - end // 2)


def _cards(amounts: Mapping[str, int]) -> Fraction:
    return Fraction(amounts.get(GPU, 0), NANOS) + Fraction(amounts.get(SMALL, 0), 7 * NANOS)
