"""Behaviour of Validations: Kubernetes' rules for actions, messages and reasons."""

from typing import Any

import pytest

from rules_engine.model.json.patch import Json
from rules_engine.model.rules.admission import GroupVersionKind
from rules_engine.model.rules.decision import Action, Decision
from rules_engine.model.rules.rule import FailurePolicy, Match, Mode, Operation, OptOut
from rules_engine.rules.validation.value import Reason, Validation, ValidationAction
from tests.support.evaluation import GPU, asks, check, cluster, container, pod, validated, validation

POD = pod(container("main"))
DENY, WARN, AUDIT = ValidationAction.DENY, ValidationAction.WARN, ValidationAction.AUDIT


def decide(*checks: object, made: dict[str, Json] = POD, **fields: object) -> Decision:
    return validated(made, validation(*checks, **fields))  # type: ignore[arg-type]


def message(decision: Decision) -> str:
    assert not decision.allowed
    assert decision.status is not None
    return decision.status.message.removeprefix("Validation/validation: ")


def test_a_pod_that_meets_all_conditions_passes() -> None:
    decision = decide("true", "object.metadata.name == 'job'")
    assert (decision.allowed, decision.warnings, decision.audit_annotations) == (True, (), {})
    assert decision.trace[0].action is Action.PASS
    assert not decision.trace[0].decides


def test_a_denial_has_all_messages_and_the_first_reason() -> None:
    decision = decide(
        "true", check("false", "one", reason=Reason.FORBIDDEN), check("false", "two"), check("1 == 2", "one")
    )
    assert message(decision) == "one; two"
    assert decision.status is not None
    assert (decision.status.code, decision.status.reason) == (403, "Forbidden")


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.UNAUTHORIZED, 401),
        (Reason.FORBIDDEN, 403),
        (Reason.INVALID, 422),
        (Reason.REQUEST_ENTITY_TOO_LARGE, 413),
    ],
)
def test_each_reason_has_its_status_code(reason: Reason, code: int) -> None:
    status = decide(check("false", "no", reason=reason)).status
    assert status is not None
    assert (status.code, status.reason) == (code, reason.value)


def test_without_a_reason_it_is_invalid() -> None:
    status = decide(check("false", "no")).status
    assert status is not None
    assert (status.code, status.reason) == (422, "Invalid")


def test_it_never_changes_the_pod() -> None:
    assert decide("false").patch == ()
    assert decide("true", made=asks({GPU: 1})).patch == ()


class TestMessages:
    def test_the_message_expression_wins_over_the_message(self) -> None:
        assert message(decide(check("false", "plain", "'pod ' + object.metadata.name"))) == "pod job"

    @pytest.mark.parametrize(
        "expression",
        ["string(1 / 0)", "''", "'  '", "'a\\nb'", "object.metadata.generateName", f"'{'x' * (5 * 1024 + 1)}'"],
        ids=["error", "empty", "blank", "two lines", "absent", "too long"],
    )
    def test_it_falls_back_to_the_message(self, expression: str) -> None:
        assert message(decide(check("false", "plain", expression))) == "plain"

    def test_it_may_be_as_long_as_in_kubernetes(self) -> None:
        long = "x" * 5 * 1024
        assert message(decide(check("false", "plain", f"'{long}'"))) == long

    def test_it_falls_back_if_it_is_not_a_string(self) -> None:
        made = pod(container("main"), annotations={"n": "1"})
        expression = "dyn(object.metadata.annotations.size())"
        assert message(decide(check("false", "plain", expression), made=made)) == "plain"

    def test_without_any_message_the_expression_is_the_message(self) -> None:
        assert message(decide(" 1 == 2 ")) == "failed expression: 1 == 2"
        assert message(decide(check("1 == 2", "", "''"))) == "failed expression: 1 == 2"

    def test_it_sees_variables_and_params(self) -> None:
        decision = decide(
            check("false", "plain", "variables.name + params.end"),
            variables={"name": "object.metadata.name"},
            params={"end": "!"},
        )
        assert message(decision) == "job!"


class TestActions:
    def test_deny_denies(self) -> None:
        decision = decide(check("false", "no"), validation_actions=frozenset({DENY}))
        assert (decision.allowed, decision.warnings, decision.audit_annotations) == (False, (), {})
        assert decision.trace[0].action is Action.DENY

    def test_warn_warns_and_allows(self) -> None:
        decision = decide(check("false", "no"), check("false", "nor that"), validation_actions=frozenset({WARN}))
        assert decision.allowed
        assert decision.warnings == ("Validation/validation: no", "Validation/validation: nor that")
        assert (decision.trace[0].action, decision.audit_annotations) == (Action.WARN, {})

    def test_audit_records_and_allows(self) -> None:
        decision = decide(check("false", "no"), validation_actions=frozenset({AUDIT}))
        assert (decision.allowed, decision.warnings) == (True, ())
        assert decision.trace[0].action is Action.RECORD
        assert decision.audit_annotations == {"validation.validation": "record: no"}

    def test_deny_and_audit(self) -> None:
        decision = decide(check("false", "no"), validation_actions=frozenset({DENY, AUDIT}))
        assert not decision.allowed
        assert decision.audit_annotations == {"validation.validation": "deny: no"}

    def test_warn_and_audit(self) -> None:
        decision = decide(check("false", "no"), validation_actions=frozenset({WARN, AUDIT}))
        assert decision.allowed
        assert decision.warnings == ("Validation/validation: no",)
        assert decision.audit_annotations == {"validation.validation": "warn: no"}

    @pytest.mark.parametrize("actions", [{DENY}, {WARN}, {AUDIT}, {DENY, AUDIT}])
    def test_mode_audit_overrides_them(self, actions: set[ValidationAction]) -> None:
        decision = decide(check("false", "no"), validation_actions=frozenset(actions), mode=Mode.AUDIT)
        assert (decision.allowed, decision.warnings) == (True, ())
        assert list(decision.audit_annotations) == ["validation.validation"]
        assert decision.audit_annotations["validation.validation"].endswith(": no")

    def test_mode_audit_records_nothing_where_it_holds(self) -> None:
        assert decide("true", mode=Mode.AUDIT).audit_annotations == {}


class TestErrors:
    def test_fail_denies_with_500_and_the_place(self) -> None:
        decision = decide("1 / 0 == 1")
        assert decision.status is not None
        assert (decision.status.code, decision.status.reason) == (500, "InternalError")
        assert "could not be evaluated: <expression>:1:1: " in message(decision)

    def test_fail_denies_even_if_another_validation_does_not_hold(self) -> None:
        status = decide(check("false", "no"), "1 / 0 == 1").status
        assert status is not None
        assert status.code == 500

    def test_ignore_undoes_the_whole_rule_with_a_warning(self) -> None:
        decision = decide(check("false", "no"), "1 / 0 == 1", failure_policy=FailurePolicy.IGNORE)
        assert decision.allowed
        assert decision.trace[0].action is Action.IGNORE
        assert decision.warnings[0].startswith("Validation/validation was ignored: ")
        assert not decision.trace[0].decides

    def test_the_actions_apply_to_a_failure_as_in_kubernetes(self) -> None:
        decision = decide("1 / 0 == 1", validation_actions=frozenset({WARN}))
        assert decision.allowed
        assert "could not be evaluated" in decision.warnings[0]

    def test_a_value_that_is_no_bool_is_an_error(self) -> None:
        status = decide("dyn(object.metadata.name)").status
        assert status is not None
        assert status.code == 500

    def test_a_match_condition_that_fails_denies_too(self) -> None:
        status = decide("true", match_conditions={"bad": "1 / 0 == 1"}).status
        assert status is not None
        assert status.code == 500

    def test_all_denials_are_reported_with_the_first_code(self) -> None:
        rules = [
            validation(check("false", name, reason=reason), name=name)
            for name, reason in (("a", Reason.FORBIDDEN), ("b", Reason.INVALID))
        ]
        status = validated(POD, *rules).status
        assert status is not None
        assert (status.code, status.message) == (403, "Validation/a: a; Validation/b: b")


class TestSkipping:
    SKIP = pod(container("main"), annotations={"gpurules.io/skip": "true"})

    def test_by_default_it_cannot_be_skipped_and_the_response_warns(self) -> None:
        decision = decide(check("false", "no"), made=self.SKIP)
        assert not decision.allowed
        assert decision.warnings == ("Validation/validation cannot be skipped by the annotation gpurules.io/skip",)
        assert len(decide("true", made=self.SKIP).warnings) == 1

    def test_where_it_is_allowed_it_is_skipped(self) -> None:
        decision = decide("false", made=self.SKIP, opt_out=OptOut.ALLOWED)
        assert decision.allowed
        assert (decision.trace[0].action, decision.trace[0].reason) == (Action.SKIP, "opt-out")


class TestOperations:
    def rule(self, *operations: Operation) -> Validation:
        return validation(check("oldObject == null", "no"), match=Match(operations=operations))

    def test_create_by_default(self) -> None:
        assert not validated(POD, validation("false"), operation="CREATE").allowed
        assert validated(POD, validation("false"), operation="UPDATE").allowed

    def test_update_if_the_rule_matches_it(self) -> None:
        rule = self.rule(Operation.CREATE, Operation.UPDATE)
        assert validated(POD, rule, operation="CREATE").allowed
        assert not validated(POD, rule, operation="UPDATE", old_object=POD).allowed

    def test_only_update(self) -> None:
        decision = validated(POD, self.rule(Operation.UPDATE), operation="CREATE")
        assert (decision.allowed, decision.trace[0].reason) == (True, "operation")

    def test_the_old_object_is_seen_at_update(self) -> None:
        rule = validation(
            "object.metadata.labels.team == oldObject.metadata.labels.team", match=Match(operations=(Operation.UPDATE,))
        )
        old, new = (pod(container("main"), labels={"team": team}) for team in "ab")
        assert validated(old, rule, operation="UPDATE", old_object=old).allowed
        assert not validated(new, rule, operation="UPDATE", old_object=old).allowed

    @pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
    def test_other_requests_are_allowed(self, operation: str) -> None:
        rule = validation("false", match=Match(operations=(Operation.CREATE, Operation.UPDATE)))
        decision = validated(None, rule, operation=operation, old_object=POD)
        assert (decision.allowed, decision.trace) == (True, ())

    def test_a_resize_is_an_update_of_the_whole_pod(self) -> None:
        rule = validation(
            "quantity(object.spec.containers[0].resources.requests.cpu).compareTo("
            "quantity(oldObject.spec.containers[0].resources.requests.cpu)) <= 0",
            match=Match(operations=(Operation.UPDATE,)),
        )
        little, much = asks({"cpu": 1}), asks({"cpu": 9})
        fields: dict[str, Any] = {"operation": "UPDATE", "sub_resource": "resize"}
        assert not validated(much, rule, old_object=little, **fields).allowed
        assert validated(little, rule, old_object=much, **fields).allowed
        assert validated(much, validation("false"), old_object=little, **fields).trace == ()

    @pytest.mark.parametrize(
        "fields",
        [
            {"sub_resource": "status"},
            {"sub_resource": "ephemeralcontainers"},
            {"sub_resource": "resize", "kind": GroupVersionKind(version="v1", kind="Scale")},
            {"sub_resource": "resize", "kind": GroupVersionKind(group="a.b", version="v1", kind="Pod")},
            {"sub_resource": "resize", "operation": "CREATE"},
        ],
    )
    def test_no_other_subresource_is_decided(self, fields: dict[str, Any]) -> None:
        rule = validation("false", match=Match(operations=tuple(Operation)))
        given: dict[str, Any] = {"operation": "UPDATE", **fields}
        decision = validated(POD, rule, **given)
        assert (decision.allowed, decision.trace) == (True, ())

    @pytest.mark.parametrize("sub_resource", ["", "resize"])
    def test_a_pod_that_is_being_deleted_is_allowed_before_any_rule(self, sub_resource: str) -> None:
        rule = validation("false", match=Match(operations=tuple(Operation)))
        leaving = asks({GPU: "x"})
        leaving["metadata"] = {"name": "job", "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": 5}
        decision = validated(leaving, rule, operation="UPDATE", sub_resource=sub_resource)
        assert (decision.allowed, decision.trace, decision.status) == (True, (), None)

    @pytest.mark.parametrize("metadata", [{"deletionTimestamp": None}, {}, None])
    def test_any_other_pod_is_decided(self, metadata: Json) -> None:
        rule = validation("false", match=Match(operations=tuple(Operation)))
        assert not validated({**POD, "metadata": metadata}, rule, operation="UPDATE").allowed
        created: Json = {**POD, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
        assert not validated(created, rule, operation="CREATE").allowed

    def test_an_update_that_no_rule_matches_allows_a_malformed_pod(self) -> None:
        odd = asks({GPU: "1e61"})
        assert validated(odd, validation("false"), operation="UPDATE").allowed
        refused = validated(odd, self.rule(Operation.UPDATE), operation="UPDATE")
        assert refused.status is not None
        assert refused.status.code == 422


def test_it_sees_the_pod_as_it_arrives_with_no_rule_in_between() -> None:
    made = asks({"nvidia.com/mig-2g.20gb": 1})
    rule = validation("'nvidia.com/mig-2g.20gb' in object.spec.containers[0].resources.limits")
    assert validated(made, rule, on=cluster({GPU: 1})).allowed


def matched(made: dict[str, Json], *resources: str) -> bool:
    """Return True if a validation of these resources matches a pod."""
    step = decide("true", made=made, match=Match(resources=resources)).trace[0]
    assert step.action is Action.PASS or (step.action, step.reason) == (Action.SKIP, "resources")
    return step.action is Action.PASS


@pytest.mark.parametrize(
    ("resource", "matches"),
    [
        *((name, True) for name in (GPU, "*", "*/*", "nvidia.com/*", "*gpu", "nvidia.com/?pu")),
        *((name, False) for name in ("cpu", "nvidia.com", "amd.com/*", "*/gpu?")),
    ],
)
def test_resources_are_names_and_globs(resource: str, matches: bool) -> None:
    assert matched(asks({GPU: 1}), resource) is matches


def test_a_resource_may_be_named_anywhere_and_with_any_amount() -> None:
    for made in (
        asks({GPU: 0}),
        pod(container("c", limits={GPU: 1})),
        pod(container("c", requests={GPU: 0})),
        pod(container("c"), init=[container("i", {GPU: 1})]),
        pod(container("c"), init=[container("i", {GPU: 1}, sidecar=True)]),
    ):
        assert matched(made, "amd.com/*", GPU)
    assert not matched(pod(container("c"), resources={"limits": {GPU: "1"}}), GPU)


def test_a_name_longer_than_kubernetes_allows_matches_nothing() -> None:
    domain = f"{'a' * 253}/"
    assert matched(asks({domain + "b" * 63: 1}), "*/*")
    assert not matched(asks({domain + "b" * 64: 1}), "*/*")


def test_at_an_update_the_new_pod_counts() -> None:
    rule = validation("false", match=Match(resources=(GPU,), operations=(Operation.UPDATE,)))
    for new, old, allowed in ((asks({GPU: 1}), POD, False), (POD, asks({GPU: 1}), True)):
        assert validated(new, rule, operation="UPDATE", old_object=old).allowed is allowed


def test_resources_that_do_not_match_precede_conditions_that_fail() -> None:
    failing = {"c": "object.metadata.labels.x == ''"}
    decision = decide("true", match=Match(resources=(GPU,)), match_conditions=failing)
    assert decision.trace[0].reason == "resources"


def test_comparing_very_many_names_is_counted_by_the_budget() -> None:
    names = {f"{n}.example.com/{'x' * 60}": 1 for n in range(40_000)}
    globs = tuple(f"*{n}*/y" for n in range(10))
    step = decide("true", made=asks(names), match=Match(resources=globs)).trace[0]
    assert (step.reason, "cost limit" in step.message) == ("evaluation-error", True)


def test_names_that_are_shorter_than_a_unit_are_counted_too() -> None:
    made = asks({f"a/{n}": 1 for n in range(40_000)})
    rules = [validation("true", name=f"v{n:02}", match=Match(resources=("*z",))) for n in range(20)]
    first, *_, last = validated(made, *rules).trace
    assert (first.reason, last.reason) == ("resources", "evaluation-error")


def test_names_of_many_resources_are_not_counted_as_globs() -> None:
    made = asks({f"{n}.example.com/{'x' * 60}": 1 for n in range(8_000)})
    names = tuple(f"n{n}.example.com/a-device" for n in range(200))
    assert decide("true", made=made, match=Match(resources=names)).trace[0].reason == "resources"
