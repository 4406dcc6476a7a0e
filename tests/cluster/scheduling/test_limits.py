"""The limits of the scheduler's model: what it names, what it reads, and what large clusters cost."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.scheduling import amounts as looked_up
from rules_engine.cluster.scheduling import scheduler as limited
from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.cluster.scheduling.amounts import FreeAmounts
from rules_engine.language.cel import CostExceeded
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from tests.support.api import NOW, node, pod
from tests.support.scheduling import REQUIRED, scheduled, scheduler


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({}, ()),
        ({"schedulerName": "default-scheduler"}, ()),
        ({"schedulerName": "volcano"}, ("scheduler volcano",)),
        ({"volumes": [{"name": "a", "configMap": {"name": "x"}}]}, ()),
        ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "x"}}]}, ("persistent volume claims",)),
        ({"volumes": [{"name": "a", "ephemeral": {}}]}, ("persistent volume claims",)),
        ({"volumes": [{"name": "a", "csi": {"driver": "x"}}]}, ("limits of volumes",)),
        ({"hostUsers": False}, ()),
        ({"hostUsers": False, "hostNetwork": True}, ("features that nodes declare",)),
        (
            {"initContainers": [{"name": "i", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            ("features that nodes declare",),
        ),
    ],
)
def test_features_that_are_not_modelled_are_listed(spec: dict[str, Any], named: tuple[str, ...]) -> None:
    assert scheduled(pod(**spec), [node("a")]).not_modelled == named


def test_claims_for_extended_resources_are_named() -> None:
    claimed = pod() | {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "x"}}}
    assert scheduled(claimed, [node("a")]).not_modelled == ("a claim for extended resources that exists already",)


@pytest.mark.parametrize(("priority", "named"), [(0, True), (1, True), (2, False)], ids=["lower", "equal", "higher"])
def test_nominated_pods_of_equal_or_higher_priority_are_named(priority: int, named: bool) -> None:
    nominated = pod("n", priority=1) | {"status": {"nominatedNodeName": "a"}}
    model = scheduler([node("a")], [nominated])
    expected = ("pods that are nominated to nodes",) if named else ()
    assert model.explain(pod(priority=priority)).not_modelled == expected
    assert model.explain(nominated).not_modelled == ()


def test_namespace_selectors_are_named_if_namespaces_were_not_read() -> None:
    selecting = {"topologyKey": "x", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}}
    subject = pod(affinity={"podAffinity": {REQUIRED: [selecting]}})
    objects = ClusterObjects({"Node": [node("a")], "Pod": []}, absent=frozenset({"Namespace"}), now=NOW)
    assert scheduler_of(objects).explain(subject).not_modelled == (
        "namespace selectors, since no namespaces were read",
    )
    assert scheduler_of(objects).explain(pod()).not_modelled == ()
    assert scheduled(subject, [node("a")]).not_modelled == ()


@given(
    st.dictionaries(st.integers(0, 299), st.integers(-3, 60)),
    st.lists(st.one_of(st.integers(-5, 65), st.tuples(st.integers(0, 299), st.integers(-9, 9))), max_size=80),
)
def test_nodes_with_less_free_than_an_amount(free: dict[int, int], steps: list[int | tuple[int, int]]) -> None:
    amounts = FreeAmounts(dict(free), (1 << 300) - 1)
    for step in steps:
        if isinstance(step, int):
            assert amounts.below(step) == sum(1 << number for number in range(300) if free.get(number, 0) < step)
        else:
            number, by = step
            amounts.change(number, by)
            free[number] = free.get(number, 0) + by
            assert amounts.of(number) == free[number]


def test_amounts_are_dropped_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked_up, "MAX_CACHED", 3)
    amounts = FreeAmounts({0: 2}, 0b11)
    assert [amounts.below(amount) for amount in (1, 2, 3, 4, 2)] == [0b10, 0b10, 0b11, 0b11, 0b10]


def selecting(number: int) -> dict[str, Any]:
    """Return a selector unlike those of other numbers, which matches the labels a=b and c=d."""
    absent = {"key": f"x{number}", "operator": "DoesNotExist"}
    return {"topologyKey": "x", "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [absent]}}


def affine(number: int) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: [selecting(number)]}}}


def spread(number: int) -> dict[str, Any]:
    return {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selecting(number)}]}


@pytest.mark.parametrize("spec", [affine, spread, lambda _: {}], ids=["affinity", "spread", "anti-affinity of others"])
def test_labels_are_compared_up_to_a_bound(
    spec: Callable[[int], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "MAX_COMPARISONS", 8)
    term = {"topologyKey": "x", "labelSelector": {"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}}
    repelling: dict[str, Any] = {} if spec(0) else {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
    model = scheduler([node("a", labels={"x": "y"})], [pod("q", labels={"a": "b", "c": "d"}, on="a", **repelling)])
    answers = (model.explain(pod(labels={"e": "f"}, **spec(number))) for number in range(9))
    with pytest.raises(CostExceeded, match=r"^the cost limit of 8 for topology spread and pod affinity is used up$"):
        list(answers)
    if not repelling:
        # What was compared before costs nothing, and neither do other namespaces.
        assert model.explain(pod(labels={"e": "f"}, **spec(0))).feasible
        assert model.explain(pod(namespace="other", **spread(8))).feasible
