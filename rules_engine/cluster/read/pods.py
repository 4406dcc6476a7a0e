"""Hand-written pods: fields that Kubernetes would drop or reject, and malformed pods.

An unknown field is a warning, not an error: the API may be newer than the table of fields.
"""

from collections.abc import Mapping

from rules_engine.cluster.read.amounts import warn_of_quantity
from rules_engine.language.fields import list_items, map_field, map_items
from rules_engine.language.remedies import as_written, remedy_clause, yaml_flow
from rules_engine.language.schemas import spelling_hint
from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode, find_node, first_key
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError, json_type
from rules_engine.model.kubernetes import shapes
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location, truncate

SLIPS = frozenset({Code.UNKNOWN_POD_FIELD, Code.NO_CONTAINERS, Code.DUPLICATE_CONTAINER})
"""Codes of this module's warnings."""

_SCALARS: Mapping[str, type] = {"string": str, "bool": bool, "int": int}
"""Types of scalars in shapes.json."""

_JSON_TYPES = {"string": "a string", "bool": "a boolean", "int": "a number", "[": "a list", "{": "an object"}
"""Types in shapes.json, as json_type names them."""

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def read_pod(pod: Json, node: YamlNode, problems: Problems) -> Pod | None:
    """Read a pod from its JSON; None, with a problem at its place below `node`, if it is malformed."""
    try:
        return Pod.parse(pod)
    except PodError as error:
        place = node_at_pointer(error.path, node)
        if _report_ambiguous(place, "string", problems):
            return None
        problems.error(Code.BAD_POD, str(error), place)
        return None


def warn_of_pod(node: MapNode, problems: Problems, *, plain: bool = True) -> None:
    """Warn of members of a Pod, or template, that Kubernetes would drop or reject.

    `plain`: the pod or template belongs to a built-in kind. Other projects add fields to the spec of their templates,
    though not to containers.
    """
    spec = map_field(node, "spec")
    if plain:
        warn_of_values(node, "Pod", problems)
    else:
        for name in _CONTAINERS[:2]:
            warn_of_values(spec.get(name), "[Container]", problems)
    names = ((shape, key.source.text) for part, shape in ((node, "Pod"), (spec, "PodSpec")) for key, _ in part)
    unknown = (name for shape, name in names if name not in shapes.field_types(shape))
    if not list_items(spec, "containers") and not any(spelling_hint(name, ["containers"]) for name in unknown):
        place = spec.key("containers") or node.key("spec") or first_key(node)
        problems.warning(Code.NO_CONTAINERS, "the pod has no containers: Kubernetes rejects it", place)
    _warn_of_repeated(spec, problems)


def _warn_of_repeated(spec: MapNode, problems: Problems) -> None:
    names = [line.get("name") for field in _CONTAINERS for line in map_items(spec, field)]
    scalar_names = [name for name in names if isinstance(name, ScalarNode) and name.value is not None]
    first: dict[str, Location] = {}
    for name in sorted(scalar_names, key=lambda name: name.location):
        text = name.source.text
        if text in first:
            message = f"the container '{truncate(text)}' is already in line {first[text].line}: Kubernetes rejects that"
            problems.warning(Code.DUPLICATE_CONTAINER, message, name)
        first.setdefault(text, name.location)


def containers_slip(root: YamlNode) -> tuple[str, YamlNode] | None:
    """Return the message and the place of a slip that hides the containers of a pod without a kind, or None."""
    if not isinstance(root, MapNode):
        return None
    spec = root.get("spec")
    if not isinstance(spec, MapNode):
        member = root.key("containers")
        if member is not None:
            return "'containers' belongs below 'spec': write spec: {containers: …}", member
        return next(
            (_spelling_slip("a Pod", key, "spec") for key, _ in root if spelling_hint(key.source.text, ["spec"])), None
        )
    key, value = spec.key("containers"), spec.get("containers")
    if key is None:
        keys = (key for key, _ in spec if spelling_hint(key.source.text, ["containers"]))
        return next((_spelling_slip("PodSpec", key, "containers") for key in keys), None)
    if isinstance(value, MapNode):
        as_list = yaml_flow(as_written(value))
        return f"containers must be a list, not a map{remedy_clause(f'[{as_list}]')}", value
    return None


def _spelling_slip(owner: str, key: ScalarNode, name: str) -> tuple[str, YamlNode]:
    return f"{owner} has no field '{truncate(key.source.text)}'{spelling_hint(key.source.text, [name])}", key


def _warn_of_fields(node: MapNode, shape: str, problems: Problems) -> None:
    fields = shapes.field_types(shape)
    for key, value in node:
        name = key.source.text
        if name in fields:
            warn_of_values(value, fields[name], problems)
        else:
            message = f"{shape} has no field '{truncate(name)}'{spelling_hint(name, fields)}: Kubernetes drops it"
            problems.warning(Code.UNKNOWN_POD_FIELD, message, key)


def warn_of_values(node: YamlNode | None, shape: str, problems: Problems) -> None:
    """Warn of unknown fields in a value, report wrong types; `shape`: its type in the notation of shapes.json."""
    if shape.startswith("[") and isinstance(node, ListNode):
        for item in node.items:
            warn_of_values(item, shape[1:-1], problems)
    elif shape.startswith("{") and isinstance(node, MapNode):
        for _, value in node:
            warn_of_values(value, shape[1:-1], problems)
    elif shape[0].isupper() and isinstance(node, MapNode):
        _warn_of_fields(node, shape, problems)
    elif isinstance(node, ScalarNode) and shape == "quantity":
        if node.value is not None:
            warn_of_quantity(node, problems)
    elif isinstance(node, ScalarNode) and node.surprise is not None:
        _report_ambiguous(node, shape, problems)
    elif node is not None:
        _report_wrong_type(node, shape, problems)


def _report_wrong_type(node: YamlNode, shape: str, problems: Problems) -> None:
    expected = "an object" if shape[0].isupper() else _JSON_TYPES.get(shape) or _JSON_TYPES.get(shape[0])
    actual = json_type(as_written(node))
    if expected is not None and actual not in (expected, "null"):
        remedy = remedy_clause(f'"{node.source.text}"') if isinstance(node, ScalarNode) and shape == "string" else ""
        problems.error(Code.BAD_POD, f"must be {expected}, not {actual}{remedy}", node)


def _report_ambiguous(node: YamlNode, shape: str, problems: Problems) -> bool:
    """Report a value that YAML parsers read differently; False if no spelling has the expected type."""
    surprise = node.surprise if isinstance(node, ScalarNode) else None
    if surprise is None:
        return False
    spellings = [spelling for spelling in surprise.spellings if type(spelling[1]) is _SCALARS.get(shape)]
    if spellings:
        problems.error(surprise.code, surprise.message(spellings), node)
    return bool(spellings)


def node_at_pointer(pointer: str, node: YamlNode) -> YamlNode:
    """Return the node at a JSON Pointer, or the deepest existing one above it."""
    steps = pointer.replace("~1", "\0").replace("~0", "~").split("/")[1:]
    return find_node(node, tuple([int(step) if step.isdigit() else step.replace("\0", "/") for step in steps]))
