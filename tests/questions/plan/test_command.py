"""The command `plan`."""

import json
import os
import pty
import re
import signal
import subprocess
import termios
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from rules_engine.accelerators.mig import card_layouts, placements
from rules_engine.accelerators.resources import WHOLE_GPU
from rules_engine.questions.plan.space import count_devices
from tests.support.authoring import cli, ladder, validation, write
from tests.support.programs import command, environment

SMALL, MIDDLE, LARGE = (f"nvidia.com/mig-{profile}" for profile in ("1g.10gb", "2g.20gb", "3g.40gb"))
CLUSTER = """\
apiVersion: gpurules.io/v1
kind: ClusterInventory
metadata: {name: three}
spec:
  nodes:
    - {name: control, allocatable: {cpu: 8}}
    - name: old
      labels: {nvidia.com/mig-1g.10gb.count: "7", disk: ssd}
      allocatable: {nvidia.com/mig-1g.10gb: 7, cpu: 8}
    - {name: new, allocatable: {nvidia.com/gpu: 1, cpu: 8}}
  pods:
    - metadata: {name: there}
      spec: {nodeName: old, containers: [{name: c, image: i, resources: {limits: {nvidia.com/mig-1g.10gb: 1}}}]}
    - metadata: {name: agent}
      spec: {nodeName: old, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}
  objects:
    - {kind: PriorityClass, metadata: {name: high}, value: 5}
"""
KEEP = validation("keep", "'true'")
FALL = ladder("fall", LARGE, MIDDLE)


def pods(name: str, resource: str, count: int = 1, **fields: str) -> str:
    values = {"runFor": "10m", "count": str(count), **fields}
    spec = f"{{containers: [{{name: c, image: i, resources: {{limits: {{{resource}: 1}}}}}}]}}"
    lines = "".join(f"{field}: {value}, " for field, value in values.items())
    return f"    - {{{lines}pod: {{metadata: {{name: {name}}}, spec: {spec}}}}}\n"


def load(*arrivals: str, **fields: str) -> str:
    spec = "".join(f"  {field}: {value}\n" for field, value in fields.items())
    head = f"apiVersion: gpurules.io/v1\nkind: Simulation\nmetadata: {{name: load}}\nspec:\n{spec}  arrivals:\n"
    return head + "".join(arrivals)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {
        "load.yaml": load(pods("small", SMALL, 4), pods("large", LARGE, 2)),
        "cluster.yaml": CLUSTER,
        "keep.yaml": KEEP,
        "fall.yaml": FALL,
    }
    monkeypatch.chdir(write(tmp_path, files))
    return tmp_path


def plan(*arguments: str, cards: str = "1xA100-80GB", rules: str = "keep.yaml") -> Result:
    return cli("plan", "-f", "load.yaml", "--cards", cards, "--rules", rules, *arguments)


def document(*arguments: str, **options: str) -> Any:
    result = plan("-o", "json", *arguments, **options)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def test_the_page_has_the_table_and_the_layouts(folder: Path) -> None:
    assert plan("-o", "html=plan.html").exit_code == 0
    page = (folder / "plan.html").read_text()
    assert "<h1>Plan for load: 1 × A100-80GB</h1>" in page
    assert "kubectl label node gpu-1 nvidia.com/mig.config=plan-1 --overwrite" in page


def test_a_plan_is_repeated_by_its_seed(folder: Path) -> None:
    arrivals = pods("small", SMALL, 6, every="{mean: 3m}"), pods("large", LARGE, 3, every="{mean: 5m}")
    write(folder, {"load.yaml": load(*arrivals, seed="7")})
    assert document(cards="2xA100-80GB") == document(cards="2xA100-80GB")


def test_rules_make_another_layout_best(folder: Path) -> None:
    write(folder, {"load.yaml": load(pods("large", LARGE, 3))})

    kept, fallen = (document(rules=rules)["choices"][0] for rules in ("keep.yaml", "fall.yaml"))

    devices = [
        choice["migConfigs"]["mig-configs"][choice["configs"]["gpu-1"]][0]["mig-devices"] for choice in (kept, fallen)
    ]
    assert devices == [{"3g.40gb": 2}, {"2g.20gb": 3}]
    assert (kept["meanWaitingSeconds"], fallen["meanWaitingSeconds"]) == (200, 0)


def test_figures_are_those_of_simulate_on_the_inventory(folder: Path) -> None:
    for arguments in ((), ("--cluster", "cluster.yaml", "--keep", "new")):
        choice = document(*arguments, "-o", "inventory=plan.yaml")["choices"][0]
        compared = cli(
            "simulate", "-f", "load.yaml", "--rules", "keep.yaml", "--cluster", "plan.yaml",
            "--compare", "fall.yaml", "-o", "json",
        )  # fmt: skip
        row = json.loads(compared.stdout)["comparison"]["rows"][0]
        assert [row[name] for name in ("pods", "ran", "meanWaitingSeconds", "gpuHours")] == [
            choice[name] for name in ("pods", "ran", "meanWaitingSeconds", "gpuHours")
        ]


def test_the_nodes_of_the_cluster_with_gpus_are_planned_but_the_kept_ones(folder: Path) -> None:
    found = document("--cluster", "cluster.yaml", "--keep", "new", "--cpu", "16")

    objects = {(each["kind"], each["metadata"]["name"]): each for each in found["inventory"]["spec"]["objects"]}
    node = objects["Node", "old"]
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": "old", "disk": "ssd", "nvidia.com/mig.config": "plan-1",
    }  # fmt: skip
    assert node["status"]["allocatable"] == {"cpu": "16", SMALL: "4", LARGE: "1"}
    # A pod with a MIG device leaves its card; others stay.
    others = {("Node", "control"), ("Node", "new"), ("Pod", "agent"), ("PriorityClass", "high")}
    assert objects.keys() - {("Node", "old")} == others
    assert found["notices"] == ["pods with GPUs on planned nodes, which are left out: 1"]


def test_new_nodes_replace_those_with_gpus(folder: Path) -> None:
    found = document("--cluster", "cluster.yaml", "--nodes", "2", "--memory", "1Gi")

    nodes = planned_nodes(found)
    assert nodes.keys() == {"gpu-1", "gpu-2"}
    assert all(
        node["status"]["allocatable"].items() >= {"cpu": "128", "memory": "1Gi"}.items() for node in nodes.values()
    )


def planned_nodes(found: Any) -> dict[str, Any]:
    """Return the Nodes of the inventory with the label of a configuration."""
    nodes = {each["metadata"]["name"]: each for each in found["inventory"]["spec"]["objects"] if each["kind"] == "Node"}
    return {name: node for name, node in nodes.items() if "nvidia.com/mig.config" in node["metadata"]["labels"]}


def read_mig_configs(text: str) -> dict[str, list[dict[str, Any]]]:
    """Read configurations by the rules of nvidia-mig-parted (api/spec/v1/spec.go)."""
    spec = yaml.safe_load(text)
    assert spec.keys() == {"version", "mig-configs"}
    assert spec["version"] == "v1"
    for entries in spec["mig-configs"].values():
        assert entries
        for entry in entries:
            assert {"devices", "mig-enabled"} <= entry.keys() <= {"devices", "mig-enabled", "mig-devices"}
            assert entry["devices"] == "all" or all(type(number) is int for number in entry["devices"])
            assert type(entry["mig-enabled"]) is bool
            # mig-devices is required with MIG, and must be empty without.
            assert bool(entry.get("mig-devices")) is entry["mig-enabled"]
            assert all(type(count) is int and count > 0 for count in entry.get("mig-devices", {}).values())
    return dict(spec["mig-configs"])


def offered_devices(entries: list[dict[str, Any]]) -> Counter[str]:
    """Return the devices that NVIDIA's device plugin offers with the strategy mixed."""
    devices: Counter[str] = Counter()
    for entry in entries:
        for _ in entry["devices"]:
            profiles = entry.get("mig-devices", {}).items()
            devices.update({f"nvidia.com/mig-{name.replace('+', '.')}": count for name, count in profiles})
            devices["nvidia.com/gpu"] += not entry["mig-enabled"]
    return +devices


@pytest.mark.parametrize("by", ["waiting", "given", "unserved"])
def test_mig_parted_configures_the_devices_of_the_inventory(by: str, folder: Path) -> None:
    media = f"{SMALL}.me"
    write(folder, {"load.yaml": load(*(pods(f"p{n}", name, 3) for n, name in enumerate((SMALL, media, WHOLE_GPU))))})

    found = document("--nodes", "2", "--by", by, "-o", "mig-configs=mig.yaml", cards="2xH100-80GB")

    configs = read_mig_configs((folder / "mig.yaml").read_text())
    for node in planned_nodes(found).values():
        entries = configs[node["metadata"]["labels"]["nvidia.com/mig.config"]]
        assert sorted(number for entry in entries for number in entry["devices"]) == [0, 1]
        offered = {name: int(amount) for name, amount in node["status"]["allocatable"].items() if "nvidia.com" in name}
        assert offered_devices(entries) == offered
    assert configs == found["choices"][0]["migConfigs"]["mig-configs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # A similar name may be of another card: it is not suggested.
        (("--cards", "8xH100"), "no MIG placements are published for 'H100', only for A30, A100-40GB, A100-64GB, "),
        (("--cards", "A30"), "'A30' is not 1 to 16 cards of a kind, such as 8xA100-80GB"),
        (("--cards", "17xA30"), "'17xA30' is not 1 to 16 cards"),
        (("--cards", "1xA30", "--cpu", "many"), "'many' is not a quantity"),
        (("--cards", "1xA30", "--memory=-1Gi"), "'-1Gi' must be more than 0"),
        (
            ("--cards", "1xA30", "--keep", "odl", "--cluster", "cluster.yaml"),
            "node 'odl' not found (did you mean 'old'?)",
        ),
    ],
)
def test_wrong_options_are_one_problem(arguments: tuple[str, ...], message: str, folder: Path) -> None:
    result = cli("plan", "-f", "load.yaml", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("Error: ") == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        (
            pods("p", "nvidia.com/mig-3g.20gb"),
            "no layout of A100-80GB serves Pod default/p: it needs nvidia.com/mig-3g.20gb",
        ),
        (pods("p", "cpu"), "no pod of the workload requests GPUs"),
        (
            pods("p", SMALL).replace(": 1}}", ": 1, cpu: 200}}"),
            "no layout of A100-80GB serves Pod default/p: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
    ],
)
def test_a_load_that_no_layout_serves_is_named(arrivals: str, message: str, folder: Path) -> None:
    write(folder, {"load.yaml": load(arrivals)})

    result = plan()

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"gpu-rules plan: {message}\n")


def test_one_template_that_no_layout_serves_is_a_notice(folder: Path) -> None:
    write(folder, {"load.yaml": load(pods("p", SMALL), pods("q", "nvidia.com/mig-3g.20gb"))})

    assert document()["notices"] == ["no layout of A100-80GB serves Pod default/q: it needs nvidia.com/mig-3g.20gb"]


def test_ctrl_c_ends_the_search_with_the_best_so_far(folder: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (25, 100))
    options = ["--cards", "4xA100-80GB", "--nodes", "2", "--rules", "set:mig-a100-80gb", "--seconds", "600"]
    line = command("plan", "-f", "load.yaml", *options)
    write(folder, {"load.yaml": load(pods("small", SMALL, 99), pods("large", LARGE, 9))})
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=theirs, env=environment()) as running:
        os.close(theirs)
        shown = b""
        while not re.search(rb" [1-9]\d?/200", shown):
            shown += os.read(ours, 4096)
        os.kill(running.pid, signal.SIGINT)
        assert running.stdout is not None
        answer = running.stdout.read().decode()
    os.close(ours)

    assert running.returncode == 130
    assert re.search(r"\n  interrupted: simulated \d+ of [\d,]{11,} candidates in a seeded search: ", answer)


def test_an_event_needs_its_node(folder: Path) -> None:
    events = "[{at: 1s, node: old, becomes: NotReady}]"
    write(folder, {"load.yaml": load(pods("p", SMALL), cluster="{file: cluster.yaml}", events=events)})

    result = plan("--nodes", "1")

    assert result.exit_code == 2
    assert "the Simulation has an event of node 'old', which is not in the planned cluster" in result.stderr
    assert plan("--keep", "new").exit_code == 0


def test_rules_that_read_the_cluster_see_every_layout(folder: Path) -> None:
    reads = FALL.replace(
        "rungs:", "matchConditions: [{name: c, expression: \"cluster.total('nvidia.com/gpu') < 9\"}]\n  rungs:"
    )
    write(folder, {"reads.yaml": reads})

    found = document(rules="reads.yaml")

    assert found["candidates"] == len(card_layouts("A100-80GB", frozenset(placements("A100-80GB")))) + 1


def test_plans_that_offer_the_same_devices_are_one_candidate(folder: Path) -> None:
    names = frozenset({"1g.10gb", "2g.20gb", "3g.40gb"})
    layouts = card_layouts("A100-80GB", names)
    pairs = {frozenset(count_devices(((one, other),)).items()) for one in layouts for other in layouts}
    write(folder, {"load.yaml": load(*(pods(f"p{n}", name) for n, name in enumerate((SMALL, MIDDLE, LARGE))))})

    assert document(cards="2xA100-80GB")["candidates"] == len(pairs)


@pytest.mark.parametrize(("nodes", "magnitude"), [(6, 14), (100, 126)])
def test_any_number_of_nodes_with_three_profiles_is_planned(nodes: int, magnitude: int, folder: Path) -> None:
    write(folder, {"load.yaml": load(*(pods(f"p{n}", name) for n, name in enumerate((SMALL, MIDDLE, LARGE))))})

    found = plan("--nodes", str(nodes), "--seconds", "1", cards="8xA100-80GB").stdout

    assert f"{nodes} nodes" in found
    assert f"of 10^{magnitude} candidates" in found
    assert document("--nodes", str(nodes), "--seconds", "1", cards="8xA100-80GB")["candidates"] > 10**magnitude
