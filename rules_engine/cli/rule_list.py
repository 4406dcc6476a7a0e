"""`list`: rules of files, with their digest. The module is not named after its command, a builtin of Python."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from rules_engine.cli.options import ClusterArgument, PathOrStdin, cluster_option, output_option, paths_argument
from rules_engine.cli.program import UNUSABLE, Command, fail_if, help_examples, print_json, show_differences


@click.command(
    "list",
    cls=Command,
    short_help="List the rules in files and folders, with their digest.",
    epilog=help_examples(
        "gpu-rules list rules",
        "gpu-rules list --output json rules",
        "gpu-rules list rules --cluster kubeconfig",
    ),
)
@paths_argument(PathOrStdin(exists=True, path_type=Path))
@cluster_option(". Shows which rules its API server evaluates itself, if it has their native policies.")
@output_option("text", "json")
def list_command(paths: tuple[Path, ...], cluster: ClusterArgument | None, output: str) -> None:
    """List the rules in files and folders, with their digest.

    PATH is a file or a folder; - for standard input. Rules of a kind are in order of evaluation. The digest is the one
    that a server with these rules reports at /rules. Diagnostics are listed too. Exits with 2 if there are errors, or
    neither a rule nor a Diagnostic.
    """
    from rules_engine.documents.load import load_cluster
    from rules_engine.report.text import Screen
    from rules_engine.sources.rule_list import list_rules, rule_list_json, rule_table
    from rules_engine.webhooks.installed import NativeMode, native_mode

    listing, native = list_rules(paths), NativeMode()
    if cluster is not None:
        inventory, problems, lines = load_cluster(cluster.file)
        listing = replace(listing, problems=(*listing.problems, *problems), sources={**listing.sources, **lines})
        if inventory is not None:
            native = native_mode(listing.rule_set, listing.digest, inventory.native_objects)
    show_differences(native.differences)
    if output == "json":
        print_json(rule_list_json(listing, native.rules))
    else:
        Screen(sys.stderr).problems(listing.problems, listing.sources)
    fail_if(listing.failed, UNUSABLE)
    if output == "text":
        table = rule_table(listing, native.rules)
        screen = Screen(sys.stdout)
        screen.table(table, 0, len(table.rows))
        screen.line(f"digest {listing.digest}")
