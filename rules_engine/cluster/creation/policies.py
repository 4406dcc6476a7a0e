"""ValidatingAdmissionPolicies, evaluated by the engine's CEL.

Sources: k8s.io/apiserver 1.36, pkg/admission/plugin: policy/validating (dispatcher.go, validator.go), policy/matching,
policy/generic/policy_dispatcher.go (CollectParams), webhook/predicates/rules, webhook/matchconditions. Of several
denials, which the API server reports in no order, the first by name counts. An error of an expression has the engine's
own words. Left out: auditAnnotations, whose errors deny a pod as well; limits of cost, beyond which the API server
denies; and policies that gpu-rules exported, in whose place the rules of the input are evaluated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.cluster.scheduling.requirements import read_selector
from rules_engine.language.cel import (
    Budget,
    CelProblems,
    CostExceeded,
    Environment,
    EvaluationError,
    LazyScope,
    NamedProgram,
    Program,
    Type,
    compile_expression,
    types,
)
from rules_engine.language.cel.check.environment import VARIABLES
from rules_engine.language.cel.reads import ReadPath, Reads
from rules_engine.language.cel.scope import MAX_LEVELS, levels_of_variables, with_variables
from rules_engine.language.cel.syntax.tree import evaluation_depth
from rules_engine.model.json.lenient import Object, as_list, as_mapping, as_string_map, object_items, text_member
from rules_engine.model.json.patch import EMPTY, Json
from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, Kept, keeps_path
from rules_engine.model.kubernetes.native_objects import RULES_ANNOTATION, annotation_of
from rules_engine.model.kubernetes.pod_defaults import with_generated_name
from rules_engine.model.kubernetes.removed_values import removed_values, without_mark
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.rule import LabelSelector

VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"

POLICY_COST = 20_000_000
"""Cost units of the policies of one cluster for all pods, at most some 20 seconds: 1,000 for each of 20,000 pods."""

CHARACTER_COST = 5
"""Units for each character of an expression that is compiled."""

MAX_MESSAGE_BYTES = 5 * 1024
"""Longest message of a messageExpression (apis/cel/config.go, MaxEvaluatedMessageExpressionSizeBytes)."""

_VIEW = "admission policies"
_NOT_EVALUATED = "which is not evaluated"

_ENVIRONMENT = Environment(
    {
        "object": types.DYN,
        "oldObject": types.DYN,
        "request": types.ADMISSION_REQUEST,
        "request.userInfo": types.DYN,  # each with a name of its own, since its value is not known
        "request.options": types.DYN,
        "namespaceObject": types.NAMESPACE,
    }
)

_ROOTS = {"object": ReadPath("object", types.POD)}


class _UnknownError(Exception):
    """A result depends on something that is not known. The message is what follows the name of a policy."""


def validate(creation: PodCreation) -> None:
    """Refuse a pod that a policy denies. Note the policies that could deny or change it."""
    views = creation.objects.views
    if _VIEW not in views:
        views[_VIEW] = _read_policies(creation.objects)
    policies = cast("Sequence[_Policy]", views[_VIEW])
    if not policies:
        return
    pod = _Pod.of(creation)
    for policy in policies:
        for binding in policy.bindings:
            try:
                denial, doubts = policy.decide(binding, pod)
            except CostExceeded:
                text = f"{_NOT_EVALUATED}, nor those after it: policies cost more than {POLICY_COST} units"
                creation.unknown.append(f"{policy.kind} {policy.name}, {text}")
                return
            if denial and not doubts:
                text = f"{policy.kind} '{policy.name}' with binding '{binding.name}' denied request"
                raise RefusedError(f"{text}: {denial}")
            creation.unknown += [f"{policy.kind} {policy.name}, {doubt}" for doubt in dict.fromkeys(doubts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pod:
    """A pod that is created, as policies see it.

    `values`: of names in expressions. `unknown`: by name, what is said of a policy that reads it. `removed`: paths of
    values that were not kept.
    """

    name: str
    labels: Mapping[str, str]
    namespace_labels: Mapping[str, str]
    values: Mapping[str, object]
    unknown: Mapping[str, str]
    removed: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, creation: PodCreation) -> "_Pod":
        pod = as_mapping(with_generated_name(dict(creation.pod)))
        metadata: dict[str, Json] = {**as_mapping(pod.get("metadata")), "namespace": creation.namespace}
        type_members: dict[str, Json] = {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"}}
        visible = {**type_members, **without_mark({**pod, "metadata": metadata})}
        unknown = {name: f"which reads {name}" for name in ("request.userInfo", "request.options")}
        request = pod_request(visible, namespace=creation.namespace).raw
        values = {"object": visible, "oldObject": None, "request": request}
        labels = {**creation.namespace_labels, NAMESPACE_NAME_LABEL: creation.namespace}
        namespace: Object = creation.objects.find("Namespace", creation.namespace) or {}
        if not namespace and creation.objects.unread("Namespace"):
            unknown["namespaceObject"] = f"which reads namespace {creation.namespace}, which was not read"
        else:
            members = {**as_mapping(namespace.get("metadata")), "name": creation.namespace, "labels": labels}
            values["namespaceObject"] = {**namespace, "metadata": members}
        return cls(
            name=text_member(metadata, "name"),
            labels=as_string_map(metadata.get("labels")),
            namespace_labels=labels,
            values=values,
            unknown=unknown,
            removed=removed_values(pod),
        )


_Names = Sequence[Sequence[str]]
"""The resourceNames of each rule; none of a rule for all pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """The pods that a policy or a binding matches (MatchResources). `rules`: those for pods."""

    rules: _Names
    excluded: _Names
    objects: LabelSelector
    namespaces: LabelSelector

    @classmethod
    def read(cls, raw: Object) -> "_Match":
        return cls(
            rules=_pod_rules(raw.get("resourceRules")) if raw.get("resourceRules") else [()],
            excluded=_pod_rules(raw.get("excludeResourceRules")),
            objects=read_selector(raw.get("objectSelector")) or LabelSelector(),
            namespaces=read_selector(raw.get("namespaceSelector")) or LabelSelector(),
        )

    def matches(self, pod: _Pod, budget: Budget) -> bool:
        """Return True if a pod matches. Raises _UnknownError."""
        selectors = (self.objects, self.namespaces)
        requirements = [requirement for selector in selectors for requirement in selector.requirements]
        budget.spend(1 + sum(1 + len(requirement.values) for requirement in requirements))
        if _names_pod(self.excluded, pod.name) or not _names_pod(self.rules, pod.name):
            return False
        if not self.objects.matches(pod.labels):
            return False
        others = [each for each in self.namespaces.requirements if each.key != NAMESPACE_NAME_LABEL]
        if others and "namespaceObject" in pod.unknown:
            raise _UnknownError(pod.unknown["namespaceObject"])
        return self.namespaces.matches(pod.namespace_labels)


def _pod_rules(raw: Json) -> _Names:
    """Return the resource names of rules for the creation of pods."""
    wanted = (
        ("operations", ("*", "CREATE")),
        ("apiGroups", ("*", "")),
        ("apiVersions", ("*", "v1")),
        ("resources", ("*", "pods", "*/*", "pods/*")),
    )
    return [
        [str(name) for name in as_list(rule.get("resourceNames"))]
        for rule in object_items(raw)
        if rule.get("scope") != "Cluster"
        and all(any(value in as_list(rule.get(member)) for value in values) for member, values in wanted)
    ]


def _names_pod(rules: _Names, name: str) -> bool:
    return any(not names or name in names for names in rules)


@dataclass(frozen=True, slots=True)
class _Binding:
    """A binding of a policy. `parameters`: the action if none is found; "" without parameters."""

    name: str
    match: _Match
    parameters: str

    @classmethod
    def read(cls, item: ApiObject) -> "_Binding":
        reference = as_mapping(item.spec.get("paramRef"))
        parameters = text_member(reference, "parameterNotFoundAction") or "Deny" if reference else ""
        return cls(item.name, _Match.read(as_mapping(item.spec.get("matchResources"))), parameters)


@dataclass(frozen=True, slots=True)
class _Expression:
    """An expression with the members of the pod that it reads. `problem`: why it is not compiled."""

    text: str
    program: Program | None = None
    reads: Kept = None
    levels: int = 0
    problem: str = ""


_Decision = tuple[str, Sequence[str]]
"""The message of a denial, "" without one; and what could change the decision, as is said of the policy."""

_PASSES: _Decision = ("", ())


class _Scope(LazyScope):
    """The values of names in the expressions of a policy for one pod."""

    __slots__ = ("_removed", "_unknown")

    def __init__(self, policy: "_Policy", pod: _Pod, values: Mapping[str, object]) -> None:
        super().__init__(policy.variables, policy.budget, values)
        self._removed = pod.removed
        self._unknown = {**pod.unknown, **policy.unknown}

    def evaluate(self, expression: _Expression, unknown: list[str]) -> tuple[object, str]:
        """Return the value of an expression, and the text of its error. None: it is not known, as `unknown` says.

        Raises CostExceeded.
        """
        removed = [name for name, path in self._removed.items() if keeps_path(expression.reads, *path)]
        if expression.program is None or removed:
            unknown.append(expression.problem or f"which reads object.{removed[0]}, which is never kept")
            return None, ""
        try:
            return self.value(expression.program), ""
        except _UnknownError as error:
            unknown.append(str(error))
            return None, ""
        except CostExceeded:
            raise
        except EvaluationError as error:
            return None, f"expression '{expression.text}' resulted in error: {error.message}"

    def _compute(self, name: str) -> object:
        if self._unknown.get(name):
            raise _UnknownError(self._unknown[name])
        try:
            return super()._compute(name)
        except _UnknownError as error:
            self._unknown[name] = str(error)  # else each variable that reads it would compute it twice
            raise


@dataclass(frozen=True, slots=True)
class _Validation:
    """A validation. `written`: its message where no expression gives one."""

    expression: _Expression
    written: str
    message_expression: _Expression

    def message(self, scope: _Scope) -> str:
        """Return the message of a denial. Raises CostExceeded."""
        text, _ = scope.evaluate(self.message_expression, [])
        message = text.strip() if isinstance(text, str) else ""
        if "\n" in message or len(message.encode()) > MAX_MESSAGE_BYTES:
            message = ""
        return message or self.written.strip() or f"failed expression: {self.expression.text.strip()}"


class _Policy:
    """A policy with the bindings that can make it deny or change pods. Its expressions are compiled on first use."""

    def __init__(self, item: ApiObject, bindings: Sequence[_Binding], budget: Budget) -> None:
        self.kind, self.name = text_member(item, "kind"), item.name
        self.bindings = bindings
        self.budget = budget
        self.match = _Match.read(as_mapping(item.spec.get("matchConstraints")))
        self._spec = item.spec
        self._ignores = item.spec.get("failurePolicy") == "Ignore"
        self._levels: dict[str, int] = {}
        self.variables: dict[str, NamedProgram] = {}
        self.unknown: dict[str, str] = {"params": "whose parameters were not read"}
        """By name, what is said of the policy if it reads a value that is not known."""

    def decide(self, binding: _Binding, pod: _Pod) -> _Decision:
        """Decide on a pod. Raises CostExceeded."""
        doubts = []
        for match in (self.match, binding.match):
            try:
                if not match.matches(pod, self.budget):
                    return _PASSES
            except _UnknownError as error:
                doubts.append(str(error))
        conditions, validations = self._compiled
        values = dict(pod.values)
        if not self._spec.get("paramKind") or not binding.parameters:
            values["params"] = None
        elif binding.parameters == "Deny":
            return "", [self.unknown["params"]]
        else:  # without parameters there is no denial
            doubts.append(self.unknown["params"])
        errors = []
        scope = _Scope(self, pod, {**values, "namespaceObject": None})
        for condition in conditions:
            value, failure = scope.evaluate(condition, doubts)
            if value is False:
                return _PASSES
            errors += [failure] if failure else []
        if errors and self.kind == VALIDATING:
            message = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            return _PASSES if self._ignores else (message, doubts)
        scope, uncertain = _Scope(self, pod, values), list[str]()
        for validation in validations:
            value, failure = scope.evaluate(validation.expression, uncertain)
            if value is False or (failure and not self._ignores):
                return failure or validation.message(scope), doubts
        return "", uncertain

    @cached_property
    def _compiled(self) -> tuple[Sequence[_Expression], Sequence[_Validation]]:
        """The match conditions and the validations."""
        spec, declared = self._spec, dict[str, Type]()
        environment = _ENVIRONMENT.with_variables(params=types.DYN) if spec.get("paramKind") else _ENVIRONMENT
        conditions = [
            self._compile(item, "expression", environment, types.BOOL)
            for item in object_items(spec.get("matchConditions"))
        ]
        if self.kind == MUTATING:
            unknown = _Expression("", problem=_NOT_EVALUATED)
            return conditions, [_Validation(unknown, "", unknown)]
        for item in object_items(spec.get("variables")):
            name = text_member(item, "name")
            path = f"{VARIABLES}.{name}"
            expression = self._compile(item, "expression", with_variables(environment, declared), types.DYN)
            self.unknown[path], declared[name] = expression.problem, types.DYN
            if expression.program:
                self.variables[path] = NamedProgram(name, expression.program)
                self._levels[path], declared[name] = expression.levels, expression.program.result
        environment = with_variables(environment, declared)
        return conditions, [
            _Validation(
                self._compile(item, "expression", environment, types.BOOL),
                text_member(item, "message"),
                self._compile(item, "messageExpression", environment, types.STRING),
            )
            for item in object_items(spec.get("validations"))
        ]

    def _compile(self, item: Object, member: str, environment: Environment, result: Type) -> _Expression:
        """Compile an expression. Raises CostExceeded."""
        text = text_member(item, member)
        self.budget.spend(CHARACTER_COST * len(text) + len(self.variables))
        try:
            program = compile_expression(SourceText.inline(text), environment, result=result)
        except CelProblems as error:
            return _Expression(text, problem=f"{_NOT_EVALUATED}: {error.problems[0].message}")
        checked = program.checked
        levels = levels_of_variables(program, self._levels) + evaluation_depth(checked.expression, checked.references)
        if levels > MAX_LEVELS:
            return _Expression(text, problem=f"{_NOT_EVALUATED}: an expression has more than {MAX_LEVELS} levels")
        reads = Reads(_ROOTS, {path: each.program.checked for path, each in self.variables.items()}, EMPTY)
        reads.add(checked)
        return _Expression(text, program, reads.kept.get("object", NO_FIELDS), levels)


def _read_policies(objects: ClusterObjects) -> Sequence[_Policy]:
    """Return the policies that could deny or change pods, by name."""
    budget, found = Budget(POLICY_COST, "the admission policies of one cluster"), list[_Policy]()
    for kind in (MUTATING, VALIDATING):
        bindings: dict[str, list[_Binding]] = {}
        for item in sorted(objects.of(f"{kind}Binding"), key=lambda item: item.name):
            if kind == MUTATING or "Deny" in as_list(item.spec.get("validationActions")):
                bindings.setdefault(text_member(item.spec, "policyName"), []).append(_Binding.read(item))
        for item in sorted(objects.of(kind), key=lambda item: item.name):
            if item.name in bindings and not annotation_of(item, RULES_ANNOTATION):
                found.append(_Policy(item, bindings[item.name], budget))
    return [policy for policy in found if policy.match.rules]
