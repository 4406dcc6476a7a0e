"""Members of requests that are not recorded in the decision log: they often hold secrets, or are of no use."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED, NO_FIELDS, RESERVATION, Kept

Path: TypeAlias = tuple[str, ...]
"""The names of a member of a request and of those that contain it; items of lists have no name."""

_HANDLER: Kept = {"exec": {"command": None}, "httpGet": {"httpHeaders": {"value": None}}}

_CONTAINER: Kept = {
    "env": {"value": None},
    "command": None,
    "args": None,
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _HANDLER),
    "lifecycle": dict.fromkeys(("postStart", "preStop"), _HANDLER),
}

_POD: Kept = {
    "metadata": {"managedFields": None, "annotations": {LAST_APPLIED: None, RESERVATION: None}},
    "spec": dict.fromkeys(("containers", "initContainers", "ephemeralContainers"), _CONTAINER),
}

_LEFT_OUT: Mapping[str, Kept] = {"object": _POD, "oldObject": _POD}


def _paths(fields: Mapping[str, Kept], *path: str) -> Iterator[Path]:
    for name, below in fields.items():
        if below is None:
            yield *path, name
        else:
            yield from _paths(below, *path, name)


LEFT_OUT: Mapping[str, Path] = MappingProxyType({".".join(path): path for path in _paths(_LEFT_OUT)})
"""The members that are left out, by their names in a decision log."""


def reduce_request(raw: dict[str, Json]) -> tuple[Json, list[str]]:
    """Return a request without the members that are left out, and the names of those that it has."""
    found = dict[str, None]()
    return _leave_out(raw, _LEFT_OUT, "", found), [*found]


def _leave_out(value: Json, fields: Mapping[str, Kept], prefix: str, found: dict[str, None]) -> Json:
    if isinstance(value, list):
        return [_leave_out(item, fields, prefix, found) for item in value]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Json] = {}
    for name, member in value.items():
        below = fields.get(name, NO_FIELDS)
        if below is None:
            found[prefix + name] = None
        else:
            kept[name] = _leave_out(member, below, f"{prefix}{name}.", found) if below else member
    return kept
