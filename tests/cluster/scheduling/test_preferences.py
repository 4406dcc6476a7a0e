"""Preferences that the score plugins read of a pod."""

from typing import Any

import pytest

from rules_engine.cluster.scheduling.preferences import HOSTNAME, ZONE, Preferences
from rules_engine.cluster.scheduling.requirements import MAX_TERMS, Requirements, read_selector
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.placement import MAX_REQUIREMENTS
from rules_engine.model.kubernetes.placement import MAX_TERMS as MAX_NODE_TERMS
from rules_engine.model.rules.rule import LabelSelector

Object = dict[str, Any]

MIB = 2**20
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APP = read_selector({"matchLabels": {"app": "x"}})
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}


def preferences(spec: Object, selector: LabelSelector | None = None) -> Preferences:
    raw = {"metadata": {"name": "p", "namespace": "ml", "labels": {"app": "x"}}, "spec": spec}
    return Preferences.of(raw, Requirements.of(raw), selector)


def container(requests: Object | None = None, **members: Any) -> Object:
    return {"name": "main", "resources": {"requests": requests or {}}, **members}


def test_containers_without_requests_count_as_small_ones() -> None:
    two = [container({"cpu": "1"}), container({"memory": "1Gi"})]
    assert preferences({"containers": two}).non_zero == {"cpu": 1100, "memory": 1224 * MIB}


def test_containers_without_resources_count_too() -> None:
    assert preferences({"containers": [{"name": "a"}, {"name": "b"}]}).non_zero == {"cpu": 200, "memory": 400 * MIB}


def test_requests_of_zero_stay_zero() -> None:
    assert preferences({"containers": [container({"cpu": "0", "memory": "0"})]}).non_zero == {"cpu": 0, "memory": 0}


def test_limits_stand_for_absent_requests() -> None:
    limited = {"name": "main", "resources": {"limits": {"cpu": "2"}}}
    assert preferences({"containers": [limited]}).non_zero == {"cpu": 2000, "memory": 200 * MIB}


def test_init_containers_and_sidecars_count_as_in_requests() -> None:
    spec = {
        "containers": [container({"cpu": "10m"})],
        "initContainers": [{"name": "side", "restartPolicy": "Always"}, container({"cpu": "1"}), {"name": "last"}],
    }
    assert preferences(spec).non_zero == {"cpu": 1100, "memory": 400 * MIB}


def test_overhead_is_added() -> None:
    assert preferences({"containers": [container()], "overhead": {"cpu": "5m"}}).non_zero == {
        "cpu": 105,
        "memory": 200 * MIB,
    }


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ({"requests": {"cpu": "3"}}, (3000, 1024 * MIB)),
        ({"requests": {"cpu": "3", "memory": "2Gi"}}, (3000, 2048 * MIB)),
        ({"limits": {"hugepages-2Mi": "4Mi"}}, (200, 1024 * MIB)),
        ({"requests": {"nvidia.com/gpu": "1"}}, (200, 1224 * MIB)),
    ],
)
def test_resources_at_pod_level_replace_missing_requests(level: Object, expected: tuple[int, int]) -> None:
    containers = [container({"memory": "1Gi"}), container()]
    pod_preferences = preferences({"containers": containers, "resources": level})
    assert (pod_preferences.non_zero["cpu"], pod_preferences.non_zero["memory"]) == expected
    assert pod_preferences.scored == {"cpu": 200, "memory": 1224 * MIB}


def test_pods_of_controllers_spread_by_the_defaults_of_the_system() -> None:
    pod_preferences = preferences({"containers": [container()]}, APP)
    assert [
        (spread_constraint.topology_key, spread_constraint.max_skew) for spread_constraint in pod_preferences.spread
    ] == [(HOSTNAME, 3), (ZONE, 5)]
    assert {spread_constraint.selector for spread_constraint in pod_preferences.spread} == {APP}
    assert pod_preferences.by_default


@pytest.mark.parametrize("selector", [None, LabelSelector()])
def test_pods_without_a_selector_do_not_spread(selector: LabelSelector | None) -> None:
    assert preferences({"containers": [container()]}, selector).spread == ()


@pytest.mark.parametrize(("action", "count"), [("DoNotSchedule", 0), ("ScheduleAnyway", 1)])
def test_constraints_of_their_own_replace_the_defaults(action: str, count: int) -> None:
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": action, "labelSelector": {}}
    pod_preferences = preferences({"containers": [container()], "topologySpreadConstraints": [constraint]}, APP)
    assert (len(pod_preferences.spread), pod_preferences.by_default) == (count, False)


def test_anti_affinity_has_negative_weights() -> None:
    terms = {PREFERRED: [{"weight": 7, "podAffinityTerm": TERM}]}
    pod_preferences = preferences({"containers": [], "affinity": {"podAffinity": terms, "podAntiAffinity": terms}})
    assert [term.weight for term in pod_preferences.pod_affinity] == [7, -7]
    assert pod_preferences.pod_affinity[0].term.namespaces == {"ml"}


def node_affinity(*terms: Object) -> Object:
    return {"containers": [], "affinity": {"nodeAffinity": {PREFERRED: [*terms]}}}


def test_node_terms_without_weight_or_expression_match_no_node() -> None:
    expression = {"key": "pool", "operator": "Exists"}
    kept = {"weight": 2, "preference": {"matchExpressions": [expression]}}
    spec = node_affinity({"weight": 1, "preference": {}}, kept, {"preference": kept["preference"]})
    pod_preferences = preferences(spec).node_affinity
    assert pod_preferences is not None
    assert [term.weight for term in pod_preferences] == [2]


def test_pods_without_node_terms_have_no_preferred_node_affinity() -> None:
    assert preferences({"containers": []}).node_affinity is None
    assert preferences(node_affinity()).node_affinity is None


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ({"weight": "1"}, "0/weight: must be an integer, not a string"),
        ({"weight": True}, "0/weight: must be an integer, not a boolean"),
        ({"weight": 1, "preference": []}, "0/preference: must be an object, not a list"),
    ],
)
def test_malformed_node_terms_name_their_place(term: Object, message: str) -> None:
    with pytest.raises(PodError) as caught:
        preferences(node_affinity(term))
    assert str(caught.value) == f"/spec/affinity/nodeAffinity/{PREFERRED}/{message}"


def test_numbers_of_terms_are_bounded() -> None:
    with pytest.raises(TooLargeError, match=r"^/spec/affinity/nodeAffinity/.*: 1001 terms of preferred node affinity"):
        preferences(node_affinity(*[{}] * (MAX_NODE_TERMS + 1)))
    values = {"key": "pool", "operator": "In", "values": ["x"] * MAX_REQUIREMENTS}
    with pytest.raises(TooLargeError, match="expressions and values of preferred node affinity, more than 10000"):
        preferences(node_affinity({"weight": 1, "preference": {"matchExpressions": [values]}}))
    terms = {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}] * (MAX_TERMS + 1)}
    with pytest.raises(TooLargeError, match=r"^/spec: 101 constraints of topology spread and terms of pod affinity"):
        preferences({"containers": [], "affinity": {"podAffinity": terms}})
