"""Pods that wait for devices of drivers: for a DeviceClass that serves their resource, or for their claims."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from rules_engine.cluster.devices.pools import Pool, reaches
from rules_engine.cluster.nodes import NodeSet, numbers_of, union
from rules_engine.cluster.scheduling import Scheduling
from rules_engine.model.json.lenient import as_mapping, object_items, text_member
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, PodObject
from rules_engine.model.kubernetes.devices import MAX_CLAIM_DEVICES, Device, DeviceClass, NodeSelection
from rules_engine.model.kubernetes.placement import read_node_terms
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.finding import Certainty
from rules_engine.model.wording import MAX_JOINED, format_count, join_names
from rules_engine.questions.doctor.drivers import Drivers, Matching
from rules_engine.questions.doctor.pending.request import PendingExplanation, PendingRequest
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.questions.doctor.wording import quote_message

CLAIM = "ResourceClaim"

CLAIM_NOT_CREATED = "FailedResourceClaimCreation"
"""Reason of the Event of a pod whose claim cannot be created (pkg/controller/resourceclaim)."""


def explain_given_up(request: PendingRequest, answer: Scheduling, drivers: Drivers) -> PendingExplanation | None:
    """Explain a pod that the scheduler gives up on all nodes because of an error on one of them."""
    if not answer.failure:
        return None
    reached = answer.every & ~union(nodes for by_reason in answer.excluded.values() for nodes in by_reason.values())
    for number in numbers_of(reached):
        node = drivers.view.nodes[number]
        counts = {
            name: nanos // NANOS
            for name, nanos in request.amounts.items()
            if drivers.nodes_by_resource.get(name, 0) >> number & 1
        }
        total = sum(counts.values())
        if total > MAX_CLAIM_DEVICES:
            text = " and ".join(f"{count} {name}" for name, count in counts.items())
            return PendingExplanation(
                reason=PendingReason.TOO_MANY_DEVICES,
                slots={"amounts": text, "total": str(total), "most": str(MAX_CLAIM_DEVICES)},
                evidence=(f"drivers serve them on {node.name}",),
                missing=tuple(counts),
            )
        for name in counts:
            failures = drivers.matching(drivers.classes[name], 1 << number).failures
            if failures:
                return _explain_failure(name, drivers.classes[name], failures, f"the scheduler reaches {node.name}")
    return None


def _explain_failure(
    resource: str, device_class: DeviceClass, failures: Sequence[str], further: str = ""
) -> PendingExplanation:
    return PendingExplanation(
        reason=PendingReason.SELECTOR_FAILS,
        slots={"failure": failures[0], "resource": resource, "class": device_class.name},
        evidence=(*failures[1:MAX_JOINED], *([further] if further else ())),
        missing=(resource,),
    )


def explain_unserved(absent: Sequence[str], drivers: Drivers) -> PendingExplanation | None:
    """Explain a request of resources that no node has, if a DeviceClass serves one of them."""
    resource = next((name for name in absent if name in drivers.classes), None)
    if resource is None:
        return None
    device_class = drivers.classes[resource]
    slots = {"class": device_class.name, "resource": resource}
    explanation = partial(PendingExplanation, slots=slots, missing=(resource,))
    matching = drivers.matching(device_class, drivers.every)
    pools, failures = drivers.pools_of(device_class)
    selectors = tuple(f"selector: {quote_message(each)}" for each in device_class.selectors[:MAX_JOINED])
    unusable = [pool for pool in pools if pool in drivers.unusable_pools]
    if matching.tainted:
        return explanation(
            reason=PendingReason.DEVICES_TAINTED,
            case="Counters" if matching.free or matching.blocked else "",
            evidence=tuple(_device_lines(device_class, matching, drivers)),
        )
    if failures:
        return _explain_failure(resource, device_class, failures)
    if unusable:
        return explanation(
            reason=PendingReason.POOL_UNUSABLE,
            slots={**slots, "pools": ["/".join(pool) for pool in unusable], "driver": unusable[0][0]},
            evidence=(*_device_lines(device_class, matching, drivers), *drivers.left_out[:MAX_JOINED]),
        )
    older = [
        each
        for each in drivers.devices.classes
        if each.resource == resource and each is not device_class
        if drivers.matching(each, drivers.every).free or drivers.matching(each, drivers.every).allocated
    ]
    if older:
        return explanation(
            reason=PendingReason.CLASS_SHADOWED,
            slots={**slots, "older": [each.name for each in older]},
            evidence=(
                *(
                    f"{each.name} was created {quote_message(each.created) or 'at an unknown time'}"
                    for each in (device_class, *older[:MAX_JOINED])
                ),
                *selectors,
            ),
        )
    slices = drivers.devices.slices
    offering = sorted({each.driver for each in slices if each.devices})
    number = sum(len(each.devices) for each in slices)
    return explanation(
        reason=PendingReason.NO_DEVICE,
        certainty=None if drivers.slices_read else Certainty.POSSIBLE,
        evidence=(
            *([f"drivers offer {format_count(number, 'device')} in all: {join_names(offering)}"] if number else ()),
            *([] if number or drivers.left_out else ["no ResourceSlice has a device: does the driver run?"]),
            *([f"devices match in {join_names(['/'.join(pool) for pool in pools])}"] if pools else ()),
            *selectors,
            *drivers.left_out[:MAX_JOINED],
        ),
    )


def explain_taken(explanation: PendingExplanation, nodes: NodeSet, drivers: Drivers) -> PendingExplanation:
    """Return the explanation of a shortage on nodes; if drivers serve the resource, with their devices in use."""
    served = {name: drivers.nodes_by_resource.get(name, 0) & nodes for name in explanation.missing}
    short = [name for name in served if served[name]]
    if not short:
        return explanation
    matching_devices = [drivers.matching(drivers.classes[name], nodes) for name in short]
    if explanation.case == "Never":  # whoever holds devices
        matching_devices = [each._replace(allocated=(), blocked=()) for each in matching_devices]
    lines = tuple(
        line
        for name, matching in zip(short, matching_devices, strict=True)
        for line in _device_lines(drivers.classes[name], matching, drivers)
    )
    explanation = replace(explanation, evidence=(*explanation.evidence, *lines))
    if explanation.reason is not PendingReason.ALL_ALLOCATED or any(served[name] != nodes for name in served):
        return explanation
    if any(matching.blocked for matching in matching_devices):
        slots = {**explanation.slots, "resources": short}
        return replace(explanation, reason=PendingReason.COUNTERS_EXHAUSTED, case="", slots=slots)
    return replace(explanation, reason=PendingReason.DEVICES_ALLOCATED)


def _device_lines(device_class: DeviceClass, matching: Matching, drivers: Drivers) -> Iterator[str]:
    """Yield lines about devices in use, blocked by counters, or tainted, and about unused pools."""
    for pool, device in matching.allocated[:MAX_JOINED]:
        yield f"{_name(pool, device)} is allocated to {drivers.holder(pool.key(device))}"
    yield from _others_line(matching.allocated, "allocated device")
    for pool, device in matching.blocked[:MAX_JOINED]:
        blockers = [f"{key[2]} (allocated to {drivers.holder(key)})" for key in drivers.blockers(pool, device)]
        yield f"{_name(pool, device)} lacks counters: {join_names(blockers) or 'the pool has too few'}"
    yield from _others_line(matching.blocked, "blocked device")
    for pool, device in matching.tainted[:MAX_JOINED]:
        yield f"{_name(pool, device)} has the taint {join_names([quote_message(each.text) for each in device.taints])}"
    yield from _others_line(matching.tainted, "tainted device")
    unused = [key for key in drivers.pools_of(device_class)[0] if key in drivers.unusable_pools]
    for key in unused[:MAX_JOINED]:
        yield quote_message(f"the pool {'/'.join(key)}: {drivers.unusable_pools[key]}")
    yield from _others_line(unused, "unused pool")


def _name(pool: Pool, device: Device) -> str:
    return quote_message(f"{pool.driver}/{pool.name}/{device.name}")


def _others_line(items: Sequence[object], noun: str) -> Iterator[str]:
    """Yield a line that counts the items after the first ones, if there are any."""
    if len(items) > MAX_JOINED:
        yield format_count(len(items) - MAX_JOINED, f"other {noun}")


def explain_claims(
    pod: PodObject, cluster: ClusterObjects, drivers: Drivers, room: NodeSet
) -> Iterator[PendingExplanation]:
    """Explain a pod if a claim of it is missing or being deleted, or allocated on nodes without room for the pod.

    `room`: the nodes that can run it, 0: none.
    """
    if CLAIM in cluster.absent:
        return
    created = {
        text_member(each, "name"): text_member(each, "resourceClaimName")
        for each in object_items(pod.status.get("resourceClaimStatuses"))
    }
    for each in object_items(pod.spec.get("resourceClaims")):
        own, template = text_member(each, "name"), text_member(each, "resourceClaimTemplateName")
        name = text_member(each, "resourceClaimName") or created.get(own, "")
        claim = cluster.find(CLAIM, name, pod.namespace)
        events = [
            f"event {CLAIM_NOT_CREATED}: {quote_message(text_member(event, 'message'))}"
            for event in (() if name else cluster.events_about(pod))
            if text_member(event, "reason") == CLAIM_NOT_CREATED
        ]
        if claim is not None and claim.metadata.get("deletionTimestamp") is None:
            yield from _explain_elsewhere(claim, drivers, room)
        elif name or events:
            yield PendingExplanation(
                reason=PendingReason.CLAIM_MISSING,
                case="Deleted" if claim is not None else "" if name else "NotCreated",
                slots={"claim": name or own, "template": template},
                evidence=tuple(events[:MAX_JOINED]),
            )


def _explain_elsewhere(claim: ApiObject, drivers: Drivers, room: NodeSet) -> Iterator[PendingExplanation]:
    selector = as_mapping(claim.status.get("allocation")).get("nodeSelector")
    if selector is None or not room:
        return
    try:
        selection = NodeSelection(terms=read_node_terms(selector, ("status", "allocation", "nodeSelector")))
    except (PodError, TooLargeError):  # the API server writes none
        return
    nodes = drivers.view.nodes
    if any(reaches(selection, nodes[number]) for number in numbers_of(room)):
        return
    reached = [node.name for node in nodes if reaches(selection, node)]
    yield PendingExplanation(
        reason=PendingReason.CLAIM_ELSEWHERE,
        slots={"claim": claim.name},
        evidence=(
            f"the devices of the claim are on {join_names(reached) or 'no node of the cluster'}",
            f"enough of everything else is free on {join_names([nodes[number].name for number in numbers_of(room)])}",
        ),
    )
