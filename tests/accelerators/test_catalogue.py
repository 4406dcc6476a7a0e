"""The catalogue of accelerators: the packaged one, what users add, and Python without facts about cards."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rules_engine.accelerators.catalogue import PACKAGED, Catalogue, catalogue
from rules_engine.accelerators.mig import device_resource, profile_of
from rules_engine.accelerators.nodes import mark_of, product_of
from rules_engine.accelerators.resources import (
    card_share,
    is_gpu,
    is_rdma,
    requests_gpus_by_annotation,
    scheduler_for,
)
from rules_engine.rules.sources.load import COMMAND_KINDS, load_files
from tests.support.api import pod
from tests.support.authoring import cli, ladder, write
from tests.support.loading import rule

ROOT = Path(__file__).parents[2]
OURS = rule(
    "AcceleratorCatalogue",
    """
  vendors:
    - {name: Example, domains: [example.com], shares: {"example.com/half-*": 1/2}, amounts: [example.com/memory]}
  networks: [{name: Fabric, words: fabric}]
  cards:
    - name: Example-48GB
      products: Example-48GB
      profiles: {1g.13gb: "{0,1,2,3}:1", 2g.25gb: "{0,2}:2", 4g.50gb: "{0}:4"}
    - {name: Split, products: Split-.*, partitions: {example.com/one_a: 1, example.com/four_a: 4}}
  labels: [{name: example.com/card, meaning: product, cards: {e48: Example-48GB}}]
  drivers: [{name: gpu.example.com, product: model}]
  schedulers:
    - {name: our-scheduler, resources: ["example.com/mem*"], annotations: [example.com/part], webhook: ours sets it}
""",
)
LAYOUT = "nvidia.com/mig-1g.13gb"
LOAD = rule(
    "Simulation",
    "{arrivals: [{pod: {kind: Pod, spec: {containers: "
    f"[{{name: c, resources: {{limits: {{{LAYOUT}: 1}}}}}}]}}}}, count: 4, runFor: 1h}}]}}",
)


def test_the_packaged_catalogue_is_a_valid_document() -> None:
    loaded = load_files([PACKAGED], COMMAND_KINDS)
    assert loaded.problems == ()
    [found] = loaded.of(Catalogue)
    assert [card.name for card in found.cards] == [card.name for card in catalogue().cards]


def test_entries_replace_those_of_their_name_and_others_are_added(tmp_path: Path) -> None:
    text = rule("AcceleratorCatalogue", "{vendors: [{name: AMD, domains: [amd.example]}], labels: []}")
    write(tmp_path, {"a.yaml": OURS.replace("name: ", "name: x-", 1), "b.yaml": text})
    before = catalogue()
    assert load_files([tmp_path], COMMAND_KINDS).problems == ()
    after = catalogue()
    assert [each.name for each in after.vendors][:2] == ["AMD", "Example"]
    assert len(after.vendors) == len(before.vendors) + 1
    assert (is_gpu("amd.com/cpx_nps1"), is_gpu("amd.example/x")) == (False, True)
    assert after.labels[1:] == before.labels


def test_a_card_that_is_replaced_has_the_set_of_its_new_entry(tmp_path: Path) -> None:
    text = rule("AcceleratorCatalogue", '{cards: [{name: A30, products: A30, profiles: {1g.7gb: "", 2g.13gb: ""}}]}')
    option = ("--catalogue", write(tmp_path, {"a.yaml": text}) / "a.yaml")
    shown = cli("sets", "show", "mig-a30", *option).stdout
    assert re.findall("- resource: nvidia.com/mig-(.*)", shown)[:2] == ["2g.13gb", "1g.7gb"]
    assert cli("sets", "list", *option).stdout.count("mig-a30\n") == 1


@pytest.mark.parametrize(
    ("resource", "share"),
    [("example.com/x", 1), ("example.com/half-a", 0.5), ("example.com/memory", 0), ("y/fabric", 0)],
)
def test_names_of_resources_are_those_of_added_vendors(resource: str, share: float, tmp_path: Path) -> None:
    load_files([write(tmp_path, {"a.yaml": OURS})], COMMAND_KINDS)
    assert card_share(resource) == share
    assert is_rdma(resource) is (resource == "y/fabric")


def test_an_added_scheduler_is_known(tmp_path: Path) -> None:
    load_files([write(tmp_path, {"a.yaml": OURS})], COMMAND_KINDS)
    found = scheduler_for("example.com/memory")
    assert found is not None
    assert (found.name, found.webhook) == ("our-scheduler", "ours sets it")
    annotated = pod(metadata={"annotations": {"example.com/part": "1"}}, schedulerName="our-scheduler")
    assert requests_gpus_by_annotation(annotated) == {"example.com/part": "1"}


def test_commands_know_a_card_that_is_added(tmp_path: Path) -> None:
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "labels": {"example.com/card": "e48"}}}
    write(
        tmp_path,
        {
            "c.yaml": OURS,
            "load.yaml": LOAD,
            "nodes.json": json.dumps(node),
            "l.yaml": ladder("l", LAYOUT, "nvidia.com/gpu"),
        },
    )
    option = ("--catalogue", tmp_path / "c.yaml")
    assert "[unknown-mig-profile]" in cli("check", tmp_path / "l.yaml").stdout
    assert cli("check", tmp_path / "l.yaml", *option).stdout == "1 file checked, no problems\n"
    assert "mig-example-48gb\n" in cli("sets", "list", *option).stdout
    assert "amd-" in cli("sets", "list", *option).stdout
    assert "resource: example.com/four_a" in cli("sets", "show", "example-split", *option).stdout
    suggested = cli("sets", "suggest", "--cluster", tmp_path / "nodes.json", *option).stdout
    assert suggested.endswith("--rules set:mig-example-48gb\n")
    plan = cli("plan", "-f", tmp_path / "load.yaml", "--cards", "1xExample-48GB", *option)
    assert (plan.exit_code, "4 × 1g.13gb" in plan.stdout) == (0, True)
    copied = cli("sets", "copy", "mig-example-48gb", tmp_path / "copied", *option)
    assert copied.exit_code == 0
    assert cli("check", tmp_path / "copied", "--strict", *option).exit_code == 0


def test_a_card_beside_rules_is_planned(tmp_path: Path) -> None:
    rules = write(tmp_path / "rules", {"c.yaml": OURS, "l.yaml": ladder("l", LAYOUT, "nvidia.com/gpu")})
    write(tmp_path, {"load.yaml": LOAD})
    plan = cli("plan", "-f", tmp_path / "load.yaml", "--cards", "1xExample-48GB", "--rules", rules)
    assert (plan.exit_code, "4 × 1g.13gb" in plan.stdout) == (0, True)


def test_a_catalogue_beside_rules_is_for_documents_of_all_files(tmp_path: Path) -> None:
    inventory = rule("ClusterInventory", "{nodes: [{name: a, cards: 1, migDevices: [1g.13gb, 2g.25gb]}]}")
    text = ladder("l", LAYOUT, "nvidia.com/gpu")
    write(tmp_path, {"z.yaml": OURS, "a.yaml": text, "b.yaml": inventory})
    assert cli("check", tmp_path).stdout == "3 files checked, no problems\n"
    (tmp_path / "b.yaml").write_text(inventory.replace("2g.25gb", "4g.50gb"))
    assert "these MIG devices overlap in every placement on a card" in cli("check", tmp_path).stdout


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{cards: [{name: a, products: '('}]}", "4:37: error: not a regular expression: missing )"),
        ("{networks: [{name: a, words: '['}]}", "4:37: error: not a regular expression: unterminated character set"),
        (
            "{cards: [{name: a, profiles: {1g.5: ''}}]}",
            "error: '1g.5' is not a MIG profile such as 2g.20gb [wrong-form]",
        ),
        (
            "{cards: [{name: a, profiles: {1g.5gb: '{0}'}}]}",
            "error: '{0}' is not a list of placements such as {0,2}:2 [wrong-form]",
        ),
        (
            "{cards: [{name: a, profiles: {1g.5gb: ''}, aliases: {1g.6gb: 1g.4gb}}]}",
            "4:68: error: the card has no profile '1g.4gb' (did you mean '1g.5gb'?) [wrong-value]",
        ),
        (
            "{cards: [{name: a b, products: a}]}",
            "4:23: error: 'a b' cannot be part of a set's name: use letters, digits",
        ),
        ("{cards: [{name: a}, {name: a}]}", "4:34: error: 'a' is already used in line 4 [duplicate-name]"),
        ("{vendors: [{name: a, shares: {a.b/c: half}}]}", "error: 'half' is not a share of a card such as 1/2"),
        ("{vendors: [{name: a, shares: {a.b/c: 0.5}}]}", "error: a.b/c must be text, not 0.5 [wrong-type]"),
        ("{vendors: [{name: a, resources: [acl]}]}", "error: 'acl' is not an extended resource name or glob such as "),
        ("{vendors: [{name: a, domains: [a.b/]}]}", "error: 'a.b/' is not a domain such as example.com [wrong-form]"),
        ("{cards: [{name: a, partitions: {cpx: 8}}]}", "error: 'cpx' is not an extended resource name such as "),
        ("{labels: [{name: a!, meaning: mark}]}", "error: 'a!' is not a label or annotation key such as "),
        ("{labels: [{name: a, meaning: card}]}", "error: "),
        ("{card: []}", "error: AcceleratorCatalogue spec has no field 'card' (did you mean 'cards'?)"),
    ],
)
def test_mistakes_are_reported_at_their_place(text: str, place: str, tmp_path: Path) -> None:
    file = write(tmp_path, {"c.yaml": rule("AcceleratorCatalogue", text)}) / "c.yaml"
    result = cli("sets", "list", "--catalogue", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.match(rf"{re.escape(str(file))}:\d+:\d+: error", result.stderr), result.stderr
    assert place in result.stderr
    assert cli("check", file).exit_code == 1


def test_a_file_without_a_catalogue_is_a_usage_error(tmp_path: Path) -> None:
    write(tmp_path, {"l.yaml": ladder("l", "nvidia.com/gpu", LAYOUT)})
    result = cli("sets", "list", "--catalogue", tmp_path / "l.yaml")
    assert (result.exit_code, "has no AcceleratorCatalogue" in result.stderr) == (2, True)
    assert cli("sets", "list", "--catalogue", tmp_path / "none.yaml").exit_code == 2


SUFFIXED = [
    *("1g.5gb+me", "1g.6gb+me", "1g.10gb+me", "1g.12gb+me", "1g.18gb+me", "1g.23gb+me", "1g.24gb+gfx", "1g.24gb+me"),
    *("1g.24gb+me.all", "1g.24gb-me", "1g.34gb+me", "1g.35gb+me", "2g.12gb+me", "2g.48gb+gfx", "2g.48gb+me.all"),
    *("2g.48gb-me", "4g.96gb+gfx"),
]
"""The names with extensions of mig-parted 0.15, in each of its three configurations."""


@pytest.mark.parametrize("name", SUFFIXED)
def test_profiles_of_mig_parted_are_of_cards(name: str) -> None:
    assert any(name in card.profiles for card in catalogue().cards)
    assert profile_of(device_resource(name)) == re.split("gb", name)[0] + "gb"


@pytest.mark.parametrize(
    ("labels", "product", "cards"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-A30", "cloud.google.com/gke-accelerator": "x"}, "NVIDIA-A30", True),
        ({"karpenter.k8s.aws/instance-gpu-name": "l40s"}, "l40s", True),
        ({"cluster-api/accelerator": ""}, "", False),
        ({"kubernetes.azure.com/accelerator": "nvidia"}, "", True),
        ({"accelerator": "amd"}, "", True),
        ({"accelerator": "fast"}, "", False),
        ({"nvidia.com/gpu.present": "true"}, "", True),
        ({"nvidia.com/gpu.present": "false"}, "", False),
        ({"feature.node.kubernetes.io/pci-1200_1002.present": "true"}, "", True),
        ({"k8s.scw.cloud/gpu": ""}, "", True),
        ({"zone": "a"}, "", False),
    ],
)
def test_labels_mark_nodes_with_cards(labels: dict[str, str], product: str, *, cards: bool) -> None:
    assert (product_of(labels), bool(mark_of(labels))) == (product, cards)


FACTS = re.compile(
    r"\b(amd|intel|habana|azure|google|amazonaws|huawei|cambricon|tencent|hygon|iluvatar|koordinator|volcano|mellanox)"
    r"\.(com|ai|sh)\b|gpu\.(product|present|count)|accelerator\b|karpenter|\bpci-|10de|\b(A30|A100|H100|H200|B200|MI300)\b"
)
ALLOWED = {
    "rules_engine/model/kubernetes/cluster_objects.py": "API groups of kinds that are read",
    "rules_engine/cluster/nodes/autoscalers.py": "the component of Karpenter's Events",
    "rules_engine/questions/plan/plan.py": "an example in a field's description",
    "rules_engine/rules/ladder/analysis.py": "the label by which Karpenter makes nodes of a pool",
    "rules_engine/rules/injection/value.py": "a default",
    "rules_engine/questions/doctor/pending/unoffered.py": "the label that a remedy names, of the MIG strategy single",
}
"""Files in which such a text stands, and why."""


def texts(path: Path) -> Iterator[str]:
    """Yield the string constants of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def test_facts_about_vendors_cards_and_labels_stand_in_the_catalogue() -> None:
    files = [
        file for root in ("rules_engine", "server") for file in (ROOT / root).rglob("*.py") if not file.is_symlink()
    ]
    assert len(files) > 400
    found = {str(file.relative_to(ROOT)) for file in files if any(FACTS.search(text) for text in texts(file))}
    assert found == ALLOWED.keys()
