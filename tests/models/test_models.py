"""The engine agrees with second implementations, written from the documents alone."""

from typing import Any

from hypothesis import given

from tests.models.generated import injections, ladders, quantities


@given(ladders.cases())
def test_ladders_agree_with_their_model(case: Any) -> None:
    ladders.check(case)


@given(injections.cases())
def test_injections_agree_with_their_model(case: Any) -> None:
    injections.check(case)


@given(quantities.cases())
def test_quantities_agree_with_their_model(case: Any) -> None:
    quantities.check(case)
