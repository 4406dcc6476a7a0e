"""`explain`: decisions for the pods of a manifest, with their reasons."""

import sys
from pathlib import Path

import click

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
        "kubectl get pod train -o json | gpu-rules explain -f -",
    ),
)
@click.option(
    "-f",
    "--filename",
    "manifest",
    required=True,
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
@output_option("text", "json")
def explain(
    manifest: Path,
    rules: tuple[Path, ...],
    more_rules: tuple[Path, ...],
    cluster: Path | None,
    namespace: str,
    operation: str,
    dry_run: bool,
    every: bool,
    output: str,
) -> None:
    """Show the admission decision for a pod, and the reasons.

    Exits with 1 if a pod is denied, or if rules, cluster or manifests have errors.
    """
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
