"""Pods that do not fit on any node: other pods hold the GPUs, or GPUs are free but cpu, memory and the like are not."""

from collections.abc import Iterator, Sequence

from rules_engine.accelerators.resources import is_gpu
from rules_engine.cluster.nodes import NodeSet, Offered
from rules_engine.model.wording import format_amount, format_count
from rules_engine.questions.doctor.holders import Holders
from rules_engine.questions.doctor.pending.excluded import Exclusion
from rules_engine.questions.doctor.pending.request import PendingExplanation
from rules_engine.questions.doctor.reasons import PendingReason


def explain_shortage(exclusion: Exclusion, holders: Holders) -> tuple[PendingExplanation | None, NodeSet]:
    """Explain why a pod fits on none of the remaining nodes, or return None and the nodes on which it fits."""
    request, sets = exclusion.request, exclusion.sets
    free = exclusion.left & sets.covering_nodes(request.gpus, Offered.AVAILABLE)
    if not free:
        short = [
            resource
            for resource, nanos in request.gpus
            if sets.total(resource, Offered.AVAILABLE, exclusion.left) < nanos
        ]
        return (_explain_allocation(short, exclusion, holders) if short else _explain_scattering(exclusion, holders)), 0
    fitting = free & sets.covering_nodes(request.others, Offered.AVAILABLE) & ~sets.full
    return (None if fitting else _explain_other_resources(free, exclusion)), fitting


def _gpu_lines(resources: Sequence[str], exclusion: Exclusion) -> Iterator[str]:
    sets, nodes = exclusion.sets, exclusion.left
    requested = exclusion.request.demand
    for resource in resources:
        most, best = sets.largest_amount(resource, Offered.AVAILABLE, nodes)
        allocatable, free = (sets.total(resource, kind, nodes) for kind in (Offered.ALLOCATABLE, Offered.AVAILABLE))
        yield (
            f"{resource}: {format_amount(resource, requested[resource])} requested; of "
            f"{format_amount(resource, allocatable)} on {format_count(nodes.bit_count(), 'node')}, "
            f"{format_amount(resource, free)} are free, at most {format_amount(resource, most)} on one node ({best})"
        )


def _holder_lines(resources: Sequence[str], exclusion: Exclusion, holders: Holders) -> tuple[str, ...]:
    names = (*exclusion.sets.names(exclusion.left),)
    return tuple(line for resource in resources for line in holders.evidence(resource, names))


def _explain_allocation(short: Sequence[str], exclusion: Exclusion, holders: Holders) -> PendingExplanation:
    sets = exclusion.sets
    spare = [
        f"{format_amount(name, total)} {name}"
        for name, total in sets.resources(exclusion.left, Offered.AVAILABLE).items()
        if is_gpu(name) and name not in short
    ]
    none_free = all(sets.total(resource, Offered.AVAILABLE, exclusion.left) == 0 for resource in short)
    return PendingExplanation(
        reason=PendingReason.ALL_ALLOCATED,
        case="NoneFree" if none_free else "",
        slots={
            "resources": short,
            "nodes": format_count(exclusion.left.bit_count(), "node"),
            "node": exclusion.first(exclusion.left),
        },
        evidence=(
            *exclusion.steps,
            *_gpu_lines(short, exclusion),
            *_holder_lines(short, exclusion, holders),
            *([f"free on these nodes: {', '.join(spare)}"] if spare else ()),
            *_room_elsewhere(exclusion),
        ),
        missing=tuple(short),
    )


def _room_elsewhere(exclusion: Exclusion) -> Iterator[str]:
    """Yield a line if the pod would fit on nodes that exclude it, such as a cordoned one."""
    sets, request = exclusion.sets, exclusion.request
    fitting = sets.covering_nodes((*request.gpus, *request.others), Offered.AVAILABLE) & ~sets.full & ~exclusion.left
    if fitting:
        yield f"enough is free on nodes that exclude the pod: {exclusion.names(fitting)}"


def _explain_scattering(exclusion: Exclusion, holders: Holders) -> PendingExplanation:
    request = exclusion.request
    resources = [resource for resource, _ in request.gpus]
    best = _best_node(exclusion)
    return PendingExplanation(
        reason=PendingReason.ON_NO_SINGLE_NODE,
        slots={
            "resources": resources,
            "nodes": format_count(exclusion.left.bit_count(), "node"),
            "node": best,
        },
        evidence=(
            *exclusion.steps,
            *_gpu_lines(resources, exclusion),
            *(line for resource in resources for line in holders.evidence(resource, (best,))),
            *_room_elsewhere(exclusion),
        ),
        missing=tuple(resources),
    )


def _best_node(exclusion: Exclusion) -> str:
    """Return the remaining node that lacks the fewest devices."""
    lacking_nanos: dict[str, int] = dict.fromkeys(exclusion.sets.names(exclusion.left), 0)
    for resource, nanos in exclusion.request.gpus:
        for free, nodes in exclusion.sets.by_amount(resource, Offered.AVAILABLE, exclusion.left):
            if free < nanos:
                for name in exclusion.sets.names(nodes):
                    lacking_nanos[name] += nanos - free
    return min(lacking_nanos, key=lambda name: lacking_nanos[name])


def _explain_other_resources(free: NodeSet, exclusion: Exclusion) -> PendingExplanation:
    sets, request = exclusion.sets, exclusion.request
    nodes = format_count(free.bit_count(), "node")
    lacking, evidence = [], []
    exceeds_nodes = False
    for resource, nanos in request.others:
        enough = free & sets.covering_nodes(((resource, nanos),), Offered.AVAILABLE)
        if enough == free:
            continue
        most, best = sets.largest_amount(resource, Offered.AVAILABLE, free)
        lacking.append(resource)
        evidence.append(
            f"{resource}: {format_amount(resource, nanos)} requested, free on {enough.bit_count()} of {nodes}; at most "
            f"{format_amount(resource, most)} on one ({best})"
        )
        if not free & sets.covering_nodes(((resource, nanos),), Offered.ALLOCATABLE):
            exceeds_nodes = True
            evidence.append(f"{resource}: less is allocatable on each of them")
    resources = lacking
    if sets.full & free:
        lacking = [*lacking, "room for pods"]
        evidence.append(f"nodes with as many pods as they may have: {exclusion.names(sets.full & free)}")
    return PendingExplanation(
        reason=PendingReason.OTHER_RESOURCES,
        case="Never" if exceeds_nodes else "",
        slots={
            "lacking": lacking,
            "request": request.text,
            "nodes": nodes,
            "node": exclusion.first(free),
            "resources": resources,
        },
        evidence=(*exclusion.steps, *evidence, *_room_elsewhere(exclusion)),
    )
