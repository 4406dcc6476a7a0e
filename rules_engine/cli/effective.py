"""`effective`: the rules that can apply in a namespace, with the place of each value."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from rules_engine.cli.options import ClusterArgument, NamespaceName, cluster_option, output_option, rules_option
from rules_engine.cli.program import UNUSABLE, Command, fail_if, help_examples, print_json
from rules_engine.model.kubernetes.names import is_label_key, is_label_value

if TYPE_CHECKING:
    from rules_engine.sources.rule_sources import RuleSource


class Labels(click.ParamType[Mapping[str, str]]):
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
    cls=Command,
    short_help="Show what applies in a namespace.",
    epilog=help_examples(
        "gpu-rules effective -n ml",
        "gpu-rules effective -n ml --cluster cluster.yaml",
        "gpu-rules effective -n ml --labels team=ml --output json",
        "gpu-rules effective -n ml --rules rules --pod-labels a=b",
    ),
)
@click.option("-n", "--namespace", required=True, type=NamespaceName(), metavar="NAME", help="The namespace.")
@rules_option
@click.option(
    "--labels",
    type=Labels(),
    metavar="KEY=VALUE,...",
    help="Labels of the namespace, instead of those in --cluster. Default without both: any labels.",
)
@click.option("--pod-labels", type=Labels(), metavar="KEY=VALUE,...", help="Labels of the pods. Default: any labels.")
@cluster_option(".", ("Node", "Namespace"), help_start="A cluster, for the labels of the namespace. ")
@output_option("text", "json")
def effective(
    namespace: str,
    rules: "tuple[RuleSource, ...]",
    labels: Mapping[str, str] | None,
    pod_labels: Mapping[str, str] | None,
    cluster: ClusterArgument | None,
    output: str,
) -> None:
    """Show the rules that can apply to pods of a namespace, in the order of evaluation.

    Each value has the file and line where it is written, and the value that it overrides there.

    Exits with 2 if rules or cluster have errors.
    """
    from rules_engine.explaining.effective import effective_rules as view
    from rules_engine.explaining.text import default_inputs, effective_blocks
    from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
    from rules_engine.model.problems.excerpt import escape_controls
    from rules_engine.model.problems.problem import did_you_mean
    from rules_engine.report.documents import problem_members
    from rules_engine.report.text import Screen
    from rules_engine.sources.rule_files import has_errors
    from rules_engine.sources.rule_sources import DEFAULT_SOURCES, read_sources

    if labels is not None and labels.get(NAMESPACE_NAME_LABEL, namespace) != namespace:
        raise click.UsageError(f"the label {NAMESPACE_NAME_LABEL} of the namespace {namespace} is its name")
    files = read_sources(rules or DEFAULT_SOURCES)
    problems, sources = files.problems, files.loaded.sources
    unlisted, meant = False, ""
    if cluster is not None:
        reading = cluster.read()
        problems, sources, inventory = (*problems, *reading.problems), {**sources, **reading.sources}, reading.cluster
        if inventory is not None and labels is None:
            labels = inventory.namespace_labels(namespace)
            unlisted = namespace not in inventory.namespaces
            meant = did_you_mean(namespace, inventory.namespaces) if unlisted else ""
    failed = has_errors(problems)
    shown = view(() if failed else files.loaded.rules, namespace, labels=labels, pod_labels=pod_labels)
    if cluster is not None and unlisted and not failed:
        name = escape_controls(cluster.name)
        click.echo(f"warning: namespace {namespace} is not in {name}{meant}: it has no labels there", err=True)
    if output == "json":
        print_json({**shown.to_json(), "problems": [*map(problem_members, problems)]})
    else:
        Screen(sys.stderr).problems(problems, sources)
    fail_if(failed, UNUSABLE)
    if output == "text":
        Screen(sys.stdout).blocks((default_inputs(rules=not rules), *effective_blocks(shown)))
