"""The answer of a run, its problems and its progress."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rules_engine.difference import run as runs
from rules_engine.difference.reading import inputs
from rules_engine.difference.run import DifferenceRun, Side, run_difference
from rules_engine.difference.values import Kind
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.nodes import Offered
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.problems.problem import render_problem
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector, Match
from tests.support.api import controller, live, node, write_list
from tests.support.evaluation import GPU, MIG1, MIG3, asks, check, cluster, compiled, ladder, validation
from tests.support.recorded import Call, recorded_log, recording

DEFAULT = cluster({GPU: 4})
POD = "{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: main}]}}"
NO_RULES = compiled()
NO_ADA = compiled(validation(check("object.metadata.name != 'ada'", "no ada")))
FALL = compiled(ladder(MIG1, GPU))


def side(name: str, rule_set: RuleSet) -> Side:
    return Side(name=name, rule_set=rule_set, digest=name)


def decided(paths: Sequence[Path], old: RuleSet = NO_RULES, new: RuleSet = FALL, **options: Any) -> DifferenceRun:
    clusters = options.pop("clusters", ())
    return run_difference(side("a", old), side("b", new), paths, clusters, DEFAULT, **options)


def manifest(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def large(tmp_path: Path) -> list[Path]:
    """Write a cluster of 20 pods, and manifests."""
    pods = [live(asks({MIG1: 1}), ("ReplicaSet", f"set-{number % 5}"), name=f"p{number}") for number in range(20)]
    controllers = [controller("ReplicaSet", f"set-{number}", asks({MIG1: 1})) for number in range(5)]
    paths = [write_list(tmp_path / "c.json", [*pods, *controllers, node("n", {GPU: "4"})])]
    return [*paths, *(manifest(tmp_path, name, POD % name) for name in ("ada", "bob", "cy"))]


def test_warnings_do_not_hide_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (runs, inputs):
        monkeypatch.setattr(module, "MAX_PROBLEMS", 2)
    log = recorded_log(tmp_path / "log", recording(on=DEFAULT), [("/mutate", asks({GPU: 1}))])
    with log.open("ab") as file:
        file.write(b"{\n{\n{\n")
    bad = [manifest(tmp_path, name, "{kind: Pod") for name in "ab"]
    result = decided(bad, log=log)
    assert result.answer is None
    assert [problem.location.file for problem in result.problems] == list(map(str, bad))
    assert len(result.problems) + result.unreported == 5


def test_recorded_pods_are_decided_on_the_clusters_of_manifests(tmp_path: Path, large: list[Path]) -> None:
    calls: list[Call] = [("/mutate", asks({MIG1: 1}, name=f"p{number}")) for number in range(9)]
    log = recorded_log(tmp_path / "log", recording(on=DEFAULT), [*calls, ("/validate", asks({GPU: 1}))])
    with log.open("ab") as file:
        file.write(b"{\n")
    other = write_list(tmp_path / "other.json", [node("n", {MIG1: "4"})])
    for paths, clusters, expected in (
        (large, large[:1], {"": (33, 29)}),
        (large, [], {"": (33, 29)}),
        ([], [large[0], other], {"c": (10, 9), "other": (10, 0)}),
        ([], [], {"": (10, 9)}),
    ):
        found = decided(paths, log=log, clusters=clusters)
        assert [(problem.location.line, problem.message) for problem in found.problems] == [
            (11, "the line is left out: cut, or not JSON")
        ]
        assert found.answer is not None
        assert found.answer.recorded is not None
        assert found.answer.recorded.replayed == 10
        totals = {name: (totals.pods, totals.changed) for name, totals in found.answer.grouping.totals.items()}
        assert totals == expected
        assert found.answer.assumed_cluster == ("" if paths or clusters else "default")


def test_problems_are_in_file_order(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    paths = [
        *(manifest(tmp_path, name, "{kind: Pod") for name in "dcb"),
        tmp_path / "absent.yaml",
        write_list(tmp_path / "cut.json", [live(asks({GPU: 1}))] * 3),
        tmp_path / "a",
    ]
    paths[4].write_text(paths[4].read_text()[:-9])
    found = decided(paths)
    assert found.answer is None
    assert [Path(problem.location.file).name for problem in found.problems] == [
        "d.yaml",
        "c.yaml",
        "b.yaml",
        "absent.yaml",
        "cut.json",
        "a",
    ]


def test_problems_beyond_the_bound_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_PROBLEMS", 3)
    monkeypatch.setattr(runs, "MAX_PROBLEMS", 3)
    live_object = POD.replace("name: %s", "name: a, uid: u")
    deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: x, template: TEMPLATE}}"
    texts = {
        "d": f"{live_object}",
        "c": "{kind: Pod",
        "b": deployment.replace("TEMPLATE", POD),
        "a": "{kind: Pod",
        "e": "{kind: Pod",
    }
    result = decided([manifest(tmp_path, name, text) for name, text in texts.items()])
    assert [Path(problem.location.file).stem for problem in result.problems] == ["d", "c", "b"]
    assert result.unreported == 2
    shown = [render_problem(problem, result.sources).splitlines() for problem in result.problems]
    assert all(len(lines) == 3 for lines in shown)


def test_a_file_may_be_a_cluster_and_a_manifest_with_problems(tmp_path: Path) -> None:
    path = manifest(
        tmp_path, "i", "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: i}\nspec: {}\nx: 1\n"
    )
    result = decided([path], clusters=[path])
    assert result.answer is None
    assert all(len(render_problem(problem, result.sources).splitlines()) == 3 for problem in result.problems)
    assert len({problem.code for problem in result.problems}) > 1


def test_input_without_pods_is_an_error(tmp_path: Path) -> None:
    """Nothing was compared: a wrong folder must not look like a change without effect."""
    path = write_list(tmp_path / "nodes.json", [node("n", {GPU: "4"})])
    result = decided([path])
    assert result.answer is None
    message = "no live pod found, and workloads of a cluster are decided by their pods"
    assert list(map(str, result.problems)) == [f"{path}:1:1: error: {message} [not-a-pod]"]


def test_the_default_cluster_is_assumed_if_rules_read_nodes(tmp_path: Path) -> None:
    pod = manifest(tmp_path, "ada", POD % "ada")
    pods = write_list(tmp_path / "pods.json", [live(asks({GPU: 1}))])
    whole = write_list(tmp_path / "whole.json", [live(asks({GPU: 1})), node("n", {GPU: "4"})])
    found = [decided([pod]), decided([pods]), decided([pod], new=NO_ADA), decided([whole])]
    found.append(decided([pod], clusters=[whole]))
    assert [run.answer and run.answer.assumed_cluster for run in found] == ["default", "default", "", "", ""]


def test_usage_is_read_for_resources_whose_free_amounts_rules_read() -> None:
    allocatable, free = ladder(MIG3, "cpu"), ladder(MIG1, GPU, offered=Offered.AVAILABLE)
    any_free = validation("cluster.available(object.spec.nodeName) > 1")
    for rules, usage in (((allocatable,), set()), ((allocatable, free), {MIG1, GPU}), ((free, any_free), None)):
        assert runs.usage_resources([compiled(rule) for rule in rules]) == usage


def test_live_pods_are_not_decided_after_an_error(tmp_path: Path) -> None:
    pods = write_list(tmp_path / "pods.json", [live(asks({GPU: 1}))])
    seen: list[tuple[str, int, int]] = []
    result = decided([pods, tmp_path / "absent.yaml"], report=lambda *shown: seen.append(shown))
    assert result.answer is None
    assert max(done for stage, done, _ in seen if stage == "deciding") == 0


@pytest.mark.parametrize("kind", ["manifest", "dump", "log"])
def test_a_file_that_cannot_be_read_again_is_a_problem(kind: str, tmp_path: Path) -> None:
    path = {
        "manifest": lambda: manifest(tmp_path, "ada", POD % "ada"),
        "dump": lambda: write_list(tmp_path / "dump.json", [live(asks({GPU: 1}))]),
        "log": lambda: recorded_log(tmp_path / "log", recording(on=DEFAULT), [("/mutate", asks({GPU: 1}))]),
    }[kind]()
    folder = os.open(tmp_path, os.O_RDONLY)

    def report(stage: str, _done: int, _total: int) -> None:
        """Let the open file fail to be read from the second pass on."""
        if stage == "deciding":
            for number in Path("/proc/self/fd").iterdir():
                if os.path.realpath(number) == str(path):
                    os.dup2(folder, int(number.name))

    try:
        paths, log = ([], path) if kind == "log" else ([path], None)
        result = decided(paths, log=log, report=report)
    finally:
        os.close(folder)
    assert result.answer is None
    assert list(map(str, result.problems)) == [f"{path}:1:1: error: cannot be read: Is a directory [unreadable-file]"]


def test_progress_ends_at_the_total(large: list[Path]) -> None:
    seen: list[tuple[str, int, int]] = []
    decided(large, report=lambda *shown: seen.append(shown))
    size = sum(path.stat().st_size for path in large)
    # Some bytes are read once more, to recognize the kind of a file.
    assert max(done for stage, done, _ in seen if stage == "reading") >= size
    last, done, total = seen[-1]
    assert (last, done) == ("deciding", total)
    assert total == size


def test_a_cluster_without_namespaces_is_a_warning_if_rules_read_them(tmp_path: Path) -> None:
    selector = LabelSelector((LabelRequirement("env", ConditionKind.IN, ("prod",)),))
    selects = compiled(validation("true", match=Match(namespace_selector=selector)))
    path = write_list(tmp_path / "dump.json", [live(asks({GPU: 1})), node("n", {GPU: "4"})])
    message = "no Namespace found: rules that read labels of namespaces fail"
    for clusters in ([], [path]):
        assert list(map(str, decided([path], NO_RULES, selects, clusters=clusters).problems)) == [
            f"{path}:1:1: warning: {message} [unread-object]"
        ]
        assert not decided([path], clusters=clusters).problems


def test_live_pods_are_turned_back_on_their_own_cluster(tmp_path: Path) -> None:
    pods = [live(asks({GPU: 1}), ("ReplicaSet", "set")), live(asks({MIG1: 1}), name="bare")]
    controllers = [controller("ReplicaSet", "set", asks({MIG1: 1}))]
    dump = write_list(tmp_path / "dump.json", [*pods, *controllers, node("n", {GPU: "4"})])
    other = write_list(tmp_path / "other.json", [node("n", {MIG1: "4"})])
    answer = decided([dump], FALL, NO_RULES, clusters=[other]).answer
    assert answer is not None
    assert [(found.pods, found.as_it_is.total(), found.changed) for found in answer.grouping.totals.values()] == [
        (2, 1, 0)
    ]
    assert answer.grouping.totals[""].gpus == {MIG1: (2 * NANOS, 2 * NANOS)}


def test_a_log_without_replayable_admissions_has_exit_code_2(tmp_path: Path) -> None:
    calls: list[Call] = [("/mutate", asks({GPU: 1}))]
    log = recorded_log(tmp_path / "log", recording(on=DEFAULT), calls, requests=False)
    answer = decided([], log=log).answer
    assert answer is not None
    assert answer.exit_code == 2


def test_allowed_kinds_are_part_of_the_answer(tmp_path: Path) -> None:
    path = manifest(tmp_path, "ada", POD % "ada")
    one, other = (decided([path], new=NO_ADA, allowed=frozenset(kinds)).answer for kinds in ((), (Kind.DENIED,)))
    assert one is not None
    assert other is not None
    assert (one.exit_code, other.exit_code) == (1, 0)


def test_names_of_an_answer(tmp_path: Path) -> None:
    path = manifest(tmp_path, "ada", POD % "ada")
    answer = run_difference(side("a", NO_ADA), side("a", NO_ADA), [path], [], DEFAULT).answer
    assert answer is not None
    assert (answer.old, answer.new, answer.same_rules) == ("a", "a", True)
    assert answer.exit_code == 0
    assert json.dumps(sorted(answer.allowed)) == "[]"


@pytest.mark.parametrize("resource", [GPU, "cpu"])
def test_a_live_pod_does_not_use_devices_against_itself(tmp_path: Path, resource: str) -> None:
    free = compiled(validation(check(f"cluster.available('{resource}') >= 4", "nothing is free")))
    running = live(asks({resource: 4}), name="p", on="n")
    path = write_list(tmp_path / "c.json", [running, node("n", {resource: "4"})])
    result = decided([path], FALL, free)
    assert result.answer is not None
    assert (result.answer.grouping.totals[""].pods, result.answer.grouping.lines) == (1, ())
