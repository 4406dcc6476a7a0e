"""Errors point at the sub-expression in the YAML file, in every style of scalar."""

import pytest

from rules_engine.language.cel import Budget, CelProblems, Environment, EvaluationError, compile_expression, types
from rules_engine.language.files import SourceFile
from rules_engine.language.yaml.documents import read_documents
from rules_engine.language.yaml.nodes import MapNode, ScalarNode
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import SourceText

STYLES = {
    "plain": "when: object.a == 1 &&\n  {mark}.b == 'x'\n",
    "single quoted": "when: 'object.a == ''x'' || {mark}.b == ''y'''\n",
    "double quoted": 'when: "object.a == \\"\\u00e9\\t\\" || {mark}.b == \\"\\""\n',
    "double quoted over lines": 'when: "object.a == 1\n  ||\n\n  {mark}.b == 2"\n',
    "literal": "when: |\n  object.a == 1 ||\n    {mark}.b == 2\n",
    "folded": "when: >-\n  object.a == 1 ||\n\n  {mark}.b == 2\n",
    "indented block": "when: |2-\n    object.a == 1 ||\n  {mark}.b == 2\n",
}


def _source(text: str) -> SourceText:
    (document,) = read_documents(SourceFile("rule.yaml", text), Problems())
    assert isinstance(document.root, MapNode)
    node = document.root.get("when")
    assert isinstance(node, ScalarNode)
    return node.source


@pytest.mark.parametrize("style", STYLES)
def test_a_problem_has_its_location_in_the_yaml_file(style: str) -> None:
    text = STYLES[style].replace("{mark}", "objct")
    with pytest.raises(CelProblems) as caught:
        compile_expression(_source(text), Environment({"object": types.DYN}))
    (problem,) = caught.value.problems
    line = text.splitlines()[problem.location.line - 1]
    assert line[problem.location.column - 1 :].startswith("objct.b")
    assert (problem.location.file, problem.length) == ("rule.yaml", 5)


@pytest.mark.parametrize("style", STYLES)
def test_a_failure_has_its_location_in_the_yaml_file(style: str) -> None:
    text = STYLES[style].replace("{mark}", "missing").replace("object.a ==", "object.a !=")
    compiled = compile_expression(_source(text), Environment({"object": types.DYN, "missing": types.DYN}))
    value = 1 if "!= 1 ||" in text or "!= 1\n" in text else "x" if "''x''" in text else "é\t"
    activation = {"object": {"a": 0 if style == "plain" else value}, "missing": {}}
    with pytest.raises(EvaluationError) as caught:
        compiled.evaluate(activation, Budget())
    location = caught.value.location
    assert location is not None
    line = text.splitlines()[location.line - 1]
    assert line[location.column - 1 :].startswith("b ==")
    assert caught.value.message == "missing.b: no such key (.? and [?…] read what may be absent)"
