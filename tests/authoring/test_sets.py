"""`sets`: the packaged rule sets on screen and in a folder."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rules_engine.checking.check import check_files
from rules_engine.cli.schema import load_schema
from rules_engine.sources.card_sets import CARD_SETS, PRODUCT
from rules_engine.starting.schemas import without_schema_comments
from rules_engine.testing.rule_tests import run_tests
from tests.support.authoring import cli, completed, file_size_limit, write

SETS = ["gpu-allocation", "diagnostics", *sorted(CARD_SETS)]
SHIPPED = Path(__file__).parents[2] / "rules"
MIG_OF_NONE = "nvidia.com/mig-1g.34gb"
POD = "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: x}]}\n"


def test_the_list_has_every_set_and_rule_with_its_description() -> None:
    result = cli("sets", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        """\
gpu-allocation  used without --rules
  FallbackLadder/mig-to-gpu  Replaces a MIG device that no node offers with a lower one, else with a higher one, else with the whole card.
  ResourceInjection/t4  cpu and memory in proportion to the T4 cards of a pod.
  ResourceInjection/v100  cpu and memory in proportion to the V100 cards of a pod.
  Validation/well-formed-gpus  GPUs and other extended resources are requested in the form that the API server accepts.
  Validation/rdma-needs-ipc-lock  RDMA registers memory with the network card, which must then stay in place.
  Validation/gpus-and-resource-claims  GPUs are requested by resource name or by resourceClaims (Dynamic Resource Allocation), not by both.
diagnostics  used by doctor
  Diagnostic/device-allocation-failed  A pod stays in ContainerCreating, since the kubelet cannot allocate its devices.
  Diagnostic/container-toolkit-failed  NVIDIA's container toolkit cannot give a container its GPUs.
  Diagnostic/gpu-container-out-of-memory  A container of a pod with GPUs was killed, since it used more memory than its limit.
  Diagnostic/gpu-node-out-of-memory  A GPU node ran out of memory, and its kernel killed a program.
  Diagnostic/device-plugin-crash-looping  The device plugin of a node crash-loops.
  Diagnostic/device-plugin-on-node-without-gpus  A device plugin crash-loops on a node without GPUs, where it should not run.
  Diagnostic/device-plugin-not-ready  The device plugin of a node is not ready, for more than five minutes.
  Diagnostic/device-plugin-on-no-node  No DaemonSet of a device plugin matches a node, though nodes have GPUs by their labels.
  Diagnostic/no-allocatable-devices  A node has devices, and none of them is allocatable.
  Diagnostic/unhealthy-devices  Fewer devices of a node are allocatable than it has.
  Diagnostic/xid-of-hardware  An event of a node reports an Xid error that needs a reset, a restart or a repair.
  Diagnostic/xid-of-program  An event of a node reports an Xid error that a program may have caused.
  Diagnostic/cuda-needs-newer-driver  A container reports that the driver of its node is too old for its CUDA.
  Diagnostic/image-cuda-newer-than-driver  A failing container has an image whose tag names a CUDA that needs a newer driver than its node has.
  Diagnostic/driver-too-old  The driver of a node is older than GPUs on Kubernetes need.
  Diagnostic/driver-versions-differ  GPU nodes have drivers of different major versions, so that an image may run on some of them only.
  Diagnostic/feature-discovery-missing  A node offers GPUs without labels of feature discovery, which the diagnosis of drivers and MIG reads.
  Diagnostic/no-device-plugin  A GPU node offers no GPU, since no device plugin runs on it.
  Diagnostic/gpus-not-registered  A GPU node offers no GPU, though its device plugin is ready.
  Diagnostic/operator-pod-not-starting  A pod of the GPU operator that prepares a node does not start, so that its device plugin does not either.
  Diagnostic/gpu-node-not-ready  A node with GPUs is not Ready, so that no pod is scheduled to it.
  Diagnostic/gpu-node-cordoned  A node with GPUs is cordoned, so that no new pod is scheduled to it.
  Diagnostic/node-not-found  A pod with GPUs is bound to a node that does not exist, so that no kubelet starts it.
  Diagnostic/runtime-class-not-found  A DaemonSet names a RuntimeClass that does not exist, so that its pods are not created.
  Diagnostic/runtime-handler-not-configured  The container runtime of a node does not know the handler of the pod's RuntimeClass.
  Diagnostic/mig-layout-pending  The MIG manager is changing the MIG layout of a node.
  Diagnostic/mig-layout-failed  The MIG manager could not apply the MIG layout of a node.
  Diagnostic/mig-instances-missing  A MIG layout is applied, but the node does not offer its devices.
  Diagnostic/mig-layout-invalid  With the MIG strategy single, the cards of a node have no MIG instances, or different ones.
  Diagnostic/mig-strategy-none  A MIG layout is applied, but the strategy none hides its devices.
  Diagnostic/mig-strategy-mismatch  The resources of a node are not those of its MIG strategy.
  Diagnostic/rdma-not-offered  A GPU node has RDMA hardware, by its labels, but offers no RDMA resource.
  Diagnostic/rdma-without-ipc-lock  A container has RDMA devices without the capability IPC_LOCK, which RDMA needs to keep its memory in place.
  Diagnostic/gpus-held-by-terminating-pod  A pod holds GPUs although it should have ended more than a minute ago.
  Diagnostic/gpus-held-by-waiting-pod  A pod holds GPUs for more than ten minutes without having started.
  Diagnostic/gpus-shared  A node offers its cards several times, by time-slicing or MPS.
  Diagnostic/shared-gpus-not-offered  A node has replicas of its cards by its labels, but does not offer them.
  Diagnostic/several-shared-gpus  A container requests several shared GPUs, which may be the same card.
mig-a100-40gb
  FallbackLadder/mig-a100-40gb  A100-40GB, up to a larger MIG device, else to the whole card.
  FallbackLadder/mig-a100-40gb-media  A100-40GB with media extensions, up to the whole card or the device of its size.
  FallbackLadder/mig-a100-40gb-less-memory  A100-40GB, first down to the memory that a pod says it needs, then up like other pods.
  Validation/mig-a100-40gb-least-memory  Values of gpurules.io/least-gpu-memory-gb that mig-a100-40gb-less-memory ignores.
mig-a100-80gb
  FallbackLadder/mig-a100-80gb  A100-80GB, up to a larger MIG device, else to the whole card.
  FallbackLadder/mig-a100-80gb-media  A100-80GB with media extensions, up to the whole card or the device of its size.
  FallbackLadder/mig-a100-80gb-less-memory  A100-80GB, first down to the memory that a pod says it needs, then up like other pods.
  Validation/mig-a100-80gb-least-memory  Values of gpurules.io/least-gpu-memory-gb that mig-a100-80gb-less-memory ignores.
mig-a30
  FallbackLadder/mig-a30  A30, up to a larger MIG device, else to the whole card.
  FallbackLadder/mig-a30-media  A30 with media extensions, up to the whole card or the device of its size.
  FallbackLadder/mig-a30-less-memory  A30, first down to the memory that a pod says it needs, then up like other pods.
  Validation/mig-a30-least-memory  Values of gpurules.io/least-gpu-memory-gb that mig-a30-less-memory ignores.
mig-b200
  FallbackLadder/mig-b200  B200, up to a larger MIG device, else to the whole card.
  FallbackLadder/mig-b200-media  B200 with media extensions, up to the whole card or the device of its size.
  FallbackLadder/mig-b200-less-memory  B200, first down to the memory that a pod says it needs, then up like other pods.
  Validation/mig-b200-least-memory  Values of gpurules.io/least-gpu-memory-gb that mig-b200-less-memory ignores.
mig-h100-80gb
  FallbackLadder/mig-h100-80gb  H100-80GB, up to a larger MIG device, else to the whole card.
  FallbackLadder/mig-h100-80gb-media  H100-80GB with media extensions, up to the whole card or the device of its size.
  FallbackLadder/mig-h100-80gb-less-memory  H100-80GB, first down to the memory that a pod says it needs, then up like other pods.
  Validation/mig-h100-80gb-least-memory  Values of gpurules.io/least-gpu-memory-gb that mig-h100-80gb-less-memory ignores.
mig-h100-94gb
  FallbackLadder/mig-h100-94gb  H100-94GB (H100 NVL), up to a larger MIG device, else to the whole card.
  FallbackLadder/mig-h100-94gb-media  H100-94GB (H100 NVL) with media extensions, up to the whole card or the device of its size.
  FallbackLadder/mig-h100-94gb-less-memory  H100-94GB (H100 NVL), first down to the memory that a pod says it needs, then up like other pods.
  Validation/mig-h100-94gb-least-memory  Values of gpurules.io/least-gpu-memory-gb that mig-h100-94gb-less-memory ignores.
mig-h200
  FallbackLadder/mig-h200  H200, up to a larger MIG device, else to the whole card.
  FallbackLadder/mig-h200-media  H200 with media extensions, up to the whole card or the device of its size.
  FallbackLadder/mig-h200-less-memory  H200, first down to the memory that a pod says it needs, then up like other pods.
  Validation/mig-h200-least-memory  Values of gpurules.io/least-gpu-memory-gb that mig-h200-less-memory ignores.
"""  # noqa: E501 - the exact output
    )
    assert sorted(path.name for path in SHIPPED.iterdir()) == sorted(SETS)


@pytest.mark.parametrize("name", SETS)
def test_a_copy_has_the_same_files_and_passes_its_tests(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "rules"
    result = cli("sets", "copy", name, folder)
    assert result.exit_code == 0
    copied = {path.name: path.read_text() for path in folder.iterdir()}
    assert copied == {path.name: without_schema_comments(path.read_text()) for path in (SHIPPED / name).iterdir()}
    assert sorted(result.stdout.splitlines()) == sorted(str(folder / file) for file in copied)
    assert check_files([folder]).answer.problems == ()
    assert run_tests([folder]).answer.succeeded


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_shown_as_one_stream_that_passes_its_tests(name: str, tmp_path: Path) -> None:
    result = cli("sets", "show", name)
    assert result.exit_code == 0
    for file in (SHIPPED / name).iterdir():
        assert f"# {file.name}\n{without_schema_comments(file.read_text())}" in result.stdout
    titles = re.findall(r"^# (\S+\.yaml)$", result.stdout, re.MULTILINE)
    assert titles == sorted(titles, key=lambda title: (title.endswith(".test.yaml"), title))
    write(tmp_path, {"set.yaml": result.stdout})
    assert check_files([tmp_path]).answer.problems == ()
    assert run_tests([tmp_path]).answer.succeeded


def test_existing_files_are_never_overwritten(tmp_path: Path) -> None:
    write(tmp_path, {"mig-a100-80gb.test.yaml": "mine\n"})
    result = cli("sets", "copy", "mig-a100-80gb", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == (
        f"Error: nothing is written, since {tmp_path / 'mig-a100-80gb.test.yaml'} exists"
    )
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mig-a100-80gb.test.yaml", "mine\n")]


def test_a_link_to_nowhere_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "mig-a100-80gb.test.yaml"
    link.symlink_to(tmp_path / "elsewhere.yaml")
    result = cli("sets", "copy", "mig-a100-80gb", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"Error: nothing is written, since {link} exists"
    assert list(tmp_path.iterdir()) == [link]


def test_a_file_that_cannot_be_written_whole_is_removed(tmp_path: Path) -> None:
    with file_size_limit(100):
        result = cli("sets", "copy", "mig-a100-80gb", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.endswith(": File too large\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["file/below", "x" * 300])
def test_a_folder_that_cannot_be_made_is_reported_in_one_line(folder: str, tmp_path: Path) -> None:
    write(tmp_path, {"file": ""})
    result = cli("sets", "copy", "mig-a100-80gb", tmp_path / folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("gpu-rules sets copy: Could not open file ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["show", "mig-a100-80"], ["copy", "mig-a100-80", "rules"]])
def test_an_unknown_set_is_a_usage_error_with_a_suggestion(arguments: list[str]) -> None:
    result = cli("sets", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == (
        "Error: Invalid value for 'NAME': unknown set 'mig-a100-80' (did you mean 'mig-a100-80gb'?): "
        f"must be one of {', '.join(SETS)}"
    )


def test_a_shell_completes_commands_and_names() -> None:
    assert completed("sets", "") == ["copy", "list", "show", "suggest"]
    assert completed("sets", "show", "mig-a") == ["mig-a100-40gb", "mig-a100-80gb", "mig-a30"]
    assert completed("sets", "copy", "d") == ["diagnostics"]


# Suggestions


PRODUCTS = {
    "NVIDIA-A30": "mig-a30",
    "A100-PCIE-40GB": "mig-a100-40gb",
    "NVIDIA-A100-SXM4-40GB": "mig-a100-40gb",
    "NVIDIA-A100-SXM4-80GB": "mig-a100-80gb",
    "NVIDIA-A100-80GB-PCIe": "mig-a100-80gb",
    "NVIDIA-A100-SXM4-80GB-SHARED": "mig-a100-80gb",
    "NVIDIA-H100-80GB-HBM3": "mig-h100-80gb",
    "NVIDIA-H100-PCIe": "mig-h100-80gb",
    "NVIDIA-H100-NVL": "mig-h100-94gb",
    "NVIDIA-H200": "mig-h200",
    "NVIDIA-H200-NVL": "mig-h200",
    "NVIDIA-B200": "mig-b200",
    "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb": None,
    "NVIDIA-GH200-480GB": None,
    "NVIDIA-GB200": None,
    "NVIDIA-H20": None,
    "Tesla-T4": None,
    "": None,
}
"""Product names of GPU feature discovery, and the set that fits. With MIG in it: the MIG strategy single."""


def nodes_file(folder: Path, *nodes: dict[str, Any]) -> Path:
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}", "labels": node.get("labels", {})},
            "status": {"allocatable": node.get("allocatable", {})},
        }
        for number, node in enumerate(nodes)
    ]
    (folder / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return folder / "nodes.json"


def suggested(file: Path) -> Any:
    result = cli("sets", "suggest", "--cluster", file, "--output", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    Draft202012Validator(load_schema("sets-suggest")).validate(document)
    return document


@pytest.mark.parametrize(("product", "name"), PRODUCTS.items())
def test_the_label_of_a_node_names_its_card(product: str, name: str | None, tmp_path: Path) -> None:
    file = nodes_file(tmp_path, {"labels": {PRODUCT: product}, "allocatable": {"nvidia.com/mig-1g.18gb": "1"}})
    sets = [] if name is None else [name]
    assert suggested(file) == {
        "cards": [{"product": product, "nodes": ["n0"], "sets": sets}],
        "sets": sets,
        "problems": [],
    }


@pytest.mark.parametrize("name", CARD_SETS)
def test_without_the_label_all_mig_devices_of_a_node_are_of_the_set(name: str, tmp_path: Path) -> None:
    every = dict.fromkeys(CARD_SETS[name], "1")
    document = suggested(nodes_file(tmp_path, {"allocatable": every}, {"allocatable": {**every, MIG_OF_NONE: "1"}}))
    first, second = document["cards"]
    assert first["sets"] == [other for other in CARD_SETS if CARD_SETS[name] == CARD_SETS[other]]
    assert second["sets"] == []
    assert document["sets"] == first["sets"][:1]


@pytest.mark.parametrize(
    ("product", "sets"),
    [("NVIDIA-H100-PCIe", ["mig-h100-80gb"]), ("NVIDIA-H200", ["mig-a100-40gb", "mig-a100-80gb", "mig-h200"])],
)
def test_nodes_without_the_label_add_sets_only_if_none_fits_a_labelled_node(
    product: str, sets: Sequence[str], tmp_path: Path
) -> None:
    shared = {"allocatable": {"nvidia.com/mig-1g.10gb": "1"}}  # of three cards
    assert suggested(nodes_file(tmp_path, shared, {"labels": {PRODUCT: product}}))["sets"] == sets


def test_nodes_without_gpus_are_left_out_and_equal_ones_are_together(tmp_path: Path) -> None:
    t4 = {"labels": {PRODUCT: "Tesla-T4"}, "allocatable": {"nvidia.com/gpu": "1"}}
    whole = {"allocatable": {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.18gb": "0"}}
    document = suggested(nodes_file(tmp_path, {"allocatable": {"cpu": "1"}}, t4, whole, t4))
    assert document["cards"] == [
        {"product": "Tesla-T4", "nodes": ["n1", "n3"], "sets": []},
        {"product": None, "nodes": ["n2"], "sets": []},
    ]


def test_the_text_has_the_option_of_other_commands(tmp_path: Path) -> None:
    products = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-PCIe", "NVIDIA-H200", "Tesla-T4")
    nodes = [*({"labels": {PRODUCT: each}} for each in products), {"allocatable": {"nvidia.com/gpu": "4"}}]
    result = cli("sets", "suggest", "--cluster", nodes_file(tmp_path, *nodes))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        """\
CARDS                  NODES  SETS
NVIDIA-A100-SXM4-80GB      1  mig-a100-80gb
NVIDIA-H100-PCIe           1  mig-h100-80gb
NVIDIA-H200                1  mig-h200
Tesla-T4                   1  none
unknown                    1  none
--rules set:mig-a100-80gb set:mig-h200
"""
    )
    options = result.stdout.splitlines()[-1].split()
    assert cli("explain", "-f", write(tmp_path, {"pod.yaml": POD}) / "pod.yaml", *options).exit_code == 0
    assert cli("sets", "suggest", "--cluster", nodes_file(tmp_path, {})).stdout.endswith("no packaged set fits\n")


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_cluster_with_errors_is_unusable(output: str, tmp_path: Path) -> None:
    write(tmp_path, {"nodes.yaml": "kind: Pod\n"})
    result = cli("sets", "suggest", "--cluster", tmp_path / "nodes.yaml", "-o", output)
    assert result.exit_code == 2
    assert "not-a-cluster" in result.output
    assert bool(result.stderr) is (output == "text")
