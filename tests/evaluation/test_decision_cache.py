"""Decision cache: only requests with equal fingerprints share a decision."""

import copy
import functools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import ValidationError

from rules_engine.evaluation import DecisionCache, RuleSet, mutate, validate
from rules_engine.evaluation.decision_cache import MAX_BYTES, MAX_DECISION_BYTES, _estimate_bytes
from rules_engine.evaluation.fingerprint import (
    MAX_KEY_BYTES,
    MAX_KEY_CONTAINERS,
    Encode,
    Fingerprint,
    marshal_value,
)
from rules_engine.evaluation.nodes import NodeFilter, NodeRequirement
from rules_engine.kinds.injection.value import OnConflict
from rules_engine.kinds.validation.value import ValidationAction
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Taint
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint, pod_request
from rules_engine.model.rules.decision import Decision
from rules_engine.model.rules.rule import SKIP_ANNOTATION, FailurePolicy, Match, Mode, Operation, OptOut, Rule
from tests.support.conditions import SELECTORS, SOUND_CONDITIONS
from tests.support.evaluation import asks, check, cluster, compiled, container, injection, ladder, node, pod, validation
from tests.support.laws import GPUS, clusters, injections, ladders, pods
from tests.support.patching import apply_strictly, same

MIG, GPU = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu"
GPU_TYPE = "task.bkbcs.tencent.com/gpu-type"

EXPRESSIONS = (
    *SOUND_CONDITIONS,
    "object.metadata.name != 'b'",
    "object.metadata.?labels[?'team'].orValue('') != 'b'",
    "has(object.spec.nodeSelector) && object.spec.nodeSelector.size() > 1",
    "object.spec.?priority.orValue(0) == 0",
    "object.spec.containers.all(c, c.?image.orValue('') != 'b')",
    "object.spec.containers[0].name == 'main'",
    "cel.bind(spec, object.spec, spec.containers.size() > 1)",
    "oldObject == null || oldObject.metadata.name == 'b'",
    "oldObject.?spec.?priority.orValue(0) == 0",
    "!has(object.spec.securityContext.runAsUser)",
    "request.?userInfo.?username.orValue('') != 'b'",
    "request.dryRun == false",
    "request['namespace'] == 'ml'",
    "namespaceObject.metadata.?labels[?'team'].orValue('') != 'b'",
    "cluster.allocatable('nvidia.com/gpu') > 1",
    "params.?x.hasValue()",
    "variables.first == 'b'",
    "object.metadata == object.metadata",
)


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    """Common fields of all kinds of rules."""
    return {
        "match": Match(
            namespaces=draw(st.sampled_from([("*",), ("ml",)])),
            object_selector=draw(st.sampled_from(SELECTORS)),
            namespace_selector=draw(st.sampled_from(SELECTORS[:3])),
        ),
        "match_conditions": {
            f"c{index}": text
            for index, text in enumerate(draw(st.lists(st.sampled_from(EXPRESSIONS), max_size=2, unique=True)))
        },
        "variables": {"first": "object.?metadata.?annotations[?'a/b'].orValue('none')"},
        "failure_policy": draw(st.sampled_from(FailurePolicy)),
        "opt_out": draw(st.sampled_from(OptOut)),
        "mode": draw(st.sampled_from([Mode.ENFORCE] * 4 + [Mode.AUDIT])),
    }


@st.composite
def rule_sets(draw: st.DrawFn) -> RuleSet:
    made: list[Rule] = []
    for index in range(draw(st.integers(0, 2))):
        made.append(draw(ladders(f"l{index}", **draw(conditions()))))
    for index in range(draw(st.integers(0, 2))):
        made.append(draw(injections(f"i{index}", **draw(conditions()))))
    for index in range(draw(st.integers(0, 2))):
        common = draw(conditions())
        if draw(st.booleans()):
            common["match"] = replace(common["match"], operations=(Operation.CREATE, Operation.UPDATE))
        checks = [
            check(text, "no", message_expression="'no: ' + object.metadata.name")
            for text in draw(st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=2))
        ]
        actions = frozenset(draw(st.sets(st.sampled_from(ValidationAction), min_size=1)))
        made.append(validation(*checks, name=f"v{index}", validation_actions=actions, **common))
    return compiled(*made)


def accepted(raw: dict[str, Any]) -> bool:
    """Return True if the server decides the request, False if it refuses it because of a member's type."""
    try:
        AdmissionRequest.parse(raw)
    except ValidationError:
        return False
    return True


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """The JSON of a request."""
    made: Any = draw(pods())
    made["metadata"].update(
        draw(
            st.fixed_dictionaries(
                {"name": st.sampled_from("ab"), "uid": st.just("1")},
                optional={
                    "labels": st.dictionaries(st.sampled_from(["team", "tier"]), st.sampled_from("ab")),
                    "annotations": st.dictionaries(
                        st.sampled_from(["a/b", GPU_TYPE, "other", SKIP_ANNOTATION]), st.sampled_from(["b", "true"])
                    ),
                    "namespace": st.sampled_from(["ml", "prod"]),
                },
            )
        )
    )
    made["spec"].update(
        draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "priority": st.integers(0, 1),
                    "tolerations": st.just([{"key": "a", "operator": "Exists"}]),
                    "nodeSelector": st.just({"pool": "a"}),
                    "nodeName": st.sampled_from(["n0", "n1"]),
                },
            )
        )
    )
    old: Any = draw(st.none() | st.just({"metadata": {"name": "b"}}))
    sent = pod_request(
        made,
        uid="0",
        user="a",
        operation=draw(st.sampled_from(["CREATE", "CREATE", "UPDATE"])),
        namespace=draw(st.sampled_from(["ml", "prod"])),
        dry_run=draw(st.booleans()),
        old_pod=old,
    )
    return dict(sent.raw)


def places(value: Json) -> Iterator[tuple[Any, Any]]:
    """Objects and lists in a value, each with its keys or indexes."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])  # type: ignore[index]


TEXTS = st.sampled_from(["a", "b", "ml", "1", "2", "4", ""])
OTHERS: st.SearchStrategy[Json] = (
    st.none() | st.booleans() | st.integers(0, 2) | st.just([]) | st.just({}) | st.just({"a": "b"})
)


@st.composite
def changed(draw: st.DrawFn, raw: dict[str, Any]) -> dict[str, Any]:
    """A request with one change anywhere in its pod or user."""
    other = copy.deepcopy(raw)
    within = draw(st.sampled_from(["object", "object", "object", "oldObject", "userInfo"]))
    found = [(other, within), *places(other[within])]
    parent, key = draw(st.sampled_from(found))
    match draw(st.sampled_from(["text", "text", "other", "gone", "more"])):
        case "text" | "other" if parent is other and key == "userInfo":
            parent[key] = draw(st.dictionaries(st.just("username"), TEXTS | OTHERS))
        case "text":
            parent[key] = draw(TEXTS)
        case "other":
            parent[key] = draw(OTHERS)
        case "gone" if parent is not other:
            del parent[key]
        case _ if isinstance(parent[key], dict):
            parent[key][draw(st.sampled_from(["a", "a/b", "team", "image", GPUS, "limits"]))] = draw(TEXTS | OTHERS)
        case _:
            other["uid"] = "1"
    return other


def outcome(decision: Decision) -> tuple[Any, ...]:
    return decision.trace, decision.patch, decision.refusal, decision.warnings, decision.audit_annotations


@given(st.data(), rule_sets(), requests(), clusters(), st.sampled_from([marshal_value, orjson.dumps]))
def test_every_decision_equals_one_without_the_cache(
    data: st.DataObject, rule_set: RuleSet, raw: dict[str, Any], on: Cluster, encode: Encode
) -> None:
    """Compare with evaluation without the cache, on a sequence of slightly different requests."""
    mutations, validations = (
        DecisionCache(rule_set, Endpoint.MUTATE, encode),
        DecisionCache(rule_set, Endpoint.VALIDATE, encode),
    )
    last = raw
    for _ in range(5):
        for decide, cache in ((mutate, mutations), (validate, validations)):
            for repeated in (AdmissionRequest.parse(copy.deepcopy(last)), AdmissionRequest.parse(copy.deepcopy(last))):
                fresh, given = decide(rule_set, repeated, on, indexed=True), cache(repeated, on)
                assert outcome(given) == outcome(fresh)
                assert given.object is repeated.object
                assert same(given.result, fresh.result)
        last = data.draw(changed(data.draw(st.sampled_from([raw, last]))))


FULL: dict[str, Any] = {
    "uid": "0",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "operation": "CREATE",
    "namespace": "ml",
    "name": "a",
    "dryRun": False,
    "userInfo": {"username": "a"},
    "oldObject": {"metadata": {"name": "a"}, "spec": {"priority": 0}},
    "object": {
        "metadata": {
            "namespace": "ml",
            "labels": {"team": "a"},
            "annotations": {"a/b": "a", GPU_TYPE: "V100", SKIP_ANNOTATION: "false"},
        },
        "spec": {
            "containers": [
                {"name": "main", "image": "a", "resources": {"limits": {"amd.com/x": "1", "cpu": "2"}}},
                {"name": "side", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1", "memory": "1Gi"}}},
            ],
            "initContainers": [
                {"name": "init", "resources": {"limits": {"amd.com/x": "2"}}},
                {"name": "watch", "restartPolicy": "Always", "resources": {"limits": {"amd.com/x": "1"}}},
            ],
            "overhead": {"amd.com/x": "1"},
            "resources": {"limits": {"cpu": "9"}},
            "nodeSelector": {"pool": "a"},
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]},
            ]}}},
            "priority": 1,
            "securityContext": {},
        },
    },
}  # fmt: skip
"""A request with a value in every member that rules can read."""

VALUES: tuple[Any, ...] = ("b", "2", "true", "Always", None, True, 1, 1.0, [], {})


def variations(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Variations of a request: each value changed, removed or added."""
    for number in range(len(list(places(raw)))):
        for change in (*VALUES, ...):
            other = copy.deepcopy(raw)
            parent, key = list(places(other))[number]
            if change is ...:
                del parent[key]
            else:
                parent[key] = change
            if accepted(other):
                yield other
    for member in ("nodeName", "restartPolicy"):
        for number, (parent, _) in enumerate(list(places(raw))):
            if isinstance(parent, dict) and parent is not raw:
                other = copy.deepcopy(raw)
                list(places(other))[number][0][member] = "n"
                yield other


@functools.cache
def variations_of_full() -> tuple[dict[str, Any], ...]:
    """Return the variations of `FULL`, which all tests of them share: no decision changes a request."""
    return tuple(variations(FULL))


AROUND = Cluster(
    nodes=(
        node("n", allocatable={"amd.com/x": 3}, labels={"pool": "a"}),
        node(
            "m",
            allocatable={"amd.com/y": 9, GPU: 9},
            labels={"pool": "a"},
            taints=(Taint(key="a", effect="NoSchedule"),),
        ),
    ),
    namespaces={"ml": {"team": "a"}},
)


@pytest.mark.parametrize("expression", [text for text in EXPRESSIONS if "metadata.name" not in text])
def test_any_difference_in_a_request_is_decided_as_without_the_cache(expression: str) -> None:
    """The same law, for every value of one request."""
    common: dict[str, Any] = {
        "match_conditions": {"c": expression},
        "variables": {"first": "object.?metadata.?annotations[?'a/b'].orValue('none')"},
    }
    falls = ladder(
        "amd.com/x", "amd.com/y", nodes=NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD})), **common
    )
    injects = injection(
        {"cpu": "4"}, gpu_type="V100", gpu_resource="amd.com/y", on_conflict=OnConflict.RAISE, annotations={"a/b": "z"}
    )
    selects = validation("true", name="selects", match=Match(object_selector=SELECTORS[2]), opt_out=OptOut.ALLOWED)
    checks = validation(expression, variables=common["variables"], failure_policy=FailurePolicy.IGNORE)
    rule_set = compiled(falls, injects, selects, checks)
    for decide, cache in (
        (mutate, DecisionCache(rule_set, Endpoint.MUTATE)),
        (validate, DecisionCache(rule_set, Endpoint.VALIDATE)),
    ):
        cache(AdmissionRequest.parse(FULL), AROUND)
        for raw in variations_of_full():
            given, fresh = (
                cache(AdmissionRequest.parse(raw), AROUND),
                decide(rule_set, AdmissionRequest.parse(raw), AROUND, indexed=True),
            )
            assert outcome(given) == outcome(fresh)


@given(rule_sets(), requests(), clusters())
def test_the_second_of_two_equal_requests_is_cached(rule_set: RuleSet, raw: dict[str, Any], on: Cluster) -> None:
    """Otherwise the law above would also hold for a cache without entries."""
    for cache, reads in (
        (DecisionCache(rule_set, Endpoint.MUTATE), Fingerprint(rule_set.rules_at(Endpoint.MUTATE))),
        (DecisionCache(rule_set, Endpoint.VALIDATE), Fingerprint(rule_set.rules_at(Endpoint.VALIDATE))),
    ):
        first, again = cache(AdmissionRequest.parse(raw), on), cache(AdmissionRequest.parse(copy.deepcopy(raw)), on)
        assert not first.cached
        quiet = all(step.action.value in ("skip", "keep", "pass", "change") for step in first.trace)
        assert again.cached is (quiet and first.refusal is None and reads.repeats)


FALLS = ladder(MIG, GPU)
INJECTS = injection({"cpu": "4"}, annotations={"a/b": "c"}, gpu_type="V100")
ON = cluster(node(allocatable={GPU: 8}))


def job_pod(number: int, **annotations: str) -> dict[str, Any]:
    """A pod of an indexed Job."""
    made: Any = asks({MIG: 1, "cpu": 1})
    made["metadata"] = {
        "name": f"train-{number}",
        "uid": str(number),
        "labels": {"job": "train", "batch.kubernetes.io/job-completion-index": str(number)},
        "annotations": {GPU_TYPE: "V100", "index": str(number), **annotations},
    }
    return made  # type: ignore[no-any-return]


def review(made: Json, **rest: Any) -> AdmissionRequest:
    """Return a request for a pod; `rest` replaces members of its JSON."""
    return AdmissionRequest.parse({**pod_request(made, uid="0", namespace="ml").raw, **rest})


def _traced(decision: Decision) -> list[Any]:
    return list(decision.trace)


class TestPodsOfOneJob:
    def test_the_rules_are_evaluated_once(self) -> None:
        cache = DecisionCache(compiled(FALLS, INJECTS), Endpoint.MUTATE)
        decisions = [cache(review(job_pod(number)), ON) for number in range(3)]
        assert [decision.cached for decision in decisions] == [False, True, True]

    def test_each_gets_its_own_result_from_the_same_patch(self) -> None:
        cache = DecisionCache(compiled(FALLS, INJECTS), Endpoint.MUTATE)
        for number in range(3):
            made = job_pod(number)
            decision = cache(review(made), ON)
            result: Any = decision.result
            assert same(apply_strictly(made, decision.patch), result)
            assert result["metadata"]["name"] == f"train-{number}"
            assert result["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1", "cpu": "4"}

    def test_it_does_not_matter_how_their_json_was_read(self) -> None:
        reads = Fingerprint(compiled(FALLS, INJECTS).rules)
        shared = {"limits": {"cpu": "1"}}
        made: Any = {"metadata": {}, "spec": {"containers": [{"name": name, "resources": shared} for name in "ab"]}}
        assert reads.key(review(made)) == reads.key(review(json.loads(json.dumps(made))))

    def test_values_are_derived_from_their_decision_once(self) -> None:
        cache = DecisionCache(compiled(FALLS, INJECTS), Endpoint.MUTATE)
        decisions = [cache(review(job_pod(number)), ON) for number in range(4)]
        first, *again = [decision.once(_traced) for decision in decisions]
        assert again == [first] * 3
        assert again[0] is again[1] is again[2]
        other = cache(review(many_containers(2)), WIDE)
        assert other.once(_traced) == list(other.trace) != first

    def test_cached_decisions_hold_no_pod(self) -> None:
        cache = DecisionCache(compiled(FALLS), Endpoint.MUTATE)
        cache(review(job_pod(1)), ON)
        ((kept, _),) = cache._table[1].values()
        assert kept.object is None

    def test_passing_validations_are_cached_and_failing_ones_are_not(self) -> None:
        rule = validation(check("object.spec.containers.size() == 1", message_expression="object.metadata.name"))
        cache = DecisionCache(compiled(rule), Endpoint.VALIDATE)
        assert [cache(review(job_pod(n)), ON).cached for n in (0, 1)] == [False, True]
        for number in (0, 1):
            made = job_pod(number)
            made["spec"]["containers"].append(container("second"))
            decision = cache(review(made), ON)
            assert not decision.cached
            assert decision.status is not None
            assert decision.status.message.endswith(f": train-{number}")


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["metadata"]["annotations"].update({GPU_TYPE: "T4"}),
        lambda made: made["metadata"]["annotations"].update({"gpurules.io/fallback": "x"}),
        lambda made: made["metadata"]["annotations"].update({"a/b": "x"}),
        lambda made: made["metadata"]["annotations"].update({SKIP_ANNOTATION: "true"}),
        lambda made: made["metadata"].update({"annotations": None}),
        lambda made: made["metadata"].update({"namespace": "prod"}),
        lambda made: made["metadata"]["labels"].update({"team": "a"}),
        lambda made: made["spec"]["containers"][0].update({"name": "other"}),
        lambda made: made["spec"]["containers"][0]["resources"]["limits"].update({"cpu": "2"}),
        lambda made: made["spec"]["containers"][0]["resources"]["limits"].update({"cpu": "1000m"}),
        lambda made: made["spec"]["containers"].append({}),
        lambda made: made["spec"].update({"initContainers": []}),
        lambda made: made["spec"].update({"initContainers": [{}]}),
        lambda made: made["spec"].update({"overhead": {"cpu": "1"}}),
        lambda made: made["spec"].update({"resources": {"limits": {"cpu": "1"}}}),
        lambda made: made["spec"].update({"nodeName": "n"}),
        lambda made: made["spec"].update({"nodeSelector": {"a": "b"}}),
        lambda made: made["spec"].update({"tolerations": [{}]}),
        lambda made: made["spec"].update({"affinity": {}}),
        lambda made: made["spec"].update({"priority": 1}),
        lambda made: made["spec"].update({"priority": True}),
        lambda made: made["spec"].update({"priority": None}),
    ],
)
def test_a_field_that_rules_read_makes_another_pod(change: Callable[[Any], object]) -> None:
    selector = SELECTORS[2]
    rules = (FALLS, INJECTS, ladder("x", name="selects", match=Match(object_selector=selector)))
    reads = injection({}, name="reads", match_conditions={"c": "object.spec.?priority.orValue(0) == 0"})
    cache = DecisionCache(compiled(*rules, reads), Endpoint.MUTATE)
    cache(review(job_pod(0)), ON)
    made = job_pod(0)
    change(made)
    assert not cache(review(made), ON).cached


@pytest.mark.parametrize(
    "rest",
    [
        {"namespace": "prod"},
        {"operation": "UPDATE"},
        {"dryRun": True},
        {"oldObject": {"metadata": {"name": "x"}}},
        {"userInfo": {"username": "x"}},
    ],
)
def test_a_field_that_rules_read_makes_another_request(rest: dict[str, Any]) -> None:
    conditions = {
        "a": "request.dryRun == request.dryRun",
        "b": "oldObject.metadata == oldObject.metadata",
        "c": "!has(request.userInfo) || request.userInfo.username != ''",
    }
    rule = injection({}, match_conditions={name: f"true || {text}" for name, text in conditions.items()})
    cache = DecisionCache(compiled(rule), Endpoint.MUTATE)
    cache(review(job_pod(0)), ON)
    assert cache(review(job_pod(1)), ON).cached
    assert not cache(review(job_pod(0), **rest), ON).cached


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.update({"metadata": None}),
        lambda made: made.update({"spec": []}),
        lambda made: made["metadata"].update({"name": 1}),
        lambda made: made["metadata"].update({"labels": {"unread": 1}}),
        lambda made: made["metadata"].update({"labels": ["unread"]}),
        lambda made: made["metadata"].update({"annotations": {GPU_TYPE: "V100", "unread": True}}),
        lambda made: made["spec"].update({"containers": {}}),
        lambda made: made["spec"].update({"containers": [1]}),
    ],
)
def test_a_malformed_pod_never_equals_a_valid_one(change: Callable[[Any], object]) -> None:
    rule_set = compiled(FALLS, INJECTS)
    cache = DecisionCache(rule_set, Endpoint.MUTATE)
    cache(review(job_pod(0)), ON)
    made = job_pod(1)
    change(made)
    decision = cache(review(made), ON)
    assert not decision.cached
    assert outcome(decision) == outcome(mutate(rule_set, review(made), ON, indexed=True))


def test_another_view_of_the_cluster_is_evaluated_again() -> None:
    cache = DecisionCache(compiled(FALLS), Endpoint.MUTATE)
    cache(review(job_pod(0)), ON)
    mig = cluster(node(allocatable={MIG: 8}))
    assert not cache(review(job_pod(0)), mig).cached
    assert cache(review(job_pod(0)), mig).patch == ()
    assert not cache(review(job_pod(0)), ON).cached


WIDE = cluster(node(allocatable={GPU: 1000}))


def many_containers(count: int, number: int = 0) -> Json:
    return pod(*(container(f"{number}-{index}", {MIG: 1}) for index in range(count)))


def test_the_oldest_is_evicted_first_and_memory_is_bounded() -> None:
    cache = DecisionCache(compiled(FALLS, injection({"cpu": "4", "memory": "1Gi"}, gpu_type=None)), Endpoint.MUTATE)
    size = _estimate_bytes(b"", cache(review(many_containers(10)), WIDE))
    assert size < MAX_DECISION_BYTES
    tracemalloc.start()
    try:
        for number in range(2 * MAX_BYTES // size):
            cache(review(many_containers(10, number)), WIDE)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert MAX_BYTES / 4 < used < 2 * MAX_BYTES
    assert cache(review(many_containers(10, number)), WIDE).cached
    assert not cache(review(many_containers(10, 0)), WIDE).cached


def test_a_decision_cached_by_two_threads_is_counted_once() -> None:
    cache = DecisionCache(compiled(FALLS), Endpoint.MUTATE)
    decision = cache(review(job_pod(0)), ON)
    counted = cache._bytes
    (key,) = cache._table[1]
    cache._keep(key, ON, decision)
    assert cache._bytes == counted > 0


def test_a_large_decision_is_not_cached() -> None:
    cache = DecisionCache(compiled(FALLS), Endpoint.MUTATE)
    made = many_containers(100)
    assert [cache(review(made), WIDE).cached for _ in range(2)] == [False, False]


def test_other_objects_are_never_taken_for_pods() -> None:
    cache = DecisionCache(compiled(FALLS), Endpoint.MUTATE)
    cache(review(job_pod(0)), ON)
    others: list[dict[str, Any]] = [
        {"subResource": "status"},
        {"kind": {"group": "", "version": "v1", "kind": "Deployment"}},
        {"kind": {"group": "apps", "version": "v1", "kind": "Pod"}},
    ]
    for other in others:
        decision = cache(review(job_pod(0), **other), ON)
        assert (decision.patch, decision.cached) == ((), False)


def test_containers_and_init_containers_are_distinguished() -> None:
    rule_set = compiled(FALLS)
    cache = DecisionCache(rule_set, Endpoint.MUTATE)
    one: Json = {"containers": [{"name": "initContainers", "restartPolicy": "x"}], "initContainers": []}
    other: Json = {"containers": [], "initContainers": [{"name": "x", "resources": "initContainers"}]}
    for spec in (one, other):
        repeated = review({"metadata": {}, "spec": spec})
        assert outcome(cache(repeated, ON)) == outcome(mutate(rule_set, repeated, ON, indexed=True))


def test_a_pod_that_is_being_deleted_is_another_one() -> None:
    cache = DecisionCache(compiled(validation("true", match=Match(operations=(Operation.UPDATE,)))), Endpoint.VALIDATE)
    leaving = job_pod(0)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    traces = [len(cache(review(made, operation="UPDATE"), ON).trace) for made in (job_pod(0), leaving, job_pod(0))]
    assert traces == [1, 0, 1]


def test_a_resize_is_evaluated_each_time() -> None:
    cache = DecisionCache(compiled(validation("true", match=Match(operations=(Operation.UPDATE,)))), Endpoint.VALIDATE)
    resize = review(job_pod(0), operation="UPDATE", subResource="resize")
    assert [(len(cache(resize, ON).trace), cache(resize, ON).cached) for _ in "ab"] == [(1, False)] * 2


def test_a_huge_pod_is_not_cached() -> None:
    rule = validation("object.spec.containers[0].image != ''")
    cache = DecisionCache(compiled(rule), Endpoint.VALIDATE)
    made = pod({**container("main"), "image": "x" * MAX_KEY_BYTES})
    assert [cache(review(made), ON).cached for _ in range(2)] == [False, False]


def test_a_pod_nested_too_deeply_for_a_key_is_not_cached() -> None:
    cache = DecisionCache(compiled(validation("has(object.spec.affinity)")), Endpoint.VALIDATE)
    deep: Json = None
    for _ in range(3000):
        deep = {"a": deep}
    made = pod(container("main"), affinity=deep)
    assert [cache(review(made), ON).cached for _ in range(2)] == [False, False]


@pytest.mark.parametrize(
    "expression",
    [
        "object != oldObject",
        "object.metadata != oldObject.metadata",
        "object.metadata.name != ''",
        "object.metadata.uid != ''",
        "object.metadata.managedFields.size() > 0",
        "request != {}",
        "request.name != ''",
    ],
)
def test_rules_that_read_unique_fields_are_always_evaluated(expression: str) -> None:
    assert not Fingerprint(compiled(validation(expression)).rules).repeats


def test_each_thread_gets_its_own_decision() -> None:
    rule_set = compiled(FALLS, INJECTS)
    cache = DecisionCache(rule_set, Endpoint.MUTATE)
    mig = cluster(node(allocatable={MIG: 8}))

    def decided(number: int) -> bool:
        made = job_pod(number, **({"a/b": "c"} if number % 3 else {}))
        on = mig if number % 50 == 0 else ON
        return outcome(cache(review(made), on)) == outcome(mutate(rule_set, review(made), on, indexed=True))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(decided, range(2000)))


def test_a_pod_of_many_containers_is_not_encoded() -> None:
    def refuse(value: list[Any]) -> bytes:
        raise AssertionError(len(value))

    made: Any = {"metadata": {}, "spec": {"containers": [{}] * (MAX_KEY_CONTAINERS + 1)}}
    reads = Fingerprint(compiled(validation("true")).rules, refuse)
    assert reads.key(review(made)) is None
