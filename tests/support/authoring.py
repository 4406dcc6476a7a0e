"""Builders and commands for tests of authoring."""

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
from click.shell_completion import CompletionItem, ShellComplete
from click.testing import CliRunner, Result

from rules_engine.cli import COMMANDS
from rules_engine.rules.injection.value import GPU_TYPE_ANNOTATION


def place(text: str) -> dict[str, str | int]:
    """Return the members of a place that is written FILE:LINE:COLUMN."""
    file, line, column = text.rsplit(":", 2)
    return {"file": file, "line": int(line), "column": int(column)}


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files, by their paths below `folder`, and return `folder`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let this process write no file beyond `size` bytes. A child process would also measure coverage under it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def ladder(name: str, *rungs: str, **fields: str) -> str:
    """Return a FallbackLadder; rungs are resources or YAML, other fields YAML on one line each."""
    lines = "".join(f"    - {rung if rung.startswith('{') else f'{{resource: {rung}}}'}\n" for rung in rungs)
    return _rule("FallbackLadder", name, f"  rungs:\n{lines}", fields)


def injection(name: str, **fields: str) -> str:
    """Return a ResourceInjection, of cpu by default; fields are YAML on one line each. A GPU type has an annotation."""
    annotation = {"gpuTypeAnnotation": GPU_TYPE_ANNOTATION} if "gpuType" in fields else {}
    return _rule("ResourceInjection", name, "", {"coefficients": "{cpu: 4}", **fields, **annotation, **fields})


def validation(name: str, expression: str, *, message: str = "", **fields: str) -> str:
    """Return a Validation of one expression."""
    told = f"      message: {message}\n" if message else ""
    return _rule("Validation", name, f"  validations:\n    - expression: {expression}\n{told}", fields)


def _rule(kind: str, name: str, spec: str, fields: Mapping[str, str]) -> str:
    lines = "".join(f"  {field}: {value}\n" for field, value in fields.items())
    return f"apiVersion: gpurules.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{spec}{lines}"


def cli(*arguments: str | Path, stdin: str | bytes = "") -> Result:
    """Run a command of `rules_engine.cli` in this process."""
    group = click.Group("gpu-rules", commands=list(COMMANDS))
    return CliRunner().invoke(group, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)


def completions(*words: str) -> list[CompletionItem]:
    """Return the completions of the last word of a command line, as shells get them."""
    group = click.Group("gpu-rules", commands=list(COMMANDS))
    *before, incomplete = words
    return ShellComplete(group, {}, "gpu-rules", "_COMPLETE").get_completions(before, incomplete)


def completed(*words: str) -> list[str]:
    """Return the words that may replace the last word of a command line."""
    return [item.value for item in completions(*words)]
