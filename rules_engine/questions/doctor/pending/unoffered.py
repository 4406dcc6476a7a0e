"""Pods that request GPUs that no single node has, even if it runs no pods."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec.json import encode

from rules_engine.accelerators.catalogue import MIG_RESOURCE, catalogue
from rules_engine.accelerators.mig import profile_message
from rules_engine.accelerators.nodes import lacking_cards
from rules_engine.accelerators.resources import WHOLE_GPU, is_gpu, is_mig
from rules_engine.cluster.gpu_nodes import serves_cards_of
from rules_engine.cluster.nodes import NodeSet, node_set, union
from rules_engine.model.rules.finding import Certainty
from rules_engine.model.wording import format_amount, format_count, join_names
from rules_engine.questions.doctor.pending.nodes import PendingNodes
from rules_engine.questions.doctor.pending.request import PendingExplanation, request_text
from rules_engine.questions.doctor.reasons import PendingReason

STRATEGY = "nvidia.com/mig.strategy"
PRODUCT = "nvidia.com/gpu.product"
CONFIG = "nvidia.com/mig.config"
CONFIG_STATE = "nvidia.com/mig.config.state"
"""Labels of feature discovery and of the MIG manager."""


def explain_absent_gpus(missing: Sequence[str], view: PendingNodes) -> PendingExplanation:
    """Explain why no node has any of some resources of GPUs."""
    elsewhere = [_find_other_name(name, view) for name in missing]
    absent = [name for name, other in zip(missing, elsewhere, strict=True) if other is None]
    if absent:
        return _explain_no_node(absent, view)
    return _explain_wrong_strategy(missing, [other for other in elsewhere if other is not None], view)


def _explain_no_node(absent: Sequence[str], view: PendingNodes) -> PendingExplanation:
    offers = view.resources(view.every)
    offered = [f"{format_amount(name, total)} {name}" for name, total in offers.items() if is_gpu(name)]
    having = {name: [number for number, each in enumerate(view.capacities) if each.get(name)] for name in absent}
    withheld = [
        f"capacity of {name}: {sum(view.capacities[each][name] for each in numbers)} on "
        f"{join_names(view.names(node_set(numbers)))}, of which 0 are allocatable"
        for name, numbers in having.items()
        if numbers
    ]
    total = format_count(view.every.bit_count(), "node")
    applied = union(
        view.with_label(CONFIG, layout)
        for layout in view.values_of(CONFIG, view.every)
        for name in filter(is_mig, absent)
        if layout.endswith(f"-{name.removeprefix(MIG_RESOURCE)}")
    )
    case = "NotAllocatable" if withheld else "MIG" if any(map(is_mig, absent)) and not applied else ""
    explanation = next(
        filter(None, (_find_published(name, view) for name in absent)),
        PendingExplanation(reason=PendingReason.RESOURCE_ON_NO_NODE, case=case, slots={"resources": absent}),
    )
    return replace(
        explanation,
        evidence=(
            *explanation.evidence,
            f"allocatable on {total}: {', '.join(offered) or 'no GPU'}",
            *withheld,
            *([f"the MIG layout of {view.list(applied)} has such devices, which are not offered"] if applied else ()),
            *filter(None, (profile_message(name, offers) for name in absent)),
            *(line for name in absent for line in lacking_cards(name, view.products)),
        ),
        missing=tuple(absent),
    )


def _find_published(resource: str, view: PendingNodes) -> PendingExplanation | None:
    """Return the reason, if drivers publish cards that may serve a resource, but no DeviceClass has its name."""
    drivers, devices = view.drivers, view.drivers.devices
    publishing = sorted(
        {each.driver for each in devices.slices if each.devices and serves_cards_of(each.driver, resource)}
    )
    if not publishing or len(lacking_cards(resource, view.products)) == len(view.products) > 0:
        return None
    whole = any(resource in each.resources for each in catalogue().drivers)
    unnamed = [each for each in devices.classes if not each.resource and drivers.pools_of(each)[0]]
    # Drivers name the class of their whole cards as themselves.
    own = next((each.name for each in unnamed if whole and each.name in publishing), "")
    others = f"DeviceClasses without extendedResourceName: {join_names([each.name for each in unnamed])}"
    return PendingExplanation(
        reason=PendingReason.NO_CLASS_NAMES_RESOURCE,
        case="" if own else "NoClass",
        slots={
            "resource": resource,
            "drivers": publishing,
            "class": own,
            "patch": encode({"spec": {"extendedResourceName": resource}}).decode(),
        },
        certainty=None if drivers.classes_read else Certainty.POSSIBLE,
        evidence=(others,) if unnamed and not own else (),
    )


class _OtherName(NamedTuple):
    """The nodes that offer the devices of a resource by another name, because of their MIG strategy."""

    strategy: str
    nodes: NodeSet
    resources: Sequence[str]


def _find_other_name(resource: str, view: PendingNodes) -> _OtherName | None:
    if resource == WHOLE_GPU:
        mixed = view.with_label(STRATEGY, "mixed")
        devices = [name for name in view.resources(mixed) if is_mig(name)]
        nodes = mixed & union(map(view.offering, devices))
        return _OtherName("mixed", nodes, devices) if nodes else None
    if not is_mig(resource):
        return None
    profile = resource.removeprefix(MIG_RESOURCE)
    cards = view.offering(WHOLE_GPU)
    products = [value for value in view.values_of(PRODUCT, cards) if value.endswith(f"-MIG-{profile}")]
    single = cards & view.with_label(STRATEGY, "single") & union(view.with_label(PRODUCT, each) for each in products)
    if single:
        return _OtherName("single", single, [WHOLE_GPU])
    applied = view.with_label(CONFIG, f"all-{profile}") & view.with_label(CONFIG_STATE, "success")
    none = applied & view.with_label(STRATEGY, "none") & cards
    return _OtherName("none", none, [WHOLE_GPU]) if none else None


def _explain_wrong_strategy(
    missing: Sequence[str], others: Sequence[_OtherName], view: PendingNodes
) -> PendingExplanation:
    first = others[0]
    nodes = view.names(first.nodes)
    return PendingExplanation(
        reason=PendingReason.WRONG_MIG_STRATEGY,
        case="" if first.strategy == "mixed" else first.strategy.capitalize(),
        slots={
            "resources": missing,
            "strategy": first.strategy,
            "offered": first.resources,
            "nodes": nodes,
            "node": nodes[0],
        },
        evidence=tuple(
            f"{STRATEGY}={each.strategy}, with {join_names(each.resources)}, on {join_names(view.names(each.nodes))}"
            for each in others
        ),
        missing=tuple(missing),
    )


def explain_too_many_gpus(gpus: Mapping[str, int], view: PendingNodes) -> PendingExplanation:
    """Explain a request of GPUs, in nanos, which exist, but not as many or not together on a single node."""
    totals = {name: view.total(name, view.every, free=False) for name in gpus}
    held = {name: view.allocatable.get(name, 0) - total for name, total in totals.items()}
    evidence = tuple(
        f"{resource}: {format_amount(resource, nanos)} requested, at most {format_amount(resource, most)} "
        f"on one node ({best}), {format_amount(resource, totals[resource])} on all nodes"
        f"{f', beside {format_amount(resource, held[resource])} that DaemonSets hold' if held[resource] > 0 else ''}"
        for resource, nanos in gpus.items()
        for most, best in [view.largest(resource, view.every, free=False)]
    )
    slots, reason = {"request": request_text(gpus)}, PendingReason.ON_NO_SINGLE_NODE
    return PendingExplanation(reason=reason, case="Never", slots=slots, evidence=evidence, missing=(*gpus,))
