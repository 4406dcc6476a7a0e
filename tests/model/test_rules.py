"""Rules, selectors and clusters: Kubernetes' meanings and the documented defaults."""

import pytest

from rules_engine.cluster.nodes import NodeFilter, Offered
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster, Freshness
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.rule import ConditionKind as Kind
from rules_engine.model.rules.rule import FailurePolicy, LabelRequirement, LabelSelector, Match, Mode, Operation, OptOut
from rules_engine.model.rules.rule_test import Case, Expectation
from rules_engine.rules.injection.value import OnConflict
from rules_engine.rules.ladder.value import Counts, Direction, WhenExhausted
from rules_engine.rules.validation.value import Reason, ValidationAction
from tests.support.evaluation import GPU, HERE, entry, injection, ladder, node, validation


@pytest.mark.parametrize(
    ("operator", "values", "matching"),
    [
        (Kind.IN, ("a", "b"), {"a", "b"}),
        (Kind.NOT_IN, ("a", "b"), {"c", None}),
        (Kind.EXISTS, (), {"a", "b", "c"}),
        (Kind.DOES_NOT_EXIST, (), {None}),
        (Kind.IN, (), set()),
    ],
)
def test_selector_operators_match_labels(operator: Kind, values: tuple[str, ...], matching: set[str | None]) -> None:
    selector = LabelSelector((LabelRequirement("k", operator, values),))
    cases: dict[str | None, dict[str, str]] = {None: {"other": "a"}, **{value: {"k": value} for value in "abc"}}
    assert {value for value, labels in cases.items() if selector.matches(labels)} == matching


def test_all_requirements_must_hold_and_an_empty_selector_matches() -> None:
    both = LabelSelector((LabelRequirement("a", Kind.EXISTS), LabelRequirement("b", Kind.EXISTS)))
    assert both.matches({"a": "", "b": ""})
    assert not both.matches({"a": ""})
    assert LabelSelector().matches({})
    assert both
    assert not LabelSelector()


def test_rules_are_ordered_by_priority_then_name() -> None:
    rules = [ladder(GPU, name="b"), ladder(GPU, name="a"), ladder(GPU, name="c", priority=1)]
    assert [rule.name for rule in sorted(rules, key=lambda rule: rule.order)] == ["c", "a", "b"]


def test_the_id_of_a_rule_is_kind_and_name() -> None:
    assert [ladder(GPU).id, injection().id, validation("true").id] == [
        "FallbackLadder/ladder",
        "ResourceInjection/injection",
        "Validation/validation",
    ]


def test_the_defaults_of_a_ladder() -> None:
    rule = ladder(GPU)
    assert (rule.mode, rule.priority, rule.failure_policy, rule.opt_out) == (
        Mode.ENFORCE,
        0,
        FailurePolicy.FAIL,
        OptOut.ALLOWED,
    )
    assert (rule.offered, rule.nodes, rule.direction, rule.counts, rule.when_exhausted, rule.annotation) == (
        Offered.ALLOCATABLE,
        NodeFilter(),
        Direction.DOWN,
        Counts.KEEP,
        WhenExhausted.KEEP,
        "gpurules.io/fallback",
    )
    assert rule.match == Match(namespaces=("*",), exclude_namespaces=(), operations=(Operation.CREATE,))


def test_the_defaults_of_an_injection() -> None:
    rule = injection()
    assert (rule.opt_out, rule.gpu_type_annotation, rule.gpu_resource, rule.on_conflict) == (
        OptOut.ALLOWED,
        "task.bkbcs.tencent.com/gpu-type",
        "nvidia.com/gpu",
        OnConflict.OVERWRITE,
    )


def test_the_defaults_of_a_validation() -> None:
    rule = validation("true")
    assert (rule.opt_out, rule.validation_actions) == (OptOut.FORBIDDEN, frozenset({ValidationAction.DENY}))
    assert rule.validations[0].reason is Reason.INVALID


def test_the_defaults_of_a_case() -> None:
    case = Case(name="c", location=HERE, pod={}, expect=Expectation(location=HERE))
    assert (case.namespace, case.operation, case.dry_run, case.old_pod) == ("default", "CREATE", False, None)
    assert (case.expect.allowed, case.expect.decided_by) == (None, None)


def test_an_entry_is_empty_only_without_coefficients_and_annotations() -> None:
    assert not entry()
    assert entry({"cpu": 0})
    assert entry(annotations={"a": ""})


def test_the_available_amount_may_be_negative() -> None:
    made = node("n", {"a": 4, "b": 1}, used={"a": 1, "c": 2})
    assert [str(made.available(name)) for name in "abcd"] == ["3", "1", "-2", "0"]
    assert made.available("a") == Quantity.of(3)


def test_only_a_synced_cluster_is_known() -> None:
    assert Cluster().known
    assert not Cluster(freshness=Freshness.STALE).known
    assert not UNKNOWN_CLUSTER.known
    assert UNKNOWN_CLUSTER.namespace_labels("a") is None


def test_the_labels_of_namespaces() -> None:
    listed = Cluster(namespaces={"a": {"x": "y"}})
    assert listed.namespace_labels("a") == {"x": "y", "kubernetes.io/metadata.name": "a"}
    assert listed.namespace_labels("b") == {"kubernetes.io/metadata.name": "b"}
    live = Cluster(namespaces={"a": {"x": "y"}}, namespaces_complete=False)
    assert live.namespace_labels("a") == {"x": "y", "kubernetes.io/metadata.name": "a"}
    assert live.namespace_labels("b") is None
