"""`native`: policies, bindings and their parameter, from rules that the API server evaluates itself."""

import json
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cached_property
from hashlib import sha256

from rules_engine.model.json.lenient import Object, as_mapping, object_items
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.names import MAX_SUBDOMAIN
from rules_engine.model.kubernetes.native_objects import (
    GROUP,
    OFFERS,
    RULES_ANNOTATION,
    SLOT_LABEL,
    STAMP_ANNOTATION,
    STAMPED_DIGITS,
)
from rules_engine.model.rules.rule import ConditionKind, LabelSelector, Operation
from rules_engine.native.cel_text import cel_literal
from rules_engine.native.mutation import SHARED_VARIABLES, escape_key, patch
from rules_engine.native.offers import API_VERSION, DEFINITION, DEFINITION_NAME
from rules_engine.native.policy import NativeCheck, NativeRules, Translation, Variable
from rules_engine.webhooks.configuration import (
    BREAK_GLASS_LABEL,
    BREAK_GLASS_VALUE,
    CONDITION_NAME,
    DELETION_CONDITION,
    RESIZE,
    SYSTEM_NAMESPACE,
)
from rules_engine.webhooks.match_condition import match_condition, selection_of_rule
from rules_engine.webhooks.settings import Settings

PHASE_CONDITION = f"{GROUP}/phase"
"""Match condition of validating policies during a change of rules."""

_OTHER_SLOT = "\n|| // The pods of the other slot:\n"
"""Text between the match conditions of two slots."""

_STAMP = f"object.metadata.?annotations[?{cel_literal(STAMP_ANNOTATION)}].orValue('')"


class Phase(Enum):
    """Part of a slot in a change of rules. The text: pods to which its validating policies apply.

    A stamp cannot be forged: the active mutating policy overwrites it. Outside of changes, none is compared. Updates
    are not stamped: the policies of both slots apply to them, so that the result is that of one of them.
    """

    ALONE = ""
    INCOMING = "request.operation != 'CREATE' || {stamp} == {incoming}"
    OUTGOING = "request.operation != 'CREATE' || {stamp} != {incoming}"


_COMMON = frozenset({"matchConstraints", "matchConditions", "variables"})
"""Members of the spec of both kinds of policies."""


class NativeObjects:
    """The objects of one installation: exported rules, the digest of all rules, and settings.

    In a slot, their names have its name, they stamp pods, and the binding of the mutating policy, whose name has none,
    is the switch between slots. Raises ValueError for names that are too long.
    """

    def __init__(self, rules: NativeRules, digest: str, settings: Settings, slot: str = "") -> None:
        self._rules = rules
        self._digest = digest
        self._settings = settings
        self._slot = slot
        self._name = f"{settings.name}-{slot}" if slot else settings.name

    @property
    def reads_offers(self) -> bool:
        return any(each.reads_offers for each in self._rules.exported)

    @cached_property
    def stamp(self) -> str:
        """Digests of the rules and of all that the policies decide by, but for the files of rules."""
        content = json.dumps([*NativeObjects(self._rules, self._digest, self._settings).policies()])
        content = re.sub(r'"// (?:[^"\\]|\\[^n])*\\n', '"', content)
        return f"{self._digest[:STAMPED_DIGITS]}.{sha256(content.encode()).hexdigest()[:8]}"

    def check_names(self) -> list[str]:
        """Return the names of the validating policies without that of the installation."""
        validating = [each for each in self.policies() if each["kind"] == "ValidatingAdmissionPolicy"]
        names = [str(as_mapping(each["metadata"])["name"]) for each in validating]
        return [name.removeprefix(f"{self._name}-") for name in names]

    def policies(self) -> Iterator[dict[str, Json]]:
        """Yield the objects in the order in which they can be created; none without exported rules."""
        if self.reads_offers:
            yield definition(self._digest)
        mutations, name = self._rules.mutations, self._name
        reads_offers = any(each.reads_offers for each in mutations)
        if mutations or (self._slot and self._rules.exported):
            yield from self._policy("MutatingAdmissionPolicy", name, self._mutating_spec(), reads_offers)
        warnings = [check for each in mutations for check in each.warnings]
        if warnings:
            spec = self._warning_spec(warnings)
            yield from self._policy("ValidatingAdmissionPolicy", f"{name}-warnings", spec, reads_offers, ["Warn"])
        for each in sorted(self._rules.exported, key=lambda each: each.rule.id):
            if each.checks:
                full_name = f"{name}-{each.rule.kind.lower()}-{each.rule.name}"
                if len(full_name) > MAX_SUBDOMAIN:
                    text = f"{each.rule.id}: the name of its policy, {full_name}, has over {MAX_SUBDOMAIN} characters"
                    raise ValueError(text)
                spec, actions = self._validating_spec(each), each.actions
                yield from self._policy("ValidatingAdmissionPolicy", full_name, spec, each.reads_offers, actions)

    def offers(self, spec: dict[str, Json]) -> dict[str, Json]:
        """Return the parameter of the policies."""
        return self._object(API_VERSION, OFFERS, self._name, spec)

    def _object(self, api_version: str, kind: str, name: str, spec: dict[str, Json]) -> dict[str, Json]:
        return _object(api_version, kind, name, spec, self._digest, (self._name, self.stamp) if self._slot else None)

    def _policy(
        self, kind: str, name: str, spec: dict[str, Json], reads_offers: bool, actions: Sequence[str] = ()
    ) -> Iterator[dict[str, Json]]:
        """Yield a policy and its binding."""
        api, binding = "admissionregistration.k8s.io/v1", dict[str, Json](policyName=name)
        if reads_offers:
            spec = {"paramKind": {"apiVersion": API_VERSION, "kind": OFFERS}, **spec}
            # With Deny, every pod would be refused as soon as the definition is deleted.
            binding["paramRef"] = {"name": self._name, "parameterNotFoundAction": "Allow"}
        if actions:
            binding["validationActions"] = [*actions]
        yield self._object(api, kind, name, spec)
        bound = name if actions else self._settings.name
        yield self._object(api, f"{kind}Binding", bound, binding)

    def _mutating_spec(self) -> dict[str, Json]:
        """Return the policy of all rules that change pods: the API server evaluates several in no order.

        In a slot, it stamps all pods to which one of the rules may apply.
        """
        translations = self._rules.mutations
        created = [each for each in self._rules.exported if Operation.CREATE in each.operations]
        rules = [each.rule for each in (created if self._slot else translations)]
        condition = match_condition([selection_of_rule(rule, {Operation.CREATE}) for rule in rules])
        conditions: list[Json] = [{"name": CONDITION_NAME, "expression": condition.expression}]
        mutations = [*([self._stamp_mutation()] if self._slot else []), *(each.mutation for each in translations)]
        return {
            "failurePolicy": self._rules.failure_policy.value,
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": self._constraints([Operation.CREATE], LabelSelector()),
            "matchConditions": conditions if condition.expression else [],
            "variables": _named([*SHARED_VARIABLES, *(item for each in translations for item in each.variables)]),
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}} for text in mutations],
        }

    def _stamp_mutation(self) -> str:
        """Return the mutation that stamps pods, one of its own, which cannot fail."""
        made = patch("add", cel_literal("/metadata/annotations"), "{}")
        path = cel_literal(f"/metadata/annotations/{escape_key(STAMP_ANNOTATION)}")
        stamped = patch("add", path, cel_literal(self.stamp))
        return f"(has(object.metadata.annotations) ? [] : [{made}]) + [{stamped}]"

    def _warning_spec(self, warnings: Sequence[NativeCheck]) -> dict[str, Json]:
        """Return the policy of the warnings of all rules that change pods."""
        spec = {name: value for name, value in self._mutating_spec().items() if name in _COMMON}
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


def definition(digest: str) -> dict[str, Json]:
    """Return the definition of GPUOffers."""
    return _object("apiextensions.k8s.io/v1", "CustomResourceDefinition", DEFINITION_NAME, DEFINITION, digest)


def in_phase(document: Object, phase: Phase, incoming: str, others: Object | None) -> dict[str, Json]:
    """Return a policy of a slot with the conditions of a phase; other objects as they are.

    `incoming`: stamp of the new rules. `others`: mutating policy of the other slot. During a change, both mutating
    policies stamp the pods of both rule sets, so that validating policies know which rules a pod was changed by.
    """
    spec = as_mapping(document["spec"])
    own = {str(each["name"]): str(each["expression"]) for each in object_items(spec.get("matchConditions"))}
    if document["kind"] == "MutatingAdmissionPolicy" and phase is not Phase.ALONE:
        own[CONDITION_NAME] = f"{_own_condition(document)}{_OTHER_SLOT}{_own_condition(others)}"
    elif document["kind"] == "ValidatingAdmissionPolicy":
        own.pop(PHASE_CONDITION, "")
        if phase is not Phase.ALONE:
            text = phase.value.format(stamp=_STAMP, incoming=cel_literal(incoming))
            own = {PHASE_CONDITION: text, **own}
    else:
        return {**document}
    conditions: list[Json] = [{"name": name, "expression": expression} for name, expression in own.items()]
    return {**document, "spec": {**spec, "matchConditions": conditions}}


def _own_condition(policy: Object | None) -> str:
    """Return the condition of a mutating policy outside of changes."""
    if policy is None:
        return "false"
    conditions = object_items(as_mapping(policy["spec"]).get("matchConditions"))
    expression = next((str(each["expression"]) for each in conditions if each["name"] == CONDITION_NAME), "true")
    return expression.split(_OTHER_SLOT)[0]


def _object(
    api_version: str,
    kind: str,
    name: str,
    spec: dict[str, Json],
    digest: str,
    slot: tuple[str, str] | None = None,
) -> dict[str, Json]:
    """Return an object; `slot`: its label and its stamp."""
    metadata: dict[str, Json] = {
        "name": name,
        "labels": {"app.kubernetes.io/name": "gpu-rules", **({SLOT_LABEL: slot[0]} if slot else {})},
        "annotations": {RULES_ANNOTATION: digest, **({STAMP_ANNOTATION: slot[1]} if slot else {})},
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


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
