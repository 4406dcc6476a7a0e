"""GPUOffers: the amounts of resources that the nodes of a cluster offer, the parameter of policies."""

from collections.abc import Iterable, Mapping

from rules_engine.evaluation.context import ClusterFunctions
from rules_engine.evaluation.nodes import NodeQuery, capacity_of, node_index_of
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.native_objects import GROUP, NATIVE_RESOURCES, OFFERS
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.native.policy import NativeRules, offers_queries

PLURAL = NATIVE_RESOURCES[OFFERS]
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
    server cannot tell what fits together, and pods keep their requests.
    """
    if not cluster.known:
        return {"known": False, "ladders": {}, "allocatable": {}, "total": {}}
    amounts = ClusterFunctions(cluster)
    ladders: dict[str, Json] = {}
    for name, query in offers_queries(rules):
        shapes = _shapes(query, cluster)
        if shapes is not None:
            ladders[name] = [*shapes]
    exported = rules.exported
    allocatable = {name: amounts.allocatable(name) for name in _names(cluster, [each.allocatable for each in exported])}
    total = {name: amounts.total(name) for name in _names(cluster, [each.total for each in exported])}
    return {"known": True, "ladders": ladders, "allocatable": {**allocatable}, "total": {**total}}


def omitted_ladders(rules: NativeRules, spec: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the names of the ladders that the offers of a known cluster leave out."""
    ladders = as_mapping(spec["ladders"])
    return tuple(name for name, _ in offers_queries(rules) if spec["known"] and name not in ladders)


def _names(cluster: Cluster, names: Iterable[frozenset[str]]) -> list[str]:
    """Return the names of the resources of which it is known what nodes offer."""
    return sorted(name for name in frozenset[str]().union(*names) if not cluster.unread_problem(name))


def _shapes(query: NodeQuery, cluster: Cluster) -> list[Json] | None:
    """Return the distinct shapes of the nodes that count, without shapes that another one exceeds in everything."""
    served = node_index_of(cluster).served
    if any(name in served or cluster.unread_problem(name) for name in query.resources):
        return None
    rows = {tuple(max(0, nanos) // NANOS for nanos in row) for row, _ in capacity_of(cluster, query).classes.counts()}
    largest = [
        row
        for row in sorted(rows, reverse=True)
        if any(row) and not any(other != row and all(a <= b for a, b in zip(row, other, strict=True)) for other in rows)
    ]
    if len(largest) > MAX_SHAPES:
        return None
    return [{name: amount for name, amount in zip(query.resources, row, strict=True) if amount} for row in largest]


_SPEC: dict[str, Json] = {
    "type": "object",
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
    },
}
_STATUS: dict[str, Json] = {
    "type": "object",
    "properties": {
        "writer": {"type": "string", "description": "The replica that wrote the object."},
        "writtenAt": {"type": "string", "format": "date-time", "description": "Time of the last write."},
    },
}
_SCHEMA: dict[str, Json] = {
    "type": "object",
    "required": ["spec"],
    "properties": {"spec": _SPEC, "status": _STATUS},
}

DEFINITION_NAME = f"{PLURAL}.{GROUP}"
DEFINITION: dict[str, Json] = {
    "group": GROUP,
    "names": {"kind": OFFERS, "listKind": f"{OFFERS}List", "plural": PLURAL, "singular": PLURAL},
    "scope": "Cluster",
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
}
"""The spec of the CustomResourceDefinition of GPUOffers."""
