"""Figures by which simulations are compared, and the best of them."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.simulation import Arrival, PodGroup
from rules_engine.questions.simulate.figures import By, best, compute_figures
from rules_engine.questions.simulate.record import PodRecord, Record, State
from rules_engine.questions.simulate.usage import run_time
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
    simulation,
)

WHOLE, FOUR, PART = admitted_pod({GPU: 1}), admitted_pod({GPU: 4}), admitted_pod({SMALL: 1})
AMD = admitted_pod({"amd.com/gpu": 1})
CARDS = {GPU: Fraction(1), SMALL: Fraction(1, 7), "amd.com/gpu": Fraction(1)}


def played(*pods: PodRecord, until: int | None = None) -> Record:
    """A simulation of one hour on a node with four cards."""
    return record([recorded_node("a", gpu=4)], pods, HOUR, simulation=simulation(until=until))


def test_a_pod_that_never_ran_counts_up_to_until() -> None:
    pods = [recorded_pod("ran", WHOLE, node="a", bound=MINUTE), recorded_pod("waits", WHOLE, arrived=20 * MINUTE)]

    figures = compute_figures(played(*pods, until=HOUR))

    assert (figures.never_ran, figures.never_will_run, figures.mean_waiting_seconds) == (1, 0, Fraction(41 * 60, 2))


def test_without_until_such_a_pod_never_will_run() -> None:
    short = [recorded_pod("p", WHOLE, node="a"), recorded_pod("never", WHOLE)]
    long = [recorded_pod(name, WHOLE, node="a", bound=50 * MINUTE) for name in ("p", "q")]
    rows = [(name, compute_figures(played(*pods))) for name, pods in (("short", short), ("long", long))]

    assert best(rows, By.WAITING) == ["long"]
    assert rows[0][1].mean_waiting_seconds is None


def test_pods_of_a_job_that_never_arrived_never_will_run() -> None:
    """Two of six pods arrive at once, and one was lost and replaced; no pod follows them, since both wait."""
    group = PodGroup(name="job", pod={}, parallel=2, total=6)
    arrivals = (Arrival(title="Job/job", namespace="ml", groups=(group,)),)
    lost = recorded_pod("lost", WHOLE, node="a", state=State.EVICTED, ended=MINUTE)
    pods = [lost, recorded_pod("first", WHOLE), recorded_pod("lost-r1", WHOLE, arrived=MINUTE, replaces="lost")]
    load = replace(simulation(), arrivals=arrivals)

    figures, cut = (
        compute_figures(replace(played(*pods), simulation=replace(load, until=until))) for until in (None, HOUR)
    )

    assert (figures.pods, figures.ran, figures.never_ran, figures.never_will_run) == (7, 1, 6, 6)
    assert (cut.pods, cut.ran, cut.never_ran, cut.never_will_run) == (3, 1, 2, 0)


def test_pods_that_had_a_node_at_the_beginning_do_not_count() -> None:
    there = recorded_pod("there", WHOLE, arrival=None, node="a", bound=-MINUTE, arrived=-MINUTE)
    figures = compute_figures(played(there, recorded_pod("p", WHOLE, node="a", bound=MINUTE)))

    assert (figures.pods, figures.ran, figures.total_waiting_seconds) == (1, 1, Fraction(60))
    assert figures.gpu_hours.given == Fraction(60 + 59, 60)


@pytest.mark.parametrize(
    ("by", "good", "bad"),
    [
        (By.WAITING, [recorded_pod("p", WHOLE, node="a")], [recorded_pod("p", WHOLE, node="a", bound=MINUTE)]),
        (By.WAITING, [recorded_pod("p", WHOLE, node="a", bound=MINUTE)], [recorded_pod("p", WHOLE)]),
        (By.GIVEN, [recorded_pod("p", WHOLE, node="a")], [recorded_pod("p", WHOLE, node="a", bound=MINUTE)]),
        (By.GIVEN, [recorded_pod("p", WHOLE, node="a")], [recorded_pod("p", fallen(), node="a")]),
        (By.UNSERVED, [recorded_pod("p", WHOLE, node="a", bound=MINUTE)], [recorded_pod("p", WHOLE)]),
        (By.UNSERVED, [recorded_pod("p", WHOLE)], [recorded_pod("p", WHOLE), recorded_pod("q", WHOLE)]),
    ],
)
def test_the_best_is_chosen_by_one_figure_and_all_ties_are_returned(
    by: By, good: list[PodRecord], bad: list[PodRecord]
) -> None:
    rows = [(name, compute_figures(played(*pods))) for name, pods in (("a", bad), ("b", good), ("c", good))]

    assert best(rows, by) == ["b", "c"]
    assert best(rows[:1], by) == ["a"]
    assert best([], by) == []


def test_no_pods_have_no_waiting_time() -> None:
    figures = compute_figures(played())

    assert figures.mean_waiting_seconds is None
    assert best([("a", figures)], By.WAITING) == ["a"]


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A record with pods at any times, whether they fit or not."""
    end = draw(st.integers(0, 40))
    kinds = [WHOLE, FOUR, PART, AMD, fallen(), admitted_pod({GPU: 1, SMALL: 3}), admitted_pod({"cpu": 1})]
    amount = st.integers(0, 4)
    nodes = [
        recorded_node(name, gpu=draw(amount), small=draw(amount), **{"amd.com/gpu": draw(st.integers(0, 1))})
        for name in "ab"
    ]
    pods = []
    for number in range(draw(st.integers(0, 8))):
        arrived = draw(st.integers(-2, end))
        bound = draw(st.none() | st.integers(arrived, end))
        ended = None if bound is None else draw(st.none() | st.integers(max(bound, 0), end))
        state = draw(st.sampled_from([State.PENDING, State.DENIED])) if bound is None else State.RUNNING
        node = "" if bound is None else draw(st.sampled_from("ab"))
        values = {"arrived": arrived, "bound": bound, "ended": ended, "state": state, "node": node}
        pods.append(recorded_pod(f"p-{number}", draw(st.sampled_from(kinds)), **values))
    return record(nodes, pods, end)


@given(found=records())
def test_stranded_capacity_equals_a_count_in_each_millisecond(found: Record) -> None:
    total = sum((stranded_at(found, at) for at in range(max(found.ended, 1))), Fraction())

    assert compute_figures(found).gpu_hours.stranded == total / HOUR


def stranded_at(found: Record, at: int) -> Fraction:
    """Return the stranded cards in one millisecond, with pods admitted one by one into the united free cards."""
    free = {node.name: {name: each.nanos // NANOS for name, each in node.allocatable.items()} for node in found.nodes}
    for pod in found.pods:
        start, end = run_time(pod, found)
        if pod.bound is not None and start <= at < end:
            for name, amount in devices(pod):
                free[pod.node][name] = free[pod.node].get(name, 0) - amount
    waits = [
        pod
        for pod in found.pods
        if pod.arrived <= at and pod.state is not State.DENIED and (pod.bound is None or at < pod.bound)
    ]
    sizes = [
        (sum((CARDS[name] * amount for name, amount in devices(pod)), Fraction()), devices(pod)[0][0].split("/")[0])
        for pod in waits
        if devices(pod) and not any(all(left.get(n, 0) >= k for n, k in devices(pod)) for left in free.values())
    ]
    total = Fraction()
    for vendor in ("nvidia.com", "amd.com"):
        united = sum(
            (CARDS[name] * max(amount, 0) for left in free.values() for name, amount in left.items() if vendor in name),
            Fraction(),
        )
        for size in sorted(size for size, domain in sizes if domain == vendor):
            if size <= united:
                united -= size
                total += size
    return total


def devices(pod: PodRecord) -> list[tuple[str, int]]:
    return [(name, amount // NANOS) for name, amount in pod.admitted.given.items() if name in CARDS]


@given(found=records())
def test_what_is_stranded_is_unused_and_the_order_of_nodes_does_not_matter(found: Record) -> None:
    figures = compute_figures(found)

    assert figures == compute_figures(replace(found, nodes=found.nodes[::-1]))
    if all(amount >= 0 for at in range(max(found.ended, 1)) for amount in free_amounts(found, at)):
        assert figures.gpu_hours.stranded <= figures.gpu_hours.unused


def free_amounts(found: Record, at: int) -> Iterator[int]:
    for node in found.nodes:
        for name in CARDS:
            amount = node.allocatable[name].nanos // NANOS if name in node.allocatable else 0
            for pod in found.pods:
                start, end = run_time(pod, found)
                if pod.bound is not None and pod.node == node.name and start <= at < end:
                    amount -= dict(devices(pod)).get(name, 0)
            yield amount
