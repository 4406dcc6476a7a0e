"""The recipes of docs/how-to/recipes.md: each is checked and tested on its own, and all are checked together."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.test.rule_tests import run_tests
from rules_engine.model.problems.problem import render_problem
from tools.documents import REPOSITORY, blocks

PAGE = REPOSITORY / "docs/how-to/recipes.md"
RECIPES = {block.title: block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language == "yaml"}


def documents(text: str) -> tuple[list[Any], list[Any]]:
    """Return the rules and the tests of a recipe."""
    found = list(yaml.safe_load_all(text))
    tests = [document for document in found if document["kind"] == "RuleTest"]
    return [document for document in found if document not in tests], tests


def problems(folder: Path) -> list[str]:
    checked = check_files([folder])
    return [render_problem(problem, checked.sources) for problem in checked.answer.problems]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_no_problem_and_its_cases_pass(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(RECIPES[name], encoding="utf-8")

    assert problems(tmp_path) == []
    run = run_tests([tmp_path])
    assert [(str(result), result.mismatches) for result in run.answer.cases if not result.passed] == []
    assert run.answer.succeeded


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_its_name_and_both_outcomes(name: str) -> None:
    [rule, *_], [test] = documents(RECIPES[name])

    assert RECIPES[name].startswith(f"# {name}\n")
    assert rule["metadata"]["name"] == test["metadata"]["name"] == name.removesuffix(".yaml")
    assert test["spec"]["rules"] == [name]
    if rule["kind"] == "Validation":
        expected = [case["expect"] for case in test["spec"]["cases"]]
        failing = [expect for expect in expected if expect.get("warnings") or not expect.get("allowed", True)]
        assert 0 < len(failing) < len(expected)


@pytest.mark.parametrize("name", RECIPES)
def test_no_validation_of_a_recipe_can_be_left_out(name: str, tmp_path: Path) -> None:
    [rule, *_], tests = documents(RECIPES[name])
    validations = rule["spec"].get("validations", [])

    for index in range(len(validations)):
        replaced = {**validations[index], "expression": "object.spec.containers.size() >= 0"}
        without = {**rule["spec"], "validations": [*validations[:index], replaced, *validations[index + 1 :]]}
        (tmp_path / name).write_text(yaml.safe_dump_all([{**rule, "spec": without}, *tests]), encoding="utf-8")
        assert not run_tests([tmp_path]).answer.succeeded


def test_all_recipes_can_be_loaded_together(tmp_path: Path) -> None:
    for name, text in RECIPES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    assert len(RECIPES) >= 9
    assert problems(tmp_path) == []
    assert run_tests([tmp_path]).answer.succeeded
