"""The chart and the derived conditions on a real API server. Requires KUBECONFIG of a cluster.

Tests create objects with unique names, with webhooks for a unique namespace only, and delete them afterwards.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import yaml

from deploy import render
from rules_engine.exports.configuration import BREAK_GLASS_LABEL, BREAK_GLASS_VALUE, build_configurations, derive_calls
from rules_engine.exports.drift import find_drift
from rules_engine.exports.match_condition import COMPARED_AMOUNTS_FOR_GPUS, COMPARED_CONTAINERS, LONG_NAME
from rules_engine.exports.settings import Settings
from rules_engine.model.json.patch import Json
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Match, Operation, Rule
from rules_engine.rules.sources.rule_files import DEFAULT_RULES, read_rules
from tests.support.api_server_cost import (
    COSTLIEST,
    COSTLIEST_WITHOUT_DEVICES,
    WIDEST,
    WIDEST_WITH_OTHER_PODS,
    costliest_pod,
)
from tests.support.chart import helm, set_options
from tests.support.conditions import SELECTORS
from tests.support.evaluation import GPU, compiled, container, injection, ladder, pod, validation
from tests.support.real import REAL, Kube, eventually, kubectl, kubernetes, together
from tests.support.webhooks import pod_defaults

pytestmark = REAL

NOBODY = "https://127.0.0.1:1"
"""No server listens here: the call fails, which shows that the API server made it."""

FAIL = dict.fromkeys(Endpoint, "Fail")


@pytest.fixture
def kube() -> Iterator[Kube]:
    with kubernetes() as made:
        yield made


@pytest.fixture
def name(kube: Kube) -> str:
    """Return the name of the namespace and of the configurations."""
    return kube.name


OPTIONS: Mapping[str, Any] = {
    "rbac": {"pods": True, "namespaces": True},
    "server": {"events": True, "declare": "kind: ClusterInventory"},
    "webhook": {"excludeNamespaces": ["a"], "mutating": {"failurePolicy": "Fail", "timeoutSeconds": 30}},
    "networkPolicy": {
        "apiServerCIDRs": ["10.0.0.0/8", "fd00::/8"],
        "metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
    },
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "metrics": {"dashboard": {"enabled": True}},
    "clientCA": {"configMap": "ca"},
    "doctor": {"enabled": True, "events": True},
}
"""Values of all features that need no CustomResourceDefinitions."""


@pytest.mark.parametrize("values", [{}, OPTIONS], ids=["defaults", "options"])
def test_the_api_server_accepts_the_objects_of_the_chart(name: str, values: Mapping[str, Any]) -> None:
    code, rendered, errors = helm(
        "template", name, render.CHART, "--namespace", "default", *set_options(json.dumps(values))
    )
    assert code == 0, errors
    objects = together(filter(None, yaml.safe_load_all(rendered)))
    ended = kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=objects)

    assert ended.returncode == 0, ended.stderr


ODD: list[Rule] = [
    *(ladder(GPU, name=f"s{n}", match=Match(object_selector=found)) for n, found in enumerate(SELECTORS) if found),
    injection({"cpu": 1}, gpu_type="a'b\\\n\té😀", gpu_type_annotation="a/b"),
    ladder(GPU, name="n", match=Match(namespaces=("m?", "x-*"), exclude_namespaces=("a", "*.b"))),
]


def test_the_api_server_compiles_every_derived_condition(name: str) -> None:
    for rule in ODD:
        assert derive_calls(compiled(rule))[0].expression
    updates = Match(operations=tuple(Operation))
    globs = ("*/*", "nvidia.com/mig-?g.*", "*", "a?b*/c*", "*gpu")
    checks = [validation("true", match=replace(updates, resources=(glob, "a/b"))) for glob in globs]
    others = [pod_defaults(match=rule.match) for rule in ODD]
    for rule in (*ODD, *checks, *others):
        made = build_configurations(compiled(rule), Settings(name=name, server=NOBODY))
        ended = kubectl("apply", "--dry-run=server", "-f", "-", stdin=together(made))
        assert ended.returncode == 0, ended.stderr


def called(kube: Kube, *rules: Rule, failure_policies: Mapping[Endpoint, str] = FAIL) -> AbstractContextManager[None]:
    """Install both configurations of these rules for pods of the namespace; calls for pods that match fail."""
    settings = Settings(name=kube.name, server=NOBODY, failure_policies=failure_policies)
    return kube.webhooks(build_configurations(compiled(*rules), settings))


def refusal_in(name: str, pod: Json) -> str:
    """Return the error for a pod at dry run, "" if it is admitted."""
    return kubectl("create", "-n", name, "--dry-run=server", "-f", "-", stdin=pod).stderr


def test_only_pods_that_a_rule_may_apply_to_are_sent(kube: Kube, name: str) -> None:
    rules = (ladder(GPU), validation("true", match=Match(resources=("rdma/*",), operations=tuple(Operation))))
    plain, gpu = pod(container("c", {"cpu": 1})), pod(container("c", {GPU: 1}))
    init, rdma = pod(container("c"), init=[container("i", limits={GPU: 1})]), pod(container("c", {"rdma/hca": 1}))
    refusal = partial(refusal_in, name)
    with called(kube, *rules):
        eventually(lambda: "mutate.gpurules.io" in refusal(gpu) and "validate.gpurules.io" in refusal(rdma))
        assert "mutate.gpurules.io" in refusal(init)
        assert refusal(plain) == ""
        assert "spec.containers: Required value" in refusal({**pod(), "spec": {"containers": []}})


def test_pods_of_break_glass_namespaces_are_not_sent(kube: Kube, name: str) -> None:
    gpu = pod(container("c", {GPU: 1}), labels={BREAK_GLASS_LABEL: BREAK_GLASS_VALUE})
    sent = "mutate.gpurules.io"
    with called(kube, ladder(GPU), validation("true")):
        eventually(lambda: sent in refusal_in(name, gpu))
        kubectl("label", "namespace", name, f"{BREAK_GLASS_LABEL}={BREAK_GLASS_VALUE}")
        eventually(lambda: refusal_in(name, gpu) == "")
        kubectl("label", "namespace", name, f"{BREAK_GLASS_LABEL}-")
        eventually(lambda: sent in refusal_in(name, gpu))


@pytest.mark.parametrize("failing", Endpoint)
def test_each_endpoint_has_its_own_failure_policy(kube: Kube, name: str, failing: Endpoint) -> None:
    """Pods of the endpoint with Fail are refused; pods of the other one are admitted without an answer."""
    rules = (ladder(GPU), validation("true", match=Match(resources=("rdma/hca",))))
    pods = {Endpoint.MUTATE: pod(container("c", {GPU: 1})), Endpoint.VALIDATE: pod(container("c", {"rdma/hca": 1}))}
    (admitted,) = (each for endpoint, each in pods.items() if endpoint is not failing)
    policies = {endpoint: "Fail" if endpoint is failing else "Ignore" for endpoint in Endpoint}
    with called(kube, *rules, failure_policies=policies):
        eventually(lambda: failing.webhook in refusal_in(name, pods[failing]))
        assert refusal_in(name, admitted) == ""


def test_pods_without_gpus_are_created_without_an_answer(kube: Kube, name: str) -> None:
    """The calls of both webhooks fail; with Fail, the second one shows the pods that it sends."""
    gpu, plain, many = ({GPU: 1}, {"cpu": 1}, {f"example.com/x{n}": 1 for n in range(9)})
    rules = (pod_defaults(match=Match(exclude_namespaces=("other",))), ladder(GPU))
    first, other = Endpoint.MUTATE.webhook, Endpoint.MUTATE.other_pods_webhook
    with called(kube, *rules):
        eventually(lambda: f'"{first}"' in refusal_in(name, pod(container("c", gpu))))
        assert f'"{first}"' in refusal_in(name, pod(container("c", many)))
        assert refusal_in(name, pod(container("c", plain))) == ""
        change = [{"op": "replace", "path": "/webhooks/1/failurePolicy", "value": "Fail"}]
        kubectl("patch", "mutatingwebhookconfiguration", name, "--type=json", "-p", json.dumps(change))
        eventually(lambda: f'"{other}"' in refusal_in(name, pod(container("c", plain))))
        assert f'"{first}"' in refusal_in(name, pod(container("c", gpu)))


def test_only_updates_of_pods_not_being_deleted_are_sent(kube: Kube, name: str) -> None:
    """Deletion of pods with finalizers, and updates of the status, always succeed."""
    finalized: Any = pod(container("c", {"cpu": 1}), name="c")
    finalized["metadata"]["finalizers"] = ["gpurules.io/test"]
    resize: Json = {
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}]}
    }

    def patched(change: Json, *arguments: str) -> str:
        line = ("patch", "pod", "c", "-n", name, "-p", json.dumps(change), *arguments)
        return kubectl(*line).stderr

    assert kubectl("create", "-n", name, "-f", "-", stdin=finalized).returncode == 0
    try:
        with called(kube, ladder(GPU), validation("true", match=Match(operations=(Operation.UPDATE,)))):
            eventually(lambda: "validate.gpurules.io" in patched({"metadata": {"labels": {"a": "b"}}}))
            assert "validate.gpurules.io" in patched(resize, "--subresource=resize")
            assert patched({"status": {"message": "m"}}, "--subresource=status") == ""
            assert kubectl("delete", "pod", "c", "-n", name, "--wait=false").stderr == ""
            assert patched({"metadata": {"labels": {"a": "b"}}}) == ""
            assert patched({"metadata": {"finalizers": None}}) == ""
            assert kubectl("get", "pods", "-n", name, "-o", "name").stdout == ""
    finally:
        patched({"metadata": {"finalizers": None}})


LEAST: Mapping[str, Any] = {"name": "c", "image": "a", "imagePullPolicy": "Never", "terminationMessagePath": "/"}


def test_the_costliest_pod_takes_half_of_the_limit(name: str) -> None:
    """Each condition has its own webhook, which is never called: only a failed evaluation refuses a pod.

    Each is evaluated twice for the costliest pod, which no rule matches: both together are within the limit. A label of
    the pod selects one condition per request.
    """
    made: Any = build_configurations(
        compiled(ladder(GPU)), Settings(name=name, server=NOBODY, failure_policies=FAIL, namespace="default")
    )[0]
    (webhook,) = made["webhooks"]
    webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    default = read_rules([DEFAULT_RULES]).rule_set
    derived = [(calls.expression, COSTLIEST_WITHOUT_DEVICES) for calls in derive_calls(default)]
    derived += [(derive_calls(compiled(*rules))[1].expression, COSTLIEST) for rules in WIDEST.values()]
    fewer = costliest_pod(COMPARED_CONTAINERS, COMPARED_AMOUNTS_FOR_GPUS, LONG_NAME)
    derived += [(derive_calls(compiled(*rules))[0].expression, fewer) for rules in WIDEST_WITH_OTHER_PODS.values()]
    for number, (text, _) in enumerate(derived):
        condition = {"name": "c", "expression": f"({text}) || ({text})"}
        only = {"matchLabels": {"condition": str(number)}}
        made["webhooks"].append(
            {**webhook, "name": f"c{number}.gpurules.io", "matchConditions": [condition], "objectSelector": only}
        )
    path = f"/api/v1/namespaces/{name}/pods?dryRun=All"

    def refusal(pod: Json) -> str:
        return kubectl("create", "--raw", path, "-f", "-", stdin=pod).stderr

    try:
        ended = kubectl("create", "-f", "-", stdin=made)
        assert ended.returncode == 0, ended.stderr
        eventually(lambda: "mutate.gpurules.io" in refusal(pod(container("c", {GPU: 1}))))
        for number, (_, costly) in enumerate(derived):
            labelled = {**costly, "metadata": {"name": "costly", "labels": {"condition": str(number)}}}
            message = refusal(labelled)
            assert "gpurules.io" not in message, (number, message)
            assert "match condition" not in message.lower(), (number, message)
    finally:
        kubectl("delete", "mutatingwebhookconfigurations", name, "--ignore-not-found")


def test_only_a_changed_configuration_has_drifted(name: str) -> None:
    rules = (
        pod_defaults(),
        ladder(GPU),
        validation("true", match=Match(operations=tuple(Operation), resources=(GPU,))),
    )
    rule_set = compiled(*rules)
    made = build_configurations(rule_set, Settings(name=name, server=NOBODY))

    def kept(kind: str) -> Any:
        return json.loads(kubectl("get", kind, name, "-o", "json").stdout)

    try:
        kubectl("create", "-f", "-", stdin=together(made))
        for calls in derive_calls(rule_set):
            assert find_drift(calls, name, kept(calls.endpoint.kind)) == ()
        change = [{"op": "replace", "path": "/webhooks/0/matchConditions/0/expression", "value": "false"}]
        kubectl("patch", "mutatingwebhookconfiguration", name, "--type=json", "-p", json.dumps(change))
        (found,) = find_drift(derive_calls(rule_set)[0], name, kept("MutatingWebhookConfiguration"))
        assert "has another match condition requests-a-resource-of-a-rule" in found
    finally:
        kubectl("delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", name, "--ignore-not-found")
