"""Placement of a pod: read strictly and within bounds."""

from typing import Any

import pytest

from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.placement import MAX_REQUIREMENTS, MAX_TERMS, MAX_TOLERATIONS, Placement
from tests.support.placing import expression, requiring

TERMS = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"


def test_an_unknown_operator_is_an_error_with_its_path() -> None:
    with pytest.raises(PodError) as caught:
        Placement.parse(requiring(expression("a", "Near")))
    assert caught.value.path == f"{TERMS}/0/matchExpressions/0/operator"
    assert str(caught.value).endswith("must be one of DoesNotExist, Exists, Gt, In, Lt, NotIn")


def test_empty_terms_are_omitted() -> None:
    terms = Placement.parse(requiring({}, None, expression("a", "Exists"), {"matchExpressions": []})).terms
    assert terms is not None
    assert [[item.key for item in term.expressions] for term in terms] == [["a"]]
    assert Placement.parse(requiring({})).terms == ()
    assert Placement.parse({"affinity": {}}).terms is None


def many(count: int) -> list[str]:
    return [str(number) for number in range(count)]


LARGE: list[tuple[dict[str, Any], str]] = [
    (requiring(*[{}] * (MAX_TERMS + 1)), f"{TERMS}: 1001 terms of required node affinity, more than 1000"),
    ({"tolerations": [{}] * (MAX_TOLERATIONS + 1)}, "/spec/tolerations: 1001 tolerations, more than 1000"),
    ({"nodeSelector": dict.fromkeys(many(MAX_REQUIREMENTS + 1), "")}, "/spec/nodeSelector: 10001 "),
    (
        requiring(expression("a", "In", *many(MAX_REQUIREMENTS))),
        f"{TERMS}/0/matchExpressions/0/values: 10001 labels of the nodeSelector, expressions and values ",
    ),
    (
        requiring({"matchFields": [{"key": "metadata.name", "operator": "Exists"}] * (MAX_REQUIREMENTS + 1)}),
        f"{TERMS}/0/matchFields: 10001 ",
    ),
]


@pytest.mark.parametrize(("spec", "message"), LARGE, ids=["terms", "tolerations", "selector", "values", "fields"])
def test_placement_beyond_a_bound_is_an_error(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(TooLargeError) as caught:
        Placement.parse(spec)
    assert str(caught.value).startswith(message)


def test_placement_at_the_bounds_is_accepted() -> None:
    terms = [expression("a", "In", *many(8))] * MAX_TERMS
    spec = {"nodeSelector": dict.fromkeys(many(1000), ""), "tolerations": [{}] * MAX_TOLERATIONS, **requiring(*terms)}
    placement = Placement.parse(spec)
    assert placement.terms is not None
    assert len(placement.terms) == MAX_TERMS
    with pytest.raises(TooLargeError, match=f"{TERMS}/999/.*: 10001 "):
        Placement.parse({**spec, "nodeSelector": dict.fromkeys(many(1001), "")})
