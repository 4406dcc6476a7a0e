"""Pods that wait for something other than resources: other filters, scheduling gates and volume claims."""

import re
from collections.abc import Iterator, Sequence

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling import DEFAULT_SCHEDULER, Filter, Scheduling
from rules_engine.cluster.scheduling.requirements import read_spread_constraints
from rules_engine.model.json.lenient import Object, as_mapping, as_string_map, object_items, text_member
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.rules.finding import Certainty
from rules_engine.model.wording import join_names
from rules_engine.questions.doctor.pending.request import PendingExplanation
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.questions.doctor.wording import quote_message

CLAIM = "PersistentVolumeClaim"

LATE_BINDING_REASONS = frozenset({"WaitForFirstConsumer", "WaitForPodScheduled"})
"""Reasons of Events of a claim that is bound only after its pod has a node (pkg/controller/volume/events)."""

_COUNTED_NODES = re.compile(r"0/[0-9]+ nodes are available: [0-9]")
"""The start of the scheduler's message that counts the nodes for each reason."""

UNBOUND_CLAIMS = "unbound immediate PersistentVolumeClaims"
"""Words in the scheduler's message about claims that must be bound before the pod has a node."""


def explain_other_filters(pod: PodObject, scheduling: Scheduling, room: NodeSet) -> PendingExplanation | None:
    """Explain a pod if other filters exclude all nodes on which it fits."""
    if room & scheduling.passing:
        return None
    excluding = [
        (name, why if why == scheduling.rejected else f"{nodes.bit_count()} {why}")
        for name, reasons in scheduling.excluded.items()
        for why, excluded in reasons.items()
        if (nodes := excluded & room)
    ]
    filters = [*dict.fromkeys(name for name, _ in excluding)]
    constraints = [
        f"topology spread constraint: maxSkew {each.max_skew} over {each.topology_key}, of pods with {each.selector}"
        for each in read_spread_constraints(pod.spec, as_string_map(pod.metadata.get("labels")), "DoNotSchedule")
    ]
    return PendingExplanation(
        reason=PendingReason.OTHER_FILTERS,
        slots={"exclusions": [count for _, count in excluding], "filters": filters},
        evidence=(
            f"enough of everything is free on {join_names(scheduling.names(room))}",
            *(constraints if Filter.POD_TOPOLOGY_SPREAD in filters else ()),
        ),
    )


def explain_gates(pod: PodObject) -> PendingExplanation | None:
    """Explain a pod if it has scheduling gates."""
    gates = gates_of(pod)
    return PendingExplanation(reason=PendingReason.SCHEDULING_GATES, slots={"gates": gates}) if gates else None


def gates_of(pod: PodObject) -> Sequence[str]:
    """Return the names of a pod's scheduling gates."""
    return [text_member(gate, "name") for gate in object_items(pod.spec.get("schedulingGates"))]


def explain_unbound_claims(pod: PodObject, cluster: ClusterObjects, recorded: str) -> PendingExplanation | None:
    """Explain a pod if volume claims of it are not bound; `recorded`: the scheduler's message."""
    if CLAIM in cluster.absent:
        return None
    claims = [*_find_unbound_claims(pod, cluster, recorded)]
    if not claims:
        return None
    # Claims that certainly keep the pod off every node come first.
    claims.sort(key=lambda claim: not claim[2])
    first, _, certain = claims[0]
    return PendingExplanation(
        reason=PendingReason.VOLUME_CLAIMS,
        case="" if certain else "Late",
        slots={"claims": [name for name, _, _ in claims], "claim": first},
        evidence=tuple(f"{name} {state}" for name, state, _ in claims),
    )


def _find_unbound_claims(pod: PodObject, cluster: ClusterObjects, recorded: str) -> Iterator[tuple[str, str, bool]]:
    """Yield volume claims that are not bound, with their state; True: it keeps the pod off every node."""
    for name in dict.fromkeys(_claim_names(pod)):
        claim = cluster.find(CLAIM, name, pod.namespace)
        if claim is None:
            yield (name, "does not exist", True)
        elif claim.metadata.get("deletionTimestamp") is not None:
            yield (name, "is being deleted", True)
        elif (phase := text_member(claim.status, "phase")) == "Lost":
            yield (name, "is Lost: its volume does not exist", True)
        elif phase != "Bound":
            events = cluster.events_about(claim)
            if LATE_BINDING_REASONS.isdisjoint(text_member(event, "reason") for event in events):
                yield (name, f"is {phase or 'not bound'}", UNBOUND_CLAIMS in recorded)


def _claim_names(pod: PodObject) -> Iterator[str]:
    volumes: Sequence[Object] = object_items(pod.spec.get("volumes"))
    for volume in volumes:
        claim = text_member(as_mapping(volume.get("persistentVolumeClaim")), "claimName")
        if claim:
            yield claim
        elif "ephemeral" in volume:
            yield f"{pod.name}-{text_member(volume, 'name')}"


def explain_by_message(
    pod: PodObject, cluster: ClusterObjects, recorded: str, unknown: Sequence[str], feasible: Sequence[str] = ()
) -> PendingExplanation:
    """Return the scheduler's message as the reason of a pod for which no other reason is known to be true.

    `unknown`: the parts of the pod that were not evaluated. `feasible`: the nodes that pass all filters.
    """
    claims = [claim for name in dict.fromkeys(_claim_names(pod)) if (claim := cluster.find(CLAIM, name, pod.namespace))]
    events = {
        f"event {text_member(event, 'reason')} of {about.object_name}: {quote_message(text_member(event, 'message'))}"
        for about in (pod, *claims)
        for event in cluster.events_about(about)
        if text_member(event, "reason") != "FailedScheduling"
    }
    # If nodes pass all filters, the cluster has changed since the scheduler counted them.
    outdated = bool(feasible and not unknown and _COUNTED_NODES.match(recorded))
    scheduler = text_member(pod.spec, "schedulerName") or DEFAULT_SCHEDULER
    return PendingExplanation(
        reason=PendingReason.SCHEDULER_MESSAGE if recorded else PendingReason.NO_SCHEDULER_MESSAGE,
        slots={"scheduler": scheduler, "recorded": recorded},
        certainty=Certainty.POSSIBLE if outdated else None,
        evidence=(
            *(f"not evaluated: {each}" for each in unknown),
            *([f"nodes that pass all filters: {join_names(feasible)}"] if feasible else []),
            *sorted(events),
        ),
    )
