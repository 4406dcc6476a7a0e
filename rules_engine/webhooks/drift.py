"""Drift of a webhook configuration in the cluster from the rules, with its consequences.

Conditions whose texts differ may be equivalent: one may come from an earlier version or a manual edit. So sample pods
are generated from the rules and from the names in both conditions, and both are evaluated on each.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rules_engine.cel import Budget, CelProblems, Environment, EvaluationError, Program, compile_expression, types
from rules_engine.model.json.lenient import Object, items, mapping, objects
from rules_engine.model.json.patch import Json
from rules_engine.model.rules import (
    AnyRule,
    ConditionKind,
    FallbackLadder,
    LabelSelector,
    Operation,
    ResourceInjection,
    RuleId,
)
from rules_engine.model.source import SourceText
from rules_engine.webhooks.configuration import CONDITION_NAME, FORMER_CONDITION_NAME, RESIZE, Calls, condition_of

MAX_SAMPLES = 500
"""Sample pods that are evaluated. Each costs two evaluations of some 50 µs; rules with distinct names come first."""

MAX_NAMED = 5
"""Rules that a message names: one fix is for all of them."""

ENVIRONMENT = Environment({"object": types.DYN, "oldObject": types.DYN, "request": types.DYN})
"""Variables of a webhook's match conditions (apiserver, admission/plugin/webhook/generic), but for `authorizer`."""

_LITERAL = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_RESOURCE = re.compile(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]*")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def drift(calls: Calls, name: str, configuration: Object | None) -> tuple[str, ...]:
    """Return the differences between the rules and a configuration; None: it was not found.

    Only members that follow from the rules are compared: failurePolicy, timeouts and selectors are the operator's.
    """
    webhooks = _webhooks(configuration)
    # The configuration may have webhooks of others as well.
    webhooks = [webhook for webhook in webhooks if webhook.get("name") == calls.endpoint.webhook] or webhooks
    if not calls.operations:
        found = [f"calls {calls.endpoint.path}, which no rule needs"] if webhooks else []
    elif not webhooks:
        lacking = "not found" if configuration is None else "has no webhook"
        skipped = f"{_names(calls.rules)} never evaluated"
        lost = skipped if calls.rules else f"no devices are reserved for {_names(calls.reserving)}"
        found = [f"{lacking}: {calls.endpoint.path} is never called, and {lost}"]
    else:
        found = [f"{webhook.get('name')} {text}" for webhook in webhooks for text in _differences(webhook, calls)]
    return tuple(f"{calls.endpoint.kind} {name}: {text}" for text in found)


def fix_command(name: str, configuration: Object | None) -> str:
    """Return the command that updates a configuration, by the tool that created it."""
    metadata = mapping((configuration or {}).get("metadata"))
    if mapping(metadata.get("labels")).get("app.kubernetes.io/managed-by") == "Helm":
        return (
            "gpu-rules webhook-config --rules FOLDER --output helm-values > rules-values.yaml, "
            "then helm upgrade with that file"
        )
    return f"gpu-rules webhook-config --rules FOLDER --name {name}{_namespace(configuration)} | kubectl apply -f -"


def _webhooks(configuration: Object | None) -> list[Object]:
    return [mapping(webhook) for webhook in items((configuration or {}).get("webhooks"))]


def _namespace(configuration: Object | None) -> str:
    for webhook in _webhooks(configuration):
        service = mapping(mapping(webhook.get("clientConfig")).get("service"))
        if service.get("namespace"):
            return f" --namespace {service['namespace']}"
    return ""


def _differences(webhook: Object, calls: Calls) -> Iterator[str]:
    for resource in ("pods", RESIZE):
        needed = calls.operations if resource in calls.resources else ()
        # A resize is an update; other operations of it do not occur.
        wanted = {operation for operation in needed if resource == "pods" or operation == Operation.UPDATE.value}
        called = _operations(webhook, resource)
        at = "" if resource == "pods" else f" of {resource}"
        for operation in sorted(wanted - called):
            concerned = [
                rule for rule in (*calls.rules, *calls.reserving) if Operation(operation) in rule.match.operations
            ]
            yield f"is not called at {operation}{at}, where {_names(concerned)} must be evaluated"
        for operation in sorted(called - wanted):
            yield f"is called at {operation}{at}, which no rule needs"
    conditions = _conditions(webhook.get("matchConditions"))
    if conditions != _conditions(calls.match_conditions):
        yield from _compared(conditions, calls)
    elif any(condition.get("name") == FORMER_CONDITION_NAME for condition in objects(webhook.get("matchConditions"))):
        yield f"names a match condition {FORMER_CONDITION_NAME}, which is now {CONDITION_NAME}"


_COVERING = {"pods": {"pods", "*", "*/*"}, RESIZE: {RESIZE, "pods/*", "*/resize", "*/*"}}
"""The patterns that match each resource in a webhook's rules (admissionregistration/v1, Rule)."""


def _operations(webhook: Object, resource: str) -> set[str]:
    """Return the operations of a resource at which a webhook is called."""
    named = {
        str(name)
        for rule in objects(webhook.get("rules"))
        if _COVERING[resource].intersection(map(str, items(rule.get("resources"))))
        for name in items(rule.get("operations"))
    }
    operations = {operation.value for operation in Operation} if "*" in named else named
    return operations if resource == "pods" else operations & {Operation.UPDATE.value}


def _conditions(listed: Json) -> list[str]:
    return [str(mapping(condition).get("expression")) for condition in items(listed)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """A sample request with its description and the rule, if any, that it was generated for."""

    text: str
    operation: str
    namespace: str
    pod: Mapping[str, Json]
    rule: AnyRule | None = None
    resize: bool = False

    @property
    def activation(self) -> dict[str, object]:
        kind = {"group": "", "version": "v1", "kind": "Pod"}
        resource = {"group": "", "version": "v1", "resource": "pods"}
        request = {
            "uid": "0",
            "kind": kind,
            "requestKind": kind,
            "resource": resource,
            "requestResource": resource,
            **({"subResource": "resize", "requestSubResource": "resize"} if self.resize else {}),
            "name": "",
            "namespace": self.namespace,
            "operation": self.operation,
            "userInfo": {
                "username": "system:serviceaccount:kube-system:job-controller",
                "groups": ["system:serviceaccounts", "system:authenticated"],
            },
            "dryRun": False,
        }
        old = self.pod if self.operation == Operation.UPDATE.value else None
        return {"object": self.pod, "oldObject": old, "request": request}


class _Conditions:
    """Compiled match conditions. Raises CelProblems."""

    def __init__(self, expressions: Iterable[str]) -> None:
        self._programs: list[Program] = [
            compile_expression(SourceText.inline(text), ENVIRONMENT, result=types.BOOL) for text in expressions
        ]

    def hold(self, sample: _Sample) -> bool:
        """Return True if all hold. One that fails does not: the pod is denied, or no rule is evaluated."""
        activation = sample.activation
        try:
            return all(program.evaluate(activation, Budget()) is True for program in self._programs)
        except EvaluationError:
            return False


def _compared(conditions: Sequence[str], calls: Calls) -> Iterator[str]:
    """Yield the consequences of match conditions that differ from those of the rules."""
    needed = _conditions(calls.match_conditions)
    try:
        present = _Conditions(conditions)
    except CelProblems as error:
        yield f"has other matchConditions than the rules need, which cannot be evaluated: {error.problems[0].message}"
        return
    wanted = _Conditions(needed)
    missed: dict[RuleId, _Sample] = {}
    unneeded: _Sample | None = None
    for sample in islice(_samples(calls, [*conditions, *needed]), MAX_SAMPLES):
        sends, should = present.hold(sample), wanted.hold(sample)
        if sends and not should:
            unneeded = unneeded or sample
        elif should and not sends and len(missed) <= MAX_NAMED:
            missed.update((rule.id, sample) for rule in _concerned(sample, calls, missed))
    if missed:
        example = next(iter(missed.values()))
        yield f"does not send pods that {_listed(missed)} must be evaluated on, such as {example.text}"
    if unneeded is not None:
        yield f"sends pods that no rule applies to, such as {unneeded.text}"
    if not missed and unneeded is None:
        yield "has other matchConditions than these rules make; all sample pods have the same result"


def _concerned(sample: _Sample, calls: Calls, known: Mapping[RuleId, object]) -> Iterator[AnyRule]:
    """Yield the rules that may apply to a request, as many as a message names."""
    for rule in (sample.rule,) if sample.rule else (*calls.rules, *calls.reserving)[:MAX_SAMPLES]:
        if rule.id not in known and sample.operation in {operation.value for operation in rule.match.operations}:
            expression = condition_of(rule)
            if _Conditions([expression] if expression else []).hold(sample):
                yield rule


def _samples(calls: Calls, expressions: Sequence[str]) -> Iterator[_Sample]:
    """Yield sample requests that distinguish conditions: by the names in each rule, then by those in the conditions."""
    for rule in (*calls.rules, *calls.reserving):
        yield from _for_rule(rule)
    literals = {one or other for text in expressions for one, other in _LITERAL.findall(text)}
    resources = [f"{name}x" if name.endswith("/") else name for name in sorted(filter(_RESOURCE.fullmatch, literals))]
    namespaces = sorted(filter(_NAMESPACE.fullmatch, literals))
    for operation in calls.operations:
        for resource in ("", "example.com/another", *resources):
            yield _sample(operation=operation, resource=resource)
        for namespace in namespaces:
            for resource in ("", *resources[:MAX_NAMED]):
                yield _sample(operation=operation, resource=resource, namespace=namespace)


def _for_rule(rule: AnyRule) -> Iterator[_Sample]:
    resources: Iterable[str] = ("",)
    annotations: dict[str, str] = {}
    match rule:
        case FallbackLadder(rungs=rungs):
            resources = [rung.resource for rung in rungs]
        case ResourceInjection(gpu_resource=resource, gpu_type=gpu_type, gpu_type_annotation=annotation):
            resources = [resource]
            if gpu_type is not None:
                annotations[annotation] = gpu_type
        case _:
            pass
    labels = _labels(rule.match.object_selector)
    namespace = _namespace_like(rule.match.namespaces)
    for operation in rule.match.operations:
        for resource in resources:
            sample = _sample(
                operation=operation.value,
                resource=resource,
                namespace=namespace,
                labels=labels,
                annotations=annotations,
                rule=rule,
            )
            yield sample
            if operation is Operation.UPDATE:
                yield replace(sample, text=f"{sample.text} of {RESIZE}", resize=True)
                yield _deleted(sample)


def _deleted(sample: _Sample) -> _Sample:
    """Return the request for a pod that is being deleted, to which no rule applies."""
    metadata = {**mapping(sample.pod["metadata"]), "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return replace(
        sample, text=f"{sample.text} while it is being deleted", pod={**sample.pod, "metadata": metadata}, rule=None
    )


def _labels(selector: LabelSelector) -> dict[str, str]:
    """Return labels that meet a selector, if any can."""
    present = (ConditionKind.IN, ConditionKind.EXISTS)
    return {
        requirement.key: next(iter(requirement.values), "")
        for requirement in selector.requirements
        if requirement.operator in present
    }


def _namespace_like(patterns: Sequence[str]) -> str:
    """Return a namespace that one of the patterns matches."""
    return next((re.sub(r"[*?]", "x", pattern) for pattern in patterns if pattern != "*"), "default")


def _sample(
    *,
    operation: str,
    resource: str = "",
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    rule: AnyRule | None = None,
) -> _Sample:
    container: dict[str, Json] = {"name": "main", "image": "example.com/image"}
    if resource:
        container["resources"] = {"limits": {resource: "1"}, "requests": {resource: "1"}}
    metadata: dict[str, Json] = {"name": "made-up", "namespace": namespace}
    traits = [f"requests {resource}" if resource else "requests no device"]
    for kind, marks in (("label", labels or {}), ("annotation", annotations or {})):
        if marks:
            metadata[f"{kind}s"] = dict(marks)
            traits += [f"has the {kind} {key}={value}" for key, value in marks.items()]
    return _Sample(
        text=f"a pod in namespace {namespace} that {' and '.join(traits)}, at {operation}",
        operation=operation,
        namespace=namespace,
        pod={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}},
        rule=rule,
    )


def _names(rules: Iterable[AnyRule]) -> str:
    return _listed([rule.id for rule in rules])


def _listed(names: Iterable[str]) -> str:
    first = sorted(names)
    rest = len(first) - MAX_NAMED
    return ", ".join(first[:MAX_NAMED]) + (" and more" if rest > 0 else "")
