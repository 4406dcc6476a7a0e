"""Findings about native policies: objects as the writer or `native` makes them, and near misses."""

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rules_engine.diagnosis.doctor import diagnose
from rules_engine.diagnosis.native_policies import find_native
from rules_engine.diagnosis.reading.built_in_fields import BUILT_IN_FIELDS
from rules_engine.diagnosis.reading.files import read_objects
from rules_engine.diagnosis.reasons import NativeReason
from rules_engine.diagnosis.report import diagnosis_report
from rules_engine.diagnosis.scope import Scope
from rules_engine.diagnosis.wording import MAX_NAMES, MAX_QUOTED
from rules_engine.evaluation import RuleSet
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.native_objects import NATIVE_RESOURCES, OFFERS, RULES_ANNOTATION, SWITCH
from rules_engine.model.rules.finding import Finding
from rules_engine.native.offers import build_offers
from rules_engine.native.policy import translate_rules
from rules_engine.webhooks.policies import NativeObjects, Phase, in_phase
from rules_engine.webhooks.settings import Settings
from tests.support.api import GPU, MIG1, Object, ago, cluster, node
from tests.support.evaluation import MIG2, check, compiled, ladder, validation
from tests.support.remedies import has_its_risk

RULES: RuleSet = compiled(ladder(MIG2, MIG1, name="mig"), validation(check(f"cluster.total('{GPU}') > 0"), name="v"))
DIGEST, OTHER = "a" * 64, "b" * 64
NODES = [node("n1", {GPU: 4}), node("n2", {MIG1: 7})]
NAME = Settings().name


def installed(slot: str = "a", digest: str = DIGEST, *, created: str = ago(hours=1), **offers: Any) -> list[Object]:
    """Return the objects of rules and their offers, as they are stored; `offers`: members of their status."""
    native = NativeObjects(translate_rules(RULES), digest, Settings(), slot)
    spec = build_offers(translate_rules(RULES), cluster(*NODES).view)
    made: list[Any] = [copy.deepcopy(each) for each in (*native.policies(), native.offers(spec))]
    made = [each for each in made if each["kind"] in NATIVE_RESOURCES]
    for each in made:
        each["metadata"]["creationTimestamp"] = created
        if each["kind"] == OFFERS:
            each["status"] = {"writtenAt": ago(seconds=20), **offers}
    return made


def found(*objects: Object, rules: bool = False, digest: str = DIGEST, absent: Sequence[str] = ()) -> list[Finding]:
    shown = cluster(*objects, absent=absent)
    return [*find_native(shown, RULES if rules else None, digest if rules else "")]


def rows(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(each.reason, each.object.title) for each in findings]


@pytest.mark.parametrize("rules", [False, True])
@pytest.mark.parametrize("slot", ["", "a"])
def test_objects_as_they_should_be_have_no_finding(slot: str, rules: bool) -> None:
    assert found(*NODES, *installed(slot), rules=rules) == []


def test_objects_of_other_tools_are_ignored() -> None:
    others = installed("", OTHER, writtenAt=ago(days=9))[:-1]
    for each in others:
        del each["metadata"]["annotations"][RULES_ANNOTATION]
    assert found(*others, rules=True) == []


# Missing offers.


def test_policies_whose_offers_are_gone_are_found() -> None:
    *policies, offers = installed()
    other = copy.deepcopy(offers)
    other["metadata"]["name"] = "other"

    served, unserved = ([each for each in found(*made) if each.reason == "GPUOffersMissing"] for made in (
        (*policies, other), policies
    ))  # fmt: skip

    assert rows(served) == rows(unserved) == [("GPUOffersMissing", f"GPUOffers {NAME}-a")]
    readers = [f"MutatingAdmissionPolicyBinding {NAME}"]
    readers += [f"ValidatingAdmissionPolicyBinding {NAME}-a-{name}" for name in ("warnings", "deny-fail-offers")]
    assert served[0].evidence == (f"read by {readers[0]}, {readers[1]} and {readers[2]}",)
    lacking = "the API server does not serve CustomResourceDefinition gpuoffers.gpurules.io"
    assert unserved[0].evidence == (lacking, *served[0].evidence)


def test_nothing_is_said_of_offers_that_were_not_read() -> None:
    assert found(*installed()[:-1], absent=[OFFERS]) == []


# Other rules.


def test_policies_of_other_rules_than_the_active_ones_are_one_finding() -> None:
    (finding,) = found(*NODES, *installed(digest=OTHER), rules=True)

    assert rows([finding]) == [("PoliciesOfOtherRules", f"MutatingAdmissionPolicyBinding {NAME}")]
    assert finding.message == "native policies are of other rules than the active ones"
    assert finding.evidence[0] == "digest of the rules: bbbbbbbbbbbb, expected: aaaaaaaaaaaa"
    assert f"MutatingAdmissionPolicy {NAME}-a" in finding.evidence[1]


def test_without_rules_the_switch_decides_which_slot_is_left_over() -> None:
    former = [each for each in installed("b", OTHER) if each["kind"] != "MutatingAdmissionPolicyBinding"]

    (finding,) = found(*NODES, *installed("a"), *former)

    assert finding.object == ObjectName("MutatingAdmissionPolicy", f"{NAME}-b")
    assert finding.message.endswith(f"of other rules or settings than MutatingAdmissionPolicyBinding {NAME}")
    assert rows(found(*NODES, *installed("a"), *former, rules=True)) == rows([finding])


def test_two_slots_are_no_finding_while_rules_change() -> None:
    incoming = [
        each
        for each in installed("b", OTHER, created=ago(minutes=1))
        if each["kind"] != "MutatingAdmissionPolicyBinding"
    ]
    for rules in (False, True):
        assert found(*NODES, *installed("a"), *incoming, rules=rules) == []


def test_another_version_of_the_policies_of_the_same_rules_is_found() -> None:
    objects = installed("a")
    objects[0]["metadata"]["annotations"]["gpurules.io/rules"] = "another"
    (finding,) = found(*NODES, *objects, rules=True)
    assert finding.evidence[0] == "digest of the rules: aaaaaaaaaaaa, expected: aaaaaaaaaaaa"


def test_installations_are_compared_each_by_itself() -> None:
    others = installed("", OTHER)
    for each in others:
        for name in ("name", "policyName"):
            members = each["metadata"] if name == "name" else each["spec"]
            if name in members:
                members[name] = members[name].replace(NAME, f"{NAME}-test", 1)
        if "paramRef" in each["spec"]:
            each["spec"]["paramRef"]["name"] = f"{NAME}-test"
    assert found(*NODES, *installed("a"), *others) == []


def test_printed_validations_without_a_switch_are_compared_with_each_other() -> None:
    checks = [each for each in installed("") if each["kind"].startswith("Validating")]
    late = [each for each in installed("", OTHER) if each["kind"] == "ValidatingAdmissionPolicy"]
    for each in (*checks, *late):
        each["spec"].pop("paramRef", None)
    late = late[-1:]
    late[0]["metadata"]["name"] += "-2"
    assert rows(found(*checks, *late)) == [
        ("PoliciesOfOtherRules", f"ValidatingAdmissionPolicy {NAME}-deny-fail-offers-2")
    ]


# Edited and missing policies.


def edit_check(objects: list[Any]) -> None:
    policy = next(each for each in objects if each["kind"] == "ValidatingAdmissionPolicy")
    policy["spec"]["validations"][0]["expression"] = "true"


def edit_condition(objects: list[Any]) -> None:
    policy = next(each for each in objects if each["kind"] == "MutatingAdmissionPolicy")
    policy["spec"]["matchConditions"][0]["expression"] = "false"


def add_condition(objects: list[Any]) -> None:
    policy = next(each for each in objects if each["kind"] == "ValidatingAdmissionPolicy")
    policy["spec"]["matchConditions"].append({"name": "never", "expression": "false"})


def remove(kind: str) -> Callable[[list[Any]], None]:
    return lambda objects: objects.remove(next(each for each in objects if each["kind"] == kind))


@pytest.mark.parametrize("slot", ["", "a"])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (edit_check, "-warnings: differs from these rules in validations"),
        (edit_condition, ": differs from these rules in matchConditions"),
        (add_condition, "-warnings: differs from these rules in matchConditions"),
        (remove(SWITCH), "MutatingAdmissionPolicyBinding gpu-rules: not found"),
        (remove("MutatingAdmissionPolicy"), ": not found"),
        (remove("ValidatingAdmissionPolicyBinding"), "-warnings: not found"),
    ],
)
def test_edited_and_missing_policies_are_found(change: Callable[[list[Any]], None], text: str, slot: str) -> None:
    objects = installed(slot)
    change(objects)
    (finding,) = [each for each in found(*NODES, *objects, rules=True) if each.reason == "PoliciesEdited"]
    assert text in finding.evidence[0]
    # The writer may be about to change them.
    recent = installed(slot, created=ago(minutes=4))
    change(recent)
    assert found(*NODES, *recent, rules=True) == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SWITCH, "MutatingAdmissionPolicy gpu-rules-a has no binding"),
        ("MutatingAdmissionPolicy", "MutatingAdmissionPolicy gpu-rules-a does not exist, but has a binding"),
        ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy gpu-rules-a-warnings has no binding"),
    ],
)
def test_policies_without_a_binding_are_found_without_rules(kind: str, text: str) -> None:
    objects = installed()
    remove(kind)(objects)
    assert [each.evidence for each in found(*objects)] == [(text,)]
    assert found(*objects, absent=[kind]) == []


@pytest.mark.parametrize("phase", Phase)
def test_a_phase_of_a_change_is_no_edit(phase: Phase) -> None:
    for others in (None, next(each for each in installed("b") if each["kind"] == "MutatingAdmissionPolicy")):
        objects = [{**in_phase(each, phase, "stamp", others), "kind": each["kind"]} for each in installed()]
        assert found(*NODES, *objects, rules=True) == []


def test_each_installation_is_compared() -> None:
    native = NativeObjects(translate_rules(RULES), DIGEST, Settings(name="other", namespace="x"), "b")
    others: list[Any] = [copy.deepcopy(each) for each in native.policies() if each["kind"] in NATIVE_RESOURCES]
    others.append(copy.deepcopy(native.offers(build_offers(translate_rules(RULES), cluster(*NODES).view))))
    for each in others:
        each["metadata"]["creationTimestamp"] = ago(hours=1)
    assert found(*NODES, *installed(), *others, rules=True) == []
    edit_check(others)
    (finding,) = found(*NODES, *installed(), *others, rules=True)
    assert finding.evidence == ("ValidatingAdmissionPolicy other-b-warnings: differs from these rules in validations",)


# Outdated offers.


def test_offers_that_no_writer_confirms_are_compared_with_the_nodes() -> None:
    objects, more = installed(writtenAt=ago(minutes=3)), node("n3", {MIG2: 1})

    assert found(*NODES, *objects, rules=True) == []
    (finding,) = found(*NODES, more, *objects, rules=True)
    assert rows([finding]) == [("GPUOffersOutdated", f"GPUOffers {NAME}-a")]
    assert finding.evidence == (f"written at {ago(minutes=3)}", "nodes offer something else now: ladders")
    assert found(*NODES, more, *installed(), rules=True) == []  # a writer runs


def test_printed_offers_are_compared_with_the_nodes_by_the_rules_only() -> None:
    objects = installed("")
    objects[-1]["status"] = {}
    (finding,) = found(node("n", {GPU: 1}), *objects, rules=True)
    assert finding.evidence == ("nodes offer something else now: ladders and total",)
    assert found(node("n", {GPU: 1}), *objects) == []


def _created(made: Object, at: str) -> None:
    made["metadata"]["creationTimestamp"] = at


def _turned(made: Object, at: str) -> None:
    made["status"]["conditions"][0]["lastTransitionTime"] = at


@pytest.mark.parametrize("change", [_created, _turned])
def test_without_rules_offers_are_compared_with_the_times_of_nodes(change: Callable[[Object, str], None]) -> None:
    before, after = node("n1", {GPU: 4}), node("n2", {MIG1: 7})
    change(before, ago(minutes=9))
    change(after, ago(minutes=4))

    (finding,) = found(before, after, *installed(writtenAt=ago(minutes=5)))

    assert finding.evidence[1] == "created or changed since: n2"
    assert found(before, after, *installed(writtenAt=ago(minutes=4))) == []


# Type checks, dumps and scope.


def test_type_check_warnings_are_quoted_within_bounds() -> None:
    objects = installed("")
    policy = next(each for each in objects if each["metadata"]["name"] == f"{NAME}-deny-fail-offers")
    warning = {"fieldRef": "spec.validations[0].expression", "warning": "v1, Kind=Pod:\nundefined field 'x'\x1b[2J"}
    long = {"fieldRef": "spec.variables[0]", "warning": "x" * 10 * MAX_QUOTED}
    policy["status"] = {"typeChecking": {"expressionWarnings": [warning, *[long] * 8, "no object"]}}

    (finding,) = found(*NODES, *objects)

    assert rows([finding]) == [("PolicyTypeCheckWarning", f"ValidatingAdmissionPolicy {NAME}-deny-fail-offers")]
    assert finding.message == "the API server warns of 9 expressions of the policy"
    assert finding.evidence[0].startswith("spec.validations[0].expression: v1, Kind=Pod: undefined field 'x'")
    assert len(finding.evidence) == MAX_NAMES
    assert max(map(len, finding.evidence)) <= MAX_QUOTED + 1


def test_a_hostile_dump_is_reported(tmp_path: Path) -> None:
    objects = installed("")
    for each in objects:
        each["metadata"]["annotations"] = {RULES_ANNOTATION: f"\x1b{each['kind'][:1]}" * 1000, "gpurules.io/rules": 3}
        each["spec"]["paramRef"] = {"name": "\x1b" * 9999} if each["kind"].startswith("Validating") else 7
        each["status"] = {"writtenAt": 5, "typeChecking": {"expressionWarnings": {"warning": None}}}
    path, event = tmp_path / "dump.json", {"kind": "Event", "metadata": {"name": "e"}, "lastTimestamp": ago()}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n"), event, *objects]}))

    reading = read_objects([path], BUILT_IN_FIELDS)
    assert reading.objects is not None
    report = diagnose(reading.objects, (), RULES, Scope(), "rules", DIGEST)

    reasons = {group.finding.reason for group in report.findings}
    assert reasons == {NativeReason.OFFERS_MISSING, NativeReason.OTHER_RULES}
    assert max(len(line) for group in report.findings for line in group.finding.evidence) <= MAX_QUOTED + 1
    assert report.objects["gpuoffers"] == 1
    assert diagnosis_report(report)


def test_a_dump_with_some_kinds_lists_the_others_as_not_read(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    for items, absent in ((NODES, set()), ([*NODES, *installed()[:-1]], {"gpuoffers"})):
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        objects = read_objects([path], BUILT_IN_FIELDS).objects
        assert objects is not None
        report = diagnose(objects, (), None, Scope())
        assert {each.objects for each in report.absent} & {*NATIVE_RESOURCES.values()} == absent


def test_reports_on_a_node_or_a_namespace_have_no_findings_about_policies() -> None:
    shown = cluster(*NODES, *installed()[:-1])
    assert diagnose(shown, (), None, Scope()).findings
    assert diagnose(shown, (), None, Scope(node="n1")).findings == ()
    assert diagnose(shown, (), None, Scope(namespace="ml")).findings == ()


def test_findings_have_a_remedy_with_its_risk() -> None:
    former = [each for each in installed("b", OTHER) if each["kind"] != "MutatingAdmissionPolicyBinding"]
    findings = found(*installed("a", writtenAt=ago(hours=1))[:-1], *former, node("n", {GPU: 1}))
    assert {each.reason for each in findings} == {NativeReason.OFFERS_MISSING, NativeReason.OTHER_RULES}
    assert all(each.remedies and each.cause and all(map(has_its_risk, each.remedies)) for each in findings)
