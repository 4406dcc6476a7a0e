"""`sets`: the packaged rule sets on screen and in a folder."""

from pathlib import Path

import pytest

from rules_engine.authoring.check import check
from rules_engine.authoring.rule_tests import run_tests
from rules_engine.authoring.schemas import without_schema_comments
from tests.support.authoring import cli, completed, file_size_limit, write

SETS = ["default", "mig-40gb", "mig-80gb"]
SHIPPED = Path(__file__).parents[2] / "rules"


def test_the_list_has_every_set_and_rule_with_its_description() -> None:
    result = cli("sets", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        """\
default  used without --rules
  FallbackLadder/mig-to-gpu  Replaces a MIG device that no node offers with a lower one, else with a higher one, else with the whole card.
  ResourceInjection/t4  cpu and memory in proportion to the T4 cards of a pod.
  ResourceInjection/v100  cpu and memory in proportion to the V100 cards of a pod.
  Validation/well-formed-gpus  GPUs and other extended resources are requested in the form that the API server accepts.
  Validation/rdma-needs-ipc-lock  RDMA registers memory with the network card, which must then stay in place.
  Validation/gpus-and-resource-claims  GPUs are requested by resource name or by resourceClaims (Dynamic Resource Allocation), not by both.
mig-40gb
  FallbackLadder/mig-40gb  A100-40GB, down to the whole card.
mig-80gb
  FallbackLadder/mig-80gb  A100-80GB and H100-80GB, down to the whole card.
"""  # noqa: E501 - the exact output
    )
    assert sorted(path.name for path in SHIPPED.iterdir()) == SETS


@pytest.mark.parametrize("name", SETS)
def test_a_copy_has_the_same_files_and_passes_its_tests(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "rules"
    result = cli("sets", "copy", name, folder)
    assert result.exit_code == 0
    copied = {path.name: path.read_text() for path in folder.iterdir()}
    assert copied == {path.name: without_schema_comments(path.read_text()) for path in (SHIPPED / name).iterdir()}
    assert sorted(result.stdout.splitlines()) == sorted(str(folder / file) for file in copied)
    assert check([folder]).problems == ()
    assert run_tests([folder]).succeeded


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_shown_as_one_stream_that_passes_its_tests(name: str, tmp_path: Path) -> None:
    result = cli("sets", "show", name)
    assert result.exit_code == 0
    for file in (SHIPPED / name).iterdir():
        assert f"# {file.name}\n{without_schema_comments(file.read_text())}" in result.stdout
    assert result.stdout.index("# ladder.yaml\n") < result.stdout.index(f"# {name}.test.yaml\n")
    write(tmp_path, {"set.yaml": result.stdout})
    assert check([tmp_path]).problems == ()
    assert run_tests([tmp_path]).succeeded


def test_existing_files_are_never_overwritten(tmp_path: Path) -> None:
    write(tmp_path, {"mig-80gb.test.yaml": "mine\n"})
    result = cli("sets", "copy", "mig-80gb", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == (
        f"Error: nothing is written, since {tmp_path / 'mig-80gb.test.yaml'} exists"
    )
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mig-80gb.test.yaml", "mine\n")]


def test_a_link_to_nowhere_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "mig-80gb.test.yaml"
    link.symlink_to(tmp_path / "elsewhere.yaml")
    result = cli("sets", "copy", "mig-80gb", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"Error: nothing is written, since {link} exists"
    assert list(tmp_path.iterdir()) == [link]


def test_a_file_that_cannot_be_written_whole_is_removed(tmp_path: Path) -> None:
    with file_size_limit(100):
        result = cli("sets", "copy", "mig-80gb", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.endswith(": File too large\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["file/below", "x" * 300])
def test_a_folder_that_cannot_be_made_is_reported_in_one_line(folder: str, tmp_path: Path) -> None:
    write(tmp_path, {"file": ""})
    result = cli("sets", "copy", "mig-80gb", tmp_path / folder)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: Could not open file ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["show", "mig-80"], ["copy", "mig-80", "rules"]])
def test_an_unknown_set_is_a_usage_error_with_a_suggestion(arguments: list[str]) -> None:
    result = cli("sets", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == (
        "Error: Invalid value for 'NAME': unknown set 'mig-80' (did you mean 'mig-80gb'?): "
        "must be one of default, mig-40gb, mig-80gb"
    )


def test_a_shell_completes_commands_and_names() -> None:
    assert completed("sets", "") == ["copy", "list", "show"]
    assert completed("sets", "show", "mig-") == ["mig-40gb", "mig-80gb"]
    assert completed("sets", "copy", "d") == ["default"]
