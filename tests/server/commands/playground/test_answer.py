"""The playground's answer on the texts of its editors."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rules_engine.server.commands import main
from rules_engine.server.commands.playground.answer import (
    CLUSTER_FILE,
    EXAMPLES,
    FILES,
    POD_FILE,
    RULES_FILE,
    TEST_FILE,
    answer_parts,
    write_texts,
)
from tools.playground_examples import build_examples

START = EXAMPLES[0]["texts"]
MIG = "nvidia.com/mig-3g.40gb"


def answer(folder: Path, texts: Mapping[str, str]) -> dict[str, Any]:
    write_texts(str(folder), {**START, **texts})
    parts: dict[str, Any] = {}
    with contextlib.chdir(folder):
        for part in answer_parts():
            parts |= part
    return parts


def document(folder: Path, *arguments: str) -> Any:
    with contextlib.chdir(folder):
        return json.loads(CliRunner().invoke(main, [*arguments, "--output", "json"]).stdout)


def pod_text(name: str = "p", amount: int = 1, resource: str = MIG) -> str:
    limits = f"{{{resource}: {amount}}}"
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: ml-x}}\n"
        f"spec: {{containers: [{{name: c, image: i, resources: {{limits: {limits}}}}}]}}\n"
    )


def texts_in(value: Any) -> str:
    """Return all texts of an answer's blocks."""
    if isinstance(value, dict):
        return "".join(map(texts_in, value.values()))
    if isinstance(value, list):
        return "\n".join(map(texts_in, value))
    return str(value)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: f"{each['group']}-{each['title']}")
def test_the_answer_on_an_example_equals_the_documents_of_the_commands_and_its_test_passes(
    example: Any, tmp_path: Path
) -> None:
    given = answer(tmp_path, example["texts"])
    inputs = ("-f", POD_FILE, "--rules", RULES_FILE, "--cluster", CLUSTER_FILE)

    assert given["explain"] == document(tmp_path, "explain", *inputs)
    assert given["preflight"] == document(tmp_path, "preflight", *inputs)
    assert not [each for each in given["problems"] if each["severity"] == "error"]
    (tmp_path / TEST_FILE).write_text(given["test"], encoding="utf-8")
    assert document(tmp_path, "test", ".")["succeeded"]


@pytest.mark.parametrize("alone", [False, True])
def test_pods_that_are_not_known_make_the_answers_unknown(alone: bool, tmp_path: Path) -> None:
    unread = f"{{apiVersion: x.y/v1, kind: Foo, metadata: {{name: a}}, spec: {{gpu: {MIG}}}}}\n"
    given = answer(tmp_path, {POD_FILE: unread if alone else f"{pod_text()}---\n{unread}"})
    inputs = ("-f", POD_FILE, "--rules", RULES_FILE, "--cluster", CLUSTER_FILE)

    assert "unknown-pods" in [each["code"] for each in given["problems"]]
    assert (given["explain"]["verdict"], given["preflight"]["verdict"]) == ("Unknown", "Unknown")
    assert given["explain"] == document(tmp_path, "explain", *inputs)
    assert given["preflight"] == document(tmp_path, "preflight", *inputs)
    assert "pods of Foo/a unknown" in texts_in(given["notices"])


def test_examples_are_those_of_the_documents_and_of_the_package() -> None:
    assert build_examples() == EXAMPLES, "python -m tools.playground_examples"
    assert set(START) == set(FILES)


def test_a_problem_has_its_place_and_a_remedy_and_leaves_the_decision_unknown(tmp_path: Path) -> None:
    given = answer(tmp_path, {RULES_FILE: START[RULES_FILE].replace("object", "objct")})

    [problem] = [each for each in given["problems"] if each["severity"] == "error"]
    assert (problem["code"], problem["length"]) == ("cel-undeclared", 5)
    assert problem["source"] == {"file": RULES_FILE, "line": 9, "column": 13}
    assert problem["remedy"].startswith("Correct the name")
    assert "decisions" not in given


@pytest.mark.parametrize(("file", "text"), [(POD_FILE, "kind: Service\n"), (CLUSTER_FILE, ""), (RULES_FILE, "a: 1\n")])
def test_an_unusable_text_is_a_problem_of_its_file(file: str, text: str, tmp_path: Path) -> None:
    given = answer(tmp_path, {file: text})

    assert file in [each["source"]["file"] for each in given["problems"] if each["severity"] == "error"]
    assert "explain" not in given


def test_a_step_of_the_trace_has_the_place_of_its_rule(tmp_path: Path) -> None:
    given = answer(tmp_path, {})

    step = given["decisions"][0][0]["children"][0]["children"][0]
    place = step["line"][-1]
    assert (place["text"].strip(), place["line"], place["column"]) == ("rules.yaml:10:18 rungs[2]", 10, 18)


def test_each_node_has_the_reason_why_it_cannot_run_a_pod(tmp_path: Path) -> None:
    given = answer(tmp_path, {POD_FILE: pod_text(amount=9, resource="nvidia.com/gpu")})

    [item] = given["report"][0]["items"]
    reasons = {row[0]: row[1] for row in item["table"]["rows"]}
    assert reasons == {
        "gpu-sim-cluster-control-plane": "node(s) had untolerated taint(s)",
        "gpu-sim-cluster-worker": "Insufficient nvidia.com/gpu",
        "gpu-sim-cluster-worker2": "Insufficient nvidia.com/gpu",
    }


def test_pods_of_the_same_name_have_different_cases(tmp_path: Path) -> None:
    denying = (
        "apiVersion: gpurules.io/v1\nkind: Validation\nmetadata: {name: v}\n"
        "spec: {validations: [{expression: \"object.metadata.name != 'p'\", message: not p}]}\n"
    )
    given = answer(tmp_path, {RULES_FILE: denying, POD_FILE: f"{pod_text()}---\n{pod_text()}---\n{pod_text('q')}"})

    (tmp_path / TEST_FILE).write_text(given["test"], encoding="utf-8")
    run = document(tmp_path, "test", ".")
    assert run["succeeded"]
    assert [case["case"] for case in run["cases"]] == ["Pod ml-x/p", "Pod ml-x/p 2", "Pod ml-x/q"]
    assert given["explain"]["verdict"] == "Denied"


def test_a_case_expects_the_warnings_of_its_pod(tmp_path: Path) -> None:
    warning = (
        "apiVersion: gpurules.io/v1\nkind: Validation\nmetadata: {name: v}\n"
        'spec: {validationActions: [Warn], validations: [{expression: "false", message: careful}]}\n'
    )
    given = answer(tmp_path, {RULES_FILE: warning, POD_FILE: pod_text()})

    assert "careful" in given["test"]
    (tmp_path / TEST_FILE).write_text(given["test"], encoding="utf-8")
    assert document(tmp_path, "test", ".")["succeeded"]


def test_documents_that_refer_to_files_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("hidden: value\n", encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    test = (
        "apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {name: t}\n"
        f"spec: {{rules: [{secret}], cluster: {{file: {secret}}}, cases: [{{name: a, podFile: {secret}}}]}}\n"
    )
    for texts in ({RULES_FILE: f"{START[RULES_FILE]}---\n{test}"}, {RULES_FILE: test}, {CLUSTER_FILE: test}):
        assert "hidden" not in texts_in(answer(work, texts))


def test_control_characters_of_names_are_escaped_and_long_texts_cut(tmp_path: Path) -> None:
    rules = (
        "apiVersion: gpurules.io/v1\nkind: Validation\nmetadata: {name: v}\n"
        'spec: {validations: [{expression: "false", messageExpression: "object.metadata.labels.l"}]}\n'
    )
    label = '"\\u202e' + "x" * 2_000 + '"'
    given = answer(
        tmp_path, {RULES_FILE: rules, POD_FILE: pod_text().replace("name: p,", f"name: p, labels: {{l: {label}}},")}
    )

    shown = texts_in(given["decisions"])
    assert "\u202e" not in shown
    assert max(map(len, shown.splitlines())) <= 1_100
