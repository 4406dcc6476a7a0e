"""Reader of a Kubernetes Node, reduced to the fields that decisions need."""

from collections.abc import Callable, Iterator
from sys import intern

from rules_engine.model.json.lenient import Object, as_mapping, as_string_map, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import json_type
from rules_engine.model.kubernetes.cluster import Node, Taint
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError


def read_node(raw: Object, unread: Callable[[str, str, QuantityError], None]) -> Node:
    """Read a node, without its usage. Members of the wrong type count as absent.

    `unread` is called for each malformed amount, which is left out: with the node's name, the resource and the error.
    """
    metadata, spec, status = (as_mapping(raw.get(member)) for member in ("metadata", "spec", "status"))
    name = text_member(metadata, "name")
    return Node(
        name=name,
        # Interned: thousands of nodes have the same few labels and resources.
        labels={intern(key): intern(value) for key, value in as_string_map(metadata.get("labels")).items()},
        taints=tuple(
            Taint(key=text_member(taint, "key"), effect=text_member(taint, "effect"), value=text_member(taint, "value"))
            for taint in object_items(spec.get("taints"))
        ),
        ready=all(
            condition.get("status") == "True"
            for condition in object_items(status.get("conditions"))
            if condition.get("type") == "Ready"
        ),
        unschedulable=spec.get("unschedulable") is True,
        allocatable=dict(_read_amounts(name, as_mapping(status.get("allocatable")), unread)),
    )


def _read_amounts(
    name: str, amounts: Object, unread: Callable[[str, str, QuantityError], None]
) -> Iterator[tuple[str, Quantity]]:
    for resource, amount in amounts.items():
        try:
            yield intern(resource), Quantity.parse(_amount_text(amount))
        except QuantityError as error:
            unread(name, resource, error)


def _amount_text(amount: Json) -> str:
    return str(amount) if isinstance(amount, str | int | float) else json_type(amount)
