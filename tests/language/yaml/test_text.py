"""Written YAML, read back by YAML 1.1 readers and our own."""

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from rules_engine.language.files import SourceFile
from rules_engine.language.yaml.documents import read_documents
from rules_engine.language.yaml.text import dump_yaml
from rules_engine.model.problems.problem import Problems

TRICKY = [
    *("a\nb", "a\n", "a\nb\n", "\na\nb", "a\n\nb", " a\nb", "a \nb", "a\n\n", "\x85", "", "-", "- a", "a: b", "# x"),
    *("on", "No", "~", "1e3", "0x10", "1:30", "4000m", "8Gi", "3E", "2024-01-01", ".inf", "*a", "&a", "!t", "%d", "{"),
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(TRICKY)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(TEXT, VALUES, max_size=4)


@given(DOCUMENTS)
@example({"args": ["set -e\nfoo\n", "a\n\nb"]})
def test_written_yaml_reads_back_as_the_same_value(document: dict[str, Any]) -> None:
    text = dump_yaml(document)
    assert yaml.safe_load(text) == document
    report = Problems()
    (read,) = read_documents(SourceFile("f", text), report)
    assert read.root.json() == document
    assert report.items == read.problems.items == []


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"cpu": "4000m", "memory": "8Gi", "nvidia.com/gpu": "2"}, 'cpu: 4000m\nmemory: 8Gi\nnvidia.com/gpu: "2"\n'),
        ({"a": {}, "b": [], "c": None, "d": True}, "a: {}\nb: []\nc: null\nd: true\n"),
        ({"a": [{"b": "x", "c": ["y1"]}, ["z"]]}, "a:\n  - b: x\n    c:\n      - y1\n  - - z\n"),
        ({"args": ["set -e\nrun\n"]}, "args:\n  - |\n    set -e\n    run\n"),
        ({"a": "one\n\ntwo"}, "a: |-\n  one\n\n  two\n"),
        ({"a": "yes", "y": "x: 1"}, 'a: "yes"\n"y": "x: 1"\n'),
        ({"a": "\x1b[31m\u2028😀"}, 'a: "\\u001b[31m\\u2028😀"\n'),
        ({}, "{}\n"),
    ],
)
def test_yaml_is_written_in_the_style_of_people(document: dict[str, Any], text: str) -> None:
    assert dump_yaml(document) == text
