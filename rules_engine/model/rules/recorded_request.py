"""Members of requests that are not recorded in the decision log: they often hold secrets, or are of no use."""

from collections.abc import Mapping

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import RESERVATION, Kept, merge_fields
from rules_engine.model.kubernetes.removed_values import POD, Path, field_paths, without_fields

_POD = merge_fields(POD, {"metadata": {"annotations": {RESERVATION: None}}})

_LEFT_OUT: Mapping[str, Kept] = {"object": _POD, "oldObject": _POD}

LEFT_OUT: Mapping[str, Path] = field_paths(_LEFT_OUT)
"""The members that are left out, by their names in a decision log."""


def reduce_request(raw: dict[str, Json]) -> tuple[Json, list[str]]:
    """Return a request without the members that are left out, and the names of those that it has."""
    found = dict[str, None]()
    return without_fields(raw, _LEFT_OUT, found), [*found]
