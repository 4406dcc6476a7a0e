"""`explain`: decisions for the pods of a manifest, with their reasons."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rules_engine
from rules_engine.cli.options import (
    POD_KINDS,
    ClusterArgument,
    cluster_option,
    given_options,
    log_option,
    manifests_option,
    output_option,
    request_namespace_option,
    rules_option,
)
from rules_engine.cli.program import (
    UNKNOWN,
    UNUSABLE,
    Command,
    InputProblems,
    Target,
    end_without_answer,
    fail_if,
    help_examples,
    print_json,
)

if TYPE_CHECKING:
    from rules_engine.questions.explain.explain import ExplainedPod
    from rules_engine.rules.sources.rule_sources import RuleSource


class FieldPathParamType(click.ParamType[str]):
    """A kind, or a field of one, as kubectl explain takes it."""

    name = "KIND[.FIELD...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from rules_engine.questions.explain.field_documentation import UnknownFieldError, field_documentation

        if Path(value).exists():
            self.fail(f"{value!r} is a file: write -f or --rules before it", param, ctx)
        try:
            return field_documentation(str(value))
        except UnknownFieldError as error:
            self.fail(str(error), param, ctx)


@click.command(
    cls=Command,
    short_help="Show the admission decision for a pod.",
    epilog=help_examples(
        "gpu-rules explain -f pod.yaml --rules rules",
        "gpu-rules explain -f job.yaml --rules set:gpu-shared -n ml",
        "gpu-rules explain -f job.yaml --rules rules --all",
        "gpu-rules explain --from-log log.jsonl --pod ml/train",
        "gpu-rules explain -f a.yaml --rules a --cluster kubeconfig",
        "kubectl get po p -oyaml | gpu-rules explain -f - --rules a",
        "gpu-rules explain FallbackLadder.spec.rungs",
    ),
)
@click.argument("field", required=False, metavar="[KIND[.FIELD...]]", type=FieldPathParamType())
@manifests_option(required=False)
@rules_option
@cluster_option(". Default: two workers with four GPUs each.", POD_KINDS, creates=True)
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
@log_option("Show decisions of a server's decision log instead, newest first; - for standard input.")
@click.option(
    "--pod", metavar="NAMESPACE/NAME", help="The pod of --from-log: its name, or its generateName, such as train-."
)
@output_option("text", "json")
@click.pass_context
def explain(
    context: click.Context,
    field: str | None,
    manifests: tuple[Path, ...],
    rules: "tuple[RuleSource, ...]",
    cluster: ClusterArgument | None,
    namespace: str,
    operation: str,
    dry_run: bool,
    every: bool,
    log: Path | None,
    pod: str | None,
    output: str,
) -> None:
    """Show the admission decision for a pod, and the reasons; or the documentation of a field of rules.

    A pod of the cluster has been changed already: --from-log shows the decision that changed it.

    Exits with 1 if a pod is denied or refused, with 2 if rules, cluster or manifests have errors, or the log has no
    decision for the pod, and with 3 if a rule reads what gpu-rules capture removed or could not list, or a workload
    has pods whose number is not known.
    """
    if field is not None:
        _check_only(context, frozenset({"field"}), "the documentation of a field")
        click.echo(field)
        return
    if log is not None or pod is not None:
        _explain_recorded(context, log, pod, every=every, output=output)
        return
    if not manifests:
        raise click.UsageError("Missing option '-f' / '--filename'.")
    from rules_engine.cluster.read.clusters import read_cluster
    from rules_engine.cluster.read.manifest_stream import stream_manifests
    from rules_engine.questions.explain.explain import NamespaceError, Verdict, join_pods
    from rules_engine.questions.explain.text import default_inputs, explanation_blocks
    from rules_engine.report.text import Screen
    from rules_engine.report.values import Lines, Span, Tone
    from rules_engine.rules.sources.rule_files import DEFAULT_CLUSTER
    from rules_engine.rules.sources.rule_sources import read_sources

    reading = read_cluster([DEFAULT_CLUSTER]) if cluster is None else cluster.read(nodes=False)
    namespace = namespace or (cluster.namespace if cluster else "")
    files = read_sources(rules)
    problems = InputProblems("explain", [Target(output, None)])
    problems.add((*files.problems, *reading.problems), {**files.loaded.sources, **reading.sources})
    if reading.objects is None or files.failed:
        problems.end()
    screen = Screen(sys.stdout)
    pods: list[ExplainedPod] = []  # those of text are printed one by one, of which there may be many thousands
    verdicts: set[Verdict] = set()
    for part in stream_manifests(manifests, files.rule_set.workload_kinds):
        problems.add(part.problems, part.sources)
        for pod_manifest in part.pods:
            try:
                explanation = rules_engine.explain(
                    files.rule_set,
                    pod_manifest,
                    reading.objects,
                    namespace=namespace,
                    operation=operation,
                    dry_run=dry_run,
                )
            except NamespaceError as error:
                raise click.UsageError(str(error)) from None
            if output == "json":
                pods.append(explanation.answer)
            else:
                if verdicts:
                    screen.line("")
                else:
                    screen.block(default_inputs(rules=not rules, cluster=cluster is None), 0)
                screen.blocks(explanation_blocks(explanation, skipped=every))
            verdicts.add(explanation.answer.verdict)
    if problems.failed and not pods:
        problems.end()
    if output == "json":
        name = DEFAULT_CLUSTER.stem if cluster is None else cluster.name
        print_json(join_pods(rules, name, pods, problems.items))
    else:
        screen.blocks(Lines(lines=("", Span(each, Tone.WARNING))) for each in problems.notices)
    fail_if(problems.failed, UNUSABLE)
    fail_if(not verdicts.isdisjoint({Verdict.DENIED, Verdict.REFUSED}))
    fail_if(bool(problems.unknown) or Verdict.UNKNOWN in verdicts, UNKNOWN)


def _check_only(context: click.Context, allowed: frozenset[str], reason: str) -> None:
    """Raise UsageError, with the reason, for an option whose parameter is not among those that are allowed."""
    for name, option in given_options(context).items():
        if name not in allowed:
            raise click.UsageError(f"{option} cannot be used with {reason}")


def _explain_recorded(context: click.Context, log: Path | None, pod: str | None, *, every: bool, output: str) -> None:
    from rules_engine.model.problems.source import escape_controls
    from rules_engine.questions.explain.recorded import PodName, read_log
    from rules_engine.questions.explain.text import decision_blocks
    from rules_engine.report.text import Screen

    if log is None or pod is None:
        missing, present = ("--from-log", "--pod") if log is None else ("--pod", "--from-log")
        raise click.UsageError(f"{present} requires {missing}")
    _check_only(context, frozenset({"log", "pod", "every", "output"}), "--from-log: its decisions are made")
    namespace, _, name = pod.partition("/")
    if not namespace or not name:
        raise click.UsageError(f"--pod must be NAMESPACE/NAME, not {pod!r}")
    wanted = PodName(namespace, name)
    shown = escape_controls(str(log))
    problems = InputProblems("explain", [Target(output, None)])
    logged = read_log(log, wanted)
    problems.add(logged.problems, {})
    if problems.failed:
        problems.end()
    if not logged.decisions:
        message = escape_controls(f"{log}: no decision for pod {wanted} among {logged.logged}")
        end_without_answer(message, str(log), problems.items)
    if output == "json":
        print_json(logged)
        return
    screen = Screen(sys.stdout)
    for index, line in enumerate(logged.decisions):
        if index:
            screen.line("")
        screen.blocks(decision_blocks(line, skipped=every))
    if logged.found > len(logged.decisions):
        click.echo(f"{shown}: the newest {len(logged.decisions)} of {logged.found} decisions are shown", err=True)
