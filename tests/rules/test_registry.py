"""A kind of rule is one package, one schema and one line of the registry: here, a kind that only this test has."""

from dataclasses import replace
from pathlib import Path

import pytest

from rules_engine.authoring.check.analysis import analyse_rules
from rules_engine.exports.configuration import derive_calls
from rules_engine.language.headers import RULE_KINDS
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import RuleId
from rules_engine.questions.explain.rule_list import list_rules
from rules_engine.rules.evaluation import RuleSet, compile_rules
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.rule_set.rule_set import cluster_requirements
from rules_engine.rules.sources.load import load_files, rule_kind
from tests.rules import toy
from tests.support.authoring import ladder
from tests.support.evaluation import GPU, MIG2, MIG3, asks, cluster, request
from tests.support.loading import rule

WITH_TOY = (*KINDS, toy.KIND)
DOCUMENTS = [*map(rule_kind, WITH_TOY)]

RULES = rule("Mark", f"{{resource: {GPU}}}", "marked") + "---\n" + ladder("falls", MIG3, GPU)


@pytest.fixture
def rule_set(tmp_path: Path) -> RuleSet:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    loaded = load_files([file], DOCUMENTS)
    assert loaded.problems == ()
    made, problems = compile_rules(loaded.rules, WITH_TOY)
    assert problems == ()
    return made


def test_the_headers_name_the_kinds_of_the_registry() -> None:
    assert [kind.name for kind in KINDS] == [*RULE_KINDS]


def test_a_toy_kind_is_evaluated_after_the_others(rule_set: RuleSet) -> None:
    decision = rule_set.mutate(request(asks({MIG3: 1})), cluster({GPU: 4}))
    assert [step.rule for step in decision.trace] == ["FallbackLadder/falls", "Mark/marked"]
    assert decision.result["metadata"]["annotations"]["example.com/mark"] == "marked"  # type: ignore[index, call-overload]
    assert rule_set.validate(request(asks({GPU: 1})), cluster()).trace == ()


def test_the_index_needs_no_further_code(rule_set: RuleSet) -> None:
    (*_, marks) = rule_set.kinds_at(Endpoint.MUTATE)
    create_request = request(asks({"cpu": 1}))
    assert rule_set.mutate(create_request, cluster({GPU: 4}), indexed=True).trace == ()
    assert [compiled.rule.id for compiled in marks.rules] == ["Mark/marked"]


def test_the_webhooks_follow_from_its_interests(rule_set: RuleSet) -> None:
    mutating, validating = derive_calls(rule_set)
    assert RuleId("Mark/marked") in {rule.id for rule in mutating.rules}
    assert GPU in (mutating.expression or "")
    assert validating.operations == ()
    assert cluster_requirements(rule_set).nodes


def test_its_scalar_fields_are_settings(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    mark = list_rules(load_files([file], DOCUMENTS), namespace="ml", kinds=WITH_TOY).rules[-1]
    assert (mark.kind, mark.name, mark.endpoint) == ("Mark", "marked", "mutate")
    assert [setting.value for setting in mark.settings or () if setting.location is not None] == [GPU]


def test_a_rule_of_no_kind_and_two_kinds_of_one_name_are_errors(rule_set: RuleSet) -> None:
    rules = [compiled.rule for compiled in rule_set.rules]
    with pytest.raises(ValueError, match=r"^Mark/marked is of none of the kinds FallbackLadder, "):
        compile_rules(rules, KINDS)
    with pytest.raises(ValueError, match=r"^two kinds have the same name: .*, Mark, Mark$"):
        compile_rules(rules, (*WITH_TOY, toy.KIND))


def test_a_kind_that_changes_pods_cannot_be_evaluated_at_validate(rule_set: RuleSet) -> None:
    rules = [compiled.rule for compiled in rule_set.rules]
    made, _ = compile_rules(rules, (*KINDS, replace(toy.KIND, endpoint=Endpoint.VALIDATE)))
    with pytest.raises(ValueError, match=r"^rules of the kind Mark change the pod, which only /mutate can do$"):
        made.validate(request(asks({GPU: 1})), cluster({GPU: 4}))


def test_its_schema_and_its_analysis_report_problems(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES.replace(f"resource: {GPU}}}\n---", f"resourc: {MIG2}}}\n---"))
    (problem,) = load_files([file], DOCUMENTS).problems
    assert (problem.code, problem.location.line) == ("unknown-field", 4)
    rules = load_files(
        [write(tmp_path, RULES.replace("name: marked", "name: other")), write(tmp_path, RULES)], DOCUMENTS
    ).rules
    assert [problem.code for problem in analyse_rules(rules, WITH_TOY)] == ["overwritten-mark"]


def test_a_kind_outside_the_registry_is_unknown(tmp_path: Path) -> None:
    (problem,) = load_files([write(tmp_path, RULES)]).problems
    assert problem.code == "unknown-kind"


def write(folder: Path, text: str) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.yaml"
    path.write_text(text)
    return path
