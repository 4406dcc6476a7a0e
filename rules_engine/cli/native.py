"""`native`: policies with which the API server evaluates rules itself."""

from typing import TYPE_CHECKING

import click

from rules_engine.cli.options import (
    OBJECT_NAME,
    ClusterArgument,
    cluster_option,
    report_problems,
    required_rules_option,
    server_namespace_option,
)
from rules_engine.cli.program import Command, help_examples, print_objects
from rules_engine.exports.settings import DEFAULT_SETTINGS, Settings

if TYPE_CHECKING:
    from rules_engine.rules.sources.rule_sources import RuleSource

LEAST_VERSION = 1, 36
"""The first Kubernetes with MutatingAdmissionPolicy in admissionregistration.k8s.io/v1."""


@click.command(
    cls=Command,
    short_help="Print policies with which the API server evaluates rules itself.",
    epilog=help_examples(
        "gpu-rules native --rules rules",
        "gpu-rules native --rules rules --cluster kubeconfig",
        "gpu-rules native --rules a --cluster cluster.yaml -o json",
    ),
)
@required_rules_option
@cluster_option(". Prints what its nodes offer, too.")
@click.option(
    "--name",
    type=OBJECT_NAME,
    default=DEFAULT_SETTINGS.name,
    show_default=True,
    help="Name of the mutating policy and of the offers; names of validating policies begin with it.",
)
@server_namespace_option
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def native(
    rules: "tuple[RuleSource, ...]", cluster: ClusterArgument | None, name: str, namespace: str, output: str
) -> None:
    """Print policies, bindings and the definition of their parameter for the rules that the API server can evaluate.

    Each rule that stays with the webhook is listed on standard error, with the reason. Needs Kubernetes 1.36.

    Exits with 2 if rules or cluster have errors.
    """
    from rules_engine.exports.offers import build_offers
    from rules_engine.exports.policies import NativeObjects
    from rules_engine.model.json.lenient import as_mapping
    from rules_engine.model.kubernetes.cluster import Cluster
    from rules_engine.rules.native.policy import translate_rules
    from rules_engine.rules.sources.rule_sources import read_sources

    files = read_sources(rules)
    unusable = files.failed or not files.loaded.rules
    report_problems("native", output, files.problems, files.loaded.sources, unusable=unusable)
    translated = translate_rules(files.rule_set)
    objects = NativeObjects(translated, files.loaded.digest, Settings(name=name, namespace=namespace))
    documents = [*objects.policies()]
    version = None if cluster is None else cluster.version
    if version is not None and version < LEAST_VERSION:
        text = ".".join(map(str, version))
        click.echo(f"warning: the cluster has Kubernetes {text}, and these policies need 1.36", err=True)
    if cluster is not None:
        reading = cluster.read()
        report_problems("native", output, reading.problems, reading.sources, unusable=reading.cluster is None)
        spec = build_offers(translated, reading.cluster or Cluster())
        for rule, reason in as_mapping(spec.get("omitted")).items():
            click.echo(f"warning: {rule} has no offers: {reason}", err=True)
        if objects.reads_offers:
            documents.append(objects.offers(spec))
    if not translated.exported:
        click.echo("warning: no rule is exported", err=True)
    for each in translated.staying:
        click.echo(f"{each.location}: {each.rule.id} stays with the webhook: {each.reason}", err=True)
    print_objects(documents, output)
