"""Outcomes of pods under one rule set. Rules are evaluated once for pods with equal fingerprints."""

from collections.abc import Iterator

from msgspec.structs import replace

from rules_engine.difference.values import Amount, Deciding, Fall, Outcome, Submitted
from rules_engine.evaluation import DecisionCache, RuleSet
from rules_engine.evaluation.admission import Admission
from rules_engine.evaluation.fields_read import field_paths
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.model.admission import AdmissionRequest, Endpoint
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import UNMET_CONDITION, Action, Decision, Step
from rules_engine.model.gpu_resources import is_gpu
from rules_engine.model.json.lenient import mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.pod import ANNOTATIONS, Pod
from rules_engine.model.rules import Rule

POD_LEVEL = "spec.resources"
"""The container of an Amount of the pod level."""

_USER = ("request", "userInfo")


class Outcomes:
    """The outcomes of pods under one rule set; decisions are cached for one view of the cluster."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._mutate = DecisionCache(rule_set, Endpoint.MUTATE)
        self._validate = DecisionCache(rule_set, Endpoint.VALIDATE)
        self._read_user = frozenset(compiled.rule.id for compiled in rule_set.rules if _reads_user(compiled))

    def of(self, submitted: Submitted, cluster: Cluster) -> Outcome:
        """Return the outcome of a pod: the decision of /mutate, then that of /validate on the mutated pod."""
        admission = self._admission(submitted, cluster)
        if submitted.user_unknown and self._read_user:
            reading = dict.fromkeys(step.rule for step in admission.trace if self._depends_on_user(step))
            if reading:
                reads = "reads" if len(reading) == 1 else "read"
                return Outcome(unknown=f"{', '.join(reading)} {reads} request.userInfo")
        decided = tuple(entry for decision in admission.decisions for entry in decision.once(_deciding))
        if not admission.allowed:
            return Outcome(allowed=False, message=admission.message, warnings=admission.warnings, deciding=decided)
        made = admission.mutation.once(_made)
        return replace(made, warnings=admission.warnings, deciding=decided)

    def decision(self, endpoint: Endpoint, request: AdmissionRequest, cluster: Cluster) -> Decision:
        """Return the decision of one endpoint."""
        return (self._mutate if endpoint is Endpoint.MUTATE else self._validate)(request, cluster)

    def mutated(self, request: AdmissionRequest, cluster: Cluster) -> Json:
        """Return the pod of a request after /mutate; None if it is denied."""
        mutation = self._mutate(request, cluster)
        return mutation.result if mutation.allowed else None

    def _admission(self, submitted: Submitted, cluster: Cluster) -> Admission:
        request = submitted.request
        mutation = self._mutate(request, cluster)
        if not mutation.allowed:
            return Admission(mutation=mutation, validation=None)
        mutated = replace(request, object=mutation.result, raw={**request.raw, "object": mutation.result})
        return Admission(mutation=mutation, validation=self._validate(mutated, cluster))

    def _depends_on_user(self, step: Step) -> bool:
        """Return True if the step may differ for another user. A rule that does not match evaluates no expression."""
        evaluated = step.action is not Action.SKIP or step.reason == UNMET_CONDITION
        return evaluated and not step.audit and step.rule in self._read_user


def _reads_user(compiled: CompiledRule[Rule]) -> bool:
    """Return True if an expression that may change a decision reads request.userInfo, or the request as a whole."""
    return any(path[:2] in (_USER, _USER[:1]) for path in field_paths([compiled], messages=False))


def _deciding(decision: Decision) -> tuple[Deciding, ...]:
    return tuple(_entry(step) for step in decision.trace if step.decides or (step.warnings and not step.audit))


def _entry(step: Step) -> Deciding:
    return Deciding(
        rule=step.rule,
        location=step.fields[0].location if step.fields else step.location,
        action=step.action,
        message=step.message if step.denies else "",
        falls=tuple(
            Fall(rule=step.rule, requested=found.resource, given=found.to)
            for found in step.resources
            if found.to is not None
        ),
        amounts=tuple((amount.container, amount.resource, amount.after) for amount in step.amounts),
        annotations=tuple(step.annotations.items()),
        warnings=step.warnings,
    )


def _made(mutation: Decision) -> Outcome:
    """Return the outcome of an admitted pod, as far as the mutation makes it: equal for equal fingerprints."""
    try:
        pod = Pod.parse(mutation.result)
    except PodError:
        # Not decided, so not checked: a pod of a request that changes it.
        return Outcome()
    requests = pod.effective_requests()
    own = mapping(mapping(mapping(mutation.object).get("metadata")).get("annotations"))
    # One rule may undo what another one writes.
    written = {key: text for key, text in mutation.edits.get(ANNOTATIONS, {}).items() if own.get(key) != text}
    return Outcome(
        resources=tuple(_amounts(pod)),
        annotations=tuple(sorted(written.items())),
        gpus=tuple(sorted((name, nanos) for name, nanos in requests.items() if nanos and is_gpu(name))),
    )


def _amounts(pod: Pod) -> Iterator[Amount]:
    for resource in sorted({*pod.requests, *pod.limits}):
        request, limit = pod.requests.get(resource), pod.limits.get(resource)
        yield Amount(container=POD_LEVEL, resource=resource, request=request, limit=limit)
    for container in pod.containers:
        for resource in sorted({*container.requests, *container.limits}):
            request, limit = container.requested(resource), container.limits.get(resource)
            yield Amount(container=container.name, resource=resource, request=request, limit=limit)
