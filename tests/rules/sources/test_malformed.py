"""Malformed documents cause problems and never raise."""

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rules_engine.language.files import SourceFile
from rules_engine.language.headers import DOCUMENT_KINDS
from rules_engine.language.schemas import schema
from rules_engine.language.yaml.documents import read_documents
from rules_engine.model.problems.problem import Problems
from rules_engine.rules.sources.documents import load_documents
from tests.support.loading import codes

anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text("ab/:*-.\n ", max_size=4)
    | st.sampled_from(["-1", "1Gi", "In", "Merge", "Deny", "nvidia.com/gpu", "FallbackLadder/a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab/ ", max_size=3), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def malformed_documents(draw: st.DrawFn) -> Any:
    """The example of a kind with one value replaced, removed or added."""
    document = copy.deepcopy(schema(draw(st.sampled_from(DOCUMENT_KINDS)))["examples"][0])
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = draw(st.sampled_from(keys)) if keys else None
        below = None if key is None else node[key]
        if not isinstance(below, dict | list) or not below or draw(st.integers(0, 4)) == 0:
            break
        node = below
    change = draw(st.sampled_from(["replace", "remove", "add"]))
    if change == "remove" and key is not None:
        del node[key]
    elif change == "replace" and key is not None:
        node[key] = draw(anything)
    elif isinstance(node, dict):
        node[draw(st.text("abmnse", max_size=4))] = draw(anything)
    else:
        node.append(draw(anything))
    return document


@given(document=malformed_documents())
def test_no_document_makes_reading_fail(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "document.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    loaded = load_documents([path])
    errors = [problem for problem in loaded.problems if problem.severity.value == "error"]
    assert bool(errors) != any(document.valid for document in loaded.documents)


@given(st.text(st.sampled_from("ab0:-?[]{}&*!|>'\"%@#,\n \t\\0<="), max_size=40))
@example("&0:0")
@example("[!x]")
@example("!x 'a\n\n")
@example("- &a\n- !a\n- !a\n  'b'\n- [!!str, !b]")
def test_no_text_makes_reading_fail(text: str) -> None:
    report = Problems()
    documents = read_documents(SourceFile("x.yaml", text), report)
    for document in documents:
        document.root.json()
    assert set(codes(report.items)) <= {"yaml-syntax", "yaml-too-deep"}
