"""Answers as one HTML page."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest

from rules_engine.model.quantity import NANOS
from rules_engine.model.simulation import NodeEvent, NodeState
from rules_engine.simulation.answer import answer
from rules_engine.simulation.output.html_page import MAX_BARS, MAX_NODES, MAX_ROWS, html_page
from rules_engine.simulation.output.timelines import LANE, WIDTH, Timeline, area, timelines
from rules_engine.simulation.record import PodRecord, Record, State
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
    whole_record,
)

ONE, THREE = admitted_pod({GPU: 1}), admitted_pod({GPU: 3})


def page(*records: Record) -> Page:
    found = Page(html_page(answer(records)))
    assert found.open == []
    return found


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


def test_the_page_needs_no_other_file_and_runs_nothing() -> None:
    found = page(whole_record(), replace(whole_record(), rules="other"))

    for tag, attributes in found.elements:
        assert tag not in ("script", "link", "img", "iframe", "object", "form")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in html_page(answer([whole_record()]))
    policy = next(attributes for _, attributes in found.elements if attributes.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_link_leads_to_a_section() -> None:
    found = page(whole_record(), replace(whole_record(), rules="other"))

    links = [attributes["href"] for tag, attributes in found.elements if tag == "a"]
    assert links == ["#comparison", "#result-1", "#result-2"]
    assert {str(link)[1:] for link in links} <= {attributes.get("id") for _, attributes in found.elements}


def test_the_page_has_a_light_and_a_dark_scheme() -> None:
    source = html_page(answer([whole_record()]))
    blocks = [set(re.findall(r"(--\w+):", block)) for block in re.findall(r":root \{(.*?)\}", source, re.DOTALL)]

    assert len(blocks) == 4
    assert blocks[0] == blocks[1]
    assert blocks[2] == blocks[3]
    assert set(re.findall(r"var\((--\w+)\)", source)) == blocks[0] | blocks[2]


def test_a_page_has_what_the_text_has() -> None:
    whole = replace(whole_record(), notices=("a pod was left out",))
    text = page(whole, replace(whole, rules="other", pods=whole.pods[:4])).text

    for expected in (
        "Simulation load 2 nodes, seed 1, LeastAllocated · load.yaml:3:1",
        "Comparison with rules",
        "pods that got a node 5 4 worse higher is better",
        "pods denied 1 0 different pods preempted",
        "fragmentation 14.4% 11.4% better lower is better",
        "Rules rules 2h",
        "a pod was left out",
        "Not modelled: volumes, used by ml/low, ml/high",
        "8 pods : 1 denied, 2 pending, 2 running, 1 succeeded, 1 preempted, 1 evicted",
        "Waiting time: p50 0s, p95 1m; 2 wait at the end, for up to 1h58m",
        "GPU-hours: 6.97 given of 16.00 (44%), 4.42 requested, 2.54 lost by falling",
        "nvidia.com/gpu 44% of 8 0s 30m 1h 1h30m 2h peak 7, at the end 2, fragmented 14%",
        "nvidia.com/mig-1g.10gb nvidia.com/gpu 2 2 FallbackLadder/mig-80gb",
        "ml/greedy Validation/limit: no more than 8 GPUs",
        f"ml/wait-1, ml/wait-2 4 × gpu, waiting for up to 1h58m {MESSAGE}",
        "Job/train Deployment/web at the beginning given another resource",
        "ml/train-2: 1 × 1g.10gb → 1 × gpu, 2m to 2h",
        "b nvidia.com/gpu, 25% used on average ml/old: 4 × gpu, 0s to 30m 30m: Drained",
        "ml/old at the beginning 4 × gpu Evicted: b became Drained b 0s",
    ):
        assert expected in text


def test_an_interrupted_simulation_says_so() -> None:
    part = replace(whole_record(), interrupted=True)

    text = page(part, part).text

    assert "Interrupted at 2h: nothing after that is simulated." in text
    assert "None: parts of a simulation are not comparable." in text


def test_a_page_without_pods() -> None:
    text = page(record([recorded_node("a", cpu=4)], [], 0)).text

    assert "0 pods Use of resources None. Nodes over time 1 node" in text


def test_nodes_without_gpus_are_counted_apart() -> None:
    text = page(record([recorded_node("a", gpu=1), recorded_node("b", cpu=4)], [recorded_pod("w", ONE)], HOUR)).text

    assert "used on average 0s 15m 30m 45m 1h and 1 node without GPUs Pods" in text
    assert "given another resource" not in text
    assert "at the beginning" not in text


def test_markup_and_control_characters_are_escaped() -> None:
    evil = '<script>alert("1")</script>\x1b\u202e'
    denied = admitted_pod({GPU: 1}, message=evil, not_modelled=(evil,))
    pods = [
        recorded_pod(evil, denied, namespace=evil, state=State.DENIED, by=evil),
        recorded_pod(evil, admitted_pod({evil: 1}), node=evil),
        recorded_pod("w", ONE, message=evil),
    ]
    change = NodeEvent(at=0, node=evil, becomes=NodeState.READY)
    load = simulation([evil], name=evil)
    found = record(
        [recorded_node(evil, gpu=1)], pods, 9, rules=evil, notices=(evil,), changes=(change,), simulation=load
    )

    source = html_page(answer([found, found]))

    assert "<script" not in source
    assert not {"\x1b", "\u202e"} & set(source)
    assert source.count("&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;\\x1b\\u202e") > 20


def test_a_large_simulation_is_cut() -> None:
    large = large_record(300, 8_000)
    source = html_page(answer([large]))
    found = Page(source)

    assert len(source) < 2_000_000
    assert f"and {300 - MAX_NODES} more nodes (--output json has all)" in found.text
    assert 0 < source.count("<rect") <= MAX_BARS
    assert source.count('class="area"') > 1  # nodes for which the bars did not suffice
    assert "and 12 more arrivals, in the same colours" in found.text
    assert "arrival pods requests states" in found.text


def test_several_rule_sets_share_the_bounds() -> None:
    large = large_record(100, 2_000)
    source = html_page(answer([large, large, large]))

    assert len(source) < 2_000_000
    assert source.count("<rect") <= MAX_BARS
    assert source.count("<article") <= MAX_NODES + 3 * MAX_ROWS
    assert f"and {100 - MAX_NODES // 3} more nodes" in Page(source).text


def drawn(found: Record, max_bars: int = 100) -> list[Timeline]:
    (result,) = answer([found]).results
    return list(timelines(result, result.totals.nodes, max_bars))


def bars(found: Record) -> list[tuple[float, float, int, int]]:
    """Return start and end of each bar as shares of the time, its first device and their number."""
    (timeline,) = drawn(found)
    return [
        (
            float(bar.x) / WIDTH,
            (float(bar.x) + float(bar.width)) / WIDTH,
            bar.y // LANE,
            (bar.height + 1) // LANE,
        )
        for bar in timeline.bars
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
        recorded_pod("a", ONE, node="n", arrival=9),
        recorded_pod("b", fallen(), node="n", arrival=2),
        recorded_pod("c", ONE, node="n", arrival=None),
    ]

    (timeline,) = drawn(record([recorded_node("n", gpu=4)], pods, HOUR))

    assert [bar.css for bar in timeline.bars] == ["k1", "k2 fell", "there"]


def test_too_many_bars_become_an_area() -> None:
    pods = [recorded_pod(f"p-{n}", ONE, node="n") for n in range(4)]
    found = record([recorded_node("n", gpu=8), recorded_node("o", gpu=8)], pods, HOUR)

    assert [(len(each.bars), bool(each.area)) for each in drawn(found, 4)] == [(4, False), (0, False)]
    assert [(len(each.bars), each.area) for each in drawn(found, 3)] == [(0, "M0,40H0V20H1000V40Z"), (0, "")]


def test_a_pod_on_devices_apart_needs_several_bars() -> None:
    ends = [HOUR // 2 if n % 2 else None for n in range(8)]
    pods = [
        recorded_pod(f"p-{n}", ONE, node="n", ended=end, state=State.SUCCEEDED if end else State.RUNNING)
        for n, end in enumerate(ends)
    ]
    pods.append(recorded_pod("c", THREE, node="n", arrived=HOUR // 2))
    found = record([recorded_node("n", gpu=8)], pods, HOUR)

    assert len(drawn(found, 11)[0].bars) == 11
    assert drawn(found, 10)[0].bars == ()


def test_many_devices_and_other_resources_are_an_area() -> None:
    cpu = record([recorded_node("n", cpu=4)], [recorded_pod("p", admitted_pod({"cpu": 1}), node="n")], HOUR)
    many = record([recorded_node("n", gpu=100)], [recorded_pod("p", ONE, node="n")], HOUR)

    assert [each.area for each in (*drawn(cpu), *drawn(many))] == ["M0,40H0V30H1000V40Z", "M0,40H0V39.6H1000V40Z"]


@pytest.mark.parametrize(
    ("means", "capacity", "path"),
    [
        ([0, 4, 4, 8], 8, "M0,40H0V40H250V20H750V0H1000V40Z"),
        ([9], 8, "M0,40H0V0H1000V40Z"),
        ([1], 0, "M0,40H0V40H1000V40Z"),
    ],
)
def test_an_area_has_a_step_for_each_change(means: list[int], capacity: int, path: str) -> None:
    assert area([Fraction(mean * NANOS) for mean in means], capacity * NANOS, 40) == path
