"""Causes of waiting pods, found by removing them one at a time until a naive scheduler starts the pod.

A cause is lifted for one node, as its remedy says: by another request, selector or toleration of the pod, by another
state of the node, or by the end of the pods that hold what is missing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rules_engine.questions.doctor.reasons import PendingReason
from tests.support.api import GPU, MIG1, MIG3, Object, volume_claim
from tests.support.waiting_worlds import (
    CORDON,
    FRIEND,
    GPUS,
    LIFECYCLE,
    PRODUCT,
    STRATEGY,
    World,
    allocatable_of,
    amounts,
    is_lasting,
)

STATES = {
    CORDON: PendingReason.CORDON,
    f"{LIFECYCLE}not-ready": PendingReason.NOT_READY,
    f"{LIFECYCLE}unreachable": PendingReason.NOT_READY,
    f"{LIFECYCLE}disk-pressure": PendingReason.UNDER_PRESSURE,
    f"{LIFECYCLE}memory-pressure": PendingReason.UNDER_PRESSURE,
    "node.cilium.io/agent-not-ready": PendingReason.NOT_INITIALIZED,
    "ToBeDeletedByClusterAutoscaler": PendingReason.BEING_REMOVED,
    "karpenter.sh/disrupted": PendingReason.BEING_REMOVED,
}
"""Reasons of the taints that report a state."""

Lift = Callable[[World], World]

BEFORE_NODES, NODES, NODE_STATES, OTHERS = range(4)
"""Groups of causes, in the order in which they must go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A reason of a group, and what lifts it for one node."""

    group: int
    reason: PendingReason
    lift: Lift
    resource: str = ""


def minimal_causes(world: World) -> list[list[Cause]]:
    """Return the causes for each of the best nodes, in order; none if the pod starts already.

    Best are nodes with enough GPUs or, if there are none, with the most; of these the ones with the fewest causes: of
    what no ended pod removes, then of states, then of what others must end.
    """
    causes = {each["metadata"]["name"]: [*_causes_on(world, each["metadata"]["name"])] for each in world.nodes}
    if not all(causes.values()):
        return []
    requested = amounts(world.pod)
    most = {gpu: max(world.lasting(name, gpu) for name in causes) for gpu in requested_gpus(world)}
    enough = [world.offering(gpu, min(requested[gpu], most[gpu])) for gpu in most]

    lacking = {name: sum(name not in each for each in enough) for name in causes}
    causes = {name: found for name, found in causes.items() if lacking[name] == min(lacking.values())}

    groups = {name: Counter(cause.group for cause in found) for name, found in causes.items()}
    fewest = min((each[NODES], each[NODE_STATES], each[OTHERS]) for each in groups.values())
    best = [
        name
        for name, each in groups.items()
        # What others must end may be counted before it is known what goes together.
        if (each[NODES], each[NODE_STATES]) == fewest[:2] and each[OTHERS] <= fewest[2] + 1
    ]
    named = [_named(world, name, causes) for name in best]
    # A request that is lowered to what one node has may be small enough for another one.
    return [each for each in named if not any(_states_before(world, each))]


def _states_before(world: World, causes: Sequence[Cause]) -> Iterator[set[str]]:
    """Yield the nodes on which the pod may start before each of its causes is lifted."""
    for cause in causes:
        yield world.starting_nodes()
        world = cause.lift(world)


def steps_of(causes: Sequence[Cause], reasons: Sequence[str]) -> list[list[Cause]]:
    """Return causes by reason, in the order of some reasons, or nothing if these are not the ones of the causes.

    Several resources of a group have one reason; the order within a group may be any.
    """
    left: dict[tuple[int, str], list[Cause]] = {}
    for cause in causes:
        left.setdefault((cause.group, cause.reason), []).append(cause)
    steps = []
    for reason in reasons:
        group = min((group for group, _ in left), default=None)
        if group is None or (group, reason) not in left:
            return []
        steps.append(left.pop((group, reason)))
    return [] if left else steps


def requested_gpus(world: World) -> list[str]:
    return [name for name in amounts(world.pod) if name in GPUS]


def _lasting_keys(causes: Sequence[Cause]) -> list[tuple[Any, ...]]:
    return [(cause.reason, cause.resource) for cause in causes if cause.group != OTHERS]


def _named(world: World, name: str, causes: Mapping[str, Sequence[Cause]]) -> list[Cause]:
    """Return the causes on a node; GPUs in use are on no single node if the nodes with the same causes have enough."""
    alike = [
        other
        for other in causes
        if _lasting_keys(causes[other]) == _lasting_keys(causes[name]) and any(map(_is_held, causes[other]))
    ]
    requested = amounts(world.pod)
    held = [cause.resource for cause in causes[name] if _is_held(cause)]
    enough = all(sum(world.free(other, gpu) for other in alike) >= requested[gpu] for gpu in held)
    reason = PendingReason.ON_NO_SINGLE_NODE if enough else PendingReason.ALL_ALLOCATED
    return [replace(cause, reason=reason) if _is_held(cause) else cause for cause in causes[name]]


def _is_held(cause: Cause) -> bool:
    return cause.group == OTHERS and cause.resource in GPUS


def _causes_on(world: World, name: str) -> Iterator[Cause]:
    """Yield the causes that must go for the pod to start on a node, in order."""
    lasting = [*_lasting_causes(world, name)]
    empty = world.without_affinity("podAffinity").without(_ending(world))
    for cause in lasting:
        others = [other for other in lasting if other is not cause]
        if name not in lift_all(empty, others).starting_nodes():
            yield cause
            world = cause.lift(world)
    yield from _causes_by_others(world, name)


def lift_all(world: World, causes: Sequence[Cause]) -> World:
    for cause in causes:
        world = cause.lift(world)
    return world


def _lasting_causes(world: World, name: str) -> Iterator[Cause]:
    """Yield every cause that there may be for a node, apart from other pods; a pod has only some of them."""
    yield Cause(
        group=BEFORE_NODES,
        reason=PendingReason.SCHEDULING_GATES,
        lift=lambda world: world.with_spec(schedulingGates=None),
    )
    yield Cause(group=BEFORE_NODES, reason=PendingReason.CLAIM_MISSING, lift=_create_resource_claims)
    yield Cause(group=BEFORE_NODES, reason=PendingReason.VOLUME_CLAIMS, lift=_bind_volumes)
    for resource in [each for each in amounts(world.pod) if each != "pods"]:
        yield Cause(group=NODES, reason=_shortage(world, resource), lift=_lower(name, resource), resource=resource)
    yield Cause(group=NODES, reason=PendingReason.SELECTOR_OR_AFFINITY, lift=_drop_selector)
    yield Cause(group=NODES, reason=PendingReason.TAINT, lift=lambda world: _tolerate(world, name))
    yield Cause(group=NODES, reason=PendingReason.VOLUME_ELSEWHERE, lift=lambda world: replace(world, volumes=()))
    for reason in dict.fromkeys(STATES.values()):
        yield Cause(group=NODE_STATES, reason=reason, lift=_restore(name, reason))


def _shortage(world: World, resource: str) -> PendingReason:
    """Return the reason for which a node may have too little of a resource even without other pods."""
    if _is_allocatable(world, resource):
        return PendingReason.ON_NO_SINGLE_NODE if resource in GPUS else PendingReason.OTHER_RESOURCES
    if resource not in GPUS:
        return PendingReason.OTHER_ON_NO_NODE
    missing = [gpu for gpu in requested_gpus(world) if not _is_allocatable(world, gpu)]
    if all(any(_has_other_name(each, gpu) for each in world.nodes) for gpu in missing):
        return PendingReason.WRONG_MIG_STRATEGY
    return PendingReason.RESOURCE_ON_NO_NODE


def _is_allocatable(world: World, resource: str) -> bool:
    """Return True if a node has any of a resource, also if pods that never end hold all of it."""
    return any(allocatable_of(each, resource) for each in world.nodes)


def _has_other_name(of: Object, resource: str) -> bool:
    """Return True if a node offers the devices of a resource by another name, because of its MIG strategy."""
    labels = of["metadata"]["labels"]
    strategy = labels.get(STRATEGY)
    if resource == GPU:
        return strategy == "mixed" and any(allocatable_of(of, name) for name in (MIG1, MIG3))
    if resource == MIG3 or not allocatable_of(of, GPU):
        return False
    if strategy == "single":
        return str(labels[PRODUCT]).endswith("-MIG-1g.5gb")
    applied = labels.get("nvidia.com/mig.config"), labels.get("nvidia.com/mig.config.state")
    return strategy == "none" and applied == ("all-1g.5gb", "success")


def _causes_by_others(world: World, name: str) -> Iterator[Cause]:
    """Yield the causes that the end of other pods on a node removes, each with those that hold what is missing."""
    requested = amounts(world.pod)
    for resource in sorted(requested, key=lambda each: each not in GPUS):
        if world.free(name, resource) < requested[resource]:
            reason = PendingReason.ALL_ALLOCATED if resource in GPUS else PendingReason.OTHER_RESOURCES
            cause = Cause(group=OTHERS, reason=reason, lift=_end(name, resource), resource=resource)
            yield cause
            world = cause.lift(world)
    if name not in world.starting_nodes():
        yield Cause(group=OTHERS, reason=PendingReason.OTHER_FILTERS, lift=_resolve_conflicts(name))


# What lifts a cause


def _create_resource_claims(world: World) -> World:
    claims = [{"kind": "ResourceClaim", "metadata": {"name": name}} for name in world.missing_claims()]
    return replace(world, resource_claims=[*world.resource_claims, *claims])


def _bind_volumes(world: World) -> World:
    missing = world.missing_volumes()
    kept = [each for each in world.claims if each["metadata"]["name"] not in missing]
    return replace(world, claims=[*kept, *(volume_claim(name, "Bound") for name in missing)])


def _lower(name: str, resource: str) -> Lift:
    def lift(world: World) -> World:
        most = world.lasting(name, resource)
        lowers = amounts(world.pod).get(resource, 0) > most
        return world.with_request(resource, most) if lowers else world

    return lift


def _drop_selector(world: World) -> World:
    return world.with_spec(nodeSelector=None).without_affinity("nodeAffinity")


def _tolerate(world: World, name: str) -> World:
    keys = [each["key"] for each in world.node(name)["spec"]["taints"] if each["key"] not in STATES]
    added = [{"key": key, "operator": "Exists"} for key in keys]
    return world.with_spec(tolerations=[*world.pod["spec"].get("tolerations", []), *added])


def _restore(name: str, reason: PendingReason) -> Lift:
    def restore(of: Object) -> Object:
        spec = {**of["spec"], "taints": [each for each in of["spec"]["taints"] if STATES.get(each["key"]) != reason]}
        conditions = of["status"]["conditions"]
        if reason is PendingReason.CORDON:
            spec.pop("unschedulable", None)
        elif reason is PendingReason.NOT_READY:
            conditions = [{**each, "status": "True"} if each["type"] == "Ready" else each for each in conditions]
        else:
            conditions = [each if each["type"] == "Ready" else {**each, "status": "False"} for each in conditions]
        return {**of, "spec": spec, "status": {**of["status"], "conditions": conditions}}

    return lambda world: world.with_node(name, restore)


def _end(name: str, resource: str) -> Lift:
    def lift(world: World) -> World:
        held = [each for each in _ending(world) if each["spec"]["nodeName"] == name and amounts(each).get(resource)]
        if resource == "pods":
            # Any of them will do: first those that are in the way only by their number.
            held.sort(key=lambda each: (_is_special(each), sum(map(bool, amounts(each).values()))))
            del held[len(world.on(name)) + 1 - allocatable_of(world.node(name), resource) :]
        return world.without(held)

    return lift


def _is_special(of: Object) -> bool:
    return bool(of["metadata"]["labels"] or of["spec"].get("affinity") or of["spec"]["containers"][0].get("ports"))


def _ending(world: World) -> list[Object]:
    """Return the bound pods that may end, without the friends that the waiting pod needs."""
    held = [each for each in world.bound if not is_lasting(each)]
    return [each for each in held if each["metadata"]["labels"].get("app") != FRIEND]


def _resolve_conflicts(name: str) -> Lift:
    """Return what ends the pods in the way on a node; a pod that needs another one there does without it."""

    def lift(world: World) -> World:
        ending = _ending(world)
        if name not in world.without(ending).starting_nodes():  # it has no friend there
            world = world.without_affinity("podAffinity")
        alone = [(each, world.without([other for other in ending if other is not each])) for each in ending]
        return world.without([each for each, left in alone if name not in left.starting_nodes()])

    return lift
