"""Admission of a pod by both endpoints, as the API server would call them."""

from dataclasses import dataclass, replace

from rules_engine.evaluation import RuleSet, mutate, validate
from rules_engine.model.admission import AdmissionRequest
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import Decision, Step
from rules_engine.model.json.patch import Json

OFFLINE_UID = "00000000-0000-0000-0000-000000000000"
"""The uid of a request that no API server sent, recognizable as such."""

OFFLINE_USER = "gpu-rules:offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The decisions of both endpoints in sequence; `validation` is None if the mutation denied the pod."""

    mutation: Decision
    validation: Decision | None

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return (self.mutation,) if self.validation is None else (self.mutation, self.validation)

    @property
    def allowed(self) -> bool:
        return all(decision.allowed for decision in self.decisions)

    @property
    def message(self) -> str:
        """The message of the denial; "" if the pod was allowed."""
        return next((decision.status.message for decision in self.decisions if decision.status is not None), "")

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


def admit(rule_set: RuleSet, request: AdmissionRequest, cluster: Cluster) -> Admission:
    """Evaluate /mutate, then /validate on the mutated pod."""
    mutation = mutate(rule_set, request, cluster)
    if not mutation.allowed:
        return Admission(mutation=mutation, validation=None)
    return Admission(
        mutation=mutation, validation=validate(rule_set, replace(request, object=mutation.result), cluster)
    )


def pod_request(
    pod: Json,
    *,
    namespace: str,
    operation: str = "CREATE",
    sub_resource: str = "",
    dry_run: bool = False,
    old_pod: Json = None,
) -> AdmissionRequest:
    """Return the request that the API server would make for a pod, by an anonymous user.

    `raw` has no object: expressions read the pod as the variables `object` and `oldObject`.
    """
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    known = name if isinstance(name, str) else ""
    kind: Json = {"group": "", "version": "v1", "kind": "Pod"}
    resource: Json = {"group": "", "version": "v1", "resource": "pods"}
    return AdmissionRequest(
        uid=OFFLINE_UID,
        operation=operation,
        namespace=namespace,
        name=known,
        sub_resource=sub_resource,
        dry_run=dry_run,
        object=pod,
        old_object=old_pod,
        raw={
            "uid": OFFLINE_UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": known,
            "namespace": namespace,
            "operation": operation,
            "userInfo": {"username": OFFLINE_USER, "groups": ["system:authenticated"]},
            "dryRun": dry_run,
            **({"subResource": sub_resource, "requestSubResource": sub_resource} if sub_resource else {}),
        },
    )
