"""`list`: rules of files, with their digest. The module is not named after its command, a builtin of Python."""

import sys
from pathlib import Path

import click

from rules_engine.cli.options import PathOrStdin, output_option, paths_argument
from rules_engine.cli.program import UNUSABLE, Command, fail_if, help_examples, print_json


@click.command(
    "list",
    cls=Command,
    short_help="List the rules in files and folders, with their digest.",
    epilog=help_examples(
        "gpu-rules list rules",
        "gpu-rules list --output json rules",
    ),
)
@paths_argument(PathOrStdin(exists=True, path_type=Path))
@output_option("text", "json")
def list_command(paths: tuple[Path, ...], output: str) -> None:
    """List the rules in files and folders, with their digest.

    PATH is a file or a folder; - for standard input. Rules of a kind are in order of evaluation. The digest is the one
    that a server with these rules reports at /rules. Diagnostics are listed too. Exits with 2 if there are errors, or
    neither a rule nor a Diagnostic.
    """
    from rules_engine.report.text import Screen
    from rules_engine.sources.rule_list import list_rules, rule_list_json, rule_table

    listing = list_rules(paths)
    if output == "json":
        print_json(rule_list_json(listing))
    else:
        Screen(sys.stderr).problems(listing.problems, listing.sources)
    fail_if(listing.failed, UNUSABLE)
    if output == "text":
        table = rule_table(listing)
        screen = Screen(sys.stdout)
        screen.table(table, 0, len(table.rows))
        screen.line(f"digest {listing.digest}")
