"""The command `simulate`."""

import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rules_engine.cli.program import deferred_interrupts
from tests.support.authoring import cli, ladder, validation, write
from tests.support.loading import rule
from tests.support.programs import command, environment

CLUSTER = rule("ClusterInventory", "{nodes: [{name: a, allocatable: {nvidia.com/gpu: 2, cpu: 8}}]}", "small")
POD = (
    "{metadata: {name: train, namespace: ml}, "
    "spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/mig-1g.10gb: 1}}}]}}"
)
KEEP = validation("keep", "'true'")
FALL = ladder("fall", "nvidia.com/mig-1g.10gb", "{resource: nvidia.com/gpu, assume: true}")


def load(arrival: str = f"{{count: 3, every: 10s, runFor: 1m, pod: {POD}}}", **fields: str) -> str:
    values = {"cluster": "{file: cluster.yaml}", "arrivals": f"[{arrival}]", **fields}
    spec = "".join(f"  {field}: {value}\n" for field, value in values.items())
    return f"apiVersion: gpurules.io/v1\nkind: Simulation\nmetadata: {{name: load}}\nspec:\n{spec}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"cluster.yaml": CLUSTER, "load.yaml": load(), "fall.yaml": FALL, "keep.yaml": KEEP}
    monkeypatch.chdir(write(tmp_path, files))
    return tmp_path


def simulate(*arguments: str) -> Result:
    return cli("simulate", "-f", "load.yaml", *arguments)


def document(*arguments: str) -> Any:
    result = simulate("--output", "json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_rules_are_compared_with_no_rules(folder: Path) -> None:
    none, fall = document("--compare", "fall.yaml")["results"]

    assert (none["rules"], none["fallbacks"]) == ("", [])
    assert (fall["rules"], fall["fallbacks"][0]["rule"]) == ("fall.yaml", "FallbackLadder/fall")
    assert "\n  (none)     0 of 3 " in simulate("--compare", "fall.yaml").stdout


def test_several_paths_are_one_rule_set(folder: Path) -> None:
    assert [answer["rules"] for answer in document("--rules", "fall.yaml", "keep.yaml")["results"]] == [
        "fall.yaml keep.yaml"
    ]


OTHER = CLUSTER.replace("gpu: 2", "gpu: 1")


def test_each_row_of_the_comparison_equals_a_single_simulation(folder: Path) -> None:
    write(folder, {"other.yaml": OTHER, "load.yaml": load(until="90s")})
    clusters, sets = ("cluster.yaml", "other.yaml"), ("fall.yaml", "keep.yaml")

    answer = document("--rules", "fall.yaml", "--compare", "keep.yaml", *each_cluster(clusters))

    single = [document("--rules", rules, "--cluster", cluster) for cluster in clusters for rules in sets]
    rows = answer["comparison"]["rows"]
    assert [(row["cluster"], row["rules"]) for row in rows] == [(each, rules) for each in clusters for rules in sets]
    assert [{**row, "best": True} for row in rows] == [one["comparison"]["rows"][0] | {"best": True} for one in single]
    assert answer["results"] == [one["results"][0] for one in single]
    assert [row["best"] for row in rows] == [True, False, False, False]


def each_cluster(files: Sequence[str]) -> list[str]:
    return [word for file in files for word in ("--cluster", file)]


def test_without_an_end_all_are_measured_up_to_the_longest(folder: Path) -> None:
    write(folder, {"other.yaml": OTHER})
    answer = document("--rules", "fall.yaml", *each_cluster(["cluster.yaml", "other.yaml"]))
    single = document("--rules", "fall.yaml", "--cluster", "cluster.yaml")

    assert [each["endedSeconds"] for each in answer["results"]] == [180, 180]
    mine, alone = answer["comparison"]["rows"][0], single["comparison"]["rows"][0]
    for name in ("capacity", "unused"):
        assert mine["gpuHours"].pop(name) > alone["gpuHours"].pop(name)
    assert mine == alone


@pytest.mark.parametrize(
    ("by", "best"), [("waiting", [True, False]), ("given", [True, True]), ("unserved", [True, True])]
)
def test_the_best_is_chosen_by_one_figure(by: str, best: list[bool], folder: Path) -> None:
    write(folder, {"other.yaml": OTHER})

    answer = document("--rules", "fall.yaml", "--by", by, *each_cluster(["cluster.yaml", "other.yaml"]))

    assert answer["comparison"]["by"] == by
    assert [row["best"] for row in answer["comparison"]["rows"]] == best


def test_a_load_from_standard_input_is_simulated_on_each_cluster(folder: Path) -> None:
    write(folder, {"other.yaml": OTHER})

    result = cli("simulate", "-f", "-", "-o", "json", *each_cluster(["cluster.yaml", "other.yaml"]), stdin=load())

    assert [
        (each["cluster"], pod["name"]) for each in json.loads(result.stdout)["results"] for pod in each["pods"]
    ] == [(cluster, f"train-{number}") for cluster in ("cluster.yaml", "other.yaml") for number in (1, 2, 3)]


def test_a_problem_of_one_cluster_names_it(folder: Path) -> None:
    write(folder, {"other.yaml": CLUSTER.replace("name: a", "name: b")})
    write(folder, {"load.yaml": load("{every: -1s, count: 2, pod: {}}", events="[{at: 1s, node: b, becomes: Ready}]")})

    result = simulate(*each_cluster(["cluster.yaml", "other.yaml"]))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: node 'b' not found (cluster cluster.yaml) [unknown-node]\n" in result.stderr
    assert result.stderr.count("[unknown-node]") == 1
    assert result.stderr.count("'-1s' is not a duration or distribution: it cannot be negative [wrong-form]\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rules", "fall.yaml", "--compare", "fall.yaml"], "--compare needs other rules than --rules"),
        (["--compare", "keep.yaml", "--compare", "keep.yaml"], "and each other --compare"),
        (["--cluster", "cluster.yaml", "--cluster", "./cluster.yaml"], "--cluster cluster.yaml is given twice"),
        (["--cluster", "cluster.yaml", "--cluster", "absent.yaml"], "Path 'absent.yaml' does not exist."),
        (["--by", "given"], "--by needs several clusters or rule sets: a second --cluster, or --compare"),
        (["--by", "cost", "--compare", "keep.yaml"], "'cost' is not one of 'waiting', 'given', 'unserved'."),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments: list[str], message: str, folder: Path) -> None:
    result = simulate(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_options_override_the_document(folder: Path) -> None:
    write(folder, {"load.yaml": load(seed="3", scheduler="{scoring: MostAllocated}")})
    write(folder, {"other.yaml": CLUSTER.replace("name: a", "name: b")})

    own, given = (
        document(),
        document("--seed", "5", "--scoring", "LeastAllocated", "--no-preemption", "--cluster", "other.yaml"),
    )

    weights = {"cpu": 1, "memory": 1}
    assert (own["seed"], own["scheduler"]) == (
        3,
        {"scoring": "MostAllocated", "resources": weights, "preemption": True},
    )
    assert (given["seed"], given["scheduler"]) == (
        5,
        {"scoring": "LeastAllocated", "resources": weights, "preemption": False},
    )
    assert [own["results"][0]["nodes"][0]["name"], given["results"][0]["nodes"][0]["name"]] == ["a", "b"]


def test_the_same_seed_gives_the_same_bytes(folder: Path) -> None:
    write(folder, {"load.yaml": load(f"{{count: 9, every: {{mean: 10s}}, runFor: {{mean: 1m}}, pod: {POD}}}")})

    assert simulate("--output", "json").stdout == simulate("--output", "json").stdout
    assert simulate("--output", "json", "--seed", "1").stdout != simulate("--output", "json").stdout


def test_all_problems_are_found_in_one_run_and_nothing_is_played(folder: Path) -> None:
    wrong = f"{{count: 3, every: -1s, runFor: 1 minute, pod: {POD}}}"
    events = "[{at: 1s, node: absent, becomes: Ready}]"
    write(folder, {"load.yaml": load(wrong, events=events), "fall.yaml": FALL.replace("rungs", "rugns")})
    write(folder, {"keep.yaml": validation("keep", "objct.spec")})

    result = simulate("--rules", "fall.yaml", "--compare", "keep.yaml")

    assert (result.exit_code, result.stdout) == (2, "")
    places = [line.split(": error")[0] for line in result.stderr.splitlines() if ": error: " in line]
    assert {place.partition(":")[0] for place in places} == {"load.yaml", "fall.yaml", "keep.yaml"}
    assert len([place for place in places if place.startswith("load.yaml")]) == 3


def test_rules_without_a_rule_are_a_problem(folder: Path) -> None:
    write(folder, {"none/cluster.yaml": CLUSTER})

    result = simulate("--rules", "none")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "[no-rules]" in result.stderr


@pytest.mark.parametrize("target", ["absent/answer.html", "load.yaml/answer.html", "folder"])
def test_a_file_that_cannot_be_written_is_an_error_before_anything_is_played(target: str, folder: Path) -> None:
    (folder / "folder").mkdir()
    result = simulate("--output", "text", "--output", f"html={target}")

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Could not open file '{target}': " in result.stderr


def test_seeds_have_the_same_bound_in_the_document_and_as_an_option(folder: Path) -> None:
    most = 2**63 - 1
    write(folder, {"load.yaml": load(seed=str(most))})

    assert document()["seed"] == document("--seed", str(most))["seed"] == most
    assert simulate("--seed", str(most + 1)).exit_code == 2


def started(folder: Path, stderr: int, *options: str, **variables: str) -> "subprocess.Popen[bytes]":
    line = command("simulate", "-f", "load.yaml", "--rules", "fall.yaml", "--compare", "keep.yaml", *options)
    return subprocess.Popen(line, cwd=folder, env=environment(**variables), stdout=subprocess.PIPE, stderr=stderr)


def test_ctrl_c_ends_the_simulation_and_prints_the_answer_so_far(folder: Path) -> None:
    """On a terminal, a progress bar shows how many of the pods have arrived; the other rules are not simulated."""
    write(folder, {"load.yaml": load(f"{{count: 900000, every: 1s, runFor: 1s, pod: {POD}}}")})
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (25, 100))
    with started(folder, theirs) as running:
        os.close(theirs)
        shown = b""
        while b"/900000" not in shown:
            shown += os.read(ours, 4096)
        os.kill(running.pid, signal.SIGINT)
        assert running.stdout is not None
        answer = running.stdout.read().decode()
    os.close(ours)

    assert running.returncode == 130
    assert b"fall.yaml" in shown
    assert answer.count("Simulation load: ") == 1
    assert "\n  interrupted at " in answer
    assert "Comparison" not in answer


def test_the_answer_is_ascii_where_the_terminal_is(folder: Path) -> None:
    with started(folder, subprocess.STDOUT, PYTHONIOENCODING="ascii") as running:
        assert running.stdout is not None
        shown = running.stdout.read().decode("ascii")

    assert running.returncode == 0
    assert "?" not in shown
    assert "  gpu              2  #####" in shown


def test_a_second_ctrl_c_ends_the_command_at_once() -> None:
    """The first one waits for the end of a step, and for that of the answer; the second one does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with deferred_interrupts() as check:
            check()
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                check()
            with pytest.raises(SystemExit, match="130"):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_cuts_no_answer(folder: Path) -> None:
    """The answer is longer than a pipe takes, so that the command still writes it when it is interrupted."""
    write(folder, {"load.yaml": load(f"{{count: 1000, every: 1s, runFor: 1s, pod: {POD}}}")})
    os.mkfifo(folder / "answer.json")
    with started(folder, subprocess.PIPE, "--output", "json=answer.json") as running:
        with (folder / "answer.json").open() as stream:
            first = stream.read(1)
            os.kill(running.pid, signal.SIGINT)
            answer = json.loads(first + stream.read())
        assert running.stderr is not None
        assert running.stderr.read() == b""

    assert running.returncode == 0
    assert [len(result["pods"]) for result in answer["results"]] == [1000, 1000]


def test_an_ignored_interrupt_stays_ignored(folder: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert simulate().exit_code == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
