"""Evaluation rules common to all kinds, sentence by sentence."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.cel import Budget
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Freshness
from rules_engine.model.rules.admission import GroupVersionKind
from rules_engine.model.rules.decision import Action, Decision
from rules_engine.model.rules.rule import (
    ConditionKind,
    FailurePolicy,
    LabelRequirement,
    LabelSelector,
    Match,
    Mode,
    OptOut,
    Rule,
)
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.applicability import MAX_CONTAINERS
from rules_engine.rules.evaluation.steps import MAX_PATCH_BYTES
from rules_engine.rules.rule_set import globs
from rules_engine.rules.rule_set.context import ClusterFunctions
from tests.support.evaluation import (
    GPU,
    MIG1,
    MIG2,
    MIG3,
    asks,
    check,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    mutated,
    node,
    pod,
    request,
    resources,
    rung,
    validated,
    validation,
)

Build = Callable[..., Rule]


def falls(**fields: Any) -> Rule:
    return ladder(MIG2, rung(GPU, assume=True), **fields)


def brings(**fields: Any) -> Rule:
    return injection({"cpu": 1}, gpu_type=None, gpu_resource=MIG2, **fields)


def forbids(**fields: Any) -> Rule:
    return validation(check("false", "no"), **fields)


KINDS = pytest.mark.parametrize("build", [falls, brings, forbids])


def decide(rule: Rule, made: Any = None, **fields: Any) -> Decision:
    endpoint = validated if rule.kind == "Validation" else mutated
    return endpoint(asks({MIG2: 1}) if made is None else made, rule, **fields)


def applied(decision: Decision) -> bool:
    """Return True if the rule had its effect."""
    return decision.trace[0].action in (Action.CHANGE, Action.DENY)


def selector(key: str, *values: str) -> LabelSelector:
    kind = ConditionKind.IN if values else ConditionKind.EXISTS
    return LabelSelector((LabelRequirement(key, kind, values),))


@KINDS
class TestMatch:
    def test_everything_by_default(self, build: Build) -> None:
        assert applied(decide(build(), namespace="anything"))

    @pytest.mark.parametrize(
        ("patterns", "namespace", "yes"),
        [
            (("ml",), "ml", True),
            (("ml",), "mlx", False),
            (("a", "ml"), "ml", True),
            (("ml-*",), "ml-a", True),
            (("ml-*",), "ml", False),
            (("ml-?",), "ml-a", True),
            (("ml-?",), "ml-ab", False),
            ((), "ml", False),
        ],
    )
    def test_namespaces_are_exact_names_or_globs(
        self, build: Build, patterns: tuple[str, ...], namespace: str, yes: bool
    ) -> None:
        decision = decide(build(match=Match(namespaces=patterns)), namespace=namespace)
        assert applied(decision) == yes
        if not yes:
            assert (decision.trace[0].action, decision.trace[0].reason) == (Action.SKIP, "namespace")

    def test_excluded_namespaces(self, build: Build) -> None:
        rule = build(match=Match(exclude_namespaces=("kube-*", "x")))
        assert not applied(decide(rule, namespace="kube-system"))
        assert applied(decide(rule, namespace="ml"))

    def test_the_labels_of_the_namespace(self, build: Build) -> None:
        rule = build(match=Match(namespace_selector=selector("team", "ml")))
        on = cluster(namespaces={"a": {"team": "ml"}, "b": {"team": "web"}})
        assert applied(decide(rule, namespace="a", on=on))
        assert decide(rule, namespace="b", on=on).trace[0].reason == "namespace-selector"

    def test_the_name_label_of_a_namespace_always_exists(self, build: Build) -> None:
        rule = build(match=Match(namespace_selector=selector("kubernetes.io/metadata.name", "a")))
        for namespaces in ({}, {"a": {"x": "y"}}, {"a": {"kubernetes.io/metadata.name": "wrong"}}):
            assert applied(decide(rule, namespace="a", on=cluster(namespaces=namespaces)))
        assert not applied(decide(rule, namespace="b"))

    def test_a_namespace_that_a_file_does_not_list_has_no_other_labels(self, build: Build) -> None:
        assert not applied(decide(build(match=Match(namespace_selector=selector("team")))))

    def test_a_selector_of_an_unknown_live_namespace_is_an_error(self, build: Build) -> None:
        on = cluster(namespaces_complete=False)
        rule = build(match=Match(namespace_selector=selector("team")))
        decision = decide(rule, on=on)
        assert (decision.allowed, decision.trace[0].reason) == (False, "evaluation-error")
        assert "namespace 'ml' not found" in decision.trace[0].message
        assert applied(decide(build(), on=on))

    def test_an_unknown_live_namespace_is_no_error_otherwise(self, build: Build) -> None:
        on = cluster(namespaces_complete=False)
        elsewhere = Match(namespaces=("x",), namespace_selector=selector("team"))
        other_pods = Match(object_selector=selector("app"), namespace_selector=selector("team"))
        assert decide(build(match=elsewhere), on=on).trace[0].reason == "namespace"
        assert decide(build(match=other_pods), on=on).trace[0].reason == "object-selector"

    def test_reading_an_unknown_live_namespace_in_cel_is_an_error(self, build: Build) -> None:
        on = cluster(namespaces_complete=False)
        needs = {"a": "namespaceObject.metadata.name == 'ml'"}
        assert decide(build(match_conditions=needs), on=on).trace[0].reason == "evaluation-error"
        unread = {"a": "true || namespaceObject.metadata.name == 'ml'"}
        assert applied(decide(build(match_conditions=unread), on=on))

    def test_the_labels_of_the_pod(self, build: Build) -> None:
        rule = build(match=Match(object_selector=selector("app", "x")))
        assert applied(decide(rule, asks({MIG2: 1}, labels={"app": "x"})))
        assert decide(rule, asks({MIG2: 1}, labels={"app": "y"})).trace[0].reason == "object-selector"
        assert not applied(decide(rule))

    def test_null_labels_are_no_labels(self, build: Build) -> None:
        made = asks({MIG2: 1})
        made["metadata"] = {"labels": None, "annotations": None}
        assert not applied(decide(build(match=Match(object_selector=selector("app"))), made))


@KINDS
class TestMatchConditions:
    def test_all_must_hold(self, build: Build) -> None:
        assert applied(decide(build(match_conditions={"a": "true", "b": "object.metadata.name == 'job'"})))
        decision = decide(build(match_conditions={"a": "true", "b": "false"}))
        assert (decision.trace[0].action, decision.trace[0].reason) == (Action.SKIP, "condition")
        assert decision.trace[0].message == "the match condition b is false"

    @pytest.mark.parametrize("order", [("bad", "no"), ("no", "bad")])
    def test_one_that_is_false_skips_the_rule_even_if_another_errors(
        self, build: Build, order: tuple[str, str]
    ) -> None:
        texts = {"bad": "1 / 0 == 1", "no": "false"}
        decision = decide(build(match_conditions={name: texts[name] for name in order}))
        assert decision.trace[0].reason == "condition"
        assert decision.allowed

    def test_an_error_denies_with_500_where_the_failure_policy_is_fail(self, build: Build) -> None:
        decision = decide(build(match_conditions={"ok": "true", "bad": "1 / 0 == 1"}))
        assert decision.status is not None
        assert (decision.allowed, decision.status.code, decision.patch) == (False, 500, ())

    def test_an_error_undoes_the_rule_with_a_warning_where_it_is_ignore(self, build: Build) -> None:
        rule = build(match_conditions={"bad": "1 / 0 == 1"}, failure_policy=FailurePolicy.IGNORE)
        decision = decide(rule)
        assert (decision.allowed, decision.patch, decision.trace[0].action) == (True, (), Action.IGNORE)
        assert decision.warnings[0].startswith(f"{rule.id} was ignored: <expression>:1:1: ")

    def test_the_first_error_is_reported(self, build: Build) -> None:
        decision = decide(build(match_conditions={"a": "1 / 0 == 1", "b": "[1][5] == 1"}))
        assert decision.status is not None
        assert "division by zero" in decision.status.message.lower()

    def test_a_value_other_than_a_bool_is_an_error(self, build: Build) -> None:
        assert decide(build(match_conditions={"a": "dyn(1)"})).trace[0].reason == "evaluation-error"

    def test_variables_are_lazy(self, build: Build) -> None:
        rule = build(variables={"bad": "1 / 0", "good": "1"}, match_conditions={"a": "variables.good == 1"})
        assert applied(decide(rule))

    def test_variables_see_those_before_them(self, build: Build) -> None:
        rule = build(variables={"a": "1", "b": "variables.a + 1"}, match_conditions={"c": "variables.b == 2"})
        assert applied(decide(rule))

    def test_a_variable_that_fails_fails_wherever_it_is_read(self, build: Build) -> None:
        conditions = {"a": "variables.bad == 1", "b": "variables.bad == 1"}
        rule = build(variables={"bad": "1 / 0"}, match_conditions=conditions)
        assert decide(rule).trace[0].reason == "evaluation-error"

    def test_an_absorbed_error_is_none(self, build: Build) -> None:
        assert applied(decide(build(match_conditions={"a": "1 / 0 == 1 || true"})))


def test_variables_are_evaluated_once_a_request() -> None:
    """Otherwise the thirtieth of Fibonacci's numbers would cost a million."""
    sums = {f"v{n + 2}": f"variables.v{n} + variables.v{n + 1}" for n in range(30)}
    first = {"v0": "object.spec.containers.size() - 1", "v1": "object.spec.containers.size()"}
    rule = falls(variables={**first, **sums}, match_conditions={"a": "variables.v30 == 832040"})
    assert decide(rule).trace[0].action is Action.CHANGE


def test_variables_fail_once_a_request() -> None:
    either = {f"v{n + 2}": f"variables.v{n} || variables.v{n + 1}" for n in range(30)}
    bad = "1 / (object.spec.containers.size() - 1) == 1"
    rule = falls(variables={"v0": bad, "v1": bad, **either}, match_conditions={"a": "variables.v30"})
    assert "division by zero" in decide(rule).trace[0].message


class TestWhatCelSees:
    @pytest.mark.parametrize(
        "expression",
        [
            "object.spec.containers[0].name == 'main'",
            "oldObject == null",
            "request.operation == 'CREATE' && request.namespace == 'ml' && request.dryRun == false",
            "namespaceObject.metadata.labels['team'] == 'ml'",
            "namespaceObject.metadata.name == 'ml'",
            "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'ml'",
            "params.limit == 3 && params.names[0] == 'a'",
            "variables.x == 1",
            "variables == {'x': 1}",
            f"cluster.allocatable('{GPU}') == 4",
            f"cluster.available('{GPU}') == 3",
            f"cluster.total('{GPU}') == 6",
            "cluster.total('nobody/has') == 0",
        ],
    )
    @KINDS
    def test_the_variables_of_kubernetes_policies_and_the_cluster(self, build: Build, expression: str) -> None:
        on = cluster(node("a", {GPU: 4}, used={GPU: 1}), {GPU: 2}, {"cpu": 1}, namespaces={"ml": {"team": "ml"}})
        rule = build(params={"limit": 3, "names": ["a"]}, variables={"x": "1"}, match_conditions={"a": expression})
        assert applied(decide(rule, on=on))

    @pytest.mark.parametrize("call", ["allocatable", "available", "total"])
    @pytest.mark.parametrize(
        ("freshness", "why"), [(Freshness.NEVER, "it has not been read yet"), (Freshness.STALE, "its view is stale")]
    )
    def test_without_cluster_knowledge_they_are_evaluation_errors(
        self, call: str, freshness: Freshness, why: str
    ) -> None:
        rule = forbids(match_conditions={"a": f"cluster.{call}('{GPU}') >= 0"})
        decision = decide(rule, on=cluster({GPU: 1}, freshness=freshness))
        assert decision.trace[0].reason == "evaluation-error"
        assert f"the cluster is not known: {why}" in decision.trace[0].message

    @pytest.mark.parametrize("unread", ["", GPU])
    def test_amounts_that_drivers_may_serve_are_unknown_if_their_devices_are_not_read(self, unread: str) -> None:
        on = cluster({GPU: 1, "cpu": 4}, unread=frozenset([unread]))
        rule = forbids(match_conditions={"a": f"cluster.total('{GPU}') >= 0"})
        decision = decide(rule, on=on)
        assert decision.trace[0].reason == "evaluation-error"
        assert f"it is not known what drivers offer of {GPU}" in decision.trace[0].message
        assert ClusterFunctions(on).total("cpu") == 4

    def test_amounts_are_rounded_down_and_zero_without_nodes(self) -> None:
        functions = ClusterFunctions(cluster({"cpu": "1900m"}, {"cpu": "600m"}))
        assert (functions.allocatable("cpu"), functions.available("cpu"), functions.total("cpu")) == (1, 1, 2)
        nothing = ClusterFunctions(cluster())
        assert (nothing.allocatable("cpu"), nothing.available("cpu"), nothing.total("cpu")) == (0, 0, 0)

    def test_later_rules_see_the_changes_of_earlier_ones(self) -> None:
        sees = {"a": f"'{GPU}' in object.spec.containers[0].resources.limits"}
        rules = (falls(name="a"), ladder(GPU, MIG1, name="b", match_conditions=sees))
        assert mutated(asks({MIG2: 1}), *rules).trace[1].reason == "already-decided"
        rule = injection({"cpu": 1}, gpu_type=None, match_conditions=sees)
        assert resources(mutated(asks({MIG2: 1}), falls(), rule))["limits"] == {GPU: "1", "cpu": "1"}

    def test_the_cost_of_audit_mode_fails_no_rule_that_enforces(self) -> None:
        ten = "[1,2,3,4,5,6,7,8,9,10]"
        nested = f"{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.all(d, {ten}.all(e, true)))))"
        costly = [forbids(name=f"a{n}", mode=Mode.AUDIT, match_conditions={"a": f"!({nested})"}) for n in range(30)]
        decision = validated(asks({GPU: 1}), *costly, validation("true", name="z"))
        assert decision.trace[-2].reason == "evaluation-error"
        assert decision.trace[-1].action is Action.PASS

    def test_all_expressions_of_a_request_share_one_bound_on_cost(self) -> None:
        costly = "[1,2,3,4,5,6,7,8,9,10]"
        nested = f"{costly}.all(a, {costly}.all(b, {costly}.all(c, {costly}.all(d, {costly}.all(e, true)))))"
        rules = [forbids(name=f"v{n}", match_conditions={"a": f"!({nested})"}) for n in range(30)]
        decision = validated(asks({GPU: 1}), *rules)
        reasons = [step.reason for step in decision.trace]
        assert reasons[0] == "condition"
        assert reasons[-1] == "evaluation-error"
        assert not decision.allowed
        assert str(Budget().limit) in decision.trace[-1].message


@KINDS
class TestModes:
    def test_off_does_not_exist_for_requests(self, build: Build) -> None:
        decision = decide(build(mode=Mode.OFF))
        assert (decision.allowed, decision.patch, decision.trace) == (True, (), ())

    def test_audit_computes_the_step_records_it_and_does_nothing(self, build: Build) -> None:
        rule = build(mode=Mode.AUDIT)
        decision = decide(rule)
        assert applied(decision)
        assert (decision.allowed, decision.patch, decision.warnings) == (True, (), ())
        assert list(decision.audit_annotations) == [rule.id.replace("/", ".").lower()]
        assert decision.trace[0].audit
        assert not decision.trace[0].decides

    def test_audit_records_an_error_and_denies_nothing(self, build: Build) -> None:
        for policy in FailurePolicy:
            rule = build(mode=Mode.AUDIT, match_conditions={"a": "1 / 0 == 1"}, failure_policy=policy)
            decision = decide(rule)
            assert (decision.allowed, decision.patch, decision.warnings) == (True, (), ())
            assert len(decision.audit_annotations) == 1

    def test_audit_records_no_skip(self, build: Build) -> None:
        assert decide(build(mode=Mode.AUDIT, match_conditions={"a": "false"})).audit_annotations == {}


@KINDS
class TestOptOut:
    SKIP = asks({MIG2: 1}, annotations={"gpurules.io/skip": "true"})

    def test_a_skip_by_annotation_is_a_step(self, build: Build) -> None:
        decision = decide(build(opt_out=OptOut.ALLOWED), self.SKIP)
        assert (decision.allowed, decision.patch, decision.warnings) == (True, (), ())
        assert (decision.trace[0].action, decision.trace[0].reason) == (Action.SKIP, "opt-out")

    def test_a_forbidden_opt_out_has_no_effect_but_a_warning(self, build: Build) -> None:
        rule = build(opt_out=OptOut.FORBIDDEN)
        decision = decide(rule, self.SKIP)
        assert applied(decision)
        assert f"{rule.id} cannot be skipped by the annotation gpurules.io/skip" in decision.warnings

    @pytest.mark.parametrize("value", ["True", "yes", "1", "", " true", None])
    def test_only_true_opts_out(self, build: Build, value: str | None) -> None:
        made = asks({MIG2: 1}, annotations={"gpurules.io/skip": value})
        for opt_out in OptOut:
            decision = decide(build(opt_out=opt_out), made)
            assert applied(decision)
            assert 'the annotation gpurules.io/skip has no effect: its value must be "true"' in decision.warnings

    def test_another_value_causes_one_warning_if_a_rule_applies(self, build: Build) -> None:
        made = asks({MIG2: 1}, annotations={"gpurules.io/skip": "True"})
        rules = [build(name=name, match=Match(object_selector=LabelSelector())) for name in "ab"]
        for endpoint in (mutated, validated):
            assert len([text for text in endpoint(made, *rules).warnings if "no effect" in text]) <= 1
        assert decide(build(match=Match(namespaces=("other",))), made).warnings == ()

    def test_it_comes_before_the_match_conditions_and_saves_them(self, build: Build) -> None:
        rule = build(opt_out=OptOut.ALLOWED, match_conditions={"a": "1 / 0 == 1"})
        assert decide(rule, self.SKIP).trace[0].reason == "opt-out"

    def test_no_skip_is_counted_where_the_rule_does_not_match(self, build: Build) -> None:
        rule = build(opt_out=OptOut.ALLOWED, match=Match(namespaces=("other",)))
        assert decide(rule, self.SKIP).trace[0].reason == "namespace"


def test_rules_that_fail_and_are_ignored_are_undone() -> None:
    # 1g has moved to gpu when the condition of 2g fails.
    made = pod(container("a", {MIG3: 1}), container("b", {MIG1: 1}))
    rule = ladder(MIG3, rung(MIG2, when="1 / 0 == 1"), MIG1, GPU, failure_policy=FailurePolicy.IGNORE)
    decision = mutated(made, rule, on=cluster({GPU: 1}))
    assert (decision.allowed, decision.patch) == (True, ())
    assert decision.trace[0].action is Action.IGNORE
    assert decision.trace[0].resources == ()


def test_a_denial_of_one_rule_leaves_no_patch_of_another() -> None:
    rules = (falls(), injection({"cpu": 1}, gpu_type=None, name="i"))
    made = pod(container("main", {MIG2: 1}), container("big", {"cpu": 99}))
    decision = mutated(made, *rules)
    assert (decision.allowed, decision.patch, decision.result) == (False, (), made)
    assert [step.action for step in decision.trace] == [Action.CHANGE, Action.DENY]


class TestWhatIsDecided:
    @pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
    def test_pods_are_mutated_at_create_only(self, operation: str) -> None:
        decision = mutated(asks({MIG2: 1}), falls(), operation=operation)
        assert (decision.allowed, decision.patch, decision.trace) == (True, (), ())

    @KINDS
    @pytest.mark.parametrize(
        "fields",
        [
            {"sub_resource": "status"},
            {"sub_resource": "ephemeralcontainers"},
            {"sub_resource": "resize"},
            {"sub_resource": "binding", "kind": GroupVersionKind(version="v1", kind="Binding")},
            {"kind": GroupVersionKind(group="apps", version="v1", kind="Deployment")},
            {"kind": GroupVersionKind(group="example.com", version="v1", kind="Pod")},
            {"kind": GroupVersionKind(version="v1", kind="PodTemplate")},
            {"kind": GroupVersionKind(version="v1", kind="pod")},
        ],
    )
    def test_only_pods_without_subresource_are_decided(self, build: Build, fields: dict[str, Any]) -> None:
        decision = decide(build(), **fields)
        assert (decision.allowed, decision.patch, decision.trace) == (True, (), ())

    @KINDS
    def test_what_is_not_decided_need_not_be_a_pod(self, build: Build) -> None:
        wrong: list[Any] = ["text", [], {"spec": 5}]
        for made in wrong:
            assert decide(build(), made, kind=GroupVersionKind(version="v1", kind="Deployment")).allowed

    @KINDS
    def test_dry_run_is_decided_the_same(self, build: Build) -> None:
        wet, dry = decide(build()), decide(build(), dry_run=True)
        assert (wet.patch, wet.trace, wet.allowed) == (dry.patch, dry.trace, dry.allowed)

    @KINDS
    def test_a_pod_of_a_controller_has_no_name_and_namespace_yet(self, build: Build) -> None:
        made = asks({MIG2: 1})
        made["metadata"] = {"generateName": "job-"}
        rule = build(match=Match(namespaces=("ml",)))
        assert applied(decide(rule, made, namespace="ml"))
        assert not applied(decide(rule, made, namespace="other"))

    @KINDS
    @pytest.mark.parametrize("made", ["text", 1, True, [], [{}]])
    def test_a_pod_that_is_no_object_is_denied(self, build: Build, made: Any) -> None:
        decision = decide(build(), made)
        assert decision.status is not None
        assert (decision.allowed, decision.status.code) == (False, 422)
        assert decision.status.message.startswith("the pod must be an object, not a ")

    def test_a_missing_object_is_denied(self) -> None:
        for endpoint in (mutated, validated):
            status = endpoint(None, falls()).status
            assert status is not None
            assert (status.code, status.message) == (422, "the pod must be an object, not null")

    @KINDS
    def test_a_malformed_quantity_is_denied_with_its_path(self, build: Build) -> None:
        made = pod(container("a"), container("b", limits={"x.com/y~z": "8GB"}))
        status = decide(build(), made).status
        assert status is not None
        assert (status.code, status.reason) == (422, "Invalid")
        assert status.message.startswith(
            "the pod is malformed: /spec/containers/1/resources/limits/x.com~1y~0z: '8GB' is not a quantity"
        )

    @pytest.mark.parametrize("expression", ["{} == '4'", "quantity({}) == quantity('4')", "{} in ['4']"])
    def test_an_amount_is_the_same_to_expressions_as_a_number_and_as_text(self, expression: str) -> None:
        holds = validation(expression.format(f"object.spec.containers[0].resources.limits['{GPU}']"))
        for amount, allowed in ((4, True), ("4", True), (4.0, True), (5, False), ("5", False)):
            made: Any = pod(container())
            made["spec"]["containers"][0]["resources"] = {"limits": {GPU: amount}}
            assert validated(made, holds).allowed is allowed

    def test_an_empty_pod_and_an_empty_rule_set_are_fine(self) -> None:
        assert mutated({}, falls()).allowed
        assert mutated(asks({MIG2: 1})).trace == ()
        assert validated(asks({MIG2: 1})).trace == ()

    def test_without_any_cluster_knowledge_it_still_answers(self) -> None:
        assert mutated(asks({MIG2: 1}), falls(), on=UNKNOWN_CLUSTER).allowed

    def test_a_request_takes_no_longer_than_its_size(self) -> None:
        """The most containers that rules change: copying all of them for each one would take long."""
        made = pod(*(container(f"c{n}", {MIG2: 1}) for n in range(MAX_CONTAINERS)))
        decision = mutated_quickly(made)
        assert len(decision.patch) == MAX_CONTAINERS * 4 + 1


def mutated_quickly(made: Any) -> Decision:
    return compiled(falls()).mutate(request(made), cluster())


@pytest.mark.parametrize(
    ("pattern", "name", "yes"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("**", "abc", True),
        ("*?*", "a", True),
        ("a*c", "abbc", True),
        ("a*c", "abcb", False),
        ("a*b*c", "aXbYbZc", True),
        ("*-prod", "a-prod-prod", True),
        ("?", "", False),
        ("a?c", "abc", True),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("a+?(", "a+b(", True),
        ("a*c", "a\nc", True),
        ("a", "a\n", False),
        ("a*a", "a", False),
        ("*a?*b?", "xaaabab", False),
        ("*a?*b?", "xaaababc", True),
        ("a*b*bc", "abbc", True),
        ("A", "a", False),
        ("*a*a*a*a*a*a*a*a*a*b", "a" * 253, False),
    ],
)
def test_globs_know_any_run_and_any_one_character_and_nothing_else(pattern: str, name: str, yes: bool) -> None:
    assert globs.matches_glob(pattern, name) == yes


@given(st.text("ab*?", max_size=9), st.text("ab", max_size=9))
def test_globs_agree_with_regular_expressions(pattern: str, name: str) -> None:
    naive = "".join({"*": ".*", "?": "."}.get(character, character) for character in pattern)
    assert globs.matches_glob(pattern, name) == (re.fullmatch(naive, name) is not None)


def test_requests_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    match = Match(namespaces=tuple(f"team-{n}-*" for n in range(10_000)), resources=("*/gpu",))
    condition = "request.namespace.matches('^team-[0-9]+-x$')"
    rules = compiled(validation(condition, match=match), brings(match=match))
    compilations: list[object] = []
    for module in (re, re2):
        monkeypatch.setattr(module, "compile", lambda pattern, *_: compilations.append(pattern))
    for endpoint in (RuleSet.mutate, RuleSet.validate):
        decision = endpoint(rules, request(asks({MIG2: 1, GPU: 1}), namespace="team-9999-x"), cluster())
        assert [step.action for step in decision.trace if step.action is not Action.SKIP]
    assert compilations == []


class TestPatchBytes:
    """Bound on the patch of a pod: the rule that exceeds it fails, and those before it apply."""

    HALF = "x" * (MAX_PATCH_BYTES * 6 // 10)

    def falls(self, **fields: Any) -> Rule:
        return ladder(MIG2, rung(GPU, assume=True), annotation="example.com/falls", **fields)

    def brings(self, **fields: Any) -> Rule:
        return injection({"cpu": 1}, gpu_type=None, annotations={"example.com/brought": self.HALF}, **fields)

    def made(self, annotation: str = "") -> Any:
        return pod(container("main", {MIG2: 1}), annotations={"example.com/falls": annotation})

    def test_below_it_all_rules_count(self) -> None:
        decision = mutated(self.made(), self.falls(), self.brings())
        assert [step.action for step in decision.trace] == [Action.CHANGE, Action.CHANGE]

    @pytest.mark.parametrize("policy", FailurePolicy)
    def test_the_ladder_that_exceeds_it_fails(self, policy: FailurePolicy) -> None:
        decision = mutated(self.made(self.HALF * 2), self.falls(failure_policy=policy))
        [step] = decision.trace
        assert (step.reason, decision.patch) == ("evaluation-error", ())
        assert re.search(rf"the patch would take \d+ bytes, more than {MAX_PATCH_BYTES}$", step.message)
        if policy is FailurePolicy.FAIL:
            assert decision.status is not None
            assert (decision.allowed, decision.status.code) == (False, 500)
        else:
            assert (decision.allowed, decision.warnings) == (True, (f"{step.rule} was ignored: {step.message}",))

    def test_the_injection_that_exceeds_it_fails_alone(self) -> None:
        rules = (self.falls(), self.brings(failure_policy=FailurePolicy.IGNORE))
        decision = mutated(self.made(self.HALF), *rules)
        assert [step.action for step in decision.trace] == [Action.CHANGE, Action.IGNORE]
        assert [operation.path.rpartition("/")[2] for operation in decision.patch] == [
            "example.com~1falls".rpartition("/")[2],
            "nvidia.com~1gpu",
            "nvidia.com~1mig-2g.20gb",
            "nvidia.com~1gpu",
            "nvidia.com~1mig-2g.20gb",
        ]
        assert not mutated(self.made(self.HALF), self.falls(), self.brings()).allowed

    def test_in_audit_mode_it_is_only_recorded(self) -> None:
        for rule, annotation in ((self.falls(mode=Mode.AUDIT), self.HALF * 2), (self.brings(mode=Mode.AUDIT), "")):
            more = () if annotation else (self.falls(),)
            decision = mutated(self.made(annotation or self.HALF), *more, rule)
            assert decision.allowed
            assert "the patch would take" in decision.audit_annotations[rule.id.replace("/", ".").lower()]
