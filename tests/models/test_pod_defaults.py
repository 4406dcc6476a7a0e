"""The engine agrees with a second implementation of PodDefaults, written from their specification alone.

`CASES=20000` compares so many cases in each test.
"""

import os
from typing import Any

import pytest
from hypothesis import assume, given, settings

from tests.models import pod_defaults as model
from tests.models.generated import pod_defaults as generated
from tests.support.evaluation import container, pod
from tests.support.patching import same

CASES = os.environ.get("CASES", "")
several = settings(max_examples=int(CASES or "20"))
"""Until the differences that the closing note of issue 68 names are mended, only `CASES` draws fresh examples."""

GPU = generated.GPU
SHM = {"name": "shm", "emptyDir": {"medium": "Memory"}}
MOUNT = {"name": "shm", "mountPath": "/dev/shm"}
HUB = {"name": "hub"}
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
SHARED = {"pod": {"spec": {"volumes": [SHM]}}, "containers": [{"which": "Requesting", "volumeMounts": [MOUNT]}]}


@several
@given(generated.own_cases())
def test_pod_defaults_agree_with_their_model(case: Any) -> None:
    generated.check(case)


@several
@given(generated.whole_cases())
def test_all_mutating_kinds_agree_with_their_models(case: Any) -> None:
    generated.check(case)


@several
@given(generated.placed_cases())
def test_ladders_that_foresee_pod_defaults_agree_with_their_models(case: Any) -> None:
    generated.check(case)


@several
@given(generated.own_cases())
def test_admission_before_changes_no_decision(case: Any) -> None:
    generated.check_law(case)


# The model alone


@several
@given(generated.own_cases())
def test_twice_is_once_in_the_model(case: Any) -> None:
    first = model.mutate(case["pod"], case["rules"], case["world"])
    assume(first.allowed)
    again = model.mutate(first.pod, case["rules"], case["world"])
    assert again.allowed
    assert same(again.pod, first.pod), (first.pod, again.pod)


@several
@given(generated.own_cases())
def test_admission_before_changes_no_decision_of_the_model(case: Any) -> None:
    assume(case["world"].default_classes is not None)
    server, namespace = generated.api_server(case["world"]), case["world"].namespace
    stored = server.mutate(case["pod"], namespace)
    assume(not stored.refusal)
    first, second = (model.mutate(made, case["rules"], case["world"]) for made in (case["pod"], stored.pod))
    assert (first.allowed, first.failed, first.claimed) == (second.allowed, second.failed, second.claimed)
    assume(first.allowed)
    after = [server.mutate(each.pod, namespace) for each in (first, second)]
    assert after[0].refusal == after[1].refusal
    for key in first.claimed:
        assert same(*(generated.value_at(each.pod, key) for each in after)), key


def spec(**members: Any) -> Any:
    """Return a rule that adds members of the spec."""
    return {"pod": {"spec": members}}


def overwriting(rule: Any) -> Any:
    return {"onConflict": "Overwrite", **rule}


@pytest.mark.parametrize(
    ("rules", "before", "expected"),
    [
        ([spec(runtimeClassName="nvidia")], {"runtimeClassName": ""}, {"runtimeClassName": "nvidia"}),
        ([overwriting(spec(runtimeClassName="nvidia"))], {"runtimeClassName": "kata"}, {"runtimeClassName": "kata"}),
        ([spec(schedulerName="kai")], {"schedulerName": "default-scheduler"}, {"schedulerName": "kai"}),
        ([spec(schedulerName="kai")], {"schedulerName": "volcano"}, {"schedulerName": "volcano"}),
        (
            [spec(priorityClassName="high")],
            {"priorityClassName": "standard", "priority": 0, "preemptionPolicy": "Never"},
            {"priorityClassName": "high"},
        ),
        (
            [spec(priorityClassName="high")],
            {"priorityClassName": "high", "priority": 9},
            {"priorityClassName": "high", "priority": 9},
        ),
        (
            [overwriting(spec(tolerations=[{"key": "gpu", "operator": "Equal", "value": "a"}]))],
            {"tolerations": [{"key": "gpu", "value": "a"}]},
            {"tolerations": [{"key": "gpu", "value": "a"}]},
        ),
        ([spec(nodeSelector={"a": "1"}), overwriting(spec(nodeSelector={"a": "2"}))], {}, {"nodeSelector": {"a": "1"}}),
        (
            [spec(imagePullSecrets=[{"name": "hub"}])],
            {"imagePullSecrets": None},
            {"imagePullSecrets": [{"name": "hub"}]},
        ),
        ([overwriting(spec(volumes=[SHM]))], {"volumes": [{"name": "shm", "emptyDir": {}}]}, {"volumes": [SHM]}),
        (
            [overwriting(spec(volumes=[{"name": "a", "hostPath": {"path": "/a"}}]))],
            {"volumes": [{"name": "a", "hostPath": {"path": "/a", "type": ""}}]},
            {"volumes": [{"name": "a", "hostPath": {"path": "/a", "type": ""}}]},
        ),
        (
            [{"mode": "Audit", **spec(schedulerName="kai")}, spec(schedulerName="volcano")],
            {},
            {"schedulerName": "volcano"},
        ),
        ([{"namespaces": {"research": {}}, **spec(schedulerName="kai")}], {}, {}),
        (
            [
                {
                    "namespaces": {"research": {"inherit": "Merge", **spec(schedulerName="kai")}},
                    **spec(nodeSelector={"a": "1"}),
                }
            ],
            {},
            {"nodeSelector": {"a": "1"}, "schedulerName": "kai"},
        ),
    ],
)
def test_members_of_the_spec(rules: Any, before: Any, expected: Any) -> None:
    settle(rules, pod(container(), **before), pod(container(), **expected))


@pytest.mark.parametrize(
    ("rules", "before", "expected"),
    [
        ([SHARED], {"both": {GPU: 1}}, {"both": {GPU: 1}, "volumeMounts": [MOUNT], "volumes": [SHM]}),
        ([SHARED], {"both": {GPU: 0}}, {"both": {GPU: 0}}),
        (
            [SHARED],
            {"both": {GPU: 1}, "volumeMounts": [{"name": "own", "mountPath": "/dev/shm/"}]},
            {"both": {GPU: 1}, "volumeMounts": [{"name": "own", "mountPath": "/dev/shm/"}]},
        ),
        (
            [SHARED],
            {"both": {GPU: 1}, "volumes": [{"name": "shm", "emptyDir": {}}]},
            {"both": {GPU: 1}, "volumes": [{"name": "shm", "emptyDir": {}}]},
        ),
        (
            # The first rule adds no volume that nothing mounts; the second one may still need it.
            [SHARED, {**SHARED, "containers": [{"which": "All", "volumeMounts": [{**MOUNT, "mountPath": "/x"}]}]}],
            {},
            {"volumeMounts": [{**MOUNT, "mountPath": "/x"}], "volumes": [SHM]},
        ),
        (
            [overwriting({"containers": [{"which": "NotRequesting", "env": [VOID]}]})],
            {"env": [{**VOID, "value": "0"}, {**VOID, "value": "all"}]},
            {"env": [{**VOID, "value": "0"}, VOID]},  # the last one counts
        ),
        (
            [
                {
                    "containers": [{"which": "All", "env": [VOID]}, {"which": "All", "volumeMounts": [MOUNT]}],
                    "namespaces": {"research": {"inherit": "Merge"}},
                }
            ],
            {},
            {"env": [VOID], "volumeMounts": [MOUNT]},
        ),
    ],
)
def test_members_of_containers(rules: Any, before: Any, expected: Any) -> None:
    settle(rules, *map(with_container, (before, expected)))


def with_container(members: Any) -> Any:
    """Return a pod with one container, and with the volumes among the members."""
    rest = dict(members)
    volumes = {"volumes": rest.pop("volumes")} if "volumes" in rest else {}
    return pod({**container("main", rest.pop("both", None)), **rest}, **volumes)


def settle(specs: Any, before: Any, expected: Any) -> None:
    """Assert the result of rules for a pod, of the model and of the engine."""
    rules = [
        {"apiVersion": "gpurules.io/v1", "kind": "PodDefaults", "metadata": {"name": name}, "spec": each}
        for name, each in zip("abc", specs, strict=False)
    ]
    case = {"rules": rules, "pod": before, "world": model.World("research", {}, frozenset({"standard"}))}
    found = model.mutate(before, rules, case["world"])
    assert same(found.pod, expected), found.pod
    generated.check(case)
