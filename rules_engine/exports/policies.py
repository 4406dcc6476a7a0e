"""`native`: policies, bindings and their parameter, from rules that the API server evaluates itself."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rules_engine.exports.configuration import CONDITION_NAME, DELETION_CONDITION, RESIZE, namespace_selector, pod_rule
from rules_engine.exports.match_condition import match_condition, selection_of_rule
from rules_engine.exports.offers import API_VERSION, DEFINITION, DEFINITION_NAME
from rules_engine.exports.settings import Settings
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.native_objects import OFFERS, RULES_ANNOTATION
from rules_engine.model.rules.rule import FailurePolicy, Operation
from rules_engine.rules.native.cel_text import LARGE_POD, any_of, cel_literal, grouped, names_one_of
from rules_engine.rules.native.mutation import SHARED_VARIABLES, patch
from rules_engine.rules.native.policy import NativeCheck, NativeRules, Translation, Variable, variables_of

_MADE_ANNOTATIONS = (
    f"(has(object.metadata.annotations) ? [] : [{patch('add', cel_literal('/metadata/annotations'), '{}')}])"
)

MAX_RULES = 4
"""Rules in one policy: the API server limits what all checks of a policy, and its match condition, cost."""


class NativeObjects:
    """The objects of one installation: exported rules, the digest of all rules, and settings."""

    def __init__(self, rules: NativeRules, digest: str, settings: Settings) -> None:
        self._rules = rules
        self._digest = digest
        self._settings = settings
        self._name = settings.name

    @property
    def reads_offers(self) -> bool:
        return any(each.reads_offers for each in self._rules.exported)

    def policies(self) -> Iterator[dict[str, Json]]:
        """Yield the objects in the order in which they can be created; none without exported rules."""
        if self.reads_offers:
            crd = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
            yield _object(*crd, DEFINITION_NAME, DEFINITION, self._digest)
        mutations, name = self._rules.mutations, self._name
        reads_offers = any(each.reads_offers for each in mutations)
        if mutations:
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
        return _object(API_VERSION, OFFERS, self._name, spec, self._digest)

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
        yield _object(api, kind, name, spec, self._digest)
        yield _object(api, f"{kind}Binding", name, binding, self._digest)

    def _mutating_spec(self) -> dict[str, Json]:
        """Return the policy of all rules that change pods: the API server evaluates several in no order."""
        translations = self._rules.mutations
        changed = any_of([LARGE_POD, *(each.changes for each in translations)])
        condition = f"({self._selection(translations)}) &&\n({changed})"
        return {
            "failurePolicy": self._rules.failure_policy.value,
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": self._constraints([Operation.CREATE]),
            "matchConditions": [{"name": CONDITION_NAME, "expression": condition}],
            "variables": _named([*SHARED_VARIABLES, *(item for each in translations for item in each.variables)]),
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}} for text in self._mutations()],
        }

    def _mutations(self) -> Iterator[str]:
        """Yield the mutations. The API server encodes and decodes the pod for each.

        Where an error denies the pod, adjacent injections share one.
        """
        mutations: list[list[str]] = []
        is_strict = self._rules.failure_policy is FailurePolicy.FAIL
        for index, each in enumerate(self._rules.mutations):
            joins = index > 0 and each.query is None and self._rules.mutations[index - 1].query is None
            if not (is_strict and joins):
                mutations.append([])
            mutations[-1].append(grouped(each.mutation))
        for texts in mutations:
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
        names_resource = Variable("names_a_resource", names_one_of(sorted(resources)))
        shared = (*SHARED_VARIABLES, names_resource) if any(each.mutation for each in group) else ()
        checks = [
            replace(check, expression=f"!variables.{names_resource.name} || ({check.expression})")
            if each.mutation
            else check
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
        resource_rules: list[Json] = [
            pod_rule([operation.value], ["pods", RESIZE] if operation is Operation.UPDATE else ["pods"])
            for operation in Operation
            if operation in operations
        ]
        return {
            "matchPolicy": "Equivalent",
            "namespaceSelector": namespace_selector(self._settings),
            "resourceRules": resource_rules,
        }


def _object(api_version: str, kind: str, name: str, spec: dict[str, Json], digest: str) -> dict[str, Json]:
    metadata: dict[str, Json] = {
        "name": name,
        "labels": {"app.kubernetes.io/name": "gpu-rules"},
        "annotations": {RULES_ANNOTATION: digest},
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
