"""Policies of the API server, evaluated by the engine's CEL as the API server evaluates them.

Source: k8s.io/apiserver/pkg/admission/plugin/policy (mutating/dispatcher.go, mutating/patch/json_patch.go,
validating/validator.go). JSONPatch objects are maps here, and types are checked at run time only.
"""

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rules_engine.language.cel import (
    Budget,
    CelProblems,
    Environment,
    EvaluationError,
    LazyScope,
    NamedProgram,
    compile_expression,
    types,
)
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.decision import Decision
from tests.support.patching import apply_json

ROOTS = ("object", "oldObject", "request", "namespaceObject", "params")
JSON_PATCH = (("JSONPatch{op:", "{'op':"), (", path:", ", 'path':"), (", value:", ", 'value':"))
"""JSONPatch as a map."""


@dataclass
class Admitted:
    """The outcome: the pod, and the messages of denials and warnings."""

    pod: Any
    denied: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)


def admitted(
    documents: Sequence[Any], made: Any, *, offers: Any = None, namespace: str = "ml", labels: Mapping[str, str] = {}
) -> Admitted:
    """Evaluate policies on a pod that is created. `offers`: the spec of the parameter; None: it does not exist."""
    outcome = Admitted(defaulted(made))
    request = {"operation": "CREATE", "namespace": namespace, "name": made["metadata"].get("name", "")}
    where = {"metadata": {"name": namespace, "labels": {**labels, "kubernetes.io/metadata.name": namespace}}}
    rest = {"oldObject": None, "request": request, "namespaceObject": where, "params": {"spec": offers}}
    bindings = {
        (each["kind"].removesuffix("Binding"), each["spec"]["policyName"]): each["spec"]
        for each in documents
        if each["kind"].endswith("Binding")
    }
    for document in documents:
        binding = bindings.get((document["kind"], document["metadata"]["name"]))
        if binding is None or ("paramRef" in binding and offers is None) or not _selects(document, where):
            continue
        policy = _Policy(document["spec"], rest)
        if document["kind"] == "MutatingAdmissionPolicy":
            policy.mutate(outcome)
        else:
            policy.validate(outcome, binding["validationActions"])
        if outcome.denied and document["kind"] == "MutatingAdmissionPolicy":
            return outcome
    return outcome


def _selects(document: Any, namespace: Any) -> bool:
    labels = namespace["metadata"]["labels"]
    tests = {
        "In": lambda line: labels.get(line["key"]) in line["values"],
        "NotIn": lambda line: labels.get(line["key"]) not in line["values"],
        "Exists": lambda line: line["key"] in labels,
        "DoesNotExist": lambda line: line["key"] not in labels,
    }
    lines = document["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    return all(tests[line["operator"]](line) for line in lines)


@lru_cache(10_000)
def _compiled(text: str, names: Sequence[str]) -> Any:
    for old, new in JSON_PATCH:
        text = text.replace(old, new)
    environment = Environment(dict.fromkeys(names, types.DYN))
    try:
        return compile_expression(SourceText.inline(text), environment, generated=False)
    except CelProblems as error:
        raise AssertionError("\n".join([text, *map(str, error.problems)])) from None


class _Policy:
    def __init__(self, spec: Any, values: Mapping[str, Any]) -> None:
        self._spec = spec
        self._values = values
        variables = [each["name"] for each in spec.get("variables", ())]
        for names in (variables, [each["name"] for each in spec["matchConditions"]]):
            assert len(set(names)) == len(names), names
        self._everything = everything = (*ROOTS, *(f"variables.{name}" for name in variables))
        self._variables = {
            f"variables.{each['name']}": NamedProgram(each["name"], _compiled(each["expression"], everything))
            for each in spec.get("variables", ())
        }

    def _evaluate(self, text: str, pod: Any, names: Sequence[str] = ()) -> Any:
        budget = Budget(sys.maxsize)
        scope = LazyScope(self._variables, budget, {**self._values, "object": pod})
        return scope.value(_compiled(text, names or self._everything))

    def _matches(self, outcome: Admitted) -> bool:
        """Evaluate the match conditions: one that is false decides before any error."""
        error: EvaluationError | None = None
        for condition in self._spec["matchConditions"]:
            try:
                if not self._evaluate(condition["expression"], outcome.pod, ROOTS):
                    return False
            except EvaluationError as raised:
                error = raised
        if error is not None:
            self._fail(outcome.denied, error)
        return error is None

    def _fail(self, denied: list[str], error: EvaluationError) -> None:
        if self._spec["failurePolicy"] == "Fail":
            denied.append(f"error: {error}")

    def mutate(self, outcome: Admitted) -> None:
        if not self._matches(outcome):
            return
        for mutation in self._spec["mutations"]:
            try:
                patch = self._evaluate(mutation["jsonPatch"]["expression"], outcome.pod)
            except EvaluationError as error:
                self._fail(outcome.denied, error)
            else:
                outcome.pod = defaulted(apply_json(outcome.pod, patch))

    def validate(self, outcome: Admitted, actions: Sequence[str]) -> None:
        failed: list[str] = []
        if self._matches(Admitted(outcome.pod, denied=failed)):
            for check in self._spec["validations"]:
                try:
                    if not self._evaluate(check["expression"], outcome.pod):
                        failed.append(self._message(check, outcome.pod))
                except EvaluationError as error:
                    self._fail(failed, error)
        for action in actions:
            {"Deny": outcome.denied, "Warn": outcome.warned, "Audit": outcome.recorded}[action].extend(failed)

    def _message(self, check: Any, pod: Any) -> str:
        try:
            text = self._evaluate(check.get("messageExpression", "''"), pod)
        except EvaluationError:
            text = ""
        return text if isinstance(text, str) and text.strip() else str(check["message"])


def defaulted(pod: Any) -> Any:
    """Return a pod as the API server stores it: requests default to limits, and amounts are canonical."""
    made = copy.deepcopy(pod)
    if not made["metadata"].get("annotations", True):
        del made["metadata"]["annotations"]
    for container in _containers(made):
        resources = container.get("resources")
        if resources and resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
        for section in ("limits", "requests"):
            if resources and section in resources:
                resources[section] = {name: str(Quantity.parse(text)) for name, text in resources[section].items()}
                if not resources[section]:
                    del resources[section]
    return made


def _containers(pod: Any) -> Iterator[Any]:
    yield from pod["spec"].get("containers") or ()
    yield from pod["spec"].get("initContainers") or ()


def comparable(pod: Any) -> Any:
    """Return a pod whose amounts are compared by value."""
    made = defaulted(pod)
    levels = [*_containers(made), made["spec"]]
    for owner in levels:
        for section in ("limits", "requests"):
            amounts = (owner.get("resources") or {}).get(section)
            if amounts:
                owner["resources"][section] = {name: Quantity.parse(text).nanos for name, text in amounts.items()}
    return made


def is_left(outcome: Admitted, mutation: Decision) -> bool:
    """Return True if a policy leaves the pod: its ladder counts resources whose offers the policy does not know."""
    counted = any(step.notes and step.resources for step in mutation.trace if step.rule.startswith("FallbackLadder/"))
    return counted or any("requests other extended resources" in text for text in outcome.warned)
