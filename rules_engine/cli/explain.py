"""`explain`: decisions for the pods of a manifest, with their reasons."""

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from rules_engine.cli.options import (
    NamespaceName,
    PathOrStdin,
    more_rules_argument,
    output_option,
    rule_paths,
    rules_option,
)
from rules_engine.cli.program import Command, examples, fail_if, print_json


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
@click.option(
    "-f",
    "--filename",
    "manifest",
    metavar="FILE",
    type=PathOrStdin(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Manifests of pods or workloads (Deployment, Job, ...); - for standard input.",
)
@rules_option
@more_rules_argument
@click.option(
    "--cluster",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A ClusterInventory, or the output of kubectl get nodes,pods,namespaces -A -o json. "
    "Default: two workers with four GPUs each.",
)
@click.option(
    "-n",
    "--namespace",
    type=NamespaceName(empty=True),
    default="",
    metavar="NAME",
    help="Namespace of the request. Default: the manifest's, or else default.",
)
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
    type=PathOrStdin(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Show decisions of a server's decision log instead, newest first; - for standard input.",
)
@click.option(
    "--pod",
    metavar="NAMESPACE/NAME",
    help="The pod of --from-log: its name, or its generateName.",
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

    Exits with 1 if a pod is denied, or if rules, cluster or manifests have errors; with --from-log, if the log has no
    decision for the pod.
    """
    if log is not None or pod is not None:
        _explain_recorded(context, log, pod, every=every, output=output)
        return
    if manifest is None:
        raise click.UsageError("Missing option '-f' / '--filename'.")
    paths = rule_paths(rules, more_rules)
    from rules_engine.authoring.explain import NamespaceError, read_material
    from rules_engine.authoring.explain import explain as explain_pod
    from rules_engine.authoring.output import machine
    from rules_engine.authoring.output.terminal import Screen
    from rules_engine.authoring.rule_files import DEFAULT_CLUSTER, DEFAULT_RULES, has_errors
    from rules_engine.documents import load_pods

    material = read_material(paths or (DEFAULT_RULES,), cluster or DEFAULT_CLUSTER)
    pods, pod_problems, pod_sources = load_pods(manifest)
    problems = (*material.problems, *pod_problems)
    Screen(sys.stderr).problems(problems, {**material.sources, **pod_sources})
    fail_if(has_errors(problems))
    try:
        explanations = tuple(
            explain_pod(material, pod, namespace=namespace, operation=operation, dry_run=dry_run) for pod in pods
        )
    except NamespaceError as error:
        raise click.UsageError(str(error)) from None
    if output == "json":
        print_json(machine.explain_json(material, explanations))
    else:
        screen = Screen(sys.stdout)
        screen.assumed(rules=not paths, cluster=cluster is None)
        for index, explanation in enumerate(explanations):
            if index:
                screen.gap()
            screen.explained(explanation, skipped=every)
    fail_if(not all(explanation.admission.allowed for explanation in explanations))


_WITH_LOG = frozenset({"log", "pod", "every", "output"})
"""Parameters of explain that --from-log does not exclude."""


def _explain_recorded(context: click.Context, log: Path | None, pod: str | None, *, every: bool, output: str) -> None:
    """Show the decisions of a decision log."""
    from rules_engine.authoring.output.terminal import Screen
    from rules_engine.authoring.recorded import PodName, read_log

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
    try:
        found = read_log(log, wanted)
    except OSError as error:
        raise click.ClickException(f"{log} cannot be read: {error.strerror or error}") from None
    if found.unread:
        lines = "1 line is no decision" if found.unread == 1 else f"{found.unread} lines are no decisions"
        click.echo(f"{log}: warning: {lines}", err=True)
    if not found.records:
        among = f"among {found.decisions}" if found.decisions else "and none at all: is it a decision log?"
        raise click.ClickException(f"{log}: no decision for pod {wanted} {among}")
    if output == "json":
        print_json(found.to_json())
        return
    screen = Screen(sys.stdout)
    for index, record in enumerate(found.records):
        if index:
            screen.gap()
        screen.recorded(record, skipped=every)
    if found.found > len(found.records):
        click.echo(f"{log}: the newest {len(found.records)} of {found.found} decisions are shown", err=True)
