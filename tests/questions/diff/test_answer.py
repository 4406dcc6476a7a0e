"""Answers of diffs as JSON."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from rules_engine.questions.diff.answer import DifferenceAnswer
from rules_engine.questions.diff.values import Kind, Outcome
from rules_engine.report.answer import answer_schema, answer_text
from tests.support.differences import (
    GPU,
    LADDER,
    LIMIT,
    MIG2,
    MIG3,
    RECORDED,
    UNKNOWN,
    Pods,
    amount,
    answer,
    denied,
    fallen,
    kept,
    submitted,
)


def document(found: DifferenceAnswer) -> Any:
    return json.loads(answer_text(found))


def change(*pods: Pods) -> Any:
    (found,) = document(answer(pods))["changes"]
    return found


@pytest.mark.parametrize(
    "found",
    [
        answer(),
        answer([]),
        answer(recorded=RECORDED, same_rules=True, omitted=3, allowed=frozenset(Kind)),
        answer([(submitted("a", cluster="x"), Outcome(annotations={"a": None}), kept())], clusters=("x", "y")),
    ],
)
def test_every_answer_matches_the_schema(found: DifferenceAnswer) -> None:
    assert [
        error.message for error in Draft202012Validator(answer_schema(DifferenceAnswer)).iter_errors(document(found))
    ] == []


def test_totals_of_a_cluster() -> None:
    found = document(answer(allowed=frozenset({Kind.RUNG, Kind.ADMITTED})))

    assert found["clusters"] == [
        {
            "name": "",
            "pods": 319,
            "changed": 18,
            "beyondAllowed": 9,
            "asTheyAreNow": {"no controller": 1},
            "kinds": {"Denied": 1, "Admitted": 1, "Rung": 8, "Resources": 3, "Warnings": 3, "Message": 1, "Unknown": 4},
            "namespaces": {"lab": 2, "ml": 16},
            "rules": {LADDER: 8, "ResourceInjection/memory": 3, LIMIT: 3},
            "unknown": {"Validation/owner reads request.userInfo": 4},
            "gpus": {GPU: {"before": 320, "after": 328}, MIG3: {"before": 8, "after": 0}},
        }
    ]
    assert (found["old"], found["new"], found["sameRules"]) == ("git:main:rules", "rules", False)
    assert (found["allowed"], found["verdict"]) == (["Admitted", "Rung"], "Changed")
    assert (found["recorded"], found["omittedPods"]) == (None, 0)


def test_a_change_has_both_outcomes_and_its_workloads() -> None:
    pods = (submitted("web", kind="Deployment", count=6), fallen(MIG3, 12), fallen(GPU, 13))
    annotation = "gpurules.io/fallback"

    found = change(pods, (submitted("train", count=2), *pods[1:]))
    assert found["after"]["gpus"] == {GPU: 1}
    assert found == {
        "kinds": ["Rung"],
        "rules": [
            {
                "rule": LADDER,
                "before": {"file": "rules/mig.yaml", "line": 12, "column": 7},
                "after": {"file": "rules/mig.yaml", "line": 13, "column": 7},
            }
        ],
        "before": {
            "unknown": "",
            "allowed": True,
            "message": "",
            "resources": [{"container": "main", "resource": MIG3, "request": "1", "limit": "1"}],
            "annotations": {annotation: "2g.20gb->3g.40gb"},
            "members": [],
            "warnings": [],
            "gpus": {MIG3: 1},
            "rules": [
                {
                    "rule": LADDER,
                    "source": {"file": "rules/mig.yaml", "line": 12, "column": 7},
                    "action": "change",
                    "message": "",
                    "fallbacks": [{"requested": MIG2, "given": MIG3}],
                    "amounts": [{"container": "main", "resource": MIG3, "amount": "1"}],
                    "annotations": {annotation: "2g.20gb->3g.40gb"},
                    "members": [],
                    "warnings": [],
                }
            ],
        },
        "after": found["after"],
        "workloads": [
            {"cluster": "", "namespace": "ml", "kind": "Deployment", "name": "web", "pods": 6},
            {"cluster": "", "namespace": "ml", "kind": "Job", "name": "train", "pods": 2},
        ],
    }


def test_a_denial_has_its_message_and_rule() -> None:
    found = change((submitted("a"), kept(), denied()))

    assert found["rules"] == [
        {"rule": LIMIT, "before": None, "after": {"file": "rules/limit.yaml", "line": 14, "column": 7}}
    ]
    after = found["after"]
    assert (after["allowed"], after["message"]) == (False, "Validation/limit: at most 8 GPUs")
    assert [(rule["action"], rule["message"]) for rule in after["rules"]] == [("deny", "at most 8 GPUs")]


def test_an_outcome_that_is_not_known_is_not_allowed_either() -> None:
    before = change((submitted("a"), UNKNOWN, kept()))["before"]

    assert (before["allowed"], before["unknown"]) == (None, UNKNOWN.unknown)


def test_amounts_are_quantities_and_devices_numbers() -> None:
    resources = (amount("spec.resources", "memory", None, "1536Mi"), amount("main", "cpu", "1500m"))
    after = change((submitted("a"), kept(), Outcome(resources=resources, gpus={GPU: 1.5})))["after"]

    assert after["resources"] == [
        {"container": "spec.resources", "resource": "memory", "request": None, "limit": "1536Mi"},
        {"container": "main", "resource": "cpu", "request": "1500m", "limit": None},
    ]
    assert after["gpus"] == {GPU: 1.5}


def test_a_large_change_of_many_workloads_is_written_once() -> None:
    annotations = {f"key-{n}": "x" * 1_000 for n in range(100)}
    large = replace(kept(), annotations=annotations)
    pods = [(submitted(f"w-{n}"), kept(), large) for n in range(1_000)]

    assert len(answer_text(answer(pods))) < 500_000


def test_texts_are_whole() -> None:
    evil = "\x1b\n<b>" * 1_000

    assert change((submitted("a"), kept(), denied(evil)))["after"]["message"] == f"{LIMIT}: {evil}"
