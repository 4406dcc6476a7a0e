"""Totals of simulations: the use of nodes over time, GPU-hours, waiting times and fallbacks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.questions.simulate.answer import Result, build_answer
from rules_engine.questions.simulate.figures import GpuHours
from rules_engine.questions.simulate.record import Record, State
from rules_engine.questions.simulate.usage import PARTS, mean_curve, run_time, waiting_time
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

ONE = admitted_pod({GPU: 1})
TWO = admitted_pod({GPU: 2, "cpu": 3})


def measure(found: Record) -> Result:
    """Return the answer for one record."""
    (result,) = build_answer([found]).results
    return result


def test_denials_that_differ_only_in_the_pod_name_are_merged() -> None:
    kinds = [admitted_pod({GPU: 1}, message=f"no rung for pod ml/{name}") for name in ("a", "b", "c")]
    pods = [recorded_pod(name, kind, state=State.DENIED) for name, kind in zip("abd", kinds, strict=True)]

    [many, one] = measure(record([recorded_node("n", gpu=1)], pods, HOUR)).denials

    assert (many.message, many.pods) == ("no rung for pod ml/a", ("ml/a", "ml/b"))
    assert (one.message, one.pods) == ("no rung for pod ml/c", ("ml/d",))


def test_pods_that_had_a_node_fell_back_or_were_replaced_are_counted() -> None:
    totals = measure(whole_record()).totals

    assert (totals.bound, totals.fell_back, totals.replaced) == (5, 2, 1)


def test_a_fall_to_a_smaller_device_gives_too_little() -> None:
    small = admitted_pod({GPU: 1}, {SMALL: 1})
    simulated = record([recorded_node("a", small=7)], [recorded_pod("p", small, node="a")], HOUR)
    hours = measure(simulated).totals.gpu_hours

    assert hours == GpuHours(
        capacity=Fraction(1),
        requested=Fraction(1),
        given=Fraction(1, 7),
        lost=Fraction(),
        short=Fraction(6, 7),
        unused=Fraction(6, 7),
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

    waiting = measure(record([recorded_node("a", gpu=8)], pods, 100)).totals.waiting

    assert [waiting.p50_seconds, waiting.p95_seconds] == [each and each / 1000 for each in (p50, p95)]


def test_pods_that_ran_from_the_beginning_did_not_wait() -> None:
    there = recorded_pod("there", ONE, arrival=None, node="a")
    freed = recorded_pod("freed", ONE, arrival=None, node="a", bound=7)

    assert (waiting_time(there), waiting_time(freed), waiting_time(recorded_pod("new", ONE, node="a"))) == (None, 7, 0)


def test_a_denied_pod_neither_fell_nor_uses_anything() -> None:
    denied = fallen()
    pods = [recorded_pod("p", denied, state=State.DENIED)]

    result = measure(record([recorded_node("a", cpu=1)], pods, MINUTE))

    assert (result.totals.fell_back, result.fallbacks, result.totals.bound) == (0, (), 0)


def test_a_simulation_without_duration_is_measured_at_its_moment() -> None:
    result = measure(record([recorded_node("a", gpu=4)], [recorded_pod("p", ONE, node="a")], 0))

    use = result.totals.resources[GPU]
    assert (use.share, use.curve, result.ended_seconds) == (Fraction(1, 4), (Fraction(1),), 0)


def test_a_resource_that_no_node_offers_has_no_share() -> None:
    pods = [recorded_pod("p", admitted_pod({SMALL: 1}))]

    use = measure(record([recorded_node("a")], pods, MINUTE)).totals.resources[SMALL]

    assert (use.capacity, use.share) == (0, None)


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
    measured = measure(found)
    times = range(max(found.ended, 1))
    for resource, use in measured.totals.resources.items():
        each = [Fraction(held(found, None, resource, at), NANOS) for at in times]
        assert use.mean == sum(each) / len(times)
        assert use.peak == max(*each, use.end)
        edges = [part * len(times) // len(use.curve) for part in range(len(use.curve) + 1)]
        assert use.curve == tuple(sum(each[start:end]) / (end - start) for start, end in pairwise(edges))
        for node in measured.nodes:
            if resource in node.resources:
                alone = [Fraction(held(found, node.name, resource, at), NANOS) for at in times]
                assert node.resources[resource].mean == sum(alone) / len(times)
                assert node.resources[resource].peak == max(*alone, node.resources[resource].end)


@given(found=records())
def test_gpu_hours_equal_the_sums_over_milliseconds(found: Record) -> None:
    times = range(max(found.ended, 1))
    asked = given_ = lost = short = Fraction()
    for at in times:
        for pod in found.pods:
            if pod.bound is not None and run_time(pod, found)[0] <= at < run_time(pod, found)[1]:
                wanted, got = _cards(pod.admitted.requested), _cards(pod.admitted.given)
                asked, given_ = asked + wanted, given_ + got
                lost, short = lost + max(got - wanted, Fraction()), short + max(wanted - got, Fraction())
    hours = measure(found).totals.gpu_hours
    assert [hours.requested, hours.given, hours.lost, hours.short] == [
        total / HOUR for total in (asked, given_, lost, short)
    ]


@given(found=records())
def test_the_order_of_nodes_does_not_matter(found: Record) -> None:
    turned = measure(replace(found, nodes=found.nodes[::-1]))

    assert structs.replace(turned, nodes=turned.nodes[::-1]) == measure(found)


@given(found=records())
def test_parts_add_up(found: Record) -> None:
    measured = measure(found)
    totals, hours = measured.totals, measured.totals.gpu_hours

    assert sum(totals.states.values()) == totals.pods
    assert hours.given - hours.requested == hours.lost - hours.short
    for name, use in totals.resources.items():
        assert use.mean == sum(node.resources[name].mean for node in measured.nodes if name in node.resources)


@pytest.mark.parametrize("end", [1, 7, PARTS, 1_000, 12_345])
def test_a_curve_keeps_the_sum(end: int) -> None:
    found = mean_curve([(0, end // 2, 6), (end // 2, end, 2)], end)

    assert len(found) == min(PARTS, end)
    widths = [(part + 1) * end // len(found) - part * end // len(found) for part in range(len(found))]
    assert sum(mean * width for mean, width in zip(found, widths, strict=True)) == 6 * (end // 2) + 2 * (end - end // 2)


def _cards(amounts: Mapping[str, int]) -> Fraction:
    return Fraction(amounts.get(GPU, 0), NANOS) + Fraction(amounts.get(SMALL, 0), 7 * NANOS)
