"""Rule sets: compiled rules of every kind, in the order of evaluation. They never change."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from msgspec import structs

from rules_engine.cluster.devices.offers import cluster_view
from rules_engine.cluster.nodes.offers import Reach
from rules_engine.cluster.workloads.kind import WorkloadKind
from rules_engine.language.cel import Budget
from rules_engine.model.json.edits import Edits, merge_edits, patch_operations
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError, json_type
from rules_engine.model.kubernetes.api_defaults import with_default_members, with_default_requests
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import QuantityError
from rules_engine.model.problems.problem import Problem, sort_problems
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint, pod_request
from rules_engine.model.rules.decision import Decision, HttpRefusal, Step, has_denial
from rules_engine.model.rules.rule import Mode, Operation, Rule
from rules_engine.rules.rule_set.compiled import CompiledRule, RuleKind
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.context import Context
from rules_engine.rules.rule_set.index import RuleIndex

_NO_CLUSTER = Cluster()

GENERATED_FIELDS = frozenset(("object", "metadata", name) for name in ("creationTimestamp", "name", "uid"))
"""Fields that a new pod may lack at /mutate: the API server sets them, and generates names, after the mutating webhooks
(k8s.io/apiserver, registry/generic/registry/store.go)."""


class PodManifest(Protocol):
    """The pod of a Manifest (`load_manifests`), without what reads it. `namespace`: "" if it has none."""

    @property
    def namespace(self) -> str: ...

    def submitted(self) -> dict[str, Json]:
        """Return the pod that /mutate gets."""


@dataclass(frozen=True, slots=True)
class KindRules:
    """The rules of one kind, in the order of evaluation, and their index."""

    kind: RuleKind
    rules: tuple[CompiledRule[Rule], ...]
    index: RuleIndex = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", RuleIndex(self.rules))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Compiled rules by kind, in the order of evaluation. Rules that are Off are not in it.

    `workload_kinds`: the kinds of workloads that stand beside the rules. `whole`: the rule set of which this one is a
    part: the API server evaluates the other rules.
    """

    kinds: tuple[KindRules, ...] = ()
    workload_kinds: tuple[WorkloadKind, ...] = ()
    whole: "RuleSet | None" = field(default=None, repr=False, compare=False)
    _at: Mapping[Endpoint, tuple[KindRules, ...]] = field(init=False, repr=False, compare=False)
    validated_operations: frozenset[str] = field(init=False, repr=False, compare=False)
    """CREATE, and the operations that some rule at /validate matches: pods at other operations are not parsed."""

    @property
    def rules(self) -> tuple[CompiledRule[Rule], ...]:
        """The rules of every kind."""
        return tuple(rule for group in self.kinds for rule in group.rules)

    def rules_at(self, endpoint: Endpoint) -> tuple[CompiledRule[Rule], ...]:
        """Return the rules that are evaluated at an endpoint."""
        return tuple(rule for group in self.kinds_at(endpoint) for rule in group.rules)

    def without(self, ids: Collection[str]) -> "RuleSet":
        """Return the rule set without some rules."""
        return RuleSet(
            tuple(
                KindRules(group.kind, tuple(each for each in group.rules if each.rule.id not in ids))
                for group in self.kinds
            ),
            self.workload_kinds,
            self.whole or self,
        )

    def kinds_at(self, endpoint: Endpoint) -> tuple[KindRules, ...]:
        """Return the kinds that are evaluated at an endpoint, in this order."""
        return self._at[endpoint]

    def given(self, namespace: str) -> Set[str]:
        """Return the resources that rules may give to pods of a namespace, or move."""
        groups = (self.whole or self).kinds_at(Endpoint.MUTATE)
        return frozenset().union(*[group.index.given(namespace) for group in groups])

    def mutate(
        self,
        request: AdmissionRequest | PodManifest | Mapping[str, Json],
        cluster: Cluster | ClusterObjects = _NO_CLUSTER,
        *,
        indexed: bool = False,
        budget: Callable[[], Budget] = Budget,
    ) -> Decision:
        """Decide at /mutate: apply each kind to the pod as changed by the previous kind. Needs no I/O.

        `request`: an AdmissionRequest, or a Pod or a Manifest that is created in its namespace, `default` if it has
        none. Only Pods at CREATE are decided; all else is allowed. A malformed pod is refused. `indexed`: rules that
        the index excludes are not evaluated and leave no step. Nothing else differs. `budget` makes the budget of the
        rules that enforce, and another one for rules in audit mode.

        >>> from rules_engine import load_rules
        >>> pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
        >>> load_rules(["set:gpu-allocation"]).mutate(pod).allowed
        True
        """
        request = _request(request)
        if not request.is_pod or request.operation != "CREATE":
            return Decision(object=request.object)
        context = _build_context(request, cluster, budget, self.given)
        if isinstance(context, HttpRefusal):
            return Decision(refusal=context, object=request.object)
        trace: tuple[Step, ...] = ()
        edits: Edits = {}
        try:
            for group in self.kinds_at(Endpoint.MUTATE):
                if edits:
                    context = context.edited(edits)
                if foresee := self._foresight(group, budget):
                    context = context.foreseeing(foresee)
                elif context.foresee:
                    context = context.foreseeing(None)
                steps, edits = group.kind.apply(_select_rules(group, context, indexed), context)
                trace = (*trace, *steps)
        except (PodError, QuantityError) as error:
            # Affinity, tolerations and totals are computed lazily, by the first rule that reads them.
            return Decision(refusal=_refuse_malformed_pod(error), object=request.object)
        if has_denial(trace):
            return Decision(trace=trace, object=request.object)
        last = partial(context.edited, edits)
        edits = merge_edits(context.pod.edits, edits)
        patch = patch_operations(request.object, edits)
        return Decision(trace=trace, patch=patch, object=request.object, edits=edits, context=last)

    def _foresight(self, before: KindRules, budget: Callable[[], Budget]) -> Callable[[Context], Edits] | None:
        """Return what the kinds after one will change of a pod's placement; None if they change nothing."""
        groups = self.kinds_at(Endpoint.MUTATE)
        for group in groups[groups.index(before) + 1 :]:
            if (foresee := group.kind.foresee) and group.rules and before.rules:
                return partial(_foresee, foresee, group, budget())
        return None

    def validate(
        self,
        request: AdmissionRequest | PodManifest | Mapping[str, Json],
        cluster: Cluster | ClusterObjects = _NO_CLUSTER,
        *,
        indexed: bool = False,
        budget: Callable[[], Budget] = Budget,
    ) -> Decision:
        """Decide at /validate: evaluate rules on the unchanged pod. Parameters are as for `mutate`.

        Pods are decided at CREATE, and at UPDATE, resizes included, by rules that match it. A pod that is being deleted
        is not decided: a denial would keep its finalizers from being removed.
        """
        request = _request(request)
        if not (request.is_pod or request.is_resize) or request.operation not in self.validated_operations:
            return Decision(object=request.object)
        if request.is_being_deleted:
            return Decision(object=request.object)
        context = _build_context(request, cluster, budget, self.given)
        if isinstance(context, HttpRefusal):
            return Decision(refusal=context, object=request.object)
        trace: tuple[Step, ...] = ()
        for group in self.kinds_at(Endpoint.VALIDATE):
            steps, edits = group.kind.apply(_select_rules(group, context, indexed), context)
            if edits:
                raise ValueError(f"rules of the kind {group.kind.name} change the pod, which only /mutate can do")
            trace = (*trace, *steps)
        return Decision(trace=trace, object=request.object, context=lambda: context)

    def audit(self, request: AdmissionRequest, cluster: Cluster, *, created: bool, **options: Any) -> Decision:
        """Return the decision of /mutate or, if the pod is `created`, of /validate, without an effect.

        `options`: as for both. The pod that /validate gets lacks the changes of /mutate. They are made first, with the
        defaults that the API server sets in the result. A pod that /mutate would deny does not reach /validate.
        """
        decision = self.mutate(request, cluster, **options)
        if created and decision.allowed:
            if decision.patch:
                changed = with_default_requests({**as_mapping(decision.result)})
                request = request.with_object(with_default_members(changed))
            decision = self.validate(request, cluster, **options)
        elif created:
            decision = Decision(object=request.object)
        return decision.audited

    def __post_init__(self) -> None:
        at = {
            endpoint: tuple(group for group in self.kinds if group.kind.endpoint is endpoint) for endpoint in Endpoint
        }
        object.__setattr__(self, "_at", at)
        operations = {
            operation.value for rule in self.rules_at(Endpoint.VALIDATE) for operation in rule.rule.match.operations
        }
        object.__setattr__(self, "validated_operations", frozenset({Operation.CREATE.value, *operations}))


def _foresee(
    foresee: Callable[[Sequence[CompiledRule[Rule]], Context], Edits],
    group: KindRules,
    budget: Budget,
    context: Context,
) -> Edits:
    """Return the edits of a later kind, on a budget of their own."""
    return foresee(_select_rules(group, context, indexed=True), structs.replace(context, budget=budget, foresee=None))


def _select_rules(group: KindRules, context: Context, indexed: bool) -> Sequence[CompiledRule[Rule]]:
    if not indexed:
        return group.rules
    return group.index.candidates(context.pod, context.namespace, context.request.operation)


def _request(request: AdmissionRequest | PodManifest | Mapping[str, Json]) -> AdmissionRequest:
    """Return a request, or that of a pod which is created in its namespace. Raises ValueError for another kind."""
    if isinstance(request, AdmissionRequest):
        return request
    if not isinstance(request, Mapping):
        return pod_request(request.submitted(), namespace=request.namespace or DEFAULT_NAMESPACE)
    if request.get("kind", "Pod") != "Pod":
        raise ValueError(f"the object is a {request['kind']}, not a Pod: load_manifests returns the pods of workloads")
    namespace = text_member(as_mapping(request.get("metadata")), "namespace") or DEFAULT_NAMESPACE
    return pod_request({**request}, namespace=namespace)


def _build_context(
    request: AdmissionRequest,
    cluster: Cluster | ClusterObjects,
    budget: Callable[[], Budget],
    given: Callable[[str], Set[str]],
) -> Context | HttpRefusal:
    if isinstance(cluster, ClusterObjects):
        cluster = cluster_view(cluster)
    if not isinstance(cluster, Cluster):
        raise TypeError(f"the cluster is a {type(cluster).__name__}, not what load_cluster returns")
    if not isinstance(request.object, dict):
        return HttpRefusal(422, "Invalid", f"the pod must be an object, not {json_type(request.object)}")
    try:
        pod = Pod.parse(request.object)
    except PodError as error:
        return _refuse_malformed_pod(error)
    return Context(
        request=request,
        pod=pod,
        cluster=cluster,
        budget=budget(),
        audit_budget=budget(),
        reach=Reach(pod, cluster),
        given=given,
    )


def _refuse_malformed_pod(error: PodError | QuantityError) -> HttpRefusal:
    return HttpRefusal(422, "Invalid", f"the pod is malformed: {error}")


def compile_rules(
    rules: Iterable[Rule], kinds: Sequence[RuleKind], compiler_of: Callable[[Rule], Compiler] = Compiler
) -> tuple[RuleSet, tuple[Problem, ...]]:
    """Compile every expression of every rule, also of rules that are Off, so that they stay valid.

    Kinds are evaluated in the order given, and rules of a kind by their `order`. A rule with a problem is not in the
    rule set: the caller decides whether to use the others. `compiler_of` makes the compiler of a rule. Raises
    ValueError for a rule of none of the kinds, and for two kinds of one name.
    """
    problems: list[Problem] = []
    by_kind: dict[str, list[CompiledRule[Rule]]] = {kind.name: [] for kind in kinds}
    kinds_by_name = {kind.name: kind for kind in kinds}
    if len(kinds_by_name) < len(kinds):
        raise ValueError(f"two kinds have the same name: {', '.join(kind.name for kind in kinds)}")
    for rule in sorted(rules, key=lambda rule: rule.order):
        if rule.kind not in kinds_by_name:
            raise ValueError(f"{rule.id} is of none of the kinds {', '.join(kinds_by_name)}")
        compiler = compiler_of(rule)
        compiled = kinds_by_name[rule.kind].compile(rule, compiler)
        absent = GENERATED_FIELDS if kinds_by_name[rule.kind].endpoint is Endpoint.MUTATE else ()
        problems.extend((*compiler.problems, *compiler.find_unguarded_members(absent), *compiler.unused()))
        if not compiler.failed and rule.mode is not Mode.OFF:
            by_kind[rule.kind].append(compiled)
    rule_set = RuleSet(tuple(KindRules(kind, tuple(by_kind[kind.name])) for kind in kinds))
    return rule_set, sort_problems(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequirements:
    """The collections that rules read; pods require nodes. `devices`: classes, slices and claims.

    `classes`: PriorityClasses and RuntimeClasses.
    """

    nodes: bool = False
    pods: bool = False
    namespaces: bool = False
    devices: bool = False
    classes: bool = False


def cluster_requirements(rule_set: RuleSet) -> ClusterRequirements:
    """Return the collections that the rules read, including rules in audit mode."""
    rules = rule_set.rules
    pods = any(rule.reads_available for rule in rules)
    nodes = pods or any(rule.reads_nodes for rule in rules)
    return ClusterRequirements(
        nodes=nodes,
        devices=nodes,
        pods=pods,
        classes=any(rule.reads_classes for rule in rules),
        namespaces=any(rule.rule.match.namespace_selector for rule in rules)
        or any("namespaceObject" in program.reads for rule in rules for program in (*rule.programs, *rule.messages)),
    )
