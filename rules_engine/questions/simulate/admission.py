"""Admission of arriving pods by rules. Equal pods with equal decisions share one result."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from marshal import dumps
from typing import Any

from msgspec import Struct
from msgspec.structs import replace as replace_members

from rules_engine.cluster.creation.controllers import ORDINAL_LABELS, has_ordinal, with_ordinal
from rules_engine.cluster.creation.plugins import ApiServer, CreatedPod
from rules_engine.cluster.scheduling.cycle import SchedulablePod
from rules_engine.cluster.scheduling.requirements import NOT_READY, Requirements, priority_of
from rules_engine.cluster.scheduling.scheduler import NAMESPACE_SELECTORS
from rules_engine.model.json.lenient import Object, as_mapping, integer_member, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS, NanosByResource
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.decision import resource_of
from rules_engine.model.rules.rule import LabelSelector, RuleId
from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.questions.simulate.record import AdmittedPod, Fallback
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.admission import Admission, validation_request

SCHEDULING_GATES = "scheduling gates"

DEFAULT_GRACE: Milliseconds = 300_000
"""Time that a pod without a toleration for it stays on a node that is not ready."""

_FOREVER = 2**63 - 1
_NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A pod as its controller creates it in a namespace, or a Pod without its name; compared by identity.

    `selector`: of a ReplicaSet or StatefulSet. `claims`: the volume claims that a StatefulSet makes, by volume.
    """

    pod: Mapping[str, Json]
    namespace: str
    selector: LabelSelector | None = None
    claims: Mapping[str, Object] = field(default_factory=dict)

    @property
    def is_generated(self) -> bool:
        """True if the API server generates the pods' names after /mutate, so that decisions do not depend on them."""
        return not (text_member(as_mapping(self.pod.get("metadata")), "name") or has_ordinal(self.pod))


class Admitted(Struct, frozen=True):
    """A pod after admission; `pod` is None if it was denied.

    `object`: the pod as JSON. `grace`: time on a node that is not ready before its eviction; None: never evicted.
    """

    record: AdmittedPod
    priority: int
    object: Object
    pod: SchedulablePod | None = None
    grace: Milliseconds | None = None


class Admissions:
    """The decisions of a rule set on arriving pods."""

    def __init__(
        self,
        rule_set: RuleSet,
        api_server: ApiServer,
        *,
        namespaces_read: bool,
        devices_not_modelled: Callable[[Requirements], Iterable[str]],
    ) -> None:
        self._namespaces_read = namespaces_read
        self._devices_not_modelled = devices_not_modelled
        self.with_volumes: Callable[[Object, Template], Object] = lambda pod, _template: pod
        """Return an admitted pod of a template as the scheduler sees its volumes; by default, unchanged."""
        self._rule_set = rule_set
        self._api_server = api_server
        self._created: dict[Template, CreatedPod] = {}
        self._stored: dict[tuple[Template, object], CreatedPod] = {}
        self._cluster = UNKNOWN_CLUSTER
        self._latest: dict[Template, Admitted] = {}
        """Decisions on generated pods with the same view of the cluster."""
        self._requested: dict[Template, NanosByResource] = {}
        self._admitted: dict[tuple[Template, object], Admitted] = {}
        self._pods: dict[tuple[bytes, LabelSelector | None], SchedulablePod] = {}

    def admit(self, template: Template, name: str, cluster: Cluster) -> Admitted:
        """Return the pod with this name after the decisions of both endpoints."""
        if cluster is not self._cluster:
            self._cluster, self._latest = cluster, {}
        admitted = self._latest.get(template)
        if admitted is None:
            if template.is_generated:
                admitted = self._latest[template] = self._decide(template, "", cluster)
            else:
                admitted = self._decide(template, name, cluster)
        return admitted

    def admit_existing(self, template: Template, deleted: Json) -> Admitted:
        """Return a pod that was admitted before the simulation; without `pod` if the pod is malformed.

        `deleted`: its deletionTimestamp, which a replacement does not have.
        """
        key = (template, deleted is not None)
        admitted = self._admitted.get(key)
        if admitted is None:
            metadata = {**as_mapping(template.pod.get("metadata")), "deletionTimestamp": deleted}
            admitted = self._admitted[key] = self._build_admitted(
                template, {**template.pod, "metadata": metadata}, (), ()
            )
        return admitted

    def _decide(self, template: Template, name: str, cluster: Cluster) -> Admitted:
        """Decide about a pod of a template. `name`: "" if the API server generates it."""
        # Most plugins do not read names: then what they add is the same for each pod of a template.
        varies = bool(name) and (self._api_server.reads_names or has_ordinal(template.pod))
        created = None if varies else self._created.get(template)
        if created is None:
            pod = with_ordinal(template.pod, name) if name else template.pod
            created = self._api_server.create(pod, template.namespace)
            if not varies:  # else no other pod has it
                self._created[template] = created
        created = _with_name(created, name)
        if created.refusal:
            return self._build_denied(template, created.pod, created.refusal, unknown=created.unknown)
        request = pod_request(dict(created.pod), namespace=template.namespace)
        mutation = self._rule_set.mutate(request, cluster, indexed=True)
        validation, refusal = None, ""
        edits = tuple((path, tuple(members.items())) for path, members in mutation.edits.items())
        if mutation.allowed:
            stored = None if varies else self._stored.get((template, edits))
            if stored is None:
                stored = self._api_server.store(created, as_mapping(mutation.result), template.namespace)
                if not varies:
                    self._stored[template, edits] = stored
            stored = created = _with_name(stored, name)
            refusal = stored.refusal
            validation = self._rule_set.validate(validation_request(request, {**stored.pod}), cluster, indexed=True)
        admission = Admission(request=request, mutation=mutation, validation=validation, refusal=refusal)
        steps = [step for step in admission.trace if step.cluster_unknown and not step.audit]
        unknown = (*created.unknown, *(f"{step.rule}: {step.message}" for step in steps))
        if not admission.allowed:
            by = next((step.rule for step in admission.trace if step.denies), None)
            denied = self._build_denied(template, created.pod, admission.message, admission.warnings, by, unknown)
            return replace_members(denied, record=replace_members(denied.record, undecided=bool(steps)))
        requested = self._requested_by(template)
        fallbacks = tuple(
            Fallback(
                rule=step.rule,
                requested=each.resource,
                given=each.to,
                devices=requested.get(resource_of(each.resource), 0) // NANOS,
            )
            for step in admission.trace
            if not step.audit
            for each in step.resources
            if each.to is not None
        )
        decided = (edits, fallbacks, admission.warnings)
        admitted = None if varies else self._admitted.get((template, decided))
        if admitted is None:
            admitted = self._build_admitted(template, created.pod, fallbacks, admission.warnings, unknown)
            # Pods that differ only by their ordinals are equal to the scheduler.
            key = (id(admitted.pod), *decided) if varies else decided
            admitted = self._admitted.setdefault((template, key), admitted)
        return admitted

    def _build_denied(
        self,
        template: Template,
        pod: Object,
        message: str,
        warnings: tuple[str, ...] = (),
        by: RuleId | None = None,
        unknown: tuple[str, ...] = (),
    ) -> Admitted:
        record = AdmittedPod(
            requested=self._requested_by(template),
            given={},
            warnings=warnings,
            message=message,
            denied_by=by,
            not_modelled=unknown,
        )
        return Admitted(record, priority_of(as_mapping(pod.get("spec"))), template.pod)

    def _build_admitted(
        self,
        template: Template,
        pod: Object,
        fallbacks: tuple[Fallback, ...],
        warnings: tuple[str, ...],
        unknown: tuple[str, ...] = (),
    ) -> Admitted:
        pod = self.with_volumes(pod, template)
        try:
            schedulable = self._schedulable(template, pod)
            amounts = Pod.parse(dict(pod)).effective_requests()
        except (PodError, TooLargeError) as error:
            # The API server refuses the pod, or it exceeds a bound of the model.
            return self._build_denied(template, pod, str(error), warnings)
        spec = as_mapping(pod.get("spec"))
        record = AdmittedPod(
            requested=self._requested_by(template),
            given=amounts,
            fallbacks=fallbacks,
            warnings=warnings,
            not_modelled=(*self._not_modelled(schedulable, spec), *unknown),
        )
        return Admitted(record, schedulable.requirements.priority, pod, schedulable, _grace_period(spec))

    def _not_modelled(self, pod: SchedulablePod, spec: Object) -> Iterator[str]:
        yield from pod.requirements.not_modelled
        yield from self._devices_not_modelled(pod.requirements)
        if spec.get("schedulingGates"):
            yield SCHEDULING_GATES
        if not self._namespaces_read:
            preferred = [weighted.term for weighted in pod.preferences.pod_affinity]
            terms = (*pod.requirements.affinity, *pod.requirements.anti_affinity, *preferred)
            if any(term.namespace_selector for term in terms):
                yield NAMESPACE_SELECTORS

    def _schedulable(self, template: Template, pod: Object) -> SchedulablePod:
        """Return the value that all pods share that are equal to the scheduler."""
        metadata = as_mapping(pod.get("metadata"))
        kept = {name: metadata.get(name) for name in ("labels", "deletionTimestamp")}
        spec = pod.get("spec")
        if has_ordinal(pod):
            kept["labels"], spec = _without_ordinal(as_mapping(kept["labels"]), as_mapping(spec))
        raw: dict[str, Json] = {"metadata": {"namespace": template.namespace, **kept}, "spec": spec}
        key = (marshal_value([raw]), template.selector)
        schedulable = self._pods.get(key)
        if schedulable is None:
            schedulable = self._pods[key] = SchedulablePod.of(raw, template.selector)
        return schedulable

    def _requested_by(self, template: Template) -> NanosByResource:
        requests = self._requested.get(template)
        if requests is None:
            try:
                requests = Pod.parse(dict(template.pod)).effective_requests()
            except PodError:
                requests = {}
            self._requested[template] = requests
        return requests


def _with_name(created: CreatedPod, name: str) -> CreatedPod:
    metadata = as_mapping(created.pod.get("metadata"))
    if not name or "name" not in metadata or metadata["name"] == name:
        return created
    return replace(created, pod={**created.pod, "metadata": {**metadata, "name": name}})


def _without_ordinal(labels: Object, spec: Object) -> tuple[Json, Json]:
    """Return the labels and the spec of a pod without what only its ordinal makes, unless its own selectors read it."""
    text = str(spec.get("affinity")) + str(spec.get("topologySpreadConstraints"))
    kept = {key: value for key, value in labels.items() if key not in ORDINAL_LABELS or key in text}
    return kept, {name: value for name, value in spec.items() if name != "hostname"}


def marshal_value(value: list[Any]) -> bytes:
    """Encode a JSON value as a key: different values have different bytes."""
    # From version 3 on, the bytes depend on reference counts too, and so equal values may have different ones.
    return dumps(value, 2)


def _grace_period(spec: Object) -> Milliseconds | None:
    """Return the time that a pod stays on a node that is not ready; None: it is never evicted.

    Source: pkg/controller/tainteviction, plugin/pkg/admission/defaulttolerationseconds.
    """
    tolerations = [
        toleration
        for toleration in object_items(spec.get("tolerations"))
        if text_member(toleration, "key") in ("", NOT_READY) and text_member(toleration, "effect") in ("", _NO_EXECUTE)
    ]
    if not tolerations:
        return DEFAULT_GRACE
    for toleration in tolerations:
        equal = text_member(toleration, "key") == NOT_READY and not text_member(toleration, "value")
        if text_member(toleration, "operator") == "Exists" or (
            text_member(toleration, "operator") in ("", "Equal") and equal
        ):
            seconds = integer_member(toleration, "tolerationSeconds", _FOREVER)
            return None if seconds == _FOREVER else max(seconds, 0) * 1000
    return 0
