"""Admission of a pod by both endpoints, as the API server would call them."""

from dataclasses import dataclass

from msgspec.structs import replace

from rules_engine.cluster.creation.plugins import ApiServer, CreatedPod
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import with_generated_name
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Decision, Step
from rules_engine.rules.rule_set.rule_set import RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The decisions of both endpoints in sequence; `validation` is None if the mutation denied the pod.

    `request`: what /mutate got. `refusal`: why the API server's own plugins refuse the pod; "" if they do not.
    `unknown`: what they would read, and was not read.
    """

    request: AdmissionRequest
    mutation: Decision
    validation: Decision | None
    refusal: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return (self.mutation,) if self.validation is None else (self.mutation, self.validation)

    @property
    def allowed(self) -> bool:
        return not self.refusal and all(decision.allowed for decision in self.decisions)

    @property
    def message(self) -> str:
        """The message of the denial or refusal; "" if the pod was allowed."""
        denials = (decision.status.message for decision in self.decisions if decision.status is not None)
        return next(denials, self.refusal)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for decision in self.decisions for text in decision.warnings))

    @property
    def trace(self) -> tuple[Step, ...]:
        return tuple(step for decision in self.decisions for step in decision.trace)

    @property
    def result(self) -> Json:
        """The pod after the mutation."""
        return self.mutation.result


def admit_pod(
    rule_set: RuleSet, request: AdmissionRequest, cluster: Cluster | ClusterObjects, api_server: ApiServer | None = None
) -> Admission:
    """Evaluate /mutate, then /validate on the mutated pod, with the plugins of an API server before, between and after.

    Both endpoints evaluate also a pod that the plugins refuse, as far as they have changed it.
    """
    stored: CreatedPod | None = None
    if api_server is None:
        mutation = rule_set.mutate(request, cluster)
    else:
        created = api_server.mutate(as_mapping(request.object), request.namespace)
        request = request.with_object({**created.pod})
        mutation = rule_set.mutate(request, cluster)

        def reinvoke(pod: Object) -> Object:
            return as_mapping(rule_set.mutate(request.with_object({**pod}), cluster).result)

        stored = api_server.store(created, as_mapping(mutation.result), request.namespace, reinvoke)
    validation = None
    if mutation.allowed:
        result = mutation.result if stored is None else {**stored.pod}
        validation = rule_set.validate(validation_request(request, result), cluster)
    refusal, unknown = (stored.refusal, stored.unknown) if stored else ("", ())
    return Admission(request=request, mutation=mutation, validation=validation, refusal=refusal, unknown=unknown)


def validation_request(request: AdmissionRequest, pod: Json) -> AdmissionRequest:
    """Return the request that /validate gets after /mutate has made this pod.

    In between, the API server generates the name of a new pod that has a generateName only (k8s.io/apiserver,
    BeforeCreate).
    """
    named_pod = with_generated_name(pod)
    named = request.with_object(named_pod)
    if named_pod is pod:
        return named
    name = text_member(as_mapping(as_mapping(named_pod).get("metadata")), "name")
    return replace(named, name=name, raw={**named.raw, "name": name})
