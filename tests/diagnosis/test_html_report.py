"""Reports as one HTML page."""

import re
from dataclasses import replace

import pytest

from rules_engine.diagnosis.output.html_report import MAX_GROUP_NODES, MAX_ROWS, bar, html_report
from rules_engine.diagnosis.report import Absent, Amounts, Report
from rules_engine.model.finding import ObjectName, Remedy
from tests.support.html_pages import Page
from tests.support.reports import empty_report, group, pod_name, reported_finding, reported_node, whole_report


def page(report: Report) -> Page:
    found = Page(html_report(report))
    assert found.open == []
    return found


def large_report(nodes: int, kinds: int = 1) -> Report:
    cluster = tuple(
        reported_node(f"node-{n:05}", n % 9, product=f"card {n % kinds}", ready=n % 100 != 7) for n in range(nodes)
    )
    return empty_report(overview=replace(empty_report().overview, nodes=cluster))


@pytest.mark.parametrize("report", [whole_report(), empty_report(), large_report(300, 50)])
def test_the_page_needs_no_other_file_and_runs_nothing(report: Report) -> None:
    found = page(report)

    for tag, attributes in found.elements:
        assert tag not in ("script", "link", "img", "iframe", "object", "form")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in html_report(report)
    policy = next(attributes for _, attributes in found.elements if attributes.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_link_leads_to_a_section() -> None:
    found = page(whole_report())

    links = [attributes["href"] for tag, attributes in found.elements if tag == "a"]
    assert links == ["#findings", "#nodes", "#plugins", "#pods", "#pending", "#errors"]
    assert {str(link)[1:] for link in links} <= {attributes.get("id") for _, attributes in found.elements}


def test_the_page_has_a_light_and_a_dark_scheme() -> None:
    source = html_report(empty_report())
    light, dark = re.findall(r":root \{(.*?)\}", source, re.DOTALL)

    assert "@media (prefers-color-scheme: dark)" in source
    assert '<meta name="color-scheme" content="light dark">' in source
    assert re.findall(r"(--\w+):", light) == re.findall(r"(--\w+):", dark)
    assert set(re.findall(r"var\((--\w+)\)", source)) == set(re.findall(r"(--\w+):", light))


def test_each_resource_of_each_node_has_a_bar() -> None:
    labels = [each["aria-label"] for each in page(whole_report()).having("bar")]

    assert labels == [
        "nvidia.com/gpu: 6 allocated, 2 free",
        "nvidia.com/gpu: 8 allocated, -1 free, 7 of 8 allocatable",
        "nvidia.com/mig-1g.10gb: 0 allocated, 14 free",
    ]


@pytest.mark.parametrize(
    ("amounts", "parts", "text"),
    [
        ((8, 8, 6), (75.0, 25.0, 0.0), "6 allocated, 2 free"),
        ((8, 6, 2), (25.0, 50.0, 25.0), "2 allocated, 4 free, 6 of 8 allocatable"),
        ((8, 0, 0), (0.0, 0.0, 100.0), "0 allocated, 0 free, 0 of 8 allocatable"),
        ((8, 4, 6), (75.0, 0.0, 25.0), "6 allocated, -2 free, 4 of 8 allocatable"),
        ((0, 0, 2), (100.0, 0.0, 0.0), "2 allocated, -2 free"),
        ((4, 8, 4), (50.0, 50.0, 0.0), "4 allocated, 4 free, 8 of 4 allocatable"),
        ((0, 0, 0), (0.0, 0.0, 0.0), "0 allocated, 0 free"),
        ((8, 6, None), (0.0, 0.0, 25.0), "allocated amount unknown, 6 allocatable, 6 of 8 allocatable"),
    ],
)
def test_the_parts_of_a_bar_are_shares_of_the_capacity(
    amounts: tuple[int, int, int | None], parts: tuple[float, float, float], text: str
) -> None:
    capacity, allocatable, allocated = amounts

    found = bar(Amounts(capacity=capacity, allocatable=allocatable, allocated=allocated))

    assert (found.allocated, found.free, found.lost) == parts
    assert found.text == text
    assert found.overcommitted is (allocated is not None and allocated > allocatable)


def test_a_page_has_what_the_text_has() -> None:
    text = page(whole_report()).text

    for expected in (
        "2026-11-23T12:00:00Z · read: nodes 3, pods 1,200 · rules: rules",
        "Not read, so some things are unknown: jobs: which Jobs lack pods",
        "gpu-operator/nvidia-device-plugin-daemonset 3 2 plugin-x on worker-3: CrashLoopBackOff",
        "worker-1 ml/a Running 4 × nvidia.com/gpu 2026-11-23T10:00:00Z ml/b Running",
        "Pod/ml/train-0, Pod/ml/train-1, Pod/ml/train-2 and 4 more",
        "recomputed 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        "comparison differs from the recorded message: the message is older than the newest pod",
        "GPUsAllocated possible all 16 nvidia.com/gpu are allocated",
        "finding NoSchedulerMessage possible none is recorded",
        "2026-11-23T10:00:00Z 3 XidError Node/worker-3 Xid 79",
        "and 2 older errors, left out of the report",
        "Error MIGLayoutNotApplied node worker-2 has no MIG devices",
        "cause The MIG manager failed.",
        "Apply the layout again. risk: High kubectl drain worker-2 kubectl label node worker-2 a=b",
        "The Kubernetes API does not show the cause: these commands look on the node itself.",
        "Diagnostic/mig-layout · rules/mig.yaml:3:1",
        "Diagnostic/costly over the budget 12 Pod/ml/a",
    ):
        assert expected in text


def test_a_possible_finding_says_so() -> None:
    assert len(page(whole_report()).having("possible")) == 3  # of two pending pods, and of a finding


def test_sections_of_objects_that_were_not_read_are_unknown() -> None:
    absent = tuple(Absent(objects=name, unknown="what matters") for name in ("nodes", "pods", "events", "daemonsets"))

    text = page(empty_report(absent=absent)).text

    assert [text.count(f"Unknown: {each.objects} were not read.") for each in absent] == [1, 2, 1, 1]
    assert "recent errors unknown" in text
    assert "0 recent errors" not in text


def test_markup_and_control_characters_from_the_cluster_are_escaped() -> None:
    evil = '<script>alert("1")</script>\x1b\u202e'
    finding = reported_finding(
        message=evil,
        cause=evil,
        evidence=(evil,),
        object=ObjectName("Node", evil),
        remedies=(Remedy(text=evil, command=f"echo {evil}\necho two"),),
    )
    overview = replace(whole_report().overview, nodes=(reported_node(evil, product=evil),))

    source = html_report(whole_report(overview=overview, findings=(group(finding),), rules=evil))

    assert "<script" not in source
    assert not {"\x1b", "\u202e"} & set(source)
    assert "echo &lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;\\x1b\\u202e\necho two" in source


def test_a_large_cluster_is_grouped_and_cut() -> None:
    found = page(large_report(5000))

    bars = found.having("bar")
    allocated = sum(n % 9 for n in range(5000) if n % 100 != 7)
    assert bars[0]["aria-label"] == f"nvidia.com/gpu: {allocated:,} allocated, {4950 * 8 - allocated:,} free"
    assert len(bars) == 2 * (1 + MAX_GROUP_NODES)
    assert f"and {4950 - MAX_GROUP_NODES:,} more nodes (--output json has all)" in found.text
    assert "50 nodes NotReady" in found.text
    assert "node-00000" in found.text
    assert "node-00008 NVIDIA" not in found.text


def test_nodes_of_many_kinds_are_cut_as_well() -> None:
    found = page(large_report(300, 60))

    assert re.search(r"and \d+ more groups \(--output json has all\)", found.text)


def test_pods_of_many_pending_entries_are_counted() -> None:
    pending = whole_report().overview.pending[0]
    pairs = tuple(replace(pending, pods=(pod_name(f"a-{n}"), pod_name(f"b-{n}"))) for n in range(MAX_ROWS + 3))

    found = page(empty_report(overview=replace(empty_report().overview, pending=pairs)))

    assert "and 6 more pods (--output json has all)" in found.text


def test_the_names_of_many_objects_are_cut() -> None:
    names = tuple(pod_name(f"p-{n:04}") for n in range(1000))

    found = page(empty_report(findings=(group(reported_finding(), names),)))

    assert f"and {1000 - MAX_ROWS} more objects (--output json has all)" in found.text
    assert "Pod/ml/p-0199" in found.text
    assert "Pod/ml/p-0200" not in found.text
