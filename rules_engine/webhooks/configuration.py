"""`webhook-config`: webhook configurations with which the API server sends only pods that some rule may apply to.

Their match conditions are derived from the rules: for a pod that is not sent, every rule would have been skipped. An
evaluation error of a ladder or an injection counts only if the pod requests a resource of the rule: a broken GPU rule
must not deny pods without GPUs.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import PurePath
from types import MappingProxyType

from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.rule_set.cluster_requirements import cluster_requirements, reads_available
from rules_engine.model.json.patch import Json
from rules_engine.model.rules import (
    AnyRule,
    ConditionKind,
    FallbackLadder,
    LabelRequirement,
    Match,
    Operation,
    ResourceInjection,
    RuleId,
    Validation,
)
from rules_engine.webhooks.costs import LARGE, affordable
from rules_engine.webhooks.guards import portable_text

MAX_EXPRESSION = 20_000
"""Longest match condition, in characters: the bound of rules' expressions. It is a fifth of what cel-go's parser
accepts, and every API server keeps webhook configurations in memory."""

RESIZE = "pods/resize"
"""The subresource for changes of cpu and memory of a running pod."""

SELF = "gpurules.io"
DIGEST_ANNOTATION = f"{SELF}/webhook-digest"
"""Annotation of a configuration: the digest of the rules that it was generated from."""

CONDITION_NAME = "requests-a-resource-of-a-rule"
FORMER_CONDITION_NAME = "some-rule-could-touch-it"
"""The former name: a configuration that has it was made by an earlier version, and is reported as drift."""

DELETION: Json = {
    "name": "not-being-deleted",
    "expression": "request.operation != 'UPDATE' || !has(object.metadata.deletionTimestamp)",
}
"""The condition for updates: finalizers of a pod must always be removable."""

SYSTEM_NAMESPACE = "kube-system"

BREAK_GLASS_LABEL, BREAK_GLASS_VALUE = f"{SELF}/admission", "disabled"
"""Label of a namespace whose pods are not sent. Administrators label namespaces; users label their pods."""


IGNORE = "Ignore"
"""The failurePolicy that admits a pod when the server does not answer; the default, here and in the chart."""


class Endpoint(Enum):
    """The two endpoints, each with a configuration of its own; the value is the kind's first word."""

    MUTATE = "Mutating"
    VALIDATE = "Validating"

    @property
    def kind(self) -> str:
        return f"{self.value}WebhookConfiguration"

    @property
    def path(self) -> str:
        return f"/{self.name.lower()}"

    @property
    def webhook(self) -> str:
        """The webhook's name; Kubernetes wants three labels at least."""
        return f"{self.name.lower()}.{SELF}"

    @property
    def values_key(self) -> str:
        """Below `webhook` in the chart's values."""
        return self.value.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The calls of an endpoint by the API server.

    `operations` is empty if no rule needs the endpoint. `expression` None: every pod. `widened` are the rules because
    of which it is every pod; `simplified`: conditions of single rules were left out, since there are too many.
    `reserving` are rules of /mutate that read what is free: /validate reserves the devices of the pods it admits.
    """

    endpoint: Endpoint
    rules: tuple[AnyRule, ...]
    reserving: tuple[AnyRule, ...] = ()
    operations: tuple[str, ...]
    expression: str | None
    widened: tuple[RuleId, ...] = ()
    simplified: bool = False

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
        deletion = [DELETION] if self._updates else []
        condition: Json = {"name": CONDITION_NAME, "expression": self.expression}
        return deletion if self.expression is None else [*deletion, condition]

    @property
    def _updates(self) -> bool:
        return Operation.UPDATE.value in self.operations

    @property
    def digest(self) -> str:
        """Digest of the calls, which identifies the configurations generated from them."""
        of_updates = [self.resources, DELETION] if self._updates else []
        content = json.dumps([self.endpoint.value, self.operations, self.expression, *of_updates])
        return f"sha256:{sha256(content.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Service:
    """The Service in front of the server."""

    name: str
    namespace: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a configuration that do not follow from the rules. `server` is a Service or a URL prefix."""

    name: str = "gpu-rules"
    namespace: str = "gpu-rules"
    server: Service | str
    ca_bundle: bytes | None = None
    failure_policies: Mapping[Endpoint, str] = field(default_factory=lambda: MappingProxyType({}))
    """Default: Ignore."""
    timeout_seconds: int = 5


def derive(rule_set: RuleSet) -> tuple[Calls, Calls]:
    """Derive the API server's calls of /mutate and /validate."""
    ladders, injections = rule_set.ladders, rule_set.injections
    changing: list[AnyRule] = [*(ladder.rule for ladder in ladders), *(injection.rule for injection in injections)]
    checking: list[AnyRule] = [validation.rule for validation in rule_set.validations]
    reserving: list[AnyRule] = [ladder.rule for ladder in ladders if reads_available(ladder)]
    reserving += [injection.rule for injection in injections if reads_available(injection)]
    return _calls(Endpoint.MUTATE, changing), _calls(Endpoint.VALIDATE, checking, reserving)


def configurations(rule_set: RuleSet, settings: Settings) -> tuple[dict[str, Json], ...]:
    """Return both configurations; one whose endpoint no rule needs has no webhooks, and so replaces an earlier one."""
    return tuple(_configuration(calls, settings) for calls in derive(rule_set))


def helm_values(
    rule_set: RuleSet, files: Mapping[str, str], failure_policies: Mapping[Endpoint, str] = MappingProxyType({})
) -> dict[str, Json]:
    """Return the chart's values for rules in `files`, texts by path.

    They are the rules, the calls of the server and the resources that it must be allowed to read. A failure policy
    that is not given is left to other values files.
    """
    webhook: dict[str, Json] = {
        calls.endpoint.values_key: {
            **({"failurePolicy": policy} if (policy := failure_policies.get(calls.endpoint)) else {}),
            "operations": [*calls.operations],
            "matchConditions": calls.match_conditions,
            "digest": calls.digest,
            "denies": [*calls.denying],
        }
        for calls in derive(rule_set)
    }
    requirements = cluster_requirements(rule_set)
    return {
        "rules": dict(zip(_keys(list(files)), files.values(), strict=True)),
        "webhook": webhook,
        "rbac": {"nodes": requirements.nodes, "pods": requirements.pods, "namespaces": requirements.namespaces},
    }


def _keys(paths: Sequence[str]) -> list[str]:
    """Return ConfigMap keys for files: their names, with a number if two files have the same."""
    names: list[str] = []
    for path in paths:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", PurePath(path).name).lstrip(".")
        repeated = len([other for other in names if other.endswith(name)])
        names.append(f"{repeated + 1}-{name}" if name in names else name)
    return names


def condition_of(rule: AnyRule) -> str:
    """Return an expression that is true of every pod that a rule may apply to, at its operations; "" if that is any."""
    return _clause(rule, set(rule.match.operations)).expression


def warnings(rule_set: RuleSet) -> tuple[str, ...]:
    """Return the reasons for sending more pods than necessary."""
    return tuple(text for calls in derive(rule_set) for text in _warnings(calls))


def unenforced(
    rule_set: RuleSet, failure_policies: Mapping[Endpoint, str], *, as_values: bool = False
) -> tuple[str, ...]:
    """Return warnings of rules that can deny a pod at an endpoint whose failurePolicy is Ignore.

    `as_values`: for the chart, whose other values may have a policy that is not given here.
    """
    found = []
    for calls in derive(rule_set):
        policy = failure_policies.get(calls.endpoint)
        if calls.denying and policy != "Fail":
            key = calls.endpoint.values_key
            unless = f" unless other values set webhook.{key}.failurePolicy" if as_values and policy is None else ""
            found.append(
                f"{', '.join(calls.denying)} can deny a pod, but the failurePolicy of {calls.endpoint.path} is "
                f"Ignore{unless}: while the server does not answer, the API server admits such pods. With "
                f"--{key}-failure-policy Fail, it then denies every pod that would be sent"
            )
    return tuple(found)


def blocking(rule_set: RuleSet, failure_policies: Mapping[Endpoint, str]) -> tuple[str, ...]:
    """Return warnings of endpoints whose outage prevents the creation of every pod."""
    return tuple(
        f"every pod is sent to {calls.endpoint.path}, whose failurePolicy is Fail: while the server does not answer, "
        f"no pod is created{' or updated' if Operation.UPDATE.value in calls.operations else ''}, except in the "
        "excluded namespaces"
        for calls in derive(rule_set)
        if calls.operations and calls.expression is None and failure_policies.get(calls.endpoint) == "Fail"
    )


def _warnings(calls: Calls) -> Iterable[str]:
    rules = ", ".join(calls.widened)
    if rules:
        yield (
            f"every pod is sent to {calls.endpoint.path} because of {rules}: what is sent is limited only by "
            "match.namespaces, match.excludeNamespaces, match.objectSelector, and by matchConditions that read only "
            "object and request, cannot fail, and cost little for the largest pod"
        )
    elif calls.simplified and calls.expression is None:
        yield f"every pod is sent to {calls.endpoint.path}: the rules name too much for one match condition"
    elif calls.simplified:
        yield f"every pod that requests a resource of a rule is sent to {calls.endpoint.path}: there are too many rules"


def _configuration(calls: Calls, settings: Settings) -> dict[str, Json]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": calls.endpoint.kind,
        "metadata": {
            "name": settings.name,
            "labels": {"app.kubernetes.io/name": "gpu-rules"},
            "annotations": {DIGEST_ANNOTATION: calls.digest},
        },
        "webhooks": [_webhook(calls, settings)] if calls.operations else [],
    }


def _webhook(calls: Calls, settings: Settings) -> dict[str, Json]:
    webhook: dict[str, Json] = {
        "name": calls.endpoint.webhook,
        "admissionReviewVersions": ["v1"],
        "clientConfig": _client(calls.endpoint, settings),
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": [*calls.operations],
                "resources": [*calls.resources],
                "scope": "Namespaced",
            }
        ],
        "matchPolicy": "Equivalent",
        "matchConditions": calls.match_conditions,
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": [*sorted({SYSTEM_NAMESPACE, settings.namespace})],
                },
                {"key": BREAK_GLASS_LABEL, "operator": "NotIn", "values": [BREAK_GLASS_VALUE]},
            ]
        },
        "sideEffects": "NoneOnDryRun",
        "failurePolicy": settings.failure_policies.get(calls.endpoint, IGNORE),
        "timeoutSeconds": settings.timeout_seconds,
    }
    if calls.endpoint is Endpoint.MUTATE:
        webhook["reinvocationPolicy"] = "IfNeeded"
    return webhook


def _client(endpoint: Endpoint, settings: Settings) -> dict[str, Json]:
    client: dict[str, Json] = {}
    match settings.server:
        case Service(name=name, namespace=namespace, port=port):
            client["service"] = {"name": name, "namespace": namespace, "port": port, "path": endpoint.path}
        case url:
            client["url"] = url.rstrip("/") + endpoint.path
    if settings.ca_bundle is not None:
        client["caBundle"] = b64encode(settings.ca_bundle).decode()
    return client


# From here on: rules are turned into one expression.


@dataclass(frozen=True, slots=True)
class _Clause:
    """Pods that some rules may apply to: all `conditions` hold, and one of `resources`, if any, is requested."""

    conditions: frozenset[str]
    resources: frozenset[str]

    @property
    def everything(self) -> bool:
        return not self.conditions and not self.resources

    def covers(self, other: "_Clause") -> bool:
        """Return True if all pods of the other are pods of this one."""
        narrower = bool(other.resources) and other.resources <= self.resources
        return self.conditions <= other.conditions and (not self.resources or narrower)

    @property
    def expression(self) -> str:
        # The cheap ones first: CEL stops at the first that is false.
        requesting = [_requests_any(self.resources)] if self.resources else []
        return " && ".join([*sorted(self.conditions, key=lambda text: (len(text), text)), *requesting])


def _calls(endpoint: Endpoint, rules: Sequence[AnyRule], reserving: Sequence[AnyRule] = ()) -> Calls:
    named = {operation for rule in (*rules, *reserving) for operation in rule.match.operations}
    operations = tuple(operation.value for operation in Operation if operation in named)
    clauses = {rule.id: _clause(rule, named) for rule in rules}
    clauses.update((rule.id, _reserved(rule, named)) for rule in reserving)
    widened = tuple(sorted(name for name, clause in clauses.items() if clause.everything))
    if widened or not clauses:
        return Calls(
            endpoint=endpoint,
            rules=(*rules,),
            reserving=(*reserving,),
            operations=operations,
            expression=None,
            widened=widened,
        )
    expression = _within_limits(_either(clauses.values()))
    simplified = not expression
    if simplified:
        expression = _within_limits(
            _either(
                _Clause(frozenset(), clause.resources) if clause.resources else clause for clause in clauses.values()
            )
        )
    return Calls(
        endpoint=endpoint,
        rules=(*rules,),
        reserving=(*reserving,),
        operations=operations,
        expression=expression or None,
        simplified=simplified,
    )


def _within_limits(expression: str) -> str:
    """Return an expression that the API server can evaluate for any pod; "" if there is none.

    An expression that costs too much for the largest pods is evaluated for others only: the largest are always sent.
    """
    large_too = f"{LARGE} || {expression}"
    if len(large_too) > MAX_EXPRESSION:
        return expression if 0 < len(expression) <= MAX_EXPRESSION and affordable(expression) else ""
    if not expression or affordable(expression):
        return expression
    return large_too if affordable(large_too, small=True) else ""


def _either(clauses: Iterable[_Clause]) -> str:
    """Return one expression that is true if a clause is; "" if one has no condition."""
    by_conditions: dict[tuple[frozenset[str], bool], frozenset[str]] = {}
    for clause in clauses:
        key = clause.conditions, bool(clause.resources)
        by_conditions[key] = by_conditions.get(key, frozenset()) | clause.resources
    merged = [_Clause(conditions, resources) for (conditions, _), resources in by_conditions.items()]
    kept = [one for one in merged if not any(other != one and other.covers(one) for other in merged)]
    if any(clause.everything for clause in kept):
        return ""
    texts = sorted(clause.expression for clause in kept)
    return texts[0] if len(texts) == 1 else " || ".join(f"({text})" for text in texts)


def _reserved(rule: AnyRule, operations: Set[Operation]) -> _Clause:
    """Return the pods that hold devices that a rule counts, whether or not it matches them."""
    return _Clause(frozenset(_at(rule, operations)), _clause(rule, operations).resources)


def _at(rule: AnyRule, operations: Set[Operation]) -> Iterable[str]:
    """Yield the condition that excludes operations that only other rules match."""
    if operations - set(rule.match.operations):
        yield f"request.operation in {_list(sorted(operation.value for operation in rule.match.operations))}"


def _clause(rule: AnyRule, operations: Set[Operation]) -> _Clause:
    """Return the pods that a rule may apply to; `operations` are all at which the endpoint is called.

    Pods that opt out are sent as well, so that traces and metrics count them.
    """
    conditions = {*_matched(rule.match), *_at(rule, operations)}
    portable = (portable_text(condition.expression) for condition in rule.match_conditions)
    # A trailing comment would also comment out what follows.
    conditions.update(f"({text}\n)" if "//" in text else f"({text})" for text in portable if text is not None)
    resources: set[str] = set()
    match rule:
        case FallbackLadder(rungs=rungs):
            resources = {rung.resource for rung in rungs}
        case ResourceInjection(gpu_resource=resource, gpu_type=gpu_type, gpu_type_annotation=annotation):
            resources = {resource}
            if gpu_type is not None:
                key, value = _literal(annotation), _literal(gpu_type)
                conditions.add(f"object.metadata.?annotations[?{key}].orValue('') == {value}")
        case Validation():
            pass
    return _Clause(frozenset(conditions), frozenset(resources))


def _matched(match: Match) -> Iterable[str]:
    """Yield the conditions of a match, without namespaceSelector: match conditions cannot read a namespace's labels."""
    if "*" not in match.namespaces:
        yield _named(match.namespaces)
    if match.exclude_namespaces:
        yield f"!({_named(match.exclude_namespaces)})"
    yield from map(_required, match.object_selector.requirements)


def _named(patterns: Sequence[str]) -> str:
    """Return the condition that the namespace matches one of these names and globs."""
    exact = sorted({pattern for pattern in patterns if not re.search(r"[*?]", pattern)})
    globs = sorted(set(patterns) - set(exact))
    tests = [f"request.namespace in {_list(exact)}"] if exact or not globs else []
    tests += [f"request.namespace.matches({_literal(_regex(glob))})" for glob in globs]
    return tests[0] if len(tests) == 1 else f"({' || '.join(tests)})"


def _regex(glob: str) -> str:
    """Return a glob as an RE2 expression for the whole name."""
    parts = ({"*": ".*", "?": "."}.get(character) or re.escape(character) for character in glob)
    # A dash is not escaped here, and most names have one.
    return f"^{''.join(parts)}$".replace(r"\-", "-")


def _required(requirement: LabelRequirement) -> str:
    labels = "object.metadata.?labels.orValue({})"
    key, values = _literal(requirement.key), _list(requirement.values)
    among = f"object.metadata.?labels[?{key}].optMap(value, value in {values}).orValue(false)"
    match requirement.operator:
        case ConditionKind.IN:
            return among
        case ConditionKind.NOT_IN:
            return f"!{among}"
        case ConditionKind.EXISTS:
            return f"{key} in {labels}"
        case _:
            return f"!({key} in {labels})"


def _requests_any(resources: Iterable[str]) -> str:
    """Return the condition that some container or init container requests one of these.

    The API server sends a null for the containers of a pod that has none, and refuses the pod later.
    """
    named = f".orValue({{}}).exists(name, name in {_list(sorted(resources))})"
    return (
        "[object.spec.?containers, object.spec.?initContainers].exists(list, list.orValue(null) != null && "
        f"list.value().exists(c, c.?resources.limits{named} || c.?resources.requests{named}))"
    )


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_literal, texts))}]"


def _literal(text: str) -> str:
    """Return a CEL string literal. JSON's escapes are valid in CEL as well."""
    plain = text.isprintable() and not set(text) & {"'", "\\"}
    return f"'{text}'" if plain else json.dumps(text, ensure_ascii=False)
