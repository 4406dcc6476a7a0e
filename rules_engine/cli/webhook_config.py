"""`webhook-config`: webhook configurations that follow from rules."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rules_engine.cli.options import (
    LAST_PORT,
    NAMESPACE_NAME,
    OBJECT_NAME,
    check_live_options,
    given_options,
    live_options,
    report_problems,
    required_rules_option,
    server_namespace_option,
)
from rules_engine.cli.program import Command, help_examples, print_objects
from rules_engine.exports.settings import DEFAULT_SETTINGS, FAIL, IGNORE, Service, Settings
from rules_engine.model.kubernetes.names import LABEL

if TYPE_CHECKING:
    from rules_engine.rules.sources.rule_sources import RuleSource

DEFAULT_SERVICE = Service()
FAILURE_POLICY = click.Choice([IGNORE, FAIL])


class ServiceAddress(click.ParamType[Service]):
    """`NAME/NAMESPACE` or `NAME/NAMESPACE/PORT`."""

    name = "NAME/NAMESPACE[/PORT]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Service:
        address = re.fullmatch(f"({LABEL})/({LABEL})(?:/([0-9]{{1,5}}))?", str(value))
        port = int(address[3] or DEFAULT_SERVICE.port) if address else 0
        if address is None or not 0 < port <= LAST_PORT:
            self.fail(f"{value!r} is not NAME/NAMESPACE or NAME/NAMESPACE/PORT", param, ctx)
        return Service(address[1], address[2], port)


@click.command(
    "webhook-config",
    cls=Command,
    short_help="Print the webhook configurations for rules.",
    epilog=help_examples(
        "gpu-rules webhook-config --rules a -o helm-values > a.yaml",
        "gpu-rules webhook-config --rules a --failure-policy Fail",
        "gpu-rules webhook-config --rules a --url https://192.0.2.1",
    ),
)
@required_rules_option
@live_options
@server_namespace_option
@click.option(
    "--name",
    type=OBJECT_NAME,
    default=DEFAULT_SETTINGS.name,
    show_default=True,
    help="Name of both webhook configurations.",
)
@click.option(
    "--service",
    type=ServiceAddress(),
    help="The Service in front of the server. "
    f"Default: {DEFAULT_SERVICE.name} in the server's namespace, port {DEFAULT_SERVICE.port}.",
)
@click.option("--url", metavar="URL", help="URL of a server without a Service: https://HOST:PORT.")
@click.option(
    "--ca-bundle",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="CA certificates of the server, in PEM. Default: none; cert-manager or the server adds them.",
)
@click.option(
    "--failure-policy",
    type=FAILURE_POLICY,
    show_default=f"{IGNORE}; with --output helm-values, the chart's",
    help="Effect when the server does not answer: Ignore admits the pod, Fail denies it. "
    "At /mutate, pods that request no GPUs and no resource of a rule are always admitted.",
)
@click.option(
    "--mutating-failure-policy", type=FAILURE_POLICY, help="Failure policy of /mutate; overrides --failure-policy."
)
@click.option(
    "--validating-failure-policy", type=FAILURE_POLICY, help="Failure policy of /validate; overrides --failure-policy."
)
@click.option(
    "--mode",
    type=click.Choice(["Enforce", "Audit"]),
    default="Enforce",
    show_default=True,
    help="Mode of the server. In Audit, failure policies are Ignore, and /validate gets the pods of /mutate, too.",
)
@click.option(
    "--namespaces",
    type=NAMESPACE_NAME,
    multiple=True,
    metavar="NAME...",
    help="The server's --namespaces: only their pods are sent. Default: all.",
)
@click.option(
    "--timeout-seconds",
    type=click.IntRange(1, 30),
    default=DEFAULT_SETTINGS.timeout_seconds,
    show_default=True,
    metavar="SECONDS",
    help="Timeout of the API server's call.",
)
@click.option(
    "--native",
    is_flag=True,
    help="Leave out the rules that the API server evaluates itself, by the output of `gpu-rules native`.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "helm-values"]),
    default="yaml",
    show_default=True,
    help="Output format; helm-values: chart values with the rules and all that is derived from them.",
)
def webhook_config(
    rules: "tuple[RuleSource, ...]",
    namespace: str,
    name: str,
    service: Service | None,
    url: str | None,
    ca_bundle: Path | None,
    failure_policy: str | None,
    mutating_failure_policy: str | None,
    validating_failure_policy: str | None,
    mode: str,
    namespaces: tuple[str, ...],
    timeout_seconds: int,
    native: bool,
    output: str,
) -> None:
    """Print webhook configurations that make the API server send the pods to which a rule may apply, and no others.

    Their matchConditions are derived from the rules: print and apply them again when rules change.
    """
    check_live_options(click.get_current_context(), "rules of configmap:NAMESPACE/NAME")
    if url is not None and service is not None:
        raise click.UsageError("--url and --service cannot be used together")
    audit = mode == "Audit"
    if audit and FAIL in (failure_policy, mutating_failure_policy, validating_failure_policy):
        raise click.UsageError("with --mode Audit, every failure policy is Ignore")
    if native and (audit or namespaces):
        raise click.UsageError("--native, whose policies enforce everywhere: not with --mode Audit or --namespaces")
    if url is not None and not url.startswith("https://"):
        raise click.UsageError(f"--url {url}: must begin with https://")
    from rules_engine.exports import configuration as webhooks
    from rules_engine.language.yaml.text import dump_yaml
    from rules_engine.model.problems.problem import Problems, sort_problems
    from rules_engine.model.rules.admission import Endpoint
    from rules_engine.rules.native.policy import translate_rules
    from rules_engine.rules.sources.packaged_sets import list_packaged_sets
    from rules_engine.rules.sources.rule_sources import PackagedSource, read_sources

    files = read_sources(rules)
    rule_set = translate_rules(files.rule_set).remaining(files.rule_set) if native else files.rule_set
    warnings = () if files.failed else tuple(webhooks.find_warnings(rule_set))
    problems = sort_problems((*files.problems, *warnings), files.loaded.files)
    unusable = files.failed or not files.loaded.rules
    report_problems("webhook-config", output, problems, files.loaded.sources, unusable=unusable)
    by_endpoint = (mutating_failure_policy or failure_policy, validating_failure_policy or failure_policy)
    policies = {endpoint: policy for endpoint, policy in zip(Endpoint, by_endpoint, strict=True) if policy}
    unenforced = webhooks.ignore_policy_warnings(rule_set, policies, as_values=output == "helm-values")
    for warning in (*(() if audit else unenforced), *webhooks.fail_policy_warnings(rule_set, policies)):
        click.echo(f"warning: {warning}", err=True)
    if output == "helm-values":
        without_effect = {"namespace", "name", "service", "url", "ca_bundle", "mode", "namespaces", "timeout_seconds"}
        used_options = given_options(click.get_current_context())
        for option in (option for name, option in used_options.items() if name in without_effect):
            click.echo(
                f"warning: {option} has no effect with --output helm-values: set it in the chart's values", err=True
            )
        rule_files = dict.fromkeys(rule.location.file for rule in files.loaded.rules)
        # The chart has the packaged sets, except those of cards that users add.
        packaged = [list_packaged_sets()[each.name] for each in rules if isinstance(each, PackagedSource)]
        set_of = {file.name: each.name for each in packaged if each.files for file in each.sources(Problems())}
        texts = {name: "\n".join(files.loaded.sources[name]) for name in rule_files if name not in set_of}
        sets = list(dict.fromkeys(set_of[name] for name in rule_files if name in set_of))
        values = webhooks.helm_values(files.rule_set, texts, policies, rule_set if native else None, sets)
        click.echo(dump_yaml(values), nl=False)
        return
    settings = Settings(
        name=name,
        namespace=namespace,
        server=url or service,
        ca_bundle=None if ca_bundle is None else _read_certificates(ca_bundle),
        failure_policies=policies,
        timeout_seconds=timeout_seconds,
        native=native,
        audit=audit,
        namespaces=namespaces,
    )
    print_objects(webhooks.build_configurations(rule_set, settings), output)


def _read_certificates(path: Path) -> bytes:
    text = path.read_bytes()
    if b"-----BEGIN CERTIFICATE-----" not in text or b"PRIVATE KEY" in text:
        raise click.UsageError(f"--ca-bundle {path}: must hold PEM certificates, and no private key")
    return text
