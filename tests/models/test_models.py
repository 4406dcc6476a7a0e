"""The engine agrees with second implementations, written from the documents alone."""

from typing import Any

from hypothesis import given, settings

from tests.models.generated import injections, ladders, quantities
from tests.support.laws import examples, law


@settings(law, max_examples=examples(800))
@given(ladders.cases())
def test_ladders_agree_with_their_model(case: Any) -> None:
    ladders.check(case)


@settings(law, max_examples=examples(600))
@given(injections.cases())
def test_injections_agree_with_their_model(case: Any) -> None:
    injections.check(case)


@settings(law, max_examples=examples(1500))
@given(quantities.cases())
def test_quantities_agree_with_their_model(case: Any) -> None:
    quantities.check(case)
