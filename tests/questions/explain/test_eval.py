"""`gpu-rules eval`: value and type of an expression, errors."""

from pathlib import Path

import pytest

from rules_engine.questions.explain.eval import MAX_PIECES, cel_text
from tests.support.authoring import cli, ladder, validation, write

ROOT = Path(__file__).parents[3]
POD = """\
kind: Pod
metadata: {name: train, namespace: ml, labels: {team: vision, a/b: c}}
spec: {containers: [{name: main, image: cuda, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
RULE = ladder(
    "mig",
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/gpu",
    params="{limit: 3}",
    variables="[{name: first, expression: 'object.spec.containers[0].name'}, "
    "{name: bad, expression: '[1][size(object.spec.containers)]'}]",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write(tmp_path, {"pod.yaml": POD, "rules/ladder.yaml": RULE}))
    return tmp_path


def evaluated(expression: str, *more: str) -> str:
    result = cli("eval", expression, "-f", "pod.yaml", *more)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.parametrize(
    ("expression", "printed"),
    [
        ("1 + 1", "2 : int"),
        ("2u", "2u : uint"),
        ("1.0", "1.0 : double"),
        ("1.0 / 0.0", 'double("inf") : double'),
        ("(-1.0) / 0.0", 'double("-inf") : double'),
        ("0.0 / 0.0", 'double("nan") : double'),
        ("true", "true : bool"),
        ("!true", "false : bool"),
        ("null", "null : null_type"),
        (r"'a\n\u200bé\"'", r'"a\n\u200bé\"" : string'),
        (r"b'a\x00\"'", r"""b'a\x00"' : bytes"""),
        ("[]", "[] : list(dyn)"),
        ("[1, 2]", "[1, 2] : list(int)"),
        ("{}", "{} : map(dyn, dyn)"),
        ("{1: 'a', true: 'b'}", '{1: "a", true: "b"} : map(dyn, string)'),
        ("type(1)", "int : type"),
        ("duration('90m')", 'duration("5400s") : google.protobuf.Duration'),
        ("timestamp('2024-01-01T00:00:00Z')", 'timestamp("2024-01-01T00:00:00Z") : google.protobuf.Timestamp'),
        ("quantity('1024Mi')", 'quantity("1Gi") : kubernetes.Quantity'),
        ("url('https://a/b?c=d')", "kubernetes.URL : kubernetes.URL"),
        ("optional.of(1)", "optional.of(1) : optional_type(int)"),
        ("object.?spec.?hostname", "optional.none() : optional_type(string)"),
        ("cluster", "gpurules.Cluster : gpurules.Cluster"),
        ("cluster.total('nvidia.com/gpu')", "8 : int"),
        ("object.metadata.labels", '{"team": "vision", "a/b": "c"} : map(string, string)'),
        ("object.spec.containers[0].resources.limits['nvidia.com/gpu']", '"1" : string'),
        ("dyn(1)", "1 : int"),
        (
            "object.spec.containers[0].resources",
            '{"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}} : ResourceRequirements',
        ),
        ("request.namespace", '"ml" : string'),
        ("oldObject", "null : null_type"),
    ],
)  # fmt: skip
def test_the_value_is_printed_as_cel_with_its_type(expression: str, printed: str) -> None:
    assert evaluated(expression) == f"{printed}\n"


def test_a_printed_value_has_the_same_value() -> None:
    value = evaluated("[object.metadata, {1: b'a'}, optional.of([2u, 1.0, quantity('1Gi')])]").rpartition(" : ")[0]
    assert evaluated(f"{value} == [object.metadata, {{1: b'a'}}, optional.of([2u, 1.0, quantity('1Gi')])]") == (
        "true : bool\n"
    )


def test_a_long_list_has_a_line_for_each_member() -> None:
    text = "a" * 100
    assert evaluated(f"[['{text}'], {{1: 2}}, []]") == (
        f'[\n  [\n    "{text}"\n  ],\n  {{\n    1: 2\n  }},\n  []\n] : list(dyn)\n'
    )


def test_of_a_value_with_very_many_parts_the_first_are_shown() -> None:
    doubled: object = [1]
    for _ in range(40):
        doubled = [doubled, doubled]
    shown = cel_text(doubled)
    assert shown.endswith("…")
    assert shown.count("[") + shown.count("1") + shown.count(",") + shown.count("]") == MAX_PIECES
    assert cel_text([1] * 10) == str([1] * 10)


def test_a_rule_adds_its_variables_and_params() -> None:
    rule = ("--rules", "rules", "--rule", "FallbackLadder/mig")
    assert evaluated("[variables.first, string(params.limit)]", *rule) == '["main", "3"] : list(string)\n'
    packaged = ("--rules", "gpu-allocation", "--rule", "FallbackLadder/mig-to-gpu")
    assert evaluated("params", *packaged) == "{} : map\n"


def test_the_pod_of_a_workload_has_a_name_for_validations(folder: Path) -> None:
    job = "{kind: Job, metadata: {name: train}, spec: {template: {spec: {containers: [{name: main}]}}}}\n"
    write(folder, {"pod.yaml": job, "rules/ladder.yaml": validation("v", "'true'")})
    rule = ("--rules", "rules", "--rule", "Validation/v")
    assert evaluated("object.metadata.name", *rule) == '"train-xxxxx" : string\n'
    assert evaluated("object.metadata.?name.hasValue()") == "false : bool\n"


def test_variables_without_a_rule_point_to_the_option() -> None:
    hint = "variables and params are those of a rule: --rule KIND/NAME names it\n"
    for expression in ("variables.first", "params.limit > 1"):
        result = cli("eval", expression, "-f", "pod.yaml")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.endswith(f"^\n{hint}") or result.stderr.endswith(f"~\n{hint}")
    for arguments in (["objct"], ["variables.frist", "--rule", "FallbackLadder/mig", "--rules", "rules"]):
        assert hint not in cli("eval", *arguments, "-f", "pod.yaml").stderr


def test_an_expression_with_an_error_has_a_caret() -> None:
    result = cli("eval", "1 +\nobjct", "-f", "pod.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "<expression>:2:1: error: undeclared reference to 'objct' (did you mean 'object'?) [cel-undeclared]\n"
        "    2 | objct\n      | ^~~~~\n"
    )


def test_an_expression_that_fails_on_the_pod_has_a_caret() -> None:
    result = cli("eval", "true && object.spec.containers[1].name == ''", "-f", "pod.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "<expression>:1:9: error: object.spec.containers[1]: index out of range\n"
        "    1 | true && object.spec.containers[1].name == ''\n      |         ^\n"
    )


def test_a_failure_in_a_variable_is_shown_in_its_file() -> None:
    result = cli("eval", "variables.bad", "-f", "pod.yaml", "--rules", "rules", "--rule", "FallbackLadder/mig")
    assert result.exit_code == 1
    assert result.stderr.startswith("rules/ladder.yaml:9:")
    assert "index out of range" in result.stderr


def test_each_pod_of_a_file_has_a_value(folder: Path) -> None:
    other = POD.replace("train", "other").replace("[{name: main", "[{name: x, image: a}, {name: main")
    write(folder, {"pod.yaml": f"{POD}---\n{other}"})
    result = cli("eval", "object.spec.containers[1].name", "-f", "pod.yaml")
    assert (result.exit_code, result.stdout) == (1, 'Pod ml/train:\nPod ml/other:\n"main" : string\n')
    assert result.stderr.count("error: ") == 1
    assert cli("eval", "objct", "-f", "pod.yaml").stderr.count("error: ") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rules", "rules"), "--rule and --rules need each other"),
        (
            ("--rules", "rules", "--rule", "FallbackLadder/mgi"),
            "rule 'FallbackLadder/mgi' not found (did you mean 'FallbackLadder/mig'?)",
        ),
        (("-n", "other"), "Pod/train has namespace ml, not other"),
    ],
)  # fmt: skip
def test_wrong_options_are_usage_errors(arguments: tuple[str, ...], message: str) -> None:
    result = cli("eval", "1", "-f", "pod.yaml", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_an_expression_that_is_not_utf_8_is_a_usage_error() -> None:
    result = cli("eval", "'\udcff'", "-f", "pod.yaml")
    assert result.exit_code == 2
    assert "the expression is not UTF-8" in result.stderr
