"""Pods that request no GPUs: they are sent only for rules without resources, by a webhook of their own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.accelerators.catalogue import catalogue
from rules_engine.accelerators.resources import gpu_globs, is_gpu
from rules_engine.exports import configuration as webhooks
from rules_engine.exports.configuration import EXCLUSION_NAME, Calls, build_configurations, derive_calls
from rules_engine.exports.drift import find_drift, foreign_conditions
from rules_engine.exports.match_condition import COMPARED_AMOUNTS_FOR_GPUS, COMPARED_CONTAINERS
from rules_engine.exports.settings import Service, Settings
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Match, Rule
from rules_engine.rules.pod_defaults.value import PodDefaults
from rules_engine.rules.rule_set.globs import matches_any
from tests.support.api_server_cost import PER_CALL, WIDEST_WITH_OTHER_PODS, Evaluation, costliest_pod
from tests.support.authoring import cli
from tests.support.conditions import SELECTORS
from tests.support.evaluation import GPU, MIG1, asks, compiled, container, injection, ladder, pod, request, validation
from tests.support.laws import clusters
from tests.support.webhooks import (
    NAMESPACES,
    changing_rules,
    labelled_pods,
    pod_defaults,
    relevant_rules,
    rule_fields,
    sent,
    unconditional,
)

FIRST, OTHER = "mutate.gpurules.io", "other-pods.mutate.gpurules.io"
SETTINGS = Settings(server=Service("gpu-rules", "gpu-system", 443), namespace="gpu-system")


def mutating(*rules: Rule) -> Calls:
    return derive_calls(compiled(*rules))[0]


def senders(calls: Calls, made: Json, **asked: str) -> list[str]:
    """The names of the webhooks that would be called for a pod."""
    return [each.webhook for each in calls.webhooks if sent(each, made, **asked)]


@st.composite
def wide_rules(draw: st.DrawFn) -> list[Rule]:
    """Rules without resources, and some with globs of resources."""
    found: list[Rule] = []
    for number in range(draw(st.integers(0, 3))):
        fields = draw(rule_fields())
        resources = draw(st.sampled_from([(), (), (), ("nvidia.com/*",), ("amd.com/*", "example.com/x0")]))
        found.append(pod_defaults(f"m{number}", **{**fields, "match": replace(fields["match"], resources=resources)}))
    return found


@st.composite
def widened_pods(draw: st.DrawFn) -> dict[str, Json]:
    """Pods with other resources as well, and some that are too large for comparing their names."""
    made: Any = draw(labelled_pods())
    number = draw(st.sampled_from([0, 0, 0, 1, COMPARED_AMOUNTS_FOR_GPUS + 1, 33]))
    other: dict[str, Json] = {f"example.com/x{index}": "1" for index in range(number)}
    made["spec"]["containers"][0].setdefault("resources", {}).setdefault("limits", {}).update(other)
    if draw(st.integers(0, 9)) == 0:
        made["spec"]["containers"] += [container(f"more{n}") for n in range(COMPARED_CONTAINERS)]
    return dict(made)


@given(made=widened_pods(), rules=changing_rules(), wide=wide_rules(), cluster=clusters(), namespace=NAMESPACES)
def test_every_pod_of_a_rule_is_sent_by_one_webhook(
    made: dict[str, Json], rules: list[Rule], wide: list[Rule], cluster: Cluster, namespace: str
) -> None:
    rule_set, calls = compiled(*rules, *wide), mutating(*rules, *wide)
    called = senders(calls, made, namespace=namespace)
    assert len(called) <= 1

    admission = request(made, namespace=namespace)
    # A rule that cannot be evaluated counts where it has something to do.
    without = relevant_rules(compiled(*map(unconditional, [*rules, *wide])).mutate(admission, cluster))
    if relevant_rules(rule_set.mutate(admission, cluster)) & without:
        assert len(called) == 1
    if called == [OTHER]:
        assert any(made.rule.id in without for made in rule_set.rules if isinstance(made.rule, PodDefaults))
        assert not any(is_gpu(name) for name in named(made))
    if called == [FIRST] and not is_large(made):
        resources = {"amd.com/x~y", "example.com/x0"}.union(*(rule.interests.resources or () for rule in rules))
        assert named(made) & resources or any(map(is_gpu, named(made)))


def is_large(made: Any) -> bool:
    amounts = max(len(amounts) for amounts in amounts_of(made))
    return amounts > COMPARED_AMOUNTS_FOR_GPUS or len(made["spec"]["containers"]) > COMPARED_CONTAINERS


def amounts_of(made: Any) -> list[dict[str, Json]]:
    members = [item for key in ("containers", "initContainers") for item in made["spec"].get(key, [])]
    return [amounts for item in members for amounts in item.get("resources", {}).values()]


def named(made: Any) -> set[str]:
    return {name for amounts in amounts_of(made) for name in amounts}


def test_only_rules_without_resources_have_a_second_webhook() -> None:
    assert mutating(ladder(GPU), injection({"cpu": 1})).other_pods is None
    assert mutating(pod_defaults(match=Match(resources=("nvidia.com/*",)))).other_pods is None
    assert mutating(pod_defaults()).other_pods is not None
    assert all(calls.other_pods is None for calls in derive_calls(compiled(validation("true"), ladder(GPU))))


@pytest.mark.parametrize(
    ("amounts", "namespace", "expected"),
    [
        ({"cpu": 1}, "ml", [OTHER]),
        ({"cpu": 1}, "x", []),
        ({GPU: 1}, "ml", [FIRST]),
        ({GPU: 1}, "x", []),
        ({MIG1: 1}, "x", [FIRST]),
        ({MIG1: 1}, "ml", [FIRST]),
        ({"rdma/hca": 1}, "ml", [OTHER]),
        ({"tke.cloud.tencent.com/eni-ip": 1, "devices.kubevirt.io/kvm": 1}, "ml", [OTHER]),
        ({"google.com/tpu": 1}, "ml", [FIRST]),
        ({"example.com/vgpu-number": 1}, "ml", [FIRST]),
        ({f"example.com/x{n}": 1 for n in range(COMPARED_AMOUNTS_FOR_GPUS)}, "ml", [OTHER]),
        ({f"example.com/x{n}": 1 for n in range(COMPARED_AMOUNTS_FOR_GPUS + 1)}, "ml", [FIRST]),
        ({f"example.com/x{n}": 1 for n in range(COMPARED_AMOUNTS_FOR_GPUS + 1)}, "x", []),
    ],
)
def test_pods_are_sent_by_their_resources(amounts: dict[str, int], namespace: str, expected: list[str]) -> None:
    calls = mutating(ladder(MIG1), pod_defaults(match=Match(namespaces=("ml",))))
    assert senders(calls, asks(amounts), namespace=namespace) == expected


@pytest.mark.parametrize("spec", [{}, {"containers": None}, {"containers": [], "initContainers": []}])
def test_a_pod_without_containers_is_no_error(spec: dict[str, Json]) -> None:
    assert senders(mutating(pod_defaults()), {"metadata": {"name": "none"}, "spec": spec}) == [OTHER]


def test_the_first_webhook_alone_sends_pods_that_are_too_large() -> None:
    large = pod(*[container(f"c{n}") for n in range(COMPARED_CONTAINERS + 1)])
    assert senders(mutating(pod_defaults()), large) == [FIRST]


def test_labels_of_a_rule_select_other_pods() -> None:
    calls = mutating(
        pod_defaults(match=Match(object_selector=SELECTORS[2])), pod_defaults("other", match=Match(namespaces=("x",)))
    )
    assert senders(calls, asks({"cpu": 1}, labels={"team": "ml"})) == [OTHER]
    assert senders(calls, asks({GPU: 1}, labels={"team": "ml"})) == [FIRST]
    assert senders(calls, asks({"cpu": 1})) == senders(calls, asks({GPU: 1})) == []
    assert senders(calls, asks({"cpu": 1}), namespace="x") == [OTHER]


@pytest.mark.parametrize("name", [*catalogue().resources, "a.example/my-gpu", "npu.intel.com/new"])
def test_the_globs_match_the_resources_of_the_catalogue(name: str) -> None:
    name = name.replace("*", "x")
    assert is_gpu(name)
    assert matches_any(tuple(gpu_globs()), name)


def test_the_globs_match_no_other_resources() -> None:
    for name in ("cpu", "memory", "rdma/hca", "devices.kubevirt.io/kvm", "smarter-devices/fuse", "hygon.com/dcumem"):
        assert not matches_any(tuple(gpu_globs()), name)


# The cost in the API server.


@pytest.mark.parametrize("rules", WIDEST_WITH_OTHER_PODS.values(), ids=WIDEST_WITH_OTHER_PODS.keys())
@pytest.mark.parametrize("amounts", [COMPARED_AMOUNTS_FOR_GPUS, COMPARED_AMOUNTS_FOR_GPUS + 1, 32])
def test_each_condition_costs_half_of_the_limit_at_most(rules: list[Rule], amounts: int) -> None:
    calls = mutating(*rules)
    assert [each.largest for each in calls.webhooks] == [None, None]
    made = costliest_pod(COMPARED_CONTAINERS, amounts, 100)
    for namespace in ("n" * 63, "team-0"):
        asked = {"object": made, "request": {"operation": "CREATE", "namespace": namespace}}
        for each in calls.webhooks:
            for condition in each.match_conditions:
                assert isinstance(condition, dict)
                assert Evaluation(str(condition["expression"]), asked).cost < PER_CALL / 2


def test_too_many_namespaces_of_other_pods_are_left_out_with_a_warning() -> None:
    rules = [pod_defaults(f"m{n:03}", match=Match(namespaces=(f"team-{n}",))) for n in range(200)]
    calls = mutating(*rules, ladder(MIG1))
    assert senders(calls, asks({"cpu": 1}), namespace="nobody") == [OTHER]
    assert senders(calls, asks({GPU: 1}), namespace="nobody") == [FIRST]
    (warning,) = webhooks.find_warnings(compiled(*rules, ladder(MIG1)))
    assert warning.message.startswith("every pod is sent to /mutate: the rules name too much for one match condition,")


def test_too_many_names_send_every_pod_by_the_first_webhook() -> None:
    calls = mutating(pod_defaults(), *(ladder(f"a-device-with-a-long-name-{n}", name=f"l{n}") for n in range(600)))
    assert calls.expression is None
    assert senders(calls, asks({"cpu": 1})) == [FIRST]


# Warnings.


def test_a_rule_of_every_pod_is_named_but_blocks_no_pods() -> None:
    rule_set = compiled(pod_defaults(), ladder(GPU))
    (warning,) = webhooks.find_warnings(rule_set)
    assert warning.message.startswith(
        "every pod is sent to /mutate because of PodDefaults/defaults: limit it by match.resources"
    )
    assert webhooks.fail_policy_warnings(rule_set, dict.fromkeys(Endpoint, "Fail")) == ()
    assert webhooks.ignore_policy_warnings(rule_set, {}) == ()


# The configuration.


def test_the_second_webhook_ignores_failures_after_two_seconds() -> None:
    settings = replace(SETTINGS, failure_policies=dict.fromkeys(Endpoint, "Fail"), timeout_seconds=7, ca_bundle=b"ca")
    made: Any = build_configurations(compiled(pod_defaults(match=Match(namespaces=("ml",))), ladder(GPU)), settings)[0]

    first, other = made["webhooks"]
    assert (first["name"], first["failurePolicy"], first["timeoutSeconds"]) == (FIRST, "Fail", 7)
    assert (other["name"], other["failurePolicy"], other["timeoutSeconds"]) == (OTHER, "Ignore", 2)
    differing = {"name", "failurePolicy", "timeoutSeconds", "matchConditions"}
    assert {key: value for key, value in first.items() if key not in differing} == {
        key: value for key, value in other.items() if key not in differing
    }
    assert first["clientConfig"]["caBundle"]
    (condition,) = first["matchConditions"]
    namespaces, exclusion = other["matchConditions"]
    assert namespaces == {"name": condition["name"], "expression": "request.namespace in ['ml']"}
    assert exclusion == {"name": EXCLUSION_NAME, "expression": f"!({condition['expression']})"}


def test_the_native_configuration_has_both_webhooks() -> None:
    made: Any = build_configurations(compiled(pod_defaults(), ladder(GPU)), replace(SETTINGS, native=True))[0]
    assert [each["clientConfig"]["service"]["path"] for each in made["webhooks"]] == ["/mutate/native"] * 2


def test_the_chart_gets_the_conditions_of_both_webhooks() -> None:
    rule_set = compiled(pod_defaults(), ladder(GPU))
    made: Any = build_configurations(rule_set, SETTINGS)[0]
    values: Any = webhooks.helm_values(rule_set, {})["webhook"]
    conditions = [values["mutating"]["matchConditions"], values["mutating"]["otherPods"]]
    assert conditions == [each["matchConditions"] for each in made["webhooks"]]
    assert "otherPods" not in values["validating"]
    without: Any = webhooks.helm_values(compiled(ladder(GPU)), {})["webhook"]
    assert without["mutating"]["otherPods"] == []


VOID = """\
apiVersion: gpurules.io/v1
kind: PodDefaults
metadata: {name: void}
spec:
  match: {excludeNamespaces: [gpu-operator, monitoring]}
  onConflict: Overwrite
  optOut: Forbidden
  containers:
    - which: NotRequesting
      env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}]
"""


def test_the_command_prints_both_webhooks_of_pod_defaults(tmp_path: Path) -> None:
    (tmp_path / "void.yaml").write_text(VOID)
    result = cli("webhook-config", "--rules", tmp_path, "--failure-policy", "Fail")
    assert (result.exit_code, result.stderr) == (0, "")
    made, _ = yaml.safe_load_all(result.stdout)
    assert [(each["name"], each["failurePolicy"]) for each in made["webhooks"]] == [(FIRST, "Fail"), (OTHER, "Ignore")]
    excluded = "!(request.namespace in ['gpu-operator', 'monitoring'])"
    assert made["webhooks"][1]["matchConditions"][0]["expression"] == excluded
    assert excluded in made["webhooks"][0]["matchConditions"][0]["expression"]


# Drift.

RULES = (pod_defaults(match=Match(namespaces=("ml",))), ladder(GPU))


def drift(configuration: Any, *rules: Rule) -> list[str]:
    found = find_drift(mutating(*rules), "gpu-rules", configuration)
    return [text.removeprefix("MutatingWebhookConfiguration gpu-rules: ") for text in found]


def made_for(*rules: Rule) -> Any:
    return build_configurations(compiled(*rules), SETTINGS)[0]


def test_an_unchanged_configuration_has_no_drift() -> None:
    assert drift(made_for(*RULES), *RULES) == []
    renamed = made_for(*RULES)
    renamed["webhooks"][0]["name"] = "renamed.example.com"
    assert drift(renamed, *RULES) == []


def test_a_missing_second_webhook_is_drift() -> None:
    configuration = made_for(*RULES)
    del configuration["webhooks"][1]
    assert drift(configuration, *RULES) == [
        f"has no webhook {OTHER}: PodDefaults/defaults only evaluated for pods with GPUs"
    ]


def test_a_missing_first_webhook_is_drift() -> None:
    configuration = made_for(*RULES)
    del configuration["webhooks"][0]
    assert drift(configuration, *RULES) == [
        "has no webhook: /mutate is never called, and FallbackLadder/ladder, PodDefaults/defaults never evaluated"
    ]


def test_a_second_webhook_that_no_rule_needs_is_drift() -> None:
    configuration = made_for(*RULES)
    configuration["webhooks"][0] = made_for(ladder(GPU))["webhooks"][0]
    (text,) = drift(configuration, ladder(GPU))
    assert text.startswith("has another gpurules.io/webhook-digest than these rules")


def test_the_conditions_of_the_second_webhook_are_compared() -> None:
    configuration = made_for(pod_defaults(match=Match(namespaces=("prod",))), ladder(GPU))
    configuration["webhooks"][0] = made_for(*RULES)["webhooks"][0]
    texts = drift(configuration, *RULES)
    assert [text.partition(" than")[0] for text in texts] == [
        f"{OTHER} has another match condition requests-a-resource-of-a-rule",
        f"{OTHER} has another match condition {EXCLUSION_NAME}",
    ]
    configuration["webhooks"][1]["matchConditions"].append({"name": "mine", "expression": "true"})
    assert foreign_conditions(configuration, mutating(*RULES)) == ("mine",)
