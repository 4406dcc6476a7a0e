"""Conformance cases from the data beside the project, and their evaluation."""

import base64
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rules_engine.language.cel import (
    Budget,
    CelProblems,
    Duration,
    Environment,
    EvaluationError,
    Optional,
    Timestamp,
    Uint,
)
from rules_engine.language.cel.check.checker import check_expression
from rules_engine.language.cel.program import Program, program_of
from rules_engine.language.cel.syntax.parser import parse_expression
from rules_engine.language.cel.values.runtime_values import KeyedMap, make_map
from rules_engine.language.cel.values.types import DYN, Type
from rules_engine.model.problems.source import SourceText

DATA = Path(os.environ.get("GPU_RULES_TEST_DATA", Path(__file__).parents[3] / ".." / "shared" / "data"))


def cases(file: str) -> Any:
    """Return the content of a data file; skip the test if it is missing."""
    path = DATA / file
    if not path.exists():
        pytest.skip(f"{file} is not in {DATA}: set GPU_RULES_TEST_DATA to its folder")
    return json.loads(path.read_text(encoding="utf-8"))


def value_of(tagged: Mapping[str, Any]) -> Any:
    """Return the engine's value of a tagged value of the data."""
    (tag, raw), *_ = ((key, raw) for key, raw in tagged.items() if key != "tolerance")
    readers: dict[str, Callable[[Any], Any]] = {
        "int": int,
        "uint": lambda text: Uint(int(text)),
        "double": float,
        "string": str,
        "bytes": base64.b64decode,
        "bool": bool,
        "null": lambda _: None,
        "list": lambda items: [value_of(item) for item in items],
        "map": lambda pairs: make_map([(value_of(key), value_of(value)) for key, value in pairs]),
        "type": Type,
        "timestamp": lambda pair: Timestamp(int(pair[0]) * 10**9 + int(pair[1])),
        "duration": lambda pair: Duration(int(pair[0]) * 10**9 + int(pair[1])),
        "optional_none": lambda _: Optional(False),
        "optional_of": lambda inner: Optional(True, value_of(inner)),
    }
    return readers[tag](raw)


def same(actual: Any, expected: Any) -> bool:
    """Return whether two values are equal and of one type; NaN equals NaN."""
    if type(actual) is not type(expected):
        return False
    if isinstance(actual, float):
        return actual == expected or (math.isnan(actual) and math.isnan(expected))
    if isinstance(actual, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(actual, dict | KeyedMap):
        return len(actual) == len(expected) and all(
            key in actual and same(actual[key], expected[key]) for key in expected
        )
    if isinstance(actual, Optional):
        return actual.present == expected.present and same(actual.value, expected.value)
    return bool(actual == expected)


_TYPES = {"int64": "int", "uint64": "uint"}


def type_named(text: str) -> Type:
    """Return a type by its name in the data, such as map(string,int64)."""
    head, _, parameters = text.partition("(")
    if not parameters:
        return Type(_TYPES.get(head, head))
    parts, depth, start = [], 0, 0
    inner = parameters[:-1]
    for place, character in enumerate(inner + ","):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(type_named(inner[start:place]))
            start = place + 1
    return Type(head, tuple(parts))


def program(expression: str, environment: Environment, *, checked: bool = True) -> Program:
    """Compile an expression. Unchecked, the checker's problems fail at run time, as in cel-go's unchecked mode."""
    source = SourceText.inline(expression)
    checked_expression = check_expression(source, parse_expression(source), environment)
    if checked and checked_expression.problems:
        raise CelProblems(checked_expression.problems)
    return program_of(checked_expression)


def holds(case: Mapping[str, Any]) -> str | None:
    """Return None if a case of the specification holds, else a description of the failure."""
    declared = {entry["name"]: type_named(entry["type"]) for entry in case.get("type_env", ()) if "type" in entry}
    bindings = {name: value_of(value) for name, value in case.get("bindings", {}).items()}
    names = {**dict.fromkeys(bindings, DYN), **declared}
    environment = Environment(names, container=case.get("container", ""))
    expected = case["expect"]
    try:
        compiled = program(case["expr"], environment, checked=not case.get("disable_check"))
        if "type" in expected and str(compiled.result) != str(type_named(expected["type"])):
            return f"type {compiled.result}"
        if case.get("check_only"):
            return None
        value = compiled.evaluate(bindings, Budget())
    except (CelProblems, EvaluationError) as error:
        return None if "error" in expected else f"{type(error).__name__}: {error}"
    if "value" not in expected:
        return f"value {value!r}"
    return None if same(value, value_of(expected["value"])) else f"value {value!r}"
