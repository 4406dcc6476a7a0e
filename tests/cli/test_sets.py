"""`sets`: the packaged rule sets on screen and in a folder."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules_engine.accelerators.mig import device_resource
from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.test.rule_tests import run_tests
from rules_engine.rules.diagnostic import read_catalogue
from rules_engine.rules.sources.card_sets import PRODUCT, card_sets
from rules_engine.rules.sources.schemas import without_schema_comments
from tests.support.authoring import cli, completed, file_size_limit, write

SETS = ["gpu-allocation", "diagnostics", *sorted(card_sets())]
RULE_KINDS = ("FallbackLadder", "ResourceInjection", "Validation", "Diagnostic")
SHIPPED = Path(__file__).parents[2] / "rules"
MIG_OF_NONE = "nvidia.com/mig-1g.34gb"
POD = "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: x}]}\n"


def test_the_list_has_every_set_and_rule_with_its_description() -> None:
    result = cli("sets", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    uses = {"gpu-allocation": "  used without --rules", "diagnostics": "  used by doctor"}
    lines = result.stdout.splitlines()
    assert [line for line in lines if line[0] != " "] == [f"{name}{uses.get(name, '')}" for name in SETS]
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
    return json.loads(result.stdout)


@pytest.mark.parametrize(("product", "name"), PRODUCTS.items())
def test_the_label_of_a_node_names_its_card(product: str, name: str | None, tmp_path: Path) -> None:
    file = nodes_file(tmp_path, {"labels": {PRODUCT: product}, "allocatable": {"nvidia.com/mig-1g.18gb": "1"}})
    sets = [] if name is None else [name]
    assert suggested(file) == {
        "cards": [{"product": product, "nodes": ["n0"], "sets": sets}],
        "sets": sets,
        "problems": [],
    }


@pytest.mark.parametrize("name", card_sets())
def test_without_the_label_all_mig_devices_of_a_node_are_of_the_set(name: str, tmp_path: Path) -> None:
    profiles = {each: set(card.profiles) for each, card in card_sets().items()}
    every = dict.fromkeys(map(device_resource, profiles[name]), "1")
    document = suggested(nodes_file(tmp_path, {"allocatable": every}, {"allocatable": {**every, MIG_OF_NONE: "1"}}))
    first, second = document["cards"]
    assert first["sets"] == [other for other in profiles if profiles[name] <= profiles[other]]
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
