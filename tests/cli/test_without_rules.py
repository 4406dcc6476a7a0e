"""Commands without `--rules`: they apply no rules and say so, or refuse."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rules_engine.server.commands import main
from tests.support.authoring import write
from tests.support.loading import rule

FIRST_LINE = "Without --rules SOURCE, no rules are applied to pods.\n"
CLUSTER = rule("ClusterInventory", "{nodes: [{name: a, allocatable: {nvidia.com/gpu: 2, cpu: 8}}]}", "small")
POD = "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}\n"
LOAD = rule("Simulation", "{cluster: {file: cluster.yaml}, arrivals: [{podFile: pod.yaml, runFor: 1m}]}", "load")
ANSWERS = {
    "explain": "explain -f pod.yaml",
    "preflight": "preflight -f pod.yaml --cluster cluster.yaml",
    "simulate": "simulate -f load.yaml",
    "plan": "plan -f load.yaml --cards 2xA30",
    "doctor": "doctor --cluster cluster.yaml --fail-on Error",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(tmp_path, {"cluster.yaml": CLUSTER, "pod.yaml": POD, "load.yaml": LOAD}))


def shown(command: str) -> str:
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("command", ANSWERS.values(), ids=ANSWERS)
def test_the_first_line_says_that_no_rules_are_applied(command: str) -> None:
    assert shown(command).startswith(FIRST_LINE)
    assert FIRST_LINE not in shown(f"{command} --rules set:gpu-allocation")


@pytest.mark.parametrize("command", ANSWERS.values(), ids=ANSWERS)
def test_json_has_empty_rules(command: str) -> None:
    answer = json.loads(shown(f"{command} -o json"))
    (result,) = answer.get("results", [answer])
    assert len(result["rules"]) == 0


@pytest.mark.parametrize("command", ["native", "webhook-config", "list -n ml"])
def test_a_command_about_rules_refuses(command: str) -> None:
    result = CliRunner().invoke(main, command.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert ("SOURCE" if command.startswith("list") else "--rules") in result.stderr
    assert "gpu-rules sets list" in result.stderr
