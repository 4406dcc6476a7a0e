"""Shipped rule sets: valid and tested."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.test.rule_tests import run_tests
from rules_engine.model.problems.problem import render_problem
from rules_engine.rules.ladder.value import FallbackLadder
from rules_engine.rules.sources.rule_files import read_rules
from rules_engine.server.commands import main

REPOSITORY = Path(__file__).parents[3]
RULES = REPOSITORY / "rules"
SHIPPED = sorted(folder for folder in RULES.iterdir() if folder.is_dir())
EXAMPLES = REPOSITORY / "examples" / "rules"


def shipped(folders: Sequence[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("folder", [pytest.param(folder, id=folder.name) for folder in folders])


@shipped([*SHIPPED, EXAMPLES])
def test_a_set_on_its_own_has_no_problem_not_even_a_warning(folder: Path) -> None:
    checked = check_files([folder])

    assert [render_problem(problem, checked.sources) for problem in checked.answer.problems] == []
    assert checked.answer.rules > 0 or folder.name == "diagnostics"
    assert checked.answer.tests > 0


@shipped([*SHIPPED, EXAMPLES])
def test_every_case_of_a_set_passes(folder: Path) -> None:
    run = run_tests([folder])

    assert [(str(result), result.mismatches) for result in run.answer.cases if not result.passed] == []
    assert run.answer.succeeded


@shipped([*SHIPPED, EXAMPLES])
def test_the_cases_of_a_set_cover_all_of_its_rules(folder: Path) -> None:
    coverage = run_tests([folder], coverage=True).answer.coverage

    assert coverage is not None
    assert coverage.total
    # The first ladder of a card decides requests for the devices that it shares with later ones.
    ladders = [rule for rule in read_rules([folder]).loaded.rules if isinstance(rule, FallbackLadder)]
    first = {rung.resource: ladder.id for ladder in ladders[::-1] for rung in ladder.rungs}
    shared = [item for item in coverage.uncovered if item.event == "requested" and first[item.name] != item.rule]
    assert [item for item in coverage.uncovered if item not in shared] == []


def test_the_ladders_of_different_cards_can_be_loaded_together() -> None:
    assert (
        check_files([RULES / name for name in ("mig-a30", "mig-a100-80gb", "mig-h200", "mig-b200")]).answer.problems
        == ()
    )


@pytest.mark.parametrize("command", ["check", "test"])
def test_the_command_line_agrees(command: str) -> None:
    result = CliRunner().invoke(main, [command, str(RULES)])

    assert result.exit_code == 0, result.output
