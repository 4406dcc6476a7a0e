"""WorkloadKind documents."""

import pytest

from rules_engine.cluster.workloads.kind import path_steps, read_workload_kind
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from tests.support.loading import codes, documents, rule


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("template", ("template",)),
        ("spec.groups[].template", ("spec", "groups", "[]", "template")),
        ("spec.groups[].parts{}", ("spec", "groups", "[]", "parts", "{}")),
    ],
)
def test_a_path_has_steps(path: str, steps: tuple[str, ...]) -> None:
    assert path_steps(path) == steps


def test_an_expression_with_an_error_is_left_out_and_reported() -> None:
    spec = (
        "{group: example.com, kind: Trainer, countField: objct.kind, unknown: item.name, "
        "references: {runtime: {kind: runtime.kind, name: object.spec.name}}, "
        "templates: [{path: spec.template, pods: \"'2'\", name: item.name}]}"
    )
    (document,), _ = documents(rule("WorkloadKind", spec))
    assert isinstance(document.root, MapNode)
    problems = Problems()
    row = read_workload_kind(document.root, problems)
    assert codes(problems.items) == [
        Code.CEL_RESULT_TYPE,
        Code.CEL_UNDECLARED,
        Code.CEL_UNDECLARED,
        Code.CEL_UNDECLARED,
    ]
    assert [*row.programs] == []
    assert [*row.templates[0].programs] == ["name"]
    assert [*row.references["runtime"]] == ["name"]
