"""`sets`: the packaged rule sets on screen and in a folder."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.test.rule_tests import run_tests
from rules_engine.rules.diagnostic.catalogue import read_catalogue
from rules_engine.rules.sources.card_files import card_sets
from rules_engine.rules.sources.schemas import without_schema_comments
from tests.support.authoring import cli, completed, file_size_limit, write

PRODUCT = "nvidia.com/gpu.product"
UNKNOWN = "cannot tell: no product label and no device attribute on node n0"
SETS = ["gpu-allocation", *sorted(["diagnostics", "gpu-shared", *card_sets()])]
RULE_KINDS = ("FallbackLadder", "ResourceInjection", "Validation", "Diagnostic")
SHIPPED = Path(__file__).parents[2] / "rules"
POD = "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: x}]}\n"


def test_the_list_has_every_set_and_rule_with_its_description() -> None:
    result = cli("sets", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line for line in lines if line[0] != " "] == [*SETS]
    texts = [path.read_text() for name in SETS for path in (SHIPPED / name).glob("*.yaml")]
    rules = [each for text in texts for each in yaml.safe_load_all(text) if each["kind"] in RULE_KINDS]
    assert sorted(line for line in lines if line[0] == " ") == sorted(
        f"  {rule['kind']}/{rule['metadata']['name']}  "
        f"{rule['spec'].get('description') or read_catalogue()[rule['spec']['reason']].summary}"
        for rule in rules
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
    assert completed("sets", "show", "mig-a") == [each for each in sorted(card_sets()) if each.startswith("mig-a")]
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
    "NVIDIA-A100-SXM4-80GB-MIG-1g.10gbme": None,
    "NVIDIA-A100-SXM4-80GB-MIG-INVALID": None,
    "NVIDIA-GH200-480GB": "mig-gh200-96gb",
    "NVIDIA-GH200-144G-HBM3e": "mig-gh200-144gb",
    "NVIDIA-GB200": "mig-gb200",
    "NVIDIA-B300-SXM6-AC": "mig-b300",
    "NVIDIA-GB300-SHARED": "mig-gb300",
    "NVIDIA-H20": "mig-h20-96gb",
    "NVIDIA-H20-SHARED": "mig-h20-96gb",
    "NVIDIA-H20-3e": "mig-h20-141gb",
    "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition": "mig-rtx-pro-6000",
    "NVIDIA-RTX-PRO-5000-Blackwell": "mig-rtx-pro-5000",
    "NVIDIA-RTX-PRO-4500-Blackwell-Server-Edition": "mig-rtx-pro-4500",
    "Tesla-T4": None,
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
    return json.loads(result.stdout)


@pytest.mark.parametrize(("product", "name"), PRODUCTS.items())
def test_the_label_of_a_node_names_its_card(product: str, name: str | None, tmp_path: Path) -> None:
    file = nodes_file(tmp_path, {"labels": {PRODUCT: product}, "allocatable": {"nvidia.com/mig-1g.18gb": "1"}})
    sets = [] if name is None else [name]
    assert suggested(file) == {
        "cards": [{"product": product, "nodes": ["n0"], "sets": sets, "unknown": ""}],
        "sets": sets,
        "problems": [],
    }


@pytest.mark.parametrize(
    ("devices", "sets"),
    [
        (["1g.6gb", "2g.12gb.me"], ["mig-a30"]),
        (["4g.20gb", "1g.5gb.me"], ["mig-a100-40gb"]),
        (["7g.189gb"], ["mig-gb200"]),  # a name of some drivers
        (["1g.24gb.gfx", "4g.96gb"], ["mig-rtx-pro-6000"]),
        (["1g.10gb"], None),  # of A100 and H100
        (["1g.12gb"], None),
        (["1g.6gb", "1g.34gb"], None),
        ([], None),
    ],
)
def test_without_a_label_a_card_is_known_if_it_alone_has_the_mig_devices_of_the_node(
    devices: Sequence[str], sets: Sequence[str] | None, tmp_path: Path
) -> None:
    allocatable = {f"nvidia.com/mig-{name}": "1" for name in devices} | {"nvidia.com/gpu": "1"}
    assert suggested(nodes_file(tmp_path, {"allocatable": allocatable})) == {
        "cards": [{"product": None, "nodes": ["n0"], "sets": sets or [], "unknown": "" if sets else UNKNOWN}],
        "sets": sets or [],
        "problems": [],
    }


def resource_slice(name: str, driver: str, attribute: str, product: str) -> dict[str, Any]:
    device = {"name": "a", "attributes": {attribute: {"string": product}}}
    title = f"{name}-{driver}"
    pool = {"name": title, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": title},
        "spec": {"driver": driver, "pool": pool, "nodeName": name, "devices": [device]},
    }


def test_an_attribute_of_devices_comes_before_labels(tmp_path: Path) -> None:
    labels = {PRODUCT: "NVIDIA-A30"}
    file = nodes_file(tmp_path, {"labels": labels}, {"labels": labels}, {"labels": labels}, {"labels": labels})
    items = json.loads(file.read_text())
    items["items"] += [
        resource_slice("n1", "gpu.nvidia.com", "productName", "NVIDIA H100 80GB HBM3"),
        resource_slice("n2", "gpu.amd.com", "productName", "AMD_Instinct_MI300X_OAM"),
        resource_slice("n2", "dra.net", "productName", "NIC"),
        resource_slice("n3", "gpu.nvidia.com", "brand", "NVIDIA"),
    ]
    file.write_text(json.dumps(items))
    assert suggested(file)["sets"] == ["mig-a30", "mig-h100-80gb", "amd-mi300x"]


CLOUDS = {
    ("cloud.google.com/gke-accelerator", "nvidia-h100-mega-80gb"): "mig-h100-80gb",
    ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4"): "",
    ("karpenter.k8s.aws/instance-gpu-name", "b300"): "mig-b300",
    ("eks.amazonaws.com/instance-gpu-name", "rtx-pro-4500"): "mig-rtx-pro-4500",
    ("amd.com/gpu.product-name", "AMD_Instinct_MI355X"): "amd-mi355x",
    ("karpenter.k8s.aws/instance-gpu-name", "a100"): None,
    ("karpenter.azure.com/sku-gpu-name", "A100"): None,
}
"""The set of a card by a cloud's label of nodes; None: it may be one of several."""


@pytest.mark.parametrize(("label", "name"), CLOUDS.items())
def test_labels_of_clouds_name_cards(label: tuple[str, str], name: str | None, tmp_path: Path) -> None:
    [found] = suggested(nodes_file(tmp_path, {"labels": dict([label])}))["cards"]
    assert found["sets"] == ([name] if name else [])
    assert found["unknown"] == (
        f"cannot tell: {label[1]} may be any of several cards, on node n0" if name is None else ""
    )


def test_nodes_without_gpus_are_left_out_and_equal_ones_are_together(tmp_path: Path) -> None:
    t4 = {"labels": {PRODUCT: "Tesla-T4"}, "allocatable": {"nvidia.com/gpu": "1"}}
    whole = {"allocatable": {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.18gb": "0"}}
    document = suggested(nodes_file(tmp_path, {"allocatable": {"cpu": "1"}}, t4, whole, t4))
    assert document["cards"] == [
        {"product": "Tesla-T4", "nodes": ["n1", "n3"], "sets": [], "unknown": ""},
        {"product": None, "nodes": ["n2"], "sets": [], "unknown": UNKNOWN.replace("n0", "n2")},
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
cannot tell: no product label and no device attribute on node n4
--rules set:mig-a100-80gb set:mig-h200
"""
    )
    options = result.stdout.splitlines()[-1].split()
    assert cli("explain", "-f", write(tmp_path, {"pod.yaml": POD}) / "pod.yaml", *options).exit_code == 0
    without = cli("sets", "suggest", "--cluster", nodes_file(tmp_path, {})).stdout
    assert without == "no card is known: no label names one, and no GPU is allocatable\n"
    unset = cli(
        "sets", "suggest", "--cluster", nodes_file(tmp_path, {"labels": {"nvidia.com/gpu.product": "Tesla-T4"}})
    ).stdout
    assert unset.endswith("no packaged set fits\n")
