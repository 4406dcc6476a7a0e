"""Generator of rules_engine/model/shapes.json, from the kubernetes client: python -m tests.model.shape_table"""

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes.client.models as models

TABLE = Path(__file__).parents[2] / "rules_engine" / "model" / "shapes.json"

ROOTS = ("V1Pod", "V1Namespace", "V1Node", "V1DaemonSet", "CoreV1Event", "V1RuntimeClass")

QUANTITIES = {
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "overhead",
    "size_limit",
    "divisor",
    "allocated_resources",
    "pod_fixed",
}
"""Attributes that hold quantities: the client says string."""

_PLAIN = {"str": "string", "int": "int", "bool": "bool", "float": "double", "object": "dyn", "datetime": "string"}
_VERSION = re.compile(r"^(?:Core|Events)?V[0-9]+(?:(?:alpha|beta)[0-9]+)?")


def _written(kind: str, attribute: str) -> str:
    """A type as the table writes it: [T] is a list, {T} a map with string keys."""
    found = re.fullmatch(r"(?i:list)\[(.*)\]", kind)
    if found:
        return f"[{_written(found[1], attribute)}]"
    found = re.fullmatch(r"(?i:dict)[(\[]str, (.*)[)\]]", kind)
    if found:
        return f"{{{_written(found[1], attribute)}}}"
    if attribute in QUANTITIES and kind == "str":
        return "quantity"
    return _PLAIN.get(kind) or _VERSION.sub("", kind)


def table() -> dict[str, Any]:
    """The shapes of all objects below the roots."""
    shapes: dict[str, dict[str, str]] = {}
    origin: dict[str, str] = {}
    left = list(ROOTS)
    while left:
        model = left.pop()
        name = _VERSION.sub("", model)
        if name in shapes:
            assert origin[name] == model, f"{name} is both {origin[name]} and {model}"
            continue
        origin[name] = model
        kinds, names = getattr(models, model).openapi_types, getattr(models, model).attribute_map
        shapes[name] = {names[attribute]: _written(kind, attribute) for attribute, kind in kinds.items()}
        left += [found for kind in kinds.values() for found in re.findall(r"\b(?:Core|Events)?V[0-9]\w*", kind)]
    return {"from": f"kubernetes {version('kubernetes')}", "shapes": {name: shapes[name] for name in sorted(shapes)}}


def text() -> str:
    """The table as in the file: one shape a line."""
    made = table()
    lines = [f"  {json.dumps(name)}: {json.dumps(shape)}" for name, shape in made["shapes"].items()]
    return f'{{"from": {json.dumps(made["from"])}, "shapes": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
