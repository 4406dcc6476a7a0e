"""Constants in expressions."""

import pytest

from rules_engine.language.cel.program import constant_arguments
from rules_engine.language.cel.syntax.parser import parse_expression
from rules_engine.model.problems.source import SourceText


@pytest.mark.parametrize(
    ("expression", "arguments"),
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
def test_constant_arguments_of_a_function_are_found(expression: str, arguments: str) -> None:
    assert {*constant_arguments(parse_expression(SourceText.inline(expression)), "available")} == set(arguments.split())
