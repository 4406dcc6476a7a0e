"""`preflight`: which pods of workloads would start now, and what would start the others."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

import rules_engine
from rules_engine.cli.options import (
    KUBECONFIG,
    POD_KINDS,
    ClusterArgument,
    catalogue_option,
    cluster_option,
    manifests_option,
    request_namespace_option,
    rules_option,
    targets_option,
)
from rules_engine.cli.program import UNKNOWN, Command, InputProblems, Target, fail_if, help_examples
from rules_engine.cli.progress import progress_bar

if TYPE_CHECKING:
    from rules_engine.rules.sources.rule_sources import RuleSource

AUTOSCALERS = ("NodePool", "ConfigMap.cluster-autoscaler-status")
"""The kinds that show what may add nodes."""


@click.command(
    cls=Command,
    short_help="Show whether a workload would start now, and what would start it.",
    epilog=help_examples(
        "gpu-rules preflight -f job.yaml --rules rules",
        "gpu-rules preflight -f job.yaml --cluster cluster.yaml",
        "gpu-rules preflight -f job.yaml --rules a --fail-on never",
    ),
)
@manifests_option(required=True)
@rules_option
@catalogue_option
@cluster_option(f". Default: {KUBECONFIG}.", (*POD_KINDS, *AUTOSCALERS), live=True, creates=True)
@request_namespace_option
@click.option(
    "--fail-on",
    type=click.Choice(["waits", "never"]),
    default="waits",
    show_default=True,
    help="Exit with 1 if a pod waits, or only if one can never start, or is denied or refused.",
)
@targets_option("text", "json", "html")
def preflight(
    manifests: tuple[Path, ...],
    rules: "tuple[RuleSource, ...]",
    cluster: ClusterArgument,
    namespace: str,
    fail_on: str,
    targets: tuple[Target, ...],
) -> None:
    """Show which pods of workloads would start now on a cluster as it is, and why others would not.

    The pods pass the rules, ResourceQuotas and a model of kube-scheduler; nothing is created. For workloads that do not
    start, changes are listed that would start them: each was tried.

    Exits with 1 if a pod would not start now, with 2 if rules, cluster or manifests have errors, and with 3 if that is
    not known: the number of pods, their scheduler, an object that they name, or what the API server adds.
    """
    from msgspec.structs import replace

    from rules_engine.cluster.read.manifest_stream import join_parts, stream_manifests
    from rules_engine.language.files import without_garbage_collection
    from rules_engine.model.problems.problem import InputError
    from rules_engine.questions.preflight.answer import with_unknown_pods
    from rules_engine.questions.preflight.report import preflight_report
    from rules_engine.questions.preflight.state import Verdict
    from rules_engine.rules.sources.rule_files import has_errors
    from rules_engine.rules.sources.rule_sources import read_sources

    problems = InputProblems("preflight", targets)
    files = read_sources(rules)
    with without_garbage_collection():
        part = join_parts(stream_manifests(manifests, files.rule_set.workload_kinds))
        reading = cluster.read(assumed=("ResourceQuota",), nodes=False)  # the report says if pods were not read
    seen = tuple(dict.fromkeys((*files.rule_problems, *part.problems, *reading.problems)))
    lines = {**files.loaded.sources, **part.sources, **reading.sources}
    problems.add(seen, lines)
    if reading.objects is None or has_errors(seen):
        problems.end()
    objects = reading.objects.with_objects(part.claims_beside(reading.objects, namespace or cluster.namespace))
    try:
        with progress_bar("count") as show, without_garbage_collection():
            answer = rules_engine.preflight(
                files.rule_set,
                part.pods,
                objects,
                name=reading.name,
                namespace=namespace or cluster.namespace,
                progress=lambda done, total: show("workloads", done, total),
            )
    except InputError as error:
        problems.add(error.problems, lines)
        problems.end()
    problems.add(answer.problems, lines)
    answer = replace(with_unknown_pods(answer, seen), rules=" ".join(map(str, rules)))
    problems.write(answer, preflight_report)
    passing = {Verdict.STARTS, Verdict.UNKNOWN, *([Verdict.WAITS] if fail_on == "never" else [])}
    fail_if(any(each.verdict not in passing for each in answer.workloads))
    fail_if(bool(problems.unknown) or any(each.unknown for each in answer.workloads), UNKNOWN)
