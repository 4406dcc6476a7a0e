"""Diagnostics and ladders of a diagnosis: the packaged ones and those given."""

from pathlib import Path

import pytest

from rules_engine.model.problems.problem import Severity
from rules_engine.rules.diagnostic.evaluation import CompiledDiagnostic
from rules_engine.rules.sources.rule_sources import PathSource
from rules_engine.server.commands.doctor.preparation import PreparedDoctor, prepare_diagnosis
from tests.support.authoring import ladder
from tests.support.diagnostics import document

LADDER = ladder("small", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu")
DIAGNOSTIC = document("when: \"object.spec.providerID == ''\"\nseverity: Error\nreason: Ours", "%s")


def named(prepared: PreparedDoctor) -> dict[str, CompiledDiagnostic]:
    return {compiled.diagnostic.name: compiled for compiled in prepared.diagnostics}


def test_the_packaged_diagnostics_have_no_problems_and_no_rules() -> None:
    prepared = prepare_diagnosis(())

    assert (prepared.problems, prepared.failed, prepared.rule_set, prepared.rules) == ((), False, None, "")
    assert len(prepared.diagnostics) > 10


def test_a_diagnostic_of_the_same_name_replaces_the_packaged_one(tmp_path: Path) -> None:
    packaged = named(prepare_diagnosis(()))
    replaced = min(packaged)
    (tmp_path / "ours.yaml").write_text(f"{DIAGNOSTIC % replaced}---\n{DIAGNOSTIC % 'of-our-own'}")

    names = named(prepare_diagnosis([PathSource(tmp_path)]))

    assert names.keys() == packaged.keys() | {"of-our-own"}
    assert names[replaced].diagnostic.reason == "Ours"
    assert packaged[replaced].diagnostic.reason != "Ours"


def test_ladders_come_from_the_given_rules_with_their_place(tmp_path: Path) -> None:
    paths = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    paths[0].write_text(LADDER)
    paths[1].write_text(DIAGNOSTIC % "ours")

    prepared = prepare_diagnosis([*map(PathSource, paths)])

    assert prepared.rule_set is not None
    assert [compiled.rule.id for compiled in prepared.rule_set.rules] == ["FallbackLadder/small"]
    assert prepared.rules == f"{paths[0]} {paths[1]}"


def test_problems_are_in_file_order(tmp_path: Path) -> None:
    wrong = (DIAGNOSTIC % "a").replace("providerID", "providerId")
    (tmp_path / "a.yaml").write_text(f"{wrong}---\n{DIAGNOSTIC % 'b'}  mode: Off\n")
    (tmp_path / "b.yaml").write_text((DIAGNOSTIC % "c").replace("providerID", "provider"))

    prepared = prepare_diagnosis([PathSource(tmp_path)])

    assert [str(problem.code) for problem in prepared.problems] == ["cel-field", "unknown-field", "cel-field"]
    assert prepared.failed


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ((DIAGNOSTIC % "ours").replace("object.spec.", "object.spce."), "cel-field"),
        ((DIAGNOSTIC % "ours").replace("Error", "Fatal"), "wrong-value"),
        (LADDER.replace("rungs", "rings"), "unknown-field"),
    ],
)
def test_errors_are_problems_with_their_place(tmp_path: Path, content: str, code: str) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(content)

    prepared = prepare_diagnosis([PathSource(path)])

    assert prepared.failed
    errors = [problem for problem in prepared.problems if problem.severity is Severity.ERROR]
    assert code in [problem.code for problem in errors]
    assert {problem.location.file for problem in errors} == {str(path)}
    assert str(path) in prepared.sources
