"""The accelerators of nodes: what shows them, and what does not."""

import pytest

from rules_engine.accelerators.nodes import profiles_of
from rules_engine.cluster.gpu_nodes import NodeGpus, device_plugins, device_taints, gpus_of
from tests.support.api import DRIVER, GPU, Object, cluster, device, node, pod, resource_slice

PRODUCT = "nvidia.com/gpu.product"
FAR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["far"]}]}]}
OWN = {**device("gpu-0"), "nodeName": "a"}
READY: Object = {"conditions": [{"type": "Ready", "status": "True"}]}
PLUGIN = pod("nvidia-device-plugin-x", on="a", status=READY)


def known(*objects: Object) -> NodeGpus | None:
    """Return the accelerators of the first node."""
    return gpus_of(cluster(*objects).nodes[0])


@pytest.mark.parametrize(
    ("objects", "known_from", "offered"),
    [
        ([node("a", {GPU: 8}, labels={PRODUCT: "NVIDIA-L4"})], GPU, True),
        ([node("a", capacity={"amd.com/gpu": 8})], "amd.com/gpu", True),
        ([node("a", {"tencent.com/vcuda-core": 800})], "tencent.com/vcuda-core", True),
        ([node("a", labels={PRODUCT: "NVIDIA-L4"}), resource_slice("a", device("gpu-0"))], "gpu.nvidia.com", True),
        ([node("a"), resource_slice("a", device("gpu-0"), driver="gpu.example.com")], "gpu.example.com", True),
        ([node("a"), resource_slice("p", device("gpu-0"), allNodes=True)], "gpu.nvidia.com", True),
        ([node("a", labels={"pool": "far"}), resource_slice("p", device("gpu-0"), nodeSelector=FAR)], DRIVER, True),
        ([node("a"), resource_slice("p", OWN, perDeviceNodeSelection=True)], DRIVER, True),
        ([node("a", {GPU: 0}, labels={PRODUCT: "NVIDIA-L4"})], f"label {PRODUCT}=NVIDIA-L4", False),
        (
            [node("a", labels={"kubernetes.azure.com/accelerator": "nvidia"})],
            "label kubernetes.azure.com/accelerator=nvidia",
            False,
        ),
        ([node("a", labels={"civo.com/gpu-node": "x"})], "label civo.com/gpu-node=x", False),
        ([node("a"), PLUGIN, pod("p", {GPU: 1})], "Pod/ml/nvidia-device-plugin-x", False),
    ],
)
def test_devices_capacity_labels_and_a_plugin_show_gpus(objects: list[Object], known_from: str, offered: bool) -> None:
    found = known(*objects)
    assert found is not None
    assert (found.known_from, found.offered) == (known_from, offered)


@pytest.mark.parametrize(
    "objects",
    [
        [node("a", {GPU: 0})],
        [node("a", {"nvidia.com/hostdev": 4, "nvidia.com/shm": 1})],
        [node("a", labels={"nvidia.com/gpu.present": "false", PRODUCT: ""})],
        [node("a"), resource_slice("a", device("nic-0"), driver="dra.net")],
        [node("a"), resource_slice("a")],
        [node("a"), resource_slice("p", device("gpu-0"), nodeSelector=FAR)],
        [node("a"), resource_slice("p", {**OWN, "nodeName": "b"}, perDeviceNodeSelection=True)],
        [node("a"), PLUGIN],
        [node("a"), PLUGIN, pod("p", {"cpu": 1})],
        [node("a"), PLUGIN, pod("p", {GPU: 16}), node("b", {GPU: 8})],
        [node("a"), pod("nvidia-device-plugin-x", on="a"), pod("p", {GPU: 1})],
        [node("a"), pod("smarter-device-plugin-x", on="a", status=READY), pod("p", {GPU: 1})],
    ],
)
def test_nearly_as_much_shows_none(objects: list[Object]) -> None:
    assert known(*objects) is None


@pytest.mark.parametrize("name", ["productName", f"{DRIVER}/productName"])
def test_devices_name_the_product_before_labels(name: str) -> None:
    offered = {**device("gpu-0"), "attributes": {name: {"string": "NVIDIA H200"}}}
    for part in (
        resource_slice("a", offered),
        resource_slice("p", {**offered, "nodeName": "a"}, perDeviceNodeSelection=True),
    ):
        found = known(node("a", labels={PRODUCT: "NVIDIA-A30"}), part)
        assert found is not None
        assert (found.product, "1g.18gb" in profiles_of(found.product)) == ("NVIDIA H200", True)


@pytest.mark.parametrize(
    ("resource", "amount", "driver", "twice"),
    [
        (GPU, 8, DRIVER, True),
        ("nvidia.com/mig-1g.10gb", 7, DRIVER, True),
        ("habana.ai/gaudi", 8, "gaudi.intel.com", True),
        (GPU, 0, DRIVER, False),
        (GPU, 8, "gpu.amd.com", False),
        (GPU, 8, "compute-domain.nvidia.com", False),
        (GPU, 8, "gpu.example.com", False),
        ("nvidia.com/hostdev", 8, DRIVER, False),
        ("nvidia.com/gpumem", 8000, DRIVER, False),
    ],
)
def test_cards_of_one_vendor_are_offered_twice(resource: str, amount: int, driver: str, twice: bool) -> None:
    found = known(node("a", {resource: amount}), resource_slice("a", device("gpu-0"), driver=driver))
    assert ([*found.offered_twice] if found else []) == ([resource] if twice else [])


def test_taints_in_slices_of_a_node_name_its_devices() -> None:
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    tainted = {**device("gpu-0"), "taints": [taint]}
    objects = cluster(node("a"), node("b"), resource_slice("a", tainted, device("gpu-1")))
    assert device_taints(objects) == {"a": [{**taint, "device": f"{DRIVER}/a/gpu-0"}]}


def test_labels_name_the_product_and_the_vendor() -> None:
    found = known(node("a", labels={"accelerator": "nvidia", PRODUCT: "NVIDIA-X9"}))
    assert found is not None
    assert (found.product, found.vendor, profiles_of(found.product)) == ("NVIDIA-X9", "nvidia", [])


def test_a_device_plugin_is_known_by_its_name() -> None:
    names = ["nvidia-device-plugin-a", "intel-gpu-plugin-b", "amdgpu-device-plugin-c"]
    others = ["nvidia-device-plugin-mps-control-daemon-d", "rdma-shared-device-plugin-e", "aws-efa-k8s-device-plugin-f"]
    objects = cluster(node("a"), *(pod(name, on="a") for name in (*names, *others)))
    assert [each.name for each in device_plugins(objects.nodes[0])] == names


def test_long_names_take_linear_time() -> None:
    product = "A100-" * 100_000
    found = known(node("a", {"example.com" + "/" * 500_000: 1}, labels={PRODUCT: product}))
    assert found is not None
    assert not found.offered
    assert profiles_of(product) == []
