"""The shapes of Kubernetes' objects, from a table made of the kubernetes client's models.

shapes.json is written by tests/model/shape_table.py, and a test says when it is no longer what the client has; so
neither start-up nor a request imports the client.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Mapping[str, str]]:
    content = json.loads(Path(__file__).with_name("shapes.json").read_text(encoding="utf-8"))
    shapes: Mapping[str, Mapping[str, str]] = content["shapes"]
    return shapes


def fields(name: str) -> Mapping[str, str]:
    """The fields of a kind such as Pod or PodSpec; of their types, [T] is a list and {T} a map with string keys."""
    return _table()[name]
