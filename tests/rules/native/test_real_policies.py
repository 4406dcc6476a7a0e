"""Exported rules on a real API server, given by KUBECONFIG, decide as the engine does. Pods are created as dry runs."""

import copy
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from rules_engine.exports.offers import build_offers
from rules_engine.exports.policies import NativeObjects
from rules_engine.exports.settings import Settings
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.rules.decision import Action, Decision
from rules_engine.model.rules.rule import Rule
from rules_engine.rules.evaluation.admission import validation_request
from rules_engine.rules.ladder.native import MAX_RUNGS
from rules_engine.rules.ladder.value import Counts, Direction
from rules_engine.rules.native.policy import NativeRules, translate_rules
from rules_engine.rules.sources.card_files import card_sets
from rules_engine.rules.sources.rule_files import read_rules
from tests.models.generated import injections, ladders
from tests.support.evaluation import (
    GPU,
    MIG1,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    pod,
    request,
    rung,
    validation,
)  # fmt: skip
from tests.support.native import admitted, comparable, defaulted, is_left
from tests.support.native_rules import VALIDATIONS
from tests.support.real import REAL, Kube, eventually, kubectl, kubernetes, together

pytestmark = REAL

RULE_SETS, PODS = 40, 50
"""Rule sets that export, and pods for each: 2,000 decisions."""


@pytest.fixture(scope="module")
def kube() -> Iterator[Kube]:
    with kubernetes() as made:
        yield made


def collected(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Return generated values, the same in every run."""
    values: list[Any] = []

    @seed(1)
    @settings(
        max_examples=count, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=[*HealthCheck]
    )
    @given(strategy)
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    return values


@contextmanager
def applied(kube: Kube, documents: Sequence[Any], name: str) -> Iterator[None]:
    """Create objects, wait until policies of both kinds are in force, and delete them."""
    definitions = [each for each in documents if each["kind"] == "CustomResourceDefinition"]
    rest = [each for each in documents if each not in definitions]
    for each in rest:
        if each["kind"].endswith("Policy"):
            expressions = each["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
            others = [{"key": "probe", "operator": "DoesNotExist"}]
            each["spec"]["matchConstraints"]["objectSelector"] = {"matchExpressions": others}
            expressions.append({"key": "kubernetes.io/metadata.name", "operator": "In", "values": [kube.name]})
    if definitions:
        assert kubectl("apply", "-f", "-", stdin=together(definitions)).returncode == 0
        kubectl("wait", "--for=condition=Established", "crd/gpuoffers.gpurules.io")
        eventually(lambda: kubectl("get", "gpuoffers").returncode == 0)
    strict = ("create", "--validate=strict", "-f", "-")
    dry = kubectl(*strict, "--dry-run=server", stdin=together(rest))
    assert (dry.returncode, dry.stderr) == (0, ""), dry.stderr
    rest = [*rest, *_sentinels(kube, name)]
    try:
        ended = kubectl(*strict, stdin=together(rest))
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
        probe = {"metadata": {"name": "probe", "labels": {"probe": name}}, "spec": {"containers": [container()]}}
        eventually(lambda: f"in force {name} {name}" in (created(kube, probe)[1] or ""))
        yield
    finally:
        kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=together(rest))


def _sentinels(kube: Kube, name: str) -> list[Any]:
    """Return policies that are created last, and tell by a pod that those before are in force."""
    constraints = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": kube.name}},
        "objectSelector": {"matchLabels": {"probe": name}},
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    mark = f"[JSONPatch{{op: 'add', path: '/metadata/labels/marked', value: '{name}'}}]"
    api, metadata = "admissionregistration.k8s.io/v1", {"name": f"{kube.name}-sentinel-{name}"}
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": mark}}]
    checks = [{"expression": "false", "messageExpression": f"'in force {name} ' + object.metadata.labels.marked"}]
    bound = {"policyName": metadata["name"]}
    return [
        {
            "apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": metadata,
            "spec": {"matchConstraints": constraints, "mutations": mutations, "reinvocationPolicy": "Never"},
        },
        {"apiVersion": api, "kind": "MutatingAdmissionPolicyBinding", "metadata": metadata, "spec": bound},
        {
            "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
            "spec": {"matchConstraints": constraints, "validations": checks},
        },
        {
            "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
            "spec": {**bound, "validationActions": ["Deny"]},
        },
    ]  # fmt: skip


def created(kube: Kube, made: Any, namespace: str = "") -> tuple[Any, str | None]:
    """Return the pod as it would be stored, or the message of the refusal."""
    from kubernetes.client.exceptions import ApiException

    try:
        stored = kube.core.create_namespaced_pod(namespace or kube.name, made, dry_run="All", _preload_content=False)
    except ApiException as error:
        return None, json.loads(error.body or "{}")["message"]
    return json.loads(stored.data), None


def part(made: Any) -> Any:
    """Return the parts of a pod that rules may change."""
    spec = comparable(made)["spec"]
    names = ("containers", "initContainers")
    amounts = {name: [each.get("resources") or {} for each in spec.get(name) or ()] for name in names}
    return {
        **amounts,
        "resources": spec.get("resources") or {},
        "annotations": made["metadata"].get("annotations") or {},
    }


def decided(
    native: NativeRules, rules: Sequence[Rule], on: Cluster, made: Any, namespace: str
) -> tuple[Any, Decision, Decision]:
    """Return the pod, the mutation and the last decision of the engine with the exported rules."""
    rule_set = compiled(*rules).without({rule.id for rule in rules} - native.exported_ids)
    asked = request(defaulted(made), namespace=namespace)
    named = Pod.parse(asked.object).named
    sent = any((each.rule.interests.resources or set()) & named for each in native.mutations)
    mutation = rule_set.mutate(asked, on) if sent else Decision(object=asked.object)
    if not mutation.allowed:
        # Policies that deny for both endpoints are evaluated together, and the first one is reported.
        after = rule_set.validate(validation_request(asked, asked.object), on)
        return asked.object, mutation, Decision(trace=(*mutation.trace, *after.trace), object=asked.object)
    return mutation.result, mutation, rule_set.validate(validation_request(asked, mutation.result), on)


def compare(kube: Kube, native: NativeRules, rules: Sequence[Rule], on: Cluster, made: Any) -> str:
    """Compare one pod; return the outcome."""
    made["metadata"].pop("namespace", None)
    if made["spec"].get("resources"):
        # The API server completes the amounts of the pod level before policies see them.
        plain, _ = created(kube, made, "default")
        made["spec"]["resources"] = plain["spec"].get("resources", {}) if plain else {}
    expected, mutation, decision = decided(native, rules, on, made, kube.name)
    documents = [*NativeObjects(native, "digest", Settings()).policies()]
    if is_left(admitted(documents, made, offers=build_offers(native, on), namespace=kube.name), mutation):
        return "left"
    stored, refusal = created(kube, made)
    if refusal is None:
        assert decision.allowed, (decision.trace, made)
        assert part(stored) == part(expected), (part(stored), part(expected), made)
        return "changed" if part(expected) != part(defaulted(made)) else "unchanged"
    if "AdmissionPolicy" not in refusal and "denied request" not in refusal:
        # By the API server's own checks, before validating policies: it refuses the engine's result as well.
        assert not decision.allowed or created(kube, expected, "default")[1] is not None, (refusal, expected)
        return "refused"
    assert not decision.allowed, (refusal, made)
    steps = [step for step in decision.trace if step.action is Action.DENY]
    if "resulted in error" in refusal or "fails to evaluate" in refusal or any(step.code == 500 for step in steps):
        return "failed"
    texts = [step.message.split("; ")[0].split(" too large: ")[0] for step in steps]
    assert any(text in refusal for text in texts), (refusal, texts)
    return "denied"


def policies(kube: Kube, native: NativeRules, on: Cluster, name: str) -> list[Any]:
    made = NativeObjects(native, "digest", Settings(name=f"{kube.name}-{name}"))
    return copy.deepcopy([*made.policies(), *([made.offers(build_offers(native, on))] if made.reads_offers else [])])


def test_generated_rule_sets_decide_as_the_engine(kube: Kube) -> None:
    random_numbers = random.Random(1)
    known = [case for case in collected(ladders.cases(), 800) if case["nodes"] is not None]
    injected = collected(injections.cases(), 500)
    sets: list[tuple[list[Rule], Cluster]] = []
    pods = [[case["pod"] for case in cases if valid(kube, case["pod"])] for cases in (known, injected)]
    others = [case["pod"] for case in (*known, *injected)]
    for ladder_case, injection_case in zip(known, itertools.cycle(injected), strict=False):
        parts: list[list[Rule]] = [
            [*map(ladders.rule_of, ladder_case["rules"])],
            [*map(injections.rule_of, injection_case["rules"])],
        ]
        rules = [*parts[len(sets) % 2], *random_numbers.sample(VALIDATIONS, 2)]
        native = translate_rules(compiled(*rules))
        if len(native.mutations) and len(sets) < RULE_SETS:
            sets.append((rules, Cluster(nodes=tuple(map(ladders.node_of, ladder_case["nodes"])))))
    outcomes: dict[str, int] = {}
    for number, (rules, on) in enumerate(sets):
        native = translate_rules(compiled(*rules))
        with applied(kube, policies(kube, native, on, f"set-{number}"), f"set-{number}"):
            sampled = random_numbers.sample(pods[number % 2], PODS * 3 // 4)
            for made in (*sampled, *random_numbers.sample(others, PODS - len(sampled))):
                outcome = compare(kube, native, rules, on, whole(made))
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(outcomes)
    assert len(sets) == RULE_SETS
    assert min(outcomes.get(name, 0) for name in ("changed", "unchanged", "denied", "refused")) > 20


def valid(kube: Kube, made: Any) -> bool:
    """Return True if the API server accepts a pod without policies."""
    return created(kube, {**made, "metadata": {**made["metadata"], "namespace": "default"}}, "default")[1] is None


def applied_rules(kube: Kube, rules: Sequence[Rule], on: Cluster, name: str) -> Any:
    native = translate_rules(compiled(*rules))
    return native, applied(kube, policies(kube, native, on, name), name)


@pytest.mark.parametrize("name", ["gpu-allocation", *card_sets()])
def test_shipped_sets_decide_as_the_engine(kube: Kube, name: str) -> None:
    rules = read_rules([Path("rules") / name]).loaded.rules
    on = cluster({GPU: 4, "nvidia.com/mig-1g.10gb": 7}, {"nvidia.com/mig-2g.20gb": 3}, {"nvidia.com/mig-1g.5gb": 2})
    native, in_force = applied_rules(kube, rules, on, name)
    assert not native.staying
    resources = [*dict.fromkeys(r for rule in rules for r in sorted(rule.interests.resources or ()))]
    with in_force:
        outcomes = [
            compare(kube, native, rules, on, pod(
                container("c0", {resource: count}), container("c1", requests={"cpu": "1500m", "memory": "1Gi"}),
                annotations={**injections_of(kind), "gpurules.io/least-gpu-memory-gb": least},
            ))
            for resource in resources
            for count, kind, least in ((1, "V100", "0"), (2, "T4", "30"), (3, "V100", "x"))
        ]  # fmt: skip
        (checked,) = eventually(lambda: type_checks(kube))
    assert [each for each in checked if each.get("expressionWarnings")] == []
    assert "changed" in outcomes


def type_checks(kube: Kube) -> list[list[Any]]:
    """Return the list of the results of all type checks; nothing if one is missing."""
    listed = kubectl("get", "validatingadmissionpolicy", "-o", "json", "-l", "app.kubernetes.io/name=gpu-rules")
    own = [each for each in json.loads(listed.stdout)["items"] if each["metadata"]["name"].startswith(kube.name)]
    results = [each.get("status", {}).get("typeChecking") for each in own]
    return [] if None in results else [results]


def injections_of(kind: str) -> dict[str, str]:
    return {injections.TYPE: kind}


def test_a_second_apply_changes_nothing(kube: Kube) -> None:
    rules = [ladder(MIG1, GPU), injection({"cpu": "1"}), *VALIDATIONS, validation("true", name="every-pod")]
    documents = policies(kube, translate_rules(compiled(*rules)), cluster({GPU: 4}), "again")
    with applied(kube, documents, "again"):
        for _ in range(2):
            ended = kubectl("apply", "-f", "-", stdin=together(documents))
    assert [line.split()[-1] for line in ended.stdout.splitlines()] == ["unchanged"] * len(documents), ended


@pytest.mark.parametrize("counts", [*Counts])
@pytest.mark.parametrize("spread", [True, False])
def test_the_largest_pod_costs_less_than_the_api_server_allows(kube: Kube, counts: Counts, spread: bool) -> None:
    names = [f"nvidia.com/mig-{index}g.{index}0gb" for index in range(MAX_RUNGS, 0, -1)]
    coefficients = {"cpu": "4000m", "memory": "8Gi", "ephemeral-storage": "1Gi", "nvidia.com/shm": "1Gi"}
    rules = [
        ladder(
            *(rung(name, weight=index + 1) for index, name in enumerate(names)),
            counts=counts,
            direction=Direction.DOWN_THEN_UP,
        ),
        injection(coefficients, gpu_type=None, gpu_resource=names[-1]),
    ]
    offers = [{names[index]: 10**6, names[index - 1]: 5} for index in range(0, MAX_RUNGS, 2)]
    on = cluster(*(offers if spread else [{names[-1]: 10**6}]))
    every = dict.fromkeys(names, 1)
    init = [container(f"i{index}", every, sidecar=index % 2 == 0) for index in range(255)]
    name = f"large-{counts.value.lower()}-{spread}".lower()
    native, in_force = applied_rules(kube, rules, on, name)
    assert not native.staying
    level = {"requests": {"cpu": "1", "memory": "1Gi"}}
    with in_force:
        assert compare(kube, native, rules, on, pod(container("c0", every), init=init)) == "changed"
        assert compare(kube, native, rules, on, pod(container("c0", every), init=init, resources=level)) == "changed"
        init.append(container("one-more", every))
        assert compare(kube, native, rules, on, pod(container("c0", every), init=init)) == "failed"


def whole(made: Any) -> Any:
    """Return a pod without fractions of bytes, which policies count as whole ones."""
    from tests.rules.native.test_agreement import rounded_up

    return rounded_up(made)
