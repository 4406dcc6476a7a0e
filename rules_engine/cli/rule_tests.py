"""`test`: results of RuleTests. The module is not named after its command, so that pytest does not collect it."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from rules_engine.cli.options import Target, paths_argument, targets_option
from rules_engine.cli.program import UNUSABLE, Command, fail_if, help_examples, json_text, open_output

if TYPE_CHECKING:
    from rules_engine.testing.rule_tests import TestRun

FORMATS = ("text", "json", "junit", "github")


@click.command(
    cls=Command,
    short_help="Run the RuleTests in files and folders.",
    epilog=help_examples(
        "gpu-rules test rules",
        "gpu-rules test rules -k card",
        "gpu-rules test rules --coverage --output junit=tests.xml",
    ),
)
@paths_argument(click.Path(exists=True, path_type=Path))
@click.option(
    "-k", "keyword", metavar="NAME", default="", help="Run only cases whose name, or whose test's name, contains NAME."
)
@click.option("--coverage", is_flag=True, help="Report what no case covers: rules, rungs, entries, conditions.")
@click.option(
    "--coverage-min",
    "minimum",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Report coverage, and exit with 1 if it is less.",
)
@targets_option(*FORMATS)
@click.option("-q", "--quiet", is_flag=True, help="Print failures only.")
@click.option("--watch", is_flag=True, help="Run again when a file changes, until Ctrl-C.")
def test(
    paths: tuple[Path, ...],
    keyword: str,
    coverage: bool,
    minimum: float | None,
    targets: tuple[Target, ...],
    quiet: bool,
    watch: bool,
) -> None:
    """Run the RuleTests in files and folders.

    Each case is evaluated by both endpoints. Exits with 1 if a case fails or coverage is below the minimum, and with 2
    if a file has errors or there are no cases.
    """
    from rules_engine.sources.file_watch import read_signatures, wait_for_change
    from rules_engine.sources.rule_files import has_errors
    from rules_engine.testing.coverage import coverage_table
    from rules_engine.testing.rule_tests import run_tests

    measured = coverage or minimum is not None
    outputs = [target.file for target in targets if target.file is not None]
    watched = paths
    while True:
        before = read_signatures(watched, written=outputs)
        run = run_tests(paths, keyword, coverage=measured)
        enough = minimum is None or run.coverage is None or run.coverage.reaches(minimum)
        shown = run.coverage if coverage or (minimum is not None and not (quiet and enough)) else None
        table = () if shown is None else tuple(coverage_table(shown, minimum or 0))
        for target in targets:
            _write_results(target, run, table, quiet=quiet)
        if not enough and all(target.format != "text" for target in targets):
            click.echo(table[-1], err=True)
        if not run.results and not run.problems:
            places = " ".join(map(str, paths))
            missing = f"no case with {keyword!r} in its name" if run.deselected else "no RuleTest"
            click.echo(f"{missing} in {places}", err=True)
        if not watch:
            break
        watched = (*paths, *run.references)
        # The signatures from before the run: a file may have changed since it was read.
        signatures = {**read_signatures(watched, written=outputs), **before}
        click.echo(f"watching {len(signatures)} files", err=True)
        wait_for_change(signatures, watched, time.sleep, outputs)
    fail_if(bool(run.not_run) or has_errors(run.problems) or not run.results, UNUSABLE)
    fail_if(not (run.succeeded and enough))


def _write_results(target: Target, run: "TestRun", table: Sequence[str], *, quiet: bool) -> None:
    """Write the results in a format. Raises FileError if the file cannot be written."""
    with open_output(target.file) as stream:
        _print_results(target.format, run, table, stream, quiet=quiet)


def _print_results(form: str, run: "TestRun", table: Sequence[str], stream: TextIO, *, quiet: bool) -> None:
    from rules_engine.explaining import machine

    lines: Iterable[str]
    match form:
        case "json":
            lines = [json_text(machine.tests_json(run), stream)]
        case "junit":
            from rules_engine.testing.junit import junit_xml

            lines = [junit_xml(run)]
        case "github":
            lines = machine.tests_github(run)
        case _:
            from rules_engine.explaining.text import print_tests
            from rules_engine.report.text import Screen

            print_tests(run, Screen(stream), quiet=quiet)
            lines = table
    for line in lines:
        click.echo(line, file=stream)
