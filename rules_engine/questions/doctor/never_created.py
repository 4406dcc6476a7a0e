"""Workloads with GPUs without pods: quotas, denials of webhooks and policies, webhooks that fail, and queues."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from rules_engine.accelerators.resources import is_gpu, requests_gpus_by_annotation
from rules_engine.cluster.read.kubectl import kind_name
from rules_engine.model.json.lenient import (
    Object,
    as_mapping,
    as_string_map,
    controller_reference,
    integer_member,
    object_items,
    text_member,
)
from rules_engine.model.kubernetes.cluster_objects import (
    API_KINDS,
    API_RESOURCES,
    ApiObject,
    ClusterObjects,
    PodObject,
    involved_object,
    is_about,
    owner_name,
)
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.finding import Certainty, Finding
from rules_engine.questions.doctor.deciders import is_over, last_words, queue_of, read_deciders
from rules_engine.questions.doctor.gpu_objects import LONG_AGO, last_seen, parse_timestamp, resource_names
from rules_engine.questions.doctor.reasons import NeverCreatedReason
from rules_engine.questions.doctor.wording import quote_message
from rules_engine.rules.diagnostic.catalogue import Slots, new_finding

FAILED_CREATE = "FailedCreate"
"""Reason of the Events, and of the condition ReplicaFailure of a ReplicaSet, when a pod cannot be created."""

OWN_WEBHOOKS = frozenset({*(endpoint.webhook for endpoint in Endpoint), Endpoint.MUTATE.other_pods_webhook})
"""The names of the webhooks of gpu-rules."""

# Sources: apiserver, pkg/admission/plugin/resourcequota (controller.go); plugin/webhook/errors (statuserror.go);
# pkg/util/webhook (error.go); plugin/pkg/admission (priority, runtimeclass, serviceaccount).
_EXCEEDED = re.compile(r"exceeded quota: (?P<quota>[^,\s]+), (?P<amounts>requested: [^\"]*)")
_UNSPECIFIED = re.compile(r"failed quota: (?P<quota>[^:\s]+): (?P<amounts>.*)")
_DENIED = re.compile(r'admission webhook "(?P<webhook>[^"\s]+)" denied the request(?:: (?P<why>.*))?')
_NOT_CALLED = re.compile(r'failed calling webhook "(?P<webhook>[^"\s]+)"(?:: (?P<why>.*))?')
_MISSING = re.compile(r"(PriorityClass|RuntimeClass|serviceaccount)(?: with name)? (\S+) (?:was |not )found")
_RULES = re.compile(r"(?:^|; )([A-Z][A-Za-z]+/[^\s,:;]+(?:, [A-Z][A-Za-z]+/[^\s,:;]+)*): ")
_RESOURCE = re.compile(r"[\w.-]+/[\w.-]+")
_OF_POD = re.compile(
    r'pods?(?: \\?"[^"]*" is forbidden: (?!User )|\b(?:(?!pod)[^"])*(?:admission|failed calling) webhook ")',
    re.IGNORECASE,
)
"""Texts in the reason and message of an Event that show that what was refused is a pod, not another object."""


def find_never_created(cluster: ClusterObjects, since: datetime) -> tuple[Finding, ...]:
    """Return a finding for each workload that lacks pods since the API server refused them.

    Failures are read from Events since a time, and from the condition ReplicaFailure. The workloads request GPUs, or
    their pods were refused by a quota of GPUs or by a webhook of gpu-rules.
    """
    return tuple(
        _build_finding(about, failure, cluster)
        for about, failure in sorted(_collect_failures(cluster, since).items())
        if failure.workload is None or _LACKS_PODS[about.kind](failure.workload)
        if not _is_over(about, failure, cluster) and _concerns_gpus(about, failure, cluster)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """The last failure to create a pod of a workload, None if it was not read, with the message of the API server."""

    message: str
    at: datetime | None
    workload: ApiObject | None


def _collect_failures(cluster: ClusterObjects, since: datetime) -> Mapping[ObjectName, _Failure]:
    failures: dict[ObjectName, _Failure] = {}
    for event in cluster.events:
        about, reason = involved_object(event), text_member(event, "reason")
        kind = kind_name(text_member(as_mapping(event.get("involvedObject")), "apiVersion"), about.kind)
        if not kind or (kind in API_KINDS and kind not in _LACKS_PODS):
            continue
        at = last_seen(event)
        workload = cluster.find(kind, about.name, about.namespace)
        is_read = kind in _LACKS_PODS and kind not in cluster.absent
        if (is_read and (workload is None or not is_about(event, workload))) or (at is not None and at < since):
            continue
        message = quote_message(text_member(event, "message"))
        if (kind in _LACKS_PODS and reason == FAILED_CREATE) or _OF_POD.search(f"{reason}: {message}"):
            failure = _Failure(message=message, at=at, workload=workload)
            failures[about] = max(failures.get(about, failure), failure, key=lambda failure: failure.at or LONG_AGO)
    for replica_set in cluster.of("ReplicaSet"):
        failed = replica_set.condition("ReplicaFailure")
        if text_member(failed, "reason") == FAILED_CREATE:
            # The condition is removed once pods can be created again, so it is as new as the newest Event.
            message = quote_message(text_member(failed, "message"))
            failures[replica_set.object_name] = _Failure(message=message, at=None, workload=replica_set)
    return failures


def _is_over(about: ObjectName, failure: _Failure, cluster: ClusterObjects) -> bool:
    """Return True if a workload is being deleted, or its controller created a pod after the failure."""
    if failure.workload is not None and failure.workload.metadata.get("deletionTimestamp") is not None:
        return True
    created = (parse_timestamp(pod.metadata, "creationTimestamp") for pod in cluster.pods_of(about))
    return failure.at is not None and any(at is not None and at > failure.at for at in created)


def _lacks_replicas(workload: ApiObject) -> bool:
    return integer_member(workload.status, "replicas") < integer_member(workload.spec, "replicas", 1)


def _lacks_active(job: ApiObject) -> bool:
    if any(job.condition(kind).get("status") == "True" for kind in ("Complete", "Failed", "Suspended")):
        return False
    parallelism = integer_member(job.spec, "parallelism", 1)
    left = integer_member(job.spec, "completions", parallelism) - integer_member(job.status, "succeeded")
    return integer_member(job.status, "active") < min(parallelism, left)


_LACKS_PODS: Mapping[str, Callable[[ApiObject], bool]] = {
    "Job": _lacks_active,
    "ReplicaSet": _lacks_replicas,
    "StatefulSet": _lacks_replicas,
}
"""A predicate for each kind of workload that is read: True if the workload has fewer pods than it should."""


def _concerns_gpus(about: ObjectName, failure: _Failure, cluster: ClusterObjects) -> bool:
    refused = _DENIED.search(failure.message) or _NOT_CALLED.search(failure.message)
    is_own = refused is not None and refused["webhook"] in OWN_WEBHOOKS
    if is_own or any(map(is_gpu, _RESOURCE.findall(failure.message))):
        return True
    template = as_mapping(failure.workload.spec.get("template")) if failure.workload is not None else {}
    specs = (as_mapping(template.get("spec")), *(pod.spec for pod in cluster.pods_of(about)))
    return any(is_gpu(name) for spec in specs for name in resource_names(spec))


def _build_finding(about: ObjectName, failure: _Failure, cluster: ClusterObjects) -> Finding:
    reason, case, slots, evidence = _parse_refusal(about, failure.message, cluster)
    objects = API_RESOURCES.get(about.kind, f"objects of the kind {about.kind}")
    unread = [f"{objects} were not read: the workload may have its pods by now"] if failure.workload is None else []
    return new_finding(
        reason,
        about,
        case=case,
        slots=slots,
        evidence=(*evidence, *unread),
        certainty=Certainty.POSSIBLE if unread else None,
    )


def _parse_refusal(
    about: ObjectName, message: str, cluster: ClusterObjects
) -> tuple[NeverCreatedReason, str, Slots, Sequence[str]]:
    """Return the reason, the case and the slots of a refusal, and evidence."""
    exceeded = _EXCEEDED.search(message)
    quota_match = exceeded or _UNSPECIFIED.search(message)
    if quota_match is not None:
        quota = quota_match["quota"]
        evidence = [quota_match["amounts"], *_quota_lines(cluster.find("ResourceQuota", quota, about.namespace))]
        return NeverCreatedReason.QUOTA, "" if exceeded else "NoAmount", {"quota": quota}, evidence
    refused = _DENIED.search(message) or _NOT_CALLED.search(message)
    if refused is None:
        missing = _MISSING.search(message)
        slots = {"missing": " ".join(missing.groups())} if missing is not None else {}
        return NeverCreatedReason.OTHER, "Missing" if slots else "", slots, (message,)
    webhook, why = refused["webhook"], refused["why"] or ""
    evidence = [why] if why else []
    if refused.re is _NOT_CALLED:
        return NeverCreatedReason.WEBHOOK_FAILED, "", {"webhook": webhook}, evidence
    rules = [name for names in _RULES.findall(why) for name in names.split(", ")] if webhook in OWN_WEBHOOKS else []
    if rules:
        return NeverCreatedReason.DENIED_BY_RULE, "", {"rules": rules}, evidence
    return NeverCreatedReason.DENIED_BY_WEBHOOK, "", {"webhook": webhook}, evidence


def _quota_lines(quota: ApiObject | None) -> Iterator[str]:
    status = quota.status if quota is not None else {}
    used, hard = as_string_map(status.get("used")), as_string_map(status.get("hard"))
    amounts = [f"{resource} {used.get(resource, '0')} of {most}" for resource, most in hard.items() if is_gpu(resource)]
    if quota is not None and amounts:
        yield f"quota {quota.name} now: {', '.join(amounts)}"


def find_not_admitted(cluster: ClusterObjects) -> tuple[Finding, ...]:
    """Return a finding for each workload with GPUs that waits in a queue, and of which no pod exists.

    Of a suspended Job, and of pods that wait for Kueue themselves, with a scheduling gate, only claims that Kueue
    refuses are a finding here.
    """

    @cache
    def has_pods(owner: ObjectName) -> bool:
        return owner.kind == "Pod" or not all(map(is_finished, cluster.pods_of(owner)))

    queued = [
        _refused_claims(item) or _queue_finding(kind, item)
        for kind in read_deciders()["queued"]
        for item in cluster.of(kind)
        if item.condition("Admitted").get("status") != "True" and not is_over(item)
        if text_member(item.status, "phase") in ("", "Pending")  # of Volcano
        if _requests_gpus(item) and not has_pods(_owner(item))
    ]
    known = {each.object for each in queued}
    others = {found.object: found for each in _in_kueue(cluster) if (found := _refused_claims(each))}
    return (*queued, *(found for about, found in others.items() if about not in known))


def _in_kueue(cluster: ClusterObjects) -> Iterator[ApiObject]:
    """Yield the suspended Jobs and the gated pods that wait for a queue of Kueue."""
    label, gate = read_deciders()["kueue"]
    for job in cluster.of("Job"):
        if label in as_mapping(job.metadata.get("labels")) and job.spec.get("suspend"):
            yield job
    for pod in cluster.pods:
        if any(each.get("name") == gate for each in object_items(pod.spec.get("schedulingGates"))):
            yield pod


def _refused_claims(item: ApiObject) -> Finding | None:
    """Return a finding if Kueue refuses a claim of the pods of a Workload, of a Job, or of a pod."""
    claims = (claim for spec in _pod_specs(item) for claim in object_items(spec.get("resourceClaims")))
    refused = dict.fromkeys(quote_message(part) for claim in claims for part in _refused_parts(claim, item))
    if not refused:
        return None
    words = [f"{source}: {text}" for _, source, text in last_words(item)]
    certain = any(each in text for each in read_deciders()["refusals of claims"] for text in words)
    return new_finding(
        NeverCreatedReason.CLAIM_REFUSED,
        _owner(item),
        slots={"claims": [*refused]},
        evidence=words,
        certainty=Certainty.CERTAIN if certain else None,
        since=parse_timestamp(item.metadata, "creationTimestamp"),
    )


def _refused_parts(claim: Object, item: ApiObject) -> Iterator[str]:
    """Yield what Kueue refuses in a pod's claim. Of a template that was not read, this is unknown."""
    refused, name = read_deciders()["refused"], text_member(claim, "resourceClaimTemplateName")
    yield from (f"{member} {text_member(claim, member)}" for member in claim if member in refused)
    template = item.cluster.find("ResourceClaimTemplate", name, item.namespace)
    spec = as_mapping(template.spec.get("spec")) if template else {}
    for request in object_items(as_mapping(spec.get("devices")).get("requests")):
        exactly = as_mapping(request.get("exactly"))
        values = [] if exactly.get("adminAccess") is True else [f"{key}={value}" for key, value in exactly.items()]
        for member in (*request, *values):
            if member in refused:
                yield f"{member} in request {text_member(request, 'name')} of ResourceClaimTemplate {name}"


def _pod_specs(item: ApiObject) -> Sequence[Object]:
    if isinstance(item, PodObject):
        return [item.spec]
    owners = object_items(item.spec.get("podSets")) or [item.spec]
    return [as_mapping(as_mapping(each.get("template")).get("spec")) for each in owners]


def _requests_gpus(item: ApiObject) -> bool:
    templates = [as_mapping(each.get("template")) for each in object_items(item.spec.get("podSets"))]
    specs = _pod_specs(item)
    names = [name.removeprefix("requests.") for name in as_mapping(item.spec.get("minResources"))]
    names += [name for each in specs for name in resource_names(each)]
    claims = any(each.get("resourceClaims") for each in specs)
    return claims or any(map(is_gpu, names)) or any(map(requests_gpus_by_annotation, templates))


def _owner(item: ApiObject) -> ObjectName:
    references = object_items(item.metadata.get("ownerReferences"))
    reference = controller_reference(item) or next(iter(references), None)
    return item.object_name if reference is None else owner_name(reference, item)


def _queue_finding(kind: str, item: ApiObject) -> Finding:
    words, queue = last_words(item), queue_of(item)
    said = words[0][2] if words else "it has not said why yet"
    slots = {"queue": f"queue {queue}" if queue else "no queue", "workload": item.name, "words": said}
    return new_finding(
        NeverCreatedReason.NOT_ADMITTED,
        _owner(item),
        slots={**slots, "kinds": API_KINDS[kind].resource},
        evidence=tuple(f"{source}: {text}" for _, source, text in words[1:]),
        since=parse_timestamp(item.metadata, "creationTimestamp"),
    )
