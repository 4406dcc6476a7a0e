"""The objects of a list are read one by one, as often as needed, however the list is written."""

import io
import json
import os
import sys
from errno import EFBIG
from pathlib import Path
from typing import Any

import pytest

from rules_engine.difference.reading import object_stream
from rules_engine.difference.reading.object_stream import ObjectFile
from rules_engine.loading.files import STDIN
from rules_engine.loading.json_list import CHUNK_BYTES
from rules_engine.loading.yaml.documents import MAX_DEPTH
from rules_engine.model.problems.problem import Problems
from tests.support.api import write_list

ITEMS: list[Any] = [
    {"kind": "Pod", "metadata": {"name": "a", "annotations": {"text": "{\n}", "empty": ""}}},
    {"kind": "Pod", "spec": {"containers": [{"name": "main"}, {}]}},
]


def objects(file: ObjectFile) -> tuple[list[Any], list[str]]:
    """Return the objects and problems of a pass."""
    problems = Problems()
    return list(file.objects(problems)), [str(problem) for problem in problems.items]


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
def test_a_list_is_read_twice_however_it_is_indented(tmp_path: Path, indent: int | None) -> None:
    with ObjectFile(write_list(tmp_path / "list.json", ITEMS, indent=indent)) as file:
        assert objects(file) == objects(file) == (ITEMS, [])


def test_items_of_a_list_with_a_kind_have_that_kind(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text('{"kind": "NodeList", "items": [{"metadata": {"name": "a"}}, 7]}')
    with ObjectFile(path) as file:
        assert objects(file) == ([{"kind": "Node", "metadata": {"name": "a"}}], [])


@pytest.mark.parametrize(("text", "expected"), [('{"kind": "Pod"}', [{"kind": "Pod"}]), ("{}", [])])
def test_a_single_object_is_read(tmp_path: Path, text: str, expected: list[Any]) -> None:
    path = tmp_path / "pod.json"
    path.write_text(text)
    with ObjectFile(path) as file:
        assert objects(file) == (expected, [])


def test_half_of_a_surrogate_pair_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(
        '{"items": [\n    {\n        "kind": "\\ud800", "n": [1, "a"]\n    },\n    {\n        "kind": "b"\n    }]}'
    )
    with ObjectFile(path) as file:
        assert objects(file) == ([{"kind": "\ufffd", "n": [1, "a"]}, {"kind": "b"}], [])


def test_an_item_is_read_beyond_the_end_of_a_chunk(tmp_path: Path) -> None:
    items = [*ITEMS, {"kind": "x" * CHUNK_BYTES}, *ITEMS]
    with ObjectFile(write_list(tmp_path / "list.json", items)) as file:
        assert objects(file) == (items, [])


def test_a_cut_list_is_an_error_after_its_objects(tmp_path: Path) -> None:
    path = write_list(tmp_path / "list.json", ITEMS)
    path.write_text(path.read_text()[:-60])
    with ObjectFile(path) as file:
        found, problems = objects(file)
    assert found == ITEMS[:1]
    assert problems == [f"{path}:22:10: error: the text is not JSON, or it is cut [json-syntax]"]


def test_a_deep_object_is_an_error(tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    with ObjectFile(write_list(tmp_path / "list.json", [{"kind": deep}], indent=None)) as file:
        _, (problem,) = objects(file)
    assert "more than" in problem


def test_standard_input_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    written = json.dumps({"items": ITEMS}).encode()
    counted: list[int] = []
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written)))
    with ObjectFile(STDIN, counted.append) as file:
        assert file.size == len(written)
        assert objects(file) == objects(file) == (ITEMS, [])
    assert sum(counted) == 2 * len(written)


def test_standard_input_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_stream, "MAX_LIST_BYTES", 3)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{   }")))
    with pytest.raises(OSError, match=os.strerror(EFBIG)):
        ObjectFile(STDIN)


def test_a_pipe_is_read_twice() -> None:
    reader, writer = os.pipe()
    os.write(writer, json.dumps({"items": ITEMS}).encode())
    os.close(writer)
    try:
        with ObjectFile(Path(f"/dev/fd/{reader}")) as file:
            assert objects(file) == objects(file) == (ITEMS, [])
    finally:
        os.close(reader)


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ObjectFile(tmp_path / "absent.json")
