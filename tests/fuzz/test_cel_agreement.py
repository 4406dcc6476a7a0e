"""The search for disagreements finds one where there is one, and none in a few examples."""

from typing import Any

import pytest
from hypothesis import given

from tests.fuzz import cel_agreement
from tests.fuzz.cel_agreement import disagreement, google, run, search
from tests.language.cel.expressions import activations, expressions

NOTHING: dict[str, Any] = dict.fromkeys(("object", "flag", "number", "text", "items", "table", "nothing"))


@given(expressions(), activations())
def test_all_evaluators_agree(expression: str, activation: Any) -> None:
    assert disagreement(expression, activation) is None


def test_a_disagreement_is_shrunk() -> None:
    def judge(expression: str, _activation: Any) -> str | None:
        return expression if "size" in expression else None

    found = search(1000, seed=1, disagrees=judge)
    assert found is not None
    assert len(found) <= len("size(nothing)")


def test_a_run_ends_in_time_and_reports_each_case_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(0, seed=1) == []
    monkeypatch.setattr(cel_agreement, "BATCH", 3)
    monkeypatch.setattr(cel_agreement, "disagreement", lambda _expression, _activation: "always")
    assert run(0.5, seed=1) == ["always"]


def test_another_value_of_generated_code_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel_agreement, "_generated", lambda _compiled, _activation: (True, 3))
    reported = disagreement("1 + 1", NOTHING)
    assert reported is not None
    assert reported.endswith("interpreter: 2\n  generated: 3")
    assert "generated: 3" in str(disagreement("[1][2]", NOTHING))


def test_another_value_of_googles_engine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel_agreement, "google", lambda: lambda _expression, _activation: (True, 2.0))
    assert str(disagreement("1 + 1", NOTHING)).endswith("Google's engine: 2.0")
    assert disagreement("2.0", NOTHING) is None


@pytest.mark.skipif(google() is None, reason="Google's engine (cel-expr-python) is not installed")
def test_googles_engine_evaluates_expressions() -> None:
    engine = google()
    assert engine is not None
    variables = {**NOTHING, "items": [1, 2], "text": "a"}
    assert engine("items.map(x, x * 2)", variables) == (True, [2, 4])
    assert engine("cel.bind(v, items[5], text == 'a' || v == 1)", variables) == (True, True)
    assert engine("items[5]", variables) == (False, None)
    assert engine("quantity('1')", variables) == (False, None)
