"""Pods whose nodes have no room: GPUs that other pods hold, and cpu, memory and all else beside free GPUs."""

from collections.abc import Iterator, Sequence

from rules_engine.diagnosis.objects.holders import Holders
from rules_engine.diagnosis.pending.excluded import Exclusion
from rules_engine.diagnosis.pending.request import Explanation
from rules_engine.diagnosis.reasons import PendingReason
from rules_engine.diagnosis.wording import command, listed
from rules_engine.evaluation.nodes import NodeSet, Offered
from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.rules.finding import FindingSeverity, Remedy, Risk
from rules_engine.model.wording import amount, counted


def exhausted(found: Exclusion, holders: Holders) -> tuple[Explanation | None, NodeSet]:
    """Return the reason why the nodes that are left have no room for a pod, and the nodes that have."""
    request, sets = found.request, found.sets
    free = found.left & sets.covering(request.gpus, Offered.AVAILABLE)
    if not free:
        short = [
            resource for resource, nanos in request.gpus if sets.total(resource, Offered.AVAILABLE, found.left) < nanos
        ]
        return (_allocated(short, found, holders) if short else _scattered(found, holders)), 0
    room = free & sets.covering(request.others, Offered.AVAILABLE) & ~sets.full
    return (None if room else _others(free, found)), room


def _gpu_lines(resources: Sequence[str], found: Exclusion) -> Iterator[str]:
    sets, nodes = found.sets, found.left
    requested = found.request.demand
    for resource in resources:
        most, best = sets.most(resource, Offered.AVAILABLE, nodes)
        yield (
            f"{resource}: {amount(resource, requested[resource])} requested; of "
            f"{amount(resource, sets.total(resource, Offered.ALLOCATABLE, nodes))} on "
            f"{counted(nodes.bit_count(), 'node')}, {amount(resource, sets.total(resource, Offered.AVAILABLE, nodes))} "
            f"are free, at most {amount(resource, most)} on one node ({best})"
        )


def _held(resources: Sequence[str], found: Exclusion, holders: Holders) -> tuple[str, ...]:
    names = found.sets.all_names(found.left)
    return tuple(line for resource in resources for line in holders.evidence(resource, names))


def _allocated(short: Sequence[str], found: Exclusion, holders: Holders) -> Explanation:
    sets = found.sets
    spare = [
        f"{amount(name, total)} {name}"
        for name, total in sets.resources(found.left, Offered.AVAILABLE).items()
        if is_gpu(name) and name not in short
    ]
    none = all(sets.total(resource, Offered.AVAILABLE, found.left) == 0 for resource in short)
    return Explanation(
        reason=PendingReason.ALL_ALLOCATED,
        severity=FindingSeverity.WARNING,
        message=(
            f"all {listed(short)} that the pod may use are allocated"
            if none
            else f"too few {listed(short)} that the pod may use are free"
        )
        + f", on {counted(found.left.bit_count(), 'node')}",
        cause="Devices are exclusive: the pod waits until other pods end.",
        evidence=(
            *found.steps,
            *_gpu_lines(short, found),
            *_held(short, found, holders),
            *([f"free on these nodes: {', '.join(spare)}"] if spare else ()),
            *_elsewhere(found),
        ),
        remedies=(
            _pods_on(found.first(found.left)),
            Remedy(text="Wait, end a pod that no longer needs its devices, or add nodes.", risk=Risk.MEDIUM),
        ),
        missing=tuple(short),
    )


def _elsewhere(found: Exclusion) -> Iterator[str]:
    """Yield a line if nodes that exclude the pod have room for it, such as a cordoned one."""
    sets, request = found.sets, found.request
    room = sets.covering((*request.gpus, *request.others), Offered.AVAILABLE) & ~sets.full & ~found.left
    if room:
        yield f"enough is free on nodes that exclude the pod: {found.names(room)}"


def _pods_on(node: str) -> Remedy:
    return Remedy(
        text="List the pods of a node.",
        command=command("kubectl", "get", "pods", "--all-namespaces", "--field-selector", f"spec.nodeName={node}"),
    )


def _scattered(found: Exclusion, holders: Holders) -> Explanation:
    request = found.request
    resources = [resource for resource, _ in request.gpus]
    best = _best_node(found)
    return Explanation(
        reason=PendingReason.ON_NO_SINGLE_NODE,
        severity=FindingSeverity.WARNING,
        message=f"enough of {listed(resources)} is free on {counted(found.left.bit_count(), 'node')} in all, but on no "
        f"single node; the best one is {best}",
        cause="The devices of a pod are always on one node, and other pods hold some of each.",
        evidence=(
            *found.steps,
            *_gpu_lines(resources, found),
            *(line for resource in resources for line in holders.evidence(resource, (best,))),
            *_elsewhere(found),
        ),
        remedies=(
            _pods_on(best),
            Remedy(text=f"Wait for pods on {best} to end, or request fewer devices in one pod.", risk=Risk.MEDIUM),
            Remedy(text=f"Evict pods of {best} that can run elsewhere.", risk=Risk.MEDIUM),
        ),
        missing=tuple(resources),
    )


def _best_node(found: Exclusion) -> str:
    """Return the node that lacks the fewest devices."""
    lacking: dict[str, int] = dict.fromkeys(found.sets.names(found.left), 0)
    for resource, nanos in found.request.gpus:
        for free, nodes in found.sets.by_amount(resource, Offered.AVAILABLE, found.left):
            if free < nanos:
                for name in found.sets.names(nodes):
                    lacking[name] += nanos - free
    return min(lacking, key=lambda name: lacking[name])


def _others(free: NodeSet, found: Exclusion) -> Explanation:
    sets, request = found.sets, found.request
    nodes = counted(free.bit_count(), "node")
    lacking, evidence = [], []
    never = False
    for resource, nanos in request.others:
        enough = free & sets.covering(((resource, nanos),), Offered.AVAILABLE)
        if enough == free:
            continue
        most, best = sets.most(resource, Offered.AVAILABLE, free)
        lacking.append(resource)
        evidence.append(
            f"{resource}: {amount(resource, nanos)} requested, free on {enough.bit_count()} of {nodes}; at most "
            f"{amount(resource, most)} on one ({best})"
        )
        if not free & sets.covering(((resource, nanos),), Offered.ALLOCATABLE):
            never = True
            evidence.append(f"{resource}: less is allocatable on each of them")
    requested = lacking
    if sets.full & free:
        lacking = [*lacking, "room for pods"]
        evidence.append(f"nodes with as many pods as they may have: {found.names(sets.full & free)}")
    first = found.first(free)
    return Explanation(
        reason=PendingReason.OTHER_RESOURCES,
        severity=FindingSeverity.ERROR if never else FindingSeverity.WARNING,
        message=f"not enough {listed(lacking)} is free beside {request.text}, on {nodes}",
        cause="Other pods hold what the pod needs beside the GPUs, or it requests more than the nodes have.",
        evidence=(*found.steps, *evidence, *_elsewhere(found)),
        remedies=(
            Remedy(
                text="Look at what the pods of the node request.", command=command("kubectl", "describe", "node", first)
            ),
            Remedy(
                text=f"{f'Request less {listed(requested)}, or move' if requested else 'Move'} pods without GPUs off "
                "these nodes.",
                risk=Risk.MEDIUM,
            ),
        ),
    )
