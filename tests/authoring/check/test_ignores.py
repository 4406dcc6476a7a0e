"""Comments that ignore warnings of `gpu-rules check`."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.rules.sources.rule_files import read_rules
from tests.support.authoring import cli, injection, ladder, validation, write

COMMENT = "# gpu-rules: ignore[matches-nothing] until the team moves"
NOTHING = injection("v", match="{excludeNamespaces: ['*']}")
LINE = "metadata: {name: v}"
IGNORED = NOTHING.replace(LINE, f"{LINE} {COMMENT}")


def checked(folder: Path, files: dict[str, str] | str, *arguments: str) -> dict[str, Any]:
    """Return the result of a check as JSON."""
    write(folder, {"a.yaml": files} if isinstance(files, str) else files)
    document: dict[str, Any] = json.loads(cli("check", folder, "--output", "json", *arguments).stdout)
    return document


def problems(found: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return code, line and message of the problems that count."""
    return [(p["code"], p["source"]["line"], p["message"]) for p in found["problems"]]


@pytest.mark.parametrize(
    "text",
    [
        IGNORED,
        NOTHING.replace(LINE, f"{COMMENT}\n{LINE}"),
        NOTHING.replace(LINE, f"  {COMMENT}\n# gpu-rules: ignore[matches-nothing] twice\n{LINE}"),
        NOTHING.replace(LINE, f"{LINE} # a name {COMMENT}"),
        NOTHING.replace(LINE, f"{LINE} #gpu-rules:ignore[ matches-nothing ]: until the team moves"),
        f"---\n{NOTHING.replace(LINE, f'{COMMENT}{chr(10)}{LINE}')}",
        IGNORED.replace("\n", "\r\n"),
    ],
)
def test_a_comment_ignores_a_warning_of_its_line_or_the_line_below(tmp_path: Path, text: str) -> None:
    document = checked(tmp_path, text)
    assert problems(document)[1:] == []
    assert (document["errors"], document["warnings"] - len(document["ignored"])) == (0, len(problems(document)))
    (ignored,) = document["ignored"]
    assert (ignored["problem"]["code"], ignored["problem"]["severity"]) == ("matches-nothing", "warning")
    assert ignored["reason"] in ("until the team moves", "twice")


def test_several_codes_of_a_line_are_ignored_together(tmp_path: Path) -> None:
    spec = "{match: {excludeNamespaces: ['*']}, rungs: [{resource: a.b/c}]}"
    text = f"{{apiVersion: gpurules.io/v1, kind: FallbackLadder, metadata: {{name: v}}, spec: {spec}}}"
    codes = [code for code, *_ in problems(checked(tmp_path, text))]
    assert codes == ["matches-nothing", "single-rung"]
    document = checked(tmp_path, f"{text} # gpu-rules: ignore[single-rung, matches-nothing] both at once")
    assert (problems(document), [each["reason"] for each in document["ignored"]]) == ([], ["both at once"] * 2)


HALF = "quantity(object.metadata.name).div(2, 0)"


@pytest.mark.parametrize(
    "expression",
    [
        f"| COMMENT\n        object.spec.enableServiceLinks ||\n\n          quantity('1Gi') ==\n        {HALF}\n",
        f">- COMMENT\n        object.spec.enableServiceLinks ||\n        quantity('1Gi') == {HALF}\n",
        f"\"object.spec.enableServiceLinks ||\n\n        quantity('1Gi') == {HALF}\" COMMENT\n",
        f"object.spec.enableServiceLinks ||\n        quantity('1Gi') == {HALF} COMMENT\n",
    ],
)
def test_a_comment_is_about_all_lines_of_a_value(tmp_path: Path, expression: str) -> None:
    text = validation("v", expression, match="{namespaces: [a]}")
    plain = text.replace(" COMMENT", "")
    assert [code for code, *_ in problems(checked(tmp_path, plain))] == ["cel-newer"]
    comment = "# gpu-rules: ignore[cel-newer] the cluster is new"
    above = plain.replace("    - expression", f"    {comment}\n    - expression")
    for commented in (text.replace("COMMENT", comment), above):
        document = checked(tmp_path, commented)
        assert (problems(document), len(document["ignored"])) == ([], 1)


NO_REASON = "an ignored warning needs a reason: write it after the bracket"
NO_FORM = "write # gpu-rules: ignore[CODE] and the reason"


@pytest.mark.parametrize(
    ("comment", "column", "message"),
    [
        ("# gpu-rules: ignore[matches-nothing]", 21, NO_REASON),
        ("# gpu-rules: ignore[matches-nothing] --", 21, NO_REASON),
        ("# gpu-rules: ignore[] why", 21, NO_FORM),
        ("# gpu-rules: ignore matches-nothing", 21, NO_FORM),
        ("# gpu-rules: ignroe[matches-nothing] why", 21, NO_FORM),
        ("# gpurules ignore[matches-nothing] why", 21, NO_FORM),
        (
            "# gpu-rules: ignore[match-nothing] why",
            41,
            "unknown code 'match-nothing' (did you mean 'matches-nothing'?)",
        ),
        ("# gpu-rules: ignore[matches-nothing,x y] why", 57, "unknown code 'x'"),
        ("# gpu-rules: ignore[yaml-syntax] why", 41, "yaml-syntax is an error: only warnings can be ignored"),
    ],
)
def test_a_malformed_ignore_is_an_error(tmp_path: Path, comment: str, column: int, message: str) -> None:
    document = checked(tmp_path, NOTHING.replace(LINE, f"{LINE} {comment}"))
    first = next(problem for problem in document["problems"] if problem["code"] == "bad-ignore")
    assert (first["severity"], first["source"]["line"], first["source"]["column"], first["message"]) == (
        "error",
        3,
        column,
        message,
    )


def test_an_error_cannot_be_ignored(tmp_path: Path) -> None:
    text = ladder("m", "a.b/c", "d.e/f").replace("rungs:", "rugns: # gpu-rules: ignore[unknown-field] why")
    message = "unknown-field is an error: only warnings can be ignored"
    assert [problem[::2] for problem in problems(checked(tmp_path, text))] == [
        ("unknown-field", "FallbackLadder spec has no field 'rugns' (did you mean 'rungs'?)"),
        ("bad-ignore", message),
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"# gpu-rules: our engine for admission; see ignore files\n{NOTHING}",
        f"# the comment gpu-rules: ignore is not used here\n{NOTHING}",
        f"# {COMMENT}\n{NOTHING}",
        NOTHING.replace("spec:", f'spec:\n  description: "{COMMENT}"'),
        NOTHING.replace("spec:", f"spec:\n  description: |\n    {COMMENT}"),
    ],
)
def test_other_comments_and_values_ignore_nothing(tmp_path: Path, text: str) -> None:
    assert [code for code, *_ in problems(checked(tmp_path, text))] == ["matches-nothing"]


def test_a_comment_that_ignores_nothing_is_a_warning(tmp_path: Path) -> None:
    other = injection("w").replace("metadata", f"{COMMENT.replace(']', ', single-rung]')}\nmetadata")
    document = checked(tmp_path, {"a.yaml": IGNORED, "b.yaml": other})
    assert [
        (problem["code"], problem["source"]["column"], problem["length"]) for problem in document["problems"][:2]
    ] == [("unused-ignore", 21, 15), ("unused-ignore", 38, 11)]
    assert problems(document) == [
        ("unused-ignore", 3, f"line 4 has no warning {code}: delete it from this comment")
        for code in ("matches-nothing", "single-rung")
    ]
    assert (document["errors"], document["warnings"], len(document["ignored"])) == (0, 3, 1)


def test_a_comment_for_a_warning_that_a_run_may_not_find_is_not_unused(tmp_path: Path) -> None:
    unused = injection("w").replace("metadata", f"{COMMENT}\nmetadata")
    write(tmp_path, {"a.yaml": unused, "b.yaml": injection("x"), ".hidden.yaml": "["})
    assert cli("check", tmp_path / "a.yaml").stdout == "1 file checked, no problems\n"
    for paths in ((tmp_path,), (tmp_path / "b.yaml", tmp_path / "a.yaml")):
        assert "[unused-ignore]" in cli("check", *paths).stdout
    write(tmp_path, {"b.yaml": "["})
    assert "[unused-ignore]" not in cli("check", tmp_path).stdout
    assert "[unused-ignore]" in cli("check", "-", stdin=unused).stdout


def test_a_folder_deleted_meanwhile_counts_as_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.yaml": injection("w").replace("metadata", f"{COMMENT}\nmetadata")})

    def refuse(_: Path) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert "[unused-ignore]" in cli("check", tmp_path / "a.yaml").stdout


def test_pods_of_tests_may_have_ignores(tmp_path: Path) -> None:
    test = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: t}
spec:
  rules: [rules]
  cases:
    - {name: c, podFile: pod.yaml, expect: {allowed: true}}
"""
    comment = "# gpu-rules: ignore[unknown-pod-field] a field of our fork"
    pod = f"apiVersion: v1\nkind: Pod\nspec:\n  {comment}\n  forked: true\n  containers: [{{name: c}}]\n"
    document = checked(tmp_path, {"t.yaml": test, "pod.yaml": pod, "rules/a.yaml": IGNORED})
    assert problems(document) == []
    assert len(document["ignored"]) == 2


def test_other_commands_and_the_server_read_no_ignores(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": injection("w", coefficients="{memory: 8} # gpu-rules: ignore[unlikely-unit] why")})
    assert [problem.code for problem in read_rules([tmp_path]).problems] == ["unlikely-unit"]
    assert cli("check", tmp_path).stdout == "1 file checked, 1 warning (1 ignored)\n"


def test_strict_makes_warnings_errors_in_each_format(tmp_path: Path) -> None:
    other = ladder("w", "a.b/c", "d.e/f", match="{excludeNamespaces: ['*']}")
    ignored = other.replace("name: w}", f"name: w}} {COMMENT}")
    document = checked(tmp_path, {"a.yaml": NOTHING, "b.yaml": ignored}, "--strict")
    assert [problem["severity"] for problem in document["problems"]] == ["error"]
    assert (document["errors"], document["warnings"], len(document["ignored"])) == (1, 1, 1)
    text = cli("check", tmp_path, "--strict")
    assert text.exit_code == 1
    assert text.stdout.startswith(f"{tmp_path}/a.yaml:3:18: error: ResourceInjection/v matches no pod")
    assert text.stdout.endswith("\n2 files checked, 1 error, 1 warning (1 ignored)\n")
    (annotation,) = cli("check", tmp_path, "--strict", "--output", "github").stdout.splitlines()
    assert annotation.startswith("::error ")
    sarif = json.loads(cli("check", tmp_path, "--strict", "--output", "sarif").stdout)
    assert [result["level"] for result in sarif["runs"][0]["results"]] == ["error", "warning"]
    lenient = cli("check", tmp_path)
    assert (lenient.exit_code, "\n2 files checked, 2 warnings (1 ignored)\n" in lenient.stdout) == (0, True)


def test_a_strict_check_does_not_make_ignored_warnings_errors(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": IGNORED})
    result = cli("check", tmp_path, "--strict")
    assert (result.exit_code, result.stdout) == (0, "1 file checked, 1 warning (1 ignored)\n")
    assert cli("check", tmp_path, "--output", "github").stdout == ""


def test_a_comment_for_a_warning_about_a_cluster_is_not_unused_without_one(tmp_path: Path) -> None:
    spec = "{rungs: [{resource: a.b/c}, {resource: a.b/d}]}"
    comment = "# gpu-rules: ignore[rung-not-offered] other clusters have it"
    text = f"{{apiVersion: gpurules.io/v1, kind: FallbackLadder, metadata: {{name: v}}, spec: {spec}}} {comment}"
    nodes = "{nodes: [{name: node-a, allocatable: {a.b/c: 1, a.b/d: 1}}]}"
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(f"{{apiVersion: gpurules.io/v1, kind: ClusterInventory, metadata: {{name: c}}, spec: {nodes}}}")
    folder = tmp_path / "rules"
    folder.mkdir()
    assert problems(checked(folder, text)) == []
    assert [code for code, *_ in problems(checked(folder, text, "--cluster", str(cluster)))] == ["unused-ignore"]
