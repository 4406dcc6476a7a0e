"""`convert`: rules, report and RuleTests of the command."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.convert import convert_text
from rules_engine.authoring.test.rule_tests import run_tests
from tests.support.authoring import cli, completed, completions, write

GPU = "nvidia.com/gpu"
VECTORS = json.loads((Path(__file__).parents[2] / "data" / "gpuinjector-vectors.json").read_text())


def items(**amounts: tuple[float, str]) -> dict[str, Any]:
    return {"resourceList": [{"name": name, "coefficient": c, "unit": u} for name, (c, u) in amounts.items()]}


V100 = {
    "resourceMap": {"V100": {GPU: {**items(cpu=(4000, "m"), memory=(8, "Gi")), "annotations": {"a": "b"}}}},
    "namespaceResourceMap": {
        "training": {"V100": {GPU: items(memory=(1.5, "Gi"))}},
        "sandbox": {"V100": {GPU: {}}},
        "ml": {"T4": {GPU: {"annotations": {"k": "v"}}}},
        "kube-system": {"T4": {GPU: items(cpu=(1, ""))}},
    },
    "namespaceWhiteList": ["kube-system"],
}


def configuration(folder: Path, text: str = "") -> Path:
    return write(folder, {"gpuinjector.json": text or json.dumps(V100)}) / "gpuinjector.json"


def test_rules_go_to_standard_output_and_differences_to_standard_error(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    result = cli("convert", "gpuinjector", file)
    assert result.exit_code == 0
    assert result.stdout == convert_text(json.dumps(V100)).text
    exact, empty = result.stderr.splitlines()
    assert exact.startswith(
        f"{file}:1:1: warning: $.namespaceResourceMap.training.V100.{GPU}.resourceList[0]: 1.5Gi is now "
    )
    assert empty.startswith(f"{file}:1:1: warning: $.namespaceResourceMap.sandbox.V100.{GPU}: an empty entry ")


def test_a_folder_gets_rules_and_a_case_for_each_entry(tmp_path: Path) -> None:
    made = tmp_path / "new" / "made"
    result = cli("convert", "gpuinjector", configuration(tmp_path), "-o", made)
    assert result.exit_code == 0
    names = ["v100.yaml", "t4.yaml", "v100.test.yaml", "t4.test.yaml"]
    assert result.stdout.splitlines() == [str(made / name) for name in names]
    assert check_files([made]).answer.errors == 0
    run = run_tests([made])
    assert run.answer.succeeded
    assert [case.case for case in run.answer.cases] == [
        *("one GPU in default", "one GPU in ml"),  # not in kube-system, which is on the white list
        *(f"one GPU in {namespace}" for namespace in ("default", "training", "sandbox")),
    ]
    for before, after in (("4000m", "4001m"), ("8Gi", "7Gi"), ("1.5Gi", "2Gi"), ("a: b", "a: c"), ("sandbox", "other")):
        rules = made / "v100.yaml"
        text = rules.read_text()
        assert text.count(before) == 1
        rules.write_text(text.replace(before, after))
        assert run_tests([made]).answer.failed > 0
        rules.write_text(text)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_cases_of_each_conversion_pass(tmp_path: Path, vector: dict[str, Any]) -> None:
    conversion = convert_text(vector.get("configRaw") or json.dumps(vector.get("config")))
    write(tmp_path, {**conversion.files, **conversion.tests})
    assert not conversion.rules or run_tests([tmp_path]).answer.succeeded


def test_a_rule_whose_only_namespace_is_skipped_has_a_case(tmp_path: Path) -> None:
    entries = {"ops": {"V100": {GPU: items(cpu=(4, ""))}}}
    text = json.dumps({"namespaceResourceMap": entries, "namespaceWhiteList": ["ops"]})
    cli("convert", "gpuinjector", configuration(tmp_path, text), "-o", tmp_path / "made")
    assert [case.case for case in run_tests([tmp_path / "made"]).answer.cases] == ["one GPU in default"]
    assert run_tests([tmp_path / "made"]).answer.succeeded


def test_the_default_is_tested_in_a_namespace_without_an_entry(tmp_path: Path) -> None:
    default = {"V100": {GPU: items(cpu=(4, ""))}}
    text = json.dumps(
        {"resourceMap": default, "namespaceResourceMap": {"default": {"V100": {GPU: items(cpu=(2, ""))}}}}
    )
    cli("convert", "gpuinjector", configuration(tmp_path, text), "-o", tmp_path / "made")
    run = run_tests([tmp_path / "made"])
    assert run.answer.succeeded
    assert [case.case for case in run.answer.cases] == ["one GPU in default-2", "one GPU in default"]


def test_existing_files_are_never_overwritten(tmp_path: Path) -> None:
    write(tmp_path, {"t4.yaml": "mine\n"})
    result = cli("convert", "gpuinjector", configuration(tmp_path), "-o", tmp_path)
    assert result.exit_code == 2
    assert f"nothing is written, since {tmp_path / 't4.yaml'} exists" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpuinjector.json", "t4.yaml"]
    assert (tmp_path / "t4.yaml").read_text() == "mine\n"


def test_a_folder_that_cannot_be_made_is_reported_in_one_line(tmp_path: Path) -> None:
    result = cli("convert", "gpuinjector", configuration(tmp_path), "-o", tmp_path / "gpuinjector.json" / "x")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("gpu-rules convert gpuinjector: Could not open file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0) [json-syntax]"),
        (b"\x00\x01", "[json-syntax]"),
        (b"\xff", "is not UTF-8"),
        (json.dumps(V100)[:60].encode(), "[json-syntax]"),
        (b"kind: Pod\n", "[json-syntax]"),
        (b'{"kind": "Pod"}', "[gpuinjector-invalid]"),
        (b"{}", "nothing is converted"),
    ],
    ids=["empty", "binary", "not UTF-8", "cut", "YAML", "another file", "no entry"],
)
def test_a_wrong_file_is_reported_and_nothing_is_written(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "gpuinjector.json"
    file.write_bytes(content)
    result = cli("convert", "gpuinjector", file, "-o", tmp_path / "made")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr.splitlines()[0]
    assert result.stderr.splitlines()[-1] == "gpu-rules: nothing is converted"
    assert not (tmp_path / "made").exists()


def test_a_missing_file_is_a_usage_error() -> None:
    result = cli("convert", "gpuinjector", "absent.json")
    assert result.exit_code == 2
    assert "'absent.json' does not exist" in result.stderr


def test_control_characters_in_the_configuration_are_escaped() -> None:
    result = cli("convert", "gpuinjector", "-", stdin=json.dumps({"resourceMap": {"V100\x1b[31m": {GPU: {}}}}))
    assert result.stderr.startswith("<stdin>:1:1: warning: $.resourceMap.V100\\x1b[31m.nvidia.com/gpu: ")


def test_the_ladder_of_the_webhook_is_printed(tmp_path: Path) -> None:
    resources = "nvidia.com/mig-2g.20gb,nvidia.com/mig-1g.10gb,nvidia.com/gpu"
    result = cli("convert", "webhook-ladder", "--resources", resources, "--name", "old")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata:
  name: old
spec:
  direction: DownThenUp
  rungs:
    - resource: nvidia.com/mig-2g.20gb
    - resource: nvidia.com/mig-1g.10gb
    - resource: nvidia.com/gpu
      assume: true
  annotation: gpu-webhook.k8s.io/fallback
"""
    )
    assert check_files([write(tmp_path, {"ladder.yaml": result.stdout})]).answer.problems == ()


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("a.b/c,", "is empty"),
        ("", "the extended resource name is empty"),
        ("a.b/c,a.b/c", "'a.b/c' occurs 2 times"),
        ("gpu,a.b/c", "'gpu' is not an extended resource name: write nvidia.com/gpu"),
        ("a.b/c, d.e/f", "' d.e/f' is not an extended resource name: write d.e/f"),
        ("a.b/\x1b[31m", "a.b/\\x1b[31m"),
        (",".join(f"a.b/c{n}" for n in range(65)), "rungs has 65 items, of at most 64"),
    ],
    ids=["empty last", "empty", "twice", "no domain", "blank", "control character", "many"],
)
def test_resources_that_make_no_ladder_are_a_usage_error(resources: str, message: str) -> None:
    result = cli("convert", "webhook-ladder", "--resources", resources)
    assert (result.exit_code, result.stdout) == (2, "")
    *_, error = result.stderr.splitlines()
    assert error.startswith("Error: Invalid value for '--resources': ")
    assert message in error
    assert len(result.stderr.splitlines()) == 4


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["convert", ""], ["gpuinjector", "webhook-ladder"]),
        (["convert", "webhook-ladder", "--"], ["--resources", "--name", "--help"]),
    ],
)
def test_a_shell_completes_commands_and_options(words: list[str], found: list[str]) -> None:
    assert completed(*words) == found


def test_a_shell_completes_files() -> None:
    assert [item.type for item in completions("convert", "gpuinjector", "old")] == ["file"]
    assert [item.type for item in completions("convert", "gpuinjector", "-o", "new")] == ["dir"]
