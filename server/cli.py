"""The root command: the offline commands, and those that need the server's libraries, which are imported when run."""

import logging
from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

import click

from rules_engine.cli import COMMANDS, Command, ObjectName, Root, more_rules_argument, rule_paths
from rules_engine.model.names import is_label, is_subdomain
from server.cluster.source import Live
from server.http.limits import CONCURRENT_DECISIONS, RECEIVE_SECONDS, REQUEST_SECONDS

LAST_PORT = 65535

DRAIN_SECONDS = 2.0
"""Time for Services to see that the server is not ready, and to stop sending."""

MAX_STALENESS_SECONDS = 60.0
"""An API server restarts, or is replaced, in less; nodes come and go in minutes, and pods in seconds."""

CAPTURE_SECONDS = 300.0
"""100,000 pods come in a quarter of a minute from a server that is near; this is for one that is far."""

GRACE_SECONDS = 10
"""What is under way at the end is a matter of milliseconds, except with a client that stalls."""

MOST_CONCURRENT = 1024
"""The largest --max-concurrent: half of the connections there may be."""


class Address(click.ParamType[tuple[str, int]]):
    """`HOST:PORT` as a pair; an IPv6 address stands in brackets, no host means every address."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > LAST_PORT:
            self.fail(f"{value!r} is not HOST:PORT with a port of 0 to {LAST_PORT}", param, ctx)
        bracketed = host.startswith("[") and host.endswith("]")
        if ":" in host and not bracketed:
            self.fail(f"{value!r}: an IPv6 address stands in brackets, as in [::1]:8443", param, ctx)
        return (host[1:-1] if bracketed else host) or "0.0.0.0", int(port)  # noqa: S104 - asked for by leaving it out


class Seconds(click.FloatRange):
    """A number in a range; a range lets `nan` pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if isnan(found):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return found


class SecretName(click.ParamType[tuple[str, str]]):
    """`NAMESPACE/SECRET` as a pair."""

    name = "NAMESPACE/SECRET"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        namespace, _, name = str(value).partition("/")
        if not (is_label(namespace) and is_subdomain(name)):
            self.fail(f"{value!r} is not NAMESPACE/SECRET", param, ctx)
        return namespace, name


class DnsName(click.ParamType[str]):
    """DNS name of a Service."""

    name = "NAME.NAMESPACE.svc"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_subdomain(str(value)):
            self.fail(f"{value!r} is not a DNS name, such as gpu-rules.gpu-rules.svc", param, ctx)
        return str(value)


class ClusterPlace(click.Path):
    """A file with a cluster's inventory, or one of the words for a live cluster."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in [live.value for live in Live]:
            return Live(value)
        if not Path(value).exists():
            self.fail(f"{value!r} is neither in-cluster nor kubeconfig, and no such file exists", param, ctx)
        return super().convert(value, param, ctx)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpu-rules", prog_name="gpu-rules")
def main() -> None:
    """Declarative admission rules for GPUs on Kubernetes."""


for command in COMMANDS:
    main.add_command(command)

_PATH = click.Path(exists=True, path_type=Path)
_FILE = click.Path(path_type=Path)


def _option(name: str, *names: str, **attributes: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option that can also be given as an environment variable: its long name in upper case."""
    variable = f"GPU_RULES_{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, *names, envvar=variable, **attributes)


@main.command(cls=Command)
@_option(
    "--rules",
    "rules",
    type=_PATH,
    multiple=True,
    metavar="PATH...",
    help="Files or folders of rules; in the variable, separated by colons. Default: the packaged set named default.",
)
@more_rules_argument
@_option(
    "--cluster",
    type=ClusterPlace(exists=True, dir_okay=False, path_type=Path),
    metavar="in-cluster|kubeconfig|FILE",
    help="The live cluster, by the service account of this pod or by KUBECONFIG; or a file: a ClusterInventory, or the "
    "output of kubectl get nodes,pods,namespaces -A -o json. Default: two workers with four GPUs each.",
)
@_option(
    "--max-staleness",
    type=Seconds(3, 3600),
    default=MAX_STALENESS_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How old the view of a live cluster may be: after that time without news, ladders leave pods as they are.",
)
@_option(
    "--declare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A ClusterInventory of nodes that an autoscaler can bring: they count beside those of a live cluster.",
)
@_option(
    "--listen",
    type=Address(),
    default="127.0.0.1:8443",
    show_default=True,
    help="Where to serve; port 0 takes a free one.",
)
@_option(
    "--metrics-listen",
    type=Address(),
    help="Where to serve /healthz, /readyz, /metrics and /rules without TLS, for probes and Prometheus. "
    "Default: disabled.",
)
@_option(
    "--decision-log",
    type=_FILE,
    metavar="FILE",
    help="Where to append a line of JSON for each decision and why; - is standard output. Default: disabled.",
)
@_option(
    "--events",
    is_flag=True,
    help="Send Kubernetes Events on fallbacks and denials, few at once, to the live cluster; needs a Role for it.",
)
@_option(
    "--log-format",
    type=click.Choice(["line", "json"]),
    default="line",
    show_default=True,
    help="How the server's own log is written, on standard error.",
)
@_option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate chain, PEM.")
@_option("--tls-key", type=_FILE, metavar="FILE", help="Its key, PEM.")
@_option(
    "--tls-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where a certificate for localhost and its CA (ca.crt) are kept when none is given. "
    "Default: a folder that is removed when the server ends.",
)
@_option(
    "--client-ca",
    type=_FILE,
    metavar="FILE",
    help="CAs, PEM: every client must show a certificate of one of them, probes too (see --metrics-listen).",
)
@_option(
    "--reserve-for",
    type=click.Choice(["authenticated", "all"]),
    default="authenticated",
    show_default=True,
    help="Whose requests reserve devices and send Events: callers with a certificate of --client-ca, or all; a managed "
    "control plane has no client certificate.",
)
@_option(
    "--tls-bootstrap",
    type=SecretName(),
    help="A Secret, which must be there, where the server keeps a certificate that it makes and renews by itself.",
)
@_option(
    "--tls-service",
    type=DnsName(),
    metavar=DnsName.name,
    help="With --tls-bootstrap: the DNS name that the API server calls.",
)
@_option(
    "--webhook-name",
    type=ObjectName(),
    help="Name of both webhook configurations: they are compared with the rules, and differences are logged. With "
    "--tls-bootstrap, their caBundle is kept up to date too.",
)
@_option(
    "--test-on-reload",
    is_flag=True,
    help="Run the RuleTests that lie with changed rules first, and refuse the rules where one fails.",
)
@_option(
    "--max-concurrent",
    type=click.IntRange(1, MOST_CONCURRENT),
    default=CONCURRENT_DECISIONS,
    show_default=True,
    metavar="NUMBER",
    help="Most decisions under way at once; a request over it is answered 503.",
)
@_option(
    "--request-timeout",
    type=Seconds(0.1, 30),
    default=REQUEST_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Over it, rules that are not evaluated yet fail, as their failurePolicy says; four fifths of the webhook's "
    "timeoutSeconds are the most in any case.",
)
@_option(
    "--receive-seconds",
    type=Seconds(1, 600),
    default=RECEIVE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long a request's body may take to arrive.",
)
@_option(
    "--drain-seconds",
    type=Seconds(0, 600),
    default=DRAIN_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="After SIGTERM, how long to go on answering while not ready.",
)
@_option(
    "--grace-seconds",
    type=click.IntRange(1, 600),
    default=GRACE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="At the end, how long requests under way may take.",
)
@click.option("--ready-fd", type=click.IntRange(3), hidden=True, help="Gets the URL as a line once it can be reached.")
def serve(
    rules: tuple[Path, ...],
    more_rules: tuple[Path, ...],
    cluster: Path | Live | None,
    max_staleness: float,
    declare: Path | None,
    listen: tuple[str, int],
    metrics_listen: tuple[str, int] | None,
    decision_log: Path | None,
    events: bool,
    log_format: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_dir: Path | None,
    client_ca: Path | None,
    reserve_for: str,
    tls_bootstrap: tuple[str, str] | None,
    tls_service: str | None,
    webhook_name: str | None,
    test_on_reload: bool,
    max_concurrent: int,
    request_timeout: float,
    receive_seconds: float,
    drain_seconds: float,
    grace_seconds: int,
    ready_fd: int | None,
) -> None:
    """Serve admission decisions over HTTPS.

    Every option can also be given as an environment variable: GPU_RULES_ and its name, as in GPU_RULES_LISTEN.
    """
    paths = rule_paths(rules, more_rules)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key come together")
    if tls_cert is not None and tls_dir is not None:
        raise click.UsageError("--tls-dir is for a certificate made here; --tls-cert gives one")
    if tls_bootstrap is not None and (tls_cert is not None or tls_dir is not None):
        raise click.UsageError("--tls-bootstrap makes a certificate; --tls-cert and --tls-dir are for others")
    if tls_bootstrap is not None and (tls_service is None or webhook_name is None):
        raise click.UsageError("--tls-bootstrap needs --tls-service and --webhook-name")
    if tls_service is not None and tls_bootstrap is None:
        raise click.UsageError("--tls-service needs --tls-bootstrap")
    if webhook_name is not None and tls_bootstrap is None and not isinstance(cluster, Live):
        raise click.UsageError("--webhook-name needs a live cluster or --tls-bootstrap")
    if declare is not None and not isinstance(cluster, Live):
        raise click.UsageError("--declare is for a live cluster; a file names all its nodes itself")
    if events and not isinstance(cluster, Live):
        raise click.UsageError("--events needs a live cluster: --cluster in-cluster or kubeconfig")

    from server.http.admission_record import Callers
    from server.rules.sources import Sources
    from server.serve import Settings, StartError, say
    from server.serve import serve as run
    from server.telemetry.observers import Observed

    callers = Callers(reserve_for)
    settings = Settings(
        sources=Sources(paths, cluster, declare),
        max_staleness_seconds=max_staleness,
        host=listen[0],
        port=listen[1],
        metrics_host=metrics_listen[0] if metrics_listen else "",
        metrics_port=metrics_listen[1] if metrics_listen else None,
        observed=Observed(decision_log, events, callers),
        json_logs=log_format == "json",
        certificate=tls_cert,
        key=tls_key,
        tls_folder=tls_dir,
        client_ca=client_ca,
        callers=callers,
        bootstrap=None if tls_bootstrap is None else (*tls_bootstrap, tls_service or "", webhook_name or ""),
        webhooks=webhook_name,
        test_on_reload=test_on_reload,
        max_concurrent=max_concurrent,
        request_seconds=request_timeout,
        receive_seconds=receive_seconds,
        drain_seconds=drain_seconds,
        grace_seconds=grace_seconds,
        ready_fd=ready_fd,
    )
    try:
        run(settings)
    except StartError as error:
        say(str(error), logging.ERROR, settings)
        raise SystemExit(1) from None


@main.command(cls=Command, short_help="Print the live cluster as a ClusterInventory.")
@click.option(
    "--output",
    "form",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="YAML is for people; JSON may be larger: some 1,000 nodes are the most that are read back from YAML.",
)
@click.option(
    "--timeout",
    type=Seconds(1, 3600),
    default=CAPTURE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to read at most.",
)
def capture(form: str, timeout: float) -> None:
    """Print the live cluster of KUBECONFIG as a ClusterInventory: what decisions on GPUs depend on, nothing else."""
    from server.cluster import capture as capturing
    from server.cluster.connection import Connection, kubeconfig

    logging.disable(logging.WARNING)  # what goes wrong ends it, and is said once
    try:
        document = capturing.capture(Connection(kubeconfig), timeout)
    except capturing.CaptureError as error:
        for problem in error.problems:
            click.echo(f"gpu-rules capture: {problem}", err=True)
        raise SystemExit(1) from None
    finally:
        logging.disable(logging.NOTSET)
    click.echo((capturing.as_json if form == "json" else capturing.as_yaml)(document), nl=False)


@main.command(cls=Command, short_help="Send scenarios through a real server over HTTPS.")
def demo() -> None:
    """Send the old webhook's scenarios through a real server over HTTPS and print what comes out."""
    from server.demo.run import run

    raise SystemExit(run())
