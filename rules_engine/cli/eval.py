"""`eval`: one CEL expression on the pods of a manifest."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rules_engine.cli.options import (
    ClusterArgument,
    cluster_option,
    manifests_option,
    request_namespace_option,
    sources_option,
)
from rules_engine.cli.program import UNUSABLE, Command, fail_if, help_examples

if TYPE_CHECKING:
    from rules_engine.rules.sources.rule_sources import RuleSource

_OF_A_RULE = re.compile(r"\b(?:variables|params)\b")


class _ExpressionParamType(click.ParamType[str]):
    """An expression. Bytes of the command line that are no UTF-8 are refused: no string of CEL has them."""

    name = "EXPR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if any("\ud800" <= character <= "\udfff" for character in str(value)):
            self.fail("the expression is not UTF-8", param, ctx)
        return str(value)


@click.command(
    name="eval",
    cls=Command,
    short_help="Evaluate a CEL expression on a pod.",
    epilog=help_examples(
        "gpu-rules eval 'object.spec.containers.size()' -f pod.yaml",
        "gpu-rules eval request -f pod.yaml -n ml",
        "kubectl get pod p -o json | gpu-rules eval object -f -",
    ),
)
@click.argument("expression", metavar="EXPR", type=_ExpressionParamType())
@manifests_option(required=True)
@cluster_option(". Default: two workers with four GPUs each.")
@click.option(
    "--rule", "rule_id", metavar="KIND/NAME", help="A rule whose variables and params the expression may use."
)
@sources_option("--rules", "Rules with that one")
@request_namespace_option
def evaluate(
    expression: str,
    manifests: tuple[Path, ...],
    cluster: ClusterArgument | None,
    rule_id: str | None,
    rules: "tuple[RuleSource, ...]",
    namespace: str,
) -> None:
    """Evaluate a CEL expression on a pod, and print its value and type.

    Exits with 1 if the expression has errors or fails, and with 2 if rules, cluster or manifests have errors.
    """
    if (rule_id is None) != (not rules):
        raise click.UsageError("--rule and --rules need each other")
    from rules_engine.cluster.read.clusters import read_cluster
    from rules_engine.cluster.read.manifest_stream import join_parts, stream_manifests
    from rules_engine.model.kubernetes.cluster import Cluster
    from rules_engine.model.problems.problem import did_you_mean
    from rules_engine.questions.explain.eval import EXPRESSION, Subject
    from rules_engine.questions.explain.explain import NamespaceError
    from rules_engine.report.text import Screen
    from rules_engine.rules.sources.rule_files import DEFAULT_CLUSTER, has_errors
    from rules_engine.rules.sources.rule_sources import load_sources

    files = load_sources(rules) if rule_id is not None else None
    reading = read_cluster([DEFAULT_CLUSTER]) if cluster is None else cluster.read(nodes=False)
    namespace = namespace or (cluster.namespace if cluster else "")
    manifest = join_parts(stream_manifests(manifests, files.rule_set.workload_kinds if files else ()))
    problems = (*(files.problems if files else ()), *reading.problems, *manifest.problems)
    sources = {**(files.loaded.sources if files else {}), **reading.sources, **manifest.sources}
    errors = Screen(sys.stderr)
    errors.problems(problems, sources)
    fail_if(has_errors(problems), UNUSABLE)
    rule = None
    if files is not None:
        by_id = {str(rule.id): rule for rule in files.loaded.rules}
        rule = by_id.get(str(rule_id))
        if rule is None:
            raise click.BadParameter(
                f"rule {rule_id!r} not found{did_you_mean(str(rule_id), by_id)}", param_hint="'--rule'"
            )
    try:
        subjects = [Subject(pod, reading.cluster or Cluster(), namespace=namespace, rule=rule) for pod in manifest.pods]
    except NamespaceError as error:
        raise click.UsageError(str(error)) from None
    failed = False
    for index, subject in enumerate(subjects):
        evaluated = subject.evaluate(expression)
        places = {**sources, EXPRESSION: evaluated.lines}
        if index == 0:
            errors.problems(evaluated.problems, places)
        if has_errors(evaluated.problems):
            failed = True
            if rule_id is None and _OF_A_RULE.search(expression):
                click.echo("variables and params are those of a rule: --rule KIND/NAME names it", err=True)
            break
        if len(subjects) > 1:
            click.echo(f"{subject.title}:")
        if evaluated.failure is None:
            click.echo(f"{evaluated.value} : {evaluated.type}")
        else:
            failed = True
            sys.stdout.flush()
            errors.problems((evaluated.failure,), places)
    fail_if(failed)
