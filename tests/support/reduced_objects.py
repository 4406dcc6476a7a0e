"""Objects of recorded clusters as they are read: reduced to the members that the built-in reasons need."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rules_engine.diagnosis.reading.built_in_fields import BUILT_IN_FIELDS
from rules_engine.diagnosis.reading.reduction import Reducer
from rules_engine.model.json.patch import Json


@cache
def _reducer(kind: str) -> Reducer:
    return Reducer(kind, BUILT_IN_FIELDS.get(kind, {}))


def reduced(by_kind: Mapping[str, Sequence[dict[str, Any]]]) -> Mapping[str, Sequence[dict[str, Json]]]:
    """Reduce the objects of each kind."""
    return {kind: [_reducer(kind).reduce(found) for found in objects] for kind, objects in by_kind.items()}
