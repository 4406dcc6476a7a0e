"""Reports of diffs."""

from io import StringIO

import pytest
from msgspec.structs import replace

from rules_engine.model.wording import MAX_NAMES
from rules_engine.questions.diff.answer import DifferenceAnswer
from rules_engine.questions.diff.report import difference_report
from rules_engine.questions.diff.values import Kind, Outcome, RecordedAdmissions
from rules_engine.report.text import Screen
from tests.support.differences import (
    GPU,
    LIMIT,
    RECORDED,
    WHOLE,
    Pods,
    amount,
    answer,
    denied,
    effect,
    injected,
    kept,
    location,
    submitted,
    unknown,
    written,
)


def text(found: DifferenceAnswer) -> str:
    stream = StringIO()
    Screen(stream).report(difference_report(found))
    return stream.getvalue()


WHOLE_TEXT = """\
Difference of rules
  git:main:rules → rules
  14 of 319 pods changed, 4 not known, 1 of them allowed
  GPUs of admitted pods: +8 nvidia.com/gpu, −8 nvidia.com/mig-3g.40gb

Changes  6 changes
  Denied  1 pod of 1 workload
    admission: allowed → denied (Validation/limit: at most 8 GPUs)
    Validation/limit: no effect → rules/limit.yaml:14
    WORKLOAD       PODS
    Job ml/greedy     1

  Admitted  1 pod of 1 workload
    admission: denied (Validation/limit: at most 8 GPUs) → allowed
    Validation/limit: rules/limit.yaml:14 → no effect
    WORKLOAD      PODS
    Job lab/back     1

  Rung  8 pods of 2 workloads
    given for nvidia.com/mig-2g.20gb: nvidia.com/mig-3g.40gb → nvidia.com/gpu
    main nvidia.com/mig-3g.40gb: 1 → none
    main nvidia.com/gpu: none → 1
    annotation gpurules.io/fallback: "2g.20gb->3g.40gb" → "2g.20gb->gpu"
    FallbackLadder/mig-80gb: rules/mig.yaml:12 → rules/mig.yaml:13
    WORKLOAD           PODS
    Deployment ml/web     6
    Job ml/train          2

  Resources, Warnings  3 pods of 1 workload
    main memory: 8Gi → 16Gi
    warnings: none → memory was doubled
    ResourceInjection/memory: rules/memory.yaml:9
    WORKLOAD     PODS
    Job ml/more     3

  Message  1 pod of 1 workload
    message: Validation/limit: at most 8 GPUs → Validation/limit: at most 4 GPUs
    Validation/limit: rules/limit.yaml:14 → rules/limit.yaml:15
    WORKLOAD            PODS
    Job lab/other-text     1

  Unknown  4 pods of 1 workload
    admission: not known (Validation/owner reads request.userInfo)
    WORKLOAD      PODS
    Job ml/owner     4

Recorded admissions
  1,000 recorded admissions in 1,010 lines: 980 decided again
  7 calls of /validate decided together with /mutate
  9 not replayable: it was not recorded
  4 not replayable: it is cut
  10 lines left out: no JSON

Changed pods by kind of change
  KIND               PODS
  Denied                1
  Admitted              1
  Rung                  8
  Resources             3
  Warnings              3
  Message (allowed)     1
  Unknown               4

Changed pods by namespace
  NAMESPACE  PODS
  ml           16
  lab           2

Changed pods by rule
  RULE                      PODS
  FallbackLadder/mig-80gb      8
  ResourceInjection/memory     3
  Validation/limit             3

Pods whose outcome is not known
  REASON                                   PODS
  Validation/owner reads request.userInfo     4

Live pods decided as they are now
  REASON         PODS
  no controller     1

GPUs of admitted pods
  RESOURCE                     REQUESTED
  nvidia.com/gpu          320 → 328 (+8)
  nvidia.com/mig-3g.40gb      8 → 0 (−8)

  1 live pod decided as it is now
  3 changed pods counted in the totals only
"""


def test_an_answer_with_everything() -> None:
    allowed = frozenset({Kind.MESSAGE})

    assert text(answer(omitted=3, recorded=RECORDED, allowed=allowed)) == WHOLE_TEXT


@pytest.mark.parametrize(
    ("pods", "sentence"), [([], "no pods"), (WHOLE[-1:], "none of 300 pods changed"), (WHOLE[7:8], "none of 1 pod")]
)
def test_an_answer_without_changes(pods: list[Pods], sentence: str) -> None:
    shown = text(answer(pods, same_rules=True))

    assert f"\n  {sentence}" in shown
    assert "  both sides have the same rules\n" in shown
    assert "WORKLOAD" not in shown
    assert "Changed pods by kind of change" not in shown
    assert "Recorded admissions" not in shown


def test_the_gpus_of_unchanged_pods_are_shown() -> None:
    assert "  RESOURCE        REQUESTED\n  nvidia.com/gpu        300\n" in text(answer(WHOLE[-1:]))


CLUSTERS_TEXT = """\
  east: 1 of 1 pod changed
  east: GPUs of admitted pods: −8 nvidia.com/gpu
  cluster: 2 of 3 pods changed
  cluster: GPUs of admitted pods: −7.5 nvidia.com/gpu
  idle: no pods

Changes  1 change
  Denied  2 workloads
    admission: allowed → denied (Validation/limit: at most 8 GPUs)
    Validation/limit: no effect → rules/limit.yaml:14
    WORKLOAD       east  cluster  idle
    Job ml/greedy     1        1
    Job ml/other               1

Changed pods by kind of change
  KIND    east  cluster  idle
  Denied     1        2

Changed pods by namespace
  NAMESPACE  east  cluster  idle
  ml            1        2

Changed pods by rule
  RULE              east  cluster  idle
  Validation/limit     1        2

Live pods decided as they are now
  REASON         east  cluster  idle
  no controller              2

GPUs of admitted pods
  RESOURCE              east         cluster  idle
  nvidia.com/gpu  8 → 0 (−8)  9 → 1.5 (−7.5)

  cluster: 2 live pods decided as they are now
"""


def test_each_cluster_has_a_column() -> None:
    half = replace(kept(), gpus={GPU: 1.5})
    pods = [
        (submitted("greedy", cluster="east"), kept(8), denied()),
        (submitted("greedy", cluster="cluster", as_it_is="no controller"), kept(8), denied()),
        (submitted("other", cluster="cluster"), Outcome(), denied()),
        (submitted("half", cluster="cluster", as_it_is="no controller"), kept(1), half),
    ]

    shown = text(answer(pods, clusters=("east", "cluster", "idle")))

    assert shown.endswith(CLUSTERS_TEXT)


def test_changes_that_look_the_same_are_one() -> None:
    pods = [(submitted(name), kept(count), denied()) for count, name in enumerate(["a", "b", "b", "c"], 1)]
    pods.append((submitted("d", count=9), kept(1), denied("other")))

    shown = text(answer(pods))
    assert "    WORKLOAD  PODS\n    Job ml/d     9\n" in shown
    assert "    WORKLOAD  PODS\n    Job ml/a     1\n    Job ml/b     2\n    Job ml/c     1\n" in shown
    assert [line for line in shown.splitlines() if line.startswith("  Denied")] == [
        "  Denied  9 pods of 1 workload",
        "  Denied  4 pods of 3 workloads",
        "  Denied    13",
    ]


def differences(before: Outcome, after: Outcome) -> list[str]:
    lines = text(answer([(submitted("a"), before, after)])).splitlines()
    start = lines.index("Changes  1 change") + 2
    return [line.strip() for line in lines[start : lines.index("    WORKLOAD  PODS")]]


def test_equal_amounts_of_containers_are_one_difference() -> None:
    before, after = (
        Outcome(resources=tuple(amount(f"c-{n}", "memory", size) for n in range(MAX_NAMES + 2)))
        for size in ("1Gi", "2Gi")
    )

    assert differences(before, after) == ["c-0, c-1, c-2 and 2 more memory: request 1Gi → request 2Gi"]


def test_amounts_are_compared_by_value() -> None:
    before = Outcome(resources=(amount("a", "memory", "1Gi"), amount("spec.resources", "cpu", None, "1")))
    after = Outcome(resources=(amount("a", "memory", "1073741824"), amount("spec.resources", "cpu", "500m", "1")))

    assert differences(before, after) == ["spec.resources cpu: limit 1 → request 500m, limit 1"]


def test_annotations_may_be_removed() -> None:
    before, after = Outcome(annotations={"a": None, "b": "x"}), Outcome(annotations={"b": "y", "c": ""})

    assert differences(before, after) == [
        "annotation a: removed → not written",
        'annotation b: "x" → "y"',
        'annotation c: not written → ""',
    ]


def test_warnings_that_both_sides_have_are_left_out() -> None:
    assert differences(injected("1Gi", 9, warnings=("a", "b")), injected("1Gi", 9, warnings=("b", "c", "d"))) == [
        "warnings: a → c; d",
        "ResourceInjection/memory: rules/memory.yaml:9",
    ]
    assert differences(Outcome(warnings=("a", "b")), Outcome(warnings=("b",))) == ["warnings: a → none"]


def test_a_resource_that_is_kept_is_given() -> None:
    _, fell, _ = WHOLE[0]
    stays = Outcome(gpus=fell.gpus, resources=fell.resources, annotations=fell.annotations)

    assert differences(stays, fell) == [
        "given for nvidia.com/mig-2g.20gb: nvidia.com/mig-2g.20gb → nvidia.com/mig-3g.40gb",
        "FallbackLadder/mig-80gb: no effect → rules/mig.yaml:12",
    ]


def test_an_equal_outcome_by_another_rule_names_both() -> None:
    before = injected("8Gi", 9)
    other = effect(LIMIT, location("other.yaml", 2), amounts=written("memory", "8Gi"))

    assert differences(before, replace(before, rules=(other,))) == [
        "ResourceInjection/memory: rules/memory.yaml:9 → no effect",
        "Validation/limit: no effect → other.yaml:2",
    ]


def test_an_outcome_known_on_one_side_only_is_an_unknown_change() -> None:
    """Rules that changed the pod before may do so after as well."""
    assert differences(injected("8Gi", 9), unknown("Validation/a reads request.userInfo")) == [
        "admission: allowed → not known (Validation/a reads request.userInfo)"
    ]


def test_many_gpu_resources_are_counted() -> None:
    gpus = {f"example.com/gpu-{n:02}": 1 for n in range(13)}

    shown = text(answer([(submitted("a"), denied(), Outcome(gpus=gpus))]))

    assert ", +1 example.com/gpu-09, 3 more\n" in shown


def test_a_log_that_is_replayed_completely() -> None:
    recorded = RecordedAdmissions(lines=3, admissions=3, replayed=3, later_calls=0, not_replayable={}, unreadable={})

    shown = text(answer(WHOLE[-1:], recorded=recorded))

    assert "\nRecorded admissions\n  3 recorded admissions in 3 lines: 3 decided again\n\n" in shown
