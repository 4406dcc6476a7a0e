"""`convert`: rules, report and RuleTests of the command."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rules_engine.checking.check import check_files
from rules_engine.converting.convert import convert_text
from rules_engine.converting.gpuinjector import Coefficient
from rules_engine.loading.files import MAX_FILE_BYTES
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.testing.rule_tests import run_tests
from tests.support.authoring import cli, completed, completions, write

GPU = "nvidia.com/gpu"
VECTORS = json.loads((Path(__file__).parent.parent / "data" / "gpuinjector-vectors.json").read_text())


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


def test_rules_go_to_standard_output_and_the_report_to_standard_error(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    result = cli("convert", "gpuinjector", file)
    assert result.exit_code == 0
    assert result.stdout == convert_text(json.dumps(V100)).text
    report = [re.sub(r"^.*: warning: .*\[", "[", line) for line in result.stderr.splitlines() if line[0] != " "]
    assert report == [
        "resourceMap.V100.nvidia.com/gpu: ResourceInjection/v100, no differences",
        "namespaceResourceMap.training.V100.nvidia.com/gpu: ResourceInjection/v100, 1 difference",
        "[gpuinjector-exact]",
        "namespaceResourceMap.sandbox.V100.nvidia.com/gpu: ResourceInjection/v100, 1 difference",
        "[gpuinjector-empty-entry]",
        "namespaceResourceMap.ml.T4.nvidia.com/gpu: ResourceInjection/t4, no differences",
        "namespaceResourceMap.kube-system.T4.nvidia.com/gpu: ResourceInjection/t4, no differences",
    ]
    assert f"{file}:1:314: warning: 1.5Gi is now computed exactly" in result.stderr


def test_standard_input_is_read_and_an_empty_entry_alone_is_not_converted() -> None:
    result = cli("convert", "gpuinjector", "-", stdin=json.dumps({"resourceMap": {"V100": {GPU: {}}}}))
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert (lines[0], lines[-1]) == (
        "resourceMap.V100.nvidia.com/gpu: not converted, 1 difference",
        "gpu-rules: no entry to convert in <stdin>",
    )


def test_a_folder_gets_rules_and_tests_that_pass_and_pin_each_amount(tmp_path: Path) -> None:
    made = tmp_path / "new" / "made"
    result = cli("convert", "gpuinjector", configuration(tmp_path), "-o", made)
    assert result.exit_code == 0
    names = ["v100.yaml", "t4.yaml", "v100.test.yaml", "t4.test.yaml"]
    assert result.stdout.splitlines() == [str(made / name) for name in names]
    assert check_files([made]).errors == 0
    run = run_tests([made], coverage=True)
    assert run.succeeded
    cases = [case.name.case.name for case in run.results]
    assert "1 GPU in default" in cases
    assert "1 GPU in training; memory of gpu-1 was 1Gi" in cases
    assert any(case.startswith("1 and 2 GPUs in default beside the container plain") for case in cases)
    assert "more cpu than the total in default is denied" in cases
    assert "1 GPU in sandbox" in cases
    assert "nothing is injected in kube-system" in cases
    assert "1 GPU in kube-system" not in cases
    for before, after in (("4000m", "4001m"), ("8Gi", "7Gi"), ("1.5Gi", "2Gi"), ("a: b", "a: c"), ("sandbox", "other")):
        rules = made / "v100.yaml"
        text = rules.read_text()
        assert text.count(before) == 1
        rules.write_text(text.replace(before, after))
        assert run_tests([made]).failures > 0
        rules.write_text(text)


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
        (b"", "unexpected end of the JSON text [json-syntax]"),
        (b"\x00\x01", "[json-syntax]"),
        (b"\xff\xfe", "is not UTF-8"),
        (json.dumps(V100)[:60].encode(), "[json-syntax]"),
        (b"kind: Pod\n", "[json-syntax]"),
        (b'{"kind": "Pod"}', "[gpuinjector-unknown-field]"),
        (b"{}", "no entry to convert"),
        (b" " * (MAX_FILE_BYTES + 1), "larger than 4 MiB"),
    ],
    ids=["empty", "binary", "not UTF-8", "cut", "YAML", "another file", "no entry", "large"],
)
def test_a_wrong_file_is_reported_and_nothing_is_written(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "gpuinjector.json"
    file.write_bytes(content)
    result = cli("convert", "gpuinjector", file, "-o", tmp_path / "made")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr.splitlines()[0]
    assert "nothing is converted" not in result.stderr
    assert not (tmp_path / "made").exists()


def test_a_file_with_an_error_is_reported_at_the_end(tmp_path: Path) -> None:
    coefficients = [{"name": "cpu", "coefficient": 1.5}, {"name": "x.io/shm", "coefficient": -1}]
    file = tmp_path / "gpuinjector.json"
    file.write_text(json.dumps({"resourceMap": {"V100": {GPU: {"resourceList": coefficients}}}}))
    result = cli("convert", "gpuinjector", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == f"gpu-rules: nothing is converted, since {file} has errors"


def test_a_missing_file_is_a_usage_error() -> None:
    result = cli("convert", "gpuinjector", "absent.json")
    assert result.exit_code == 2
    assert "'absent.json' does not exist" in result.stderr


def containers_of(vector: dict[str, Any]) -> list[dict[str, Any]]:
    containers: list[dict[str, Any]] = vector["pod"]["spec"]["containers"]
    return containers


def comparable() -> list[dict[str, Any]]:
    """Vectors of one entry whose containers all have GPUs, and that gpuinjector answered with amounts."""
    vectors = []
    for vector in VECTORS:
        amounts = [op for op in vector["reference"]["patch"] or () if "/resources/requests/" in op["path"]]
        if not (amounts and "config" in vector) or vector["config"].get("namespaceResourceMap"):
            continue
        conversion = convert_text(json.dumps(vector["config"]))
        requests = [container["resources"].get("requests", {}) for container in containers_of(vector)]
        if len(conversion.entries) == 1 and all(request.get(GPU) for request in requests):
            vectors.append(vector)
    return vectors


@pytest.mark.parametrize("vector", comparable(), ids=lambda vector: vector["name"])
def test_the_amounts_equal_gpuinjectors(vector: dict[str, Any]) -> None:
    (entry,) = convert_text(json.dumps(vector["config"])).entries
    gpus = [Quantity.parse(str(container["resources"]["requests"][GPU])).whole for container in containers_of(vector)]
    compared = 0
    for operation in vector["reference"]["patch"]:
        _, _, _, index, _, which, name = [*operation["path"].split("/"), *[""] * 7][:7]
        name = name.replace("~1", "/")
        if which != "requests" or name not in entry.coefficients or not all(gpus):
            continue
        amounts = entry.coefficients[name].amounts(name, gpus, Quantity(0))
        assert amounts is None or amounts[int(index)] == Quantity.parse(operation["value"])
        compared += 1
    assert compared or not all(gpus)


@pytest.mark.parametrize(
    ("resource", "number", "unit", "gpus", "requested", "expected"),
    [
        ("cpu", "0.29", "", [100], "0", ["28"]),
        ("cpu", "0.5", "", [1], "0", ["0"]),
        ("cpu", "4000", "m", [2], "1000m", ["7"]),
        ("memory", "8", "Gi", [1, 2], "2Gi", ["7874106709333m", "15748213418666m"]),
        ("x.y/z", "1.5", "Gi", [1, 3], "0", ["1Gi", "4Gi"]),
        ("x.y/z", "4", "0", [2], "0", ["80"]),
        ("memory", "1", "Pi", [8], "0", ["8Pi"]),
        ("memory", "2", "Pi", [8], "0", None),
        ("x.y/z", "1e19", "", [1], "0", None),
        ("x.y/z", "9e18", "e40", [1], "0", None),
    ],
)
def test_the_arithmetic_rounds_as_gpuinjector(
    resource: str, number: str, unit: str, gpus: Sequence[int], requested: str, expected: list[str] | None
) -> None:
    amounts = Coefficient(number, unit).amounts(resource, gpus, Quantity.parse(requested))
    assert (None if amounts is None else [str(amount) for amount in amounts]) == expected


def test_amounts_that_overflow_are_reported_and_listed_in_the_tests(tmp_path: Path) -> None:
    text = json.dumps({"resourceMap": {"V100": {GPU: items(memory=(4, "Pi"))}}})
    result = cli("convert", "gpuinjector", configuration(tmp_path, text), "-o", tmp_path / "made")
    assert "[gpuinjector-overflow]" in result.stderr
    assert "8 GPUs in default; memory of gpu-1 was another amount" in (tmp_path / "made" / "v100.test.yaml").read_text()
    assert run_tests([tmp_path / "made"]).succeeded


def test_a_denial_that_gpuinjector_missed_is_not_pinned(tmp_path: Path) -> None:
    text = json.dumps({"resourceMap": {"V100": {GPU: items(memory=(16, "Pi"), cpu=(4, ""))}}})
    cli("convert", "gpuinjector", configuration(tmp_path, text), "-o", tmp_path / "made")
    run = run_tests([tmp_path / "made"])
    assert run.succeeded
    cases = [case.name.case.name for case in run.results]
    assert "1 GPU in default; memory of gpu-1 was another amount" in cases
    assert [case for case in cases if "is denied" in case] == ["more cpu than the total in default is denied"]


def test_many_entries_are_divided_among_tests_that_can_be_read(tmp_path: Path) -> None:
    entries = {f"ns-{n}": {"V100": {GPU: {**items(cpu=(4, "")), "annotations": {f"a-{n}": "b"}}}} for n in range(700)}
    text = json.dumps({"resourceMap": V100["resourceMap"], "namespaceResourceMap": entries})
    made = tmp_path / "made"
    cli("convert", "gpuinjector", configuration(tmp_path, text), "-o", made)
    tests = sorted(path.name for path in made.iterdir())
    assert tests == ["v100.2.test.yaml", "v100.test.yaml", "v100.yaml"]
    assert all(path.stat().st_size < MAX_FILE_BYTES for path in made.iterdir())
    run = run_tests([made])
    assert run.succeeded
    names = [case.name.case.name for case in run.results]
    assert {name for name in names if name.startswith("1 GPU in ")} == {
        "1 GPU in default",
        *(f"1 GPU in ns-{n}" for n in range(700)),
    }


def test_problems_outside_of_entries_come_first() -> None:
    result = cli("convert", "gpuinjector", "-", stdin=json.dumps({**V100, "namespaceWhiteList": ["*"]}))
    assert result.exit_code == 0
    assert "'*' is not a valid namespace name and never matches" in result.stderr.splitlines()[0]


def test_control_characters_in_the_configuration_are_escaped() -> None:
    text = json.dumps({"resourceMap": {"V100\x1b[31m": {GPU: items(cpu=(4, ""))}}})
    result = cli("convert", "gpuinjector", "-", stdin=text)
    assert result.exit_code == 0
    assert result.stderr == "resourceMap.V100\\x1b[31m.nvidia.com/gpu: ResourceInjection/v100-31m, no differences\n"
    assert "\x1b" not in result.stdout


def test_a_namespace_without_an_entry_is_found_even_if_default_has_one(tmp_path: Path) -> None:
    text = json.dumps({"namespaceResourceMap": {"default": {"V100": {GPU: items(cpu=(4, ""))}}}})
    cli("convert", "gpuinjector", configuration(tmp_path, text), "-o", tmp_path / "made")
    run = run_tests([tmp_path / "made"])
    assert run.succeeded
    assert next(case.name.case.name for case in run.results) == "1 GPU in other-1"


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
    assert check_files([write(tmp_path, {"ladder.yaml": result.stdout})]).problems == ()


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


PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rules_engine.cli import COMMANDS, Root; Root('gpu-rules', commands=list(COMMANDS))()"
)
PRINTS = ["convert", "webhook-ladder", "--resources", "x.io/a,x.io/b"]


def program(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, arguments)]


def test_a_full_disk_is_reported_in_one_line(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    for arguments in (PRINTS, ["convert", "gpuinjector", file], ["convert", "--help"]):
        with Path("/dev/full").open("wb") as full:
            result = subprocess.run(program(*arguments), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert result.returncode == 2
        assert result.stderr.splitlines()[-1] == "gpu-rules: cannot write the output: No space left on device"
        assert "Traceback" not in result.stderr


def test_a_closed_pipe_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(program(*PRINTS), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, b"")


def test_ctrl_c_ends_quietly(tmp_path: Path) -> None:
    fifo = tmp_path / "gpuinjector.json"
    os.mkfifo(fifo)
    arguments = program("convert", "gpuinjector", fifo)
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    writer = os.open(fifo, os.O_WRONLY)  # returns once the command has opened it
    process.send_signal(signal.SIGINT)
    os.close(writer)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", "")


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
