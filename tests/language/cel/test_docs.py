"""The examples of docs/reference/cel.md, and further ones in examples.txt, have the documented results."""

import re
from pathlib import Path
from typing import Any

import pytest

from rules_engine.language.cel import Budget, Environment, scope
from rules_engine.language.cel import budget as bounds
from rules_engine.language.cel.values import regex, types
from tests.language.cel.conformance import program, same
from tests.language.cel.evaluating import outcome, problems

PAGE = Path(__file__).parents[3] / "docs/reference/cel.md"
FURTHER = Path(__file__).parent / "examples.txt"

POD: dict[str, Any] = {
    "metadata": {"name": "train-0", "labels": {"team": "batch"}},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]},
}

POLICY = Environment({"object": types.POD, "cluster": types.CLUSTER})


def _lines() -> list[str]:
    blocks = re.findall(r"```cel\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [line for text in (*blocks, FURTHER.read_text(encoding="utf-8")) for line in text.splitlines()]


def _examples() -> list[tuple[str, str]]:
    pairs = [re.fullmatch(r"(.*?)\s+// (.*)", line) for line in _lines()]
    return [(match[1], match[2]) for match in pairs if match]


@pytest.mark.parametrize(("expression", "expected"), _examples())
def test_an_example_has_the_documented_result(expression: str, expected: str) -> None:
    if expected.startswith("load: "):
        assert [problem.split(": ", 1)[1] for problem in problems(expression, POLICY)] == [
            expected.removeprefix("load: ")
        ]
        return
    kind, value = outcome(program(expression, POLICY).evaluate, {"object": POD})
    if expected.startswith("error: "):
        assert (kind, value.split(": ", 1)[1]) == ("error", expected.removeprefix("error: "))
    else:
        assert kind == "value"
        assert same(value, program(expected, Environment({})).evaluate({}, Budget()))


def test_every_line_is_an_example() -> None:
    assert len(_examples()) == len(_lines()) > 60


def test_the_page_has_the_bounds_of_the_code() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \| ([0-9]+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(rows) == 8
    for name, value in rows:
        [constant] = [vars(module)[name] for module in (bounds, regex, scope) if name in vars(module)]
        assert constant == int(value)


def test_the_page_names_every_function() -> None:
    from rules_engine.language.cel.library import dialect_functions

    page = PAGE.read_text(encoding="utf-8")
    names = {name.split(".")[-1] for method in (True, False) for name in dialect_functions().names(method=method)}
    unnamed = {name for name in names if not re.search(rf"\b{name}\b", page)}
    # Conversions, parts of dates and the named formats are named as groups.
    assert {name for name in unnamed if not name.startswith(("get", "dns"))} <= {
        *("bool", "bytes", "double", "int", "string", "uint", "duration", "timestamp"),
        *("byte", "date", "datetime", "labelValue", "qualifiedName", "uri", "uuid"),
    }
