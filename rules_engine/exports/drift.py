"""Drift of a webhook configuration, and of policies, in the cluster from the rules, with its consequences.

The operations, the match conditions with our names and the digest are compared, and what the server's mode and
namespaces require; the operator owns the other members.
"""

from collections.abc import Iterable, Iterator

from rules_engine.exports.configuration import (
    CONDITION_NAME,
    DELETION_NAME,
    DIGEST_ANNOTATION,
    EXCLUSION_NAME,
    NATIVE_ANNOTATION,
    RESIZE,
    Calls,
)
from rules_engine.exports.settings import DEFAULT_SETTINGS, IGNORE, Settings
from rules_engine.model.json.lenient import Object, as_list, as_mapping, object_items
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.native_objects import RULES_ANNOTATION
from rules_engine.model.rules.rule import Operation, Rule

MAX_LISTED_RULES = 5
"""Rules that a message names at most: one fix is for all of them."""

OWN_NAMES = frozenset({CONDITION_NAME, DELETION_NAME, EXCLUSION_NAME})


def find_drift(
    calls: Calls, name: str, configuration: Object | None, settings: Settings = DEFAULT_SETTINGS
) -> tuple[str, ...]:
    """Return the differences between the rules and a configuration; None: it was not found.

    Only members that follow from the rules, or from the mode and the namespaces in `settings`, are compared: other
    failure policies, timeouts and selectors are the operator's.
    """
    webhooks = _webhooks_for(calls, configuration)
    if not calls.operations:
        texts = [f"calls {calls.endpoint.path}, which no rule needs"] if webhooks else []
    elif not webhooks:
        lacking = "not found" if configuration is None else "has no webhook"
        skipped = f"{_list_rules(calls.rules)} never evaluated"
        lost = skipped if calls.rules else f"no devices are reserved for {_list_rules(calls.reserving)}"
        texts = [f"{lacking}: {calls.endpoint.path} is never called, and {lost}"]
    else:
        texts = [
            f"has no webhook {each.webhook}: {_list_rules(each.rules)} only evaluated for pods with GPUs"
            for each in calls.webhooks
            if not _webhooks_for(each, configuration)
        ]
        texts += [
            f"{webhook.get('name')} {text}"
            for each in calls.webhooks
            for webhook in _webhooks_for(each, configuration)
            for text in (*_find_differences(webhook, each), *_setting_differences(webhook, settings))
        ]
        if not texts and _annotations(configuration).get(DIGEST_ANNOTATION) != calls.digest:
            texts = [f"has another {DIGEST_ANNOTATION} than these rules: it was generated from others, or edited"]
    return tuple(f"{calls.endpoint.kind} {name}: {text}" for text in texts)


def is_native(configuration: Object | None) -> bool:
    """Return True for a configuration without the rules that the API server evaluates itself."""
    return _annotations(configuration).get(NATIVE_ANNOTATION) == "true"


def find_object_drift(document: Object, stored: Object | None) -> tuple[str, ...]:
    """Return the differences between a policy or binding of `native` and the stored one; None: it was not found.

    The operator may select other namespaces by the policy.
    """
    name = f"{document['kind']} {as_mapping(document.get('metadata')).get('name')}"
    if stored is None:
        return (f"{name}: not found",)
    present, needed = (_comparable(as_mapping(each.get("spec"))) for each in (stored, document))
    texts = [
        f"{name}: differs from these rules in {member}"
        for member in needed
        if not _includes(present.get(member), needed[member])
    ]
    if not texts and _annotations(stored).get(RULES_ANNOTATION) != _annotations(document).get(RULES_ANNOTATION):
        texts = [f"{name}: differs from these rules in {RULES_ANNOTATION}"]
    return tuple(texts)


def _comparable(spec: Object) -> Object:
    """Return a spec without the namespaces of a policy, and with all other selectors; None: everything is selected."""
    constraints = {**as_mapping(spec.get("matchConstraints"))}
    constraints.pop("namespaceSelector", None)
    constraints |= {name: constraints.get(name) or None for name in ("objectSelector", "excludeResourceRules")}
    return {**spec, "matchConstraints": constraints, "matchResources": spec.get("matchResources") or None}


def _includes(present: Json, needed: Json) -> bool:
    """Return True if a value has all members of another: the API server adds defaults."""
    if isinstance(needed, dict):
        return isinstance(present, dict) and all(_includes(present.get(name), value) for name, value in needed.items())
    if isinstance(needed, list):
        return isinstance(present, list) and len(present) == len(needed) and all(map(_includes, present, needed))
    return present == needed


def fix_command(name: str, configuration: Object | None, settings: Settings = DEFAULT_SETTINGS) -> str:
    """Return the command that updates a configuration, by the tool that created it.

    The command overwrites both configurations: without its options, it would reset addresses and failure policies.
    """
    native, policies = "", ""
    if is_native(configuration):
        native = " --native"
        options = f"--name {name}{_namespace_option(configuration)}"
        policies = f"gpu-rules native --rules FOLDER {options} | kubectl apply -f -, and "
    metadata = as_mapping((configuration or {}).get("metadata"))
    if as_mapping(metadata.get("labels")).get("app.kubernetes.io/managed-by") == "Helm":
        return (
            f"{policies}gpu-rules webhook-config{native} --rules FOLDER --output helm-values > rules-values.yaml, "
            "then helm upgrade with that file, under helm 4 with --force-conflicts"
        )
    narrowed = " --mode Audit" if settings.audit else ""
    narrowed += f" --namespaces {' '.join(settings.namespaces)}" if settings.namespaces else ""
    return (
        f"{policies}gpu-rules webhook-config{native} --rules FOLDER --name {name}{_namespace_option(configuration)}"
        f"{narrowed} | kubectl apply -f -, with the options of its last use, such as --url and --failure-policy"
    )


def _webhooks_for(calls: Calls, configuration: Object | None) -> list[Object]:
    """Return the webhooks of these calls, of which the first may have any name; others may have webhooks as well."""
    webhooks = _webhooks_of(configuration)
    named = [webhook for webhook in webhooks if webhook.get("name") == calls.webhook]
    others = [webhook for webhook in webhooks if webhook.get("name") != calls.endpoint.other_pods_webhook]
    return named or ([] if calls.excluded else others)


def _annotations(document: Object | None) -> Object:
    return as_mapping(as_mapping((document or {}).get("metadata")).get("annotations"))


def _webhooks_of(configuration: Object | None) -> list[Object]:
    return [as_mapping(webhook) for webhook in as_list((configuration or {}).get("webhooks"))]


def _namespace_option(configuration: Object | None) -> str:
    for webhook in _webhooks_of(configuration):
        service = as_mapping(as_mapping(webhook.get("clientConfig")).get("service"))
        if service.get("namespace"):
            return f" --namespace {service['namespace']}"
    return ""


def _find_differences(webhook: Object, calls: Calls) -> Iterator[str]:
    for resource in ("pods", RESIZE):
        needed = calls.operations if resource in calls.resources else ()
        # A resize is an update; other operations of it do not occur.
        wanted = {operation for operation in needed if resource == "pods" or operation == Operation.UPDATE.value}
        called = _operations_called(webhook, resource)
        at = "" if resource == "pods" else f" of {resource}"
        for operation in sorted(wanted - called):
            concerned = [rule for rule in calls.rules if Operation(operation) in rule.match.operations]
            if operation == Operation.CREATE.value:
                concerned += [rule for rule in calls.reserving if rule not in concerned]
            yield f"is not called at {operation}{at}, where {_list_rules(concerned)} must be evaluated"
        for operation in sorted(called - wanted):
            yield f"is called at {operation}{at}, which no rule needs"
    yield from _condition_differences(webhook, calls)


def _setting_differences(webhook: Object, settings: Settings) -> Iterator[str]:
    """Yield the differences from the mode and the namespaces of the server."""
    if settings.audit and webhook.get("failurePolicy") != IGNORE:
        yield "has failurePolicy Fail, but the server is in mode Audit: while it does not answer, pods are denied"
    selected = object_items(as_mapping(webhook.get("namespaceSelector")).get("matchExpressions"))
    names = [{*map(str, as_list(each.get("values")))} for each in selected if each.get("operator") == "In"]
    if settings.namespaces and {*settings.namespaces} not in names:
        yield f"selects other namespaces than those of the server: {', '.join(settings.namespaces)}"


def _condition_differences(webhook: Object, calls: Calls) -> Iterator[str]:
    """Yield the differences of the match conditions with our names."""
    expressions = _expressions_by_name(webhook.get("matchConditions"))
    for name, needed in _expressions_by_name(calls.match_conditions).items():
        if name not in expressions:
            yield f"has no match condition {name}: pods are sent that no rule applies to"
        elif expressions[name] != needed:
            yield f"has another match condition {name} than these rules need: pods of a rule may not be sent"
    for name in OWN_NAMES - _expressions_by_name(calls.match_conditions).keys():
        if name in expressions:
            yield f"has a match condition {name}, which these rules do not need: pods of a rule may not be sent"


def foreign_conditions(configuration: Object | None, calls: Calls) -> tuple[str, ...]:
    """Return the names of the operator's match conditions, which may keep pods away."""
    names = [
        name
        for each in calls.webhooks
        for webhook in _webhooks_for(each, configuration)
        for name in _expressions_by_name(webhook.get("matchConditions"))
    ]
    return tuple(sorted({name for name in names if name not in OWN_NAMES}))


def _expressions_by_name(listed: Json) -> dict[str, str]:
    return {str(condition.get("name")): str(condition.get("expression")) for condition in object_items(listed)}


_COVERING_PATTERNS = {"pods": {"pods", "*", "*/*"}, RESIZE: {RESIZE, "pods/*", "*/resize", "*/*"}}
"""The patterns that match each resource in a webhook's rules (admissionregistration/v1, Rule)."""


def _operations_called(webhook: Object, resource: str) -> set[str]:
    """Return the operations of a resource at which a webhook is called."""
    names = {
        str(name)
        for rule in object_items(webhook.get("rules"))
        if _COVERING_PATTERNS[resource].intersection(map(str, as_list(rule.get("resources"))))
        for name in as_list(rule.get("operations"))
    }
    operations = {operation.value for operation in Operation} if "*" in names else names
    return operations if resource == "pods" else operations & {Operation.UPDATE.value}


def _list_rules(rules: Iterable[Rule]) -> str:
    in_order = sorted(rule.id for rule in rules)
    return ", ".join(in_order[:MAX_LISTED_RULES]) + (" and more" if len(in_order) > MAX_LISTED_RULES else "")
