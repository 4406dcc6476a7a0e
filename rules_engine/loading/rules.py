"""Checked documents → rules: defaults filled in, and what a schema cannot say."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from rules_engine.loading.codes import Code
from rules_engine.loading.diagnostics import Report
from rules_engine.loading.fields import (
    choice,
    flag,
    maps,
    number,
    report_repeated,
    section,
    sections,
    source,
    strings,
    text,
    texts,
)
from rules_engine.loading.kubernetes.amounts import amounts, origins, warn_of_units
from rules_engine.loading.kubernetes.selectors import selector
from rules_engine.loading.yaml.nodes import MapNode, Node, ScalarNode
from rules_engine.model.rules import (
    SKIP_ANNOTATION,
    AnyRule,
    Check,
    Counts,
    Direction,
    Entry,
    FailurePolicy,
    FallbackLadder,
    InitContainers,
    Match,
    Mode,
    Named,
    NodeFilter,
    NodeRequirement,
    Offered,
    OnConflict,
    OptOut,
    Reason,
    ResourceInjection,
    Rung,
    Validation,
    ValidationAction,
    Verb,
    WhenExhausted,
)
from rules_engine.model.source import Location


def build_rule(kind: str, root: MapNode, report: Report) -> AnyRule:
    """The rule in a document; it is only fit for use where neither schema nor report found an error."""
    return _BUILDERS[kind](section(root, "spec"), root, report)


def name_of(root: MapNode) -> tuple[str, Location, int]:
    """A document's metadata.name with its place; the document's own where it has none."""
    node = section(root, "metadata").get("name")
    if isinstance(node, ScalarNode) and isinstance(node.value, str):
        return node.value, node.location, node.length
    return "", root.location, 1


def _common(spec: MapNode, root: MapNode, report: Report, opt_out: OptOut) -> dict[str, Any]:
    """The fields that every kind has, as keyword arguments."""
    name, location, _ = name_of(root)
    metadata = section(root, "metadata")
    return {
        "name": name,
        "location": location,
        "labels": strings(metadata, "labels"),
        "annotations": strings(metadata, "annotations"),
        "description": text(spec, "description"),
        "mode": choice(spec, "mode", Mode.ENFORCE),
        "priority": number(spec, "priority", 0),
        "match": _match(section(spec, "match"), report),
        "params": section(spec, "params").json(),
        "variables": _named(spec, "variables", report),
        "match_conditions": _named(spec, "matchConditions", report),
        "failure_policy": choice(spec, "failurePolicy", FailurePolicy.FAIL),
        "opt_out": choice(spec, "optOut", opt_out),
    }


def _match(node: MapNode, report: Report) -> Match:
    return Match(
        namespaces=texts(node, "namespaces") or Match().namespaces,
        exclude_namespaces=texts(node, "excludeNamespaces"),
        namespace_selector=selector(node, "namespaceSelector", report),
        object_selector=selector(node, "objectSelector", report),
        operations=tuple(Verb(name) for name in texts(node, "operations")) or Match().operations,
    )


def _named(spec: MapNode, field: str, report: Report) -> tuple[Named, ...]:
    lines = sections(spec, field)
    report_repeated(Code.DUPLICATE_NAME, (line.get("name") for line in lines), report)
    return tuple(
        Named(text(line, "name"), expression)
        for line in lines
        if (expression := source(line, "expression")) is not None
    )


def _ladder(spec: MapNode, root: MapNode, report: Report) -> FallbackLadder:
    lines = sections(spec, "rungs")
    nodes = section(spec, "nodes")
    counts = choice(spec, "counts", Counts.KEEP)
    report_repeated(Code.DUPLICATE_RUNG, (line.get("resource") for line in lines), report)
    _report_assumed(lines, report)
    if counts is Counts.SCALE:
        for line in lines:
            if line.get("weight") is None:
                place = line.get("resource") or line
                message = "counts: Scale needs a weight on every rung"
                report.error(Code.MISSING_WEIGHT, message, place.location, place.length)
    _report_steering(text(spec, "annotation"), {SKIP_ANNOTATION}, spec.get("annotation"), report)
    return FallbackLadder(
        **_common(spec, root, report, OptOut.ALLOWED),
        rungs=tuple(_rung(line) for line in lines),
        offered=choice(spec, "offered", Offered.ALLOCATABLE),
        nodes=NodeFilter(
            selector(nodes, "selector", report), frozenset(NodeRequirement(name) for name in texts(nodes, "require"))
        ),
        direction=choice(spec, "direction", Direction.DOWN),
        counts=counts,
        when_exhausted=choice(spec, "whenExhausted", WhenExhausted.KEEP),
        annotation=text(spec, "annotation", "gpu-webhook.k8s.io/fallback"),
    )


def _rung(line: MapNode) -> Rung:
    resource = line.get("resource") or line
    return Rung(
        resource=text(line, "resource"),
        location=resource.location,
        weight=number(line, "weight", 1) if line.get("weight") else None,
        when=source(line, "when"),
        assume=flag(line, "assume"),
    )


def _report_assumed(lines: Sequence[MapNode], report: Report) -> None:
    first: Location | None = None
    for line in lines:
        if flag(line, "assume"):
            if first is not None:
                key = line.key("assume") or line
                message = f"only one rung may be assumed, and line {first.line} has one already"
                report.error(Code.SEVERAL_ASSUMED, message, key.location, key.length)
            first = first or line.location


def _injection(spec: MapNode, root: MapNode, report: Report) -> ResourceInjection:
    default = _entry(spec, spec.key("coefficients") or root, report)
    namespaces: dict[str, Entry] = {}
    for key, node in maps(spec, "namespaces"):
        entry = _entry(node, key, report)
        if text(node, "inherit") == "Merge":
            _report_nothing_to_inherit(default, node, report)
            entry = _merged(default, entry)
        namespaces[key.source.text] = entry
    gpu_resource = text(spec, "gpuResource", "nvidia.com/gpu")
    gpu_type_annotation = text(spec, "gpuTypeAnnotation", "task.bkbcs.tencent.com/gpu-type")
    _report_gpu_amounts(spec, gpu_resource, report)
    for entry_node in (spec, *(node for _, node in maps(spec, "namespaces"))):
        for key, _ in section(entry_node, "annotations"):
            _report_steering(key.source.text, {SKIP_ANNOTATION, gpu_type_annotation}, key, report)
    return ResourceInjection(
        **_common(spec, root, report, OptOut.ALLOWED),
        default=default,
        gpu_type=text(spec, "gpuType") or None,
        gpu_type_annotation=gpu_type_annotation,
        gpu_resource=gpu_resource,
        on_conflict=choice(spec, "onConflict", OnConflict.OVERWRITE),
        init_containers=choice(spec, "initContainers", InitContainers.IGNORE),
        namespaces=namespaces,
    )


def _report_steering(name: str, steering: Container[str], place: Node | None, report: Report) -> None:
    if place is not None and name in steering:
        message = f"{name} decides which rules apply: a rule that writes it would meet another pod the second time"
        report.error(Code.STEERING_ANNOTATION, message, place.location, place.length)


def _entry(node: MapNode, place: Node, report: Report) -> Entry:
    coefficients = amounts(node, "coefficients", report)
    warn_of_units(node, "coefficients", coefficients, report, per_gpu=True)
    return Entry(
        location=place.location,
        coefficients=coefficients,
        annotations=strings(node, "annotations"),
        origin={**origins(node, "coefficients"), **origins(node, "annotations")},
    )


def _merged(default: Entry, entry: Entry) -> Entry:
    return Entry(
        location=entry.location,
        coefficients={**default.coefficients, **entry.coefficients},
        annotations={**default.annotations, **entry.annotations},
        origin={**default.origin, **entry.origin},
    )


def _report_nothing_to_inherit(default: Entry, node: MapNode, report: Report) -> None:
    key = node.key("inherit")
    if not default and key is not None:
        message = "there is nothing to inherit: the injection has no coefficients and no annotations of its own"
        report.warning(Code.NOTHING_TO_INHERIT, message, key.location, key.length)


def _report_gpu_amounts(spec: MapNode, gpu_resource: str, report: Report) -> None:
    for entry in (spec, *(node for _, node in maps(spec, "namespaces"))):
        key = section(entry, "coefficients").key(gpu_resource)
        if key is not None:
            message = f"{gpu_resource} is what is counted: an injection cannot change it"
            report.error(Code.GPU_COEFFICIENT, message, key.location, key.length)


def _validation(spec: MapNode, root: MapNode, report: Report) -> Validation:
    actions = frozenset(ValidationAction(name) for name in texts(spec, "validationActions"))
    if {ValidationAction.DENY, ValidationAction.WARN} <= actions:
        key = spec.key("validationActions") or spec
        message = "Deny and Warn exclude each other: a denial tells the user already"
        report.error(Code.CONFLICTING_ACTIONS, message, key.location, key.length)
    return Validation(
        **_common(spec, root, report, OptOut.FORBIDDEN),
        validations=tuple(
            _check(line, expression)
            for line in sections(spec, "validations")
            if (expression := source(line, "expression")) is not None
        ),
        validation_actions=actions or frozenset({ValidationAction.DENY}),
    )


def _check(line: MapNode, expression: Any) -> Check:
    return Check(
        expression=expression,
        location=line.location,
        message=text(line, "message"),
        message_expression=source(line, "messageExpression"),
        reason=choice(line, "reason", Reason.INVALID),
    )


_BUILDERS: Mapping[str, Callable[[MapNode, MapNode, Report], AnyRule]] = {
    "FallbackLadder": _ladder,
    "ResourceInjection": _injection,
    "Validation": _validation,
}
