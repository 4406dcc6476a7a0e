"""Why each node cannot run the pods that do not start."""

from collections import Counter
from pathlib import Path

import pytest

from rules_engine import load_manifests, preflight
from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.cluster.scheduling import cycle
from rules_engine.questions.preflight.answer import NodeReasons, StoppedPods
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.kinds import compile_rules
from tests.support.authoring import write

CLUSTER = """\
apiVersion: gpurules.io/v1
kind: ClusterInventory
metadata: {name: c}
spec:
  nodes:
    - {name: small, labels: {zone: a}, allocatable: {nvidia.com/gpu: 1, cpu: 1, memory: 8Gi}}
    - {name: large, labels: {zone: a}, allocatable: {nvidia.com/gpu: 8, cpu: 64, memory: 8Gi}}
    - name: tainted
      labels: {zone: a}
      taints: [{key: k, effect: NoSchedule}]
      allocatable: {nvidia.com/gpu: 8, cpu: 64}
    - {name: elsewhere, labels: {zone: b}, allocatable: {nvidia.com/gpu: 8, cpu: 64, memory: 8Gi}}
  pods:
    - metadata: {name: other, namespace: default, labels: {app: x}}
      spec: {nodeName: large, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]}
"""

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  nodeSelector: {zone: a}
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: x}}}
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 2, cpu: 2}}}]
"""


def answered(folder: Path) -> tuple[StoppedPods, NodeReasons]:
    write(folder, {"cluster.yaml": CLUSTER, "pod.yaml": POD})
    pods, objects = load_manifests([folder / "pod.yaml"]), read_cluster([folder / "cluster.yaml"]).objects
    assert objects is not None
    rule_set: RuleSet
    rule_set, _ = compile_rules(())
    reasons: list[NodeReasons] = []
    [workload] = preflight(rule_set, pods, objects, node_reasons=reasons).workloads
    [stopped] = workload.stopped
    return stopped, reasons[0]


def test_each_node_has_the_reasons_that_the_message_counts(tmp_path: Path) -> None:
    pods, reasons = answered(tmp_path)

    assert dict(reasons) == {
        "small": "Insufficient nvidia.com/gpu, Insufficient cpu",
        "large": "Insufficient nvidia.com/gpu",
        "tainted": "node(s) had untolerated taint(s)",
        "elsewhere": "node(s) didn't match Pod's node affinity/selector",
    }
    counts = Counter(why for _, each in reasons for why in each.split(", "))
    counted = ", ".join(sorted(f"{count} {why}" for why, count in counts.items()))
    assert pods.message == f"0/4 nodes are available: {counted}."


def test_a_pod_whose_constraints_compare_too_much_has_no_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle, "COMPARISONS", 0)

    assert answered(tmp_path)[1] == []
