"""Decisions, derived from their trace."""

import json
import re
from typing import Any

import pytest

from rules_engine.model.json.patch import PatchOperation
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.decision import Action, Amount, Attempt, Decision, HttpRefusal, ResourceDecision, Step
from rules_engine.model.rules.rule import RuleId


def step(action: Action, name: str = "Validation/a", **fields: Any) -> Step:
    return Step(
        rule=RuleId(name),
        location=Location("f.yaml", 1, 1),
        action=action,
        reason=fields.pop("reason", "why"),
        **fields,
    )


def decision(*steps: Step, **fields: Any) -> Decision:
    return Decision(trace=steps, **fields)


def test_decisions_are_compared_without_their_contexts() -> None:
    assert decision(context=lambda: None) == decision() != decision(step(Action.DENY))


class TestAllowed:
    @pytest.mark.parametrize("action", [action for action in Action if action is not Action.DENY])
    def test_nothing_but_a_denial_denies(self, action: Action) -> None:
        made = decision(step(action))
        assert (made.allowed, made.status) == (True, None)

    def test_one_denial_is_enough(self) -> None:
        made = decision(step(Action.CHANGE), step(Action.DENY, message="no", code=422, status_reason="Invalid"))
        assert not made.allowed
        assert made.status == HttpRefusal(422, "Invalid", "Validation/a: no")

    def test_a_denial_in_audit_mode_denies_nothing(self) -> None:
        assert decision(step(Action.DENY, audit=True)).allowed

    def test_equal_messages_of_two_rules_appear_once(self) -> None:
        made = decision(
            step(Action.DENY, "Validation/a", message="no"), step(Action.DENY, "Validation/b", message="no")
        )
        assert made.status is not None
        assert made.status.message == "Validation/a, Validation/b: no"

    def test_the_status_has_the_first_code_and_all_messages(self) -> None:
        made = decision(
            step(Action.DENY, "Validation/x", message="quiet", code=401, audit=True),
            step(Action.DENY, "Validation/a", message="one", code=500, status_reason="InternalError"),
            step(Action.WARN, "Validation/w", message="warned"),
            step(Action.DENY, "Validation/b", message="two"),
        )
        assert made.status == HttpRefusal(500, "InternalError", "Validation/a: one; Validation/b: two")

    def test_a_refusal_denies_without_any_rule(self) -> None:
        refusal = HttpRefusal(422, "Invalid", "the pod is malformed")
        made = decision(refusal=refusal)
        assert (made.allowed, made.status) == (False, refusal)

    def test_an_empty_trace_allows(self) -> None:
        assert (decision().allowed, decision().status, decision().warnings) == (True, None, ())


@pytest.mark.parametrize(
    ("action", "decides"),
    [
        (Action.SKIP, False),
        (Action.PASS, False),
        (Action.IGNORE, False),
        (Action.KEEP, True),
        (Action.CHANGE, True),
        (Action.DENY, True),
        (Action.WARN, True),
        (Action.RECORD, True),
    ],
)
def test_decides_is_true_for_rules_that_contributed(action: Action, decides: bool) -> None:
    assert step(action).decides == decides
    assert not step(action, audit=True).decides


def test_warnings_are_distinct_ordered_and_not_from_audit_mode() -> None:
    made = decision(
        step(Action.KEEP, warnings=("b", "a")),
        step(Action.CHANGE, warnings=("quiet",), audit=True),
        step(Action.WARN, warnings=("a", "c")),
    )
    assert made.warnings == ("b", "a", "c")


class TestAuditAnnotations:
    def test_audit_modes_and_audit_actions_are_recorded(self) -> None:
        made = decision(
            step(Action.CHANGE, "FallbackLadder/a", message="x → y", audit=True),
            step(Action.RECORD, "Validation/b", message="no", recorded=True),
            step(Action.KEEP, "FallbackLadder/c", audit=True),
            step(Action.DENY, "Validation/quiet"),
        )
        assert made.audit_annotations == {
            "fallbackladder.a": "change: x → y",
            "validation.b": "record: no",
            "fallbackladder.c": "keep",
        }

    @pytest.mark.parametrize("action", [Action.SKIP, Action.PASS])
    def test_rules_that_do_not_apply_or_that_pass_are_not_recorded(self, action: Action) -> None:
        assert decision(step(action, audit=True)).audit_annotations == {}

    def test_keys_are_valid_in_kubernetes_and_distinct(self) -> None:
        names = ["a" * 253, "a" * 252 + "b", ".".join(["b" * 60] * 4), "c" * 47 + "-" + "d" * 50, "short", "x" * 44]
        made = decision(*(step(Action.CHANGE, f"ResourceInjection/{name}", audit=True) for name in names))
        assert len(made.audit_annotations) == len(names)
        for key in made.audit_annotations:
            assert len(key) <= 63
            assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", key)

    def test_a_name_of_the_maximum_length_is_unchanged(self) -> None:
        made = decision(step(Action.RECORD, "Validation/" + "a" * 52, recorded=True))
        assert list(made.audit_annotations) == ["validation." + "a" * 52]

    def test_keys_stay_the_same_from_request_to_request(self) -> None:
        made = decision(step(Action.CHANGE, "FallbackLadder/" + "a" * 253, audit=True))
        assert list(made.audit_annotations) == ["fallbackladder." + "a" * 39 + "-" + "028fd9bf"]


class TestJson:
    def test_json_omits_empty_members(self) -> None:
        assert decision(step(Action.SKIP)).to_json() == {
            "allowed": True,
            "warnings": [],
            "auditAnnotations": {},
            "patch": [],
            "trace": [{"rule": "Validation/a", "source": "f.yaml:1:1", "action": "skip", "reason": "why"}],
        }

    def test_json_has_all_members_of_a_decision(self) -> None:
        move = ResourceDecision(resource="x", to="y", reason="moved", attempts=(Attempt("y", True, "offered"),))
        kept = ResourceDecision(resource="z", to=None, reason="offered")
        amount = Amount(container="main", resource="cpu", before=None, after="4")
        made = decision(
            step(
                Action.CHANGE,
                message="x → y",
                warnings=("w",),
                resources=(move, kept),
                amounts=(amount,),
                annotations={"a": "b"},
                notes=("n",),
            ),
            step(Action.DENY, message="no", audit=True, code=500),
            patch=(PatchOperation("remove", "/a"),),
        ).to_json()
        assert made["patch"] == [{"op": "remove", "path": "/a"}]
        assert made["trace"] == [
            {
                "rule": "Validation/a",
                "source": "f.yaml:1:1",
                "action": "change",
                "reason": "why",
                "message": "x → y",
                "warnings": ["w"],
                "resources": [
                    {
                        "resource": "x",
                        "to": "y",
                        "reason": "moved",
                        "attempts": [{"resource": "y", "taken": True, "reason": "offered"}],
                    },
                    {"resource": "z", "to": None, "reason": "offered", "attempts": []},
                ],
                "amounts": [{"container": "main", "resource": "cpu", "before": None, "after": "4"}],
                "annotations": {"a": "b"},
                "notes": ["n"],
            },
            {
                "rule": "Validation/a",
                "source": "f.yaml:1:1",
                "action": "deny",
                "reason": "why",
                "message": "no",
                "audit": True,
                "code": 500,
            },
        ]
        json.dumps(made)

    def test_json_of_a_denial_has_a_status(self) -> None:
        made = decision(step(Action.DENY, message="no")).to_json()
        assert (made["allowed"], made["status"]) == (
            False,
            {"code": 403, "reason": "Forbidden", "message": "Validation/a: no"},
        )
