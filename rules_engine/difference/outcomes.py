"""Outcomes of pods under one rule set. Rules are evaluated once for pods with equal fingerprints."""

from collections.abc import Container, Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.cel import Program
from rules_engine.cel.field_paths import chains
from rules_engine.difference.decisions import Decisions
from rules_engine.difference.values import Amount, Deciding, Fall, Outcome, Submitted
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.admission import Admission, validation_request
from rules_engine.evaluation.applicability import UNMATCHED
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
from rules_engine.model.rules import Rule, RuleId
from rules_engine.model.source import Field, Location, SourceText

POD_LEVEL = "spec.resources"
"""The container of an Amount of the pod level."""

_USER = ("request", "userInfo")


class Outcomes:
    """The outcomes of pods under one rule set."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._decisions = Decisions(rule_set)
        self._readers = {compiled.rule.id: _Reader.of(compiled) for compiled in rule_set.rules if _reads_user(compiled)}
        self._contents = tuple(_content(compiled.rule) for compiled in rule_set.rules) if self._readers else ()

    def of(self, submitted: Submitted, cluster: Cluster) -> Outcome:
        """Return the outcome of a pod: the decision of /mutate, then that of /validate on the mutated pod."""
        admission = self._admission(submitted, cluster)
        decided = tuple(entry for decision in admission.decisions for entry in decision.once(_deciding))
        if submitted.user_unknown and self._readers:
            reading = dict.fromkeys(step.rule for step in admission.trace if self._depends_on_user(step))
            if reading:
                reads = "reads" if len(reading) == 1 else "read"
                known = self._known(admission, decided, reading)
                return Outcome(unknown=f"{', '.join(reading)} {reads} request.userInfo", known=known)
        if not admission.allowed:
            return Outcome(allowed=False, message=admission.message, warnings=admission.warnings, deciding=decided)
        made = admission.mutation.once(_made)
        return replace(made, warnings=admission.warnings, deciding=decided)

    def decision(self, endpoint: Endpoint, request: AdmissionRequest, cluster: Cluster) -> Decision:
        """Return the decision of one endpoint."""
        if endpoint is Endpoint.VALIDATE:
            return self._decisions.validated(request, cluster)
        mutation, _ = self._decisions.mutated(request, cluster)
        return mutation

    def mutated(self, request: AdmissionRequest, cluster: Cluster) -> Json:
        """Return the pod of a request after /mutate; None if it is denied."""
        mutation, made = self._decisions.mutated(request, cluster)
        return made if mutation.allowed else None

    def _admission(self, submitted: Submitted, cluster: Cluster) -> Admission:
        mutation, made = self._decisions.mutated(submitted.request, cluster)
        if not mutation.allowed:
            return Admission(mutation=mutation, validation=None)
        validation = self._decisions.validated(validation_request(submitted.request, made), cluster)
        return Admission(mutation=mutation, validation=validation)

    def _depends_on_user(self, step: Step) -> bool:
        """Return True if the step may differ for another user.

        A rule that does not match evaluates no expression. One false condition skips a rule whatever the others are.
        """
        reader = None if step.audit else self._readers.get(step.rule)
        if reader is None or (step.action is Action.SKIP and step.reason in UNMATCHED):
            return False
        return step.reason != UNMET_CONDITION or step.fields in reader.conditions

    def _known(self, admission: Admission, decided: tuple[Deciding, ...], reading: Container[RuleId]) -> Hashable:
        """Return all that the outcome follows from but the user; the whole rule set if the mutation depends on it."""
        if any(step.rule in reading for step in admission.mutation.trace):
            return self._contents
        effects = {entry.rule: entry.effect for entry in decided if entry.effect}
        steps = tuple(
            self._readers[step.rule].content if step.rule in reading else (step.rule, effects[step.rule])
            for step in admission.trace
            if step.rule in reading or step.rule in effects
        )
        edits = admission.mutation.edits.items()
        return frozenset((path, frozenset(members.items())) for path, members in edits), steps


class _Reader(Struct, frozen=True, kw_only=True):
    """A rule that reads the user.

    `conditions`: the fields of those of its match conditions that may. `content`: equal for rules that decide alike.
    """

    conditions: frozenset[tuple[Field, ...]]
    content: Hashable

    @classmethod
    def of(cls, compiled: CompiledRule[Rule]) -> "_Reader":
        variables: set[str] = set()
        for name, variable in compiled.variables.items():
            if _may_read_user(variable.program, variables):
                variables.add(name)
        return cls(
            conditions=frozenset(
                condition.fields for condition in compiled.conditions if _may_read_user(condition.program, variables)
            ),
            content=_content(compiled.rule),
        )


def _reads_user(compiled: CompiledRule[Rule]) -> bool:
    """Return True if an expression that may change a decision reads request.userInfo, or the request as a whole."""
    return any(path[:2] in (_USER, _USER[:1]) for path in field_paths([compiled], messages=False))


def _may_read_user(program: Program, variables: Container[str]) -> bool:
    """Return True if an expression reads the user, or one of the variables that do."""
    for path in chains(program.checked.expression):
        if path[:2] in (_USER, _USER[:1]) or path == ("variables",):
            return True
        if path[:1] == ("variables",) and path[1] in variables:
            return True
    return False


def _content(value: Any) -> Hashable:
    """Return the content of a rule, or of a part of one, without locations."""
    match value:
        case Location():
            return ()
        case SourceText(text=text):
            return text
        case Mapping():
            return tuple((key, _content(item)) for key, item in value.items())
        case tuple() | list():
            return tuple(map(_content, value))
    name = type(value).__name__
    if is_dataclass(value):
        return name, *(_content(getattr(value, field.name)) for field in fields(value) if field.compare)
    return name, value


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
