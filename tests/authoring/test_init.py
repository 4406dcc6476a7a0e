"""`init`: a repository of rules that passes at once, and never at the cost of existing files."""

import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import jsonschema
import pytest
import yaml

from rules_engine.authoring.check.problem_reference import PROJECT_URL
from rules_engine.rules.sources.schemas import combine_schemas
from tests.support.authoring import cli, file_size_limit, ladder, write
from tools.documents import REPOSITORY, blocks

RULES = ["rules/ladder.test.yaml", "rules/ladder.yaml"]
WORKLOADS = ["workloads/train.yaml"]
OTHERS = [
    "cluster.yaml",
    "gpu-rules.schema.json",
    ".pre-commit-config.yaml",
    ".vscode/extensions.json",
    ".vscode/settings.json",
]
WORKFLOW = ".github/workflows/gpu-rules.yaml"
ALL = [*RULES, *WORKLOADS, *OTHERS, WORKFLOW]


def files(folder: Path) -> list[str]:
    """Return all files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


@pytest.fixture
def started(tmp_path: Path) -> Path:
    folder = tmp_path / "gpu policies"
    assert cli("init", folder).exit_code == 0
    return folder


def test_files_are_written_and_listed(tmp_path: Path) -> None:
    result = cli("init", tmp_path / "new" / "folder")
    assert (result.exit_code, result.stderr) == (0, "")
    *lines, following = result.stdout.splitlines()
    assert files(tmp_path / "new" / "folder") == sorted(ALL)
    assert sorted(lines) == [f"wrote {tmp_path}/new/folder/{name}" for name in sorted(ALL)]
    rules = f"{tmp_path}/new/folder/rules"
    assert following == f"next: gpu-rules check {rules} && gpu-rules test {rules}"


def test_the_current_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("init").stdout.endswith("\nnext: gpu-rules check rules && gpu-rules test rules\n")
    assert "rules/ladder.yaml" in files(tmp_path)


def test_the_next_commands_can_be_pasted(started: Path) -> None:
    following = cli("init", started).stdout.splitlines()[-1]
    assert following == f"next: gpu-rules check '{started}/rules' && gpu-rules test '{started}/rules'"


def test_the_rule_and_its_test_pass_without_a_warning(started: Path) -> None:
    for path, counted in ((started, "3 files checked, 2 skipped"), (started / "rules", "2 files checked")):
        checked = cli("check", "--strict", path)
        assert (checked.exit_code, checked.stdout) == (0, f"{counted}, no problems\n")
    tested = cli("test", "--coverage-min", "100", started / "rules")
    assert tested.exit_code == 0, tested.stdout
    assert re.search(r"^coverage 100 %", tested.stdout, re.MULTILINE)


def test_the_test_fails_if_the_rule_changes(started: Path) -> None:
    rule = started / "rules" / "ladder.yaml"
    rule.write_text(rule.read_text().replace("    - resource: nvidia.com/mig-1g.10gb\n", ""))
    assert cli("test", started / "rules").exit_code == 1


def test_editors_find_the_schema(started: Path) -> None:
    schema = started / "gpu-rules.schema.json"
    assert json.loads(schema.read_text()) == combine_schemas()
    validator = jsonschema.Draft202012Validator(combine_schemas())
    for name in RULES:
        text = (started / name).read_text()
        modeline = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
        assert modeline
        assert (started / name).parent.joinpath(modeline[1]).resolve() == schema
        validator.validate(yaml.safe_load(text))
    settings = json.loads((started / ".vscode/settings.json").read_text())
    [(name, pattern)] = settings["yaml.schemas"].items()
    assert started / name == schema
    # In VS Code's globs, "**/" also stands for no folder.
    assert all(fnmatch(rule, pattern.replace("**/", "")) for rule in RULES)
    assert json.loads((started / ".vscode/extensions.json").read_text()) == {"recommendations": ["redhat.vscode-yaml"]}


def documented(title: str) -> str:
    """Return a file in docs/how-to/ci.md, where its commands are tested."""
    (text,) = [b.text for b in blocks((REPOSITORY / "docs/how-to/ci.md").read_text()) if b.title == title]
    return text


def test_hooks_and_jobs_equal_the_documented_ones(tmp_path: Path) -> None:
    for ci, job in (("github", WORKFLOW), ("gitlab", ".gitlab-ci.yml")):
        assert cli("init", "--ci", ci, tmp_path / ci).exit_code == 0
        assert files(tmp_path / ci) == sorted([*RULES, *WORKLOADS, *OTHERS, job])
        for name in (".pre-commit-config.yaml", job):
            text = (tmp_path / ci / name).read_text()
            assert text.replace(f" # a wheel, or git+{PROJECT_URL}", "") == documented(name)


def test_existing_files_are_kept(tmp_path: Path) -> None:
    for name in ALL:
        folder = write(tmp_path / name, {name: "mine"})
        result = cli("init", folder)
        assert result.exit_code == 0
        assert (folder / name).read_text() == "mine"
        kept = f"{folder}/{Path(name).parts[0]}" if name in (*RULES, *WORKLOADS) else f"{folder}/{name}"
        assert re.findall("^kept (.*): it exists$", result.stdout, re.MULTILINE) == [kept]
        others = [other for other in ALL if name not in RULES or other not in RULES]
        assert files(folder) == sorted({name, *others})


def test_a_second_run_changes_nothing(started: Path) -> None:
    before = {name: (started / name).read_bytes() for name in files(started)}
    result = cli("init", started)
    assert result.exit_code == 0
    assert "wrote" not in result.stdout
    assert {name: (started / name).read_bytes() for name in files(started)} == before


def test_a_folder_of_other_rules_gets_no_rule(tmp_path: Path) -> None:
    write(tmp_path, {"rules/mine.yaml": ladder("mine", "nvidia.com/gpu")})
    assert cli("init", tmp_path).exit_code == 0
    assert [name for name in files(tmp_path) if name.startswith("rules/")] == ["rules/mine.yaml"]


def test_an_empty_folder_of_rules_gets_the_rule(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    assert cli("init", tmp_path).exit_code == 0
    assert set(RULES) <= set(files(tmp_path))


def test_a_dangling_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".pre-commit-config.yaml").symlink_to(tmp_path / "elsewhere")
    assert f"kept {tmp_path}/.pre-commit-config.yaml: it exists\n" in cli("init", tmp_path).stdout
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"file": "", "repository/.github": ""})
    result = cli("init", tmp_path / "file")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is a file" in result.stderr
    result = cli("init", tmp_path / "file" / "new")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"gpu-rules init: {tmp_path}/file/new/rules cannot be read: Not a directory\n"
    result = cli("init", tmp_path / "repository")
    assert result.exit_code == 2
    workflow = tmp_path / "repository" / WORKFLOW
    assert result.stderr == f"gpu-rules init: {workflow} cannot be written: Not a directory\n"


def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    assert "\x1b" not in cli("init", tmp_path / "\x1b[31m").stdout


def test_all_files_are_written_if_nobody_reads_the_output(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "rules_engine.server", "init", tmp_path],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
    assert files(tmp_path) == sorted(ALL)


def test_a_file_that_cannot_be_written_whole_is_removed(tmp_path: Path) -> None:
    with file_size_limit(len(json.dumps(combine_schemas())) // 2):
        result = cli("init", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"gpu-rules init: {tmp_path}/gpu-rules.schema.json cannot be written: File too large\n"
    assert files(tmp_path) == [*RULES, *WORKLOADS]
