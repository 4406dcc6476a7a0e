"""The 20 commonest workloads on a full capture: at most two are unknown."""

from pathlib import Path

import pytest

from rules_engine import load_cluster, load_manifests, load_rules, preflight
from rules_engine.model.kubernetes.cluster_objects import API_KINDS, ClusterObjects
from rules_engine.questions.preflight.state import Verdict
from rules_engine.server.commands.live import write_list
from tests.support.api import GPU, api_object, by_kind, node

PARTS = {
    "RAY": "headGroupSpec: {POD}, workerGroupSpecs: [{groupName: w, replicas: 2, POD}]",
    "JOB": "parallelism: 2, completions: 2, POD",
    "SET": "selector: {matchLabels: {app: a}}, POD",
    "STEPS": "entrypoint: main, templates: [{name: main, steps: [[{name: a, template: t, withParam: p}]]}, TRAIN]",
    "TRAIN": f"{{name: t, container: {{name: c, resources: {{limits: {{{GPU}: 1}}}}}}}}",
    "WORKER": "workerTemplate: {spec: {SPEC}}",
    "AMOUNT": f"{{name: {GPU}, quantity: 1}}",
    "POD": "template: {metadata: {labels: {app: a}}, spec: {SPEC}}",
    "DATA": "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]",
    "SPEC": f"containers: [{{name: node, resources: {{limits: {{{GPU}: 1}}}}}}]",
}
"""Parts of the specs; each may have those that stand after it."""

WORKLOADS = """
Starts 2 apps/v1 Deployment {replicas: 2, SET}
Starts 2 apps/v1 StatefulSet {replicas: 2, SET}
Starts 3 apps/v1 DaemonSet {SET}
Starts 2 batch/v1 Job {JOB}
Starts 2 batch/v1 CronJob {schedule: "@daily", jobTemplate: {spec: {JOB}}}
Starts 1 v1 Pod {SPEC}
Starts 1 apps/v1 Deployment {selector: {matchLabels: {app: a}}, template: {spec: {DATA, SPEC}}}
Starts 2 batch/v1 Job {JOB} | labels: {kueue.x-k8s.io/queue-name: q}
Starts 6 leaderworkerset.x-k8s.io/v1 LeaderWorkerSet {replicas: 2, leaderWorkerTemplate: {size: 3, WORKER}}
Starts 3 ray.io/v1 RayCluster {RAY}
Starts 4 ray.io/v1 RayJob {entrypoint: python, rayClusterSpec: {RAY}}
Starts 3 kubeflow.org/v1 PyTorchJob {pytorchReplicaSpecs: {Master: {POD}, Worker: {replicas: 2, POD}}}
Starts 3 kubeflow.org/v2beta1 MPIJob {mpiReplicaSpecs: {Launcher: {POD}, Worker: {replicas: 2, POD}}}
Starts 4 jobset.x-k8s.io/v1alpha2 JobSet {replicatedJobs: [{name: w, replicas: 2, template: {spec: {JOB}}}]}
Starts 2 trainer.kubeflow.org/v1alpha1 TrainJob {runtimeRef: {name: torch}, trainer: {numNodes: 2}}
Unknown 2 batch.volcano.sh/v1alpha1 Job {minAvailable: 2, tasks: [{name: w, replicas: 2, POD}]}
Starts 1 serving.kserve.io/v1beta1 InferenceService {predictor: {SPEC}}
Starts 1 serving.knative.dev/v1 Service {template: {spec: {SPEC}}}
Starts 3 sparkoperator.k8s.io/v1beta2 SparkApplication {driver: {cores: 1}, executor: {instances: 2, gpu: AMOUNT}}
Unknown 1 argoproj.io/v1alpha1 Workflow {STEPS}
"""
"""Verdict, number of pods, API version, kind, spec and further metadata."""

RUNTIME = """
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {torch: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {POD}
"""


def expand(text: str) -> str:
    for name, part in PARTS.items():
        text = text.replace(name, part)
    return text


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> ClusterObjects:
    """Return a cluster as `capture` writes it, with all kinds."""
    objects = by_kind(
        *(node(name, {GPU: 8}) for name in "abc"),
        *(api_object("Namespace", name) for name in ("ml", "kube-system")),
        api_object("PersistentVolumeClaim", "data", "ml", spec={"volumeName": "v"}, status={"phase": "Bound"}),
        api_object("PersistentVolume", "v", spec={"claimRef": {"namespace": "ml", "name": "data"}}),
    )
    path = tmp_path_factory.mktemp("cluster") / "cluster.json"
    with path.open("w") as stream:
        write_list(ClusterObjects(objects), API_KINDS, stream)
    return load_cluster([path])


@pytest.mark.filterwarnings("ignore:.*number of pods")
@pytest.mark.parametrize("line", WORKLOADS.strip().splitlines(), ids=lambda line: " ".join(line.split()[2:4]))
def test_the_verdict_of_a_common_workload(line: str, cluster: ClusterObjects, tmp_path: Path) -> None:
    shape, _, metadata = line.partition(" | ")
    verdict, pods, version, kind, spec = shape.split(" ", 4)
    file = tmp_path / "manifest.yaml"
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a, namespace: ml, {metadata}}}\nspec: {spec}\n"
    file.write_text(expand(text + RUNTIME if kind == "TrainJob" else text))
    found, *_ = preflight(load_rules(["set:gpu-allocation"]), load_manifests([file]), cluster).workloads
    assert (found.verdict, found.pods, found.started) == (verdict, int(pods), int(pods)), found.unknown
    assert bool(found.unknown) is (verdict == Verdict.UNKNOWN)


def test_at_most_two_of_twenty_are_unknown() -> None:
    verdicts = [line.split()[0] for line in WORKLOADS.strip().splitlines()]
    assert (len(verdicts), verdicts.count(Verdict.UNKNOWN)) == (20, 2)
