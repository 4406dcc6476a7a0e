"""Policies in slots: one rule set decides each pod, also while two are in the cluster."""

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from rules_engine.model.kubernetes.native_objects import STAMP_ANNOTATION
from rules_engine.model.rules.rule import Rule
from rules_engine.native.offers import build_offers
from rules_engine.native.policy import NativeRules, translate_rules
from rules_engine.webhooks.policies import NativeObjects, Phase, in_phase
from rules_engine.webhooks.settings import Settings
from tests.models.generated.injections import TYPE
from tests.native.test_agreement import PODS
from tests.support.evaluation import GPU, MIG1, MIG2, cluster, compiled, container, injection, limited, pod, validation
from tests.support.native import Admitted, admitted, comparable
from tests.support.native_rules import MUTATIONS, VALIDATIONS

ON = cluster({MIG1: 7, GPU: 1}, {MIG2: 1})


def in_slots(first: Sequence[Rule], second: Sequence[Rule]) -> tuple[dict[str, NativeObjects], Any]:
    """Return the objects of two rule sets by slot, and offers for both."""
    native = {"a": translate_rules(compiled(*first)), "b": translate_rules(compiled(*second))}
    offers: dict[str, Any] = {"known": True, "ladders": {}, "allocatable": {}, "total": {}}
    for each in native.values():
        spec: Any = build_offers(each, ON)
        for name in ("ladders", "allocatable", "total"):
            offers[name] |= spec[name]
    return {slot: NativeObjects(each, slot * 64, Settings(), slot) for slot, each in native.items()}, offers


def changing(objects: dict[str, NativeObjects], active: str) -> list[Any]:
    """Return what is in the cluster during a change from a to b, before or after the switch."""
    phases = {"a": Phase.OUTGOING, "b": Phase.INCOMING}
    mutating = {
        slot: next(each for each in objects[slot].policies() if each["kind"] == "MutatingAdmissionPolicy")
        for slot in objects
    }
    documents = [
        in_phase(document, phases[slot], objects["b"].stamp, mutating["b" if slot == "a" else "a"])
        for slot, each in objects.items()
        for document in each.policies()
        if slot == active or document["kind"] != "MutatingAdmissionPolicyBinding"
    ]
    return sorted(documents, key=lambda each: str(each["kind"]).startswith("Validating"))


def with_annotation(made: Any, value: str) -> Any:
    forged = copy.deepcopy(made)
    forged["metadata"].setdefault("annotations", {})[STAMP_ANNOTATION] = value
    return forged


def same(one: Admitted, other: Admitted) -> bool:
    """Return True if two outcomes are the same but for stamps."""
    return (unstamped(one), one.denied, sorted(one.warned), one.recorded) == (
        unstamped(other), other.denied, sorted(other.warned), other.recorded
    )  # fmt: skip


def unstamped(outcome: Admitted) -> Any:
    made = copy.deepcopy(outcome.pod)
    made["metadata"].get("annotations", {}).pop(STAMP_ANNOTATION, None)
    return comparable(made)


def stamp_of(outcome: Admitted) -> Any:
    return outcome.pod["metadata"].get("annotations", {}).get(STAMP_ANNOTATION)


@pytest.mark.parametrize("made", PODS)
def test_one_of_two_rule_sets_decides_during_a_change(made: Any) -> None:
    sets = [[*rules, VALIDATIONS[index % len(VALIDATIONS)]] for index, rules in enumerate(MUTATIONS)]
    for first, second in pairwise(sets):
        objects, offers = in_slots(first, second)
        for active in objects:
            alone = admitted([*objects[active].policies()], made, offers=offers)
            changed = admitted(changing(objects, active), made, offers=offers)
            assert same(changed, alone)
            assert stamp_of(changed) in (None, objects[active].stamp)
            if alone.denied or stamp_of(changed) is None:
                continue
            for forged in (*(each.stamp for each in objects.values()), ""):
                outcome = admitted(changing(objects, active), with_annotation(made, forged), offers=offers)
                assert outcome.pod["metadata"]["annotations"] == changed.pod["metadata"]["annotations"]
                assert bool(outcome.denied) is False


def test_a_forged_stamp_bypasses_no_check() -> None:
    checks = [validation("object.spec.containers.all(c, c.name == 'a')", name="v")]
    others = [validation("object.spec.containers.all(c, c.name != 'a')", name="w")]
    objects, _ = in_slots(checks, others)
    for index in (0, 1):
        made = limited({GPU: "1"})
        made["spec"]["containers"][0]["name"] = "ba"[index]
        for forged in ("", objects["a"].stamp, objects["b"].stamp):
            submitted = with_annotation(made, forged)
            assert admitted([*objects["ab"[index]].policies()], submitted).denied
            assert admitted(changing(objects, "ab"[index]), submitted).denied
            # During a change, a stamp of a policy that is not active helps no one either.
            assert not admitted(changing(objects, "ba"[index]), submitted).denied


def test_during_a_change_every_pod_of_a_rule_is_stamped_and_else_each_that_a_rule_changes() -> None:
    rules = [injection({"cpu": "1"}, gpu_type="V100"), validation("true", name="v")]
    for exported in (rules[1:], rules):
        native: NativeRules = translate_rules(compiled(*exported))
        objects = NativeObjects(native, "d" * 64, Settings(), "b")
        policies = [*objects.policies()]
        changing = [in_phase(each, Phase.INCOMING, objects.stamp, None) for each in policies]
        assert stamp_of(admitted(changing, limited({GPU: "1"}))) == objects.stamp
        assert stamp_of(admitted(policies, limited({MIG1: "1"}))) is None
        assert stamp_of(admitted(policies, with_annotation(limited({MIG1: "1"}), "x"))) == objects.stamp
        assert objects.stamp.startswith("d" * 12 + ".")
    made = pod(container("c", {GPU: 1}), annotations={TYPE: "V100"})
    assert stamp_of(admitted(policies, made)) == objects.stamp
