"""`explain`: decisions for the pods of a manifest, with their reasons."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from rules_engine.cli.options import (
    PathOrStdin,
    cluster_option,
    manifest_option,
    more_rules_argument,
    output_option,
    request_namespace_option,
    rule_paths,
    rules_option,
)
from rules_engine.cli.program import PROBLEMS_FOUND, Command, examples, fail_if, json_text, print_json

if TYPE_CHECKING:
    from rules_engine.documents.manifest_stream import PodPart
    from rules_engine.explaining.explain import Explanation
    from rules_engine.loading import Manifest


@click.command(
    cls=Command,
    short_help="Show the admission decision for a pod.",
    epilog=examples(
        "gpu-rules explain -f pod.yaml",
        "gpu-rules explain -f pod.yaml --rules rules -n ml",
        "gpu-rules explain -f job.yaml --cluster cluster.yaml --all",
        "gpu-rules explain --from-log log.jsonl --pod ml/train",
        "kubectl get pod train -o json | gpu-rules explain -f -",
    ),
)
@manifest_option(required=False)
@rules_option
@more_rules_argument
@cluster_option(". Default: two workers with four GPUs each.")
@request_namespace_option
@click.option(
    "--operation",
    type=click.Choice(["CREATE", "UPDATE"]),
    default="CREATE",
    show_default=True,
    help="Operation of the request.",
)
@click.option("--dry-run", is_flag=True, help="Set dryRun in the request.")
@click.option("--all", "every", is_flag=True, help="Show each rule that was skipped, with its reason.")
@click.option(
    "--from-log",
    "log",
    metavar="FILE",
    type=PathOrStdin(exists=True, dir_okay=False, path_type=Path),
    help="Show decisions of a server's decision log instead, newest first; - for standard input.",
)
@click.option(
    "--pod",
    metavar="NAMESPACE/NAME",
    help="The pod of --from-log: its name, or its generateName, such as train-.",
)
@output_option("text", "json")
@click.pass_context
def explain(
    context: click.Context,
    manifest: Path | None,
    rules: tuple[Path, ...],
    more_rules: tuple[Path, ...],
    cluster: Path | None,
    namespace: str,
    operation: str,
    dry_run: bool,
    every: bool,
    log: Path | None,
    pod: str | None,
    output: str,
) -> None:
    """Show the admission decision for a pod, and the reasons.

    A pod of the cluster has been changed already: --from-log shows the decision that changed it.

    Exits with 1 if a pod is denied, or if rules, cluster or manifests have errors; with --from-log, if the log has no
    decision for the pod.
    """
    if log is not None or pod is not None:
        _explain_recorded(context, log, pod, every=every, output=output)
        return
    if manifest is None:
        raise click.UsageError("Missing option '-f' / '--filename'.")
    paths = rule_paths(rules, more_rules)
    from rules_engine.documents.manifest_stream import stream_pods
    from rules_engine.explaining import machine
    from rules_engine.explaining.explain import explain as explain_pod
    from rules_engine.explaining.explain import read_material
    from rules_engine.explaining.text import assumed, explained
    from rules_engine.report.text import Screen
    from rules_engine.sources.rule_files import DEFAULT_CLUSTER, DEFAULT_RULES, has_errors

    material = read_material(paths or (DEFAULT_RULES,), cluster or DEFAULT_CLUSTER)
    parts = stream_pods(manifest)
    first = next(parts)
    Screen(sys.stderr).problems((*material.problems, *first.problems), {**material.sources, **first.sources})
    fail_if(has_errors(material.problems))
    run = _Run(partial(explain_pod, material, namespace=namespace, operation=operation, dry_run=dry_run))
    made = run.explanations(first, parts)
    start = next(made, None)
    if start is None:
        raise SystemExit(PROBLEMS_FOUND)
    if output == "json":
        for text in machine.explain_json(material, chain((start,), made), json_text):
            click.echo(text, nl=False)
    else:
        screen = Screen(sys.stdout)
        screen.block(assumed(rules=not paths, cluster=cluster is None), 0)
        for index, explanation in enumerate(chain((start,), made)):
            if index:
                screen.line("")
            screen.blocks(explained(explanation, skipped=every))
    fail_if(run.failed)


class _Run:
    """Explanations of the pods of a file, one part after the other. `failed`: an error was found, or a denial."""

    def __init__(self, explain_pod: Callable[["Manifest"], "Explanation"]) -> None:
        self.failed = False
        self._explain_pod = explain_pod

    def explanations(self, first: "PodPart", parts: Iterator["PodPart"]) -> Iterator["Explanation"]:
        """Yield the explanations. The problems of the first part are already reported."""
        from rules_engine.explaining.explain import NamespaceError
        from rules_engine.report.text import Screen
        from rules_engine.sources.rule_files import has_errors

        screen = Screen(sys.stderr)
        for part in chain((first,), parts):
            if part is not first:
                screen.problems(part.problems, part.sources)
            self.failed = self.failed or has_errors(part.problems)
            try:
                explanations = [self._explain_pod(pod) for pod in part.pods]
            except NamespaceError as error:
                raise click.UsageError(str(error)) from None
            for explanation in explanations:
                self.failed = self.failed or not explanation.admission.allowed
                yield explanation


_WITH_LOG = frozenset({"log", "pod", "every", "output"})
"""Parameters of explain that --from-log does not exclude."""


def _explain_recorded(context: click.Context, log: Path | None, pod: str | None, *, every: bool, output: str) -> None:
    """Show the decisions of a decision log."""
    from rules_engine.explaining.recorded import PodName, read_log
    from rules_engine.explaining.text import recorded
    from rules_engine.model.problems.excerpt import visible
    from rules_engine.report.text import Screen

    if log is None or pod is None:
        raise click.UsageError("--from-log and --pod need each other")
    for parameter in context.command.params:
        name = str(parameter.name)
        if name not in _WITH_LOG and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = "--rules" if name == "more_rules" else parameter.opts[-1]
            raise click.UsageError(f"{option} cannot be used with --from-log: its decisions are made")
    namespace, _, name = pod.partition("/")
    if not namespace or not name:
        raise click.UsageError(f"--pod must be NAMESPACE/NAME, not {pod!r}")
    wanted = PodName(namespace, name)
    shown = visible(str(log))
    try:
        found = read_log(log, wanted)
    except OSError as error:
        raise click.ClickException(f"{shown} cannot be read: {error.strerror or error}") from None
    if found.unread and found.decisions:
        lines = "1 line is not a decision" if found.unread == 1 else f"{found.unread} lines are not decisions"
        click.echo(f"{shown}: warning: {lines}", err=True)
    if not found.records:
        among = f"among {found.decisions}" if found.decisions else "and none at all: is it a decision log?"
        raise click.ClickException(visible(f"{log}: no decision for pod {wanted} {among}"))
    if output == "json":
        print_json(found.to_json())
        return
    screen = Screen(sys.stdout)
    for index, record in enumerate(found.records):
        if index:
            screen.line("")
        screen.blocks(recorded(record, skipped=every))
    if found.found > len(found.records):
        click.echo(f"{shown}: the newest {len(found.records)} of {found.found} decisions are shown", err=True)
