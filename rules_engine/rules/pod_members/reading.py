"""Reading of members from a document, where they have the shape of a Pod."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

from rules_engine.cluster.read.pods import warn_of_values
from rules_engine.language import fields
from rules_engine.language.document_fields import report_steering
from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.kubernetes import shapes
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.rule import SKIP_ANNOTATION
from rules_engine.rules.pod_members.value import FIELDS, Computed, Form, Member, PodField
from rules_engine.rules.pod_members.writing import identity_of

_SUFFIX = "Expression"
"""The suffix of a field whose value is computed."""


def read_members(node: MapNode, names: Iterable[str], problems: Problems) -> tuple[Member, ...]:
    """Read the members of some fields of a pod or a container, each from the field of its name, or from an expression.

    Reports what the API server would refuse, and names that occur twice.
    """
    return tuple(member for name in names for member in _read_field(node, FIELDS[name], problems))


def _read_field(node: MapNode, field: PodField, problems: Problems) -> Iterator[Member]:
    computed_name = field.name + _SUFFIX
    if field.form is Form.LIST:
        yield from _read_items(node, field, problems)
    elif field.form is Form.MAP:
        for key, value in fields.map_field(node, field.name):
            text = cast(ScalarNode, value).source.text  # by the schema
            yield Member(field=field, name=key.source.text, value=text, location=key.location)
            if field.name == "annotations":
                report_steering(key.source.text, {SKIP_ANNOTATION}, key, problems)
        for key, value in fields.map_field(node, computed_name):
            _report_both(fields.map_field(node, field.name), key.source.text, key, problems)
            part = Computed((), cast(ScalarNode, value).source, "string")
            yield Member(field=field, name=key.source.text, computed=(part,), location=key.location)
            if field.name == "annotations":
                report_steering(key.source.text, {SKIP_ANNOTATION}, key, problems)
    elif (source := fields.source_field(node, field.name)) and source.text:
        yield Member(field=field, value=source.text, location=source.location)
        _report_both(node, computed_name, node.key(field.name), problems)
    elif expression := fields.source_field(node, computed_name):
        part = Computed((), expression, "string")
        yield Member(field=field, computed=(part,), location=expression.location)


def _read_items(node: MapNode, field: PodField, problems: Problems) -> Iterator[Member]:
    items = fields.map_items(node, field.name)
    if field.key:
        fields.report_repeated(Code.DUPLICATE_NAME, (item.get(field.key) for item in items), problems)
    for item in items:
        computed: list[Computed] = []
        plain = cast(MapNode, _without_expressions(item, field.shape, (), computed, problems))
        warn_of_values(plain, field.shape, problems)
        value = plain.json()
        if field.shape == "Toleration":
            _report_toleration(item, problems)
        elif field.shape == "EnvVar" and item.key("valueFrom"):
            _report_both(item, "value", item.key("valueFrom"), problems)
            _report_both(item, f"value{_SUFFIX}", item.key("valueFrom"), problems)
        name = identity_of(field, value)
        place = fields.source_field(item, field.key)
        location = place.location if place else item.location
        yield Member(field=field, name=name, value=value, computed=tuple(computed), location=location)


def _without_expressions(
    node: YamlNode, shape: str, path: JsonPath, computed: list[Computed], problems: Problems
) -> YamlNode:
    """Return a value without fields that compute another one, which are added to `computed`."""
    if shape.startswith("[") and isinstance(node, ListNode):
        each = enumerate(node.items)
        items = (_without_expressions(item, shape[1:-1], (*path, index), computed, problems) for index, item in each)
        return replace(node, items=tuple(items))
    if not (shape[0].isupper() and isinstance(node, MapNode)):
        return node
    types, members = shapes.field_types(shape), {}
    for name, (key, value) in node.members.items():
        target = name.removesuffix(_SUFFIX)
        if target != name and types.get(target, "[")[0].islower() and isinstance(value, ScalarNode):
            _report_both(node, target, key, problems)
            computed.append(Computed((*path, target), value.source, types[target]))
        else:
            inner = _without_expressions(value, types.get(name, "string"), (*path, name), computed, problems)
            members[name] = key, inner
    return replace(node, members=members)


def _report_both(node: MapNode, name: str, place: ScalarNode | None, problems: Problems) -> None:
    if node.key(name) is not None and place is not None:
        message = f"'{place.source.text}' and '{name}' cannot be used together: they set the same value"
        if name == place.source.text:
            message = f"'{name}' is set as a value and as an expression"
        problems.error(Code.CONFLICTING_FIELDS, message, place.location, place.length)


def _report_toleration(item: MapNode, problems: Problems) -> None:
    """Report a toleration that the API server refuses (pkg/apis/core/validation, ValidateTolerations)."""
    exists, value = fields.string_field(item, "operator") == "Exists", item.key("value")
    if not exists and not item.key("key"):
        message = "toleration needs 'key', or operator: Exists for all taints"
        problems.error(Code.MISSING_FIELD, message, item.location, item.length)
    elif (seconds := item.key("tolerationSeconds")) and fields.string_field(item, "effect") != "NoExecute":
        message = "tolerationSeconds needs effect: NoExecute"
        problems.error(Code.MISSING_FIELD, message, seconds.location, seconds.length)
    elif exists and value is not None and fields.string_field(item, "value"):
        problems.error(
            Code.CONFLICTING_FIELDS, "a toleration with operator: Exists has no value", value.location, value.length
        )
