"""The time of a request, and who decides when it is over."""

import json
from itertools import count
from math import inf
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import pytest

from rules_engine.language.cel import Budget, CostExceeded, Environment, compile_expression
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.decision import Decision
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.rule_files import read_rules
from rules_engine.server.http.admission import AdmissionEndpoint, HttpRequest, Response
from rules_engine.server.http.deadline import SLICE_COST, TIMEOUT_SHARE, Deadline, TakesLonger
from rules_engine.server.http.limits import REQUEST_SECONDS
from tests.support import authoring
from tests.support.budgets import units_spent
from tests.support.cluster import Clock
from tests.support.evaluation import GPU, MIG1, MIG2, asks, cluster, compiled, request, validation
from tests.support.server import MIG_POD, application, call, encoded, review
from tests.support.states import state_of

SLOW = "lists.range(300).all(x, lists.range(300).all(y, x + y >= 0))"

NAMED = "object.metadata.name != ''"
WHOLE = "{resource: nvidia.com/gpu, assume: true}"


def conditional_ladder(expression: str, policy: str) -> str:
    conditions = f'[{{name: condition, expression: "{expression}"}}]'
    return authoring.ladder("mig", MIG2, WHOLE, failurePolicy=policy, matchConditions=conditions)


def rule_set(folder: Path, policy: str) -> RuleSet:
    path = folder / "rules.yaml"
    rules = [
        conditional_ladder(NAMED, policy),
        authoring.validation("named", f'"{NAMED}"', message="a pod has a name", failurePolicy=policy),
        authoring.ladder("without-expressions", MIG1, WHOLE),
    ]
    path.write_text("---\n".join(rules))
    return read_rules([path]).rule_set


def test_within_its_time_a_request_is_decided(tmp_path: Path) -> None:
    app = application(state_of(rule_set(tmp_path, "Fail"), Cluster()))
    assert call(app, "/mutate", encoded(review(MIG_POD))).patch
    assert call(app, "/validate", encoded(review(MIG_POD))).response["allowed"] is True


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_after_the_deadline_a_rule_with_policy_fail_denies(tmp_path: Path, path: str) -> None:
    app = application(state_of(rule_set(tmp_path, "Fail"), Cluster()), request_seconds=-1)
    response = call(app, path, encoded(review(MIG_POD))).response
    assert (response["allowed"], response["status"]["code"]) == (False, 500)
    assert "the time of -1 s for one request is used up" in response["status"]["message"]


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_rule_over_its_time_that_ignores_failure_warns(tmp_path: Path, path: str) -> None:
    app = application(state_of(rule_set(tmp_path, "Ignore"), Cluster()), request_seconds=-1)
    response = call(app, path, encoded(review(MIG_POD))).response
    assert response["allowed"] is True
    assert "patch" not in response
    [warning] = response["warnings"]
    assert "was ignored" in warning
    assert "is used up" in warning


def test_rules_without_expressions_use_no_budget(tmp_path: Path) -> None:
    app = application(state_of(rule_set(tmp_path, "Ignore"), Cluster()), request_seconds=-1)
    pod: Any = {**MIG_POD, "metadata": {}}
    pod["spec"] = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}]}
    assert call(app, "/mutate", encoded(review(pod))).patch


def seconds(query: str, most: float = REQUEST_SECONDS) -> float:
    """Return the seconds that a request with this query may take."""
    late = Deadline(perf_counter() - 1000, query, most)
    with pytest.raises(CostExceeded) as caught:
        late().spend(1)
    return float(str(caught.value).split()[3])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", REQUEST_SECONDS),
        ("timeout=10s", REQUEST_SECONDS),
        ("timeout=2s", 2 * TIMEOUT_SHARE),
        ("a=b&timeout=500ms", 0.5 * TIMEOUT_SHARE),
        ("timeout=1m", REQUEST_SECONDS),
        ("timeout=1m30s", REQUEST_SECONDS),
        ("timeout=s", REQUEST_SECONDS),
        ("timeout=-1s", REQUEST_SECONDS),
        ("timeout=², s", REQUEST_SECONDS),
        ("timeout=1sm", REQUEST_SECONDS),
        ("timeout=1s" + "&" * 100, REQUEST_SECONDS),
        ("time=1s", REQUEST_SECONDS),
    ],
)
def test_a_request_takes_less_time_than_its_caller_waits(query: str, expected: float) -> None:
    assert seconds(query) == expected


def test_the_clock_is_looked_at_again_after_every_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("rules_engine.server.http.deadline.perf_counter", clock)
    budget = Deadline(clock.now, "", 0.02)()
    budget.spend(1)
    clock.now += 0.03
    for _ in range(SLICE_COST):
        budget.spend(1)
    for _ in range(2):
        with pytest.raises(CostExceeded, match=r"the time of 0\.02 s for one request is used up"):
            budget.spend(1)


def test_time_that_is_over_is_noticed_by_the_next_expression() -> None:
    """Generated code that was stopped by the clock leaves nothing to the interpreter, nor to what comes after."""
    compiled = compile_expression(SourceText.inline("lists.range(100000).all(x, x >= 0)"), Environment({}))
    budget = Deadline(perf_counter() - 1, "", 1)()
    for _ in range(2):
        with pytest.raises(CostExceeded, match="time of 1 s"):
            compiled.evaluate({}, budget)
        assert units_spent(budget) <= 2


def test_a_long_loop_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_expression(SourceText.inline(SLOW), Environment({}))
    clock = count()
    monkeypatch.setattr("rules_engine.server.http.deadline.perf_counter", clock.__next__)
    with pytest.raises(CostExceeded, match="time of 3 s"):
        compiled.evaluate({}, Deadline(0, "", 3)())
    assert next(clock) < 10, "the loop was left when the clock had passed 3"


def test_a_budget_in_time_still_counts_costs() -> None:
    budget = Deadline(perf_counter(), "", 1000)()
    budget.spend(1)
    with pytest.raises(CostExceeded, match="cost limit"):
        budget.spend(budget.limit)


ABSORBING = [SLOW, f"{SLOW} || true", f"true || {SLOW}", f"[1].exists(z, {SLOW})", f"optional.of({SLOW}).orValue(true)"]
"""In places where CEL absorbs errors."""


@pytest.mark.parametrize("expression", ABSORBING)
def test_takes_longer_passes_every_error_handler(expression: str) -> None:
    compiled = compile_expression(SourceText.inline(expression.replace("true ||", "1 == 2 ||")), Environment({}))
    budget = Deadline(perf_counter(), "", 1000, thread_time() + 0.001)
    with pytest.raises(TakesLonger):
        compiled.evaluate({}, budget())


RULES_THAT_TAKE_LONG = "---\n".join(
    [
        conditional_ladder(SLOW, "Ignore"),
        authoring.validation("slow", f'"{SLOW}"', message="never", failurePolicy="Ignore"),
    ]
)


def answered(
    endpoint: AdmissionEndpoint,
    path: str = "/mutate",
    *,
    query: str = "",
    elapsed: float = 0,
    patient_until: float = inf,
) -> Response:
    """Answer a request to admit MIG_POD that arrived some seconds ago."""
    deadline = Deadline(perf_counter() - elapsed, query, REQUEST_SECONDS, patient_until)
    return endpoint.answer(HttpRequest(path, "application/json", encoded(review(MIG_POD))), deadline)


def warnings(response: Response) -> list[str]:
    """The warnings of a response that allows."""
    assert response.status == 200
    answer: dict[str, Any] = json.loads(response.body)["response"]
    assert answer["allowed"] is True
    return list(answer.get("warnings", ()))


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_an_abandoned_decision_leaves_no_trace(tmp_path: Path, path: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES_THAT_TAKE_LONG)
    state = state_of(read_rules([file]).rule_set, Cluster())
    observed: list[Any] = []
    endpoint = AdmissionEndpoint(state, observers=[observed.append])
    for _ in range(2):
        with pytest.raises(TakesLonger):
            answered(endpoint, path, patient_until=0.0)
        assert observed == []
    assert not any("ignored" in warning for warning in warnings(answered(endpoint, path)))
    assert len(observed) == 1


def test_the_time_of_a_request_begins_with_its_headers(tmp_path: Path) -> None:
    endpoint = AdmissionEndpoint(state_of(rule_set(tmp_path, "Ignore"), Cluster()))
    assert warnings(answered(endpoint)) == []
    late = answered(endpoint, elapsed=2 * REQUEST_SECONDS)
    assert "is used up" in str(warnings(late))


def test_the_api_servers_timeout_bounds_the_time_of_a_request(tmp_path: Path) -> None:
    endpoint = AdmissionEndpoint(state_of(rule_set(tmp_path, "Ignore"), Cluster()))
    assert warnings(answered(endpoint, query="timeout=4s", elapsed=1)) == []
    assert "is used up" in str(warnings(answered(endpoint, query="timeout=1s", elapsed=1)))


def test_the_time_is_over_only_when_all_of_it_is_used() -> None:
    assert not Deadline(perf_counter(), "", 1000).is_over()
    assert Deadline(perf_counter() - 1, "", 1).is_over()
    assert Deadline(perf_counter() - 1, "timeout=1s", 1000).is_over()


def test_the_observed_duration_begins_at_the_end_of_the_body(tmp_path: Path) -> None:
    observed: list[Any] = []
    state = state_of(rule_set(tmp_path, "Ignore"), Cluster())
    endpoint = AdmissionEndpoint(state, observers=[observed.append])
    answered(endpoint, elapsed=1000)
    [record] = observed
    assert 0 < record.seconds < 1000


def test_what_variables_cost_is_counted_in_time_as_well() -> None:
    """Each rule evaluates its variable, and then its expression twice; the variable's value stays."""
    loop = {"a": "lists.range(60000).all(x, x >= 0)"}
    rules = compiled(
        *(validation("variables.a && dyn(object).no == 1 || true", name=f"v{n}", variables=loop) for n in range(8))
    )

    def decided(budget: Budget) -> Decision:
        return rules.validate(request(asks({GPU: 1})), cluster(), budget=lambda: budget)

    whole, timed = Budget(), Deadline(perf_counter(), "", 1000)()
    assert decided(timed) == decided(whole)
    assert units_spent(timed) == units_spent(whole) > 0.9 * timed.limit
