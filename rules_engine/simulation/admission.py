"""Admission of arriving pods by rules. Equal pods with equal decisions share all that is made of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.admission import Admission, validation_request
from rules_engine.evaluation.decision_cache import DecisionCache
from rules_engine.evaluation.fingerprint import marshal_value
from rules_engine.model.json.edits import Edits
from rules_engine.model.json.lenient import Object, mapping, text
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.admission import Endpoint, pod_request
from rules_engine.model.rules.rule import LabelSelector, RuleId
from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.scheduling.cycle import SchedulablePod
from rules_engine.scheduling.requirements import priority_of
from rules_engine.scheduling.scheduler import NAMESPACE_SELECTORS
from rules_engine.simulation.node_states import grace_of
from rules_engine.simulation.record import AdmittedPod, Amounts, Fall

SCHEDULING_GATES = "scheduling gates"


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A whole pod as its controller creates it in a namespace, or a Pod that gets its name; compared by identity.

    `selector` is that of a ReplicaSet or StatefulSet.
    """

    pod: Mapping[str, Json]
    namespace: str
    selector: LabelSelector | None = None

    @property
    def is_generated(self) -> bool:
        """True if the API server makes the pods' names after /mutate, so that decisions do not depend on them."""
        return not text(mapping(self.pod.get("metadata")), "name")

    def named(self, name: str) -> dict[str, Json]:
        """Return the pod with its name."""
        metadata: dict[str, Json] = {**mapping(self.pod.get("metadata")), "name": name}
        return {**self.pod, "metadata": metadata}


class Admitted(Struct, frozen=True):
    """A pod after admission; `pod` is None if it was denied.

    `grace`: the time that it stays on a node that is not ready; None: it is never evicted.
    """

    record: AdmittedPod
    priority: int
    pod: SchedulablePod | None = None
    grace: Milliseconds | None = None


class Admissions:
    """The decisions of a rule set on arriving pods."""

    def __init__(self, rule_set: RuleSet, *, namespaces_read: bool) -> None:
        self._namespaces_read = namespaces_read
        self._mutate = DecisionCache(rule_set, Endpoint.MUTATE)
        self._validate = DecisionCache(rule_set, Endpoint.VALIDATE)
        self._cluster = UNKNOWN_CLUSTER
        self._latest: dict[Template, Admitted] = {}
        """Decisions on generated pods with the same view of the cluster."""
        self._requested: dict[Template, Amounts] = {}
        self._admitted: dict[tuple[Template, object], Admitted] = {}
        self._pods: dict[tuple[bytes, LabelSelector | None], SchedulablePod] = {}

    def admit(self, template: Template, name: str, cluster: Cluster) -> Admitted:
        """Return the pod of a name after the decisions of both endpoints."""
        if cluster is not self._cluster:
            self._cluster, self._latest = cluster, {}
        found = self._latest.get(template)
        if found is None:
            if template.is_generated:
                found = self._latest[template] = self._decided(template, template.pod, cluster)
            else:
                found = self._decided(template, template.named(name), cluster)
        return found

    def existing(self, template: Template, deleted: Json) -> Admitted:
        """Return a pod that was admitted before the simulation; without `pod` if it cannot be read.

        `deleted`: its deletionTimestamp, which a pod that replaces it does not have.
        """
        key = (template, deleted is not None)
        found = self._admitted.get(key)
        if found is None:
            metadata = {**mapping(template.pod.get("metadata")), "deletionTimestamp": deleted}
            found = self._admitted[key] = self._made(template, {**template.pod, "metadata": metadata}, (), ())
        return found

    def _decided(self, template: Template, pod: Mapping[str, Json], cluster: Cluster) -> Admitted:
        request = pod_request(dict(pod), namespace=template.namespace)
        mutation = self._mutate(request, cluster)
        validation = None
        if mutation.allowed:
            validation = self._validate(validation_request(request, mutation.result), cluster)
        admission = Admission(mutation=mutation, validation=validation)
        if not admission.allowed:
            by = next((step.rule for step in admission.trace if step.denies), None)
            return self._denied(template, admission.message, admission.warnings, by)
        falls = tuple(self._falls(template, admission))
        key = (template, (_hashable(mutation.edits), falls, admission.warnings))
        found = self._admitted.get(key)
        if found is None:
            found = self._admitted[key] = self._made(template, mapping(mutation.result), falls, admission.warnings)
        return found

    def _denied(self, template: Template, message: str, warnings: tuple[str, ...], by: RuleId | None) -> Admitted:
        record = AdmittedPod(
            requested=self._requested_by(template), given={}, warnings=warnings, message=message, denied_by=by
        )
        return Admitted(record, priority_of(mapping(template.pod.get("spec"))))

    def _made(self, template: Template, pod: Object, falls: tuple[Fall, ...], warnings: tuple[str, ...]) -> Admitted:
        try:
            found = self._schedulable(template, pod)
            given = Pod.parse(dict(pod)).effective_requests()
        except (PodError, TooLargeError) as error:
            # The API server refuses it, or it is beyond a bound of the model.
            return self._denied(template, str(error), warnings, None)
        spec = mapping(pod.get("spec"))
        record = AdmittedPod(
            requested=self._requested_by(template),
            given=given,
            falls=falls,
            warnings=warnings,
            not_modelled=tuple(self._not_modelled(found, spec)),
        )
        return Admitted(record, found.requirements.priority, found, grace_of(spec))

    def _not_modelled(self, pod: SchedulablePod, spec: Object) -> Iterator[str]:
        yield from pod.requirements.not_modelled
        if spec.get("schedulingGates"):
            yield SCHEDULING_GATES
        if not self._namespaces_read:
            preferred = [weighted.term for weighted in pod.preferences.pod_affinity]
            terms = (*pod.requirements.affinity, *pod.requirements.anti_affinity, *preferred)
            if any(term.namespace_selector for term in terms):
                yield NAMESPACE_SELECTORS

    def _schedulable(self, template: Template, pod: Object) -> SchedulablePod:
        """Return the one value of all pods that are equal to the scheduler."""
        metadata = mapping(pod.get("metadata"))
        kept = {name: metadata.get(name) for name in ("labels", "deletionTimestamp")}
        raw: dict[str, Json] = {"metadata": {"namespace": template.namespace, **kept}, "spec": pod.get("spec")}
        key = (marshal_value([raw]), template.selector)
        found = self._pods.get(key)
        if found is None:
            found = self._pods[key] = SchedulablePod.of(raw, template.selector)
        return found

    def _requested_by(self, template: Template) -> Amounts:
        found = self._requested.get(template)
        if found is None:
            try:
                found = Pod.parse(dict(template.pod)).effective_requests()
            except PodError:
                found = {}
            self._requested[template] = found
        return found

    def _falls(self, template: Template, admission: Admission) -> Sequence[Fall]:
        requested = self._requested_by(template)
        return [
            Fall(step.rule, decision.resource, decision.to, requested.get(decision.resource, 0) // NANOS)
            for step in admission.trace
            if not step.audit
            for decision in step.resources
            if decision.to is not None
        ]


def _hashable(edits: Edits) -> object:
    return tuple((path, tuple(members.items())) for path, members in edits.items())
