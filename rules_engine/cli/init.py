"""`init`: a repository of rules to start from."""

import shlex
from pathlib import Path

import click

from rules_engine.cli.options import FOLDER
from rules_engine.cli.program import Command, help_examples


@click.command(
    cls=Command,
    short_help="Start a repository of rules.",
    epilog=help_examples(
        "gpu-rules init",
        "gpu-rules init gpu-policies",
        "gpu-rules init --ci gitlab gpu-policies",
    ),
)
@click.argument("folder", metavar="[DIR]", default=".", type=FOLDER)
@click.option(
    "--ci",
    type=click.Choice(["github", "gitlab"]),
    default="github",
    show_default=True,
    help="CI system that checks and tests the rules.",
)
def init(folder: Path, ci: str) -> None:
    """Start a repository of rules in DIR, by default the current folder.

    Writes a rule with its test, a cluster and a workload to compare rules on, the schema of rules, the configuration
    of pre-commit and VS Code, and CI jobs. Existing files are never changed, and folders rules and workloads that are
    not empty get no files. Exits with 2 if a file cannot be written.
    """
    from rules_engine.authoring.init import NotWrittenError, write_starter_files
    from rules_engine.model.problems.source import escape_controls

    lines = []
    try:
        for file in write_starter_files(folder, ci):
            text = f"wrote {file.path}" if file.written else f"kept {file.path}: it exists"
            lines.append(text)
        rules = shlex.quote(str(folder / "rules"))
        lines.append(f"next: gpu-rules check {rules} && gpu-rules test {rules}")
    except NotWrittenError as error:
        raise click.ClickException(escape_controls(str(error))) from None
    finally:  # once all files are written: the reader of this output may be gone
        for line in lines:
            click.echo(escape_controls(line))
