"""Outcomes of pods under one rule set."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from rules_engine.accelerators.resources import is_gpu
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import ANNOTATIONS, Pod
from rules_engine.model.kubernetes.quantity import Quantity, base_units
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import EVALUATION_ERROR, Decision, Step
from rules_engine.model.rules.logged_decision import LoggedMember
from rules_engine.model.rules.rule import RuleId
from rules_engine.questions.diff.values import (
    POD_LEVEL,
    ContainerAmount,
    Move,
    Outcome,
    RuleEffect,
    SubmittedPods,
    UnknownOutcome,
    WrittenAmount,
)
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.admission import Admission, validation_request
from rules_engine.rules.evaluation.rule_reads import RuleReads


class Outcomes:
    """The outcomes of pods under one rule set."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._rule_set = rule_set
        self._reads = RuleReads(rule_set)
        self._rules = {compiled.rule.id: compiled.rule for compiled in rule_set.rules}
        self._last: tuple[AdmissionRequest, Cluster, Decision, Json] | None = None
        """The last mutation: a live pod is first mutated to check its reconstruction, then to get its outcome."""

    def of(self, submitted: SubmittedPods, cluster: Cluster) -> Outcome:
        """Return the outcome of a pod: the decision of /mutate, then the decision of /validate on the mutated pod."""
        mutation, pod = self._mutate(submitted.request, cluster)
        refusal = submitted.refusal(as_mapping(pod)) if submitted.refusal and mutation.allowed else ""
        if refusal:
            return Outcome(allowed=False, message=f"refused by the API server: {refusal}", warnings=(), rules=())
        validation = None
        if mutation.allowed:
            validation = self._rule_set.validate(validation_request(submitted.request, pod), cluster)
        admission = Admission(request=submitted.request, mutation=mutation, validation=validation)
        effective = (step for step in admission.trace if step.decides or (step.warnings and not step.audit))
        rules = tuple(map(_rule_effect, effective))
        enforced = (step for step in admission.trace if not step.audit)
        dependent = self._reads.dependent_rules(enforced, submitted.missing)
        if dependent:
            reads = "reads" if len(dependent) == 1 else "read"
            members = dict.fromkeys(name for names in dependent.values() for name in names)
            return UnknownOutcome(
                unknown=f"{', '.join(dependent)} {reads} {', '.join(members)}",
                known_key=self._known_key(admission, rules, dependent),
            )
        warnings = tuple(_strip_locations(text, admission.trace) for text in admission.warnings)
        if not admission.allowed:
            message = _strip_locations(admission.message, admission.trace)
            return Outcome(allowed=False, message=message, warnings=warnings, rules=rules)
        return replace(_mutated_outcome(mutation, pod), warnings=warnings, rules=rules)

    def mutate_request(self, request: AdmissionRequest, cluster: Cluster) -> Json:
        """Return the pod of a request after /mutate; None if it is denied."""
        mutation, pod = self._mutate(request, cluster)
        return pod if mutation.allowed else None

    def _mutate(self, request: AdmissionRequest, cluster: Cluster) -> tuple[Decision, Json]:
        """Return the decision of /mutate, and the pod after its patch."""
        last = self._last
        if last is None or last[0] is not request or last[1] is not cluster:
            decision = self._rule_set.mutate(request, cluster)
            last = self._last = request, cluster, decision, decision.result
        return last[2:]

    def _known_key(self, admission: Admission, effects: Iterable[RuleEffect], dependent: Collection[RuleId]) -> object:
        """Return a key of everything known that decides an outcome: all rules, if /mutate depends on what is missing.

        `dependent`: the result of `dependent_rules`.
        """
        if any(step.rule in dependent for step in admission.mutation.trace):
            return self._contents
        effect_by_rule = {each.rule: each.effect for each in effects if each.effect}
        steps = tuple(
            _rule_content(self._rules[step.rule]) if step.rule in dependent else (step.rule, effect_by_rule[step.rule])
            for step in admission.trace
            if step.rule in dependent or step.rule in effect_by_rule
        )
        edits = admission.mutation.edits.items()
        return frozenset((path, frozenset(members.items())) for path, members in edits), steps

    @cached_property
    def _contents(self) -> Hashable:
        """The contents of all rules: equal for rule sets that decide alike."""
        return tuple(map(_rule_content, self._rules.values()))


def _rule_effect(step: Step) -> RuleEffect:
    return RuleEffect(
        rule=step.rule,
        source=step.fields[0].location if step.fields else step.location,
        action=step.action,
        message=_strip_locations(step.message, [step]) if step.denies else "",
        fallbacks=tuple(Move(requested=each.resource, given=each.to) for each in step.resources if each.to is not None),
        amounts=tuple(
            WrittenAmount(container=each.container, resource=each.resource, amount=each.after) for each in step.amounts
        ),
        annotations=step.annotations,
        members=_logged_members(step),
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
    annotations = sorted(mutation.edits.get(ANNOTATIONS, {}).items())
    return Outcome(
        resources=tuple(_list_amounts(pod)),
        # A rule may undo the edit of another rule.
        annotations={key: text for key, text in annotations if submitted.get(key) != text},
        members=tuple(
            member
            for step in mutation.trace
            if step.decides
            for member in _logged_members(step)
            if not member.member.startswith("annotations.")
        ),
        gpus={name: base_units(nanos) for name, nanos in sorted(requests.items()) if nanos and is_gpu(name)},
    )


def _logged_members(step: Step) -> tuple[LoggedMember, ...]:
    return convert([each.to_json() for each in step.members], tuple[LoggedMember, ...])


def _list_amounts(pod: Pod) -> Iterator[ContainerAmount]:
    for resource in sorted({*pod.requests, *pod.limits}):
        yield _amount(POD_LEVEL, resource, pod.requests.get(resource), pod.limits.get(resource))
    for container in pod.containers:
        for resource in sorted({*container.requests, *container.limits}):
            yield _amount(container.name, resource, container.requested(resource), container.limits.get(resource))


def _amount(container: str, resource: str, request: Quantity | None, limit: Quantity | None) -> ContainerAmount:
    request_text, limit_text = (None if quantity is None else str(quantity) for quantity in (request, limit))
    return ContainerAmount(container=container, resource=resource, request=request_text, limit=limit_text)


def _rule_content(value: Any) -> Hashable:
    """Return the content of a rule, or of a part of a rule, without locations."""
    match value:
        case Location():
            return ()
        case SourceText(text=text):
            return text
        case Mapping():
            return tuple((key, _rule_content(item)) for key, item in value.items())
        case tuple() | list():
            return tuple(map(_rule_content, value))
    name = type(value).__name__
    if is_dataclass(value):
        return name, *(_rule_content(getattr(value, field.name)) for field in fields(value) if field.compare)
    return name, value
