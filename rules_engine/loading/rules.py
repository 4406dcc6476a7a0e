"""Validated documents → rules, with defaults and the checks that a schema cannot express."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from rules_engine.loading.codes import Code
from rules_engine.loading.diagnostics import Diagnostics
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
    Operation,
    OptOut,
    Reason,
    ResourceInjection,
    Rung,
    Validation,
    ValidationAction,
    WhenExhausted,
)
from rules_engine.model.source import Location


def build_rule(kind: str, root: MapNode, diagnostics: Diagnostics) -> AnyRule:
    """Build the rule of a document; it is valid only if neither the schema nor `diagnostics` has an error."""
    return _BUILDERS[kind](section(root, "spec"), root, diagnostics)


def name_of(root: MapNode) -> tuple[str, Location, int]:
    """Return a document's metadata.name with its location, or that of the document if it has none."""
    node = section(root, "metadata").get("name")
    if isinstance(node, ScalarNode) and isinstance(node.value, str):
        return node.value, node.location, node.length
    return "", root.location, 1


def _common(spec: MapNode, root: MapNode, diagnostics: Diagnostics, opt_out: OptOut) -> dict[str, Any]:
    """Read the fields that every kind has, as keyword arguments."""
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
        "match": _match(section(spec, "match"), diagnostics),
        "params": section(spec, "params").json(),
        "variables": _named(spec, "variables", diagnostics),
        "match_conditions": _named(spec, "matchConditions", diagnostics),
        "failure_policy": choice(spec, "failurePolicy", FailurePolicy.FAIL),
        "opt_out": choice(spec, "optOut", opt_out),
    }


def _match(node: MapNode, diagnostics: Diagnostics) -> Match:
    return Match(
        namespaces=texts(node, "namespaces") or Match().namespaces,
        exclude_namespaces=texts(node, "excludeNamespaces"),
        namespace_selector=selector(node, "namespaceSelector", diagnostics),
        object_selector=selector(node, "objectSelector", diagnostics),
        operations=tuple(Operation(name) for name in texts(node, "operations")) or Match().operations,
    )


def _named(spec: MapNode, field: str, diagnostics: Diagnostics) -> tuple[Named, ...]:
    lines = sections(spec, field)
    report_repeated(Code.DUPLICATE_NAME, (line.get("name") for line in lines), diagnostics)
    return tuple(
        Named(text(line, "name"), expression)
        for line in lines
        if (expression := source(line, "expression")) is not None
    )


def _ladder(spec: MapNode, root: MapNode, diagnostics: Diagnostics) -> FallbackLadder:
    lines = sections(spec, "rungs")
    nodes = section(spec, "nodes")
    counts = choice(spec, "counts", Counts.KEEP)
    report_repeated(Code.DUPLICATE_RUNG, (line.get("resource") for line in lines), diagnostics)
    _report_assumed(lines, diagnostics)
    if counts is Counts.SCALE:
        for line in lines:
            if line.get("weight") is None:
                place = line.get("resource") or line
                message = "counts: Scale needs a weight on every rung"
                diagnostics.error(Code.MISSING_WEIGHT, message, place.location, place.length)
    _report_steering(text(spec, "annotation"), {SKIP_ANNOTATION}, spec.get("annotation"), diagnostics)
    return FallbackLadder(
        **_common(spec, root, diagnostics, OptOut.ALLOWED),
        rungs=tuple(_rung(line) for line in lines),
        offered=choice(spec, "offered", Offered.ALLOCATABLE),
        nodes=NodeFilter(
            selector(nodes, "selector", diagnostics),
            frozenset(NodeRequirement(name) for name in texts(nodes, "require")),
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


def _report_assumed(lines: Sequence[MapNode], diagnostics: Diagnostics) -> None:
    first: Location | None = None
    for line in lines:
        if flag(line, "assume"):
            if first is not None:
                key = line.key("assume") or line
                message = f"only one rung may be assumed, and line {first.line} already has one"
                diagnostics.error(Code.SEVERAL_ASSUMED, message, key.location, key.length)
            first = first or line.location


def _injection(spec: MapNode, root: MapNode, diagnostics: Diagnostics) -> ResourceInjection:
    default = _entry(spec, spec.key("coefficients") or root, diagnostics)
    namespaces: dict[str, Entry] = {}
    for key, node in maps(spec, "namespaces"):
        entry = _entry(node, key, diagnostics)
        if text(node, "inherit") == "Merge":
            _report_nothing_to_inherit(default, node, diagnostics)
            entry = _merged(default, entry)
        namespaces[key.source.text] = entry
    gpu_resource = text(spec, "gpuResource", "nvidia.com/gpu")
    gpu_type_annotation = text(spec, "gpuTypeAnnotation", "task.bkbcs.tencent.com/gpu-type")
    _report_gpu_amounts(spec, gpu_resource, diagnostics)
    for entry_node in (spec, *(node for _, node in maps(spec, "namespaces"))):
        for key, _ in section(entry_node, "annotations"):
            _report_steering(key.source.text, {SKIP_ANNOTATION, gpu_type_annotation}, key, diagnostics)
    return ResourceInjection(
        **_common(spec, root, diagnostics, OptOut.ALLOWED),
        default=default,
        gpu_type=text(spec, "gpuType") or None,
        gpu_type_annotation=gpu_type_annotation,
        gpu_resource=gpu_resource,
        on_conflict=choice(spec, "onConflict", OnConflict.OVERWRITE),
        init_containers=choice(spec, "initContainers", InitContainers.IGNORE),
        namespaces=namespaces,
    )


def _report_steering(name: str, steering: Container[str], place: Node | None, diagnostics: Diagnostics) -> None:
    if place is not None and name in steering:
        message = (
            f"{name} decides which rules apply: a rule that writes it would change the result of a second admission"
        )
        diagnostics.error(Code.STEERING_ANNOTATION, message, place.location, place.length)


def _entry(node: MapNode, place: Node, diagnostics: Diagnostics) -> Entry:
    coefficients = amounts(node, "coefficients", diagnostics)
    warn_of_units(node, "coefficients", coefficients, diagnostics, per_gpu=True)
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


def _report_nothing_to_inherit(default: Entry, node: MapNode, diagnostics: Diagnostics) -> None:
    key = node.key("inherit")
    if not default and key is not None:
        message = "nothing to inherit: the injection has no coefficients and no annotations of its own"
        diagnostics.warning(Code.NOTHING_TO_INHERIT, message, key.location, key.length)


def _report_gpu_amounts(spec: MapNode, gpu_resource: str, diagnostics: Diagnostics) -> None:
    for entry in (spec, *(node for _, node in maps(spec, "namespaces"))):
        key = section(entry, "coefficients").key(gpu_resource)
        if key is not None:
            message = f"{gpu_resource} is the counted resource: an injection cannot change it"
            diagnostics.error(Code.GPU_COEFFICIENT, message, key.location, key.length)


def _validation(spec: MapNode, root: MapNode, diagnostics: Diagnostics) -> Validation:
    actions = frozenset(ValidationAction(name) for name in texts(spec, "validationActions"))
    if {ValidationAction.DENY, ValidationAction.WARN} <= actions:
        key = spec.key("validationActions") or spec
        message = "Deny and Warn cannot be combined: a denial already shows the message"
        diagnostics.error(Code.CONFLICTING_ACTIONS, message, key.location, key.length)
    return Validation(
        **_common(spec, root, diagnostics, OptOut.FORBIDDEN),
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


_BUILDERS: Mapping[str, Callable[[MapNode, MapNode, Diagnostics], AnyRule]] = {
    "FallbackLadder": _ladder,
    "ResourceInjection": _injection,
    "Validation": _validation,
}
