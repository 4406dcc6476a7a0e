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
from tests.native.test_agreement import PODS
from tests.support.evaluation import GPU, MIG1, MIG2, cluster, compiled, injection, limited, validation
from tests.support.native import Admitted, admitted
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
    return (one.pod, one.denied, sorted(one.warned), one.recorded) == (
        other.pod, other.denied, sorted(other.warned), other.recorded
    )  # fmt: skip


@pytest.mark.parametrize("made", PODS)
def test_one_of_two_rule_sets_decides_during_a_change(made: Any) -> None:
    sets = [[*rules, VALIDATIONS[index % len(VALIDATIONS)]] for index, rules in enumerate(MUTATIONS)]
    for first, second in pairwise(sets):
        objects, offers = in_slots(first, second)
        for active in objects:
            alone = admitted([*objects[active].policies()], made, offers=offers)
            changed = admitted(changing(objects, active), made, offers=offers)
            if STAMP_ANNOTATION not in alone.pod["metadata"].get("annotations", {}):
                assert not alone.denied  # no rule applies: the pods of the other rules get the stamp, too
                changed.pod["metadata"].get("annotations", {}).pop(STAMP_ANNOTATION, None)
                assert (changed.denied, changed.warned) == ([], [])
                continue
            assert same(changed, alone)
            if alone.denied:
                continue
            for forged in (*(each.stamp for each in objects.values()), ""):
                outcome = admitted(changing(objects, active), with_annotation(made, forged), offers=offers)
                assert outcome.pod["metadata"]["annotations"] == alone.pod["metadata"]["annotations"]
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


def test_every_pod_of_a_rule_is_stamped_also_without_rules_that_change_pods() -> None:
    for rules in ([validation("true", name="v")], [injection({"cpu": "1"}), validation("true", name="v")]):
        native: NativeRules = translate_rules(compiled(*rules))
        objects = NativeObjects(native, "d" * 64, Settings(), "b")
        outcome = admitted([*objects.policies()], limited({GPU: "1"}))
        assert outcome.pod["metadata"]["annotations"][STAMP_ANNOTATION] == objects.stamp
        assert objects.stamp.startswith("d" * 12 + ".")
