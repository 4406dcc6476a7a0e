"""Reading of a FallbackLadder from its document."""

from collections.abc import Sequence

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement
from rules_engine.language import fields
from rules_engine.language.document_fields import common_fields, read_selector, report_steering
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import SKIP_ANNOTATION
from rules_engine.rules.ladder.value import Counts, FallbackLadder, LadderCode, Queued, Rung, Unplaced
from rules_engine.rules.pod_members.reading import read_members

PLACE = ("tolerations", "annotations", "runtimeClassName")
"""The fields of a pod that a rung may set."""


def read(root: MapNode, problems: Problems) -> FallbackLadder:
    """Read a FallbackLadder; it is valid only if neither the schema nor `problems` has an error."""
    spec = fields.map_field(root, "spec")
    lines = fields.map_items(spec, "rungs")
    nodes = fields.map_field(spec, "nodes")
    ladder = FallbackLadder(
        **common_fields(root, problems, "nodes") | fields.scalar_arguments(spec, FallbackLadder),
        rungs=tuple(_read_rung(line, problems) for line in lines),
        nodes=NodeFilter(
            read_selector(nodes, "selector", problems),
            frozenset(NodeRequirement(name) for name in fields.string_items(nodes, "require")),
        ),
    )
    _report_duplicates(ladder, lines, problems)
    _report_pools(ladder, spec, lines, problems)
    _report_assumed(lines, problems)
    if ladder.counts is Counts.SCALE:
        for line in lines:
            if line.get("weight") is None:
                place = line.get("resource") or line
                message = "counts: Scale needs a weight on every rung"
                problems.error(LadderCode.MISSING_WEIGHT, message, place.location, place.length)
    report_steering(ladder.annotation, {SKIP_ANNOTATION}, spec.get("annotation"), problems)
    return ladder


def _read_rung(line: MapNode, problems: Problems) -> Rung:
    resource, place = line.get("resource") or line, fields.map_field(line, "place")
    return Rung(
        resource=fields.string_field(line, "resource"),
        location=resource.location,
        weight=fields.int_field(line, "weight"),
        when=fields.source_field(line, "when"),
        origin=fields.key_locations(line),
        pool=tuple(
            sorted(
                (key, None if value.value is None else value.source.text)
                for key, value in fields.scalar_members(line, "pool")
            )
        ),
        place=read_members(place, PLACE, problems),
        **fields.scalar_arguments(line, Rung),
    )


def _report_duplicates(ladder: FallbackLadder, lines: Sequence[MapNode], problems: Problems) -> None:
    """Report rungs with the resource and pool of an earlier one, or with its resource and the name of its pool."""
    first: dict[tuple[str, object], Location] = {}
    for rung, line in zip(ladder.rungs, lines, strict=True):
        resource = line.get("resource")
        # An invalid name has its own problem, and reads like an empty one.
        same_name = first.get((rung.resource, rung.name)) if rung.name else None
        earlier = same_name or first.get((rung.resource, rung.pool))
        if resource is not None and earlier is not None and (rung.pool or not line.key("pool")):
            subject = f"{'the pool of ' if rung.pool and not same_name else ''}'{rung.title}'"
            message = f"{subject} is already used in line {earlier.line}"
            problems.error(LadderCode.DUPLICATE_RUNG, message, resource.location, resource.length)
        for identity in (rung.pool, rung.name):
            first.setdefault((rung.resource, identity), rung.location)


def _report_pools(ladder: FallbackLadder, spec: MapNode, lines: Sequence[MapNode], problems: Problems) -> None:
    """Report pools of different keys, and fields that need another field: each pool has a name."""
    pools = [rung for rung in ladder.rungs if rung.pool]
    for line, rung in zip(lines, ladder.rungs, strict=True):
        node = line.key("pool") or line.get("resource") or line
        has_pool = line.key("pool") is not None or not rung.place
        _report_missing("rung", line, "place", "pool", given=has_pool, problems=problems)
        # An invalid pool, and a name without one, have their own problems.
        chosen = bool(rung.pool) or not (line.key("pool") or line.key("name"))
        if pools and chosen and {key for key, _ in rung.pool} != {key for key, _ in pools[0].pool}:
            wanted = ", ".join(f"'{key}'" for key, _ in pools[0].pool)
            message = f"all rungs of a ladder have a pool of the same keys: line {pools[0].location.line} has {wanted}"
            problems.error(LadderCode.POOL_KEYS, message, node.location, node.length)
        for key, _ in fields.map_field(fields.map_field(line, "place"), "annotations"):
            report_steering(key.source.text, ladder.histories, key, problems)
    for name, default in (("unplaced", ladder.unplaced is Unplaced.IGNORE), ("queued", ladder.queued is Queued.IGNORE)):
        _report_missing("ladder", spec, name, "pool", given=bool(pools) or default, problems=problems)


def _report_missing(title: str, node: MapNode, name: str, other: str, *, given: bool, problems: Problems) -> None:
    key = node.key(name)
    if key is not None and not given:
        problems.error(Code.MISSING_FIELD, f"{title} with '{name}' needs '{other}'", key.location, key.length)


def _report_assumed(lines: Sequence[MapNode], problems: Problems) -> None:
    first: Location | None = None
    for line in lines:
        if fields.bool_field(line, "assume"):
            if first is not None:
                key = line.key("assume") or line
                message = f"only one rung may be assumed, and line {first.line} already has one"
                problems.error(LadderCode.SEVERAL_ASSUMED, message, key.location, key.length)
            first = first or line.location
