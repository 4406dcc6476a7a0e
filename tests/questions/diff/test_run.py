"""The answer of a run, its problems and its progress."""

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import Offered
from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER
from rules_engine.model.kubernetes.removed_values import remove_values
from rules_engine.model.problems.problem import render_problem
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector, Match
from rules_engine.questions.diff import run as runs
from rules_engine.questions.diff.answer import DifferenceAnswer, Verdict
from rules_engine.questions.diff.report import difference_report
from rules_engine.questions.diff.run import DifferenceRun, RulesSide, diff
from rules_engine.report.answer import answer_text
from rules_engine.report.html import render_html
from rules_engine.report.markdown import render_markdown
from rules_engine.report.text import Screen
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.rule_files import DEFAULT_CLUSTER
from tests.support.api import controller, live, node, write_list
from tests.support.cluster_files import CONTAINER, SECRET
from tests.support.evaluation import GPU, MIG1, MIG3, asks, check, compiled, ladder, validation
from tests.support.recorded import Call, recorded_log, recording

DEFAULT = read_cluster([DEFAULT_CLUSTER]).cluster or UNKNOWN_CLUSTER
POD = "{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: main}]}}"
NO_RULES = compiled()
NO_ADA = compiled(validation(check("object.metadata.name != 'ada'", "no ada")))
FALL = compiled(ladder(MIG1, GPU))


def side(name: str, rule_set: RuleSet) -> RulesSide:
    return RulesSide(name=name, rule_set=rule_set, digest=name)


def decided(
    *manifests: Path, old: RuleSet = NO_RULES, new: RuleSet = FALL, clusters: Sequence[Path] = (), **options: Any
) -> DifferenceRun:
    readings = [read_cluster([path], whole=True) for path in clusters]
    sides = side("a", old), side("b", new)
    return diff(*sides, manifests=manifests, clusters=readings, **options)


def answered(*manifests: Path, **options: Any) -> DifferenceAnswer:
    answer = decided(*manifests, **options).answer
    assert answer is not None
    return answer


def manifest(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def test_recorded_pods_are_decided_on_each_cluster(tmp_path: Path) -> None:
    calls: list[Call] = [("/mutate", asks({MIG1: 1}, name=f"p{number}")) for number in range(9)]
    log = recorded_log(tmp_path / "log", recording(on=DEFAULT), [*calls, ("/validate", asks({GPU: 1}))])
    with log.open("ab") as file:
        file.write(b"{\n")
    pod = manifest(tmp_path, "ada", POD % "ada")
    one = write_list(tmp_path / "c.json", [live(asks({GPU: 1})), node("n", {GPU: "4"})])
    other = write_list(tmp_path / "other.json", [node("n", {MIG1: "4"})])
    for manifests, clusters, expected in (
        ([pod], [one], {"": (11, 9)}),
        ([], [one, other], {"c": (10, 9), "other": (10, 0)}),
        ([], [], {"": (10, 9)}),
    ):
        found = decided(*manifests, log=log, clusters=clusters)
        assert [(problem.location.line, problem.message) for problem in found.problems] == [
            (11, "1 line left out: cut, or not JSON")
        ]
        assert found.answer is not None
        assert found.answer.recorded is not None
        assert found.answer.recorded.replayed == 10
        totals = {each.name: (each.pods, each.changed) for each in found.answer.clusters}
        assert totals == expected
        assert found.answer.assumed_cluster == (None if clusters else "two-workers")


def test_all_problems_have_their_lines(tmp_path: Path) -> None:
    deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: x, template: TEMPLATE}}"
    texts = {
        "d": POD.replace("name: %s", "name: a, uid: u"),
        "c": "{kind: Pod",
        "b": deployment.replace("TEMPLATE", POD),
        "i": "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: i}\nspec: {}\nx: 1\n",
    }
    *pods, inventory = (manifest(tmp_path, name, text) for name, text in texts.items())
    result = decided(*pods, tmp_path / "absent.yaml", clusters=[inventory], log=tmp_path / "no-log")
    assert result.answer is None
    files = [Path(problem.location.file).name for problem in result.problems]
    assert list(dict.fromkeys(files)) == ["i.yaml"]
    assert all(len(render_problem(each, result.sources).splitlines()) == 3 for each in result.problems)
    result = decided(*pods, tmp_path / "absent.yaml", log=tmp_path / "no-log")
    assert [Path(problem.location.file).stem for problem in result.problems] == ["d", "c", "b", "absent"]
    assert all(len(render_problem(each, result.sources).splitlines()) == 3 for each in result.problems[:-1])


def test_input_without_pods_is_an_error(tmp_path: Path) -> None:
    """Nothing was compared: a wrong folder must not look like a change without effect."""
    path = write_list(tmp_path / "nodes.json", [node("n", {GPU: "4"})])
    result = decided(clusters=[path])
    assert result.answer is None
    message = "no live pod found: give the pods with -f or --from-log"
    assert list(map(str, result.problems)) == [f"{path}:1:1: error: {message} [not-a-pod]"]


def test_the_default_cluster_is_assumed_if_rules_read_nodes(tmp_path: Path) -> None:
    pod = manifest(tmp_path, "ada", POD % "ada")
    whole = write_list(tmp_path / "whole.json", [live(asks({GPU: 1})), node("n", {GPU: "4"})])
    found = [answered(pod), answered(pod, new=NO_ADA), answered(clusters=[whole]), answered(pod, clusters=[whole])]
    assert [answer.assumed_cluster for answer in found] == ["two-workers", None, None, None]


def test_usage_is_read_for_resources_whose_free_amounts_rules_read() -> None:
    allocatable, free = ladder(MIG3, "cpu"), ladder(MIG1, GPU, offered=Offered.AVAILABLE)
    any_free = validation("cluster.available(object.spec.nodeName) > 1")
    for rules, usage in (((allocatable,), set()), ((allocatable, free), {MIG1, GPU}), ((free, any_free), None)):
        assert runs.usage_resources([compiled(rule) for rule in rules]) == usage


def test_a_node_without_a_uid_counts(tmp_path: Path) -> None:
    items = [live(asks({MIG1: 1}), name=f"p{number}") for number in range(2)] + [live(asks({GPU: 1}), name="other")]
    nodes = [node("n", {GPU: "4"})]
    for uid in ("u", None):
        nodes[0]["metadata"]["uid"] = uid
        answer = answered(clusters=[write_list(tmp_path / "c.json", [*items, *nodes])])
        assert (answer.clusters[0].changed, answer.clusters[0].pods) == (2, 3)


def test_progress_counts_live_pods(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    pods = [live(asks({MIG1: 1}), name=f"p{number}") for number in range(3)]
    decided(clusters=[write_list(tmp_path / "c.json", [*pods, node("n")])], report=lambda *shown: seen.append(shown))
    assert seen == [("deciding", number, 3) for number in (1, 2, 3)]


def test_a_cluster_without_objects_that_decisions_need_is_a_warning(tmp_path: Path) -> None:
    selector = LabelSelector((LabelRequirement("env", ConditionKind.IN, ("prod",)),))
    selects = compiled(validation("true", match=Match(namespace_selector=selector)))
    pod: Any = live(asks({GPU: 1}))
    path = write_list(tmp_path / "dump.json", [pod, node("n", {GPU: "4"})])
    message = "no Namespace found: rules that read labels of namespaces fail"
    assert list(map(str, decided(new=selects, clusters=[path]).problems)) == [
        f"{path}:1:1: warning: {message} [unread-object]"
    ]
    assert not decided(clusters=[path]).problems
    pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "claim"}
    write_list(path, [pod, node("n", {GPU: "4"})])
    (problem,) = decided(clusters=[path]).problems
    assert problem.message == (
        "pods have devices of drivers, but there is no DeviceClass: nodes seem not to offer them"
    )


def test_a_log_without_replayable_admissions_decides_nothing(tmp_path: Path) -> None:
    calls: list[Call] = [("/mutate", asks({GPU: 1}))]
    log = recorded_log(tmp_path / "log", recording(on=DEFAULT), calls, requests=False)
    assert answered(log=log).verdict is Verdict.NOTHING_DECIDED


@pytest.mark.parametrize("resource", [GPU, "cpu"])
def test_a_live_pod_does_not_use_devices_against_itself(tmp_path: Path, resource: str) -> None:
    free = compiled(validation(check(f"cluster.available('{resource}') >= 4", "nothing is free")))
    running = live(asks({resource: 4}), name="p", on="n")
    path = write_list(tmp_path / "c.json", [running, node("n", {resource: "4"})])
    answer = answered(new=free, clusters=[path])
    assert (answer.clusters[0].pods, answer.changes) == (1, ())


@given(data=st.data())
def test_the_order_of_objects_does_not_change_the_answer(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    items = [
        live(asks({MIG1: number % 3 + 1}), ("ReplicaSet", "set"), name=f"p{number}", on="n") for number in range(4)
    ]
    items += [controller("ReplicaSet", "set", asks({MIG1: 1})), *(node(name, {GPU: "4"}) for name in "nm")]
    new = compiled(ladder(MIG1, GPU, offered=Offered.AVAILABLE))
    path = tmp_path_factory.getbasetemp() / "any-order.json"

    def answer(ordered: Sequence[Any]) -> str:
        return answer_text(answered(new=new, clusters=[write_list(path, ordered)]))

    assert answer(data.draw(st.permutations(items))) == answer(items)


@pytest.mark.parametrize("removed", [False, True])
def test_no_secret_of_a_pod_is_in_an_answer(tmp_path: Path, removed: bool) -> None:
    made: Any = asks({MIG1: 1})
    made["spec"]["containers"][0] |= CONTAINER
    owners = None, ("ReplicaSet", "set"), ("Job", "absent")
    pods = [live(made, owner, name=f"p{number}") for number, owner in enumerate(owners)]
    items = [*pods, controller("ReplicaSet", "set", made), node("n", {GPU: "4"})]
    items = [remove_values(item, item["kind"]) if removed else item for item in items]
    reads = validation(check("object.spec.containers.all(c, c.env.all(e, e.?value.orValue('') == ''))", "no values"))
    path = write_list(tmp_path / "c.json", items)
    pod = manifest(tmp_path, "pod", json.dumps({**made, "apiVersion": "v1", "kind": "Pod"}))
    for rules in (FALL, compiled(reads)):
        for answer in (answered(new=rules, clusters=[path]), answered(pod, new=rules)):
            assert answer.changes
            report = difference_report(answer)
            outputs = [answer_text(answer), render_html(report), render_markdown(report)]
            text = StringIO()
            Screen(text).report(report)
            assert all(SECRET not in output for output in (*outputs, text.getvalue()))
