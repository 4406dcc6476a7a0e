"""Difference of two rule sets: outcomes, kinds of change, lines and totals."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.quantity import base_units
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import SKIP_ANNOTATION, FailurePolicy, Match, Mode, OptOut, Rule
from rules_engine.questions.diff import comparison as grouping
from rules_engine.questions.diff.answer import DevicesChange, DifferenceAnswer, Verdict, build_answer
from rules_engine.questions.diff.comparison import WorkloadChanges, compare_outcomes
from rules_engine.questions.diff.outcomes import Outcomes
from rules_engine.questions.diff.shown_changes import group_changes
from rules_engine.questions.diff.values import (
    MAX_NAME_LENGTH,
    Kind,
    Move,
    Outcome,
    OutcomeChange,
    SubmittedPods,
    UnknownOutcome,
    WorkloadName,
)
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.ladder.value import Counts, Rung, WhenExhausted
from rules_engine.rules.validation.value import Check, ValidationAction
from tests.support.differences import amount, unknown
from tests.support.evaluation import (
    GPU,
    HERE,
    MIG1,
    MIG2,
    asks,
    check,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    pod_defaults,
    validation,
)
from tests.support.evaluation import pod as made_pod
from tests.support.laws import clusters, injections, ladder_sets, levelled_pods, pods
from tests.support.naive_difference import counted, look

FALLBACK = "gpurules.io/fallback"
READS_USER = "request.userInfo.username != 'root'"
IS_ROOT = "request.userInfo.username == 'root'"
FAILS_FOR_ROOT = "{'ada': true}[request.userInfo.username]"
WARN = frozenset({ValidationAction.WARN})
EXPRESSIONS = (
    "object.spec.nodeName == 'absent'",
    "object.spec.containers.size() < 2",
    "object.metadata.name != 'b'",
    "!has(object.spec.initContainers)",
    "object.metadata.?annotations[?'a/b'].orValue('') != 'c'",
    "cluster.allocatable('nvidia.com/gpu') > 1",
    "request.namespace == 'ml'",
)
ANNOTATIONS: tuple[dict[str, str], ...] = ({}, {"a/b": "c"}, {"a/b": "d"}, {"e": "f"}, {SKIP_ANNOTATION: "true"})


def submitted(
    made: Json, *, name: str = "job", namespace: str = "ml", user: str = "ada", **fields: Any
) -> SubmittedPods:
    return SubmittedPods(
        workload=WorkloadName.of("", namespace, "Job", name),
        request=pod_request(made, namespace=namespace, user=user),
        **fields,
    )


def outcome(made: Json, *rules: Rule, on: Cluster = cluster(), **fields: Any) -> Outcome:  # noqa: B008 - immutable
    return Outcomes(compiled(*rules)).of(submitted(made, **fields), on)


def changed(made: Json, old: list[Rule], new: list[Rule], on: Cluster = cluster()) -> OutcomeChange:  # noqa: B008 - immutable
    """Return the change of a pod's outcome. Asserts that there is one, and that both sides without it are equal."""
    before, after = outcome(made, *old, on=on), outcome(made, *new, on=on)
    assert compare_outcomes(before, before) is None
    change = compare_outcomes(before, after)
    assert change is not None
    return change


def names(change: OutcomeChange) -> tuple[str, ...]:
    return tuple(each.rule for each in change.rules)


# Outcomes


def test_an_outcome_has_the_amounts_of_all_containers_and_of_the_pod() -> None:
    made = made_pod(
        container("main", limits={GPU: 2}),
        container("idle"),
        init=[container("init", requests={"cpu": "1500m"})],
        resources={"limits": {"cpu": "4"}},
    )
    result = outcome(made, injection({"memory": "1Gi"}, gpu_type=None))
    assert result.resources == (
        amount("spec.resources", "cpu", None, "4"),
        amount("main", "memory", "2Gi", "2Gi"),
        amount("main", GPU, "2", "2"),
        amount("init", "cpu", "1500m"),
    )
    assert result.gpus == {GPU: 2}


def test_an_outcome_names_falls_and_the_rules_that_decided() -> None:
    result = outcome(asks({MIG2: 1}), ladder(MIG2, MIG1, name="a"), on=cluster({MIG1: 1}))
    assert result.fallbacks == (Move(requested=MIG2, given=MIG1),)
    assert result.annotations == {FALLBACK: "2g.20gb->1g.10gb"}
    (effect,) = result.rules
    assert (effect.rule, effect.action) == ("FallbackLadder/a", Action.CHANGE)


def test_a_denied_pod_has_the_rules_that_denied_it_and_no_resources() -> None:
    result = outcome(asks({GPU: 1}), validation(check("false", "never"), name="no"))
    assert not result.allowed
    assert result.message == "Validation/no: never"
    assert [(each.rule, each.action) for each in result.rules] == [("Validation/no", Action.DENY)]
    assert (result.resources, result.gpus, result.fallbacks) == ((), {}, ())


def test_a_malformed_pod_is_denied_by_no_rule() -> None:
    result = outcome(asks({GPU: "one"}))
    assert not result.allowed
    assert result.message.startswith("the pod is malformed: ")
    assert result.rules == ()


def test_a_denial_at_mutate_ends_the_admission() -> None:
    exhausted = ladder(MIG2, name="l", when_exhausted=WhenExhausted.DENY)
    result = outcome(asks({MIG2: 1}), exhausted, validation(check("false", "never")))
    assert [each.rule for each in result.rules] == ["FallbackLadder/l"]


def test_an_update_that_no_rule_matches_is_not_checked() -> None:
    request = pod_request({"spec": {"containers": 1}}, namespace="ml", operation="UPDATE")
    result = Outcomes(compiled()).of(replace(submitted(asks({})), request=request), cluster())
    assert result == Outcome()


def test_rules_in_audit_mode_decide_nothing() -> None:
    result = outcome(asks({GPU: 1}), validation(check("false", "never"), mode=Mode.AUDIT))
    assert result.allowed
    assert result.rules == ()


def test_the_mutated_pod_is_none_if_the_mutation_denies_it() -> None:
    made = asks({MIG2: 1})
    request, view = submitted(made).request, cluster({MIG1: 1})
    assert Outcomes(compiled(ladder(MIG2, when_exhausted=WhenExhausted.DENY))).mutate_request(request, view) is None
    assert Outcomes(compiled(ladder(MIG2, MIG1, annotation=""))).mutate_request(request, view) == asks({MIG1: 1})


# Rules that read the user


@pytest.mark.parametrize(
    "rule",
    [
        validation(READS_USER),
        validation("request.size() > 0"),
        validation("true", match_conditions={"user": READS_USER}),
        validation("variables.user", variables={"user": READS_USER}),
        validation("true", match_conditions={"all": "variables == variables"}, variables={"user": READS_USER}),
        ladder(MIG2, MIG1, match_conditions={"user": IS_ROOT}),
    ],
)
def test_an_outcome_by_a_rule_that_reads_the_user_is_unknown(rule: Rule) -> None:
    result = outcome(asks({MIG2: 1}), rule)
    assert (result.unknown, result.allowed) == (f"{rule.id} reads request.userInfo", None)
    known = outcome(asks({MIG2: 1}), rule, missing={})
    assert known.unknown == ""


def test_all_rules_that_read_the_user_are_named() -> None:
    result = outcome(asks({}), validation(READS_USER, name="a"), validation(IS_ROOT, name="b"))
    assert result.unknown == "Validation/a, Validation/b read request.userInfo"


@pytest.mark.parametrize(
    "rule",
    [
        validation(READS_USER, mode=Mode.AUDIT),
        validation(READS_USER, match=Match(namespaces=("other",))),
        validation(READS_USER, match=Match(resources=(MIG1,))),
        validation(
            READS_USER, match_conditions={"first": READS_USER, "other": "variables.no"}, variables={"no": "false"}
        ),
        validation("request.namespace == 'ml'"),
        validation(check("false", "no", message_expression="'not for ' + request.userInfo.username")),
    ],
)
def test_an_outcome_is_known_if_no_user_can_change_it(rule: Rule) -> None:
    assert outcome(asks({MIG2: 1}), rule).unknown == ""


@given(st.data())
def test_another_user_does_not_change_a_known_outcome(data: st.DataObject) -> None:
    rule_set, made, view = data.draw(rule_sets(user=True)), data.draw(pods()), data.draw(clusters())
    one, other = data.draw(st.permutations(["ada", "root"]))
    result = Outcomes(rule_set).of(submitted(made, user=one), view)
    if not result.unknown:
        assert Outcomes(rule_set).of(submitted(made, user=other, missing={}), view) == result


# Kinds of change


def test_a_pod_that_is_denied_now_has_one_kind_of_change() -> None:
    warns = validation(check("false", "hm"), name="w", validation_actions=frozenset({ValidationAction.WARN}))
    denies = validation(check("false", "never"), name="no")
    change = changed(asks({GPU: 1}), [warns], [denies])
    assert change.kinds == (Kind.DENIED,)
    assert names(change) == ("Validation/no", "Validation/w")
    assert changed(asks({GPU: 1}), [denies], [warns]).kinds == (Kind.ADMITTED,)


def test_another_rung_explains_its_resources_and_its_annotation() -> None:
    old, new = ladder(MIG2, MIG1), ladder(MIG2, GPU)
    change = changed(asks({MIG2: 1}), [old], [new], cluster({MIG1: 1, GPU: 1}))
    assert change.kinds == (Kind.RUNG,)
    assert names(change) == ("FallbackLadder/ladder",)


def test_another_number_of_devices_is_by_the_rule_that_moves_to_them() -> None:
    change = changed(asks({MIG2: 1}), [scaled(2)], [scaled(3)], cluster({MIG1: 9}))
    assert change.kinds == (Kind.RESOURCES,)
    assert names(change) == ("FallbackLadder/ladder",)
    both = asks({MIG2: 1, GPU: 1})
    old, other = (ladder(*rungs, name="other", annotation="") for rungs in ((GPU,), (GPU, MIG1)))
    change = changed(both, [scaled(2), old], [scaled(2), other], cluster({MIG1: 9}))
    assert change.kinds == (Kind.RUNG,)
    assert names(change) == ("FallbackLadder/other",)
    denies = validation(check("false", "never"))
    assert names(changed(asks({MIG2: 1}), [scaled(2)], [scaled(2), denies], cluster({MIG1: 9}))) == (denies.id,)


def test_amounts_that_no_rung_explains_are_another_kind() -> None:
    old, new = injection({"cpu": 2}, gpu_type=None), injection({"cpu": 3}, gpu_type=None, annotations={"a": "b"})
    assert changed(asks({GPU: 1}), [old], [new]).kinds == (Kind.RESOURCES, Kind.ANNOTATIONS)
    both = changed(asks({MIG2: 1}), [ladder(MIG2, GPU), old], [], cluster({GPU: 1}))
    assert both.kinds == (Kind.RUNG, Kind.RESOURCES)


def test_warnings_and_messages_are_kinds_of_their_own() -> None:
    old, new = (validation(check("false", text), validation_actions=WARN) for text in ("a", "b"))
    assert changed(asks({}), [old], [new]).kinds == (Kind.WARNINGS,)
    old, new = (validation(check("false", text)) for text in ("a", "b"))
    assert changed(asks({}), [old], [new]).kinds == (Kind.MESSAGE,)


def test_warnings_in_another_order_are_no_change() -> None:
    one, other = (validation(check("false", text), name=text, validation_actions=WARN) for text in ("a", "b"))
    before = outcome(asks({}), one, other)
    after = outcome(asks({}), one, dataclasses.replace(other, priority=1))
    assert before.warnings != after.warnings
    assert compare_outcomes(before, after) is None


def test_an_equal_outcome_by_another_rule_is_a_change_of_rule() -> None:
    old, new = injection({"cpu": 2}, gpu_type=None, name="a"), injection({"cpu": 2}, gpu_type=None, name="b")
    change = changed(asks({GPU: 1}), [old], [new])
    assert change.kinds == (Kind.RULE,)
    assert names(change) == ("ResourceInjection/a", "ResourceInjection/b")


def test_a_new_rule_that_keeps_the_pod_changes_nothing() -> None:
    view = cluster({MIG2: 1})
    kept = outcome(asks({MIG2: 1}), ladder(MIG2, MIG1), on=view)
    assert [each.action for each in kept.rules] == [Action.KEEP]
    assert compare_outcomes(outcome(asks({MIG2: 1}), on=view), kept) is None


def test_amounts_are_compared_by_value() -> None:
    one, other = (Outcome(resources=(amount("c", "cpu", text),)) for text in ("2", "2000m"))
    assert compare_outcomes(one, other) is None


def test_an_annotation_that_the_pod_has_already_is_no_change() -> None:
    made = asks({GPU: 1}, annotations={"e": "f"})
    assert outcome(made, injection(gpu_type=None, annotations={"e": "f"})).annotations == {}
    moves = ladder(MIG2, GPU, annotation="e")
    made = asks({MIG2: 1}, annotations={"e": "f"})
    overwrites = injection(gpu_type=None, annotations={"e": "f"})
    result = outcome(made, moves, overwrites, on=cluster({GPU: 1}))
    assert [each.annotations for each in result.rules] == [{"e": "f,2g.20gb->gpu"}, {"e": "f"}]
    assert result.annotations == {}


def test_members_are_compared_by_container_and_name() -> None:
    spec = """{{pod: {{metadata: {{annotations: {{e: {0}}}}}, spec: {{imagePullSecrets: [{{name: {0}}}]}}}},
        containers: [{{which: All, env: [{{name: A, value: {0}}}, {{name: B, value: b}}]}}]}}"""
    pod = made_pod(container("main", {GPU: 1}), container("side"))
    before, after = (outcome(pod, pod_defaults(spec.format(text))) for text in "pq")
    change = compare_outcomes(before, after)
    assert change is not None
    assert change.kinds == (Kind.ANNOTATIONS, Kind.MEMBERS)
    assert [each.rule for each in change.rules] == ["PodDefaults/defaults"]
    audited = outcome(pod, pod_defaults(spec.format("p").replace("{pod", "{mode: Audit, pod", 1)))
    assert (audited.members, audited.rules) == ((), ())
    changes = WorkloadChanges()
    changes.add(
        SubmittedPods(
            workload=WorkloadName(namespace="ml", kind="Pod", name="a"), request=pod_request(pod, namespace="ml")
        ),
        before,
        after,
    )
    (shown,) = group_changes(build_answer(changes, old="old", new="new", same_rules=False).changes)
    assert [(each.title, each.before, each.after) for each in shown.differences[:4]] == [
        ("main, side env.A", "p", "q"),
        ("imagePullSecrets.p", "written", "not written"),
        ("imagePullSecrets.q", "not written", "written"),
        ("annotation e", '"p"', '"q"'),
    ]


def test_locations_of_rules_are_not_compared() -> None:
    made = injection({"cpu": 2}, gpu_type=None)
    before = outcome(asks({GPU: 1}), made)
    moved = tuple(replace(each, source=Location("new.yaml", 9, 9)) for each in before.rules)
    assert compare_outcomes(before, replace(before, rules=moved)) is None


@pytest.mark.parametrize("fields", [{}, {"failure_policy": FailurePolicy.IGNORE}, {"validation_actions": WARN}])
def test_locations_of_failed_expressions_are_not_compared(fields: dict[str, Any]) -> None:
    old, new = (
        outcome(
            asks({}),
            validation(
                Check(expression=SourceText.inline("object.metadata.uid == 'a'", file), location=HERE), **fields
            ),
        )
        for file in ("old/a.yaml", "new/a.yaml")
    )
    assert compare_outcomes(old, new) is None
    assert f"{old.message}{old.warnings}".count("object.metadata.uid: no such key") == 1
    assert "a.yaml" not in repr((old.message, old.warnings, old.rules[0].effect))


def test_an_unknown_outcome_is_a_change_of_its_own() -> None:
    one, other = (outcome(asks({GPU: 1}), validation(text)) for text in (READS_USER, IS_ROOT))
    for before, after in ((one, Outcome()), (Outcome(allowed=False), one), (one, other)):
        change = compare_outcomes(before, after)
        assert change is not None
        assert change.kinds == (Kind.UNKNOWN,)
        assert change.rules == ()
        assert {type(change.before), type(change.after)} == {Outcome}


def scaled(weight: int) -> Rule:
    """Return a ladder that gives `weight` of the smaller devices for one of the larger."""
    rungs = Rung(resource=MIG2, location=HERE, weight=weight), Rung(resource=MIG1, location=HERE)
    return ladder(*rungs, counts=Counts.SCALE, annotation="")


BY_USER = validation(READS_USER, name="user", params={"a": [1, {"b": 2.5}]})
MOVES_BY_USER = ladder(MIG2, MIG1, match_conditions={"user": READS_USER}, name="user")


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ([BY_USER], [BY_USER], True),
        ([BY_USER], [dataclasses.replace(BY_USER, location=Location("new.yaml", 2, 2))], True),
        ([BY_USER], [BY_USER, validation(check("true", "no"), name="other")], True),
        ([BY_USER], [BY_USER, ladder(GPU, MIG1, name="other")], True),
        ([BY_USER], [dataclasses.replace(BY_USER, params={"a": [1, {"b": 2}]})], False),
        ([BY_USER], [dataclasses.replace(BY_USER, priority=1)], False),
        ([BY_USER], [BY_USER, validation(check("false", "no"), name="other", validation_actions=WARN)], False),
        ([BY_USER], [BY_USER, ladder(MIG2, MIG1, annotation="")], False),
        ([BY_USER], [BY_USER, injection({"cpu": 1}, gpu_resource=MIG2, gpu_type=None)], False),
        ([BY_USER], [], False),
        ([BY_USER, scaled(2)], [BY_USER, scaled(3)], False),
        ([MOVES_BY_USER], [MOVES_BY_USER], True),
        ([MOVES_BY_USER], [MOVES_BY_USER, validation("true")], False),
    ],
)
def test_a_user_decides_alike_under_equal_rules_on_equal_pods(old: list[Rule], new: list[Rule], kept: bool) -> None:
    view = cluster({MIG1: 3})
    before, after = outcome(asks({MIG2: 1}), *old, on=view), outcome(asks({MIG2: 1}), *new, on=view)
    assert before.unknown
    assert (compare_outcomes(before, after) is None) is kept


@given(st.data())
def test_no_change_for_an_unknown_user_is_none_for_any_user(data: st.DataObject) -> None:
    pool, made, view = data.draw(some_rules(user=True)), data.draw(pods()), data.draw(clusters())
    chosen = st.lists(st.sampled_from(pool), unique_by=lambda rule: rule.id)
    old, new = (Outcomes(compiled(*data.draw(chosen))) for _ in range(2))
    if compare_outcomes(old.of(submitted(made), view), new.of(submitted(made), view)) is None:
        for user in ("ada", "root"):
            one = submitted(made, user=user, missing={})
            assert compare_outcomes(old.of(one, view), new.of(one, view)) is None


# Lines and totals

DENIED = Outcome(allowed=False, message="no")


def lines(groups: WorkloadChanges) -> list[tuple[OutcomeChange, str, int]]:
    """Return the changes with the name and the number of pods of each workload."""
    return [(change, each.name, each.pods) for change in answered(groups).changes for each in change.workloads]


def test_pods_of_one_workload_with_equal_changes_are_one_line() -> None:
    groups = WorkloadChanges()
    warned = Outcome(warnings=("w",))
    pods = (("b", warned), ("a", DENIED), ("b", DENIED), ("b", warned), ("c", Outcome()))
    for name, after in pods:
        groups.add(submitted(asks({}), name=name, count=2), Outcome(), after)
    shown = [(name, *change.kinds, pods) for change, name, pods in lines(groups)]
    assert shown == [("a", "Denied", 2), ("b", "Denied", 2), ("b", "Warnings", 4)]
    (totals,) = answered(groups).clusters
    assert (totals.pods, totals.changed, totals.kinds) == (10, 8, {Kind.DENIED: 4, Kind.WARNINGS: 4})


def test_gpus_are_summed_over_admitted_pods() -> None:
    groups = WorkloadChanges()
    whole, part = Outcome(gpus={GPU: 1}), Outcome(gpus={MIG1: 2})
    groups.add(submitted(asks({}), count=3), part, whole)
    groups.add(submitted(asks({})), whole, DENIED)
    groups.add(submitted(asks({})), whole, unknown("it is not known"))
    update = pod_request(asks({}), namespace="ml", operation="UPDATE")
    dry_run = pod_request(asks({}), namespace="ml", dry_run=True)
    for request in (update, dry_run):
        groups.add(replace(submitted(asks({})), request=request), whole, whole)
    assert answered(groups).clusters[0].gpus == {
        GPU: DevicesChange(before=1, after=3),
        MIG1: DevicesChange(before=6, after=0),
    }
    assert groups.totals[""].unknown == {"it is not known": 1}
    unchanged = UnknownOutcome(unknown="it is not known", known_key="all else")
    groups.add(submitted(asks({})), unchanged, unchanged)
    assert groups.totals[""].unknown == {"it is not known": 1}


def test_pods_that_are_decided_as_they_are_now_are_counted() -> None:
    groups = WorkloadChanges()
    groups.add(submitted(asks({}), as_it_is="no controller", count=2), Outcome(), Outcome())
    groups.add(submitted(asks({})), Outcome(), Outcome())
    assert groups.totals[""].as_it_is == {"no controller": 2}
    assert (groups.totals[""].pods, lines(groups)) == (3, [])


def test_each_cluster_has_its_own_totals() -> None:
    groups = WorkloadChanges(["east", "west"])
    here = replace(submitted(asks({})), workload=WorkloadName(cluster="west", namespace="ml", kind="Job", name="a"))
    groups.add(here, Outcome(), DENIED)
    found = answered(groups)
    assert ([each.changed for each in found.clusters], found.verdict) == ([0, 1], Verdict.CHANGED)


def answered(groups: WorkloadChanges, allowed: Iterable[Kind] = ()) -> DifferenceAnswer:
    return build_answer(groups, old="a", new="b", same_rules=False, allowed=frozenset(allowed))


@pytest.mark.parametrize(
    ("allowed", "verdict"),
    [
        ([], Verdict.CHANGED),
        ([Kind.WARNINGS], Verdict.CHANGED),
        ([Kind.WARNINGS, Kind.ANNOTATIONS, Kind.RUNG], Verdict.ALLOWED),
    ],
)
def test_changes_are_allowed_if_every_kind_of_each_is(allowed: list[Kind], verdict: Verdict) -> None:
    groups = WorkloadChanges()
    assert answered(groups, allowed).verdict is Verdict.NOTHING_DECIDED
    groups.add(submitted(asks({})), Outcome(), Outcome())
    assert answered(groups, allowed).verdict is Verdict.UNCHANGED
    groups.add(submitted(asks({})), Outcome(), Outcome(warnings=("w",), annotations={"a": "b"}))
    assert answered(groups, allowed).verdict is verdict


def test_changed_pods_beyond_the_bound_have_no_line_but_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "MAX_LINES", 2)
    groups = WorkloadChanges()
    for name in "abcdea":
        groups.add(submitted(asks({}), name=name, namespace=name), Outcome(), DENIED)
    assert [(name, pods) for _, name, pods in lines(groups)] == [("a", 2), ("b", 1)]
    assert groups.omitted == 3
    assert answered(groups).clusters[0].changed == 6


def test_long_names_are_cut() -> None:
    groups = WorkloadChanges()
    long = "x" * 1_000
    after = Outcome(warnings=("w",), gpus={long: 1})
    groups.add(submitted(asks({}), name=long, namespace=long), Outcome(), after)

    cut = f"{'x' * MAX_NAME_LENGTH}…"
    assert [name for _, name, _ in lines(groups)] == [cut]
    assert groups.totals[""].namespaces == {cut: 1}
    assert answered(groups).clusters[0].gpus == {cut: DevicesChange(before=0, after=1)}


def test_equal_amounts_in_other_formats_are_lines_of_their_own() -> None:
    groups = WorkloadChanges()
    for written in ("1Ki", "1024", "1Ki"):
        groups.add(submitted(asks({})), Outcome(), Outcome(resources=(amount("c", "memory", None, written),)))
    assert [(change.after.resources[0].limit, pods) for change, _, pods in lines(groups)] == [("1Ki", 2), ("1024", 1)]


# Against a second implementation


@st.composite
def some_rules(draw: st.DrawFn, *, user: bool = False) -> list[Rule]:
    """Generate rules of all kinds; with `user`, most expressions read the user, and some fail for one of them."""
    expressions = st.sampled_from([READS_USER, IS_ROOT, FAILS_FOR_ROOT, "true", "false"] if user else EXPRESSIONS)
    conditions = st.dictionaries(st.sampled_from("xy"), expressions, max_size=1)
    common = st.fixed_dictionaries(
        {
            "match_conditions": conditions,
            "mode": st.sampled_from([Mode.ENFORCE] * 3 + [Mode.AUDIT]),
            "failure_policy": st.sampled_from(FailurePolicy),
            "opt_out": st.sampled_from(OptOut),
            "match": st.sampled_from([Match(), Match(), Match(namespaces=("ml",)), Match(resources=(GPU,))]),
            "priority": st.integers(0, 1),
        }
    )
    made: list[Rule] = [*draw(ladder_sets())]
    for index in range(draw(st.integers(0, 2))):
        made.append(draw(injections(f"i{index}", **{**draw(common), "match": Match()})))
    for index in range(draw(st.integers(0, 2))):
        actions = draw(st.sampled_from([*ValidationAction]))
        text = draw(st.sampled_from(["", "'no: ' + object.metadata.name"])) or None
        made.append(
            validation(
                check(draw(expressions), draw(st.sampled_from(["no", "never"])), message_expression=text),
                name=f"v{index}",
                validation_actions=frozenset({actions}),
                **draw(common),
            )
        )
    return made


def rule_sets(*, user: bool = False) -> st.SearchStrategy[RuleSet]:
    return some_rules(user=user).map(lambda made: compiled(*made))


@given(st.data())
def test_kinds_and_totals_agree_with_a_second_implementation(data: st.DataObject) -> None:
    old, new, view = data.draw(rule_sets()), data.draw(rule_sets()), data.draw(clusters())
    before, after = Outcomes(old), Outcomes(new)
    found, seen = WorkloadChanges(), []
    for made in data.draw(st.lists(pods(shared=True) | levelled_pods(), min_size=1, max_size=4)):
        for name in ("a", "b", "a"):
            namespace = data.draw(st.sampled_from(["ml", "prod"]))
            annotations = data.draw(
                st.sampled_from([{}, {"a/b": "c"}, {"a/b": "d"}, {"e": "f"}, {SKIP_ANNOTATION: "true"}])
            )
            named: Any = {**made, "metadata": {"name": name, "annotations": annotations}}
            one = submitted(named, name=name, namespace=namespace, count=data.draw(st.integers(1, 3)))
            naive = look(one, old, new, view)
            outcomes = before.of(one, view), after.of(one, view)
            change = compare_outcomes(*outcomes)
            assert frozenset(change.kinds if change else ()) == naive.kinds
            found.add(one, *outcomes)
            seen.append(naive)
    expected, totals, (shown,) = counted(seen), found.totals[""], answered(found).clusters
    assert shown.kinds == expected["kinds"]
    assert totals.namespaces == expected["namespaces"]
    for side, devices in (("before", totals.gpus_before), ("after", totals.gpus_after)):
        assert devices == {name: base_units(nanos) for name, nanos in expected[side].items()}
    assert sum(pods for _, _, pods in lines(found)) == shown.changed
    assert totals.pods == sum(one.submitted.count for one in seen)


@given(st.data())
def test_equal_rules_change_nothing(data: st.DataObject) -> None:
    rule_set, made, view = data.draw(rule_sets(user=data.draw(st.booleans()))), data.draw(pods()), data.draw(clusters())
    one = submitted(made)
    assert compare_outcomes(Outcomes(rule_set).of(one, view), Outcomes(rule_set).of(one, view)) is None
