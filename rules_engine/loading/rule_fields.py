"""Fields that every kind of rule has, read from a validated document, with the checks that a schema cannot express."""

from collections.abc import Container
from typing import Any

from rules_engine.loading.fields import (
    origins,
    report_repeated,
    section,
    sections,
    settings,
    source,
    strings,
    text,
    texts,
)
from rules_engine.loading.kubernetes.selectors import selector
from rules_engine.loading.yaml.nodes import MapNode, Node, ScalarNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import Declared, Match, Named, Operation, Rule


def name_of(root: MapNode) -> tuple[str, Location, int]:
    """Return a document's metadata.name, its location and length; without a name, "" and the document's location."""
    node = section(root, "metadata").get("name")
    if isinstance(node, ScalarNode) and isinstance(node.value, str):
        return node.value, node.location, node.length
    return "", root.location, 1


def common_fields(root: MapNode, problems: Problems, *maps: str) -> dict[str, Any]:
    """Read the fields that every kind of rule has, as keyword arguments of `Rule`.

    `maps`: names of maps in the spec whose keys also get an origin.
    """
    spec = section(root, "spec")
    return {
        **declared_fields(root, problems, "match", *maps),
        **settings(spec, Rule),
        "match": _match(section(spec, "match"), problems),
        "match_conditions": _named(spec, "matchConditions", problems),
    }


def declared_fields(root: MapNode, problems: Problems, *maps: str) -> dict[str, Any]:
    """Read the fields that every document with expressions has, as keyword arguments of `Declared`."""
    spec = section(root, "spec")
    name, location, _ = name_of(root)
    metadata = section(root, "metadata")
    return {
        **settings(spec, Declared),
        "name": name,
        "location": location,
        "labels": strings(metadata, "labels"),
        "annotations": strings(metadata, "annotations"),
        "params": section(spec, "params").json(),
        "variables": _named(spec, "variables", problems),
        "origin": {
            **origins(root, "spec"),
            **origins(spec, "params", *maps),
            **{
                ("variables", node.source.text): node.location
                for line in sections(spec, "variables")
                if isinstance(node := line.get("name"), ScalarNode)
            },
        },
    }


def _match(node: MapNode, problems: Problems) -> Match:
    return Match(
        namespaces=texts(node, "namespaces") or Match().namespaces,
        exclude_namespaces=texts(node, "excludeNamespaces"),
        namespace_selector=selector(node, "namespaceSelector", problems),
        object_selector=selector(node, "objectSelector", problems),
        resources=texts(node, "resources"),
        operations=tuple(Operation(name) for name in texts(node, "operations")) or Match().operations,
    )


def _named(spec: MapNode, field: str, problems: Problems) -> tuple[Named, ...]:
    lines = sections(spec, field)
    report_repeated(Code.DUPLICATE_NAME, (line.get("name") for line in lines), problems)
    return tuple(
        Named(text(line, "name"), expression)
        for line in lines
        if (expression := source(line, "expression")) is not None
    )


def report_steering(name: str, steering: Container[str], place: Node | None, problems: Problems) -> None:
    if place is not None and name in steering:
        message = (
            f"{name} decides which rules apply: a rule that writes it would change the result of a second admission"
        )
        problems.error(Code.STEERING_ANNOTATION, message, place.location, place.length)
