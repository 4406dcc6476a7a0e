"""Fields that every kind of rule has, read from a validated document, with the checks that a schema cannot express."""

from collections.abc import Container
from typing import Any

from rules_engine.language import fields
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import (
    ConditionKind,
    ExpressionDocument,
    LabelRequirement,
    LabelSelector,
    Match,
    NamedExpression,
    Operation,
    Rule,
)


def document_name(root: MapNode) -> tuple[str, Location, int]:
    """Return a document's metadata.name, its location and length; without a name, "" and the document's location."""
    node = fields.map_field(root, "metadata").get("name")
    if isinstance(node, ScalarNode) and isinstance(node.value, str):
        return node.value, node.location, node.length
    return "", root.location, 1


def common_fields(root: MapNode, problems: Problems, *maps: str) -> dict[str, Any]:
    """Read the fields that every kind of rule has, as keyword arguments of `Rule`.

    `maps`: names of maps in the spec whose keys also get an origin.
    """
    spec = fields.map_field(root, "spec")
    return {
        **expression_fields(root, problems, "match", *maps),
        **fields.scalar_arguments(spec, Rule),
        "match": _read_match(fields.map_field(spec, "match"), problems),
        "match_conditions": _read_named(spec, "matchConditions", problems),
    }


def expression_fields(root: MapNode, problems: Problems, *maps: str) -> dict[str, Any]:
    """Read the fields that every document with expressions has, as keyword arguments of `Declared`."""
    spec = fields.map_field(root, "spec")
    name, location, _ = document_name(root)
    metadata = fields.map_field(root, "metadata")
    return {
        **fields.scalar_arguments(spec, ExpressionDocument),
        "name": name,
        "location": location,
        "labels": fields.string_map(metadata, "labels"),
        "annotations": fields.string_map(metadata, "annotations"),
        "params": fields.map_field(spec, "params").json(),
        "variables": _read_named(spec, "variables", problems),
        "origin": {
            **fields.key_origins(root, "spec"),
            **fields.key_origins(spec, "params", *maps),
            **{
                ("variables", node.source.text): node.location
                for line in fields.map_items(spec, "variables")
                if isinstance(node := line.get("name"), ScalarNode)
            },
        },
    }


def _read_match(node: MapNode, problems: Problems) -> Match:
    return Match(
        namespaces=fields.string_items(node, "namespaces") or Match().namespaces,
        exclude_namespaces=fields.string_items(node, "excludeNamespaces"),
        namespace_selector=read_selector(node, "namespaceSelector", problems),
        object_selector=read_selector(node, "objectSelector", problems),
        resources=fields.string_items(node, "resources"),
        operations=tuple(Operation(name) for name in fields.string_items(node, "operations")) or Match().operations,
    )


def _read_named(spec: MapNode, field: str, problems: Problems) -> tuple[NamedExpression, ...]:
    lines = fields.map_items(spec, field)
    fields.report_repeated(Code.DUPLICATE_NAME, (line.get("name") for line in lines), problems)
    return tuple(
        NamedExpression(fields.string_field(line, "name"), expression)
        for line in lines
        if (expression := fields.source_field(line, "expression")) is not None
    )


def report_steering(name: str, steering: Container[str], place: YamlNode | None, problems: Problems) -> None:
    if place is not None and name in steering:
        message = (
            f"{name} decides which rules apply: a rule that writes it would change the result of a second admission"
        )
        problems.error(Code.STEERING_ANNOTATION, message, place)


def read_selector(node: MapNode, name: str, problems: Problems) -> LabelSelector:
    """Read the selector of a field; an absent selector matches everything."""
    field = fields.map_field(node, name)
    labels = fields.string_map(field, "matchLabels")
    exact = (LabelRequirement(key, ConditionKind.IN, (value,)) for key, value in labels.items())
    return LabelSelector(
        (*exact, *(_read_requirement(line, problems) for line in fields.map_items(field, "matchExpressions")))
    )


def _read_requirement(line: MapNode, problems: Problems) -> LabelRequirement:
    operator = ConditionKind(fields.string_field(line, "operator", ConditionKind.EXISTS.value))
    values = fields.string_items(line, "values")
    place = line.key("values") or line.key("operator") or line
    compares = operator in (ConditionKind.IN, ConditionKind.NOT_IN)
    if compares and not values:
        problems.error(Code.BAD_SELECTOR, f"{operator.value} needs at least one value", place)
    if line.get("operator") and not compares and values:
        problems.error(Code.BAD_SELECTOR, f"{operator.value} takes no values", place)
    return LabelRequirement(fields.string_field(line, "key"), operator, values)
