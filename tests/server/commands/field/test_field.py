"""Clusters and workloads of public reports: the right answer is the one that their authors needed."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from rules_engine.server.commands import main

HERE = Path(__file__).parent

FINDINGS = {
    # NVIDIA/gpu-operator#671: all other operands wait for the driver
    "driver-crash": "not starting on the node: nvidia-driver-daemonset\n",
    # NVIDIA/k8s-device-plugin#929
    "mps-more-than-one": "the pod requests 10 nvidia.com/gpu, but a container gets at most 1 where GPUs are shared\n",
    # Time-slicing renames the product
    "product-label-shared": "matches 0 of 1; they have nvidia.com/gpu.product=NVIDIA-A10G-SHARED\n",
    # NVIDIA/k8s-device-plugin: unsatisfied condition: cuda>=12.8
    "cuda-insufficient": "CUDANeedsNewerDriver  Pod ml/p\n",
    # Requests of DaemonSets fill the node
    "cpu-not-gpu": "too little cpu is free on the 1 node that could give the pod 1 nvidia.com/gpu\n",
    # kubernetes/kubernetes#130145: nothing uses the devices that the kubelet takes for allocated
    "stale-kubelet": "cause: The kubelet's record of allocated devices is stale",
    # kubernetes-sigs/kueue#9048
    "kueue-quota": "insufficient unused quota for nvidia.com/gpu in flavor default-flavor, 8 more needed\n",
    # Project-HAMi/HAMi#620
    "hami-two-cards": "hami-scheduler: 0/1 nodes are available: 1 node unregistered/CardInsufficient.\n",
    # kubernetes/autoscaler: NotTriggerScaleUp is a Normal event
    "autoscaler-max-size": "cluster-autoscaler: pod didn't trigger scale-up: 1 max node group size reached, ",
    # kai-scheduler/KAI-Scheduler#65: an annotation requests a part of a GPU
    "kai-fraction": "kai-scheduler: Workload requested 0.5 GPUs, but team-a quota is 0 GPUs",
    # kubeflow/training-operator: FailedCreatePod
    "pytorchjob-quota": "QuotaExceeded  PyTorchJob ml/ddp\n    pods were not created: quota gpu-quota is exceeded\n",
    # The kubelet evicts pods, and its taint keeps new ones off
    "diskpressure-evict": "can take pods now: gn-1 has DiskPressure since ",
    # kai-scheduler/KAI-Scheduler: the limit of a queue
    "kai-podgroup": "kai-scheduler: team-a quota has reached the allowable limit of GPUs.",
    # EKS without the plugin of EFA
    "rdma-efa": "no node offers vpc.amazonaws.com/efa\n",
    # A finalizer keeps a pod for hours
    "terminating-finalizer": "GPUsHeldByTerminatingPod  Pod ml/a\n",
}


@pytest.mark.parametrize("case", FINDINGS)
def test_doctor_finds_the_cause(case: str) -> None:
    done = CliRunner().invoke(main, ["doctor", "--cluster", str(HERE / f"{case}.json")])
    # A workload that a queue has not admitted is a warning, and has no pod that waits for a node.
    assert (done.exit_code, done.stderr) == (0 if case == "kueue-quota" else 1, "")
    assert FINDINGS[case] in done.stdout


@pytest.mark.parametrize(("workload", "pods"), [("pytorchjob", 4), ("stormservice", 8)])
def test_preflight_counts_the_pods_of_a_workload(workload: str, pods: int) -> None:
    command = ["preflight", "-f", str(HERE / f"{workload}.yaml"), "--cluster", str(HERE / "big.yaml")]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0
    assert f"starts: {pods} of {pods} pods start now\n" in done.stdout
