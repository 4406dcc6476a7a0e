"""Amounts that LimitRanger sets in containers without amounts, before webhooks are called."""

import re
from collections.abc import Mapping, Set
from typing import NamedTuple

from rules_engine.cluster.creation.limit_range import PREFIX, container_defaults
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.pod_defaults import CONTAINER_LISTS, with_containers
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError

_PART = re.compile(
    r"(?P<resources>\S+(?:, \S+)*) (?P<amount>request|limit) for (?P<init>init )?container (?P<name>\S+)"
)
"""A part of the annotation (plugin/pkg/admission/limitranger, mergeContainerResources)."""


class AmountPlace(NamedTuple):
    """The place of an amount: the list of its container, `limits` or `requests`, and the resource."""

    member: str
    container: str
    kind: str
    resource: str


def parse_set_amounts(annotation: str) -> frozenset[AmountPlace]:
    """Return the places of the amounts that LimitRanger recorded in its last call for a pod."""
    parts = map(_PART.fullmatch, annotation.removeprefix(PREFIX).split("; "))
    return frozenset(
        AmountPlace(CONTAINER_LISTS[bool(part["init"])], part["name"], f"{part['amount']}s", resource)
        for part in parts
        if part is not None
        for resource in part["resources"].split(", ")
    )


class LimitRanges:
    """The defaults of containers by namespace."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._defaults: dict[str, dict[tuple[str, str], str]] = {}
        for item in sorted(objects.of("LimitRange"), key=lambda each: each.name):
            defaults = self._defaults.setdefault(item.namespace, {})
            for kind, amounts in container_defaults(item).items():
                for resource, amount in amounts.items():
                    defaults.setdefault((kind, resource), amount)

    def defaults(self, submitted: Object, observed: Object, namespace: str) -> dict[AmountPlace, Json]:
        """Return the defaults of a namespace for amounts that the live pod has and the submitted pod lacks."""
        defaults = self._defaults.get(namespace)
        if not defaults:
            return {}
        missing = _amounts_by_place(observed).keys() - _amounts_by_place(submitted).keys()
        return {
            place: defaults[place.kind, place.resource] for place in missing if (place.kind, place.resource) in defaults
        }


def add_amounts(pod: dict[str, Json], amounts: Mapping[AmountPlace, Json]) -> dict[str, Json]:
    """Return a pod with amounts."""
    by_container: dict[tuple[str, str], dict[str, dict[str, Json]]] = {}
    for place, amount in amounts.items():
        kinds = by_container.setdefault((place.member, place.container), {})
        kinds.setdefault(place.kind, {})[place.resource] = amount

    def with_amounts(member: str, container: Object) -> Json:
        kinds = by_container.get((member, text_member(container, "name")), {})
        resources = as_mapping(container.get("resources"))
        added = {kind: {**as_mapping(resources.get(kind)), **kinds[kind]} for kind in kinds}
        return {**container, "resources": {**resources, **added}} if added else {**container}

    return {**pod, "spec": with_containers(as_mapping(pod.get("spec")), with_amounts)}


def differing_amounts(made: Json, observed: Object, places: Set[AmountPlace]) -> Mapping[AmountPlace, Json]:
    """Return the observed amounts of places where the mutated pod has a different amount.

    LimitRanger set these. Where both are equal, rules wrote the amount.
    """
    made_amounts, observed_amounts = _amounts_by_place(as_mapping(made)), _amounts_by_place(observed)
    return {
        place: observed_amounts[place]
        for place in places
        if place in observed_amounts and _parse_nanos(made_amounts.get(place)) != _parse_nanos(observed_amounts[place])
    }


def _amounts_by_place(pod: Object) -> dict[AmountPlace, Json]:
    return {
        AmountPlace(member, text_member(container, "name"), kind, resource): amount
        for member in CONTAINER_LISTS
        for container in object_items(as_mapping(pod.get("spec")).get(member))
        for kind in ("limits", "requests")
        for resource, amount in as_mapping(as_mapping(container.get("resources")).get(kind)).items()
    }


def _parse_nanos(amount: Json) -> int | None:
    try:
        return Quantity.parse(str(amount)).nanos
    except QuantityError:
        return None
