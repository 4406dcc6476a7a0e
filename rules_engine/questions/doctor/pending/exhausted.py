"""Pods that do not fit on any node: other pods hold the GPUs, or GPUs are free but cpu, memory and the like are not."""

from collections.abc import Iterator, Sequence

from rules_engine.cluster.nodes import NodeSet, Offered
from rules_engine.model.gpu_resources import is_gpu
from rules_engine.model.rules.finding import FindingSeverity, Remedy, Risk
from rules_engine.model.wording import format_amount, format_count, join_names
from rules_engine.questions.doctor.holders import Holders
from rules_engine.questions.doctor.pending.excluded import Exclusion
from rules_engine.questions.doctor.pending.request import PendingExplanation
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.questions.doctor.wording import shell_command


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
        severity=FindingSeverity.WARNING,
        message=(
            f"all {join_names(short)} that the pod may use are allocated"
            if none_free
            else f"too few {join_names(short)} that the pod may use are free"
        )
        + f", on {format_count(exclusion.left.bit_count(), 'node')}",
        cause="Devices are exclusive: the pod waits until other pods end.",
        evidence=(
            *exclusion.steps,
            *_gpu_lines(short, exclusion),
            *_holder_lines(short, exclusion, holders),
            *([f"free on these nodes: {', '.join(spare)}"] if spare else ()),
            *_room_elsewhere(exclusion),
        ),
        remedies=(
            _list_pods_remedy(exclusion.first(exclusion.left)),
            Remedy(text="Wait, end a pod that no longer needs its devices, or add nodes.", risk=Risk.MEDIUM),
        ),
        missing=tuple(short),
    )


def _room_elsewhere(exclusion: Exclusion) -> Iterator[str]:
    """Yield a line if the pod would fit on nodes that exclude it, such as a cordoned one."""
    sets, request = exclusion.sets, exclusion.request
    fitting = sets.covering_nodes((*request.gpus, *request.others), Offered.AVAILABLE) & ~sets.full & ~exclusion.left
    if fitting:
        yield f"enough is free on nodes that exclude the pod: {exclusion.names(fitting)}"


def _list_pods_remedy(node: str) -> Remedy:
    return Remedy(
        text="List the pods of a node.",
        command=shell_command(
            "kubectl", "get", "pods", "--all-namespaces", "--field-selector", f"spec.nodeName={node}"
        ),
    )


def _explain_scattering(exclusion: Exclusion, holders: Holders) -> PendingExplanation:
    request = exclusion.request
    resources = [resource for resource, _ in request.gpus]
    best = _best_node(exclusion)
    return PendingExplanation(
        reason=PendingReason.ON_NO_SINGLE_NODE,
        severity=FindingSeverity.WARNING,
        message=f"enough of {join_names(resources)} is free on {format_count(exclusion.left.bit_count(), 'node')} in "
        f"all, but on no single node; the best one is {best}",
        cause="The devices of a pod are always on one node, and other pods hold some of each.",
        evidence=(
            *exclusion.steps,
            *_gpu_lines(resources, exclusion),
            *(line for resource in resources for line in holders.evidence(resource, (best,))),
            *_room_elsewhere(exclusion),
        ),
        remedies=(
            _list_pods_remedy(best),
            Remedy(text=f"Wait for pods on {best} to end, or request fewer devices in one pod.", risk=Risk.MEDIUM),
            Remedy(text=f"Evict pods of {best} that can run elsewhere.", risk=Risk.MEDIUM),
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
    first = exclusion.first(free)
    return PendingExplanation(
        reason=PendingReason.OTHER_RESOURCES,
        severity=FindingSeverity.ERROR if exceeds_nodes else FindingSeverity.WARNING,
        message=f"not enough {join_names(lacking)} is free beside {request.text}, on {nodes}",
        cause="Other pods hold what the pod needs beside the GPUs, or it requests more than the nodes have.",
        evidence=(*exclusion.steps, *evidence, *_room_elsewhere(exclusion)),
        remedies=(
            Remedy(
                text="Look at what the pods of the node request.",
                command=shell_command("kubectl", "describe", "node", first),
            ),
            Remedy(
                text=f"{f'Request less {join_names(resources)}, or move' if resources else 'Move'} pods without GPUs "
                "off these nodes.",
                risk=Risk.MEDIUM,
            ),
        ),
    )
