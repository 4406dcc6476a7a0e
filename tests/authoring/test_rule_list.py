"""`list`: rules of files and their digest."""

import json
from pathlib import Path

import pytest

from rules_engine.documents.registry import load_documents
from tests.support.authoring import cli, injection, ladder, validation, write
from tests.support.diagnostics import document

GPU = "nvidia.com/gpu"


def rules(folder: Path) -> Path:
    files = {
        "a.yaml": validation("v", "'true'", mode="Audit"),
        "b.yaml": f"{ladder('second', GPU)}---\n{ladder('first', GPU, mode='Off', priority='7')}",
        "c.yaml": injection("i"),
    }
    return write(folder, files)


def test_rules_are_listed_by_kind_in_order_of_evaluation(tmp_path: Path) -> None:
    folder = rules(tmp_path)
    result = cli("list", folder)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split() for line in lines[:-1]] == [
        ["KIND", "NAME", "MODE", "PRIORITY", "PLACE"],
        ["FallbackLadder", "first", "Off", "7", f"{folder}/b.yaml:10:18"],
        ["FallbackLadder", "second", "Enforce", "0", f"{folder}/b.yaml:3:18"],
        ["ResourceInjection", "i", "Enforce", "0", f"{folder}/c.yaml:3:18"],
        ["Validation", "v", "Audit", "0", f"{folder}/a.yaml:3:18"],
    ]
    assert lines[-1] == f"digest {load_documents([folder]).digest}"


def test_json_has_the_same_rules(tmp_path: Path) -> None:
    folder = rules(tmp_path)
    document = json.loads(cli("list", "--output", "json", folder).stdout)
    assert document["digest"] == load_documents([folder]).digest
    assert [rule["name"] for rule in document["rules"]] == ["first", "second", "i", "v"]
    assert document["rules"][0] == {
        "kind": "FallbackLadder",
        "name": "first",
        "mode": "Off",
        "priority": 7,
        "file": f"{folder}/b.yaml",
        "line": 10,
        "column": 18,
    }


def test_diagnostics_are_listed_after_the_rules_and_are_not_in_the_digest(tmp_path: Path) -> None:
    folder = rules(tmp_path)
    digest = load_documents([folder]).digest
    (folder / "d.yaml").write_text(document("severity: Info\nreason: NodeCordoned", "cordoned"))
    *_, diagnostic, last = cli("list", folder).stdout.splitlines()
    assert diagnostic.split() == ["Diagnostic", "cordoned", "-", "-", f"{folder}/d.yaml:3:18"]
    assert last == f"digest {digest}"
    assert json.loads(cli("list", "--output", "json", folder / "d.yaml").stdout)["diagnostics"] == [
        {
            "name": "cordoned",
            "forEach": "Node",
            "reason": "NodeCordoned",
            "severity": "Info",
            "file": f"{folder}/d.yaml",
            "line": 3,
            "column": 18,
        }
    ]


def test_diagnostics_with_errors_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text(document("when: object.spec.?unschedulabel.orValue(false)"))
    result = cli("list", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "[cel-field]" in result.stderr


def test_rules_with_errors_are_not_listed(tmp_path: Path) -> None:
    result = cli("list", write(tmp_path, {"a.yaml": ladder("a", "nvidia.com/gpu").replace("rungs", "rugns")}))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "[unknown-field]" in result.stderr


@pytest.mark.parametrize("content", [b"", b"\x7fELF\0\xff", b"spec: {rungs: [", b"just text"])
def test_a_file_that_has_no_rules_is_one_line_and_exit_code_1(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    result = cli("list", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{file}:1:")


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    result = cli("list", tmp_path / "absent.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "does not exist" in result.stderr


def test_an_error_of_an_expression_is_an_error(tmp_path: Path) -> None:
    result = cli("list", write(tmp_path, {"a.yaml": validation("a", "objct.x")}))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "[cel-undeclared]" in result.stderr


def test_files_without_rules_fail(tmp_path: Path) -> None:
    folder = write(tmp_path, {"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"})
    for output in ("text", "json"):
        result = cli("list", "--output", output, folder)
        assert result.exit_code == 2
        if output == "text":
            assert (result.stdout, result.stderr) == ("", f"{folder}:1:1: error: no rule found [no-rules]\n")
        else:
            [problem] = json.loads(result.stdout)["problems"]
            assert (problem["code"], problem["file"], result.stderr) == ("no-rules", str(folder), "")


def test_control_characters_in_names_of_files_are_escaped(tmp_path: Path) -> None:
    folder = write(tmp_path / "\x1b[31m", {"a.yaml": ladder("a", GPU)})
    assert cli("list", folder).stdout.splitlines()[1].endswith("/\\x1b[31m/a.yaml:3:18")
    assert json.loads(cli("list", "--output", "json", folder).stdout)["rules"][0]["file"] == f"{folder}/a.yaml"
    (folder / "a.yaml").write_text("kind: Pod\n")
    assert "/\\x1b[31m:1:1: error: no rule found" in cli("list", folder).stderr


def test_standard_input_is_read() -> None:
    result = cli("list", "-", stdin=ladder("a", "nvidia.com/gpu"))
    assert "<stdin>:3:18" in result.stdout
    assert result.exit_code == 0
