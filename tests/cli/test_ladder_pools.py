"""Commands on ladders over node pools: reading, simulate, doctor and diff name the pools."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rules_engine.server.commands import main
from tests.support.authoring import cli, ladder, write
from tests.support.loading import rule

GPU, FILE = "nvidia.com/gpu", "rules.yaml"
PLACE = """{
        tolerations: [{key: dedicated, operator: Equal, value: a100, effect: NoSchedule}],
        annotations: {gpurules.io/gpu-type: A100}}"""
LADDER = ladder(
    "cards",
    f"{{resource: {GPU}, name: H100, pool: {{card: h100}}}}",
    f"{{resource: {GPU}, name: A100, pool: {{card: a100}}, place: {PLACE}}}",
)
POD = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: train, namespace: ml}}
spec:
  nodeSelector: {{card: h100}}
  containers: [{{name: main, image: i, resources: {{limits: {{{GPU}: 1}}}}}}]
"""
TAINT = "[{key: dedicated, value: a100, effect: NoSchedule}]"
NODE = f"{{name: a, labels: {{card: a100}}, taints: {TAINT}, allocatable: {{cpu: 8, memory: 64Gi, {GPU}: 4}}}}"
CLUSTER = rule("ClusterInventory", f"{{nodes: [{NODE}]}}", "cards")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write(tmp_path, {FILE: LADDER, "pod.yaml": POD, "cluster.yaml": CLUSTER}))
    return tmp_path


def test_a_moved_pod_has_the_labels_and_tolerations_of_its_pool() -> None:
    result = cli("explain", "-f", "pod.yaml", "--rules", FILE, "--cluster", "cluster.yaml", "-o", "json")
    (explanation,) = json.loads(result.stdout)["pods"]
    pod = explanation["pod"]
    assert pod["spec"]["nodeSelector"] == {"card": "a100"}
    assert pod["spec"]["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}
    ]
    assert pod["metadata"]["annotations"] == {
        "gpurules.io/gpu-type": "A100",
        "gpurules.io/fallback": "gpu@H100->gpu@A100",
    }


@pytest.mark.parametrize(
    ("count", "lines"),
    [
        (1, ["main requests 1 of nvidia.com/gpu@A100", f"{GPU}@A100: the pod gets the labels of its pool"]),
        (
            9,
            [
                f"{GPU}@A100 stays: exhausted",
                f"✗ {GPU}@A100: no node of its pool offers 9 of {GPU}",
                f"✗ {GPU}@L40: no node of its pool offers 9 of {GPU}",
            ],
        ),
    ],
)
def test_explain_says_that_an_unplaced_pod_gets_the_first_pool(count: int, lines: list[str]) -> None:
    unplaced = POD.replace("  nodeSelector: {card: h100}\n", "").replace(f"{GPU}: 1", f"{GPU}: {count}")
    rungs = ", ".join(f"{{resource: {GPU}, name: {name}, pool: {{card: {name.lower()}}}}}" for name in ("A100", "L40"))
    first = f"{LADDER.partition('  rungs')[0]}  unplaced: First\n  rungs: [{rungs}]\n"
    write(Path(), {FILE: first, "pod.yaml": unplaced})
    result = cli("explain", "-f", "pod.yaml", "--rules", FILE, "--cluster", "cluster.yaml")
    assert f"FallbackLadder/cards  changed: the pod gets the pool of {GPU}@A100  " in result.stdout
    assert [line for line in lines if line not in result.stdout] == []
    assert "+  nodeSelector:\n+    card: a100" in result.stdout


def test_a_simulation_counts_a_move_to_another_pool() -> None:
    spec = "spec: {arrivals: [{podFile: pod.yaml}]}"
    write(Path(), {"load.yaml": f"apiVersion: gpurules.io/v1\nkind: Simulation\nmetadata: {{name: load}}\n{spec}\n"})
    result = cli("simulate", "-f", "load.yaml", "--rules", FILE, "--cluster", "cluster.yaml")
    assert "  gpu@H100 → gpu@A100     1        1  FallbackLadder/cards\n" in result.stdout


def test_preflight_names_the_pool_of_a_moved_pod() -> None:
    result = cli("preflight", "-f", "pod.yaml", "--rules", FILE, "--cluster", "cluster.yaml")
    assert (result.exit_code, "gpu@H100 → gpu@A100 by FallbackLadder/cards" in result.stdout) == (0, True)


def test_preflight_tries_the_other_pools_of_a_ladder() -> None:
    first = f"{{name: h, labels: {{card: h100}}, allocatable: {{cpu: 8, memory: 64Gi, {GPU}: 1}}}}"
    two = f"{POD.replace('train', 'first')}---\n{POD}"
    write(Path(), {"cluster.yaml": CLUSTER.replace("nodes: [", f"nodes: [{first}, "), "two.yaml": two})
    line = ("preflight", "-f", "two.yaml", "--rules", FILE, "--cluster", "cluster.yaml", "-o", "json")
    _, workload = json.loads(cli(*line).stdout)["workloads"]
    pool = f"1 {GPU}@A100 (card=a100, toleration dedicated=a100:NoSchedule)"
    assert workload["wouldStart"][0]["text"] == f"with {pool}"


def test_a_change_of_the_pool_is_a_change_of_the_rung() -> None:
    write(Path(), {"new.yaml": LADDER.replace("A100", "B100").replace("a100}", "b100}")})
    both = CLUSTER.replace(
        "]\n", f", {{name: b, labels: {{card: b100}}, allocatable: {{cpu: 8, memory: 64Gi, {GPU}: 4}}}}]\n", 1
    )
    write(Path(), {"cluster.yaml": both})
    line = ("--old", FILE, "--new", "new.yaml", "--cluster", "cluster.yaml", "-f", "pod.yaml", "-o", "json")
    result = CliRunner().invoke(main, ["diff", *line])
    (change,) = json.loads(result.stdout)["changes"]
    assert change["kinds"] == ["Rung"]
