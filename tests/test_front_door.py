"""The public library: rules_engine's own names, their examples, and docs/reference/python.md."""

import doctest
import subprocess
import sys
from inspect import getdoc, getsourcefile, isfunction
from pathlib import Path
from typing import Any

import pytest

import rules_engine
from rules_engine import InputError, load_cluster, load_manifests, load_rules
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.rules.rule import Match
from rules_engine.rules.sources.rule_sources import SourceError
from tests.support.evaluation import GPU, MIG3, cluster, compiled, ladder
from tests.support.patching import apply_strictly

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/python"
FUNCTIONS = [name for name in rules_engine.__all__ if isfunction(getattr(rules_engine, name))]


def test_nothing_is_imported_until_a_name_is_used() -> None:
    script = "import rules_engine, sys; print(*[name for name in sys.modules if name.startswith('rules_engine')])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).split() == ["rules_engine"]


def test_the_front_door_has_at_most_120_lines() -> None:
    assert len((ROOT / "rules_engine/__init__.py").read_text().splitlines()) <= 120


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rules_engine' has no attribute 'explian'"):
        rules_engine.explian  # noqa: B018
    assert {*rules_engine.__all__} <= {*dir(rules_engine)}


@pytest.mark.parametrize("name", [*FUNCTIONS, "RuleSet.mutate"])
def test_the_examples_of_a_function_are_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    function = getattr(rules_engine.RuleSet, "mutate") if "." in name else getattr(rules_engine, name)  # noqa: B009
    examples = doctest.DocTestParser().get_examples(getdoc(function) or "")
    assert examples, f"{getsourcefile(function)}: {name} has no example"
    test = doctest.DocTest(examples, {}, name, None, None, None)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_examples_of_the_page_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    results = doctest.testfile(str(ROOT / "docs/reference/python.md"), module_relative=False)
    assert (results.failed, results.attempted > 10) == (0, True)


def test_the_page_names_everything() -> None:
    text = (ROOT / "docs/reference/python.md").read_text()
    assert [name for name in rules_engine.__all__ if f"`{name}" not in text] == []


def test_the_example_is_what_readme_shows() -> None:
    ended = subprocess.run([sys.executable, EXAMPLE / "decide.py"], capture_output=True, text=True, check=True)
    readme, code = (ROOT / "README.md").read_text(), (EXAMPLE / "decide.py").read_text()
    assert len(code.splitlines()) <= 20
    assert f"```python\n{code}```\n\n```text\n{ended.stdout}```" in readme


def test_a_decision_of_a_pod_is_that_of_its_request() -> None:
    rules, loaded = load_rules(["set:gpu-allocation"]), load_cluster([EXAMPLE / "cluster.yaml"])
    pod = load_manifests(EXAMPLE / "pod.yaml")[0].submitted()
    decision = rules.mutate(pod, loaded)
    assert apply_strictly(pod, decision.patch) == decision.result
    assert rules.validate(as_mapping(decision.result), loaded).allowed


def test_a_workload_is_decided_in_its_own_namespace() -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {MIG3: 1}}}]}}
    job = {"kind": "Job", "metadata": {"name": "a", "namespace": "ml"}, "spec": {"template": template}}
    [manifest] = load_manifests(job)
    rules = compiled(ladder(MIG3, GPU, match=Match(namespaces=("ml",))))
    assert rules.mutate(manifest, cluster({GPU: 4})).patch
    assert repr(manifest).count("MapNode") == 0


def test_wrong_types_are_refused() -> None:
    rules = load_rules("set:gpu-allocation")
    [manifest] = load_manifests(EXAMPLE / "pod.yaml")
    with pytest.raises(TypeError, match="the cluster is a str, not what load_cluster returns"):
        rules.mutate(manifest, "cluster.yaml")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the object is a Job, not a Pod: load_manifests returns"):
        rules.mutate({"kind": "Job"})
    with pytest.raises(ValueError, match="there are no pods to decide: give manifests, clusters or a log"):
        rules_engine.diff(rules, rules)
    with pytest.raises(ValueError, match="no MIG placements are published for 'A100-8GB', only for A30"):
        rules_engine.plan(rules, rules_engine.load_simulation("rules_engine/scenarios/ten-pods.yaml"), (8, "A100-8GB"))


def test_check_and_diff_take_the_cluster_that_was_loaded() -> None:
    rules, loaded = load_rules("set:gpu-allocation"), load_cluster(EXAMPLE / "cluster.yaml")
    assert rules_engine.check("rules_engine/rule_sets/gpu-allocation", loaded).answer.errors == 0
    run = rules_engine.diff(rules, rules, manifests=[str(EXAMPLE / "pod.yaml")], clusters=[loaded])
    assert getattr(run.answer, "verdict", None) == "Unchanged"


def test_errors_are_raised_and_warnings_issued(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("apiVersion: gpurules.io/v1\nkind: FallbackLadder\nmetadata: {name: a}\nspec: {rungs: []}\n")
    with pytest.raises(InputError, match=r"rules.yaml:4:8: error: .* \[") as caught:
        load_rules([rules])
    assert [problem.location.line for problem in caught.value.problems] == [4]
    with pytest.raises(SourceError, match="'none' is no packaged set"):
        load_rules(["set:none"])
    with pytest.raises(SourceError, match="no source of rules is given"):
        load_rules([])
    with pytest.raises(InputError, match=r"items\[0\]:1:1: error: no pod and no object with a pod template found"):
        load_manifests({"kind": "Node", "metadata": {"name": "a"}})
    misspelt: dict[str, Any] = {
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "resorces": {}}]},
    }
    with pytest.warns(UserWarning, match="resorces"):
        load_manifests([misspelt])
