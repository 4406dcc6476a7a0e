"""`webhook-config`: webhook configurations with which the API server sends only pods that some rule may apply to.

For a pod that is not sent, every rule would have been skipped.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePath
from types import MappingProxyType

from rules_engine.exports.match_condition import (
    Selection,
    match_condition,
    selection_of_gpus,
    selection_of_holders,
    selection_of_rule,
)
from rules_engine.exports.settings import FAIL, IGNORE, Service, Settings
from rules_engine.language.cel.program import constant_arguments
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.kubernetes.native_objects import GROUP
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, warning
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Operation, Rule, RuleId
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.globs import is_glob
from rules_engine.rules.rule_set.rule_set import cluster_requirements

RESIZE = "pods/resize"
"""The subresource for changes of cpu and memory of a running pod."""

DIGEST_ANNOTATION = f"{GROUP}/webhook-digest"
"""Annotation of a configuration: the digest of the rules that it was generated from."""

NATIVE_ANNOTATION = f"{GROUP}/native"
"""Annotation of a configuration without the rules that the API server evaluates itself: "true"."""

CONDITION_NAME = "requests-a-resource-of-a-rule"
EXCLUSION_NAME = "not-sent-by-the-first-webhook"
DELETION_NAME = "not-being-deleted"
DELETION_CONDITION: Json = {
    "name": DELETION_NAME,
    "expression": "request.operation != 'UPDATE' || !has(object.metadata.deletionTimestamp)",
}
"""The condition for updates: finalizers of a pod must always be removable."""

OTHER_PODS_TIMEOUT_SECONDS = 2
"""Timeout for pods that request no GPUs: rules for GPUs must not delay or prevent all others for long."""

SYSTEM_NAMESPACE = "kube-system"

BREAK_GLASS_LABEL, BREAK_GLASS_VALUE = f"{GROUP}/admission", "disabled"
"""Label of a namespace whose pods are not sent. Administrators label namespaces; users label their pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The calls of an endpoint by the API server.

    `operations` is empty if no rule needs the endpoint. `expression` None: every pod. `widest`: the rules that may
    apply to every pod. `largest`: the rule with the most names, if matches were left out since all rules have too many.
    `reserving`: the rules that read free amounts: /validate reserves the devices of the pods it admits.
    `other_pods`: the calls of a second webhook, for pods of rules without resources that request no GPUs.
    `excluded`, of this webhook alone: the expression of the first one. A pod is sent by one of them.
    `changed`, of /validate in mode Audit: the expressions of /mutate's webhooks, whose pods lack the changes.
    """

    endpoint: Endpoint
    rules: tuple[Rule, ...]
    reserving: tuple[Rule, ...] = ()
    operations: tuple[str, ...]
    expression: str | None
    widest: tuple[Rule, ...] = ()
    largest: Rule | None = None
    other_pods: "Calls | None" = None
    excluded: str | None = None
    changed: tuple[str | None, ...] = ()

    @property
    def webhooks(self) -> tuple["Calls", ...]:
        """The calls of each webhook of the endpoint."""
        return (self, self.other_pods) if self.other_pods else (self,)

    @property
    def webhook(self) -> str:
        return self.endpoint.other_pods_webhook if self.excluded else self.endpoint.webhook

    @property
    def resources(self) -> tuple[str, ...]:
        """Resources for which the API server calls the endpoint; a resize is an update only."""
        return ("pods", RESIZE) if self._updates else ("pods",)

    @property
    def denying(self) -> tuple[RuleId, ...]:
        """The rules that can deny a pod even if their expressions are evaluated without error."""
        return tuple(sorted(rule.id for rule in self.rules if rule.can_deny))

    @property
    def match_conditions(self) -> list[Json]:
        sent = (self.expression, *self.changed)
        joined = None if None in sent else " || ".join(f"({text})" for text in sent)
        texts = {
            CONDITION_NAME: joined if self.changed else self.expression,
            EXCLUSION_NAME: self.excluded and f"!({self.excluded})",
        }
        conditions: list[Json] = [{"name": name, "expression": text} for name, text in texts.items() if text]
        return [DELETION_CONDITION, *conditions] if self._updates else conditions

    @property
    def _updates(self) -> bool:
        return Operation.UPDATE.value in self.operations

    @property
    def digest(self) -> str:
        """Digest of the calls, which identifies the configurations generated from them."""
        of_updates = [self.resources, DELETION_CONDITION] if self._updates else []
        of_others = [each.match_conditions for each in self.webhooks[1:]]
        content = json.dumps([self.endpoint.value, self.operations, self.expression, *of_updates, *of_others])
        return f"sha256:{sha256(content.encode()).hexdigest()}"


def derive_calls(rule_set: RuleSet, *, audit: bool = False) -> tuple[Calls, Calls]:
    """Derive the API server's calls of /mutate and /validate; `audit`: of a server in mode Audit."""
    changing, checking = rule_set.rules_at(Endpoint.MUTATE), rule_set.rules_at(Endpoint.VALIDATE)
    reserving = [(rule.rule, held) for rule in (*changing, *checking) if (held := _resources_to_reserve(rule))]
    mutate = _derive_endpoint_calls(Endpoint.MUTATE, [rule.rule for rule in changing], [])
    validate = _derive_endpoint_calls(Endpoint.VALIDATE, [rule.rule for rule in checking], reserving)
    if audit and mutate.operations and Operation.CREATE.value in validate.operations:
        validate = replace(validate, changed=tuple(each.expression for each in mutate.webhooks))
    return mutate, validate


def _resources_to_reserve(compiled: CompiledRule[Rule]) -> Set[str]:
    """Return the resources of which a rule reads free amounts: its own, and names in `cluster.available('…')`."""
    if not compiled.reads_available:
        return frozenset()
    programs = (*compiled.programs, *compiled.messages)
    names = {name for program in programs for name in constant_arguments(program.checked.expression, "available")}
    # Others, such as cpu, are not reserved.
    extended = {name for name in names if "/" in name and not is_glob(name)}
    return extended | (compiled.rule.interests.resources or frozenset())


def _derive_endpoint_calls(
    endpoint: Endpoint, rules: Sequence[Rule], reserving: Sequence[tuple[Rule, Set[str]]]
) -> Calls:
    operations = {operation for rule in rules for operation in rule.match.operations}
    operations.update({Operation.CREATE} if reserving else ())
    selections = [(rule, selection_of_rule(rule, operations)) for rule in rules]
    selections += [(rule, selection_of_holders(resources, operations)) for rule, resources in reserving]
    wide = [each for each in selections if endpoint is Endpoint.MUTATE and not each[1].resources]
    if wide:
        gpus = selection_of_gpus([pods for _, pods in wide])
        selections = [(rule, pods if pods.resources else gpus) for rule, pods in selections]
    calls = replace(
        _calls_for(endpoint, operations, selections),
        rules=(*rules,),
        reserving=tuple(rule for rule, _ in reserving),
        widest=tuple(rule for rule in rules if selection_of_rule(rule, {*rule.match.operations}).everything),
    )
    # Without an expression, the first webhook sends every pod.
    others = _calls_for(endpoint, operations, wide) if wide and calls.expression else None
    return replace(calls, other_pods=others and replace(others, excluded=calls.expression))


def _calls_for(endpoint: Endpoint, operations: Set[Operation], selections: Sequence[tuple[Rule, Selection]]) -> Calls:
    condition = match_condition([pods for _, pods in selections])
    return Calls(
        endpoint=endpoint,
        rules=tuple(rule for rule, _ in selections),
        operations=tuple(operation.value for operation in Operation if operation in operations),
        expression=condition.expression,
        largest=max(selections, key=lambda each: each[1].weight)[0] if condition.simplified else None,
    )


def build_configurations(rule_set: RuleSet, settings: Settings) -> tuple[dict[str, Json], ...]:
    """Return both configurations; one whose endpoint no rule needs has no webhooks, and so replaces an earlier one."""
    return tuple(_build_configuration(calls, settings) for calls in derive_calls(rule_set, audit=settings.audit))


def helm_values(
    rule_set: RuleSet,
    files: Mapping[str, str],
    failure_policies: Mapping[Endpoint, str] = MappingProxyType({}),
    remaining: RuleSet | None = None,
    sets: Sequence[str] = (),
) -> dict[str, Json]:
    """Return the chart's values for rules in `files`, texts by path, and in packaged `sets`.

    They are the rules, the calls of the server and its permissions to read resources. An omitted failure policy is left
    to other values files. `remaining`: the rules of the webhooks, if the API server evaluates the others itself.
    """
    webhook: dict[str, Json] = {
        calls.endpoint.values_key: {
            **({"failurePolicy": policy} if (policy := failure_policies.get(calls.endpoint)) else {}),
            "operations": [*calls.operations],
            "matchConditions": calls.match_conditions,
            **(
                {"otherPods": calls.other_pods.match_conditions if calls.other_pods else []}
                if calls.endpoint is Endpoint.MUTATE
                else {}
            ),
            "digest": calls.digest,
            "denies": [*calls.denying],
        }
        for calls in derive_calls(rule_set if remaining is None else remaining)
    }
    needs = cluster_requirements(rule_set)
    named: dict[str, Json] = {"sets": [*sets]} if sets else {}
    return {
        "rules": {**named, **dict(zip(_config_map_keys(list(files)), files.values(), strict=True))},
        "webhook": {**named, **({} if remaining is None else {"native": True}), **webhook},
        "rbac": {name: getattr(needs, name) for name in ("nodes", "pods", "namespaces", "classes")},
    }


def _config_map_keys(paths: Sequence[str]) -> list[str]:
    """Return ConfigMap keys for files: their names, with a number if two files have the same name."""
    names: list[str] = []
    for path in paths:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", PurePath(path).name).lstrip(".")
        repeated = len([other for other in names if other.endswith(name)])
        names.append(f"{repeated + 1}-{name}" if name in names else name)
    return names


def find_warnings(rule_set: RuleSet) -> Iterator[Problem]:
    """Yield warnings about rules that cause more pods to be sent than they apply to."""
    for calls in derive_calls(rule_set):
        for each in calls.webhooks:
            yield from _warnings_of_calls(each)


def ignore_policy_warnings(
    rule_set: RuleSet, failure_policies: Mapping[Endpoint, str], *, as_values: bool = False
) -> tuple[str, ...]:
    """Return warnings of rules that can deny a pod at an endpoint whose failurePolicy is Ignore.

    `as_values`: for the chart, whose other values may have the policy that is omitted here.
    """
    texts = []
    for calls in derive_calls(rule_set):
        policy = failure_policies.get(calls.endpoint)
        if calls.denying and policy != FAIL:
            key = calls.endpoint.values_key
            unless = f" unless other values set webhook.{key}.failurePolicy" if as_values and policy is None else ""
            texts.append(
                f"{', '.join(calls.denying)} can deny a pod, but the failurePolicy of {calls.endpoint.path} is "
                f"Ignore{unless}: while the server does not answer, the API server admits such pods. With "
                f"--{key}-failure-policy Fail, it then denies every pod that would be sent"
            )
    return tuple(texts)


def fail_policy_warnings(rule_set: RuleSet, failure_policies: Mapping[Endpoint, str]) -> tuple[str, ...]:
    """Return warnings of endpoints whose outage prevents the creation of every pod."""
    return tuple(
        f"every pod is sent to {calls.endpoint.path}, whose failurePolicy is Fail: while the server does not answer, "
        f"no pod is created{' or updated' if Operation.UPDATE.value in calls.operations else ''}, except in the "
        "excluded namespaces"
        for calls in derive_calls(rule_set)
        if calls.operations and calls.expression is None and failure_policies.get(calls.endpoint) == FAIL
    )


def _warnings_of_calls(calls: Calls) -> Iterator[Problem]:
    path = calls.endpoint.path
    for rule in calls.widest:
        message = (
            f"every pod is sent to {path} because of {rule.id}: limit it by match.resources, match.namespaces or "
            "match.objectSelector"
        )
        yield warning(Code.EVERY_POD, message, rule.location, rule.name)
    if (largest := calls.largest) and not calls.widest:
        too_much = f"the rules name too much for one match condition, {largest.id} the most"
        if calls.expression is None:
            message = (
                f"every pod is sent to {path}: {too_much}; use fewer names, and globs such as nvidia.com/* rather than "
                "*-gpu-*"
            )
            yield warning(Code.EVERY_POD, message, largest.location, largest.name)
        else:
            message = f"pods of all namespaces and labels that name a resource of a rule are sent to {path}: {too_much}"
            yield warning(Code.SIMPLIFIED_CONDITION, message, largest.location, largest.name)


def _build_configuration(calls: Calls, settings: Settings) -> dict[str, Json]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": calls.endpoint.kind,
        "metadata": {
            "name": settings.name,
            "labels": {"app.kubernetes.io/name": "gpu-rules"},
            "annotations": {
                DIGEST_ANNOTATION: calls.digest,
                **({NATIVE_ANNOTATION: "true"} if settings.native else {}),
            },
        },
        "webhooks": [_build_webhook(each, settings) for each in calls.webhooks if each.operations],
    }


def _build_webhook(calls: Calls, settings: Settings) -> dict[str, Json]:
    webhook: dict[str, Json] = {
        "name": calls.webhook,
        "admissionReviewVersions": ["v1"],
        "clientConfig": _client_config(calls.endpoint, settings),
        "rules": [pod_rule(calls.operations, calls.resources)],
        "matchPolicy": "Equivalent",
        "matchConditions": calls.match_conditions,
        "namespaceSelector": namespace_selector(settings),
        "sideEffects": "NoneOnDryRun",
        "failurePolicy": IGNORE if calls.excluded else settings.failure_policies.get(calls.endpoint, IGNORE),
        "timeoutSeconds": OTHER_PODS_TIMEOUT_SECONDS if calls.excluded else settings.timeout_seconds,
    }
    if calls.endpoint is Endpoint.MUTATE:
        webhook["reinvocationPolicy"] = "IfNeeded"
    return webhook


def pod_rule(operations: Sequence[str], resources: Sequence[str]) -> dict[str, Json]:
    """Return the rule of a webhook or policy for operations of pods or their subresources."""
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": [*operations],
        "resources": [*resources],
        "scope": "Namespaced",
    }


def namespace_selector(settings: Settings) -> dict[str, Json]:
    """Return the selector of the namespaces of a webhook or policy."""
    excluded = sorted({SYSTEM_NAMESPACE, settings.namespace})
    only: list[Json] = [{"key": NAMESPACE_NAME_LABEL, "operator": "In", "values": [*settings.namespaces]}]
    return {
        "matchExpressions": [
            *(only if settings.namespaces else []),
            {"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": [*excluded]},
            {"key": BREAK_GLASS_LABEL, "operator": "NotIn", "values": [BREAK_GLASS_VALUE]},
        ]
    }


def _client_config(endpoint: Endpoint, settings: Settings) -> dict[str, Json]:
    client: dict[str, Json] = {}
    path = endpoint.native_path if settings.native else endpoint.path
    match settings.server or Service(namespace=settings.namespace):
        case Service(name=name, namespace=namespace, port=port):
            client["service"] = {"name": name, "namespace": namespace, "port": port, "path": path}
        case url:
            client["url"] = url.rstrip("/") + path
    if settings.ca_bundle is not None:
        client["caBundle"] = b64encode(settings.ca_bundle).decode()
    return client
