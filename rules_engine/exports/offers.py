"""GPUOffers: the amounts of resources that the nodes of a cluster offer, the parameter of policies."""

from collections.abc import Iterable

from rules_engine.cluster.nodes import NodeQuery, capacity_of, node_index_of
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.native_objects import GROUP, OFFERS, OFFERS_RESOURCE
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.rules.native.policy import NativeRules
from rules_engine.rules.rule_set.context import ClusterFunctions

API_VERSION = f"{GROUP}/v1"

MAX_SHAPES = 256
"""Shapes of nodes for one ladder: each is compared for every rung. Clusters have some ten."""

_AMOUNTS_SCHEMA: dict[str, Json] = {
    "type": "object",
    "additionalProperties": {"type": "integer", "format": "int64", "minimum": 0},
}


def build_offers(rules: NativeRules, cluster: Cluster) -> dict[str, Json]:
    """Return the spec of the offers of a cluster to exported rules; `known` is false for an unknown cluster.

    A ladder is left out if its nodes have too many shapes, or drivers serve its resources on demand: for both, the API
    server cannot tell what fits together, and pods keep their requests. `omitted` says why, by the id of the rule, and
    also for rules that read amounts which are not known; it is absent if everything is offered.
    """
    if not cluster.known:
        return {"known": False, "ladders": {}, "allocatable": {}, "total": {}}
    ladders: dict[str, Json] = {}
    omitted: dict[str, Json] = {}
    exported = rules.exported
    for each in exported:
        reasons = [cluster.unread_problem(name) for name in sorted(each.allocatable | each.total)]
        if each.query is not None:
            shapes = _shapes(each.query, cluster)
            if isinstance(shapes, str):
                reasons.append(shapes)
            else:
                ladders[each.rule.name] = [*shapes]
        if any(reasons):
            omitted[each.rule.id] = " and ".join(filter(None, reasons))
    amounts = ClusterFunctions(cluster)
    allocatable = {name: amounts.allocatable(name) for name in _names(cluster, [each.allocatable for each in exported])}
    total = {name: amounts.total(name) for name in _names(cluster, [each.total for each in exported])}
    spec: dict[str, Json] = {"known": True, "ladders": ladders, "allocatable": {**allocatable}, "total": {**total}}
    return {**spec, "omitted": omitted} if omitted else spec


def _names(cluster: Cluster, names: Iterable[frozenset[str]]) -> list[str]:
    """Return the names of the resources of which it is known what nodes offer."""
    return sorted(name for name in frozenset[str]().union(*names) if not cluster.unread_problem(name))


def _shapes(query: NodeQuery, cluster: Cluster) -> list[Json] | str:
    """Return the distinct shapes of the nodes that count, without shapes that another one exceeds in everything.

    Or return the reason for which they are left out.
    """
    served = node_index_of(cluster).served
    for name in query.resources:
        if problem := cluster.unread_problem(name):
            return problem
        if name in served:
            return f"drivers serve {name}"
    rows = {tuple(max(0, nanos) // NANOS for nanos in row) for row, _ in capacity_of(cluster, query).classes.counts()}
    largest: list[tuple[int, ...]] = []
    for row in sorted(rows, reverse=True):  # a row that exceeds another one comes first
        if any(row) and not any(all(a <= b for a, b in zip(row, other, strict=True)) for other in largest):
            largest.append(row)
        if len(largest) > MAX_SHAPES:
            return f"its nodes have more than {MAX_SHAPES} shapes"
    return [{name: amount for name, amount in zip(query.resources, row, strict=True) if amount} for row in largest]


_SPEC: dict[str, Json] = {
    "type": "object",
    "x-kubernetes-map-type": "atomic",
    "required": ["known"],
    "properties": {
        "known": {"type": "boolean", "description": "The nodes of the cluster are known."},
        "ladders": {
            "type": "object",
            "description": "Amounts that one node offers, by FallbackLadder: one item for each shape of nodes.",
            "additionalProperties": {"type": "array", "maxItems": MAX_SHAPES, "items": _AMOUNTS_SCHEMA},
        },
        "allocatable": {**_AMOUNTS_SCHEMA, "description": "The largest amount of a resource that one node has."},
        "total": {**_AMOUNTS_SCHEMA, "description": "The sum of the amounts of all nodes."},
        "omitted": {
            "type": "object",
            "description": "Reasons for which nothing is offered to a rule.",
            "additionalProperties": {"type": "string"},
        },
    },
}
_SCHEMA: dict[str, Json] = {
    "type": "object",
    "required": ["spec"],
    "properties": {"spec": _SPEC},
}

DEFINITION_NAME = f"{OFFERS_RESOURCE}.{GROUP}"
DEFINITION: dict[str, Json] = {
    "group": GROUP,
    "names": {"kind": OFFERS, "listKind": f"{OFFERS}List", "plural": OFFERS_RESOURCE, "singular": OFFERS_RESOURCE},
    "scope": "Cluster",
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
}
"""The spec of the CustomResourceDefinition of GPUOffers."""
