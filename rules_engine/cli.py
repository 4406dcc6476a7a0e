"""The commands that need no server and no cluster. What they do is imported when they run: help is quick."""

import codecs
import errno
import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from rules_engine.model.names import LABEL, MAX_SUBDOMAIN, is_label, is_subdomain

INTERRUPTED = 128 + 2
"""Exit code after Ctrl-C, as of a process that SIGINT (2) ended."""

PROBLEMS_FOUND = 1
OUTPUT_LOST = 1

HTTPS_PORT = 443
LAST_PORT = 65535


_PLAIN = {"✓": "ok", "✗": "not", "→": "->", "×": "x", "…": "..."}
"""What stands for a character on a terminal that does not have it; "?" for all others."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Why a file that is written to takes no more."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error("gpu-rules", _plain)


class Root(click.Group):
    """The command whose subcommands these are; says in one line that there is no room for what it prints."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if sys.stdout is None:  # closed by whoever called
            sys.stdout = io.StringIO()
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if error.errno not in _FULL or error.filename is not None:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
            click.echo(f"gpu-rules: the output cannot be written: {error.strerror}", err=True)
            sys.exit(OUTPUT_LOST)


class Command(click.Command):
    """A command that ends quietly when it is interrupted, and prints on terminals of few characters."""

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="gpu-rules")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


class Kind(click.ParamType[str]):
    """A kind of document, in any case."""

    name = "KIND"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from rules_engine.loading import KINDS
        from rules_engine.model.problems import did_you_mean

        by_fold = {kind.casefold(): kind for kind in KINDS}
        found = by_fold.get(str(value).casefold())
        if found is None:
            known = ", ".join(KINDS)
            self.fail(f"unknown kind {value!r}{did_you_mean(str(value), KINDS)}: it is one of {known}", param, ctx)
        return found


class NamespaceName(click.ParamType[str]):
    """A name that a namespace can have: an RFC 1123 label."""

    name = "NAME"

    def __init__(self, *, empty: bool = False) -> None:
        self._empty = empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not (self._empty and value == "") and not is_label(str(value)):
            rule = "lower-case letters, digits and '-', at most 63 characters, the first and last no '-'"
            self.fail(f"{value!r} is no name of a namespace: {rule}", param, ctx)
        return str(value)


class ObjectName(click.ParamType[str]):
    """A name that most other objects can have: RFC 1123 labels with dots between them."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_subdomain(str(value)):
            rule = (
                f"lower-case letters, digits, '-' and '.', at most {MAX_SUBDOMAIN} characters, "
                "a letter or digit at each end"
            )
            self.fail(f"{value!r} is no name of an object: {rule}", param, ctx)
        return str(value)


class Readable(click.Path):
    """A path, or - for standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value != "-":
            return super().convert(value, param, ctx)
        from rules_engine.loading import STDIN

        return STDIN


class ServiceAddress(click.ParamType[tuple[str, str, int]]):
    """`NAME/NAMESPACE` or `NAME/NAMESPACE/PORT` as a triple."""

    name = "NAME/NAMESPACE[/PORT]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str, int]:
        found = re.fullmatch(f"({LABEL})/({LABEL})(?:/([0-9]{{1,5}}))?", str(value))
        port = int(found[3] or HTTPS_PORT) if found else 0
        if found is None or not 0 < port <= LAST_PORT:
            self.fail(f"{value!r} is not NAME/NAMESPACE or NAME/NAMESPACE/PORT", param, ctx)
        return found[1], found[2], port


def _paths(kind: click.Path) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=kind)


def _output(*formats: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--output",
        "output",
        type=click.Choice(formats),
        default="text",
        show_default=True,
        help="For people or programs.",
    )


class _More(click.Argument):
    """The further paths of an option, which is what messages are about."""

    def get_error_hint(self, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's signature
        return "'--rules'"


# `--rules` takes several paths, as `serve` does: what follows the first one arrives as arguments.
_rules_option = click.option(
    "--rules",
    "rules",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    metavar="PATH...",
    help="Files or folders of rules. Default: the packaged set named default.",
)
more_rules_argument = click.argument(
    "more_rules", cls=_More, type=click.Path(exists=True, path_type=Path), nargs=-1, metavar=""
)


def rule_paths(rules: tuple[Path, ...], more_rules: tuple[Path, ...]) -> tuple[Path, ...]:
    """All paths of rules, empty where none is given. Raises UsageError where the further ones follow no `--rules`."""
    if more_rules and not rules:
        raise click.UsageError(f"unexpected argument {str(more_rules[0])!r}: paths of rules follow --rules")
    return (*rules, *more_rules)


@click.command(cls=Command)
@_paths(Readable(exists=True, path_type=Path))
@_output("text", "json", "sarif", "github")
def check(paths: tuple[Path, ...], output: str) -> None:
    """Find everything that is wrong with rule files.

    PATH is a file or a folder; - is standard input. Ends with 1 if there are errors; warnings alone do not count.
    """
    from rules_engine.authoring import check as checking
    from rules_engine.authoring.output import machine as reports

    checked = checking.check(paths)
    match output:
        case "json":
            _print_json(reports.check_json(checked))
        case "sarif":
            _print_json(reports.check_sarif(checked))
        case "github":
            for line in reports.check_github(checked):
                click.echo(line)
        case _:
            from rules_engine.authoring.output.terminal import Screen

            Screen(sys.stdout).checked(checked)
    _end(succeeded=not checked.errors)


@click.command(cls=Command)
@_paths(click.Path(exists=True, path_type=Path))
@click.option("-k", "keyword", metavar="NAME", default="", help="Only cases whose test's or own name contains this.")
@_output("text", "json")
def test(paths: tuple[Path, ...], keyword: str, output: str) -> None:
    """Run the RuleTests in files and folders.

    Each case goes through both endpoints. Ends with 1 if a case fails, or could not be run, or there is none.
    """
    from rules_engine.authoring import rule_tests as testing
    from rules_engine.authoring.output import machine as reports

    run = testing.run_tests(paths, keyword)
    if output == "json":
        _print_json(reports.tests_json(run))
    else:
        from rules_engine.authoring.output.terminal import Screen

        Screen(sys.stdout).tests(run)
    if not run.results and not run.problems:
        places = " ".join(map(str, paths))
        wanted = f"no case with {keyword!r} in its name" if run.left_out else "no RuleTest"
        click.echo(f"{wanted} in {places}", err=True)
    _end(succeeded=run.succeeded)


@click.command(cls=Command)
@click.option(
    "-f",
    "--filename",
    "manifest",
    required=True,
    metavar="FILE",
    type=Readable(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Manifests of pods, or of what makes pods (Deployment, Job, ...); - is standard input.",
)
@_rules_option
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
    help="The request's namespace. Default: the manifest's.",
)
@click.option(
    "--operation", type=click.Choice(["CREATE", "UPDATE"]), default="CREATE", show_default=True, help="What is asked."
)
@click.option("--dry-run", is_flag=True, help="Ask as a server-side dry run does.")
@_output("text", "json")
def explain(
    manifest: Path,
    rules: tuple[Path, ...],
    more_rules: tuple[Path, ...],
    cluster: Path | None,
    namespace: str,
    operation: str,
    dry_run: bool,
    output: str,
) -> None:
    """Show what is decided for a pod, and why.

    Ends with 1 if a pod is denied, or if rules, cluster or manifests have errors.
    """
    paths = rule_paths(rules, more_rules)
    from rules_engine.authoring import explain as explaining
    from rules_engine.authoring.output import machine as reports
    from rules_engine.authoring.output.terminal import Screen
    from rules_engine.authoring.rule_files import DEFAULT_CLUSTER, DEFAULT_RULES, has_errors
    from rules_engine.loading import load_pods

    material = explaining.read_material(paths or (DEFAULT_RULES,), cluster or DEFAULT_CLUSTER)
    found, problems, sources = load_pods(manifest)
    Screen(sys.stderr).problems((*material.problems, *problems), {**material.sources, **sources})
    if has_errors((*material.problems, *problems)):
        raise SystemExit(PROBLEMS_FOUND)
    try:
        explanations = tuple(
            explaining.explain(material, pod, namespace=namespace, operation=operation, dry_run=dry_run)
            for pod in found
        )
    except explaining.NamespaceError as error:
        raise click.UsageError(str(error)) from None
    if output == "json":
        _print_json(reports.explain_json(explanations))
    else:
        screen = Screen(sys.stdout)
        for index, explanation in enumerate(explanations):
            if index:
                screen.gap()
            screen.explained(explanation)
    _end(succeeded=all(explanation.admission.allowed for explanation in explanations))


@click.command(cls=Command, short_help="Print the JSON Schema of a kind, or of all.")
@click.argument("kind", type=Kind(), required=False)
def schema(kind: str | None) -> None:
    """Print the JSON Schema of a kind, or of all in one, for editors and other tools."""
    from rules_engine.authoring.schemas import combined_schema
    from rules_engine.loading import schema as schema_of

    _print_json(schema_of(kind) if kind else combined_schema())


@click.command("webhook-config", cls=Command, short_help="Print the webhook configurations for rules.")
@_rules_option
@more_rules_argument
@click.option(
    "--namespace",
    type=NamespaceName(),
    default="gpu-rules",
    show_default=True,
    help="Where the server runs. Its own pods are not sent to it, and neither are those of kube-system.",
)
@click.option("--name", type=ObjectName(), default="gpu-rules", show_default=True, help="Name of both configurations.")
@click.option(
    "--service",
    type=ServiceAddress(),
    help="The Service in front of the server. Default: gpu-rules in the server's namespace, port 443.",
)
@click.option("--url", metavar="URL", help="Where the server is reached without a Service: https://HOST:PORT.")
@click.option(
    "--ca-bundle",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The CA of the server's certificate, PEM. Default: absent, to be filled in by cert-manager or the server.",
)
@click.option(
    "--failure-policy",
    type=click.Choice(["Ignore", "Fail"]),
    show_default="Ignore; with --output helm-values, what other values say",
    help="What happens to a pod when the server does not answer: it is admitted, or it is denied.",
)
@click.option(
    "--mutating-failure-policy",
    type=click.Choice(["Ignore", "Fail"]),
    help="The same for /mutate only; wins over --failure-policy.",
)
@click.option(
    "--validating-failure-policy",
    type=click.Choice(["Ignore", "Fail"]),
    help="The same for /validate only; wins over --failure-policy.",
)
@click.option(
    "--timeout-seconds",
    type=click.IntRange(1, 30),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="How long the API server waits for an answer.",
)
@click.option(
    "--output",
    type=click.Choice(["yaml", "json", "helm-values"]),
    default="yaml",
    show_default=True,
    help="helm-values: the rules and what follows from them, as values of the chart.",
)
def webhook_config(
    rules: tuple[Path, ...],
    more_rules: tuple[Path, ...],
    namespace: str,
    name: str,
    service: Any,
    url: str | None,
    ca_bundle: Path | None,
    failure_policy: str | None,
    mutating_failure_policy: str | None,
    validating_failure_policy: str | None,
    timeout_seconds: int,
    output: str,
) -> None:
    """Print the webhook configurations that make the API server send the pods that rules could touch, and no others.

    Their matchConditions are derived from the rules: print them again when rules change.
    """
    paths = rule_paths(rules, more_rules)
    if url is not None and service is not None:
        raise click.UsageError("--url and --service exclude each other")
    if url is not None and not url.startswith("https://"):
        raise click.UsageError(f"--url {url}: the API server calls https:// only")
    from rules_engine.authoring.output.terminal import Screen
    from rules_engine.authoring.rule_files import DEFAULT_RULES, read_rules
    from rules_engine.authoring.yaml_text import dump
    from rules_engine.webhooks import configuration as webhooks

    files = read_rules(paths or (DEFAULT_RULES,))
    Screen(sys.stderr).problems(files.problems, files.loaded.sources)
    if files.failed:
        raise SystemExit(PROBLEMS_FOUND)
    for warning in webhooks.warnings(files.rule_set):
        click.echo(f"warning: {warning}", err=True)
    given = (mutating_failure_policy or failure_policy, validating_failure_policy or failure_policy)
    policies = {endpoint: policy for endpoint, policy in zip(webhooks.Endpoint, given, strict=True) if policy}
    unenforced = webhooks.unenforced(files.rule_set, policies, as_values=output == "helm-values")
    for warning in (*unenforced, *webhooks.blocking(files.rule_set, policies)):
        click.echo(f"warning: {warning}", err=True)
    if output == "helm-values":
        for option in _given("namespace", "name", "service", "url", "ca_bundle", "timeout_seconds"):
            click.echo(
                f"warning: {option} has no effect with --output helm-values: the chart's values decide", err=True
            )
        named = dict.fromkeys(rule.location.file for rule in files.loaded.rules)
        texts = {name: Path(name).read_text("utf-8-sig") for name in named}
        click.echo(dump(webhooks.helm_values(files.rule_set, texts, policies)), nl=False)
        return
    settings = webhooks.Settings(
        name=name,
        namespace=namespace,
        server=url or webhooks.Service(*(service or ("gpu-rules", namespace, HTTPS_PORT))),
        ca_bundle=None if ca_bundle is None else _certificates(ca_bundle),
        failure_policies=policies,
        timeout_seconds=timeout_seconds,
    )
    made = webhooks.configurations(files.rule_set, settings)
    if output == "json":
        _print_json({"apiVersion": "v1", "kind": "List", "items": made})
    else:
        click.echo("---\n".join(map(dump, made)), nl=False)


COMMANDS: tuple[click.Command, ...] = (check, test, explain, schema, webhook_config)
"""For the root command, which has others besides."""


def _given(*parameters: str) -> list[str]:
    """Return the options that the command line has, of these parameters of the current command."""
    context = click.get_current_context()
    given = {name for name in parameters if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return [option.opts[0] for option in context.command.params if option.name in given]


def _certificates(path: Path) -> bytes:
    text = path.read_bytes()
    if b"-----BEGIN CERTIFICATE-----" not in text or b"PRIVATE KEY" in text:
        raise click.UsageError(f"--ca-bundle {path}: not a file of certificates alone, as PEM")
    return text


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _end(*, succeeded: bool) -> None:
    if not succeeded:
        raise SystemExit(PROBLEMS_FOUND)
