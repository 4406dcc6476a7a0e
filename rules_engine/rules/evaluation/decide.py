"""The decisions of the two endpoints, without any I/O."""

from collections.abc import Callable, Sequence
from functools import partial

from rules_engine.cluster.nodes.offers import Reach
from rules_engine.language.cel import Budget
from rules_engine.model.json.edits import Edits, merge_edits, patch_operations
from rules_engine.model.json.strict import PodError, json_type
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import QuantityError
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint
from rules_engine.model.rules.decision import Decision, Refusal, Step, has_denial
from rules_engine.model.rules.rule import Rule
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.context import Context
from rules_engine.rules.rule_set.rule_set import KindRules, RuleSet


def mutate(
    rule_set: RuleSet,
    request: AdmissionRequest,
    cluster: Cluster,
    *,
    indexed: bool = False,
    budget: Callable[[], Budget] = Budget,
) -> Decision:
    """Evaluate each kind on the result of the kind before. Only Pods at CREATE are decided; all else is allowed.

    `indexed`: rules that the index excludes are not evaluated and leave no step. Nothing else differs. `budget` makes
    the budget of the rules that enforce, and another one for rules in audit mode.
    """
    if not request.is_pod or request.operation != "CREATE":
        return Decision(object=request.object)
    context = _build_context(request, cluster, budget)
    if isinstance(context, Refusal):
        return Decision(refusal=context, object=request.object)
    trace: tuple[Step, ...] = ()
    edits: Edits = {}
    try:
        for group in rule_set.kinds_at(Endpoint.MUTATE):
            if edits:
                context = context.edited(edits)
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


def validate(
    rule_set: RuleSet,
    request: AdmissionRequest,
    cluster: Cluster,
    *,
    indexed: bool = False,
    budget: Callable[[], Budget] = Budget,
) -> Decision:
    """Evaluate rules on the unchanged pod. Only Pods at CREATE are decided, and at UPDATE if a rule matches it.

    At UPDATE a resize is decided too. A pod that is being deleted is not: else its finalizers could not be removed.
    `indexed` and `budget` are as for `mutate`.
    """
    if not (request.is_pod or request.is_resize) or request.operation not in rule_set.validated_operations:
        return Decision(object=request.object)
    if request.is_being_deleted:
        return Decision(object=request.object)
    context = _build_context(request, cluster, budget)
    if isinstance(context, Refusal):
        return Decision(refusal=context, object=request.object)
    trace: tuple[Step, ...] = ()
    for group in rule_set.kinds_at(Endpoint.VALIDATE):
        steps, edits = group.kind.apply(_select_rules(group, context, indexed), context)
        if edits:
            raise ValueError(f"rules of the kind {group.kind.name} change the pod, which only /mutate can do")
        trace = (*trace, *steps)
    return Decision(trace=trace, object=request.object, context=lambda: context)


def _select_rules(group: KindRules, context: Context, indexed: bool) -> Sequence[CompiledRule[Rule]]:
    if not indexed:
        return group.rules
    return group.index.candidates(context.pod, context.namespace, context.request.operation)


def _build_context(request: AdmissionRequest, cluster: Cluster, budget: Callable[[], Budget]) -> Context | Refusal:
    if not isinstance(request.object, dict):
        return Refusal(422, "Invalid", f"the pod must be an object, not {json_type(request.object)}")
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
    )


def _refuse_malformed_pod(error: PodError | QuantityError) -> Refusal:
    return Refusal(422, "Invalid", f"the pod is malformed: {error}")
