"""Compiled rules, in the order of evaluation."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Mode, Rule
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.rule_set.rule_set import ClusterRequirements, cluster_requirements
from tests.support.evaluation import GPU, MIG2, check, cluster, compiled, injection, ladder, rung, validated, validation

BROKEN = [
    ladder(MIG2, rung(GPU, when="objct == 1")),
    ladder(MIG2, match_conditions={"a": "objct == 1"}),
    ladder(MIG2, variables={"a": "objct"}),
    injection(match_conditions={"a": "objct == 1"}),
    validation("objct == 1"),
    validation(check("true", "", "objct.metadata.name")),
]


@pytest.mark.parametrize("rule", BROKEN)
def test_a_problem_of_any_expression_excludes_the_rule(rule: Rule) -> None:
    good = validation("true", name="good")
    rule_set, problems = compile_rules([rule, good])
    assert [problem.code for problem in problems] == ["cel-undeclared"]
    assert "did you mean 'object'?" in problems[0].message
    assert [item.rule for item in rule_set.rules_at(Endpoint.VALIDATE)] == [good]
    assert rule_set.rules_at(Endpoint.MUTATE) == ()


def test_compiled_rules_are_immutable() -> None:
    rule_set = compiled(ladder(MIG2, rung(GPU, when="true")), injection(), validation("true"))
    shared: list[tuple[Any, str]] = [(rule_set, "kinds"), *((item, "rule") for item in rule_set.rules)]
    shared += [(item.rule, "priority") for item in rule_set.rules]
    assert len(shared) == 7
    for value, name in shared:
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, None)


def test_all_problems_are_reported_in_file_order() -> None:
    def at(line: int, text: str) -> SourceText:
        return SourceText(text, "rules.yaml", ((0, line, 5),))

    checks = [replace(check("true"), expression=at(line, "nobody")) for line in (9, 3)]
    _, problems = compile_rules([validation(checks[0], name="a"), validation(checks[1], name="b")])
    assert [problem.location for problem in problems] == [Location("rules.yaml", 3, 5), Location("rules.yaml", 9, 5)]


def test_a_rule_that_is_off_is_compiled_too() -> None:
    rule_set, problems = compile_rules([validation("objct == 1", mode=Mode.OFF), validation("true", mode=Mode.OFF)])
    assert len(problems) == 1
    assert rule_set.rules_at(Endpoint.VALIDATE) == ()


def test_a_variable_that_does_not_compile_is_one_problem() -> None:
    rule = validation("variables.a == 1", "variables.b == 1", variables={"a": "objct", "b": "variables.a"})
    assert len(compile_rules([rule])[1]) == 1


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (validation("variables.later == 1"), "cel-field"),
        (validation("true", variables={"a": "variables.b", "b": "1"}), "cel-field"),
        (validation("1"), "cel-result-type"),
        (validation(check("true", "", "1")), "cel-result-type"),
        (ladder(MIG2, match_conditions={"a": "'x'"}), "cel-result-type"),
        (ladder(MIG2, rung(GPU, when="'x'")), "cel-result-type"),
        (validation("authorizer != null"), "cel-undeclared"),
        (validation("cluster.nodes.size() > 0"), "cel-type"),
        (validation("request.object != null"), "cel-field"),
    ],
)
def test_expressions_that_kubernetes_rejects_are_problems(rule: Rule, code: str) -> None:
    problems = compile_rules([rule])[1]
    assert [problem.code for problem in problems] == [code]


def test_rules_are_ordered_by_priority_then_name_by_code_point() -> None:
    names = [("b", 0), ("a", 0), ("z", 5), ("a-1", 0), ("aa", -1)]
    rule_set, _ = compile_rules([validation("true", name=name, priority=priority) for name, priority in names])
    assert [item.rule.name for item in rule_set.rules_at(Endpoint.VALIDATE)] == ["z", "a", "a-1", "b", "aa"]


def test_a_variable_may_be_the_cluster() -> None:
    rule = validation("variables.c.available('x/y') == 1", variables={"c": "cluster"})
    assert validated({}, rule, on=cluster({"x/y": 1})).allowed
    assert cluster_requirements(compiled(rule)) == ClusterRequirements(nodes=True, devices=True, pods=True)


def test_a_rule_set_requires_what_any_of_its_rules_requires() -> None:
    rules = (ladder(MIG2, GPU), validation("namespaceObject.metadata.name != ''"), validation("true", name="other"))
    assert cluster_requirements(compiled(*rules)) == ClusterRequirements(nodes=True, devices=True, namespaces=True)
    assert cluster_requirements(compiled()) == ClusterRequirements()


def test_every_expression_of_a_rule_counts_for_its_requirements() -> None:
    expression = "cluster.available('x/y') == 0"
    for rule in (
        ladder(MIG2, rung(GPU, when=expression)),
        injection({"cpu": 1}, match_conditions={"a": expression}),
        validation("true", variables={"a": expression}),
        validation(check("true", "", f"string({expression})")),
        validation(expression),
    ):
        assert cluster_requirements(compiled(rule)) == ClusterRequirements(nodes=True, devices=True, pods=True)
