"""Schemas in editors: the comments of shipped rules, and the settings in docs/how-to/write-and-test.md."""

import json
import re
from pathlib import Path

import pytest
import yaml

from rules_engine.rules.sources.schemas import SCHEMA_FILE
from tools.documents import REPOSITORY, blocks

SHIPPED = sorted([*REPOSITORY.glob("rules/*/*.yaml"), *REPOSITORY.glob("examples/rules/*.yaml")])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_shipped_document_names_the_schema_of_its_kind(path: Path) -> None:
    for document in re.split(r"^---\n", path.read_text(), flags=re.MULTILINE):
        schema = f"../../schemas/{yaml.safe_load(document)['kind']}.json"
        assert document.startswith(f"# yaml-language-server: $schema={schema}\n")
        assert document.count("yaml-language-server") == 1
        assert (path.parent / schema).is_file()


def test_the_settings_of_editors_name_the_schema_that_is_written_there() -> None:
    text = (
        (REPOSITORY / "docs/how-to/write-and-test.md")
        .read_text()
        .partition("\n## In an editor\n")[2]
        .partition("\n## ")[0]
    )
    text_by_language = {block.language: block.text for block in blocks(text)}
    files = {f"./{SCHEMA_FILE}": "rules/**/*.yaml"}
    assert text_by_language["sh"] == f"gpu-rules schema > {SCHEMA_FILE}\n"
    assert json.loads(text_by_language["json"]) == {"yaml.schemas": files}
    assert text_by_language["yaml"] == f"# yaml-language-server: $schema=../{SCHEMA_FILE}\n"
