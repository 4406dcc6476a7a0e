"""The commands of the hooks: options and files as pre-commit passes them."""

from pathlib import Path

import pytest

from rules_engine.cli.pre_commit import rule_set_of
from tests.support.authoring import cli, write
from tests.support.hooked_rules import LADDER, RULE_SET, TEST

# The command behind the hooks


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("rules/a.yaml", "rules"),
        ("./rules/a.yaml", "rules"),
        ("clusters/a/gpu-rules/pods/rules/job.yaml", "clusters/a/gpu-rules"),
        ("clusters/a/ladder.yaml", "clusters/a"),
        ("my-rules/a.yaml", "my-rules"),
        ("a.yaml", "."),
    ],
)
def test_a_rule_set_is_the_outermost_folder_of_that_name(file: str, folder: str) -> None:
    assert rule_set_of(file) == Path(folder)


def test_options_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(
        write(tmp_path, {f"{name}/rules/{file}": text for name in "ab" for file, text in RULE_SET.items()})
    )
    passed = cli("pre-commit", "test", "-kno-such-case", "a/rules/ladder.yaml", "b/rules/ladder.yaml")
    assert (passed.exit_code, passed.stderr) == (
        1,
        "no case with 'no-such-case' in its name in a/rules\nno case with 'no-such-case' in its name in b/rules\n",
    )
    assert cli("pre-commit", "check", "--output=github", "a/rules/ladder.yaml").stdout == ""


@pytest.mark.parametrize("marker", [[], ["--"]])
@pytest.mark.parametrize("file", ["-x.yaml", "--strict", "-rules/a.yaml", "--output=junit=found/rules/a.yaml"])
def test_a_file_whose_name_begins_like_an_option_is_a_file(
    file: str, marker: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = file if file.endswith(".yaml") else "a.yaml"
    monkeypatch.chdir(write(tmp_path, {file: "", name: LADDER, f"{rule_set_of(name)}/b.test.yaml": TEST}))
    checked = cli("pre-commit", "check", "--strict", *marker, file)
    assert (checked.exit_code, checked.stdout) == (0, "2 files checked, no problems\n")
    tested = cli("pre-commit", "test", "-q", *marker, file)
    assert (tested.exit_code, tested.stdout) == (0, "")
    assert not Path("found").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check"], "no files are given"),
        (["check", "--"], "no files are given"),
        (["check", "--", "-absent.yaml"], "'-absent.yaml' is not a file"),
        (["check", "-absent.yaml", "rules/a.yaml"], "Usage: gpu-rules check [OPTIONS] PATH..."),
        (["lint", "rules/a.yaml"], "'lint' is not one of 'check', 'test'"),
        (["check", "absent/rules/a.yaml"], "'absent/rules/a.yaml' is not a file"),
        (["test", "--coverage-min", "100", "rules/a.yaml"], "'100' is not a file; the value of an option is written"),
        (["check", "--no-such-option", "rules/a.yaml"], "Usage: gpu-rules check [OPTIONS] PATH..."),
    ],
)
def test_wrong_usage_is_reported(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path, {"rules/a.yaml": LADDER}))
    result = cli("pre-commit", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
