"""`gpu-rules check`: all problems in one run, in file order, in each output format; explanations of codes."""

import json
import os
import tomllib
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema

from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.check.problem_reference import reference_entries
from rules_engine.model.problems.codes import Code, ProblemCode
from rules_engine.rules.sources.card_files import card_sets
from tests.support.authoring import cli, completed, completions, injection, ladder, validation, write
from tools.documents import REPOSITORY

GOOD = ladder("mig", "nvidia.com/mig-2g.20gb", "nvidia.com/gpu")
BAD = GOOD.replace("rungs", "rugns")
WARNED = injection("v", match="{excludeNamespaces: ['*']}")
TEST = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: t}
spec:
  rules: [../other/broken.yaml]
  cases:
    - name: c
      pod: {spec: {containers: [{name: main}]}}
      expect: {allowed: true}
"""


def test_an_error_hides_no_other_error_of_its_document(tmp_path: Path) -> None:
    head = "apiVersion: gpurules.io/v1\nkind: {}\nmetadata: {{name: {}}}\nspec:\n  "
    node = "forEach: Node\n  reason: R\n  "
    whens = "when: objct.a\n  "
    documents = [
        head.format("Diagnostic", "a") + node + whens + "severity: warning\n  messageExpression: objet.b\n",
        head.format("Diagnostic", "b") + node + whens + "severity: Error\n",
        head.format("Diagnostic", "c") + node + "severity: Error\n  messageExpression: objet.b\n",
        head.format("Validation", "v") + "validations: [{expression: 'true', message: m}]\n",
        head.format("Validation", "v") + "validations: [{expression: objct.a, message: m}]\n",
        head.format("ResourceInjection", "i") + "namespaces: {ml-*: {coefficients: {cpu: 1}}}\n",
    ]
    (tmp_path / "a.yaml").write_text("---\n".join(documents))
    problems = check_files([tmp_path]).answer.problems
    assert [problem.code for problem in problems] == [
        "cel-undeclared", "wrong-value", "cel-undeclared", "missing-field", "cel-undeclared", "missing-field",
        "cel-undeclared", "every-pod", "duplicate-document", "cel-undeclared", "wrong-form",
    ]  # fmt: skip
    assert problems[-1].message == "'ml-*' is not a namespace name: globs are for match.namespaces"


def test_a_clean_set_gives_no_warning_and_exit_code_0(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": GOOD, "sub/b.yml": injection("v100")})
    result = cli("check", tmp_path)
    assert (result.stdout, result.stderr, result.exit_code) == ("2 files checked, no problems\n", "", 0)


def test_every_problem_has_its_line_and_a_caret_in_file_order(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": BAD, "b.yaml": WARNED, "c.yaml": validation("c", "objct.spec.hostNetwork")})
    result = cli("check", tmp_path)
    assert result.stdout == (
        f"{tmp_path}/a.yaml:5:3: error: FallbackLadder spec has no field 'rugns' (did you mean 'rungs'?) "
        "[unknown-field]\n"
        "    5 |   rugns:\n"
        "      |   ^~~~~\n"
        f"{tmp_path}/b.yaml:3:18: warning: ResourceInjection/v matches no pod: excludeNamespaces excludes all "
        "its namespaces [matches-nothing]\n"
        "    3 | metadata: {name: v}\n"
        "      |                  ^\n"
        f"{tmp_path}/c.yaml:6:19: error: undeclared reference to 'objct' (did you mean 'object'?) [cel-undeclared]\n"
        "    6 |     - expression: objct.spec.hostNetwork\n"
        "      |                   ^~~~~\n"
        "3 files checked, 2 errors, 1 warning\n"
    )
    assert result.exit_code == 1


def test_standard_input_is_read_for_a_dash(tmp_path: Path) -> None:
    result = cli("check", "-", stdin=BAD)
    assert result.exit_code == 1
    assert result.stdout.startswith("<stdin>:5:3: error: FallbackLadder spec has no field 'rugns'")
    assert "    5 |   rugns:\n" in result.stdout
    assert cli("check", "-", stdin=json.dumps({"kind": "List", "items": [{"kind": "Node"}]})).exit_code == 0
    assert cli("check", "-", stdin=b"\xff").stdout.startswith("<stdin>:1:1: error: byte 0xFF is not UTF-8")


def test_warnings_without_errors_are_exit_code_0(tmp_path: Path) -> None:
    result = cli("check", write(tmp_path, {"b.yaml": WARNED}) / "b.yaml")
    assert result.stdout.endswith("\n1 file checked, 1 warning\n")
    assert result.exit_code == 0


def test_files_are_checked_in_the_order_in_which_they_are_given(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": BAD, "b.yaml": BAD.replace("name: mig", "name: other")})
    out = cli("check", tmp_path / "b.yaml", tmp_path / "a.yaml").stdout
    assert out.index("b.yaml:5:3") < out.index("a.yaml:5:3")


def test_expressions_of_a_rule_with_other_errors_are_checked_too(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": validation("c", "objct.spec.hostNetwork", modde="Audit")})
    out = cli("check", tmp_path).stdout
    assert "[unknown-field]" in out
    assert "[cel-undeclared]" in out


def test_documents_beside_one_with_a_syntax_error_are_checked_against_each_other(tmp_path: Path) -> None:
    later = GOOD.replace("name: mig", "name: next")
    write(tmp_path, {"a.yaml": f"{GOOD}---\nkind: [\n---\n{BAD.replace('name: mig', 'name: bad')}---\n{later}"})
    problems = json.loads(cli("check", tmp_path, "--output", "json").stdout)["problems"]
    assert [(problem["code"], problem["source"]["line"]) for problem in problems] == [
        ("yaml-syntax", 9),
        ("unknown-field", 15),
        ("unreachable-rung", 24),
    ]


def test_files_of_other_tools_are_counted(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": GOOD, "b.yaml": WARNED, "kustomization.yaml": "resources: [a.yaml]\n"})
    assert cli("check", tmp_path).stdout.endswith("\n2 files checked, 1 skipped, 1 warning\n")
    document = json.loads(cli("check", tmp_path, "--output", "json").stdout)
    assert (document["files"], document["skipped"]) == (2, [f"{tmp_path}/kustomization.yaml"])


def test_a_check_of_nothing_does_not_look_like_success(tmp_path: Path) -> None:
    path = write(tmp_path, {"map.yaml": "apiVersion: v1\nkind: ConfigMap\n"}) / "map.yaml"
    missing = "no document with apiVersion gpurules.io/v1 found"
    for argument in (path, tmp_path):
        result = cli("check", argument)
        assert result.stdout == f"0 files checked, 1 skipped, {missing}\n"
        for output in ("json", "sarif", "github"):
            assert cli("check", argument, "--output", output).stderr == f"gpu-rules: {missing} in {argument}\n"


def test_rules_that_a_test_refers_to_are_checked_as_well(tmp_path: Path) -> None:
    write(tmp_path, {"tests/t.yaml": TEST, "other/broken.yaml": BAD})
    result = cli("check", tmp_path / "tests")
    assert "broken.yaml:5:3: error: FallbackLadder spec has no field 'rugns'" in result.stdout
    assert "    5 |   rugns:" in result.stdout
    assert result.exit_code == 1


def test_problems_of_a_file_named_twice_are_reported_once(tmp_path: Path) -> None:
    write(tmp_path, {"tests/t.yaml": TEST, "other/broken.yaml": BAD})
    assert cli("check", tmp_path).stdout.count("rugns' (did") == 1


def test_a_test_of_a_rule_with_errors_has_no_error_itself(tmp_path: Path) -> None:
    expects = TEST.replace("allowed: true", "decidedBy: [{rule: FallbackLadder/mig}]")
    write(tmp_path, {"tests/t.yaml": expects, "other/broken.yaml": BAD})
    assert "unknown-rule" not in cli("check", tmp_path).stdout


def test_github_gets_one_annotation_for_each_problem(tmp_path: Path) -> None:
    write(tmp_path, {"a,b:c.yaml": BAD, "z.yaml": WARNED})
    result = cli("check", tmp_path, "--output", "github")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        (
            f"::error file={tmp_path}/a%2Cb%3Ac.yaml,line=5,col=3,endColumn=8,title=unknown-field::"
            "FallbackLadder spec has no field 'rugns' (did you mean 'rungs'?)"
        ),
        (
            f"::warning file={tmp_path}/z.yaml,line=3,col=18,endColumn=19,title=matches-nothing::"
            "ResourceInjection/v matches no pod: excludeNamespaces excludes all its namespaces"
        ),
    ]


def sarif_of(*arguments: str | Path) -> dict[str, Any]:
    """Return the only run of a SARIF log, validated by the schema of SARIF 2.1.0."""
    text = cli("check", *arguments, "--output", "sarif").stdout
    StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate_json(text)
    (run,) = json.loads(text)["runs"]
    assert isinstance(run, dict)
    return run


def test_sarif_has_every_problem_and_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a b.yaml": BAD, "z.yaml": WARNED})
    monkeypatch.chdir(tmp_path)
    run = sarif_of("a b.yaml", "z.yaml")
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["matches-nothing", "unknown-field"]
    first, second = run["results"]
    assert first == {
        "ruleId": "unknown-field",
        "ruleIndex": 1,
        "level": "error",
        "message": {"text": "FallbackLadder spec has no field 'rugns' (did you mean 'rungs'?)"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "a%20b.yaml"},
                    "region": {"startLine": 5, "startColumn": 3, "endColumn": 8},
                }
            }
        ],
        "suppressions": [],
    }
    assert (second["ruleId"], second["level"]) == ("matches-nothing", "warning")


def test_sarif_has_the_bytes_of_a_file_name_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.yaml")).write_text(BAD)
    place = sarif_of(tmp_path)["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("/%FF.yaml")


def test_sarif_has_ignored_warnings_as_suppressed(tmp_path: Path) -> None:
    comment = "# gpu-rules: ignore[matches-nothing] until the team moves"
    ignored = WARNED.replace("name: v}", f"name: v}} {comment}")
    write(tmp_path, {"a.yaml": ignored, "b.yaml": ladder("x", "a.b/c")})
    results = sarif_of(tmp_path)["results"]
    assert [(result["ruleId"], result["level"], result["suppressions"]) for result in results] == [
        ("single-rung", "warning", []),
        ("matches-nothing", "warning", [{"kind": "inSource", "justification": "until the team moves"}]),
    ]


def test_sarif_has_the_tool_and_the_text_of_each_rule(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": "apiVersion: gpurules.io/v1\nkind: ["})
    driver = sarif_of(tmp_path)["tool"]["driver"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (driver["name"], driver["version"]) == (project["name"], project["version"])
    assert driver["informationUri"] == project["urls"]["Repository"]
    (rule,) = driver["rules"]
    entry = reference_entries()[Code.YAML_SYNTAX]
    assert rule == {
        "id": "yaml-syntax",
        "shortDescription": {"text": "The text is not YAML."},
        "fullDescription": {"text": f"{entry.cause} {entry.remedy}"},
        "help": {"text": entry.explanation(), "markdown": entry.markdown()},
        "helpUri": f"{project['urls']['Repository']}/blob/main/docs/reference/problems.md#yaml-syntax",
        "defaultConfiguration": {"level": "error"},
    }


@pytest.mark.parametrize("code", reference_entries())
def test_each_code_is_explained_without_a_path(code: ProblemCode) -> None:
    result = cli("check", "--explain", code)
    entry = reference_entries()[code]
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{code} ({entry.severity.value}): {entry.cause}\n\nExample")
    assert f"\n\nRemedy: {entry.remedy}\n\n" in result.stdout
    for example in (entry.wrong, entry.right):
        assert indent(example, "    ") in result.stdout
    for command in entry.commands.splitlines():
        assert f"\n    $ {command}\n" in result.stdout
    assert result.stdout.endswith(f"/docs/reference/problems.md#{code}\n")
    assert f"\n### {code}\n" in (REPOSITORY / "docs/reference/problems.md").read_text(encoding="utf-8")
    for text in (entry.cause, entry.remedy, entry.wrong, entry.right):
        assert text in entry.markdown()


def test_an_explained_code_may_be_pasted_from_a_report() -> None:
    assert cli("check", "--explain", "[Yaml-Syntax]").stdout == cli("check", "--explain", "yaml-syntax").stdout


def test_a_mistyped_code_has_a_suggestion() -> None:
    result = cli("check", "--explain", "yaml-sintax")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown code 'yaml-sintax' (did you mean 'yaml-syntax'?): https://github.com/" in result.stderr


def test_a_shell_completes_codes() -> None:
    suggestions = completions("check", "--explain", "yaml-t")
    assert [item.value for item in suggestions] == ["yaml-tag", "yaml-too-deep", "yaml-too-many-values"]
    assert suggestions[0].help == reference_entries()[Code.YAML_TAG].cause
    assert completed("check", "--explain", "yaml-tag", "--out") == ["--output"]


@pytest.mark.parametrize("name", ["gpu-allocation", *card_sets()])
def test_each_shipped_set_alone_gives_no_warning_and_passes_its_tests(name: str) -> None:
    folder = Path(__file__).parents[3] / "rules" / name
    assert cli("check", folder).stdout.endswith(" checked, no problems\n")
    assert cli("test", folder).exit_code == 0


def test_links_in_a_circle_are_problems_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    result = cli("check", tmp_path)
    assert result.exit_code == 1
    assert "a.yaml:1:1: error: cannot be read" in result.stdout
