"""Resources of GPUs are distinguished by name from resources of network devices and of shared memory."""

import pytest

from rules_engine.accelerators.resources import is_gpu, is_mig, is_rdma

PARTS = [
    *(
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
        "amd.com/gpumem",
        "aliyun.com/gpu-mem",
    ),
    *("volcano.sh/vgpu-memory", "koordinator.sh/gpu-memory-ratio", "gpu.intel.com/monitoring", "huawei.com/npu-core"),
    *("iluvatar.ai/MR-V100.vMem", "cambricon.com/mlu370.smlu.vcore", "tencent.com/vcuda-memory"),
]
"""Parts of devices, such as MiB of their memory, which are requested beside them or in their place."""


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/GA102GL_A10",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "habana.ai/gaudi",
        "tencent.com/vGPU-core",
        "tencent.com/vcuda-core",
        "amd.com/spx_nps1",
        "amd.com/cpx_nps4",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "huawei.com/Ascend910B",
        "cambricon.com/mlu370",
        "iluvatar.ai/MR-V100-vgpu",
        "volcano.sh/vgpu-number",
        "koordinator.sh/gpu",
        "example.com/gpu-default",
        "example.com/gpu-process",
    ],
)
def test_gpus_of_every_vendor_are_recognized(resource: str) -> None:
    assert (is_gpu(resource), is_rdma(resource)) == (True, False)


@pytest.mark.parametrize(
    "resource",
    [
        "rdma/hca_shared_devices_a",
        "mellanox.com/cx6",
        "nvidia.com/hostdev",
        "nvidia.com/resibp0",
        "nvidia.com/sriov_rdma",
        "vpc.amazonaws.com/efa",
        "openshift.io/mlxnics",
    ],
)
def test_network_devices_are_not_gpus(resource: str) -> None:
    assert (is_gpu(resource), is_rdma(resource)) == (False, True)


@pytest.mark.parametrize(
    "resource", [*PARTS, "nvidia.com/shm", "smarter-devices/gpu", "cpu", "memory", "gpu", "example.com/fpga"]
)
def test_other_resources_are_neither_gpus_nor_rdma(resource: str) -> None:
    assert (is_gpu(resource), is_rdma(resource)) == (False, False)


def test_mig_devices() -> None:
    assert [is_mig(name) for name in ("nvidia.com/mig-3g.40gb", "nvidia.com/gpu", "amd.com/mig-1g")] == [
        True,
        False,
        False,
    ]
