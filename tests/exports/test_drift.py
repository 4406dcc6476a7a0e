"""Drift of webhook configurations: differences, and the pods concerned."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rules_engine.exports.configuration import CONDITION_NAME, DIGEST_ANNOTATION, build_configurations, derive_calls
from rules_engine.exports.drift import find_drift, find_object_drift, fix_command, foreign_conditions
from rules_engine.exports.policies import NativeObjects
from rules_engine.exports.settings import Service, Settings
from rules_engine.model.rules.rule import Match, Operation, Rule
from rules_engine.rules.native.policy import translate_rules
from tests.support.evaluation import GPU, compiled, ladder, validation

SETTINGS = Settings(server=Service("gpu-rules", "gpu-system", 443), namespace="gpu-system")
RULES = (ladder(GPU), validation("true", match=Match(resources=("amd.com/*",))))
MUTATING = "MutatingWebhookConfiguration gpu-rules: "
VALIDATING = "ValidatingWebhookConfiguration gpu-rules: "


def made(*rules: Rule) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both configurations for rules."""
    mutating, validating = build_configurations(compiled(*rules), SETTINGS)
    return mutating, validating


def drift_texts(configuration: Mapping[str, Any] | None, *rules: Rule, at: int = 0) -> tuple[str, ...]:
    """The differences of a configuration; `at` 1: it is the validating one."""
    return find_drift(derive_calls(compiled(*rules))[at], "gpu-rules", configuration)


def conditions(configuration: dict[str, Any], *expressions: str) -> dict[str, Any]:
    """A configuration with other match conditions."""
    listed = [{"name": f"c{index}", "expression": text} for index, text in enumerate(expressions)]
    return {**configuration, "webhooks": [{**configuration["webhooks"][0], "matchConditions": listed}]}


def test_an_unchanged_configuration_has_no_drift() -> None:
    mutating, validating = made(*RULES)

    assert drift_texts(mutating, *RULES) == ()
    assert drift_texts(validating, *RULES, at=1) == ()


def test_settings_of_the_operator_are_not_compared() -> None:
    mutating, _ = made(*RULES)
    mutating["webhooks"][0] |= {"failurePolicy": "Fail", "timeoutSeconds": 1, "namespaceSelector": {}}
    mutating["metadata"] |= {"managedFields": [], "labels": None}
    mutating["webhooks"].append({"name": "somebody.else.example"})

    assert drift_texts(mutating, *RULES) == ()


def test_the_mode_and_the_namespaces_of_the_server_are_compared() -> None:
    settings = replace(SETTINGS, audit=True, namespaces=("ml", "nlp"))
    calls = derive_calls(compiled(*RULES), audit=True)
    for each, configuration in zip(calls, build_configurations(compiled(*RULES), settings), strict=True):
        assert find_drift(each, "gpu-rules", configuration, settings) == ()
    mutating, validating = made(*RULES)
    namespaces = "mutate.gpurules.io selects other namespaces than those of the server: ml, nlp"

    assert find_drift(calls[0], "gpu-rules", mutating, settings) == (f"{MUTATING}{namespaces}",)
    (text, _) = find_drift(calls[1], "gpu-rules", validating, settings)
    assert text.startswith(f"{VALIDATING}validate.gpurules.io has another match condition {CONDITION_NAME} than ")
    mutating["webhooks"][0]["failurePolicy"] = "Fail"
    assert find_drift(calls[0], "gpu-rules", mutating, replace(settings, namespaces=())) == (
        (
            f"{MUTATING}mutate.gpurules.io has failurePolicy Fail, but the server is in mode Audit: while it does not "
            "answer, pods are denied"
        ),
    )
    fewer, _ = build_configurations(compiled(*RULES), replace(settings, namespaces=("ml",)))
    assert find_drift(calls[0], "gpu-rules", fewer, settings) == (f"{MUTATING}{namespaces}",)
    assert find_drift(calls[0], "gpu-rules", fewer) == (), "without --namespaces, selectors are the operator's"
    assert " --name x --mode Audit --namespaces ml nlp | kubectl apply" in fix_command("x", None, settings)


def test_conditions_of_other_rules_are_drift() -> None:
    old = ladder("amd.com/gpu", name="old", match=Match(namespaces=("ml",)))
    mutating, _ = made(old)

    assert drift_texts(mutating, old, ladder(GPU)) == (
        (
            f"{MUTATING}mutate.gpurules.io has another match condition {CONDITION_NAME} than these rules need: "
            "pods of a rule may not be sent"
        ),
    )


def test_a_condition_that_rules_for_every_pod_do_not_need_is_drift() -> None:
    _, validating = made(validation("true", match=Match(resources=(GPU,))))

    assert drift_texts(validating, validation("true"), at=1) == (
        (
            f"{VALIDATING}validate.gpurules.io has a match condition {CONDITION_NAME}, which these rules do not need: "
            "pods of a rule may not be sent"
        ),
    )


def test_a_missing_condition_is_drift() -> None:
    mutating, _ = made(ladder(GPU))

    assert drift_texts(conditions(mutating), ladder(GPU)) == (
        f"{MUTATING}mutate.gpurules.io has no match condition {CONDITION_NAME}: pods are sent that no rule applies to",
    )


def test_a_configuration_generated_from_other_rules_is_drift() -> None:
    mutating, _ = made(ladder(GPU))
    mutating["metadata"]["annotations"][DIGEST_ANNOTATION] = "sha256:0"

    expected = f"{MUTATING}has another {DIGEST_ANNOTATION} than these rules: it was generated from others, or edited"
    assert drift_texts(mutating, ladder(GPU)) == (expected,)
    del mutating["metadata"]["annotations"]
    assert drift_texts(mutating, ladder(GPU)) == (expected,)


def test_conditions_of_the_operator_are_named_and_are_not_drift() -> None:
    mutating, _ = made(ladder(GPU))
    mutating["webhooks"][0]["matchConditions"] += [
        {"name": "not-ours", "expression": "request.userInfo.username != 'me'"}
    ]
    (calls, _) = derive_calls(compiled(ladder(GPU)))

    assert drift_texts(mutating, ladder(GPU)) == ()
    assert foreign_conditions(mutating, calls) == ("not-ours",)
    assert foreign_conditions(None, calls) == ()


def test_missing_operations_are_reported_with_their_rules() -> None:
    both = replace(RULES[1], match=Match(operations=tuple(Operation)))
    _, before = made(RULES[1])
    _, after = made(both)

    for place in ("UPDATE", "UPDATE of pods/resize"):
        lacking = (
            f"{VALIDATING}validate.gpurules.io is not called at {place}, where Validation/validation must be evaluated"
        )
        assert lacking in drift_texts(before, both, at=1)
        unneeded = f"{VALIDATING}validate.gpurules.io is called at {place}, which no rule needs"
        assert unneeded in drift_texts(after, RULES[1], at=1)
    after["webhooks"][0]["rules"][0]["operations"] = ["*"]
    assert drift_texts(after, both, at=1) == ()


@pytest.mark.parametrize("resources", [["*/*"], ["pods/*", "pods"], ["*", "*/resize"]])
def test_resource_patterns_of_webhook_rules_are_understood(resources: list[str]) -> None:
    both = replace(RULES[1], match=Match(operations=tuple(Operation)))
    _, validating = made(both)
    validating["webhooks"][0]["rules"][0]["resources"] = resources
    assert drift_texts(validating, both, at=1) == ()


def test_resizes_that_are_not_sent_are_reported() -> None:
    both = replace(RULES[1], match=Match(operations=tuple(Operation)))
    _, validating = made(both)
    missed = "is not called at UPDATE of pods/resize, where Validation/validation must be evaluated"
    for resources in (["pods"], ["*"], ["pods", "pods/status"]):
        validating["webhooks"][0]["rules"][0]["resources"] = resources
        assert drift_texts(validating, both, at=1) == (f"{VALIDATING}validate.gpurules.io {missed}",)


def test_sending_pods_that_are_being_deleted_is_reported() -> None:
    every = validation("true", match=Match(operations=(Operation.UPDATE,)))
    _, validating = made(every)

    (text,) = drift_texts(conditions(validating), every, at=1)
    assert text.endswith("has no match condition not-being-deleted: pods are sent that no rule applies to")


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        (None, "not found: /mutate is never called, and FallbackLadder/ladder never evaluated"),
        ({"webhooks": []}, "has no webhook: /mutate is never called, and FallbackLadder/ladder never evaluated"),
        ({"webhooks": None}, "has no webhook: /mutate is never called, and FallbackLadder/ladder never evaluated"),
        (
            {"webhooks": [{"name": "m", "rules": 3}]},
            "m is not called at CREATE, where FallbackLadder/ladder must be evaluated",
        ),
    ],
)
def test_a_malformed_configuration_is_reported(configuration: Mapping[str, Any] | None, said: str) -> None:
    assert f"{MUTATING}{said}" in drift_texts(configuration, *RULES)


def test_a_webhook_that_no_rule_needs_is_drift_and_none_is_not() -> None:
    _, validating = made(*RULES)

    assert drift_texts(validating, ladder(GPU), at=1) == (f"{VALIDATING}calls /validate, which no rule needs",)
    assert drift_texts(None, ladder(GPU), at=1) == ()


def test_the_fix_command_depends_on_the_tool_that_created_it() -> None:
    mutating, _ = made(*RULES)

    assert fix_command("x", None) == (
        "gpu-rules webhook-config --rules FOLDER --name x | kubectl apply -f -, "
        "with the options of its last use, such as --url and --failure-policy"
    )
    assert "--name x --namespace gpu-system |" in fix_command("x", mutating)
    mutating["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"
    assert fix_command("x", mutating).endswith(
        "> rules-values.yaml, then helm upgrade with that file, under helm 4 with --force-conflicts"
    )


def test_drift_of_objects_is_found() -> None:
    objects = NativeObjects(translate_rules(compiled(validation("true", name="a"))), "digest", SETTINGS)
    made: Any = [*objects.policies()]
    policy, binding = made
    stored: Any = copy.deepcopy(policy)
    constraints = {**policy["spec"]["matchConstraints"], "namespaceSelector": {}, "objectSelector": {}}
    stored["spec"] |= {"matchConstraints": constraints, "auditAnnotations": []}
    assert find_object_drift(policy, stored) == ()
    for member in ("objectSelector", "excludeResourceRules", "resourceRules"):
        narrowed = {**stored, "spec": {**stored["spec"], "matchConstraints": {**constraints, member: [{"a": "b"}]}}}
        assert find_object_drift(policy, narrowed) == (
            "ValidatingAdmissionPolicy gpu-rules-deny-fail: differs from these rules in matchConstraints",
        )
    narrowed = {**binding, "spec": {**binding["spec"], "matchResources": {"namespaceSelector": {"a": "b"}}}}
    assert find_object_drift(binding, narrowed) == (
        "ValidatingAdmissionPolicyBinding gpu-rules-deny-fail: differs from these rules in matchResources",
    )
    stored["spec"]["validations"][0]["message"] = "another"
    assert find_object_drift(policy, stored) == (
        "ValidatingAdmissionPolicy gpu-rules-deny-fail: differs from these rules in validations",
    )
    stored = {**binding, "metadata": {}}
    (text,) = find_object_drift(binding, stored)
    assert text.endswith("gpu-rules-deny-fail: differs from these rules in gpurules.io/rules-digest")
    (text,) = find_object_drift(binding, None)
    assert text.endswith("not found")
    configuration: Any = {"metadata": {"annotations": {"gpurules.io/native": "true"}}}
    policies = "gpu-rules native --rules FOLDER --name x | kubectl apply -f -, and gpu-rules "
    fix = fix_command("x", configuration)
    assert fix.startswith(f"{policies}webhook-config --native --rules FOLDER --name x | kubectl apply -f -")
    configuration["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    fix = fix_command("x", configuration)
    assert fix.startswith(f"{policies}webhook-config --native --rules FOLDER --output helm-values > ")
