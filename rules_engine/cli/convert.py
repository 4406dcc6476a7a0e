"""`convert`: configurations of other webhooks → rules."""

import sys
from collections import Counter
from pathlib import Path

import click

from rules_engine.cli.options import FOLDER, OBJECT_NAME, PathOrStdin, write_new_files
from rules_engine.cli.program import UNUSABLE, Command, CommandGroup, help_examples


@click.group(
    cls=CommandGroup,
    short_help="Convert other webhooks' settings to rules.",
    epilog=help_examples(
        "gpu-rules convert gpuinjector old.json > rules.yaml",
        "gpu-rules convert webhook-ladder --resources x.io/a,x.io/b",
    ),
)
def convert() -> None:
    """Convert the configuration of another webhook to rules."""


@convert.command(
    cls=Command,
    short_help="Convert gpuinjector's configuration to ResourceInjections.",
    epilog=help_examples(
        "gpu-rules convert gpuinjector old.json > rules.yaml",
        "gpu-rules convert gpuinjector -o injections old.json",
    ),
)
@click.argument("file", metavar="FILE", type=PathOrStdin(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "folder",
    type=FOLDER,
    metavar="DIR",
    help="Write a file for each rule and a RuleTest beside it to this folder; existing files are never overwritten.",
)
def gpuinjector(file: Path, folder: Path | None) -> None:
    """Convert the JSON configuration of gpuinjector to ResourceInjections.

    FILE is the configuration or the ConfigMap that holds it; - for standard input. The rules are written to standard
    output, and every difference to standard error. Exits with 2 if the configuration has an error.
    """
    from rules_engine.authoring.convert import convert_file
    from rules_engine.report.text import Screen

    conversion = convert_file(file)
    Screen(sys.stderr).problems(conversion.findings, {})
    if not conversion.rules:
        click.echo("gpu-rules: nothing is converted", err=True)
        raise SystemExit(UNUSABLE)
    if folder is None:
        click.echo(conversion.text, nl=False)
    else:
        write_new_files(folder, {**conversion.files, **conversion.tests})


@convert.command(
    "webhook-ladder",
    cls=Command,
    short_help="Convert the GPU allocation webhook's ladder.",
    epilog=help_examples("gpu-rules convert webhook-ladder --resources x.io/a,x.io/b"),
)
@click.option(
    "--resources",
    required=True,
    metavar="NAME,NAME...",
    help="Resources of the ladder, the highest first. The last one is assumed: taken without asking the cluster.",
)
@click.option("--name", type=OBJECT_NAME, default="webhook", show_default=True, help="Name of the FallbackLadder.")
def webhook_ladder(resources: str, name: str) -> None:
    """Print the FallbackLadder that does what the GPU allocation webhook did with these resources."""
    from rules_engine.authoring.convert import webhook_ladder as ladder
    from rules_engine.model.problems.source import escape_controls

    names = resources.split(",")
    [(most, count)] = Counter(names).most_common(1)
    text, problems = ladder(names, name)
    if problems:
        message = problems[0].message if count == 1 else f"'{most}' occurs {count} times"
        raise click.BadParameter(escape_controls(message), param_hint="'--resources'")
    click.echo(text, nl=False)
