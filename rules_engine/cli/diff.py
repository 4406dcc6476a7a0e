"""The command `diff`: its options, and one run. Everything else is imported when it runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import rules_engine
from rules_engine.cli.options import (
    NAMESPACE_NAME,
    POD_KINDS,
    ClusterArgument,
    KnownName,
    cluster_option,
    log_option,
    manifests_option,
    sources_option,
    targets_option,
)
from rules_engine.cli.program import UNKNOWN, UNUSABLE, Command, InputProblems, Target, fail_if, help_examples
from rules_engine.cli.progress import progress_bar

if TYPE_CHECKING:
    from rules_engine.questions.diff.run import RulesSide
    from rules_engine.rules.sources.rule_files import RuleFiles
    from rules_engine.rules.sources.rule_sources import RuleSource

KINDS = (*POD_KINDS, "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController", "ControllerRevision")
"""The kinds of a live cluster that the command reads."""


class ChangeKindParamType(KnownName):
    """A kind of change."""

    name, noun = "KIND", "kind"

    def known(self) -> Mapping[str, None]:
        from rules_engine.questions.diff.values import Kind

        return dict.fromkeys(Kind)


@click.command(
    cls=Command,
    short_help="Show which workloads a change of rules changes.",
    # Refused in `diff`, with the options that take files.
    context_settings={"allow_extra_args": True},
    epilog=help_examples(
        "gpu-rules diff --old git:main:rules --new b -f job.yaml",
        "gpu-rules diff --old a --new b --cluster kubeconfig",
        "gpu-rules diff --old mig-h200 --new a --allow Rule -f .",
        "gpu-rules diff --old a --new b --output html=b.html -f .",
        "gpu-rules diff --old a --new b --from-log log.jsonl",
    ),
)
@manifests_option(required=False)
@log_option("The decision log of a server with --decision-log-requests: its pods are decided; - for standard input.")
@sources_option("--old", "Rules before the change", required=True)
@sources_option("--new", "Rules after the change", required=True)
@cluster_option(
    ". Repeatable: each has a column of its own. Its live pods are decided, unless -f or --from-log gives others. "
    "Default for those: two workers with four GPUs each.",
    KINDS,
    multiple=True,
    help_start="A cluster on which pods are decided. ",
    creates=True,
)
@click.option(
    "--allow",
    type=ChangeKindParamType(),
    multiple=True,
    help="A kind of change that does not make the exit code 1: Denied, Admitted, Rung, Resources, Annotations, "
    "Members, Warnings, Message, Rule or Unknown. Repeatable.",
)
@click.option(
    "-n",
    "--namespace",
    type=NAMESPACE_NAME,
    default="default",
    show_default=True,
    metavar="NAME",
    help="Namespace of manifests that name none.",
)
@targets_option("text", "json", "markdown", "html")
@click.pass_context
def diff(
    context: click.Context,
    manifests: tuple[Path, ...],
    log: Path | None,
    old: "tuple[RuleSource, ...]",
    new: "tuple[RuleSource, ...]",
    clusters: tuple[ClusterArgument, ...],
    allow: tuple[str, ...],
    namespace: str,
    targets: tuple[Target, ...],
) -> None:
    """Show which workloads a change of rules changes, and how.

    Decides the pods of manifests (-f), of a decision log (--from-log), or else of each cluster (--cluster). Live pods
    are reconstructed as their controllers submitted them.

    Exits with 0 if nothing changes, or only what --allow names, with 1 if something changes, with 2 if rules or input
    cannot be read, and with 3 if nothing changes, but a workload has pods whose number is not known.
    """
    if context.args:
        raise click.UsageError(
            f"unexpected argument {context.args[0]}: write -f for manifests, --cluster for a cluster"
        )
    if not (manifests or log or clusters):
        raise click.UsageError("Missing option '-f', '--cluster' or '--from-log': the pods to decide.")
    from rules_engine.questions.diff.answer import Verdict
    from rules_engine.questions.diff.report import difference_report
    from rules_engine.questions.diff.values import Kind
    from rules_engine.rules.sources.rule_sources import read_sides

    problems = InputProblems("diff", targets)
    before, after = read_sides(old, new)
    for option, names, side in (("--old", old, before), ("--new", new, after)):
        problems.add(side.problems, side.loaded.sources, f"{option} {_source_names(names)}:")
    if before.failed or after.failed:
        problems.end()
    # A cluster that is named twice has one column.
    readings = [each.read(whole=True, nodes=False) for each in {each.name: each for each in clusters}.values()]
    with progress_bar("remaining") as report:
        run = rules_engine.diff(
            _rule_set_side(old, before),
            _rule_set_side(new, after),
            manifests=manifests,
            log=log,
            clusters=readings,
            namespace=namespace,
            allowed=frozenset(map(Kind, allow)),
            report=report,
        )
    problems.add(run.problems, run.sources)
    if run.answer is None:
        problems.end()
    problems.write(run.answer, difference_report)
    fail_if(run.answer.verdict is Verdict.NOTHING_DECIDED, UNUSABLE)
    fail_if(run.answer.verdict is Verdict.CHANGED)
    fail_if(run.answer.verdict is Verdict.UNKNOWN, UNKNOWN)


def _source_names(sources: "Sequence[RuleSource]") -> str:
    from rules_engine.model.problems.source import escape_controls

    return escape_controls(" ".join(map(str, sources)))


def _rule_set_side(sources: "Sequence[RuleSource]", files: "RuleFiles") -> "RulesSide":
    from rules_engine.questions.diff.run import RulesSide

    return RulesSide(name=_source_names(sources), rule_set=files.rule_set, digest=files.loaded.digest)
