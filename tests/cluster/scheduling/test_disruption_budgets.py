"""The disruptions that PodDisruptionBudgets allow, as their controller computes them."""

from typing import Any

import pytest

from rules_engine.cluster.scheduling.disruption_budgets import DisruptionBudgets
from rules_engine.cluster.scheduling.schedulable_pod import BoundPod, SchedulablePod
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from tests.support.api import NOW, Object, budget, pod

X = {"app": "x"}
PODS = [pod(f"p{number}", labels=X, on="a") for number in range(4)]


def bound(made: Object) -> BoundPod:
    return BoundPod(f"ml/{made['metadata']['name']}", SchedulablePod.of(made), 0, 0)


def built(*made: Object, scaled: bool = True, **options: Any) -> tuple[DisruptionBudgets, Any]:
    """Return budgets whose pods all run, with their controller, and the budget."""
    budgets = DisruptionBudgets(ClusterObjects({"PodDisruptionBudget": [budget(X, **options)], "Pod": made}, now=NOW))
    for each in made:
        budgets.count_expected(SchedulablePod.of(each).requirements, 1, scaled=scaled)
        budgets.count_running(bound(each), 1)
    budgets.use_statuses()
    return budgets, budgets.of(SchedulablePod.of(PODS[0]).requirements)[0]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 3}, 1),
        ({"minAvailable": 5}, 0),
        ({"minAvailable": "30%"}, 2),
        ({"minAvailable": "100%"}, 0),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": 9}, 4),
        ({"maxUnavailable": "30%"}, 2),
        ({"maxUnavailable": "many"}, 0),
        ({"minAvailable": 1, "maxUnavailable": 0}, 0),
        ({}, 0),
    ],
)
def test_a_budget_without_a_status_gets_one_from_its_pods(spec: Object, allowed: int) -> None:
    assert built(*PODS, spec=spec)[1].allowed == allowed


@pytest.mark.parametrize(("spec", "allowed"), [({"minAvailable": 3}, 1), ({"minAvailable": "50%"}, 0)])
def test_controllers_without_a_scale_allow_nothing_but_by_a_number(spec: Object, allowed: int) -> None:
    assert built(*PODS, spec=spec, scaled=False)[1].allowed == allowed


def test_pods_that_are_not_ready_or_are_being_deleted_are_not_healthy() -> None:
    conditions = [{"type": "Ready", "status": "False"}]
    unready = pod("unready", labels=X, on="a", status={"conditions": conditions})
    deleted = pod("deleted", labels=X, on="a", metadata={"deletionTimestamp": "2026-11-23T12:00:00Z"})
    budgets, one = built(*PODS, unready, deleted, spec={"minAvailable": 3})
    assert one.allowed == 1
    for each in (unready, deleted):
        budgets.count_running(bound(each), -1)
    assert one.allowed == 1


@pytest.mark.parametrize(
    ("spec", "status", "allowed", "one_ended"),
    [
        ({"minAvailable": 3}, {"disruptionsAllowed": 1}, 1, 0),
        ({"minAvailable": 1}, {"disruptionsAllowed": 0}, 0, 0),
        ({"minAvailable": 4}, {"disruptionsAllowed": 2}, 2, 1),
        ({"minAvailable": 6}, {"disruptionsAllowed": 0}, 0, 0),
        ({"maxUnavailable": 2}, {"disruptionsAllowed": 1, "expectedPods": 5}, 1, 0),
        ({"maxUnavailable": 1}, {"disruptionsAllowed": 3, "expectedPods": 0}, 3, 3),
        ({"maxUnavailable": 4}, {"conditions": [{"type": "DisruptionAllowed", "reason": "SyncFailed"}]}, 4, 3),
        (
            {"maxUnavailable": 4},
            {"disruptionsAllowed": 0, "conditions": [{"type": "DisruptionAllowed", "reason": "SyncFailed"}]},
            0,
            0,
        ),
    ],
)
def test_a_status_counts_until_pods_change(spec: Object, status: Object, allowed: int, one_ended: int) -> None:
    budgets, one = built(*PODS, spec=spec, status=status)
    assert one.allowed == allowed
    budgets.count_running(bound(PODS[0]), -1)
    assert one.allowed == one_ended
    budgets.count_running(bound(PODS[0]), 1)
    assert one.allowed == allowed


def test_a_budget_that_lacks_pods_allows_nothing_until_it_has_them() -> None:
    budgets, one = built(*PODS, spec={"minAvailable": 6}, status={"disruptionsAllowed": 0})
    allowed = []
    for number in range(4, 8):
        budgets.count_running(bound(pod(f"p{number}", labels=X)), 1)
        allowed.append(one.allowed)
    assert allowed == [0, 0, 1, 2]
