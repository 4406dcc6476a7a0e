"""Reports of diagnoses."""

from dataclasses import replace
from io import StringIO

from rules_engine.diagnosis.report import diagnosis_report
from rules_engine.diagnosis.scope import Scope
from rules_engine.diagnosis.values import Amounts, Diagnosis, UnreadKind
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Remedy
from rules_engine.report.html import render_html
from rules_engine.report.text import Screen
from tests.support.html_pages import missing_words, page_of
from tests.support.reports import (
    empty_report,
    group,
    pod_name,
    reported_finding,
    reported_node,
    whole_report,
)


def text(diagnosis: Diagnosis) -> str:
    stream = StringIO()
    Screen(stream).report(diagnosis_report(diagnosis))
    return stream.getvalue()


WHOLE = """\
Diagnosis of 2026-11-23T12:00:00Z
  read: nodes 3, pods 1,200
  rules: rules

Findings  2 errors, 1 note (1 possible)
  Error  MIGLayoutNotApplied  Node worker-2
    node worker-2 has no MIG devices
    cause: The MIG manager failed.
    evidence: nvidia.com/mig.config.state=failed
    note: The Kubernetes API does not show the cause: these commands look on the node itself.
    remedy: Read the log of the MIG manager. (risk: None)
        kubectl logs -n gpu-operator ds/nvidia-mig-manager
    remedy: Apply the layout again. (risk: High)
        kubectl drain worker-2
        kubectl label node worker-2 a=b
    source: Diagnostic/mig-layout  rules/mig.yaml:3:1

  Error, possible  GPUsAllocated  Pod ml/train-0, Pod ml/train-1, Pod ml/train-2 and 4 more
    all 16 nvidia.com/gpu are allocated

  Info  TimeSlicing  Cluster
    two pods share a card

Pending GPU pods  8 pods
  Pod ml/train-0, Pod ml/train-1, Pod ml/train-2 and 4 more
    8 × nvidia.com/gpu, since 2026-11-23T10:00:00Z
    recorded: 0/3 nodes are available: 2 Insufficient nvidia.com/gpu.
    recomputed: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.
    comparison: differs from the recorded message: the message is older than the newest pod
    finding: GPUsAllocated (possible): all 16 nvidia.com/gpu are allocated

  Pod ml/odd
    1 × nvidia.com/mig-1g.10gb
    recomputed: 1 node is feasible
    comparison: no message is recorded
    finding: NoSchedulerMessage (possible): none is recorded

GPU nodes  3 nodes
  NODE      CARD                   STATE               RESOURCE                CAPACITY  ALLOCATABLE  ALLOCATED  \
FREE  USE
  worker-1  NVIDIA-H100-80GB-HBM3                      nvidia.com/gpu                 8            8          6     \
2  ████████░░  75%
  worker-2  NVIDIA-H100-80GB-HBM3  NotReady, cordoned  nvidia.com/gpu                 8            7          8    \
-1  ██████████ 114%
                                                       nvidia.com/mig-1g.10gb        14           14          0    \
14  ░░░░░░░░░░   0%
  worker-3                                             none

Device plugins  1 DaemonSet
  DAEMONSET                                    DESIRED  READY
  gpu-operator/nvidia-device-plugin-daemonset        3      2
  not ready: Pod gpu-operator/plugin-x on worker-3: CrashLoopBackOff

GPU pods by node  3 pods on 2 nodes
  NODE      POD   STATUS       HOLDS               SINCE
  worker-1  ml/a  Running      4 × nvidia.com/gpu  2026-11-23T10:00:00Z
  worker-1  ml/b  Running      2 × nvidia.com/gpu
  worker-2  ml/c  Terminating  8 × nvidia.com/gpu  2026-11-23T10:00:00Z

Recent errors  4 errors
  LAST                  COUNT  REASON            OBJECTS                                                    MESSAGE
  2026-11-23T10:00:00Z      3  XidError          Node worker-3                                              Xid 79
                            7  FailedScheduling  Pod ml/train-0, Pod ml/train-1, Pod ml/train-2 and 4 more  0/3 nodes
  and 2 older errors, left out of the report

Not evaluated  2 results
  Diagnostic/costly: over the budget (12 objects, the first Pod ml/a)
  Diagnostic/jobs: jobs were not read

  not read: jobs; unknown without them: which Jobs lack pods
"""


def test_findings_come_before_the_sections_and_what_was_not_read_at_the_end() -> None:
    assert text(whole_report()) == WHOLE


def test_sections_of_an_empty_cluster_are_none() -> None:
    assert text(empty_report()).splitlines()[1:] == [
        "  read: nodes 1, pods 0",
        "",
        "Findings  none",
        "",
        "Pending GPU pods  none",
        "",
        "GPU nodes  none",
        "",
        "Device plugins  none",
        "",
        "GPU pods by node  none",
        "",
        "Recent errors  none",
    ]


def test_sections_of_objects_that_were_not_read_are_unknown() -> None:
    absent = tuple(
        UnreadKind(objects=name, unknown="what matters") for name in ("nodes", "pods", "events", "daemonsets")
    )

    lines = text(empty_report(absent=absent)).splitlines()

    assert "  not read: pods; unknown without them: what matters" in lines
    assert [line for line in lines if "  unknown: " in line] == [
        "Pending GPU pods  unknown: pods were not read",
        "GPU nodes  unknown: nodes were not read",
        "Device plugins  unknown: daemonsets were not read",
        "GPU pods by node  unknown: pods were not read",
        "Recent errors  unknown: events were not read",
    ]


def test_a_limited_report_says_so() -> None:
    scope = Scope(pod=pod_name("a"), node="worker-1", namespace="ml")

    assert "  only: Pod ml/a, Node worker-1, namespace ml\n" in text(empty_report(scope=scope))


def test_many_nodes_are_grouped() -> None:
    overview = empty_report().overview
    nodes = [reported_node(f"node-{n:04}", n % 9) for n in range(2000)]
    nodes += [reported_node(f"zone-{n:04}", None, ready=False) for n in range(3)]
    unknown = {"nvidia.com/gpu": Amounts(capacity=None, allocatable=8, allocated=0)}
    nodes += [replace(reported_node(f"zzz-{n}", 0), resources=unknown) for n in range(2)]

    lines = text(empty_report(overview=replace(overview, nodes=tuple(nodes)))).splitlines()

    start = lines.index("GPU nodes  2,005 nodes")
    assert [
        line.partition("  USE")[0].partition("  █")[0].partition("  ░")[0] for line in lines[start : start + 6]
    ] == [
        "GPU nodes  2,005 nodes",
        "  nodes that are alike are one line, with their sums (--node NAME shows one)",
        "  NODES  FIRST      CARD                   STATE     RESOURCE        CAPACITY  ALLOCATABLE  ALLOCATED   FREE",
        "  2,000  node-0000  NVIDIA-H100-80GB-HBM3            nvidia.com/gpu    16,000       16,000      7,993  8,007",
        "      3  zone-0000  NVIDIA-H100-80GB-HBM3  NotReady  nvidia.com/gpu        24           24          ?      ?",
        "      2  zzz-0      NVIDIA-H100-80GB-HBM3            nvidia.com/gpu         ?           16          0     16",
    ]


def test_control_characters_from_the_cluster_are_escaped() -> None:
    finding = reported_finding(message="\x1b[31mred\nnext", evidence=("a\u202eb",), object=ObjectName("Node", "\x07"))

    report_text = text(empty_report(findings=(group(finding),)))

    assert "\\x1b[31mred\\nnext" in report_text
    assert "evidence: a\\u202eb" in report_text
    assert not {"\x1b", "\x07", "\u202e"} & set(report_text)


def test_effects_are_one_line_of_their_cause() -> None:
    effects = [reported_finding(reason=reason, message="no") for reason in ("PluginNotReady", "NoAllocatableDevices")]
    caused = replace(group(reported_finding()), effects=tuple(effects))

    lines = text(empty_report(findings=(caused,))).splitlines()

    assert "Findings  1 error" in lines
    assert "    effects: PluginNotReady (no); NoAllocatableDevices (no)" in lines


def test_a_pending_pod_without_any_message_has_none_in_the_report() -> None:
    overview = whole_report().overview
    silent = replace(overview.pending[1], recomputed="", recorded="")

    lines = text(whole_report(overview=replace(overview, pending=(silent,)))).splitlines()

    start = lines.index("  Pod ml/odd")
    assert lines[start + 1 : start + 4] == [
        "    1 × nvidia.com/mig-1g.10gb",
        "    comparison: no message is recorded",
        "    finding: NoSchedulerMessage (possible): none is recorded",
    ]


def test_a_group_has_the_evidence_of_one_object() -> None:
    nodes = [ObjectName("Node", f"worker-{n}") for n in (2, 3)]

    report_text = text(empty_report(findings=(group(reported_finding(), nodes),)))

    assert "    evidence of Node worker-2: nvidia.com/mig.config.state=failed\n" in report_text


def test_the_page_has_all_words_of_the_text() -> None:
    page = page_of(diagnosis_report(whole_report()))
    assert not missing_words(text(whole_report()), page)
    bars = [each["aria-label"] for each in page.having("bar")]
    assert bars == ["75% used", "114% used", "0% used"]


def test_markup_from_the_cluster_is_escaped() -> None:
    evil = '<script>alert("1")</script>\x1b\u202e'
    finding = reported_finding(
        message=evil,
        cause=evil,
        evidence=(evil,),
        object=ObjectName("Node", evil),
        remedies=(Remedy(text=evil, command=f"echo {evil}\necho two"),),
    )
    overview = replace(whole_report().overview, nodes=(reported_node(evil, product=evil),))
    source = render_html(diagnosis_report(whole_report(overview=overview, findings=(group(finding),), rules=evil)))
    assert "<script" not in source
    assert not {"\x1b", "\u202e"} & set(source)
    assert "echo &lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;\\x1b\\u202e\necho two" in source
