"""Sources of rules: named on a command line, read and compiled."""

from pathlib import Path

import pytest

from rules_engine.rules.sources.packaged_sets import list_packaged_sets
from rules_engine.rules.sources.rule_files import RuleFiles, read_rules
from rules_engine.rules.sources.rule_sources import (
    GitSource,
    PackagedSource,
    PathSource,
    SourceError,
    parse_source,
    read_sides,
    read_sources,
)
from tests.support.git import commit, repository
from tests.support.loading import codes, rule

INJECTION = rule("ResourceInjection", "{gpuType: V100, gpuTypeAnnotation: a/b, coefficients: {cpu: 4}}")
BROKEN = INJECTION.replace("coefficients", "coeficients")


def failed(sides: tuple[RuleFiles, RuleFiles]) -> bool:
    return any(side.failed for side in sides)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_text_is_parsed_to_its_source(here: Path) -> None:
    (here / "rules").mkdir()
    assert parse_source("rules") == PathSource(Path("rules"))
    assert parse_source("gpu-allocation") == PackagedSource("gpu-allocation")
    assert parse_source("set:gpu-allocation") == PackagedSource("gpu-allocation")
    assert parse_source("git:main:rules") == GitSource("main", "rules")
    assert parse_source("git:origin/main:a:b") == GitSource("origin/main", "a:b")
    assert parse_source("git:HEAD:") == GitSource("HEAD", "")
    assert [str(parse_source(text)) for text in ("rules", "gpu-allocation", "git:main:rules")] == [
        "rules",
        "gpu-allocation",
        "git:main:rules",
    ]


def test_a_file_may_have_a_colon_in_its_name(here: Path) -> None:
    (here / "a:b.yaml").touch()
    assert parse_source("a:b.yaml") == PathSource(Path("a:b.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the name of a source is empty"),
        ("gpu-alocation", "does not begin with git: or set: (did you mean 'gpu-allocation'?)"),
        ("x" * 10_000, "is no file or folder"),
        ("a\0b", "is no file or folder"),
        ("git:main", "'git:main' is not git:REF:PATH, such as git:main:rules"),
        ("git::rules", "'git::rules' is not git:REF:PATH, such as git:main:rules"),
        ("set:rules", f"'rules' is no packaged set: expected {', '.join(list_packaged_sets())}"),
    ],
)
def test_a_text_without_a_source_is_an_error(here: Path, text: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_source(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_name_of_a_set_and_of_a_folder_is_ambiguous(here: Path) -> None:
    (here / "gpu-allocation").mkdir()
    with pytest.raises(SourceError) as caught:
        parse_source("gpu-allocation")
    assert str(caught.value) == (
        "'gpu-allocation' is a packaged set and is also in the current folder: "
        "write set:gpu-allocation for the former, ./gpu-allocation for the latter"
    )
    assert parse_source("./gpu-allocation") == PathSource(Path("gpu-allocation"))


def test_the_same_rules_of_each_source_have_one_digest(here: Path) -> None:
    texts = {
        f"rules/{file.name}": file.read_text(encoding="utf-8") for file in list_packaged_sets()["gpu-allocation"].files
    }
    repository(here, texts)
    expected = read_rules([here / "rules"]).loaded
    for text in ("rules", "git:HEAD:rules", "set:gpu-allocation"):
        files = read_sources([parse_source(text)])
        assert files.problems == ()
        assert files.loaded.digest == expected.digest
        assert [rule.name for rule in files.loaded.rules] == [found.name for found in expected.rules]


def test_two_revisions_differ(here: Path) -> None:
    repository(here, {"rules/a.yaml": INJECTION})
    commit(here, {"rules/a.yaml": INJECTION.replace("4", "8")})
    old, new = (read_sources([parse_source(f"git:{revision}:rules")]) for revision in ("HEAD~1", "HEAD"))
    assert old.loaded.digest != new.loaded.digest
    assert [str(files.loaded.rules[0].location) for files in (old, new)] == [
        "git:HEAD~1:rules/a.yaml:3:18",
        "git:HEAD:rules/a.yaml:3:18",
    ]


def test_each_side_has_its_own_problems(here: Path) -> None:
    repository(here, {"rules/a.yaml": INJECTION})
    (here / "rules/a.yaml").write_text(BROKEN, encoding="utf-8")
    before, after = parse_source("git:HEAD:rules"), parse_source("rules")
    old, new = read_sides([before], [after])
    assert old.problems == ()
    assert codes(new.problems) == ["missing-field", "unknown-field"]
    assert {problem.location.file for problem in new.problems} == {"rules/a.yaml"}
    assert failed((old, new))
    assert failed(read_sides([after], [before]))
    assert not failed(read_sides([before], [before]))


def test_equal_rules_have_one_digest_whatever_their_format(here: Path) -> None:
    repository(here, {"rules/a.yaml": INJECTION})
    (here / "rules/a.yaml").rename(here / "rules/b.yaml")
    with (here / "rules/b.yaml").open("a") as file:
        file.write("# a comment\n")
    before, after = parse_source("git:HEAD:rules"), parse_source("rules")
    assert read_sources([before]).loaded.digest == read_sources([after]).loaded.digest
    (here / "rules/b.yaml").write_text(INJECTION.replace("4", "8"), encoding="utf-8")
    assert read_sources([before]).loaded.digest != read_sources([after]).loaded.digest


def test_sources_may_overlap(here: Path) -> None:
    repository(
        here,
        {
            "rules/a.yaml": INJECTION,
            "rules/b.yaml": rule(
                "ResourceInjection", "{gpuType: T4, gpuTypeAnnotation: a/b, coefficients: {cpu: 1}}", "second"
            ),
        },
    )
    for folder in ("rules", "git:HEAD:rules"):
        files = read_sources([parse_source(f"{folder}/b.yaml"), parse_source(folder)])
        assert [rule.name for rule in files.loaded.rules] == ["second", "x"]


def test_problems_of_tests_and_diagnostics_are_left_out(here: Path) -> None:
    broken = f"{rule('RuleTest', '{}')}---\n{rule('Diagnostic', '{}')}"
    (here / "a.yaml").write_text(INJECTION, encoding="utf-8")
    (here / "b.yaml").write_text(broken, encoding="utf-8")
    (here / "c.yaml").write_text("kind: RuleTest\na: [", encoding="utf-8")
    assert read_sources([PathSource(here)]).problems == ()


def test_no_rule_is_a_problem(here: Path) -> None:
    (here / "a.yaml").write_text(rule("RuleTest", "{}"), encoding="utf-8")
    assert list(map(str, read_sources([PathSource(Path("a.yaml"))]).problems)) == [
        "a.yaml:1:1: error: no rule found [no-rules]"
    ]
    assert list(map(str, read_sources([parse_source("set:diagnostics")]).problems)) == [
        "diagnostics:1:1: error: no rule found, only Diagnostics, which doctor reads [no-rules]"
    ]


def test_a_source_without_files_has_its_problem_alone(here: Path) -> None:
    repository(here, {"rules/a.yaml": INJECTION})
    assert codes(read_sources([parse_source("git:HEAD:absent")]).problems) == ["missing-file"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("empty", "empty:1:1: warning: no .yaml, .yml or .json file in this folder"),
        ("none.yaml", "none.yaml:1:1: warning: no rule found"),
        ("git:HEAD:rules/", "git:HEAD:rules:1:1: warning: file or folder not found"),
        ("git:HEAD:rules", "git:HEAD:rules:1:1: warning: file or folder not found"),
    ],
)
def test_the_old_side_may_have_no_rules(here: Path, source: str, expected: str) -> None:
    (here / "rules").mkdir()
    (here / "empty").mkdir()
    repository(here, {"none.yaml": rule("RuleTest", "{}")})
    (here / "rules/a.yaml").write_text(INJECTION, encoding="utf-8")
    old, new = read_sides([parse_source(source)], [parse_source("rules")])
    [problem] = map(str, old.problems)
    assert problem.startswith(f"{expected}: no rules before the change [")
    assert (failed((old, new)), old.loaded.rules) == (False, ())
    assert failed(read_sides([parse_source("rules")], [parse_source(source)]))


@pytest.mark.parametrize("source", ["git:absent:rules", "git:HEAD:link"])
def test_an_old_side_that_is_not_found_is_an_error(here: Path, source: str) -> None:
    repository(here, {"a.yaml": INJECTION}, {"link/b.yaml": "absent.yaml"})
    assert failed(read_sides([parse_source(source)], [parse_source("a.yaml")]))


def test_the_expressions_of_a_revision_are_checked(here: Path) -> None:
    repository(here, {"a.yaml": rule("Validation", "{validations: [{expression: objct.x, message: m}]}")})
    [problem] = read_sources([parse_source("git:HEAD:a.yaml")]).problems
    assert str(problem).startswith("git:HEAD:a.yaml:4:35: error: undeclared reference to 'objct'")
