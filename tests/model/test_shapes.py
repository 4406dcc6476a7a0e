"""The table of shapes, compared with the kubernetes client."""

from importlib.metadata import version

import pytest

from rules_engine.language.cel import types
from tools import shape_table


def test_the_table_matches_the_client() -> None:
    made_from = shape_table.TABLE.read_text(encoding="utf-8").split('"')[3]
    installed = f"kubernetes {version('kubernetes')}"
    if made_from != installed:
        pytest.skip(f"the table was made from {made_from}; here is {installed}: python -m tools.shape_table renews it")
    assert shape_table.text() == shape_table.TABLE.read_text(encoding="utf-8")


def test_every_type_of_the_table_is_known() -> None:
    seen: set[str] = set()
    left: list[types.Type] = [types.POD, types.NAMESPACE, *map(types.shape_type, ("Node", "DaemonSet", "Event"))]
    while left:
        kind = left.pop()
        left += kind.parameters
        if isinstance(kind, types.ObjectType) and kind.name not in seen:
            seen.add(kind.name)
            left += kind.fields.values()
    assert {"Pod", "PodSpec", "Container", "ResourceRequirements", "NodeStatus", "Event"} <= seen
    assert len(seen) > 100


def test_labels_annotations_and_resources_are_open_maps() -> None:
    metadata = types.shape_type("ObjectMeta").fields
    assert metadata["labels"] == metadata["annotations"] == types.map_of(types.STRING, types.STRING)
    for field in ("limits", "requests"):
        amounts = types.shape_type("ResourceRequirements").fields[field]
        assert amounts == types.map_of(types.STRING, types.STRING)
        assert amounts.parameters[1] is types.AMOUNT
    assert types.shape_type("EmptyDirVolumeSource").fields["sizeLimit"] is types.AMOUNT
