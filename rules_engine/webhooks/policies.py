"""`native`: policies, bindings and their parameter, from rules that the API server evaluates itself."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from hashlib import sha256

from rules_engine.model.json.lenient import Object, as_mapping, object_items
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.native_objects import (
    GROUP,
    OFFERS,
    RULES_ANNOTATION,
    SLOT_LABEL,
    STAMP_ANNOTATION,
    STAMPED_DIGITS,
)
from rules_engine.model.rules.rule import FailurePolicy, Operation
from rules_engine.native.cel_text import cel_list, cel_literal, grouped
from rules_engine.native.mutation import SHARED_VARIABLES, escape_key, patch
from rules_engine.native.narrowing import LARGE_POD, any_of, names_one_of
from rules_engine.native.offers import API_VERSION, DEFINITION, DEFINITION_NAME
from rules_engine.native.policy import NativeCheck, NativeRules, Translation, Variable, variables_of
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

_STAMP_PATH = cel_literal(f"/metadata/annotations/{escape_key(STAMP_ANNOTATION)}")
_MADE_ANNOTATIONS = (
    f"(has(object.metadata.annotations) ? [] : [{patch('add', cel_literal('/metadata/annotations'), '{}')}])"
)

_OTHER_SLOT = "\n|| // The pods of the other slot:\n"
"""Text between the match conditions of two slots."""

_CHANGED = "\n&& // Outside of a change of rules, only pods that a rule changes:\n"
"""Text between the match condition for all pods of the rules and the narrower one."""

_STAMP = f"object.metadata.?annotations[?{cel_literal(STAMP_ANNOTATION)}].orValue('')"


class Phase(Enum):
    """Part of a slot in a change of rules. The text: pods to which its validating policies apply.

    A stamp cannot be forged: the active mutating policy overwrites it. Outside of changes, none is compared. Updates
    are not stamped: the policies of both slots apply to them, so that the result is that of one of them.
    """

    ALONE = ""
    INCOMING = "request.operation != 'CREATE' || {stamp} == {incoming}"
    OUTGOING = "request.operation != 'CREATE' || {stamp} != {incoming}"


MAX_RULES = 4
"""Rules in one policy: the API server limits what all checks of a policy, and its match condition, cost."""


class NativeObjects:
    """The objects of one installation: exported rules, the digest of all rules, and settings.

    In a slot, their names have its name, they stamp pods, and the binding of the mutating policy, whose name has none,
    is the switch between slots.
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
        """Digests of the rules and of all that the policies decide by, but for the namespaces that settings exclude."""
        specs = [as_mapping(each["spec"]) for each in NativeObjects(self._rules, "", self._settings).policies()]
        content = json.dumps([{**spec, "matchConstraints": None} for spec in specs])
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
        for suffix, group in self._validating_groups().items():
            spec, first = self._validating_spec(group), group[0]
            full_name, actions = f"{name}-{suffix}", first.actions
            yield from self._policy("ValidatingAdmissionPolicy", full_name, spec, first.reads_offers, actions)

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

        In a slot, it stamps the pods that it changes, and during a change of rules, all pods to which one of the rules
        may apply.
        """
        translations = self._rules.mutations
        created = [each for each in self._rules.exported if Operation.CREATE in each.operations]
        # A stamp of the pod's author is overwritten; the policy is called again for pods that it has changed.
        stamped = [f"!({_STAMP} in {cel_list(['', self.stamp])})"] if self._slot else []
        selected = any_of([*stamped, self._selection(created if self._slot else translations)])
        changed = any_of([*stamped, LARGE_POD, *(each.changes for each in translations)])
        return {
            "failurePolicy": self._rules.failure_policy.value,
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": self._constraints([Operation.CREATE]),
            "matchConditions": [{"name": CONDITION_NAME, "expression": f"({selected}){_CHANGED}({changed})"}],
            "variables": _named([*SHARED_VARIABLES, *(item for each in translations for item in each.variables)]),
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}} for text in self._mutations()],
        }

    def _mutations(self) -> Iterator[str]:
        """Yield the mutations. The API server encodes and decodes the pod for each.

        Where an error denies the pod, the first one stamps it, too, and at most one injection changes it.
        """
        stamp = [patch("add", _STAMP_PATH, cel_literal(self.stamp))] if self._slot else []
        mutations = [[f"[{text}]" for text in stamp]]
        is_strict = self._rules.failure_policy is FailurePolicy.FAIL
        for index, each in enumerate(self._rules.mutations):
            joins = index == 0 or (each.query is None and self._rules.mutations[index - 1].query is None)
            if not (is_strict and joins):
                mutations.append([])
            mutations[-1].append(grouped(each.mutation))
        for texts in mutations:
            if texts:
                yield " +\n".join([_MADE_ANNOTATIONS, *texts])

    def _warning_spec(self, warnings: Sequence[NativeCheck]) -> dict[str, Json]:
        """Return the policy of the warnings of all rules that change pods."""
        mutations = self._rules.mutations
        condition = f"({self._selection(mutations)}) && ({any_of(each.warns for each in mutations)})"
        return {
            "failurePolicy": "Ignore",
            "matchConstraints": self._constraints([Operation.CREATE]),
            "matchConditions": [{"name": CONDITION_NAME, "expression": condition}],
            "variables": _named([*SHARED_VARIABLES, *(item for each in mutations for item in each.variables)]),
            "validations": _validations(warnings),
        }

    def _selection(self, translations: Iterable[Translation]) -> str:
        """Return the condition for pods that one of the rules may apply to when they are created."""
        selections = [selection_of_rule(each.rule, {Operation.CREATE}) for each in translations]
        return match_condition(selections).expression or "true"

    def _validating_groups(self) -> Mapping[str, Sequence[Translation]]:
        """Return the rules with checks, by the name of their policy: each policy converts every pod once more.

        Ladders have policies of their own, since the cost of a policy is limited, and so have rules with
        failurePolicy Ignore: a pod that makes the checks of one cost too much would skip all.
        """
        groups: dict[str, list[list[Translation]]] = {}
        for each in sorted(self._rules.exported, key=lambda each: each.rule.id):
            if each.checks:
                outcome = [*each.actions, each.rule.failure_policy.value, *["offers"] * each.reads_offers]
                outcome += ["ladder"] * bool(each.query)
                if Operation.UPDATE in each.operations:
                    outcome += [operation.value for operation in Operation if operation in each.operations]
                of_name = groups.setdefault("-".join(outcome).lower(), [[]])
                alone = bool(each.query) or each.rule.failure_policy is FailurePolicy.IGNORE
                if len(of_name[-1]) == (1 if alone else MAX_RULES):
                    of_name.append([])
                of_name[-1].append(each)
        return {
            f"{name}-{number}" if number > 1 else name: group
            for name, of_name in groups.items()
            for number, group in enumerate(of_name, start=1)
        }

    def _validating_spec(self, group: Sequence[Translation]) -> dict[str, Json]:
        operations = group[0].operations
        condition = any_of([LARGE_POD, *(each.denies for each in group)])
        deletion = [DELETION_CONDITION] if Operation.UPDATE in operations else []
        resources = {name for each in self._rules.mutations for name in each.rule.interests.resources or ()}
        # A policy may apply to more pods than the mutating policy, for which conditions of rules must not fail.
        named = Variable("names_a_resource", names_one_of(sorted(resources)))
        shared = (*SHARED_VARIABLES, named) if any(each.mutation for each in group) else ()
        checks = [
            replace(check, expression=f"!variables.{named.name} || ({check.expression})") if each.mutation else check
            for each in group
            for check in each.checks
        ]
        return {
            "failurePolicy": group[0].rule.failure_policy.value,
            "matchConstraints": self._constraints(operations),
            "matchConditions": [*deletion, {"name": CONDITION_NAME, "expression": condition}],
            "variables": _named([*shared, *variables_of(group)]),
            "validations": _validations(checks),
        }

    def _constraints(self, operations: Collection[Operation]) -> dict[str, Json]:
        expressions: list[Json] = [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": [*sorted({SYSTEM_NAMESPACE, self._settings.namespace})],
            },
            {"key": BREAK_GLASS_LABEL, "operator": "NotIn", "values": [BREAK_GLASS_VALUE]},
        ]
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


def without_phase(stored: Object, document: Object) -> Object:
    """Return a stored policy as outside of changes; `document`: what it should be."""
    spec = as_mapping(stored.get("spec"))
    conditions = [each for each in object_items(spec.get("matchConditions")) if each.get("name") != PHASE_CONDITION]
    if document["kind"] == "MutatingAdmissionPolicy":
        wide = _own_condition(document) + _OTHER_SLOT
        if any(str(each.get("expression")).startswith(wide) for each in conditions):
            return {**stored, "spec": {**spec, "matchConditions": as_mapping(document["spec"])["matchConditions"]}}
    return {**stored, "spec": {**spec, "matchConditions": [{**each} for each in conditions]}}


def _own_condition(policy: Object | None) -> str:
    """Return the condition of a mutating policy for all pods that its rules may apply to."""
    if policy is None:
        return "false"
    conditions = object_items(as_mapping(policy["spec"]).get("matchConditions"))
    expression = next((str(each["expression"]) for each in conditions if each["name"] == CONDITION_NAME), "true")
    return expression.split(_CHANGED)[0].split(_OTHER_SLOT)[0]


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


def _validations(checks: Iterable[NativeCheck]) -> list[Json]:
    return [
        {
            "expression": check.expression,
            "message": check.message,
            **({"messageExpression": check.message_expression} if check.message_expression else {}),
            "reason": check.reason,
        }
        for check in checks
    ]
