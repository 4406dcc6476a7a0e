"""Large output of kubectl, read object by object and reduced to what plays read, with equal values shared."""

from pathlib import Path

from rules_engine.evaluation.fingerprint import marshal_value
from rules_engine.loading.files import MAX_FILE_BYTES
from rules_engine.loading.json_items import ListError, scan_strict
from rules_engine.loading.json_list import JsonList
from rules_engine.loading.kubernetes.kubectl import is_cluster
from rules_engine.model.json.lenient import Object, as_mapping, object_items
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import PRIORITY_CLASS
from rules_engine.model.kubernetes.device_objects import DEVICE_KINDS
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED
from rules_engine.model.problems.problem import Problems

MAX_LIST_BYTES = 4 * 1024 * 1024 * 1024
"""Largest list: five times the nodes and pods of the largest cluster that Kubernetes supports."""

MAX_SHARED = 50_000
"""Cached values to share: pods of a workload have equal containers and tolerations."""

_KINDS = frozenset({"Node", "Pod", "Namespace", "ResourceQuota", "LimitRange", PRIORITY_CLASS, *DEVICE_KINDS})

_STATUS = (
    "phase",
    "startTime",
    "nominatedNodeName",
    "extendedResourceClaimStatus",
    "capacity",
    "allocatable",
    "allocation",
    "hard",
    "used",
)
"""Members of a status to keep unchanged."""


def read_large_cluster(path: Path, problems: Problems) -> Object | None:
    """Return the list in a large file, with the objects that a simulation reads.

    None for a small file, a file without such a list, and, with a problem, a file with errors.
    """
    try:
        if path.suffix != ".json" or not path.is_file() or path.stat().st_size <= MAX_FILE_BYTES:
            return None
        with path.open("rb") as file:
            head = file.read(MAX_FILE_BYTES)
            reader = JsonList(str(path), head, file, MAX_LIST_BYTES, scan_strict)
            return _read_list(reader, problems)
    except OSError:
        # `load_inventory`, which reads the file next, reports this.
        return None


def _read_list(reader: JsonList[Json], problems: Problems) -> Object | None:
    reducer = _Reducer()
    items: list[Json] = []
    try:
        objects = (item for _, item in reader.items() if isinstance(item, dict))
        items += (reducer.object(item) for item in objects if item.get("kind", "Node") in _KINDS)
    except ListError as error:
        problems.error(error.code, str(error), reader.here())
        return None
    value: Json = {**reader.members, "items": items}
    return value if reader.listed and is_cluster(value) else None


class _Reducer:
    """Reducer of objects, which share equal values."""

    def __init__(self) -> None:
        self._shared: dict[bytes, Json] = {}

    def object(self, item: Object) -> dict[str, Json]:
        """Return an object without the members that a simulation does not read."""
        reduced = dict(item)
        metadata = {name: value for name, value in as_mapping(item.get("metadata")).items() if name != "managedFields"}
        annotations = as_mapping(metadata.get("annotations"))
        if LAST_APPLIED in annotations:
            metadata["annotations"] = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
        status = as_mapping(item.get("status"))
        kept: dict[str, Json] = {name: self._value(status[name]) for name in _STATUS if name in status}
        if "conditions" in status:
            kept["conditions"] = [
                self._value(dict(condition))
                for condition in object_items(status.get("conditions"))
                if condition.get("type") == "Ready"
            ]
        reduced["metadata"] = {name: self._value(value) for name, value in metadata.items()}
        reduced["spec"] = {name: self._value(value) for name, value in as_mapping(item.get("spec")).items()}
        if status:
            reduced["status"] = kept
        return reduced

    def _value(self, value: Json) -> Json:
        if not isinstance(value, dict | list):
            return value
        if len(self._shared) >= MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault(marshal_value([value]), value)
