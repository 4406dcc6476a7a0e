"""Drawings of nodes, and pages that have them."""

from rules_engine.questions.simulate.answer import build_answer
from rules_engine.questions.simulate.drawings import LANE_HEIGHT, node_drawings
from rules_engine.questions.simulate.record import PodRecord, Record, State
from rules_engine.questions.simulate.report import MAX_BARS, MAX_DRAWN, simulation_report
from rules_engine.report.html import render_html
from rules_engine.report.values import WIDTH, Drawing
from tests.support.html_pages import Page
from tests.support.simulation_records import (
    GPU,
    HOUR,
    MESSAGE,
    MINUTE,
    admitted_pod,
    fallen,
    record,
    recorded_node,
    recorded_pod,
    simulation,
)

ONE, THREE = admitted_pod({GPU: 1}), admitted_pod({GPU: 3})


def source_of(*records: Record) -> str:
    return render_html(simulation_report(build_answer(records)))


def large_record(nodes: int, pods: int) -> Record:
    cluster = [recorded_node(f"node-{n:05}", gpu=8) for n in range(nodes)]
    load = simulation([f"Job/job-{n}" for n in range(20)])
    found: list[PodRecord] = []
    fell = fallen()
    for n in range(pods):
        arrived = n * 100
        node = f"node-{n % nodes:05}"
        state = {"node": node, "state": State.SUCCEEDED, "ended": arrived + MINUTE} if n % 10 else {"message": MESSAGE}
        found.append(
            recorded_pod(f"{'long-name-' * 6}{n}", fell if n % 3 else ONE, arrival=n % 20, arrived=arrived, **state)
        )
    return record(cluster, found, pods * 100 + MINUTE, simulation=load)


def test_a_large_simulation_is_cut() -> None:
    large = large_record(300, 8_000)
    source = source_of(large)
    found = Page(source)

    assert len(source) < 2_000_000
    assert f"and {300 - MAX_DRAWN} more nodes (--output json has all)" in found.text
    assert 0 < source.count("<rect") <= MAX_BARS
    assert source.count('class="area"') > 1  # nodes for which the bars did not suffice
    assert "and 12 more arrivals, in the same colours" in found.text
    assert "arrival pods requests states" in found.text


def test_several_rule_sets_share_the_bounds() -> None:
    large = large_record(100, 2_000)
    source = source_of(large, large, large)

    assert len(source) < 2_000_000
    assert source.count("<rect") <= MAX_BARS
    assert f"and {100 - MAX_DRAWN // 3} more nodes" in Page(source).text


def drawn(found: Record, max_bars: int = 100) -> list[Drawing]:
    (result,) = build_answer([found]).results
    return list(node_drawings(result, result.nodes, max_bars))


def bars(found: Record) -> list[tuple[float, float, int, int]]:
    """Return start and end of each bar as shares of the time, its first device and their number."""
    (timeline,) = drawn(found)
    return [
        (
            float(bar.x) / WIDTH,
            (float(bar.x) + float(bar.width)) / WIDTH,
            bar.y // LANE_HEIGHT,
            (bar.height + 1) // LANE_HEIGHT,
        )
        for bar in timeline.shapes
    ]


def test_a_pod_is_a_bar_on_the_first_free_devices() -> None:
    pods = [
        recorded_pod("a", ONE, node="n", state=State.SUCCEEDED, ended=HOUR // 2),
        recorded_pod("b", ONE, node="n"),
        recorded_pod("c", THREE, node="n", arrived=HOUR // 2),
    ]

    assert bars(record([recorded_node("n", gpu=4)], pods, HOUR)) == [
        (0, 0.5, 0, 1),
        (0, 1, 1, 1),
        (0.5, 1, 0, 1),
        (0.5, 1, 2, 2),
    ]


def test_a_pod_beyond_the_devices_of_its_node_has_fewer() -> None:
    pods = [recorded_pod("a", THREE, node="n"), recorded_pod("b", THREE, node="n")]

    assert bars(record([recorded_node("n", gpu=4)], pods, HOUR)) == [(0, 1, 0, 3), (0, 1, 3, 1)]


def test_a_pod_without_time_on_its_node_has_no_bar() -> None:
    pods = [recorded_pod("a", ONE, node="n", state=State.PREEMPTED, ended=0)]

    assert bars(record([recorded_node("n", gpu=4)], pods, HOUR)) == []


def test_bars_have_the_colour_of_their_arrival() -> None:
    pods = [
        *(recorded_pod(f"p-{n}", ONE, node="n", arrival=n) for n in range(9)),
        recorded_pod("q", fallen(), node="n", arrival=2),
        recorded_pod("r", ONE, node="n", arrival=None),
    ]
    load = simulation([f"Job/job-{n}" for n in range(9)])

    (timeline,) = drawn(record([recorded_node("n", gpu=16)], pods, HOUR, simulation=load))

    assert [bar.css for bar in timeline.shapes[7:]] == ["k7", "k0", "k2 fell-back", "there"]


def test_too_many_bars_become_an_area() -> None:
    pods = [recorded_pod(f"p-{n}", ONE, node="n") for n in range(4)]
    simulated = record([recorded_node("n", gpu=8), recorded_node("o", gpu=8)], pods, HOUR)

    assert [(len(each.shapes), bool(each.area)) for each in drawn(simulated, 4)] == [(4, False), (0, False)]
    assert [(len(each.shapes), each.area) for each in drawn(simulated, 3)] == [(0, "M0,40H0V20H1000V40Z"), (0, "")]


def test_a_pod_on_devices_apart_needs_several_bars() -> None:
    ends = [HOUR // 2 if n % 2 else None for n in range(8)]
    pods = [
        recorded_pod(f"p-{n}", ONE, node="n", ended=end, state=State.SUCCEEDED if end else State.RUNNING)
        for n, end in enumerate(ends)
    ]
    pods.append(recorded_pod("c", THREE, node="n", arrived=HOUR // 2))
    simulated = record([recorded_node("n", gpu=8)], pods, HOUR)

    assert len(drawn(simulated, 11)[0].shapes) == 11
    assert list(drawn(simulated, 10)[0].shapes) == []


def test_many_devices_and_other_resources_are_an_area() -> None:
    cpu = record([recorded_node("n", cpu=4)], [recorded_pod("p", admitted_pod({"cpu": 1}), node="n")], HOUR)
    many = record([recorded_node("n", gpu=100)], [recorded_pod("p", ONE, node="n")], HOUR)

    assert [each.area for each in (*drawn(cpu), *drawn(many))] == ["M0,40H0V30H1000V40Z", "M0,40H0V39.6H1000V40Z"]
