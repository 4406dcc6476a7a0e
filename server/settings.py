"""The settings of `gpu-rules serve`, each declared once: its option, environment variable and chart value follow."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from rules_engine.cli import ObjectName
from server.cluster.source import Live
from server.http.limits import CONCURRENT_DECISIONS, RECEIVE_SECONDS, REQUEST_SECONDS
from server.option_types import Address, AddressType, ClusterPlace, DnsName, Seconds, SecretName

DRAIN_SECONDS = 2.0
"""Time for Services to see that the server is not ready, and to stop sending."""

MAX_STALENESS_SECONDS = 60.0
"""An API server restarts, or is replaced, in less; nodes come and go in minutes, and pods in seconds."""

GRACE_SECONDS = 10
"""What is under way at the end is a matter of milliseconds, except with a client that stalls."""

MAX_CONCURRENT = 1024
"""The largest --max-concurrent: half of the connections there may be."""

T = TypeVar("T")

_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table. `attributes` are those of click.Option besides the default."""

    option: str
    name: str
    default: Any
    attributes: dict[str, Any]
    chart: str | None
    """The member of the chart's values under `server` that holds the option's value; None: the chart has none."""

    @property
    def variable(self) -> str | None:
        """The environment variable; hidden options have none."""
        return None if self.attributes.get("hidden") else f"GPU_RULES_{self.option[2:].replace('-', '_').upper()}"

    def to_option(self) -> click.Option:
        default = self.default
        shown = default is not None and not self.attributes.get("is_flag") and not self.attributes.get("multiple")
        return click.Option(
            [self.option, self.name],
            envvar=self.variable,
            # As text, click shows it as it is typed.
            default=str(default) if isinstance(default, Address) else default,
            show_default=shown,
            **self.attributes,
        )


def _setting(option: str, default: T, *, chart: str | None = None, **attributes: Any) -> T:
    """Return a dataclass field for a setting."""
    return field(default=default, metadata={"option": option, "chart": chart, "attributes": attributes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of `gpu-rules serve`. Their order is that of the help."""

    rules: tuple[Path, ...] = _setting(
        "--rules",
        (),
        type=click.Path(exists=True, path_type=Path),
        multiple=True,
        metavar="PATH...",
        help="Files or folders of rules; in the variable, separated by colons. "
        "Default: the packaged set named default.",
    )
    cluster: Path | Live | None = _setting(
        "--cluster",
        None,
        type=ClusterPlace(exists=True, dir_okay=False, path_type=Path),
        metavar="in-cluster|kubeconfig|FILE",
        help="The live cluster, by the service account of this pod or by KUBECONFIG; or a file: a ClusterInventory, "
        "or the output of kubectl get nodes,pods,namespaces -A -o json. Default: two workers with four GPUs each.",
    )
    max_staleness_seconds: float = _setting(
        "--max-staleness",
        MAX_STALENESS_SECONDS,
        type=Seconds(3, 3600),
        metavar="SECONDS",
        chart="maxStalenessSeconds",
        help="How old the view of a live cluster may be: after that time without news, ladders leave pods as they are.",
    )
    declare: Path | None = _setting(
        "--declare",
        None,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A ClusterInventory of nodes that an autoscaler can bring: they count beside those of a live cluster.",
    )
    listen: Address = _setting(
        "--listen",
        Address("127.0.0.1", 8443),
        type=AddressType(),
        help="Where to serve; port 0 takes a free one.",
    )
    metrics_listen: Address | None = _setting(
        "--metrics-listen",
        None,
        type=AddressType(),
        help="Where to serve /healthz, /readyz, /metrics and /rules without TLS, for probes and Prometheus. "
        "Default: disabled.",
    )
    decision_log: Path | None = _setting(
        "--decision-log",
        None,
        type=_FILE,
        metavar="FILE",
        help="Where to append a line of JSON for each decision and why; - is standard output. Default: disabled.",
    )
    events: bool = _setting(
        "--events",
        False,
        is_flag=True,
        chart="events",
        help="Send Kubernetes Events on fallbacks and denials, few at once, to the live cluster; needs a Role for it.",
    )
    log_format: str = _setting(
        "--log-format",
        "line",
        type=click.Choice(["line", "json"]),
        chart="logFormat",
        help="How the server's own log is written, on standard error.",
    )
    tls_cert: Path | None = _setting("--tls-cert", None, type=_FILE, metavar="FILE", help="Certificate chain, PEM.")
    tls_key: Path | None = _setting("--tls-key", None, type=_FILE, metavar="FILE", help="Its key, PEM.")
    tls_dir: Path | None = _setting(
        "--tls-dir",
        None,
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Where a certificate for localhost and its CA (ca.crt) are kept when none is given. "
        "Default: a folder that is removed when the server ends.",
    )
    client_ca: Path | None = _setting(
        "--client-ca",
        None,
        type=_FILE,
        metavar="FILE",
        help="CAs, PEM: every client must show a certificate of one of them, probes too (see --metrics-listen).",
    )
    reserve_for: str = _setting(
        "--reserve-for",
        "authenticated",
        type=click.Choice(["authenticated", "all"]),
        chart="reserveFor",
        help="Whose requests reserve devices and send Events: callers with a certificate of --client-ca, or all; a "
        "managed control plane has no client certificate.",
    )
    tls_bootstrap: tuple[str, str] | None = _setting(
        "--tls-bootstrap",
        None,
        type=SecretName(),
        help="A Secret, which must be there, where the server keeps a certificate that it makes and renews by itself.",
    )
    tls_service: str | None = _setting(
        "--tls-service",
        None,
        type=DnsName(),
        metavar=DnsName.name,
        help="With --tls-bootstrap: the DNS name that the API server calls.",
    )
    webhook_name: str | None = _setting(
        "--webhook-name",
        None,
        type=ObjectName(),
        help="Name of both webhook configurations: they are compared with the rules, and differences are logged. With "
        "--tls-bootstrap, their caBundle is kept up to date too.",
    )
    test_on_reload: bool = _setting(
        "--test-on-reload",
        False,
        is_flag=True,
        help="Run the RuleTests that lie with changed rules first, and refuse the rules where one fails.",
    )
    max_concurrent: int = _setting(
        "--max-concurrent",
        CONCURRENT_DECISIONS,
        type=click.IntRange(1, MAX_CONCURRENT),
        metavar="NUMBER",
        chart="maxConcurrent",
        help="Most decisions under way at once; a request over it is answered 503.",
    )
    request_seconds: float = _setting(
        "--request-timeout",
        REQUEST_SECONDS,
        type=Seconds(0.1, 30),
        metavar="SECONDS",
        chart="requestTimeoutSeconds",
        help="Over it, rules that are not evaluated yet fail, as their failurePolicy says; four fifths of the "
        "webhook's timeoutSeconds are the most in any case.",
    )
    receive_seconds: float = _setting(
        "--receive-seconds",
        RECEIVE_SECONDS,
        type=Seconds(1, 600),
        metavar="SECONDS",
        help="How long a request's body may take to arrive.",
    )
    drain_seconds: float = _setting(
        "--drain-seconds",
        DRAIN_SECONDS,
        type=Seconds(0, 600),
        metavar="SECONDS",
        chart="drainSeconds",
        help="After SIGTERM, how long to go on answering while not ready.",
    )
    grace_seconds: int = _setting(
        "--grace-seconds",
        GRACE_SECONDS,
        type=click.IntRange(1, 600),
        metavar="SECONDS",
        chart="graceSeconds",
        help="At the end, how long requests under way may take.",
    )
    ready_fd: int | None = _setting(
        "--ready-fd", None, type=click.IntRange(3), hidden=True, help="Gets the URL as a line once it can be reached."
    )

    @property
    def is_live(self) -> bool:
        """True if the cluster is read from an API server."""
        return isinstance(self.cluster, Live)

    def conflict(self) -> str | None:
        """Return the first mistake between options; None if they fit together."""
        return next((message for message, is_wrong in _CONFLICTS if is_wrong(self)), None)


SETTINGS = tuple(Setting(name=it.name, default=it.default, **it.metadata) for it in fields(Settings))
"""The table."""

_CONFLICTS: tuple[tuple[str, Callable[[Settings], bool]], ...] = (
    (
        "--tls-cert and --tls-key come together",
        lambda it: (it.tls_cert is None) != (it.tls_key is None),
    ),
    (
        "--tls-dir is for a certificate made here; --tls-cert gives one",
        lambda it: it.tls_cert is not None and it.tls_dir is not None,
    ),
    (
        "--tls-bootstrap makes a certificate; --tls-cert and --tls-dir are for others",
        lambda it: it.tls_bootstrap is not None and (it.tls_cert is not None or it.tls_dir is not None),
    ),
    (
        "--tls-bootstrap needs --tls-service and --webhook-name",
        lambda it: it.tls_bootstrap is not None and (it.tls_service is None or it.webhook_name is None),
    ),
    (
        "--tls-service needs --tls-bootstrap",
        lambda it: it.tls_service is not None and it.tls_bootstrap is None,
    ),
    (
        "--webhook-name needs a live cluster or --tls-bootstrap",
        lambda it: it.webhook_name is not None and it.tls_bootstrap is None and not it.is_live,
    ),
    (
        "--declare is for a live cluster; a file names all its nodes itself",
        lambda it: it.declare is not None and not it.is_live,
    ),
    (
        "--events needs a live cluster: --cluster in-cluster or kubeconfig",
        lambda it: it.events and not it.is_live,
    ),
)
"""Combinations of options that are refused, by message; the first that applies is reported."""
