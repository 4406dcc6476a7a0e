"""Reports of diagnoses."""

from io import StringIO

from msgspec.structs import replace

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.questions.doctor.report import diagnosis_report
from rules_engine.questions.doctor.scope import Scope
from rules_engine.questions.doctor.values import DevicePlugin, Diagnosis, UnreadKind
from rules_engine.report.text import Screen
from tests.support.html_pages import missing_words, page_of
from tests.support.reports import (
    empty_report,
    group,
    pod_name,
    reported_amounts,
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

Findings  2 errors, 1 note (1 possible); 7 GPU pods wait for a node
  Error  MIGLayoutNotApplied  Node worker-2
    node worker-2 has no MIG devices
    cause: The MIG manager failed.
    evidence: nvidia.com/mig.config.state=failed
    note: The Kubernetes API does not show the cause: these commands look on the node itself.
    remedy: Read the log of the MIG manager.
        kubectl logs -n gpu-operator ds/nvidia-mig-manager
    remedy: Apply the layout again. (risk: High)
        kubectl drain worker-2
        kubectl label node worker-2 a=b
    source: Diagnostic/mig-layout  rules/mig.yaml:3:1

  Error, possible  GPUsAllocated  7 pods of Job ml/train
    all 16 nvidia.com/gpu are allocated
    oldest pending since: 2026-11-23T10:00:00Z

  Info  TimeSlicing  Cluster
    two pods share a card

GPU nodes  3 nodes
  NODE      CARD            DEVICE       FREE  STATE
  worker-1  H100-80GB-HBM3  gpu        2 of 8
  worker-2  H100-80GB-HBM3  gpu       -1 of 7  NotReady, cordoned
                            1g.10gb  14 of 14
  worker-3                  none

Device plugins  1 DaemonSet, 1 with pods that are not ready
  gpu-operator/nvidia-device-plugin-daemonset: 2 of 3 ready
  not ready: Pod gpu-operator/plugin-x on worker-3: CrashLoopBackOff

GPU pods by node  3 pods on 2 nodes
  NODE      POD   HOLDS  STATUS
  worker-1  ml/a  4 gpu  Running
  worker-1  ml/b  2 gpu  Running
  worker-2  ml/c  8 gpu  Terminating

Recent errors  2 errors
  2026-11-23T10:00:00Z  XidError × 3  Node worker-3: Xid 79
  FailedScheduling × 7  Pod ml/train-0, Pod ml/train-1, Pod ml/train-2 and 4 more: 0/3 nodes

  not evaluated: Diagnostic/costly for 12 objects, the first Pod ml/a: over the budget
  not read: jobs, which 1 Diagnostic needs (gpu-rules capture saves them; --output json says what is unknown)
"""


def test_findings_come_before_the_sections_and_what_was_not_read_at_the_end() -> None:
    assert text(whole_report()) == WHOLE


def test_sections_without_content_and_those_that_were_not_read_are_left_out() -> None:
    assert text(empty_report(objects={"nodes": 1})).splitlines()[1:] == [
        "  read: nodes 1",
        "",
        "Findings  none",
        "",
        "GPU nodes  none",
    ]
    absent = (UnreadKind(objects="nodes", unknown="which nodes there are"),)
    assert "GPU nodes" not in text(empty_report(not_read=absent, objects={"pods": 1}))


def test_device_plugins_that_run_are_one_line() -> None:
    name = ObjectName("DaemonSet", "nvidia-device-plugin-daemonset", "gpu-operator")
    plugins = (DevicePlugin(name=name, desired=3, ready=3, unready=()),)

    assert text(empty_report(device_plugins=plugins)).endswith("\n\nDevice plugins  1 DaemonSet, all pods are ready\n")


def test_sources_are_shown_beside_rules_only() -> None:
    findings = (group(reported_finding()),)

    assert "source: " in text(empty_report(findings=findings, rules="rules"))
    assert "source: " not in text(empty_report(findings=findings))


def test_a_limited_report_says_so() -> None:
    scope = Scope(pod=pod_name("a"), node="worker-1", namespace="ml")

    assert "  only: Pod ml/a, Node worker-1, namespace ml\n" in text(empty_report(scope=scope))


def test_many_nodes_are_grouped() -> None:
    nodes = [reported_node(f"node-{n:04}", n % 9) for n in range(2000)]
    nodes += [reported_node(f"zone-{n:04}", None, ready=False) for n in range(3)]
    nodes += [reported_node(f"zzz-{n}", 0, resources={"nvidia.com/gpu": reported_amounts(4, 4, 0)}) for n in range(2)]

    assert text(empty_report(nodes=tuple(nodes))).splitlines()[5:] == [
        "GPU nodes  2,005 nodes",
        "  nodes that are alike are one line, with their sums (--node NAME shows one)",
        "  NODES  FIRST      CARD            DEVICE             FREE  STATE",
        "  2,000  node-0000  H100-80GB-HBM3  gpu     8,007 of 16,000",
        "      3  zone-0000  H100-80GB-HBM3  gpu             ? of 24  NotReady",
        "      2  zzz-0      H100-80GB-HBM3  gpu              8 of 8",
    ]


def test_effects_are_one_line_of_their_cause() -> None:
    effects = [reported_finding(reason=reason, message="no") for reason in ("PluginNotReady", "NoAllocatableDevices")]
    caused = replace(group(reported_finding()), effects=tuple(effects))

    lines = text(empty_report(findings=(caused,))).splitlines()

    assert "    effects: PluginNotReady (no); NoAllocatableDevices (no)" in lines


def test_a_group_has_the_evidence_of_one_object() -> None:
    nodes = [ObjectName("Node", f"worker-{n}") for n in (2, 3)]

    report_text = text(empty_report(findings=(group(reported_finding(), nodes),)))

    assert "    evidence of Node worker-2: nvidia.com/mig.config.state=failed\n" in report_text


def test_the_page_has_all_words_of_the_text() -> None:
    assert not missing_words(text(whole_report()), page_of(diagnosis_report(whole_report())))
