"""`check`: problems of rule files."""

import sys
from pathlib import Path

import click

from rules_engine.cli.options import PathOrStdin, output_option, paths_argument
from rules_engine.cli.program import Command, fail_if, print_json


@click.command(cls=Command)
@paths_argument(PathOrStdin(exists=True, path_type=Path))
@output_option("text", "json", "sarif", "github")
def check(paths: tuple[Path, ...], output: str) -> None:
    """Report all problems in rule files.

    PATH is a file or a folder; - for standard input. Exits with 1 if there are errors; warnings do not count.
    """
    from rules_engine.authoring.check import NOTHING_CHECKED
    from rules_engine.authoring.check import check as check_rules
    from rules_engine.authoring.output import machine

    checked = check_rules(paths)
    match output:
        case "json":
            print_json(machine.check_json(checked))
        case "sarif":
            print_json(machine.check_sarif(checked))
        case "github":
            for line in machine.check_github(checked):
                click.echo(line)
        case _:
            from rules_engine.authoring.output.terminal import Screen

            Screen(sys.stdout).checked(checked)
    if output != "text" and not checked.files and not checked.errors:
        click.echo(f"gpu-rules: {NOTHING_CHECKED} in {' '.join(map(str, paths))}", err=True)
    fail_if(checked.errors > 0)
