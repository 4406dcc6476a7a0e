"""`test`: results of RuleTests. The module is not named after its command, so that pytest does not collect it."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

import rules_engine
from rules_engine.cli.options import paths_argument, targets_option
from rules_engine.cli.program import UNUSABLE, Command, Target, fail_if, help_examples, open_output, print_json

if TYPE_CHECKING:
    from rules_engine.authoring.test.rule_tests import TestRun

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
    from rules_engine.authoring.test.coverage import coverage_total
    from rules_engine.authoring.test.file_watch import read_signatures, wait_for_change
    from rules_engine.rules.sources.rule_files import has_errors

    measured = coverage or minimum is not None
    outputs = [target.file for target in targets if target.file is not None]
    watched = paths
    while True:
        before = read_signatures(watched, written=outputs)
        run = rules_engine.run_tests(paths, keyword, coverage=measured)
        answer = run.answer
        enough = minimum is None or answer.coverage is None or answer.coverage.reaches(minimum)
        for target in targets:
            with open_output(target.file) as stream:
                _print_results(target.format, run, stream, quiet=quiet, minimum=minimum)
        if answer.coverage is not None and not enough and all(target.format != "text" for target in targets):
            click.echo(coverage_total(answer.coverage, minimum or 0), err=True)
        if not answer.cases and not answer.problems:
            places = " ".join(map(str, paths))
            missing = f"no case with {keyword!r} in its name" if answer.deselected else "no RuleTest"
            click.echo(f"{missing} in {places}", err=True)
        if not watch:
            break
        watched = (*paths, *run.references)
        # The signatures from before the run: a file may have changed since it was read.
        signatures = {**read_signatures(watched, written=outputs), **before}
        click.echo(f"watching {len(signatures)} files", err=True)
        wait_for_change(signatures, watched, time.sleep, outputs)
    fail_if(bool(answer.not_run) or has_errors(answer.problems) or not answer.cases, UNUSABLE)
    fail_if(not (answer.succeeded and enough))


def _print_results(form: str, run: "TestRun", stream: TextIO, *, quiet: bool, minimum: float | None) -> None:
    lines: Iterable[str] = ()
    match form:
        case "json":
            print_json(run.answer, stream)
        case "junit":
            from rules_engine.authoring.test.junit import junit_xml

            lines = [junit_xml(run.answer)]
        case "github":
            from rules_engine.authoring.test.github_annotations import tests_github

            lines = tests_github(run.answer)
        case _:
            from rules_engine.authoring.text import print_coverage, print_tests
            from rules_engine.report.text import Screen

            screen = Screen(stream)
            print_tests(run, screen, quiet=quiet)
            if run.answer.coverage is not None:
                print_coverage(run.answer.coverage, screen, quiet=quiet, minimum=minimum)
    for line in lines:
        click.echo(line, file=stream)
