"""The fields of Kubernetes' objects, from a table generated from the kubernetes client's models.

shapes.json is written by tools/shape_table.py, and a test compares it with the client; so neither start-up nor
a request imports the client.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any


@lru_cache(maxsize=1)
def _load_table() -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(Path(__file__).with_name("shapes.json").read_text(encoding="utf-8"))
    return content


def has_shape(name: str) -> bool:
    """Return True for a kind that has a shape. ResourceClaim has none: the shape of its name is a part of a Pod's."""
    return "metadata" in _load_table()["shapes"].get(name, ())


def field_types(name: str) -> Mapping[str, str]:
    """Return the fields of a kind such as Pod or PodSpec with their types: [T] is a list, {T} a map with text keys."""
    shapes: Mapping[str, Mapping[str, str]] = _load_table()["shapes"]
    return shapes[name]


def always_present_fields(name: str) -> frozenset[str]:
    """Return the fields that every object of a kind has once the API server has set its defaults."""
    return frozenset(_load_table()["present"].get(name, ()))
