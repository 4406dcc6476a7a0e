"""`convert`: configurations of other webhooks → rules."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rules_engine.cli.options import FOLDER, ObjectName, PathOrStdin, write_new_files
from rules_engine.cli.program import UNUSABLE, Command, Group, fail_if, help_examples

if TYPE_CHECKING:
    from rules_engine.converting.convert import Conversion


@click.group(
    cls=Group,
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

    FILE is the configuration; - for standard input. The rules are written to standard output, and a report of each
    entry with every difference to standard error. The RuleTests that -o writes pin the rules' results; if
    gpuinjector injected another amount, the name of the case shows it. Exits with 2 if the configuration has an error.
    """
    from rules_engine.converting.convert import convert_file

    conversion = convert_file(file)
    _report_conversion(conversion, file)
    fail_if(not conversion.rules, UNUSABLE)
    if folder is None:
        click.echo(conversion.text, nl=False)
        return
    from rules_engine.converting.pinned_results import pin_results

    names = [rule.name for rule in conversion.rules]
    rules = {f"{name}.yaml": text for name, text in zip(names, conversion.documents, strict=True)}
    write_new_files(folder, {**rules, **pin_results(conversion, tuple(rules))})


def _report_conversion(conversion: "Conversion", file: Path) -> None:
    """Print each entry with its rule and its differences to standard error, after the other findings."""
    from rules_engine.model.problems.excerpt import escape_controls
    from rules_engine.report.text import Screen

    screen = Screen(sys.stderr)
    of_entries = {finding for entry in conversion.entries for finding in entry.findings}
    screen.problems((other for other in conversion.findings if other not in of_entries), conversion.sources)
    for entry in conversion.entries:
        rule = "not converted" if entry.rule is None else str(conversion.rules[entry.rule].id)
        count = len(entry.findings)
        differences = "1 difference" if count == 1 else f"{count or 'no'} differences"
        click.echo(f"{escape_controls(entry.path)}: {rule}, {differences}", err=True)
        screen.problems(entry.findings, conversion.sources)
    if conversion.failed and len(conversion.findings) > 1:  # an error among warnings is easily missed
        click.echo(f"gpu-rules: nothing is converted, since {escape_controls(str(file))} has errors", err=True)
    if not (conversion.rules or conversion.failed):
        click.echo(f"gpu-rules: no entry to convert in {escape_controls(str(file))}", err=True)


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
@click.option("--name", type=ObjectName(), default="webhook", show_default=True, help="Name of the FallbackLadder.")
def webhook_ladder(resources: str, name: str) -> None:
    """Print the FallbackLadder that does what the GPU allocation webhook did with these resources."""
    from rules_engine.converting.rule_text import webhook_ladder as ladder
    from rules_engine.model.problems.excerpt import escape_controls

    names = resources.split(",")
    [(most, count)] = Counter(names).most_common(1)
    text, problems = ladder(names, name)
    if problems:
        message = problems[0].message if count == 1 else f"'{most}' occurs {count} times"
        raise click.BadParameter(escape_controls(message), param_hint="'--resources'")
    click.echo(text, nl=False)
