"""Pods that wait for something other than a node: scheduling gates, volume claims, and what is not evaluated."""

import re
from collections.abc import Iterator, Sequence

from rules_engine.accelerators.resources import scheduler_for
from rules_engine.cluster.scheduling import DEFAULT_SCHEDULER
from rules_engine.cluster.scheduling.bound_volumes import claim_names, users_of
from rules_engine.model.json.lenient import object_items, text_member
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.rules.finding import Certainty
from rules_engine.model.wording import MAX_JOINED, join_names
from rules_engine.questions.doctor.pending.nodes import PendingNodes
from rules_engine.questions.doctor.pending.request import PendingExplanation, PendingRequest
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.questions.doctor.wording import quote_message
from rules_engine.rules.diagnostic.texts import read_texts

CLAIM = "PersistentVolumeClaim"

LATE_BINDING_REASONS = frozenset({"WaitForFirstConsumer", "WaitForPodScheduled"})
"""Reasons of Events of a claim that is bound only after its pod has a node (pkg/controller/volume/events)."""

_COUNTED_NODES = re.compile(r"0/[0-9]+ nodes are available: [0-9]")
"""The start of the scheduler's message that counts the nodes for each reason."""

UNBOUND_CLAIMS = "unbound immediate PersistentVolumeClaims"
"""Words in the scheduler's message about claims that must be bound before the pod has a node."""


def explain_gates(pod: PodObject) -> Iterator[PendingExplanation]:
    """Explain a pod if it has scheduling gates."""
    gates, known = object_items(pod.spec.get("schedulingGates")), read_texts().gates
    names = [text_member(gate, "name") for gate in gates]
    removers = [f"{name} is removed by {known[name]}" for name in names if name in known]
    if gates:
        slots, evidence = {"gates": names}, tuple(removers)
        yield PendingExplanation(reason=PendingReason.SCHEDULING_GATES, slots=slots, evidence=evidence)


def explain_unset_scheduler(
    pod: PodObject, request: PendingRequest, view: PendingNodes
) -> Iterator[PendingExplanation]:
    """Explain a pod of the default scheduler with a resource that only another one knows, and no node offers."""
    own = text_member(pod.spec, "schedulerName") or DEFAULT_SCHEDULER
    others = {each: by for each in request.amounts if (by := scheduler_for(each)) and not view.offering(each)}
    if own == DEFAULT_SCHEDULER and others:
        first = next(iter(others.values()))
        slots = {"resources": [*others], "scheduler": first.name, "own": own, "webhook": first.webhook}
        yield PendingExplanation(reason=PendingReason.SCHEDULER_UNSET, slots=slots)


def explain_unbound_claims(pod: PodObject, recorded: str) -> Iterator[PendingExplanation]:
    """Explain a pod if volume claims of it are not bound; `recorded`: the scheduler's message.

    The explanation has the case Late for claims of which it is not known if they keep the pod off every node.
    """
    found = [*_find_unbound_claims(pod, pod.cluster, recorded)]
    for case in "", "Late":
        claims = {name: state for name, state, certain in found if certain is not bool(case)}
        if claims:
            yield PendingExplanation(
                reason=PendingReason.VOLUME_CLAIMS,
                case=case,
                slots={"claims": [*claims], "claim": next(iter(claims))},
                evidence=tuple(f"{name} {state}" for name, state in claims.items()),
            )


def _find_unbound_claims(pod: PodObject, cluster: ClusterObjects, recorded: str) -> Iterator[tuple[str, str, bool]]:
    """Yield volume claims that are not bound, with their state; True: it keeps the pod off every node."""
    for name in claim_names(pod) if CLAIM not in cluster.absent else ():
        claim = cluster.find(CLAIM, name, pod.namespace)
        if claim is None:
            yield (name, "does not exist", True)
        elif claim.metadata.get("deletionTimestamp") is not None:
            yield (name, "is being deleted", True)
        elif (phase := text_member(claim.status, "phase")) == "Lost":
            yield (name, "is Lost: its volume does not exist", True)
        elif phase != "Bound":
            class_name = claim.spec.get("storageClassName")
            storage_class = cluster.find("StorageClass", text_member(claim.spec, "storageClassName"))
            mode = text_member(storage_class or {}, "volumeBindingMode")
            events = cluster.events_about(claim)
            late = mode == "WaitForFirstConsumer"
            if not late and LATE_BINDING_REASONS.isdisjoint(text_member(event, "reason") for event in events):
                immediate = storage_class is not None or class_name == "" or UNBOUND_CLAIMS in recorded
                yield (name, f"is {phase or 'not bound'}", immediate)


def explain_claims_in_use(pod: PodObject) -> Iterator[PendingExplanation]:
    """Explain a pod if other pods use a volume claim that only one pod at a time may use (ReadWriteOncePod)."""
    for name in claim_names(pod):
        claim = pod.cluster.find(CLAIM, name, pod.namespace)
        if claim is not None and (others := users_of(claim)):
            yield PendingExplanation(reason=PendingReason.CLAIM_IN_USE, slots={"claim": name, "pods": others})


def explain_by_message(
    pod: PodObject, recorded: str, unknown: Sequence[str], feasible: Sequence[str] = (), said: Sequence[str] = ()
) -> PendingExplanation:
    """Return the scheduler's message as the reason of a pod for which no other reason is known to be true.

    `unknown`: the parts of the pod that were not evaluated. `feasible`: the nodes that pass all filters. `said`: the
    quoted words of those who decide.
    """
    cluster, quoted = pod.cluster, {each.partition(": ")[2] for each in said}
    claims = [claim for name in claim_names(pod) if (claim := cluster.find(CLAIM, name, pod.namespace))]
    events = {
        f"event {text_member(event, 'reason')} of {about.object_name}: {message}"
        for about in (pod, *claims)
        for event in cluster.events_about(about)
        if text_member(event, "reason") != "FailedScheduling"
        if (message := quote_message(text_member(event, "message"))) not in quoted
    }
    # If nodes pass all filters, the cluster has changed since the scheduler counted them.
    outdated = bool(feasible and not unknown and _COUNTED_NODES.match(recorded))
    scheduler = text_member(pod.spec, "schedulerName") or DEFAULT_SCHEDULER
    return PendingExplanation(
        reason=PendingReason.SCHEDULER_MESSAGE if recorded else PendingReason.NO_SCHEDULER_MESSAGE,
        case="Other" if recorded and scheduler != DEFAULT_SCHEDULER else "",
        slots={"scheduler": scheduler, "recorded": recorded},
        certainty=Certainty.POSSIBLE if outdated else None,
        evidence=(
            *(f"not evaluated: {each}" for each in unknown),
            *(
                [f"nodes that pass {'the other' if unknown else 'all'} filters: {join_names(feasible)}"]
                if feasible
                else []
            ),
            *sorted(events)[:MAX_JOINED],
        ),
    )
