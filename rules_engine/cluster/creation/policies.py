"""ValidatingAdmissionPolicies, evaluated by the engine's CEL.

Sources: k8s.io/apiserver 1.36, pkg/admission/plugin: policy/validating (dispatcher.go, validator.go), policy/matching,
policy/generic/policy_dispatcher.go (CollectParams), webhook/predicates/rules, webhook/matchconditions. Of several
denials, which the API server reports in no order, the first by name counts. An error of an expression has the engine's
own words. Left out: auditAnnotations, whose errors deny a pod as well; limits of cost, beyond which the API server
denies; and policies that gpu-rules exported, in whose place the rules of the input are evaluated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.cluster.scheduling.requirements import read_selector
from rules_engine.language.cel import (
    Budget,
    CelProblems,
    CostExceeded,
    Environment,
    EvaluationError,
    LazyScope,
    Program,
    Type,
    VariableCompiler,
    types,
)
from rules_engine.language.cel.reads import ReadPath, Reads
from rules_engine.model.json.lenient import Object, as_list, as_mapping, as_string_map, object_items, text_member
from rules_engine.model.json.patch import EMPTY, Json
from rules_engine.model.kubernetes.api_defaults import with_generated_name
from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, once
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, keeps_path
from rules_engine.model.kubernetes.native_objects import RULES_ANNOTATION, annotation_of
from rules_engine.model.kubernetes.removed_values import removed_values, without_mark
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.rule import LabelSelector

VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"

POLICY_COST = 20_000_000
"""Cost units of the policies of one cluster for all pods, at most some 20 seconds: 1,000 for each of 20,000 pods."""

_NOT_EVALUATED = "which is not evaluated"

_ENVIRONMENT = Environment(
    {
        "object": types.DYN,
        "oldObject": types.DYN,
        "request": types.ADMISSION_REQUEST,
        "request.userInfo": types.DYN,  # each with a name of its own, since its value is not known
        "request.options": types.DYN,
        "namespaceObject": types.NAMESPACE,
        "params": types.DYN,
    }
)
_ROOTS = {"object": ReadPath("object", types.POD)}


class _UnknownError(Exception):
    """A result depends on something that is not known. The message is what follows the name of a policy."""


def validate(creation: PodCreation) -> None:
    """Refuse a pod that a policy denies. Note the policies that could deny or change it."""
    policies = _read_policies(creation.objects)
    if not policies:
        return
    pod = _Pod.of(creation)
    for policy, binding in [(each, binding) for each in policies for binding in each.bindings]:
        name = f"{policy.kind} {policy.name}"
        try:
            denial = policy.find_denial(binding, pod)
        except CostExceeded:
            text = f"{_NOT_EVALUATED}, nor those after it: policies cost more than {POLICY_COST} units"
            creation.unknown.append(f"{name}, {text}")
            return
        except _UnknownError as error:
            creation.unknown.append(f"{name}, {error}")
            continue
        if denial:
            by = f"{policy.kind} '{policy.name}' with binding '{binding.name}'"
            raise RefusedError(f"{by} denied request: {denial}")


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
        values = {"object": visible, "oldObject": None, "request": request, "params": None}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """The pods that a policy or a binding matches (MatchResources). `rules`: those for pods."""

    rules: Sequence[Object]
    excluded: Sequence[Object]
    objects: LabelSelector
    namespaces: LabelSelector

    @classmethod
    def read(cls, raw: Object) -> "_Match":
        return cls(
            rules=_pod_rules(raw.get("resourceRules")) if raw.get("resourceRules") else [{}],
            excluded=_pod_rules(raw.get("excludeResourceRules")),
            objects=read_selector(raw.get("objectSelector")) or LabelSelector(),
            namespaces=read_selector(raw.get("namespaceSelector")) or LabelSelector(),
        )

    def matches(self, pod: _Pod) -> bool:
        """Return True if a pod matches. Raises _UnknownError."""
        if _names_pod(self.excluded, pod.name) or not _names_pod(self.rules, pod.name):
            return False
        if not self.objects.matches(pod.labels):
            return False
        others = [each for each in self.namespaces.requirements if each.key != NAMESPACE_NAME_LABEL]
        if others and "namespaceObject" in pod.unknown:
            raise _UnknownError(pod.unknown["namespaceObject"])
        return self.namespaces.matches(pod.namespace_labels)


def _pod_rules(raw: Json) -> Sequence[Object]:
    wanted = (
        ("operations", {"*", "CREATE"}),
        ("apiGroups", {"*", ""}),
        ("apiVersions", {"*", "v1"}),
        ("resources", {"*", "pods", "*/*", "pods/*"}),
    )
    rules = [rule for rule in object_items(raw) if rule.get("scope") != "Cluster"]
    return [
        rule for rule in rules if all(not values.isdisjoint(as_list(rule.get(member))) for member, values in wanted)
    ]


def _names_pod(rules: Sequence[Object], name: str) -> bool:
    return any(name in (as_list(rule.get("resourceNames")) or [name]) for rule in rules)


@dataclass(frozen=True, slots=True)
class _Binding:
    """A binding of a policy."""

    name: str
    match: _Match
    has_parameters: bool

    @classmethod
    def read(cls, item: ApiObject) -> "_Binding":
        return cls(item.name, _Match.read(as_mapping(item.spec.get("matchResources"))), "paramRef" in item.spec)


class _Failed(str):
    """The message of an expression that fails."""

    __slots__ = ()


class _Scope(LazyScope):
    """The values of names in the expressions of a policy for one pod."""

    __slots__ = ("_unknown",)

    def __init__(self, policy: "_Policy", pod: _Pod, **others: object) -> None:
        super().__init__(policy.variables, policy.budget, {**pod.values, **others})
        self._unknown = pod.unknown

    def evaluate(self, program: Program) -> object:
        """Return the value of an expression; a _Failed or an _UnknownError without one. Raises CostExceeded."""
        try:
            return self.value(program)
        except CostExceeded:
            raise
        except EvaluationError as error:
            return _Failed(f"expression '{program.source.text}' resulted in error: {error.message}")
        except _UnknownError as error:
            return error

    def _compute(self, name: str) -> object:
        if name in self._unknown:
            raise _UnknownError(self._unknown[name])
        return super()._compute(name)


class _Policy:
    """A policy with the bindings that can make it deny or change pods.

    Where one of its expressions does not compile, it is not evaluated: only its match conditions may be.
    """

    def __init__(self, item: ApiObject, bindings: Sequence[_Binding], budget: Budget) -> None:
        spec = item.spec
        self.kind, self.name = text_member(item, "kind"), item.name
        self.bindings = bindings
        self.budget = budget
        self.match = _Match.read(as_mapping(spec.get("matchConstraints")))
        self._ignores, self._has_parameters = spec.get("failurePolicy") == "Ignore", bool(spec.get("paramKind"))
        self._conditions: list[Program] = []
        self._validations: list[tuple[Program, Program | None, str]] = []
        """Each with the expression of its message, and the message without that."""
        self._problem = _NOT_EVALUATED if self.kind == MUTATING else ""
        compiler = VariableCompiler(_ENVIRONMENT)

        def compiled(owner: Object, member: str, result: Type, variable: str = "") -> Program:
            return compiler.compile(SourceText.inline(text_member(owner, member)), result, variable)

        try:
            for each in object_items(spec.get("matchConditions")):
                self._conditions.append(compiled(each, "expression", types.BOOL))
            for each in object_items(spec.get("variables")):
                compiled(each, "expression", types.DYN, text_member(each, "name"))
            for each in object_items(spec.get("validations")):
                message = compiled(each, "messageExpression", types.STRING) if each.get("messageExpression") else None
                validation = compiled(each, "expression", types.BOOL)
                text = text_member(each, "message").strip() or f"failed expression: {validation.source.text.strip()}"
                self._validations.append((validation, message, text))
        except CelProblems as error:
            self._problem = f"{_NOT_EVALUATED}: {error.problems[0].message}"
        self.variables = compiler.variables
        reads = Reads(_ROOTS, {path: each.program.checked for path, each in self.variables.items()}, EMPTY)
        for program in (*self._conditions, *(validation for validation, *_ in self._validations)):
            reads.add(program.checked)
        self._reads = reads.kept.get("object", NO_FIELDS)

    def find_denial(self, binding: _Binding, pod: _Pod) -> str:
        """Return the message of the denial of a pod; "" if it passes. Raises _UnknownError and CostExceeded."""
        if not (self.match.matches(pod) and binding.match.matches(pod)):
            return ""
        for name, path in pod.removed.items():
            if keeps_path(self._reads, *path):
                raise _UnknownError(f"which reads object.{name}, which is never kept")
        if self._has_parameters and binding.has_parameters:
            raise _UnknownError("whose parameters were not read")
        scope = _Scope(self, pod, namespaceObject=None)
        results = [scope.evaluate(condition) for condition in self._conditions]
        if any(result is False for result in results):
            return ""
        if self._problem:
            raise _UnknownError(self._problem)
        failed = [result for result in results if isinstance(result, _Failed)]
        if failed and self._ignores:
            return ""
        denial = failed[0] if failed else self._find_failed(_Scope(self, pod))
        for error in results if denial else ():
            if isinstance(error, _UnknownError):
                raise error
        return denial

    def _find_failed(self, scope: _Scope) -> str:
        """Return the message of the first validation that fails. Raises _UnknownError if none does, as far as known."""
        unknown: _UnknownError | None = None
        for validation, message, text in self._validations:
            result = scope.evaluate(validation)
            if result is False:
                given = scope.evaluate(message) if message else ""
                return (given.strip() if type(given) is str else "") or text
            if isinstance(result, _Failed) and not self._ignores:
                return result
            if isinstance(result, _UnknownError):
                unknown = result
        if unknown:
            raise unknown
        return ""


@once
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
