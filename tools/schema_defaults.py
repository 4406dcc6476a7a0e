"""Defaults of schemas/, from the value types. `python -m tools.schema_defaults` updates the files."""

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from rules_engine.cluster.nodes import NodeFilter
from rules_engine.cluster.read.drivers import CardCopies, Partitioning
from rules_engine.cluster.read.inventory import NodeCopies
from rules_engine.cluster.workloads.kind import TemplateRow
from rules_engine.language.fields import camel_case
from rules_engine.language.schemas import SCHEMAS
from rules_engine.model.kubernetes.cluster import Cluster, Node, Taint
from rules_engine.model.rules.rule import LabelRequirement, LabelSelector, Match, NamedExpression, Rule
from rules_engine.model.rules.rule_test import (
    Case,
    Expectation,
    ExpectedAudit,
    ExpectedDiagnosis,
    ExpectedFinding,
    ExpectedRule,
    RuleTest,
)
from rules_engine.model.rules.simulation import Arrival, NodeEvent, SchedulerOptions, Simulation
from rules_engine.rules.diagnostic.value import Diagnostic, WrittenRemedy
from rules_engine.rules.injection.value import InjectionEntry, ResourceInjection
from rules_engine.rules.ladder.value import FallbackLadder, Rung
from rules_engine.rules.pod_defaults.value import PodDefaults
from rules_engine.rules.validation.value import Check, Validation

Schema = dict[str, Any]

VALUES: Mapping[str, tuple[type, ...]] = {
    "document": (),
    "metadata": (Rule,),
    "rule": (Rule,),
    "match": (Match,),
    "variable": (NamedExpression,),
    "match condition": (NamedExpression,),
    "label selector": (LabelSelector,),
    "requirement": (LabelRequirement,),
    "FallbackLadder": (),
    "FallbackLadder spec": (FallbackLadder,),
    "nodes": (NodeFilter,),
    "rung": (Rung,),
    "place": (),
    "toleration": (),
    "PodDefaults": (),
    "PodDefaults spec": (PodDefaults,),
    "pod": (),
    "metadata of the pod": (),
    "spec of the pod": (),
    "toleration of a pod": (),
    "image pull secret": (),
    "volume": (),
    "Secret of a volume": (),
    "ConfigMap of a volume": (),
    "claim of a volume": (),
    "containers entry": (),
    "which": (),
    "environment variable": (),
    "valueFrom": (),
    "key of a Secret": (),
    "key of a ConfigMap": (),
    "volume mount": (),
    "entry of a namespace": (),
    "ResourceInjection": (),
    "ResourceInjection spec": (ResourceInjection, InjectionEntry),
    "namespace entry": (InjectionEntry,),
    "Validation": (),
    "Validation spec": (Validation,),
    "validation": (Check,),
    "Diagnostic": (),
    "Diagnostic spec": (Diagnostic,),
    "remedy": (WrittenRemedy,),
    "WorkloadKind": (),
    "WorkloadKind spec": (),
    "AcceleratorCatalogue": (),
    "AcceleratorCatalogue spec": (),
    "vendor": (),
    "network": (),
    "card": (),
    "label of nodes": (),
    "driver": (),
    "operand": (),
    "pod template": (TemplateRow,),
    "gang": (),
    "reference": (),
    "ClusterInventory": (),
    "ClusterInventory spec": (Cluster,),
    "cluster": (Cluster,),
    "node": (Node, NodeCopies),
    "taint": (Taint,),
    "DeviceClass": (),
    "devices of a driver": (CardCopies,),
    "attribute of a device": (),
    "partitions": (Partitioning,),
    "partition": (),
    "placements": (),
    "RuleTest": (),
    "RuleTest spec": (RuleTest,),
    "case": (Case,),
    "request": (Case,),
    "expectation": (Expectation,),
    "file name": (),
    "diagnosis": (ExpectedDiagnosis,),
    "expected finding": (ExpectedFinding,),
    "decider": (ExpectedRule,),
    "scenario": (),
    "Simulation": (),
    "Simulation spec": (Simulation,),
    "arrival": (Arrival,),
    "event": (NodeEvent,),
    "duration or distribution": (),
    "scheduler": (SchedulerOptions,),
    "audited rule": (ExpectedAudit,),
}
"""The value types of each object with fields, by its title."""

INFERRED = {("request", "namespace"), ("arrival", "pod"), ("arrival", "workload")} | {
    (title, name)
    for title in ("cluster", "ClusterInventory spec")
    for name in ("resourceClaims", "resourceClaimTemplates")
}
"""Fields without a default: the namespace of a request is that of its pod. An arrival has one of the two, or a file.
Without a list of claims, it is unknown which there are."""

EMPTY: Mapping[str, Any] = {"object": {}, "array": []}
"""The value of an absent map or list that no value type has as one field."""

SCHEMA_FILES = tuple(sorted(SCHEMAS.glob("*.json")))

_REGISTRY: Registry[Any] = Registry().with_resources(
    (schema["$id"], DRAFT202012.create_resource(schema))
    for schema in (json.loads(file.read_text()) for file in SCHEMA_FILES)
)


def renewed(text: str) -> str:
    """Return the text of a schema with the defaults of the value types."""
    schema = json.loads(text)
    _renew(schema, f"{schema['$id']}#")
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _renew(part: Any, place: str) -> None:
    """Renew the defaults of a part of a schema; `place`: its URI."""
    if isinstance(part, list):
        for index, item in enumerate(part):
            _renew(item, f"{place}/{index}")
    elif isinstance(part, dict):
        if "properties" in part:
            _renew_fields(part["title"], part["properties"], f"{place}/properties")
        for name, item in part.items():
            if name not in ("examples", "default"):
                _renew(item, f"{place}/{name}")


def _renew_fields(title: str, fields: dict[str, Schema], place: str) -> None:
    defaults = {name: default for of in VALUES[title] for name, default in _defaults(of).items()}
    resolver = _REGISTRY.resolver(place.partition("#")[0])
    for name, field in fields.items():
        shared = resolver.lookup(field["$ref"]).contents if "$ref" in field else {}
        default = defaults.get(name, EMPTY.get(str({**shared, **field}.get("type"))))
        # What a field does not accept, such as an empty message, stands for its absence.
        accepted = Draft202012Validator({"$ref": f"{place}/{name}"}, registry=_REGISTRY).is_valid(default)
        if accepted and (title, name) not in INFERRED and shared.get("default") != default:
            field["default"] = default
        else:
            field.pop("default", None)


def _defaults(of: type) -> dict[str, Any]:
    """Return the defaults of a value type by the names that its fields have in documents, None for those without."""
    found = {}
    for field in dataclasses.fields(of):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        found[camel_case(field.name)] = None if default is dataclasses.MISSING else _plain(default)
    return found


def _plain(value: Any) -> Any:
    """Return a default as its YAML value."""
    match value:
        case Enum():
            return value.value
        case tuple():
            return [_plain(item) for item in value]
        case frozenset():
            return sorted(_plain(item) for item in value)
        case Mapping():
            return dict(value)
    # A value of other fields, all of which have their own defaults.
    return {} if dataclasses.is_dataclass(value) else value


def main() -> None:
    for file in SCHEMA_FILES:
        file.write_text(renewed(file.read_text()))


if __name__ == "__main__":
    main()
