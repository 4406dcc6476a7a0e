"""The decisions of the two endpoints, without any I/O."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rules_engine.cel import Budget
from rules_engine.evaluation.context import Context
from rules_engine.evaluation.injections import apply_injections
from rules_engine.evaluation.ladders import apply_ladders
from rules_engine.evaluation.nodes.offers import Reach
from rules_engine.evaluation.rule_set.compiled import RuleSet
from rules_engine.evaluation.rule_set.index import HasRule, Index
from rules_engine.evaluation.validations import apply_validations
from rules_engine.model.admission import AdmissionRequest
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import Decision, Refusal, denied
from rules_engine.model.json.edits import merged, patch
from rules_engine.model.json.strict import PodError, kind_of
from rules_engine.model.pod import Pod
from rules_engine.model.quantity import QuantityError

C = TypeVar("C", bound=HasRule)


def mutate(
    rule_set: RuleSet,
    request: AdmissionRequest,
    cluster: Cluster,
    *,
    indexed: bool = False,
    budget: Callable[[], Budget] = Budget,
) -> Decision:
    """Evaluate ladders, then injections on their result. Only Pods at CREATE are decided; all else is allowed as it is.

    `indexed`: rules that the index excludes are not evaluated and leave no step. Nothing else differs. `budget` makes
    the budget of the rules that enforce, and another one for those in audit mode.
    """
    if not request.is_pod or request.operation != "CREATE":
        return Decision(object=request.object)
    context = _context(request, cluster, budget)
    if isinstance(context, Refusal):
        return Decision(refusal=context, object=request.object)
    try:
        fallen, pod = apply_ladders(_selected(rule_set.ladders, rule_set.ladder_index, context, indexed), context)
        context = context.with_pod(pod)
        injections = _selected(rule_set.injections, rule_set.injection_index, context, indexed)
        injected, edits = apply_injections(injections, context)
    except (PodError, QuantityError) as error:
        # Affinity, tolerations and totals are computed lazily, by the first rule that reads them.
        return Decision(refusal=_malformed(error), object=request.object)
    trace = (*fallen, *injected)
    if denied(trace):
        return Decision(trace=trace, object=request.object)
    edits = merged(pod.edits, edits)
    return Decision(trace=trace, patch=patch(request.object, edits), object=request.object, edits=edits)


def validate(
    rule_set: RuleSet,
    request: AdmissionRequest,
    cluster: Cluster,
    *,
    indexed: bool = False,
    budget: Callable[[], Budget] = Budget,
) -> Decision:
    """Evaluate validations on the unchanged pod. Only Pods at CREATE are decided, and at UPDATE if a rule matches it.

    At UPDATE a resize is decided too. A pod that is being deleted is not: else its finalizers could not be removed.
    `indexed` and `budget` are as for `mutate`.
    """
    if not (request.is_pod or request.is_resize) or request.operation not in rule_set.validated_operations:
        return Decision(object=request.object)
    if request.is_being_deleted:
        return Decision(object=request.object)
    context = _context(request, cluster, budget)
    if isinstance(context, Refusal):
        return Decision(refusal=context, object=request.object)
    validations = _selected(rule_set.validations, rule_set.validation_index, context, indexed)
    return Decision(trace=apply_validations(validations, context), object=request.object)


def _selected(rules: Sequence[C], index: Index[C], context: Context, indexed: bool) -> Sequence[C]:
    if not indexed:
        return rules
    return index.candidates(context.pod, context.namespace, context.request.operation)


def _context(request: AdmissionRequest, cluster: Cluster, budget: Callable[[], Budget]) -> Context | Refusal:
    if not isinstance(request.object, dict):
        return Refusal(422, "Invalid", f"the pod must be an object, not {kind_of(request.object)}")
    try:
        pod = Pod.parse(request.object)
    except PodError as error:
        return _malformed(error)
    return Context(
        request=request,
        pod=pod,
        cluster=cluster,
        budget=budget(),
        audit_budget=budget(),
        reach=Reach(pod, cluster),
    )


def _malformed(error: PodError | QuantityError) -> Refusal:
    return Refusal(422, "Invalid", f"the pod is malformed: {error}")
