"""Reading of a FallbackLadder from its document."""

from collections.abc import Sequence

from rules_engine.evaluation.nodes import NodeFilter, NodeRequirement
from rules_engine.kinds.ladder.problem_codes import LadderCode
from rules_engine.kinds.ladder.value import Counts, FallbackLadder, Rung
from rules_engine.loading import fields
from rules_engine.loading.kubernetes.selectors import read_selector
from rules_engine.loading.rule_fields import common_fields, report_steering
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import SKIP_ANNOTATION


def read(root: MapNode, problems: Problems) -> FallbackLadder:
    """Read a FallbackLadder; it is valid only if neither the schema nor `problems` has an error."""
    spec = fields.map_field(root, "spec")
    lines = fields.map_items(spec, "rungs")
    nodes = fields.map_field(spec, "nodes")
    ladder = FallbackLadder(
        **common_fields(root, problems, "nodes") | fields.scalar_arguments(spec, FallbackLadder),
        rungs=tuple(_read_rung(line) for line in lines),
        nodes=NodeFilter(
            read_selector(nodes, "selector", problems),
            frozenset(NodeRequirement(name) for name in fields.string_items(nodes, "require")),
        ),
    )
    fields.report_repeated(LadderCode.DUPLICATE_RUNG, (line.get("resource") for line in lines), problems)
    _report_assumed(lines, problems)
    if ladder.counts is Counts.SCALE:
        for line in lines:
            if line.get("weight") is None:
                place = line.get("resource") or line
                message = "counts: Scale needs a weight on every rung"
                problems.error(LadderCode.MISSING_WEIGHT, message, place.location, place.length)
    report_steering(ladder.annotation, {SKIP_ANNOTATION}, spec.get("annotation"), problems)
    return ladder


def _read_rung(line: MapNode) -> Rung:
    resource = line.get("resource") or line
    return Rung(
        resource=fields.string_field(line, "resource"),
        location=resource.location,
        weight=fields.int_field(line, "weight"),
        when=fields.source_field(line, "when"),
        origin=fields.key_locations(line),
        **fields.scalar_arguments(line, Rung),
    )


def _report_assumed(lines: Sequence[MapNode], problems: Problems) -> None:
    first: Location | None = None
    for line in lines:
        if fields.bool_field(line, "assume"):
            if first is not None:
                key = line.key("assume") or line
                message = f"only one rung may be assumed, and line {first.line} already has one"
                problems.error(LadderCode.SEVERAL_ASSUMED, message, key.location, key.length)
            first = first or line.location
