"""Applicability of a rule to a request: match, opt-out, match conditions, in this order (else Kubernetes' order)."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from rules_engine.language.cel import EvaluationError, NamedProgram
from rules_engine.model.kubernetes.names import MAX_LABEL, MAX_SUBDOMAIN
from rules_engine.model.kubernetes.pod import Container, Pod
from rules_engine.model.rules.decision import UNMET_CONDITION, Step
from rules_engine.model.rules.rule import SKIP_ANNOTATION, OptOut, Rule
from rules_engine.rules.evaluation.steps import failure_step, skip_step
from rules_engine.rules.rule_set import globs
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.context import Context, ExpressionScope

R = TypeVar("R", bound=Rule)

UNMATCHED_REASONS = frozenset(
    {"operation", "namespace", "object-selector", "resources", "namespace-selector", "opt-out"}
)
"""Reasons why a rule does not apply that are decided before any of its expressions is evaluated."""

MAX_RESOURCE_NAME = MAX_SUBDOMAIN + len("/") + MAX_LABEL
"""Longest name of a resource (k8s.io/apimachinery/pkg/util/validation, IsQualifiedName): longer names match no glob."""

CONTAINERS_PER_UNIT = 4
AMOUNTS_PER_UNIT = 4
COMPARISONS_PER_UNIT = 256
"""Containers and amounts that are read, and characters that are compared, for one unit of the budget. To compare a name
with a glob takes the product of their lengths at most."""


class Applies(Struct, frozen=True):
    """The rule applies: its scope, and the warnings for the user."""

    scope: ExpressionScope
    warnings: tuple[str, ...] = ()


def check_applicability(compiled: CompiledRule[R], context: Context) -> Applies | Step:
    """Return the rule's scope, or the step of a rule that does not apply or could not be evaluated."""
    rule = compiled.rule
    try:
        mismatch = _find_mismatch(rule, context)
        if mismatch:
            reason, message, member = mismatch
            return skip_step(rule, reason, message, rule.fields.get(member, ()))
        skip = context.pod.annotations.get(SKIP_ANNOTATION)
        wants_out = skip == "true"
        if wants_out and rule.opt_out is OptOut.ALLOWED:
            return skip_step(rule, "opt-out", f"the pod is annotated {SKIP_ANNOTATION}")
        scope = ExpressionScope(context, rule, compiled.variables)
        unmet = _unmet_condition(compiled, scope)
    except Exception as error:
        return failure_step(rule, error)
    if unmet is not None:
        return skip_step(rule, UNMET_CONDITION, f"the match condition {unmet.name} is false", unmet.fields)
    if wants_out:
        return Applies(scope, (f"{rule.id} cannot be skipped by the annotation {SKIP_ANNOTATION}",))
    if skip is not None:
        # Without the rule's name: equal warnings of several rules are shown once.
        return Applies(scope, (f'the annotation {SKIP_ANNOTATION} has no effect: its value must be "true"',))
    return Applies(scope)


def _find_mismatch(rule: Rule, context: Context) -> tuple[str, str, str] | None:
    """Return reason, message and field if the rule does not match the pod, else None. Raises EvaluationError."""
    match, namespace = rule.match, context.namespace
    if context.request.operation not in [operation.value for operation in match.operations]:
        return "operation", f"not for {context.request.operation}", "match.operations"
    if "*" not in match.namespaces and not globs.matches_any(match.namespaces, namespace):
        return "namespace", f"not for the namespace {namespace}", "match.namespaces"
    if match.exclude_namespaces and globs.matches_any(match.exclude_namespaces, namespace):
        return "namespace", f"the namespace {namespace} is excluded", "match.excludeNamespaces"
    if match.object_selector and not match.object_selector.matches(context.pod.labels):
        return "object-selector", "the labels of the pod do not match", "match.objectSelector"
    if match.resources and not _names_any_resource(match.resources, rule, context):
        return "resources", "no container names one of its resources", "match.resources"
    # Last: if another criterion does not match, the namespace need not be known.
    if match.namespace_selector and not match.namespace_selector.matches(context.namespace_labels()):
        message = f"the labels of the namespace {namespace} do not match"
        return "namespace-selector", message, "match.namespaceSelector"
    return None


def _names_any_resource(patterns: Sequence[str], rule: Rule, context: Context) -> bool:
    """Return True if a container names a matching resource, whatever the amount. Raises CostExceeded."""
    budget = context.budget_of(rule)
    pod = context.pod
    budget.spend(len(pod.containers) // CONTAINERS_PER_UNIT)
    budget.spend(pod.amount_count // AMOUNTS_PER_UNIT)
    if not pod.named.isdisjoint(patterns):
        return True
    names = [name for name in pod.named if len(name) <= MAX_RESOURCE_NAME]
    characters = sum(map(len, names))
    for glob in filter(globs.is_glob, patterns):
        # All at once: the names have no order, and the same pod must always cost the same.
        budget.spend(len(names) + characters * len(glob) // COMPARISONS_PER_UNIT)
        if any(globs.matches_glob(glob, name) for name in names):
            return True
    return False


def _unmet_condition(compiled: CompiledRule[R], scope: ExpressionScope) -> NamedProgram | None:
    """Return the first condition that is false. Raises the first error only if none is false."""
    first_error: EvaluationError | None = None
    for condition in compiled.conditions:
        try:
            if not scope.holds(condition.program):
                return condition
        except EvaluationError as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return None


MAX_CONTAINERS = 256
"""Containers and init containers of a pod that a ladder or an injection changes: ten times what large pods have, since
each may be changed, recorded in the trace and logged."""


def container_count_error(pod: Pod) -> EvaluationError:
    """Return the error of a rule that would change a pod with more than MAX_CONTAINERS."""
    count = len(pod.containers)
    return EvaluationError(f"/spec/containers: {count} containers and init containers, more than {MAX_CONTAINERS}")


def amount_problem(container: Container, resource: str) -> str | None:
    """Return the message for a container whose amounts of an extended resource the API server will refuse, else None.

    Source: k8s.io/kubernetes/pkg/apis/core/validation (ValidateResourceRequirements).
    """
    request, limit = container.requests.get(resource), container.limits.get(resource)
    if request is not None and limit is not None and request != limit:
        return f"{container.name} has the request {request} but the limit {limit} for {resource}"
    amount = container.limit_or_request(resource)
    if amount is not None and (amount.nanos < 0 or not amount.is_whole):
        return f"{container.name} requests {amount} of {resource}, which must be a whole number and not negative"
    return None
