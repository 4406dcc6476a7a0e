"""Outcomes of pods under one rule set."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from rules_engine.difference.missing_members import RuleContents
from rules_engine.difference.values import POD_LEVEL, Amount, Contribution, Fallback, Outcome, Submitted
from rules_engine.evaluation import RuleSet, mutate, validate
from rules_engine.evaluation.admission import Admission, validation_request
from rules_engine.evaluation.rule_reads import RuleReads
from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import ANNOTATIONS, Pod
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import EVALUATION_ERROR, Decision, Step


class Outcomes:
    """The outcomes of pods under one rule set."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._rule_set = rule_set
        self._reads = RuleReads(rule_set)
        self._contents = RuleContents(rule_set)
        self._last: tuple[AdmissionRequest, Cluster, Decision, Json] | None = None
        """The last mutation: a live pod is first mutated to check its reconstruction, then to get its outcome."""

    def of(self, submitted: Submitted, cluster: Cluster) -> Outcome:
        """Return the outcome of a pod: the decision of /mutate, then the decision of /validate on the mutated pod."""
        mutation, pod = self._mutate(submitted.request, cluster)
        validation = None
        if mutation.allowed:
            validation = validate(self._rule_set, validation_request(submitted.request, pod), cluster)
        admission = Admission(mutation=mutation, validation=validation)
        decided = tuple(entry for decision in admission.decisions for entry in _contributions(decision))
        enforced = (step for step in admission.trace if not step.audit)
        dependent = self._reads.dependent_rules(enforced, submitted.missing)
        if dependent:
            reads = "reads" if len(dependent) == 1 else "read"
            members = dict.fromkeys(name for names in dependent.values() for name in names)
            return Outcome(
                unknown=f"{', '.join(dependent)} {reads} {', '.join(members)}",
                known_key=self._contents.known_key(admission, decided, dependent),
            )
        warnings = tuple(_strip_locations(text, admission.trace) for text in admission.warnings)
        if not admission.allowed:
            message = _strip_locations(admission.message, admission.trace)
            return Outcome(allowed=False, message=message, warnings=warnings, deciding=decided)
        return replace(_mutated_outcome(mutation, pod), warnings=warnings, deciding=decided)

    def mutate_request(self, request: AdmissionRequest, cluster: Cluster) -> Json:
        """Return the pod of a request after /mutate; None if it is denied."""
        mutation, pod = self._mutate(request, cluster)
        return pod if mutation.allowed else None

    def _mutate(self, request: AdmissionRequest, cluster: Cluster) -> tuple[Decision, Json]:
        """Return the decision of /mutate, and the pod after its patch."""
        last = self._last
        if last is None or last[0] is not request or last[1] is not cluster:
            decision = mutate(self._rule_set, request, cluster)
            last = self._last = request, cluster, decision, decision.result
        return last[2:]


def _contributions(decision: Decision) -> tuple[Contribution, ...]:
    return tuple(_contribution(step) for step in decision.trace if step.decides or (step.warnings and not step.audit))


def _contribution(step: Step) -> Contribution:
    return Contribution(
        rule=step.rule,
        location=step.fields[0].location if step.fields else step.location,
        action=step.action,
        message=_strip_locations(step.message, [step]) if step.denies else "",
        fallbacks=tuple(
            Fallback(rule=step.rule, requested=decision.resource, given=decision.to)
            for decision in step.resources
            if decision.to is not None
        ),
        amounts=tuple((amount.container, amount.resource, amount.after) for amount in step.amounts),
        annotations=tuple(step.annotations.items()),
        warnings=tuple(_strip_locations(text, [step]) for text in step.warnings),
    )


def _strip_locations(text: str, trace: Iterable[Step]) -> str:
    """Return a text without the locations of failed expressions: equal rules of both sides stand in different files."""
    for step in trace:
        if step.reason == EVALUATION_ERROR and step.fields:
            text = text.replace(f"{step.fields[0].location}: ", "")
    return text


def _mutated_outcome(mutation: Decision, mutated: Json) -> Outcome:
    """Return the part of an admitted pod's outcome that the mutation decides."""
    try:
        pod = Pod.parse(mutated)
    except PodError:
        # A malformed pod is admitted only if the request updates a pod and no rule matches it.
        return Outcome()
    requests = pod.effective_requests()
    submitted = as_mapping(as_mapping(as_mapping(mutation.object).get("metadata")).get("annotations"))
    # A rule may undo the edit of another rule.
    changed = {key: text for key, text in mutation.edits.get(ANNOTATIONS, {}).items() if submitted.get(key) != text}
    return Outcome(
        resources=tuple(_list_amounts(pod)),
        annotations=tuple(sorted(changed.items())),
        gpus=tuple(sorted((name, nanos) for name, nanos in requests.items() if nanos and is_gpu(name))),
    )


def _list_amounts(pod: Pod) -> Iterator[Amount]:
    for resource in sorted({*pod.requests, *pod.limits}):
        request, limit = pod.requests.get(resource), pod.limits.get(resource)
        yield Amount(container=POD_LEVEL, resource=resource, request=request, limit=limit)
    for container in pod.containers:
        for resource in sorted({*container.requests, *container.limits}):
            request, limit = container.requested(resource), container.limits.get(resource)
            yield Amount(container=container.name, resource=resource, request=request, limit=limit)
