"""Index of rules: it finds every rule that contributes to a decision."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Action, Decision, Step
from rules_engine.model.rules.rule import (
    SKIP_ANNOTATION,
    ConditionKind,
    FailurePolicy,
    LabelRequirement,
    LabelSelector,
    Match,
    Mode,
    NamedExpression,
    Operation,
    OptOut,
    Rule,
)
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.validation.value import ValidationAction
from tests.support.evaluation import (
    asks,
    cel,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    pod,
    request,
    rung,
    validation,
)
from tests.support.laws import clusters, injections, ladders, pods

TYPES = ("V100", "T4")
GPU_TYPE = "gpu-type"
FALLBACK = "gpurules.io/fallback"

_NAMESPACES = st.sampled_from([("*",), ("ml",), ("prod", "m?"), ("prod",), ("p*", "ml")])
_REQUIREMENTS = st.builds(
    LabelRequirement,
    st.sampled_from(["team", "tier"]),
    st.sampled_from(ConditionKind),
    st.sampled_from([("a",), ("a", "b")]),
)


@st.composite
def matches(draw: st.DrawFn, operations: tuple[Operation, ...] = (Operation.CREATE,)) -> Match:
    selector = LabelSelector(tuple(draw(st.lists(_REQUIREMENTS, max_size=2))))
    return Match(
        namespaces=draw(_NAMESPACES),
        exclude_namespaces=draw(st.sampled_from([(), (), ("ml",), ("p*",)])),
        object_selector=draw(st.sampled_from([LabelSelector(), selector])),
        namespace_selector=draw(st.sampled_from([LabelSelector()] * 4 + [selector])),
        operations=operations,
    )


_CONDITIONS = st.sampled_from(
    [
        {},
        {},
        {"true": "true"},
        {"false": "false"},
        {"fails": "1 / 0 == 1"},
        {"needs-namespace": "namespaceObject.metadata.name == 'ml'"},
    ]
)


@st.composite
def common(draw: st.DrawFn, /, **fields: Any) -> dict[str, Any]:
    """Fields of every kind of rule; `fields` override them."""
    return {
        "match": draw(matches()),
        "priority": draw(st.integers(0, 1)),
        "mode": draw(st.sampled_from([Mode.ENFORCE] * 4 + [Mode.AUDIT])),
        "match_conditions": draw(_CONDITIONS),
        "failure_policy": draw(st.sampled_from(FailurePolicy)),
        "opt_out": draw(st.sampled_from(OptOut)),
        **fields,
    }


def a_ladder(draw: st.DrawFn, name: str) -> Rule:
    fields = draw(common())
    made = draw(
        ladders(
            name,
            mode=fields["mode"],
            priority=fields["priority"],
            annotation=draw(st.sampled_from([FALLBACK, GPU_TYPE])),
        )
    )
    conditions = tuple(NamedExpression(key, cel(text)) for key, text in fields.pop("match_conditions").items())
    return replace(made, match_conditions=conditions, **fields)


def an_injection(draw: st.DrawFn, name: str) -> Rule:
    fields = draw(common())
    conditions = tuple(NamedExpression(key, cel(text)) for key, text in fields.pop("match_conditions").items())
    kind = draw(st.sampled_from([None, *TYPES, "mig-3g->mig-1g"]))
    made = draw(injections(name))
    return replace(made, match_conditions=conditions, gpu_type=kind, gpu_type_annotation=GPU_TYPE, **fields)


def a_validation(draw: st.DrawFn, name: str) -> Rule:
    operations = draw(st.sampled_from([(Operation.CREATE,), (Operation.UPDATE,), (Operation.CREATE, Operation.UPDATE)]))
    fields = draw(common(match=draw(matches(operations))))
    expression = draw(st.sampled_from(["true", "false", "1 / 0 == 1", "object == null"]))
    actions = draw(st.sampled_from([{ValidationAction.DENY}, {ValidationAction.WARN, ValidationAction.AUDIT}]))
    return validation(expression, name=name, validation_actions=frozenset(actions), **fields)


@st.composite
def rule_sets(draw: st.DrawFn) -> RuleSet:
    """A few rules of each kind, with all criteria of the index, and with conditions that fail."""
    makers = (a_ladder, an_injection, a_validation)
    rules = [make(draw, f"{make.__name__}-{n}") for make in makers for n in range(draw(st.integers(0, 4)))]
    rule_set, problems = compile_rules(rules)
    assert not problems
    return rule_set


@st.composite
def requests(draw: st.DrawFn) -> AdmissionRequest:
    made: Any = draw(pods())
    annotations = draw(
        st.fixed_dictionaries(
            {}, optional={GPU_TYPE: st.sampled_from(TYPES), SKIP_ANNOTATION: st.just("true"), "other": st.just("x")}
        )
    )
    made["metadata"]["annotations"] = annotations
    made["metadata"]["labels"] = draw(
        st.dictionaries(st.sampled_from(["team", "tier"]), st.sampled_from("abc"), max_size=2)
    )
    if draw(st.booleans()):
        made["metadata"]["namespace"] = "prod"
    return request(
        made,
        namespace=draw(st.sampled_from(["ml", "prod", "else"])),
        operation=draw(st.sampled_from(["CREATE", "CREATE", "UPDATE", "DELETE"])),
    )


def outcome(decision: Decision) -> tuple[Any, ...]:
    """A decision without the steps of skipped rules."""
    return (
        decision.allowed,
        decision.status,
        decision.patch,
        decision.warnings,
        dict(decision.audit_annotations),
        decision.result,
        evaluated_steps(decision),
    )


def evaluated_steps(decision: Decision) -> list[Step]:
    return [step for step in decision.trace if step.action is not Action.SKIP]


@given(rule_sets(), requests(), clusters(), st.booleans())
def test_the_index_removes_only_steps_of_skipped_rules(
    rule_set: RuleSet, request: AdmissionRequest, around: Cluster, complete: bool
) -> None:
    on = replace(around, namespaces_complete=complete)
    for decide in (RuleSet.mutate, RuleSet.validate):
        whole, indexed = decide(rule_set, request, on), decide(rule_set, request, on, indexed=True)
        assert outcome(indexed) == outcome(whole)
        left = [step for step in indexed.trace if step.action is Action.SKIP]
        assert all(step in whole.trace for step in left)


def met(rule_set: RuleSet, made: Any, namespace: str = "ml", operation: str = "CREATE") -> set[str]:
    context = (Pod.parse(made), namespace, operation)
    return {item.rule.name for group in rule_set.kinds for item in group.index.candidates(*context)}


def test_a_pod_matches_few_of_a_thousand_rules() -> None:
    rules: list[Rule] = []
    for n in range(250):
        only = Match(namespaces=(f"ns-{n}",))
        rules += [
            ladder(f"vendor.com/a-{n}", f"vendor.com/b-{n}", name=f"resource-{n}"),
            injection({"cpu": "1"}, name=f"type-{n}", gpu_type=f"T{n}"),
            validation("true", name=f"namespace-{n}", match=only),
            ladder("nvidia.com/gpu", name=f"both-{n}", match=only),
        ]
    made = pod(
        container(both={"nvidia.com/gpu": 1, "vendor.com/b-7": 1}),
        annotations={"task.bkbcs.tencent.com/gpu-type": "T3"},
    )
    assert met(compiled(*rules), made, "ns-5") == {"resource-7", "type-3", "namespace-5", "both-5"}
    steps = compiled(*rules).mutate(request(made, namespace="ns-5"), cluster(), indexed=True).trace
    assert [step.rule.partition("/")[2] for step in steps] == ["both-5", "resource-7", "type-3"]


def test_rules_are_found_in_the_order_of_evaluation() -> None:
    rules = [validation("false", name=f"v{n}", priority=n % 3) for n in range(9)]
    whole = compiled(*rules).validate(request(pod(container())), cluster())
    indexed = compiled(*rules).validate(request(pod(container())), cluster(), indexed=True)
    assert indexed.trace == whole.trace
    assert len(indexed.trace) == 9


def test_globs_and_exclusions_of_namespaces_count() -> None:
    rules = compiled(
        validation("true", name="glob", match=Match(namespaces=("team-*",))),
        validation("true", name="excluded", match=Match(exclude_namespaces=("team-a", "kube-*"))),
    )
    assert met(rules, pod(container()), "team-a") == {"glob"}
    assert met(rules, pod(container()), "team-b") == {"glob", "excluded"}
    assert met(rules, pod(container()), "kube-system") == set()


def test_labels_that_a_rule_requires_must_be_present() -> None:
    def selecting(name: str, *requirements: LabelRequirement) -> Rule:
        return validation("true", name=name, match=Match(object_selector=LabelSelector(requirements)))

    rules = compiled(
        selecting("in", LabelRequirement("team", ConditionKind.IN, ("a", "b"))),
        selecting("exists", LabelRequirement("team", ConditionKind.EXISTS)),
        selecting("not-in", LabelRequirement("team", ConditionKind.NOT_IN, ("a",))),
        selecting("absent", LabelRequirement("team", ConditionKind.DOES_NOT_EXIST)),
    )
    # Whether a label must not be there, the rule itself finds out.
    assert met(rules, pod(container(), labels={"team": "b"})) == {"in", "exists", "not-in", "absent"}
    assert met(rules, pod(container(), labels={"team": "z"})) == {"exists", "not-in", "absent"}
    assert met(rules, pod(container())) == {"not-in", "absent"}


def test_validations_are_found_at_their_operations() -> None:
    rules = compiled(
        validation("true", name="create"),
        validation("true", name="update", match=Match(operations=(Operation.UPDATE,))),
    )
    assert met(rules, pod(container())) == {"create"}
    assert met(rules, pod(container()), operation="UPDATE") == {"update"}
    assert rules.validated_operations == {"CREATE", "UPDATE"}


def test_a_rule_whose_conditions_can_fail_is_always_evaluated() -> None:
    failing = {"fails": "1 / 0 == 1"}
    for rule in (
        ladder("vendor.com/a", match_conditions=failing),
        injection({"cpu": "1"}, match_conditions=failing),
        injection(
            {"cpu": "1"}, match=Match(namespace_selector=LabelSelector((LabelRequirement("a", ConditionKind.EXISTS),)))
        ),
    ):
        on = cluster(namespaces_complete=False)
        decision = compiled(rule).mutate(request(asks({"cpu": 1})), on, indexed=True)
        assert not decision.allowed


def test_a_ladder_with_the_target_as_a_rung_is_evaluated_too() -> None:
    # What the first ladder gives, the one before it would move on at the next admission: so it must not be given.
    rules = compiled(
        ladder("vendor.com/b", "vendor.com/c", name="before", priority=1),
        ladder("vendor.com/a", rung("vendor.com/b", assume=True), name="gives"),
    )
    on = cluster({"vendor.com/c": 1})
    [step] = evaluated_steps(rules.mutate(request(asks({"vendor.com/a": 1})), on, indexed=True))
    assert (step.rule, step.reason) == ("FallbackLadder/gives", "exhausted")


def test_injections_are_found_by_the_result_of_the_ladders() -> None:
    rules = compiled(
        ladder("nvidia.com/mig-3g", "nvidia.com/gpu"),
        injection({"cpu": "4"}, gpu_type=None),
        injection({"cpu": "4"}, gpu_type=None, gpu_resource="nvidia.com/mig-3g", name="left"),
    )
    decision = rules.mutate(request(asks({"nvidia.com/mig-3g": 1})), cluster({"nvidia.com/gpu": 1}), indexed=True)
    assert [step.rule for step in decision.trace] == ["FallbackLadder/ladder", "ResourceInjection/injection"]
