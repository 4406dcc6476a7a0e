"""`sets`: the packaged rule sets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rules_engine.cli.options import FOLDER, KnownValue, write_new_files
from rules_engine.cli.program import Command, Group, help_examples

USED = {"default": "used without --rules", "diagnostics": "used by doctor"}
"""Sets that commands use by themselves, and when."""


class SetName(KnownValue[str]):
    """The name of a packaged rule set."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from rules_engine.model.problems.problem import did_you_mean
        from rules_engine.sources.packaged_sets import list_packaged_sets

        packaged = list_packaged_sets()
        if value not in packaged:
            near = did_you_mean(str(value), packaged)
            self.fail(f"unknown set {value!r}{near}: must be one of {', '.join(packaged)}", param, ctx)
        return str(value)

    def known(self) -> Mapping[str, None]:
        from rules_engine.sources.packaged_sets import list_packaged_sets

        return dict.fromkeys(list_packaged_sets())


@click.group(
    cls=Group,
    short_help="List, show and copy the packaged rule sets.",
    epilog=help_examples(
        "gpu-rules sets list",
        "gpu-rules sets copy mig-80gb my-rules",
    ),
)
def sets() -> None:
    """List, show and copy the packaged sets: rules, such as a ladder for a type of card, and Diagnostics."""


@sets.command(
    "list",
    cls=Command,
    short_help="List the packaged sets with their rules and Diagnostics.",
    epilog=help_examples("gpu-rules sets list"),
)
def list_sets() -> None:
    """List the packaged sets with the description of each rule and Diagnostic."""
    from rules_engine.sources.packaged_sets import list_packaged_sets

    for packaged_set in list_packaged_sets().values():
        click.echo("  ".join(filter(None, (packaged_set.name, USED.get(packaged_set.name)))))
        for rule in packaged_set.rules:
            click.echo(f"  {rule.id}  {rule.description}")


@sets.command(
    cls=Command,
    short_help="Print the files of a packaged set.",
    epilog=help_examples(
        "gpu-rules sets show default",
        "gpu-rules sets show mig-80gb > mig-80gb.yaml",
    ),
)
@click.argument("name", metavar="NAME", type=SetName())
def show(name: str) -> None:
    """Print the rules and then the RuleTests of a packaged set as one stream of YAML documents."""
    from rules_engine.sources.packaged_sets import list_packaged_sets

    texts = list_packaged_sets()[name].texts()
    click.echo("---\n".join(f"# {file}\n{text}" for file, text in texts.items()), nl=False)


@sets.command(
    cls=Command,
    short_help="Copy the files of a packaged set.",
    epilog=help_examples("gpu-rules sets copy mig-80gb my-rules"),
)
@click.argument("name", metavar="NAME", type=SetName())
@click.argument("folder", metavar="DIR", type=FOLDER)
def copy(name: str, folder: Path) -> None:
    """Copy the rules and RuleTests of a packaged set to the folder DIR; existing files are never overwritten."""
    from rules_engine.sources.packaged_sets import list_packaged_sets

    write_new_files(folder, list_packaged_sets()[name].texts())
