"""Reports as text."""

from dataclasses import replace
from io import StringIO

import pytest

from rules_engine.diagnosis.output import text_report
from rules_engine.diagnosis.output.text_report import print_report
from rules_engine.diagnosis.report import Absent, Report
from rules_engine.diagnosis.scope import Scope
from rules_engine.model.finding import ObjectName
from tests.support.reports import (
    empty_report,
    group,
    pod_name,
    reported_finding,
    reported_node,
    whole_report,
)


def text(report: Report) -> str:
    stream = StringIO()
    print_report(report, stream)
    return stream.getvalue()


WHOLE = """\
Diagnosis of 2026-11-23T12:00:00Z
  read: nodes 3, pods 1,200
  not read: jobs; unknown without them: which Jobs lack pods
  rules: rules

GPU nodes  3 nodes
  NODE      CARD                   STATE               RESOURCE                CAPACITY  ALLOCATABLE  ALLOCATED  FREE
  worker-1  NVIDIA-H100-80GB-HBM3                      nvidia.com/gpu                 8            8          6     2
  worker-2  NVIDIA-H100-80GB-HBM3  NotReady, cordoned  nvidia.com/gpu                 8            7          8    -1
                                                       nvidia.com/mig-1g.10gb        14           14          0    14
  worker-3                                             none

Device plugins  1 DaemonSet
  DAEMONSET                                    DESIRED  READY
  gpu-operator/nvidia-device-plugin-daemonset        3      2
  not ready: gpu-operator/plugin-x on worker-3: CrashLoopBackOff

GPU pods by node  3 pods on 2 nodes
  NODE      POD   STATUS       HOLDS               SINCE
  worker-1  ml/a  Running      4 × nvidia.com/gpu  2026-11-23T10:00:00Z
            ml/b  Running      2 × nvidia.com/gpu
  worker-2  ml/c  Terminating  8 × nvidia.com/gpu  2026-11-23T10:00:00Z

Pending GPU pods  8 pods
  Pod/ml/train-0, Pod/ml/train-1, Pod/ml/train-2 and 4 more: 8 × nvidia.com/gpu, since 2026-11-23T10:00:00Z
      recorded:   0/3 nodes are available: 2 Insufficient nvidia.com/gpu.
      recomputed: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.
      differs from the recorded message: the message is older than the newest pod
      finding: GPUsAllocated (possible): all 16 nvidia.com/gpu are allocated
  Pod/ml/odd: 1 × nvidia.com/mig-1g.10gb
      recomputed: 1 node is feasible
      no message is recorded
      finding: NoSchedulerMessage (possible): none is recorded

Recent errors  4 errors
  2026-11-23T10:00:00Z  3 × XidError  Node/worker-3: Xid 79
  7 × FailedScheduling  Pod/ml/train-0, Pod/ml/train-1, Pod/ml/train-2 and 4 more: 0/3 nodes
  and 2 older errors, left out of the report

Findings  2 errors, 1 note (1 possible)

Error  MIGLayoutNotApplied  Node/worker-2
  node worker-2 has no MIG devices
  cause: The MIG manager failed.
  evidence: nvidia.com/mig.config.state=failed
  The Kubernetes API does not show the cause: these commands look on the node itself.
  remedy: Read the log of the MIG manager. (risk: None)
      kubectl logs -n gpu-operator ds/nvidia-mig-manager
  remedy: Apply the layout again. (risk: High)
      kubectl drain worker-2
      kubectl label node worker-2 a=b
  Diagnostic/mig-layout  rules/mig.yaml:3:1

Error, possible  GPUsAllocated  Pod/ml/train-0, Pod/ml/train-1, Pod/ml/train-2 and 4 more
  all 16 nvidia.com/gpu are allocated

Info  TimeSlicing  Cluster
  two pods share a card

Not evaluated  2 results
  Diagnostic/costly: over the budget (12 objects, the first Pod/ml/a)
  Diagnostic/jobs: jobs were not read
"""


def test_a_report_has_the_five_sections_and_then_the_findings() -> None:
    assert text(whole_report()) == WHOLE


def test_sections_of_an_empty_cluster_are_none() -> None:
    assert text(empty_report()).splitlines()[1:] == [
        "  read: nodes 1, pods 0",
        "",
        "GPU nodes  none",
        "",
        "Device plugins  none",
        "",
        "GPU pods by node  none",
        "",
        "Pending GPU pods  none",
        "",
        "Recent errors  none",
        "",
        "Findings  none",
    ]


def test_sections_of_objects_that_were_not_read_are_unknown() -> None:
    absent = tuple(Absent(objects=name, unknown="what matters") for name in ("nodes", "pods", "events", "daemonsets"))

    lines = text(empty_report(absent=absent)).splitlines()

    assert "  not read: pods; unknown without them: what matters" in lines
    assert [line for line in lines if "  unknown: " in line] == [
        "GPU nodes  unknown: nodes were not read",
        "Device plugins  unknown: daemonsets were not read",
        "GPU pods by node  unknown: pods were not read",
        "Pending GPU pods  unknown: pods were not read",
        "Recent errors  unknown: events were not read",
    ]


def test_a_limited_report_says_so() -> None:
    scope = Scope(pod=pod_name("a"), node="worker-1", namespace="ml")

    assert "  only: pod ml/a, node worker-1, namespace ml\n" in text(empty_report(scope=scope))


def test_many_nodes_are_grouped() -> None:
    overview = empty_report().overview
    nodes = [reported_node(f"node-{n:04}", n % 9) for n in range(2000)]
    nodes += [reported_node(f"zone-{n:04}", None, ready=False) for n in range(3)]

    lines = text(empty_report(overview=replace(overview, nodes=tuple(nodes)))).splitlines()

    assert lines[3:8] == [
        "GPU nodes  2,003 nodes",
        "  nodes that are alike are one line, with their sums (--node NAME shows one)",
        "  NODES  FIRST      CARD                   STATE     RESOURCE        CAPACITY  ALLOCATABLE  ALLOCATED   FREE",
        "  2,000  node-0000  NVIDIA-H100-80GB-HBM3            nvidia.com/gpu    16,000       16,000      7,993  8,007",
        "      3  zone-0000  NVIDIA-H100-80GB-HBM3  NotReady  nvidia.com/gpu        24           24          ?      ?",
    ]


def test_long_sections_are_cut_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_report, "MAX_ROWS", 1)
    monkeypatch.setattr(text_report, "MAX_FINDINGS", 1)

    lines = text(whole_report()).splitlines()

    assert [line for line in lines if line.startswith("  and ")] == [
        "  and 2 more lines (--output json has all)",
        "  and 2 more pods (--output json has all)",
        "  and 1 more pod (--output json has all)",
        "  and 1 more error (--output json has all)",
        "  and 2 older errors, left out of the report",
        "  and 2 more findings (--output json has all)",
    ]


def test_control_characters_from_the_cluster_are_escaped() -> None:
    finding = reported_finding(message="\x1b[31mred\nnext", evidence=("a\u202eb",), object=ObjectName("Node", "\x07"))

    written = text(empty_report(findings=(group(finding),)))

    assert "\\x1b[31mred\\nnext" in written
    assert "evidence: a\\u202eb" in written
    assert not {"\x1b", "\x07", "\u202e"} & set(written)


def test_severities_and_risks_are_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert "\x1b[1;31mError\x1b[0m" in text(whole_report())


def test_effects_are_one_line_of_their_cause() -> None:
    effects = [reported_finding(reason=reason, message="no") for reason in ("PluginNotReady", "NoAllocatableDevices")]
    caused = replace(group(reported_finding()), effects=tuple(effects))

    lines = text(empty_report(findings=(caused,))).splitlines()

    assert "Findings  1 error" in lines
    assert "  effects: PluginNotReady (no); NoAllocatableDevices (no)" in lines


def test_a_pending_pod_without_any_message_has_none_in_the_report() -> None:
    overview = whole_report().overview
    silent = replace(overview.pending[1], recomputed="", recorded="")

    lines = text(whole_report(overview=replace(overview, pending=(silent,)))).splitlines()

    start = lines.index("  Pod/ml/odd: 1 × nvidia.com/mig-1g.10gb")
    assert lines[start + 1 : start + 3] == [
        "      no message is recorded",
        "      finding: NoSchedulerMessage (possible): none is recorded",
    ]


def test_the_evidence_of_a_group_is_that_of_one_object() -> None:
    nodes = [ObjectName("Node", f"worker-{n}") for n in (2, 3)]

    written = text(empty_report(findings=(group(reported_finding(), nodes),)))

    assert "  evidence of Node/worker-2: nvidia.com/mig.config.state=failed\n" in written
