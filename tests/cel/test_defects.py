"""Generated code that is wrong: the interpreter decides, and the defect is seen."""

import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from rules_engine.cel import Budget, Environment, EvaluationError, Program
from rules_engine.cel.program import DEFECTS, compile_expression
from rules_engine.model.problems.source import SourceText


def failing(error: Exception) -> Program:
    """A program whose generated code raises an error."""
    made = compile_expression(SourceText.inline("1 + 1 == 2"), Environment({}))
    assert made.generated is not None

    def run(_activation: Mapping[str, object], _budget: Budget) -> object:
        raise error

    return replace(made, generated=replace(made.generated, run=run))


def test_a_defect_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.cel.program.DEFECTS", counts := type(DEFECTS)())
    wrong = failing(NameError("x"))
    with caplog.at_level(logging.ERROR):
        assert [wrong.evaluate({}, Budget()) for _ in range(3)] == [True] * 3
    assert [*counts.values()] == [3]
    (line,) = caplog.messages
    assert "is wrong (NameError): it is interpreted" in line


def test_generated_code_that_gives_up_is_not_counted_as_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    before = DEFECTS.total()
    for error in (EvaluationError("left"), KeyError("a"), TypeError("b"), ZeroDivisionError()):
        assert failing(error).evaluate({}, Budget()) is True
    assert DEFECTS.total() == before
    assert caplog.messages == []
