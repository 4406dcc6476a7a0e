"""`check`: problems of rule files."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rules_engine
from rules_engine.cli.options import (
    OFFER_KINDS,
    ClusterArgument,
    KnownValue,
    PathOrStdin,
    catalogue_option,
    cluster_option,
    output_option,
    paths_argument,
)
from rules_engine.cli.program import UNUSABLE, Command, fail_if, help_examples, print_json

if TYPE_CHECKING:
    from rules_engine.authoring.check.problem_reference import ProblemEntry


class CodeName(KnownValue["ProblemEntry"]):
    """The code of a problem, as reports have it; brackets and letter case are ignored."""

    name = "CODE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "ProblemEntry":
        from rules_engine.authoring.check.problem_reference import DOCUMENT_URL, nearest_code, reference_entries

        entries = {str(code): entry for code, entry in reference_entries().items()}
        name = str(value).strip("[]").casefold()
        if name not in entries:
            self.fail(f"unknown code {value!r}{nearest_code(name, entries)}: {DOCUMENT_URL} has all codes", param, ctx)
        return entries[name]

    def known(self) -> Mapping[str, str]:
        from rules_engine.authoring.check.problem_reference import reference_entries

        return {str(code): entry.cause for code, entry in reference_entries().items()}


def _print_explanation(ctx: click.Context, _: click.Parameter, entry: "ProblemEntry | None") -> None:
    if entry is not None and not ctx.resilient_parsing:
        click.echo(entry.explanation())
        ctx.exit()


@click.command(
    cls=Command,
    epilog=help_examples(
        "gpu-rules check rules",
        "gpu-rules check - < ladder.yaml",
        "gpu-rules check --output sarif rules > rules.sarif",
    ),
)
@paths_argument(PathOrStdin(exists=True, path_type=Path))
@cluster_option(
    ".",
    (*OFFER_KINDS, "Namespace", "PriorityClass", "RuntimeClass", "ResourceQuota"),
    help_start="Report rules that can't work on this cluster, too. ",
)
@catalogue_option
@output_option("text", "json", "sarif", "github")
@click.option("--strict", is_flag=True, help="Report warnings as errors.")
@click.option(
    "--explain",
    type=CodeName(),
    is_eager=True,
    expose_value=False,
    callback=_print_explanation,
    help="Print cause, example and remedy of a problem's code, and exit. Needs no PATH.",
)
def check(paths: tuple[Path, ...], cluster: ClusterArgument | None, output: str, strict: bool) -> None:
    """Report all problems in rule files.

    PATH is a file or a folder; - for standard input. Exits with 1 if there are errors; warnings do not count
    without --strict. Exits with 2 if the cluster cannot be read.
    """
    from rules_engine.authoring.check.check import NOTHING_CHECKED
    from rules_engine.report.answer import NoAnswer

    reading = None if cluster is None else cluster.read()
    checked = rules_engine.check(paths, reading)
    if strict:
        checked = checked.strict()
    answer = checked.answer
    unread = reading is not None and reading.objects is None
    match output:
        case "json":
            print_json(NoAnswer(problems=answer.problems) if unread else answer)
        case "sarif":
            from rules_engine.authoring.check.sarif import check_sarif

            print_json(check_sarif(answer))
        case "github":
            from rules_engine.authoring.test.github_annotations import github_problem

            for problem in answer.problems:
                click.echo(github_problem(problem))
        case _:
            from rules_engine.authoring.text import check_summary
            from rules_engine.report.text import Screen

            screen = Screen(sys.stdout)
            screen.problems(answer.problems, checked.sources)
            screen.line(check_summary(answer))
    if output != "text" and not answer.files and not answer.errors:
        click.echo(f"gpu-rules: {NOTHING_CHECKED} in {' '.join(map(str, paths))}", err=True)
    fail_if(unread, UNUSABLE)
    fail_if(answer.errors > 0)
