"""The command `doctor`: its options, and one diagnosis. Everything else is imported when it runs."""

import gc
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

import rules_engine
from rules_engine.cli import OBJECT_NAME, Command, help_examples
from rules_engine.cli.options import (
    NAMESPACE_NAME,
    ClusterArgument,
    catalogue_option,
    cluster_option,
    given_options,
    sources_option,
    targets_option,
)
from rules_engine.cli.program import InputProblems, SingleOption, Target, end_unusable
from rules_engine.cli.progress import progress_bar
from rules_engine.server.commands.live import list_objects, open_connection, report_unread
from rules_engine.server.option_types import (
    Address,
    AddressType,
    DurationParamType,
    NamespacedName,
    Seconds,
    timeout_option,
)

if TYPE_CHECKING:
    from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
    from rules_engine.rules.sources.rule_sources import RuleSource

INTERVAL_SECONDS = 300.0
"""Default interval: a list of all pods is expensive for the API server of a large cluster."""

SINCE = "1h"
"""Default age: API servers keep Events for as long (--event-ttl)."""

SEVERITIES = ("Error", "Warning", "Info")


def _refuse_filename(_context: click.Context, _parameter: click.Parameter, value: Sequence[str]) -> None:
    if value:
        raise click.UsageError("-f is for manifests, which doctor does not read: write --cluster FILE")


@click.command(
    cls=Command,
    short_help="Explain why GPU pods wait and why nodes offer no GPUs.",
    context_settings={"allow_extra_args": True},  # refused with the option that takes files
    epilog=help_examples(
        "gpu-rules doctor",
        "gpu-rules doctor --pod ml/train-0 --rules rules",
        "gpu-rules doctor --cluster a.json --output html=a.html",
        "gpu-rules doctor --cluster must-gather --fail-on Warning",
        "gpu-rules doctor --watch --metrics-listen 127.0.0.1:9090",
    ),
)
@catalogue_option
@cluster_option(". Default: kubeconfig. Several files are one cluster.", multiple=True, live=True)
@click.option("-f", "--filename", multiple=True, hidden=True, expose_value=False, callback=_refuse_filename)
@click.option(
    "--pod",
    cls=SingleOption,
    type=NamespacedName("[NAMESPACE/]POD"),
    help="Only this pod, and what concerns it; -n can give its namespace.",
)
@click.option("--node", cls=SingleOption, type=OBJECT_NAME, help="Only this node and its pods.")
@click.option("-n", "--namespace", type=NAMESPACE_NAME, metavar="NAME", help="Only objects in this namespace.")
@sources_option(
    "--rules",
    "The active rules, for ladders that could help a pod, and Diagnostics beside the packaged ones, of which one of "
    "the same name is replaced",
    several=True,
)
@click.option(
    "--since",
    type=DurationParamType(),
    default=SINCE,
    show_default=True,
    help="Maximum age of events and errors that count, such as 30m, 6h or 2d.",
)
@targets_option("text", "json", "html")
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES, case_sensitive=False),
    metavar=f"[{'|'.join(SEVERITIES)}]",
    default="Error",
    show_default=True,
    help="Least severity of a finding for exit code 1.",
)
@timeout_option
@click.option("--watch", is_flag=True, help="Diagnose the live cluster again and again; needs --metrics-listen.")
@click.option(
    "--metrics-listen",
    type=AddressType(),
    help="With --watch: address of /metrics, /healthz and /readyz without TLS; port 0 takes a free one.",
)
@click.option(
    "--interval",
    type=Seconds(10, 86400),
    default=INTERVAL_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: time between two diagnoses.",
)
@click.option("--events", is_flag=True, help="With --watch: send an Event for each finding, at a limited rate.")
@click.option(
    "--log-format",
    type=click.Choice(["line", "json"]),
    default="line",
    show_default=True,
    help="With --watch: format of the log on standard error.",
)
@click.pass_context
def doctor(
    context: click.Context,
    clusters: tuple[ClusterArgument, ...],
    pod: tuple[str, str] | None,
    node: str | None,
    namespace: str | None,
    rules: "tuple[RuleSource, ...]",
    since: timedelta,
    targets: tuple[Target, ...],
    fail_on: str,
    timeout: float,
    watch: bool,
    metrics_listen: Address | None,
    interval: float,
    events: bool,
    log_format: str,
) -> None:
    """Explain why GPU pods wait and why nodes offer no GPUs, from what the Kubernetes API shows.

    Reads the live cluster of KUBECONFIG, or files of a cluster.

    Exits with 0 if there is no finding of --fail-on or worse and no GPU pod waits for a node, with 1 if there is one,
    and with 2 if rules or cluster cannot be read.
    """
    _check_usage(context, watch=watch)
    paths = [each.path for each in clusters if each.path is not None]
    if paths and len(paths) < len(clusters):
        raise click.UsageError("--cluster kubeconfig cannot be used with files: they are one cluster")
    if pod is not None:
        pod, namespace = _in_namespace(pod, namespace), None
        if node is not None:
            raise click.UsageError("--pod and --node exclude each other: a report on a pod has its node")
    from rules_engine.model.kubernetes.names import ObjectName as Name
    from rules_engine.model.rules.finding import FindingSeverity
    from rules_engine.questions.doctor.scope import Scope
    from rules_engine.server.commands.doctor.preparation import prepare_diagnosis

    scope = Scope(
        pod=None if pod is None else Name("Pod", pod[1], pod[0]),
        node=node or "",
        namespace=namespace or "",
        since_seconds=int(since.total_seconds()),
    )
    if watch:
        from rules_engine.server.signals import exit_on_signals

        exit_on_signals()
    prepared = prepare_diagnosis(rules)
    problems = InputProblems("doctor", targets)
    problems.add(prepared.problems, prepared.sources)
    if prepared.failed:
        problems.end()
    if metrics_listen is not None:
        from rules_engine.server.commands.doctor.watch import WatchError, WatchSettings
        from rules_engine.server.commands.doctor.watch import watch_cluster as run

        settings = WatchSettings(
            rules=rules,
            scope=scope,
            interval_seconds=interval,
            timeout_seconds=timeout,
            metrics_listen=metrics_listen,
            events=events,
            log_format=log_format,
        )
        try:
            run(settings, prepared, open_connection(context))
        except WatchError as error:
            _fail(str(error))
        return
    from rules_engine.model.kubernetes.cluster_objects import DIAGNOSED_RESOURCES
    from rules_engine.questions.doctor.report import diagnosis_report

    if paths:
        objects = _read_files(paths, problems)
    else:
        listed = list_objects(context, DIAGNOSED_RESOURCES, namespace=pod[0] if pod else "")
        report_unread(context, listed)
        objects = listed.objects
    gc.freeze()  # the objects stay: traversing them again and again takes the collector a quarter of the CPU time
    missing = scope.not_found_message(objects)
    if missing:
        _fail(missing)
    diagnosis = rules_engine.doctor(objects, prepared.diagnostics, prepared.rule_set, scope, prepared.rules)
    problems.write(diagnosis, diagnosis_report)
    if diagnosis.pending_pods or diagnosis.has(FindingSeverity(fail_on)):
        raise SystemExit(1)


WATCH_ONLY = ("metrics_listen", "interval", "events", "log_format")
ONCE_ONLY = ("clusters", "pod", "node", "targets", "fail_on")


def _check_usage(context: click.Context, *, watch: bool) -> None:
    """Raise UsageError for arguments, and for options that exclude each other."""
    if context.args:
        raise click.UsageError(f"unexpected argument {context.args[0]}: write --cluster for a cluster")
    for name, option in given_options(context).items():
        if name in (ONCE_ONLY if watch else WATCH_ONLY):
            raise click.UsageError(f"{option} cannot be used with --watch" if watch else f"{option} needs --watch")
    if watch and context.params["metrics_listen"] is None:
        raise click.UsageError("--watch needs --metrics-listen")


def _in_namespace(pod: tuple[str, str], namespace: str | None) -> tuple[str, str]:
    """Return a pod with its namespace, which may be given apart. Raises UsageError if there is none, or another."""
    if not pod[0] and namespace is None:
        raise click.UsageError(f"--pod {pod[1]} needs its namespace: write --pod NAMESPACE/{pod[1]}, or add -n")
    if pod[0] and namespace not in (None, pod[0]):
        raise click.UsageError(f"--pod {pod[0]}/{pod[1]} is not in the namespace of -n, {namespace}")
    return pod[0] or namespace or "", pod[1]


_fail = partial(end_unusable, "doctor")


def _read_files(paths: Sequence[Path], problems: InputProblems) -> "ClusterObjects":
    """Read the objects of files, and add their problems. Ends the command if there are errors."""
    from rules_engine.cluster.read.clusters import read_cluster

    with progress_bar("elapsed") as report:
        reading = read_cluster(paths, nodes=False, progress=partial(report, "reading"))
    problems.add(reading.problems, reading.sources)
    if reading.objects is None:
        problems.end()
    return reading.objects
