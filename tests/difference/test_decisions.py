"""Decisions of a diff are those of the endpoints, cached for views that several requests have."""

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.difference.decisions import Decisions
from rules_engine.evaluation import mutate, validate
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.admission import AdmissionRequest
from tests.support.evaluation import GPU, MIG1, MIG3, asks, check, cluster, compiled, ladder, request, validation

RULES = compiled(
    ladder(MIG3, MIG1), validation(check(f"!('{MIG1}' in object.spec.containers[0].resources.limits)", "no"))
)
VIEWS = [cluster({MIG3: 1}), cluster({MIG1: 1}), cluster({GPU: 4})]
REQUESTS = [request(asks({MIG3: count})) for count in (1, 1, 2)]


@given(st.lists(st.tuples(st.sampled_from(REQUESTS), st.sampled_from(VIEWS)), max_size=12))
def test_decisions_equal_the_endpoints_decisions_in_any_order(calls: list[tuple[AdmissionRequest, Cluster]]) -> None:
    decisions = Decisions(RULES)
    for made, view in calls:
        decision, result = decisions.mutate_request(made, view)
        assert decision == mutate(RULES, made, view)
        assert result == decision.result
        assert decisions.validate_request(made, view) == validate(RULES, made, view)


def test_decisions_are_cached_from_the_second_request_on_a_view_on() -> None:
    decisions = Decisions(RULES)
    all_pods, without_one, without_another = VIEWS
    views = [all_pods, without_one, all_pods, without_another, all_pods]
    assert [decisions.validate_request(REQUESTS[0], view).cached for view in views] == [
        False,
        False,
        False,
        False,
        True,
    ]


def test_a_pod_that_was_turned_back_is_mutated_once() -> None:
    decisions = Decisions(RULES)
    first, _ = decisions.mutate_request(REQUESTS[0], VIEWS[0])
    again, _ = decisions.mutate_request(REQUESTS[0], VIEWS[0])
    assert again is first
