"""docs/how-to/pod-defaults.md has the rules of examples/pod-defaults/, whose cases pass."""

from pathlib import Path

import yaml

from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.test.rule_tests import run_tests
from rules_engine.rules.sources.schemas import without_schema_comments
from tools.documents import REPOSITORY, blocks

PAGE = REPOSITORY / "docs/how-to/pod-defaults.md"
FOLDER = REPOSITORY / "examples/pod-defaults"
RULES = [file for file in sorted(FOLDER.glob("*.yaml")) if not file.name.endswith(".test.yaml")]


def rule_text(file: Path) -> str:
    return without_schema_comments(file.read_text(encoding="utf-8"))


def test_the_page_has_every_rule_of_the_folder() -> None:
    on_page = {block.title: block.text for block in blocks(PAGE.read_text()) if "gpurules.io/" in block.text}

    assert len(RULES) > 15
    assert on_page == {file.name: rule_text(file) for file in RULES if file.name != "gpu-pods.yaml"}  # linked


def test_all_of_them_can_be_loaded_together() -> None:
    assert check_files([FOLDER]).answer.problems == ()


def test_each_validation_has_the_rule_that_adds_beside_it() -> None:
    denying = [file for file in RULES if file.name.endswith(".deny.yaml")]

    assert len(denying) == 7
    for file in denying:
        adding = file.with_name(file.name.replace(".deny", ""))
        kinds = [yaml.safe_load(each.read_text())["kind"] for each in (adding, file)]
        assert kinds == ["PodDefaults", "Validation"]


def test_their_cases_pass() -> None:
    run = run_tests([FOLDER])

    assert [(str(result), result.mismatches) for result in run.answer.cases if not result.passed] == []
    assert run.answer.succeeded
    assert {file.name.replace(".yaml", ".test.yaml") for file in RULES if ".deny" not in file.name} == {
        file.name for file in FOLDER.glob("*.test.yaml")
    }
