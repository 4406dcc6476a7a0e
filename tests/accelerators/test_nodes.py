"""The accelerators of nodes: what shows them, and what does not."""

import pytest

from rules_engine.accelerators.nodes import NodeGpus, device_plugins, gpus_of, lacking_cards, profiles_of
from tests.support.api import GPU, Object, cluster, device, node, pod, resource_slice

PRODUCT = "nvidia.com/gpu.product"
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
        [node("a"), PLUGIN],
        [node("a"), PLUGIN, pod("p", {"cpu": 1})],
        [node("a"), PLUGIN, pod("p", {GPU: 16}), node("b", {GPU: 8})],
        [node("a"), pod("nvidia-device-plugin-x", on="a"), pod("p", {GPU: 1})],
        [node("a"), pod("smarter-device-plugin-x", on="a", status=READY), pod("p", {GPU: 1})],
    ],
)
def test_nearly_as_much_shows_none(objects: list[Object]) -> None:
    assert known(*objects) is None


def test_devices_name_the_product_before_labels() -> None:
    offered = {**device("gpu-0"), "attributes": {"productName": {"string": "NVIDIA H200"}}}
    found = known(node("a", labels={PRODUCT: "NVIDIA-A30"}), resource_slice("a", offered))
    assert found is not None
    assert (found.product, "1g.18gb" in profiles_of(found.product)) == ("NVIDIA H200", True)


def test_labels_name_the_product_and_the_vendor() -> None:
    found = known(node("a", labels={"accelerator": "nvidia", PRODUCT: "NVIDIA-X9"}))
    assert found is not None
    assert (found.product, found.vendor, profiles_of(found.product)) == ("NVIDIA-X9", "nvidia", [])


def test_a_device_plugin_is_known_by_its_name() -> None:
    names = ["nvidia-device-plugin-a", "intel-gpu-plugin-b", "amdgpu-device-plugin-c"]
    others = ["nvidia-device-plugin-mps-control-daemon-d", "rdma-shared-device-plugin-e", "aws-efa-k8s-device-plugin-f"]
    objects = cluster(node("a"), *(pod(name, on="a") for name in (*names, *others)))
    assert [each.name for each in device_plugins(objects.nodes[0])] == names


def test_a_profile_that_a_card_lacks_is_named_with_those_that_it_has() -> None:
    cards = ["NVIDIA-A100-SXM4-80GB", "NVIDIA-L4", ""]
    profiles = "1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.79gb, 7g.80gb"
    text = f"NVIDIA-A100-SXM4-80GB does not have the MIG profile 1g.5gb, but {profiles}"
    assert [*lacking_cards("nvidia.com/mig-1g.5gb", cards)] == [text]
    for resource in ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-9g.1gb", GPU):
        assert lacking_cards(resource, cards) == []


def test_long_names_take_linear_time() -> None:
    product = "A100-" * 100_000
    found = known(node("a", {"example.com" + "/" * 500_000: 1}, labels={PRODUCT: product}))
    assert found is not None
    assert not found.offered
    assert profiles_of(product) == []


def test_a_card_has_the_profiles_of_older_drivers_too() -> None:
    products = ["NVIDIA-RTX-PRO-5000-Blackwell"]
    assert lacking_cards("nvidia.com/mig-1g.12gb", products) == lacking_cards("nvidia.com/mig-1g.24gb", products) == []
