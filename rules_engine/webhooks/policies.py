"""`native`: policies, bindings and their parameter, from rules that the API server evaluates itself."""

from collections.abc import Iterator, Sequence

from rules_engine.model.json.patch import Json
from rules_engine.model.rules.rule import ConditionKind, LabelSelector, Operation
from rules_engine.native.mutation import SHARED_VARIABLES
from rules_engine.native.offers import API_VERSION, DEFINITION, DEFINITION_NAME, KIND
from rules_engine.native.policy import NativeCheck, NativeRules, Translation, Variable
from rules_engine.webhooks.configuration import (
    BREAK_GLASS_LABEL,
    BREAK_GLASS_VALUE,
    CONDITION_NAME,
    DELETION_CONDITION,
    DOMAIN,
    RESIZE,
    SYSTEM_NAMESPACE,
)
from rules_engine.webhooks.match_condition import match_condition, selection_of_rule
from rules_engine.webhooks.settings import Settings

RULES_ANNOTATION = f"{DOMAIN}/rules-digest"
"""Annotation of every object: the digest of the rules that it was generated from."""

_COMMON = frozenset({"matchConstraints", "matchConditions", "variables"})
"""Members of the spec of both kinds of policies."""


class NativeObjects:
    """The objects of one installation: exported rules, the digest of all rules, and settings."""

    def __init__(self, rules: NativeRules, digest: str, settings: Settings) -> None:
        self._rules = rules
        self._digest = digest
        self._settings = settings

    @property
    def reads_offers(self) -> bool:
        return any(each.reads_offers for each in self._rules.exported)

    def policies(self) -> Iterator[dict[str, Json]]:
        """Yield the objects in the order in which they can be created; none without exported rules."""
        if self.reads_offers:
            yield self._object("apiextensions.k8s.io/v1", "CustomResourceDefinition", DEFINITION_NAME, DEFINITION)
        mutations = self._rules.mutations
        if mutations:
            name, reads_offers = self._settings.name, any(each.reads_offers for each in mutations)
            yield from self._policy("MutatingAdmissionPolicy", name, self._mutating_spec(mutations), reads_offers)
        warnings = [check for each in mutations for check in each.warnings]
        if warnings:
            spec, reads_offers = self._warning_spec(warnings), any(each.reads_offers for each in mutations)
            yield from self._policy("ValidatingAdmissionPolicy", f"{name}-warnings", spec, reads_offers, ["Warn"])
        for each in sorted(self._rules.exported, key=lambda each: each.rule.id):
            if each.checks:
                name = f"{self._settings.name}-{each.rule.kind.lower()}-{each.rule.name}"
                spec, actions = self._validating_spec(each), each.actions
                yield from self._policy("ValidatingAdmissionPolicy", name, spec, each.reads_offers, actions)

    def offers(self, spec: dict[str, Json]) -> dict[str, Json]:
        """Return the parameter of the policies."""
        return self._object(API_VERSION, KIND, self._settings.name, spec)

    def _object(self, api_version: str, kind: str, name: str, spec: dict[str, Json]) -> dict[str, Json]:
        metadata: dict[str, Json] = {
            "name": name,
            "labels": {"app.kubernetes.io/name": "gpu-rules"},
            "annotations": {RULES_ANNOTATION: self._digest},
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    def _policy(
        self, kind: str, name: str, spec: dict[str, Json], reads_offers: bool, actions: Sequence[str] = ()
    ) -> Iterator[dict[str, Json]]:
        """Yield a policy and its binding."""
        api, binding = "admissionregistration.k8s.io/v1", dict[str, Json](policyName=name)
        if reads_offers:
            spec = {"paramKind": {"apiVersion": API_VERSION, "kind": KIND}, **spec}
            # With Deny, every pod would be refused as soon as the definition is deleted.
            binding["paramRef"] = {"name": self._settings.name, "parameterNotFoundAction": "Allow"}
        if actions:
            binding["validationActions"] = [*actions]
        yield self._object(api, kind, name, spec)
        yield self._object(api, f"{kind}Binding", name, binding)

    def _mutating_spec(self, translations: Sequence[Translation]) -> dict[str, Json]:
        """Return the policy of all rules that change pods: the API server evaluates several in no order."""
        condition = match_condition([selection_of_rule(each.rule, {Operation.CREATE}) for each in translations])
        conditions: list[Json] = [{"name": CONDITION_NAME, "expression": condition.expression}]
        return {
            "failurePolicy": self._rules.failure_policy.value,
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": self._constraints([Operation.CREATE], LabelSelector()),
            "matchConditions": conditions if condition.expression else [],
            "variables": _named([*SHARED_VARIABLES, *(item for each in translations for item in each.variables)]),
            "mutations": [
                {"patchType": "JSONPatch", "jsonPatch": {"expression": each.mutation}} for each in translations
            ],
        }

    def _warning_spec(self, warnings: Sequence[NativeCheck]) -> dict[str, Json]:
        """Return the policy of the warnings of all rules that change pods."""
        spec = {name: value for name, value in self._mutating_spec(self._rules.mutations).items() if name in _COMMON}
        return {**spec, "failurePolicy": "Ignore", "validations": _validations(warnings)}

    def _validating_spec(self, each: Translation) -> dict[str, Json]:
        shared = SHARED_VARIABLES if each.mutation else ()
        deletion = [DELETION_CONDITION] if Operation.UPDATE in each.operations else []
        return {
            "failurePolicy": each.rule.failure_policy.value,
            "matchConstraints": self._constraints(each.operations, each.namespaces),
            "matchConditions": [*deletion, *_named(each.conditions)],
            "variables": _named([*shared, *each.check_variables, *each.variables]),
            "validations": _validations(each.checks),
        }

    def _constraints(self, operations: Sequence[Operation], namespaces: LabelSelector) -> dict[str, Json]:
        expressions: list[Json] = [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": [*sorted({SYSTEM_NAMESPACE, self._settings.namespace})],
            },
            {"key": BREAK_GLASS_LABEL, "operator": "NotIn", "values": [BREAK_GLASS_VALUE]},
        ]
        for each in namespaces.requirements:
            values = each.operator in (ConditionKind.IN, ConditionKind.NOT_IN)
            expressions.append(
                {"key": each.key, "operator": each.operator.value, **({"values": [*each.values]} if values else {})}
            )
        resource_rules: list[Json] = [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": [operation.value],
                "resources": ["pods", RESIZE] if operation is Operation.UPDATE else ["pods"],
                "scope": "Namespaced",
            }
            for operation in Operation
            if operation in operations
        ]
        return {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": expressions},
            "resourceRules": resource_rules,
        }


def _named(variables: Sequence[Variable]) -> list[Json]:
    return [{"name": each.name, "expression": each.expression} for each in variables]


def _validations(checks: Sequence[NativeCheck]) -> list[Json]:
    return [
        {
            "expression": check.expression,
            "message": check.message,
            **({"messageExpression": check.message_expression} if check.message_expression else {}),
            "reason": check.reason,
        }
        for check in checks
    ]
