"""`list`: rules, or what applies in a namespace. The module is not named after its command, a builtin of Python."""

import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import click

from rules_engine.cli.options import (
    NAMESPACE_NAME,
    ClusterArgument,
    PathOrStdin,
    RuleSourceType,
    cluster_option,
    output_option,
)
from rules_engine.cli.program import Command, InputProblems, Target, help_examples, print_json
from rules_engine.model.kubernetes.names import is_label_key, is_label_value

if TYPE_CHECKING:
    from rules_engine.rules.sources.rule_sources import RuleSource


class SourceOrStdin(RuleSourceType):
    """A source of rules, or `-` for standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "RuleSource":
        if value != "-":
            return super().convert(value, param, ctx)
        from rules_engine.rules.sources.rule_sources import PathSource

        return PathSource(PathOrStdin().convert(value, param, ctx))


class LabelsParamType(click.ParamType[Mapping[str, str]]):
    """Labels as kubectl writes them: KEY=VALUE, separated by commas. Empty: no labels."""

    name = "LABELS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, str]:
        labels: dict[str, str] = {}
        for text in filter(None, str(value).split(",")):
            key, sign, label = text.partition("=")
            if not (sign and is_label_key(key) and is_label_value(label)):
                self.fail(f"{text!r} is not a label: write KEY=VALUE, separated by commas", param, ctx)
            if labels.setdefault(key, label) != label:
                self.fail(f"the label {key} has two values", param, ctx)
        return labels


@click.command(
    "list",
    cls=Command,
    short_help="List rules with their digest, or what applies in a namespace.",
    epilog=help_examples(
        "gpu-rules list rules",
        "gpu-rules list -n ml rules",
        "gpu-rules list -n ml rules --cluster cluster.yaml",
        "gpu-rules list -n ml rules --labels team=ml -o json",
    ),
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=SourceOrStdin())
@click.option("-n", "--namespace", type=NAMESPACE_NAME, metavar="NAME", help="Show what applies in this namespace.")
@click.option(
    "--labels",
    type=LabelsParamType(),
    metavar="KEY=VALUE[,KEY=VALUE]",
    help="Labels of the namespace, instead of those in --cluster. Default without both: any labels.",
)
@click.option(
    "--pod-labels",
    type=LabelsParamType(),
    metavar="KEY=VALUE[,KEY=VALUE]",
    help="Labels of the pods. Default: any labels.",
)
@cluster_option(".", ("Node", "Namespace"), help_start="A cluster, for the labels of the namespace. ")
@output_option("text", "json")
def list_command(
    sources: "tuple[RuleSource, ...]",
    namespace: str | None,
    labels: Mapping[str, str] | None,
    pod_labels: Mapping[str, str] | None,
    cluster: ClusterArgument | None,
    output: str,
) -> None:
    """List rules and Diagnostics, with the digest that a server with these rules reports at /rules.

    SOURCE: a file, a folder, set:NAME, git:REF:PATH or configmap:NAMESPACE/NAME; - for standard input. Rules
    of a kind are in order of evaluation.

    With -n: the rules that can apply to pods of a namespace. Each value has the file and line where it is written, and
    the value that it overrides there.

    Exits with 2 if rules or cluster have errors, or there is neither a rule nor a Diagnostic.
    """
    from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
    from rules_engine.questions.explain.rule_list import list_rules, load_listed
    from rules_engine.questions.explain.text import print_rules
    from rules_engine.report.text import Screen

    if namespace is None:
        for option, value in (("--labels", labels), ("--pod-labels", pod_labels), ("--cluster", cluster)):
            if value is not None:
                raise click.UsageError(f"{option} requires --namespace")
    elif labels is not None and labels.get(NAMESPACE_NAME_LABEL, namespace) != namespace:
        raise click.UsageError(f"the label {NAMESPACE_NAME_LABEL} of the namespace {namespace} is its name")
    problems = InputProblems("list", [Target(output, None)])
    loaded, load_problems = load_listed(sources)
    problems.add(load_problems, loaded.sources)
    if cluster is not None and namespace is not None:
        reading = cluster.read(nodes=False)
        problems.add(reading.problems, reading.sources)
        if labels is None and reading.cluster is not None and not problems.failed:
            labels = reading.cluster.namespace_labels(namespace)
            _warn_if_unlisted(namespace, reading.cluster.namespaces, cluster.name)
    if problems.failed:
        problems.end()
    listing = list_rules(loaded, problems=problems.items, namespace=namespace, labels=labels, pod_labels=pod_labels)
    if output == "json":
        print_json(listing)
        return
    print_rules(listing, Screen(sys.stdout))


def _warn_if_unlisted(namespace: str, namespaces: Collection[str], cluster: str) -> None:
    from rules_engine.model.problems.problem import did_you_mean
    from rules_engine.model.problems.source import escape_controls

    if namespace not in namespaces:
        where = f"{escape_controls(cluster)}{did_you_mean(namespace, namespaces)}"
        click.echo(f"warning: namespace {namespace} is not in {where}: it has no labels there", err=True)
