"""Shipped rule sets have no line that no case needs."""

import shutil
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules_engine.authoring.test.rule_tests import run_tests
from rules_engine.language.schemas import schema
from rules_engine.language.yaml.documents import LOADER
from tests.rules.sources.test_shipped_rules import EXAMPLES, SHIPPED, shipped

# Fields without an effect on any decision or diagnosis: weights, which only Scale reads; the resources of the shipped
# validations, which keep pods from being sent; and texts for people, of which test_packaged_diagnostics.py tests those
# of Diagnostics.
TEXTS = {"description", "message", "cause", "causedBy", "evidence", "remedies", "certainty", "onHost"}
WITHOUT_EFFECT = {*TEXTS, "weight"}
WITHOUT_EFFECT_PATHS = {("match",), ("match", "resources"), ("match", "resources", 0)}

# What cannot be left out: the rule would not load.
NEEDED = {"rungs", "validations", "variables", "resource", "name", "expression"}
NEEDED_OF_DIAGNOSTICS = {"forEach", "when", "severity", "reason", "messageExpression"}

Path_ = tuple[str | int, ...]


def lines_of(node: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the members and items of a spec that may be removed, outermost first."""
    members = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in members:
        if key in WITHOUT_EFFECT or path == ("variables",) or (*path, key) in WITHOUT_EFFECT_PATHS:
            continue
        if key not in NEEDED | NEEDED_OF_DIAGNOSTICS:
            yield (*path, key)
        yield from lines_of(value, (*path, key))


def without(document: Any, path: Path_) -> Any:
    cut = deepcopy(document)
    node = cut["spec"]
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    return cut


def is_default(document: Any, path: Path_) -> bool:
    fields = schema(document["kind"])["properties"]["spec"]["properties"]
    return len(path) == 1 and document["spec"][path[0]] == fields[path[0]].get("default")


def cuts() -> Iterator[Any]:
    """Rule files, each without one line."""
    for file in sorted(file for folder in (*SHIPPED, EXAMPLES) for file in folder.glob("*.yaml")):
        documents = list(yaml.load_all(file.read_text(), Loader=LOADER))
        for index, document in enumerate(documents):
            if document["kind"] == "RuleTest":
                continue
            for path in lines_of(document["spec"]):
                if not is_default(document, path):
                    rest = [*documents[:index], without(document, path), *documents[index + 1 :]]
                    name = "/".join(map(str, (file.parent.name, document["metadata"]["name"], *path)))
                    yield pytest.param(file, rest, id=name)


def files_with_cases_of(file: Path) -> Sequence[Path]:
    """Return the files of a set that the cases of a file need: a Diagnostic is tested without those of other files."""
    if file.parent.name == "diagnostics":
        return [file, file.with_suffix(".test.yaml")]
    return [*file.parent.iterdir()]


@pytest.mark.parametrize(("file", "documents"), list(cuts()))
def test_a_case_fails_without_any_line_of_a_shipped_rule(file: Path, documents: list[Any], tmp_path: Path) -> None:
    folder = tmp_path / file.parent.name
    folder.mkdir()
    for tested in files_with_cases_of(file):
        shutil.copy(tested, folder)
    (folder / file.name).write_text(yaml.safe_dump_all(documents))

    assert not run_tests([folder]).answer.succeeded


@shipped(SHIPPED)
def test_a_rewritten_set_passes_its_cases(folder: Path, tmp_path: Path) -> None:
    """Otherwise a copy broken by the rewriting would satisfy the test before."""
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    for file in copy.glob("*.yaml"):
        file.write_text(yaml.safe_dump_all(list(yaml.load_all(file.read_text(), Loader=LOADER))))

    assert run_tests([copy]).answer.succeeded
