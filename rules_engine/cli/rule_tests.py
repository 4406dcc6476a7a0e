"""`test`: results of RuleTests. The module is not named after its command, so that pytest does not collect it."""

import sys
from pathlib import Path

import click

from rules_engine.cli.options import output_option, paths_argument
from rules_engine.cli.program import Command, fail_if, print_json


@click.command(cls=Command)
@paths_argument(click.Path(exists=True, path_type=Path))
@click.option(
    "-k", "keyword", metavar="NAME", default="", help="Run only cases whose name, or whose test's name, contains NAME."
)
@output_option("text", "json")
def test(paths: tuple[Path, ...], keyword: str, output: str) -> None:
    """Run the RuleTests in files and folders.

    Each case is evaluated by both endpoints. Exits with 1 if a case fails or cannot be run, or if there are no cases.
    """
    from rules_engine.authoring.output import machine
    from rules_engine.authoring.rule_tests import run_tests

    run = run_tests(paths, keyword)
    if output == "json":
        print_json(machine.tests_json(run))
    else:
        from rules_engine.authoring.output.terminal import Screen

        Screen(sys.stdout).tests(run)
    if not run.results and not run.problems:
        places = " ".join(map(str, paths))
        missing = f"no case with {keyword!r} in its name" if run.deselected else "no RuleTest"
        click.echo(f"{missing} in {places}", err=True)
    fail_if(not run.succeeded)
