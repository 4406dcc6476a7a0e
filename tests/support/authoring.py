"""Builders for what authoring is tested on: files in a folder, patches as the API server applies them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from rules_engine.cli import COMMANDS
from rules_engine.model.json.patch import Json, Operation


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Writes files by their paths below `folder`, which is given back."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def applied(document: Json, patch: Iterable[Mapping[str, Any] | Operation]) -> Any:
    """The document after a patch, as the API server's library applies it: `replace` may make a member.

    A missing parent, and `remove` of what is not there, are errors.
    """
    for operation in patch:
        document = _apply(document, operation.to_json() if isinstance(operation, Operation) else operation)
    return document


def _apply(document: Json, operation: Mapping[str, Any]) -> Json:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
    return _at(document, steps, operation) if steps else operation["value"]


def _at(node: Json, steps: list[str], operation: Mapping[str, Any]) -> Json:
    step, *rest = steps
    if isinstance(node, list):
        index = int(step)
        assert rest, "these tests replace no items"
        return [*node[:index], _at(node[index], rest, operation), *node[index + 1 :]]
    assert isinstance(node, dict), f"nothing at {operation['path']} to write into"
    if rest:
        return {**node, step: _at(node.get(step), rest, operation)}
    if operation["op"] == "remove":
        assert step in node, f"nothing at {operation['path']} to remove"
        return {name: value for name, value in node.items() if name != step}
    return {**node, step: operation["value"]}


def ladder(name: str, *rungs: str, **fields: str) -> str:
    """A FallbackLadder: rungs as resources or YAML, other fields as YAML on a line each after them."""
    lines = "".join(f"    - {rung if rung.startswith('{') else f'{{resource: {rung}}}'}\n" for rung in rungs)
    return _rule("FallbackLadder", name, f"  rungs:\n{lines}", fields)


def injection(name: str, **fields: str) -> str:
    """A ResourceInjection of cpu, unless `fields` say other coefficients; fields as YAML on a line each."""
    return _rule("ResourceInjection", name, "", {"coefficients": "{cpu: 4}", **fields})


def validation(name: str, expression: str, **fields: str) -> str:
    """A Validation of one expression."""
    return _rule("Validation", name, f"  validations:\n    - expression: {expression}\n", fields)


def _rule(kind: str, name: str, spec: str, fields: Mapping[str, str]) -> str:
    lines = "".join(f"  {field}: {value}\n" for field, value in fields.items())
    return f"apiVersion: gpurules.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{spec}{lines}"


def cli(*arguments: str | Path, stdin: str | bytes = "") -> Result:
    """A command of `rules_engine.cli`, run in this process."""
    group = click.Group("gpu-rules", commands=list(COMMANDS))
    return CliRunner().invoke(group, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)
