"""Builders for tests of authoring: rule files in a folder, and patches applied as by the API server."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from rules_engine.cli import COMMANDS
from rules_engine.model.json.patch import Json, Operation


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files, by their paths below `folder`, and return `folder`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def applied(document: Json, patch: Iterable[Mapping[str, Any] | Operation]) -> Any:
    """Return the document after a patch, as the API server's library applies it: `replace` may add a member.

    A missing parent, and `remove` of a missing member, are errors.
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
    assert isinstance(node, dict), f"{operation['path']}: parent not found"
    if rest:
        return {**node, step: _at(node.get(step), rest, operation)}
    if operation["op"] == "remove":
        assert step in node, f"{operation['path']} not found"
        return {name: value for name, value in node.items() if name != step}
    return {**node, step: operation["value"]}


def ladder(name: str, *rungs: str, **fields: str) -> str:
    """Return a FallbackLadder; rungs are resources or YAML, other fields YAML on one line each."""
    lines = "".join(f"    - {rung if rung.startswith('{') else f'{{resource: {rung}}}'}\n" for rung in rungs)
    return _rule("FallbackLadder", name, f"  rungs:\n{lines}", fields)


def injection(name: str, **fields: str) -> str:
    """Return a ResourceInjection, of cpu by default; fields are YAML on one line each."""
    return _rule("ResourceInjection", name, "", {"coefficients": "{cpu: 4}", **fields})


def validation(name: str, expression: str, **fields: str) -> str:
    """Return a Validation of one expression."""
    return _rule("Validation", name, f"  validations:\n    - expression: {expression}\n", fields)


def _rule(kind: str, name: str, spec: str, fields: Mapping[str, str]) -> str:
    lines = "".join(f"  {field}: {value}\n" for field, value in fields.items())
    return f"apiVersion: gpurules.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{spec}{lines}"


def cli(*arguments: str | Path, stdin: str | bytes = "") -> Result:
    """Run a command of `rules_engine.cli` in this process."""
    group = click.Group("gpu-rules", commands=list(COMMANDS))
    return CliRunner().invoke(group, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)
