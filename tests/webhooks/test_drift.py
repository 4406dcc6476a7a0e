"""Drift of webhook configurations: differences, and the pods concerned."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rules_engine.model.rules import AnyRule, Match, Operation
from rules_engine.webhooks.configuration import (
    CONDITION_NAME,
    FORMER_CONDITION_NAME,
    Service,
    Settings,
    configurations,
    derive,
)
from rules_engine.webhooks.drift import MAX_NAMED, drift, fix_command
from tests.support.conditions import CONDITIONS, SELECTORS
from tests.support.evaluation import GPU, MIG1, MIG2, compiled, injection, ladder, validation

SETTINGS = Settings(server=Service("gpu-rules", "gpu-system", 443), namespace="gpu-system")
RULES = (ladder(GPU), validation("true", match_conditions={"c": CONDITIONS[5]}))
MUTATING = "MutatingWebhookConfiguration gpu-rules: "
VALIDATING = "ValidatingWebhookConfiguration gpu-rules: "


def made(*rules: AnyRule) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both configurations for rules."""
    mutating, validating = configurations(compiled(*rules), SETTINGS)
    return mutating, validating


def found(configuration: Mapping[str, Any] | None, *rules: AnyRule, at: int = 0) -> tuple[str, ...]:
    """The differences of a configuration; `at` 1: it is the validating one."""
    return drift(derive(compiled(*rules))[at], "gpu-rules", configuration)


def conditions(configuration: dict[str, Any], *expressions: str) -> dict[str, Any]:
    """A configuration with other match conditions."""
    listed = [{"name": f"c{index}", "expression": text} for index, text in enumerate(expressions)]
    return {**configuration, "webhooks": [{**configuration["webhooks"][0], "matchConditions": listed}]}


def test_an_unchanged_configuration_has_no_drift() -> None:
    mutating, validating = made(*RULES)

    assert found(mutating, *RULES) == ()
    assert found(validating, *RULES, at=1) == ()


def test_settings_of_the_operator_are_not_compared() -> None:
    mutating, _ = made(*RULES)
    mutating["webhooks"][0] |= {"failurePolicy": "Fail", "timeoutSeconds": 1, "namespaceSelector": {}}
    mutating["metadata"] |= {"managedFields": [], "annotations": None}
    mutating["webhooks"].append({"name": "somebody.else.example"})

    assert found(mutating, *RULES) == ()


@pytest.mark.parametrize(
    ("rule", "example"),
    [
        (ladder(MIG1), f"a pod in namespace default that requests {MIG1}, at CREATE"),
        (ladder(GPU, match=Match(namespaces=("m?", "x"))), f"a pod in namespace mx that requests {GPU}, at CREATE"),
        (
            ladder(MIG2, match=Match(object_selector=SELECTORS[2])),
            f"a pod in namespace default that requests {MIG2} and has the label team=ml, at CREATE",
        ),
        (
            injection({"cpu": 1}, gpu_type="T4", gpu_type_annotation="a/b"),
            f"a pod in namespace default that requests {GPU} and has the annotation a/b=T4, at CREATE",
        ),
    ],
)
def test_a_rule_whose_pods_are_not_sent_is_named_with_one_of_them(rule: AnyRule, example: str) -> None:
    old = ladder("amd.com/gpu", name="old", match=Match(namespaces=("ml",)))
    mutating, _ = made(old)

    assert found(mutating, old, rule) == (
        f"{MUTATING}mutate.gpurules.io does not send pods that {rule.id} must be evaluated on, such as {example}",
    )


def test_many_rules_are_not_all_named() -> None:
    mutating, _ = made(ladder(GPU))
    rules = [ladder(f"example.com/d{number}", name=f"l{number}") for number in range(3 * MAX_NAMED)]

    (text,) = found(mutating, ladder(GPU, name="old"), *rules)
    assert text.count("FallbackLadder/") == MAX_NAMED
    assert "and more must be evaluated" in text


def test_pods_that_no_rule_matches_any_more_are_reported() -> None:
    mutating, _ = made(ladder(GPU, "amd.com/gpu"))

    example = "a pod in namespace default that requests amd.com/gpu, at CREATE"
    assert found(mutating, ladder(GPU)) == (
        f"{MUTATING}mutate.gpurules.io sends pods that no rule applies to, such as {example}",
    )
    assert "requests no device" in found(conditions(mutating), ladder(GPU))[0]


def test_a_namespace_that_is_no_longer_excluded_is_reported() -> None:
    left_out = ladder(GPU, match=Match(exclude_namespaces=("monitoring",)))
    mutating, _ = made(left_out)

    (text,) = found(mutating, ladder(GPU))
    assert (
        f"FallbackLadder/ladder must be evaluated on, such as a pod in namespace monitoring that requests {GPU}" in text
    )


def test_any_condition_misses_pods_of_a_rule_for_every_pod() -> None:
    _, validating = made(RULES[1])

    (text,) = found(validating, validation("true", name="all"), at=1)
    assert "does not send pods that Validation/all must be evaluated on" in text


def test_equivalent_conditions_are_reported_as_equivalent() -> None:
    mutating, _ = made(ladder(GPU))
    same = mutating["webhooks"][0]["matchConditions"][0]["expression"]

    (text,) = found(conditions(mutating, f"({same})", "true"), ladder(GPU))
    assert text.endswith("has other matchConditions than these rules make; all sample pods have the same result")


def test_a_condition_under_its_former_name_is_drift() -> None:
    mutating, _ = made(ladder(GPU))
    mutating["webhooks"][0]["matchConditions"][0]["name"] = FORMER_CONDITION_NAME

    (text,) = found(mutating, ladder(GPU))
    renamed = f"names a match condition {FORMER_CONDITION_NAME}, which is now {CONDITION_NAME}"
    assert text == f"{MUTATING}mutate.gpurules.io {renamed}"


def test_failing_conditions_send_nothing_and_unknown_ones_are_skipped() -> None:
    mutating, _ = made(ladder(GPU))

    (text,) = found(conditions(mutating, "object.a.b == 1"), ladder(GPU))
    assert "does not send pods that FallbackLadder/ladder" in text
    (text,) = found(conditions(mutating, "authorizer.path('/').check('get').allowed()"), ladder(GPU))
    assert "which cannot be evaluated: " in text


def test_missing_operations_are_reported_with_their_rules() -> None:
    both = replace(RULES[1], match=Match(operations=tuple(Operation)))
    _, before = made(RULES[1])
    _, after = made(both)

    for place in ("UPDATE", "UPDATE of pods/resize"):
        lacking = (
            f"{VALIDATING}validate.gpurules.io is not called at {place}, where Validation/validation must be evaluated"
        )
        assert lacking in found(before, both, at=1)
        unneeded = f"{VALIDATING}validate.gpurules.io is called at {place}, which no rule needs"
        assert unneeded in found(after, RULES[1], at=1)
    after["webhooks"][0]["rules"][0]["operations"] = ["*"]
    assert found(after, both, at=1) == ()


@pytest.mark.parametrize("resources", [["*/*"], ["pods/*", "pods"], ["*", "*/resize"]])
def test_resource_patterns_of_webhook_rules_are_understood(resources: list[str]) -> None:
    both = replace(RULES[1], match=Match(operations=tuple(Operation)))
    _, validating = made(both)
    validating["webhooks"][0]["rules"][0]["resources"] = resources
    assert found(validating, both, at=1) == ()


def test_resizes_that_are_not_sent_are_reported() -> None:
    both = replace(RULES[1], match=Match(operations=tuple(Operation)))
    _, validating = made(both)
    missed = "is not called at UPDATE of pods/resize, where Validation/validation must be evaluated"
    for resources in (["pods"], ["*"], ["pods", "pods/status"]):
        validating["webhooks"][0]["rules"][0]["resources"] = resources
        assert found(validating, both, at=1) == (f"{VALIDATING}validate.gpurules.io {missed}",)


def test_resizes_that_a_condition_excludes_are_reported() -> None:
    every = validation("true", match=Match(operations=(Operation.UPDATE,)))
    _, validating = made(every)
    deletion = validating["webhooks"][0]["matchConditions"][0]["expression"]

    (text,) = found(conditions(validating, deletion, "request.?subResource.orValue('') == ''"), every, at=1)
    assert "does not send pods that Validation/validation must be evaluated on" in text
    assert text.endswith("at UPDATE of pods/resize")


def test_sending_pods_that_are_being_deleted_is_reported() -> None:
    every = validation("true", match=Match(operations=(Operation.UPDATE,)))
    _, validating = made(every)

    (text,) = found(conditions(validating), every, at=1)
    assert "sends pods that no rule applies to" in text
    assert text.endswith("at UPDATE while it is being deleted")


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
    assert f"{MUTATING}{said}" in found(configuration, *RULES)


def test_a_webhook_that_no_rule_needs_is_drift_and_none_is_not() -> None:
    _, validating = made(*RULES)

    assert found(validating, ladder(GPU), at=1) == (f"{VALIDATING}calls /validate, which no rule needs",)
    assert found(None, ladder(GPU), at=1) == ()


def test_the_fix_command_depends_on_the_tool_that_created_it() -> None:
    mutating, _ = made(*RULES)

    assert fix_command("x", None) == "gpu-rules webhook-config --rules FOLDER --name x | kubectl apply -f -"
    assert "--name x --namespace gpu-system |" in fix_command("x", mutating)
    mutating["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"
    assert fix_command("x", mutating).endswith("> rules-values.yaml, then helm upgrade with that file")
