"""`sets`: the packaged rule sets."""

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from rules_engine.cli.options import (
    FOLDER,
    OFFER_KINDS,
    ClusterArgument,
    KnownName,
    catalogue_option,
    cluster_option,
    output_option,
    write_new_files,
)
from rules_engine.cli.program import Command, CommandGroup, InputProblems, Target, help_examples, print_json


class SetName(KnownName):
    """The name of a packaged rule set."""

    name, noun = "NAME", "set"

    def known(self) -> Mapping[str, None]:
        from rules_engine.rules.sources.packaged_sets import list_packaged_sets

        return dict.fromkeys(list_packaged_sets())


@click.group(
    cls=CommandGroup,
    short_help="List, suggest, show and copy the packaged rule sets.",
    epilog=help_examples(
        "gpu-rules sets list",
        "gpu-rules sets suggest --cluster kubeconfig",
        "gpu-rules sets copy mig-a100-80gb my-rules",
    ),
)
def sets() -> None:
    """List, suggest, show and copy the packaged sets: rules, such as a ladder for a type of card, and Diagnostics."""


@sets.command(
    "list",
    cls=Command,
    short_help="List the packaged sets with their rules and Diagnostics.",
    epilog=help_examples("gpu-rules sets list"),
)
@catalogue_option
def list_sets() -> None:
    """List the packaged sets with the description of each rule and Diagnostic."""
    from rules_engine.rules.sources.packaged_sets import list_packaged_sets

    for packaged_set in list_packaged_sets().values():
        click.echo(packaged_set.name)
        for rule in packaged_set.rules:
            click.echo(f"  {rule.id}  {rule.description}")


@sets.command(
    cls=Command,
    short_help="Print the files of a packaged set.",
    epilog=help_examples(
        "gpu-rules sets show gpu-allocation",
        "gpu-rules sets show mig-a100-80gb > mig-a100-80gb.yaml",
    ),
)
@click.argument("name", metavar="NAME", type=SetName())
@catalogue_option
def show(name: str) -> None:
    """Print the rules and then the RuleTests of a packaged set as one stream of YAML documents."""
    from rules_engine.rules.sources.packaged_sets import list_packaged_sets

    texts = list_packaged_sets()[name].texts()
    click.echo("---\n".join(f"# {file}\n{text}" for file, text in texts.items()), nl=False)


@sets.command(
    cls=Command,
    short_help="Copy the files of a packaged set.",
    epilog=help_examples("gpu-rules sets copy mig-a100-80gb my-rules"),
)
@click.argument("name", metavar="NAME", type=SetName())
@click.argument("folder", metavar="DIR", type=FOLDER)
@catalogue_option
def copy(name: str, folder: Path) -> None:
    """Copy the rules and RuleTests of a packaged set to the folder DIR; existing files are never overwritten."""
    from rules_engine.rules.sources.packaged_sets import list_packaged_sets

    write_new_files(folder, list_packaged_sets()[name].texts())


@sets.command(
    cls=Command,
    short_help="Suggest sets for the cards of a cluster.",
    epilog=help_examples(
        "gpu-rules sets suggest --cluster kubeconfig",
        "gpu-rules sets suggest --cluster cluster.yaml -o json",
    ),
)
@cluster_option(". Default: kubeconfig.", OFFER_KINDS, live=True)
@catalogue_option
@output_option("text", "json")
def suggest(cluster: ClusterArgument, output: str) -> None:
    """Suggest packaged sets for the cards of a cluster's nodes.

    A node's card is known by attributes of its devices, else by its labels, else by its MIG devices if only one card
    has them. Exits with 2 if the cluster has errors.
    """
    from rules_engine.report.text import Screen
    from rules_engine.report.values import Table
    from rules_engine.rules.sources.card_sets import suggest_sets

    problems = InputProblems("sets suggest", [Target(output, None)])
    reading = cluster.read()
    problems.add(reading.problems, reading.sources)
    if reading.cluster is None or reading.objects is None:
        problems.end()
    answer = suggest_sets(reading.cluster, reading.objects.of("ResourceSlice"), problems.items)
    if output == "json":
        print_json(answer)
        return
    rows = [
        (group.product or "unknown", str(len(group.nodes)), ", ".join(group.sets) or "none") for group in answer.cards
    ]
    screen = Screen(sys.stdout)
    screen.table(Table(heads=("cards", "nodes", "sets"), rows=rows, numbers=("nodes",)), 0, len(rows))
    for unknown in filter(None, (group.unknown for group in answer.cards)):
        screen.line(unknown)
    arguments = " ".join(f"set:{name}" for name in answer.sets)
    none = "no packaged set fits" if rows else "no card is known: no label names one, and no GPU is allocatable"
    screen.line(f"--rules {arguments}" if arguments else none)
