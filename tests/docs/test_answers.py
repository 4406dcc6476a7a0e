"""Answers as JSON and as text: of every example in the documents whose command has both.

`python -m tests.docs.test_answers` updates the texts of the eleven reports in golden/.
"""

import contextlib
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import click
import jsonschema_rs
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from rich.cells import cell_len

from rules_engine.cli.schema import ANSWERS, load_schema
from rules_engine.server.commands import main
from tools.documents import DOCUMENTS, Renewal

GOLDEN = Path(__file__).parent / "golden"
REPORTS = {
    ("README", "doctor"),
    ("README", "explain"),
    ("compare", "diff"),
    ("diagnose", "doctor"),
    ("operate", "audit"),
    ("plan", "plan"),
    ("preflight", "preflight"),
    ("simulate", "simulate"),
    ("write-and-test", "check"),
    ("write-and-test", "list"),
    ("write-and-test", "test"),
}
"""Documents and commands whose longest example is kept in golden/."""

WIDTHS = (80, 120)

EXAMPLES = {"audit", "check", "diff", "doctor", "explain", "list", "plan", "preflight", "simulate", "test"}
"""Answers that the documents have examples of; tests/server/commands/test_command_line.py has the others."""

PLAIN_NAMES = frozenset(
    """
    actual after allocatable allowed amount annotations apiVersion arrivedSeconds atSeconds before boundSeconds
    container cordoned deniedBy description diagnostic digest endedSeconds error errors expected failed file given info
    items kind longestAtEndSeconds message name namespace node op operation p95Seconds passed pods priority ready reason
    requested resource rule seed text value warning warnings why
    """.split()  # noqa: SIM905 - a line each is longer
)
"""Members whose names say what they are."""


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Example:
    """A command of a document, and its output in each form. `terminals`: the text by width."""

    document: str
    command: str
    answer: str
    exit_codes: tuple[int, int]
    text: str
    json: Any
    terminals: dict[int, str]


class _Examples(Renewal):
    """A pass through a document that also runs its commands with `-o json` and on terminals."""

    def __init__(self, document: Path, folder: Path) -> None:
        super().__init__(folder)
        self.found: list[Example] = []
        self._document = document.stem

    def called(self, command: str, work: Path) -> str:
        arguments = [*_without_outputs(shlex.split(command)[1:])]
        name = _answer_name(arguments)
        if name is not None:
            with contextlib.chdir(work):
                text = CliRunner().invoke(main, arguments, prog_name="gpu-rules", catch_exceptions=False)
                document = CliRunner().invoke(main, [*arguments, "-o", "json"], catch_exceptions=False)
                terminals = {width: _on_terminal(arguments, width) for width in WIDTHS}
            codes = text.exit_code, document.exit_code
            answer = json.loads(document.stdout)
            self.found.append(Example(self._document, command, name, codes, text.stdout, answer, terminals))
        return super().called(command, work)


def _without_outputs(arguments: Sequence[str]) -> Iterator[str]:
    """Yield arguments without their -o and --output."""
    rest = iter(arguments)
    for argument in rest:
        if argument in ("-o", "--output"):
            next(rest)
        else:
            yield argument


def _answer_name(arguments: Sequence[str]) -> str | None:
    """Return the name of a command's answer; None if it has none in JSON."""
    name = "-".join(arguments[:2]) if arguments[0] == "sets" else arguments[0]
    if "--explain" in arguments or (name == "explain" and "-f" not in arguments):
        return None  # the documentation of a code, or of a field
    return name if name in ANSWERS else None


def _on_terminal(arguments: Sequence[str], width: int) -> str:
    stream = Terminal()
    environment = {"COLUMNS": str(width), "NO_COLOR": "1"}
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(StringIO()),
        contextlib.suppress(SystemExit, click.exceptions.Exit),
    ):
        main(arguments, prog_name="gpu-rules")
    return stream.getvalue()


def read_examples() -> Iterator[Example]:
    """Yield the examples of all documents."""
    for document in DOCUMENTS:
        if "$ gpu-rules" in (text := document.read_text()):
            with TemporaryDirectory() as folder:
                examples = _Examples(document, Path(folder))
                examples.of(text)
            yield from examples.found


@pytest.fixture(scope="module")
def examples() -> Sequence[Example]:
    return [*read_examples()]


def test_each_example_prints_json_that_its_schema_describes(examples: Sequence[Example]) -> None:
    assert {each.answer for each in examples} >= EXAMPLES
    for each in examples:
        Draft202012Validator(load_schema(each.answer)).validate(each.json)
        assert each.exit_codes[0] == each.exit_codes[1], each.command


def fixed_objects(value: Any, schema: Any, root: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each object with fixed members in a value, with its schema."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        fitting = [each for each in schema["anyOf"] if jsonschema_rs.is_valid({**root, "anyOf": [each]}, value)]
        yield from fixed_objects(value, fitting[0], root)
    elif isinstance(value, list):
        for item in value:
            yield from fixed_objects(item, schema.get("items") or {}, root)
    elif isinstance(value, dict):
        members = schema.get("properties")
        if members is not None:
            yield value, schema
        for name, member in value.items():
            yield from fixed_objects(member, members[name] if members else schema.get("additionalProperties", {}), root)


def wrong_objects(value: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield objects that a schema of fixed members must reject, with what is wrong."""
    yield "another member", {**value, "extra": 1}
    for name in schema["required"]:
        yield f"no {name}", {key: member for key, member in value.items() if key != name}
    for name, member in value.items():
        if schema["properties"][name].keys() <= {"description"}:
            continue  # any value
        wrong = 0.5 if isinstance(member, str) else "Maybe" if isinstance(member, int | float) else [["wrong"]]
        yield f"{name} of another type", {**value, name: wrong}
        if "$ref" in schema["properties"][name] and isinstance(member, str):
            yield f"{name} Maybe", {**value, name: "Maybe"}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_wrong_answer_is_rejected(name: str, examples: Sequence[Example]) -> None:
    answers = [each.json for each in examples if each.answer == name]
    answer, schema = max(answers, key=lambda each: len(json.dumps(each))), load_schema(name)
    validator = jsonschema_rs.validator_for(schema)
    tried = 0
    for value, part in [*fixed_objects(answer, schema, schema)][:200]:
        kept = {**value}
        for what, wrong in wrong_objects(kept, part):
            value.clear()
            value |= wrong
            assert not validator.is_valid(answer), (part["title"], what)
            tried += 1
        value.clear()
        value |= kept
    assert validator.is_valid(answer)
    assert tried >= 10


def said(name: str, answer: Any) -> Iterator[str]:
    """Yield the verdicts, counts and names in an answer, as the text says them."""
    match name:
        case "check":
            yield f"{answer['files']} file"
            yield from (f"{each['severity']}: {each['message']} [{each['code']}]" for each in answer["problems"])
        case "explain":
            for pod in answer.get("pods", ()):
                yield f"{pod['kind']} {pod['namespace']}/{pod['name']}"
                yield f"\n{pod['verdict'].lower()}"
        case "list":
            in_namespace = answer["namespace"] is not None
            yield f"namespace {answer['namespace']}" if in_namespace else f"digest {answer['digest']}"
            for rule in answer["rules"]:
                yield f"{rule['kind']}/{rule['name']}" if in_namespace else rule["name"]
        case "test":
            yield f"{answer['passed']} passed"
            yield from (f"{each['test']}: {each['case']}" for each in answer["cases"])
        case "doctor":
            for level in ("error", "warning"):
                if number := answer["counts"][level]:
                    yield f"{number} {level}{'s' * (number > 1)}"
            for finding in answer["findings"]:
                yield f"{finding['severity']}  {finding['reason']}"
                yield from ((each["owner"] or each["objects"][0])["name"] for each in finding["affected"])
            yield from (node["name"] for node in answer["nodes"])
        case "diff":
            for cluster in answer["clusters"]:
                yield f"{cluster['changed'] or 'none'} of {cluster['pods']} pods changed"
            for change in answer["changes"]:
                yield ", ".join(change["kinds"])
                yield from (each["name"] for each in change["workloads"])
                yield from (each["rule"] for each in change["rules"])
        case "audit":
            for group in answer["groups"]:
                yield f"{group['rule']}  {'denied' if group['action'] == 'deny' else 'changed'}"
                yield f"{group['namespace']}  "
                yield f"{group['kind']} {group['name']}  "
                yield group["pod"]
        case "preflight":
            for each in answer["workloads"]:
                name = f"{each['kind']} {each['namespace']}/{each['name']}"
                yield f"{name}  {each['verdict'].lower()}"
                yield f": {each['started']} of {each['pods']} "
                yield from each["starts"]
        case "simulate":
            for result in answer.get("results", ()):
                numbers = [f"{count} {state.lower()}" for state, count in result["totals"]["states"].items() if count]
                yield f"{result['totals']['pods']}: {', '.join(numbers)}"
                yield from (pod["name"] for pod in result["pods"])
                yield from (node["name"] for node in result["nodes"] if "nvidia.com/gpu" in node["resources"])
        case "plan":
            for choice in answer["choices"]:
                yield f"{choice['ran']} of {choice['pods']}"
                yield from choice["configs"]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_text_says_what_the_json_says(name: str, examples: Sequence[Example]) -> None:
    """But for what `test -q` leaves out."""
    shown = [each for each in examples if each.answer == name and each.text]
    pairs = [(text, each) for each in shown for text in said(name, each.json)]
    assert len(pairs) >= 3
    assert [(text, each.text) for text, each in pairs if text not in each.text] == []


def is_described(value: Any, schema: Any) -> bool:
    """Return True if a member, or the type that it names, has a description."""
    if "$ref" in value:
        return is_described(schema["$defs"][value["$ref"].rpartition("/")[2]], schema)
    inner = (value.get("items"), value.get("additionalProperties"), *value.get("anyOf", ()))
    return "description" in value or any(isinstance(each, dict) and is_described(each, schema) for each in inner)


@pytest.mark.parametrize("name", ANSWERS)
def test_each_member_whose_name_does_not_say_it_has_a_description(name: str) -> None:
    schema = load_schema(name)
    members = [each for part in schema["$defs"].values() for each in part.get("properties", {}).items()]
    assert {member for member, value in members if not is_described(value, schema)} <= PLAIN_NAMES


def test_texts_on_terminals_are_those_of_the_golden_files(examples: Sequence[Example]) -> None:
    for name, each in golden(examples).items():
        for width, text in each.terminals.items():
            assert text == (GOLDEN / f"{name}.{width}.txt").read_text(), name


def test_no_line_is_wider_than_the_terminal(examples: Sequence[Example]) -> None:
    """But for commands to copy, which are never wrapped."""
    for each in examples:
        for width, text in each.terminals.items():
            wide = [line for line in text.splitlines() if cell_len(line) > width and each.answer in EXAMPLES]
            assert [line for line in wide if not line.strip().startswith(("kubectl ", "gpu-rules "))] == [], (
                each.command
            )


def golden(examples: Sequence[Example]) -> dict[str, Example]:
    """Return the examples whose texts are kept, by the name of their files."""
    longest = sorted(examples, key=lambda each: len(each.text))
    return {
        f"{each.document.lower()}-{each.answer}": each for each in longest if (each.document, each.answer) in REPORTS
    }


if __name__ == "__main__":
    for file_name, example in golden([*read_examples()]).items():
        for columns, shown in example.terminals.items():
            (GOLDEN / f"{file_name}.{columns}.txt").write_text(shown)
