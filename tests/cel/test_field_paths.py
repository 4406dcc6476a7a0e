"""Members of the variables that an expression may read."""

import pytest

from rules_engine.cel.field_paths import chains, constant_arguments
from rules_engine.cel.syntax.parser import parse
from rules_engine.model.source import SourceText


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("object", "object"),
        (".object.spec", "object.spec"),
        ("object.spec.containers.all(c, c.name != object.metadata.labels['app'])",
         "object.spec.containers c.name object.metadata.labels.app"),
        ("object.?spec.?nodeSelector[?'pool'].orValue('')", "object.spec.nodeSelector.pool"),
        ("object.spec.containers[0].image", "object.spec.containers"),
        ("object.metadata.labels[params.key]", "object.metadata.labels params.key"),
        ("has(object.spec.priority) && size(object.spec.x) > 0", "object.spec.priority object.spec.x"),
        ("{'a': object.a}.a + [object.b][0]", "object.a object.b"),
        ("cel.bind(spec, object.spec, spec.x)", "object.spec spec.x"),
        ("object.spec.?x.optMap(x, x.y)", "object.spec.x x.y"),
        ("oldObject == null ? request.dryRun : -object.n < 1", "oldObject request.dryRun object.n"),
        ("1 + 2 == 3", ""),
    ],
)  # fmt: skip
def test_an_expression_has_these_chains(expression: str, found: str) -> None:
    assert {".".join(chain) for chain in chains(parse(SourceText.inline(expression)))} == set(found.split())


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("cluster.available('a/b') > 0", "a/b"),
        ("cluster.total('a/b') > 0", ""),
        ("cel.bind(c, cluster, c.available('a/b') > c.available('c/d'))", "a/b c/d"),
        ("['a/b'].exists(r, cluster.available(r) > 0)", ""),
        ("available('a/b', 1, params.x)", "a/b"),
        ("object.available == 'a/b'", ""),
        ("cluster.available(1 > 0 ? 'a/b' : 'c/d') > 0", ""),
    ],
)
def test_constant_arguments_of_a_function_are_found(expression: str, found: str) -> None:
    assert {*constant_arguments(parse(SourceText.inline(expression)), "available")} == set(found.split())
