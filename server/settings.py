"""The settings of `gpu-rules serve`, each declared once: its option, environment variable and chart value follow."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from rules_engine.cli import NAMESPACE_NAME, OBJECT_NAME, ValidName
from rules_engine.cli.program import AdvancedOption, SingleOption
from rules_engine.model.kubernetes.names import is_subdomain
from rules_engine.server.cluster.source import Live
from rules_engine.server.http.limits import CONCURRENT_DECISIONS, CONNECTIONS, RECEIVE_SECONDS, REQUEST_SECONDS
from rules_engine.server.option_types import Address, AddressType, ClusterPlace, NamespacedName, RulesPath, Seconds

DRAIN_SECONDS = 2.0
"""Default time for Services to notice that the server is not ready, and to stop sending requests."""

MAX_STALENESS_SECONDS = 60.0
"""Default maximum staleness: an API server restarts, or is replaced, in less; nodes change within minutes."""

GRACE_SECONDS = 10
"""Default grace period: pending requests take milliseconds, unless a client stalls."""

MAX_CONCURRENT = CONNECTIONS // 2
"""Maximum of --max-concurrent."""

T = TypeVar("T")

_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOption:
    """One row of the table. `attributes`: arguments of click.Option besides the default."""

    option: str
    name: str
    default: Any
    attributes: dict[str, Any]
    chart: str | None
    """Name of the chart's value under `server`; None if the chart has none."""

    @property
    def variable(self) -> str | None:
        """The environment variable; None for a hidden option."""
        return None if self.attributes.get("hidden") else f"GPU_RULES_{self.option[2:].replace('-', '_').upper()}"

    def to_option(self) -> click.Option:
        default = self.default
        shown = default is not None and not self.attributes.get("is_flag") and not self.attributes.get("multiple")
        attributes = {"cls": click.Option, **self.attributes}
        option: click.Option = attributes.pop("cls")(
            [self.option, self.name],
            envvar=self.variable,
            # As text, so that help shows it as it is typed.
            default=str(default) if isinstance(default, Address) else default,
            show_default=shown,
            **attributes,
        )
        return option


def _setting(option: str, default: T, *, chart: str | None = None, **attributes: Any) -> T:
    """Return a dataclass field for a setting."""
    return field(default=default, metadata={"option": option, "chart": chart, "attributes": attributes})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Options of `gpu-rules serve`, in the order of the help."""

    rules: tuple[Path, ...] = _setting(
        "--rules",
        (),
        type=RulesPath(exists=True, path_type=Path),
        multiple=True,
        metavar="SOURCE...",
        help="Rules: files, folders or set:NAME; in GPU_RULES_RULES, paths separated by colons. "
        "Default, unless the cluster is live: set:gpu-allocation.",
    )
    keep_rules: tuple[str, str] | None = _setting(
        "--keep-rules",
        None,
        cls=AdvancedOption,
        type=NamespacedName("NAMESPACE/NAME"),
        help="An existing ConfigMap, in which the server keeps the last rules without errors. If the rule files have "
        "errors at a start, it serves them.",
    )
    mode: str = _setting(
        "--mode",
        "Enforce",
        type=click.Choice(["Enforce", "Audit"]),
        help="Audit: evaluate the rules as they are declared, log what they would do, and allow every pod unchanged.",
    )
    namespaces: tuple[str, ...] = _setting(
        "--namespaces",
        (),
        type=NAMESPACE_NAME,
        multiple=True,
        metavar="NAME...",
        help="The only namespaces whose pods are decided; in GPU_RULES_NAMESPACES, separated by spaces. Default: all.",
    )
    cluster: Path | Live | None = _setting(
        "--cluster",
        None,
        cls=SingleOption,
        type=ClusterPlace(exists=True, dir_okay=False, path_type=Path),
        metavar="in-cluster|kubeconfig|FILE",
        help="The live cluster, by the service account of this pod or by KUBECONFIG; or a file: a ClusterInventory, "
        "or the output of gpu-rules capture or of kubectl. Default: two workers with four GPUs each.",
    )
    kubeconfig: Path | None = _setting(
        "--kubeconfig",
        None,
        cls=SingleOption,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="With --cluster kubeconfig: its file. Default: KUBECONFIG, or ~/.kube/config.",
    )
    context: str | None = _setting(
        "--context",
        None,
        cls=SingleOption,
        metavar="NAME",
        help="With --cluster kubeconfig: the context. Default: the current one.",
    )
    max_staleness_seconds: float = _setting(
        "--max-staleness",
        MAX_STALENESS_SECONDS,
        cls=AdvancedOption,
        type=Seconds(3, 3600),
        metavar="SECONDS",
        chart="maxStalenessSeconds",
        help="Maximum age of the view of a live cluster. With an older view, ladders leave pods as they are.",
    )
    declare: Path | None = _setting(
        "--declare",
        None,
        cls=SingleOption,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A ClusterInventory of nodes that an autoscaler can add; they count as nodes of the live cluster.",
    )
    listen: Address = _setting(
        "--listen",
        Address("127.0.0.1", 8443),
        type=AddressType(),
        help="Address to listen on; port 0 takes a free one.",
    )
    metrics_listen: Address | None = _setting(
        "--metrics-listen",
        None,
        type=AddressType(),
        help="Address of /healthz, /readyz, /metrics and /rules without TLS, for probes and Prometheus. "
        "Default: disabled.",
    )
    decision_log: Path | None = _setting(
        "--decision-log",
        None,
        type=_FILE,
        metavar="FILE",
        help="Append a line of JSON for each decision and its trace; - is standard output. Default: disabled.",
    )
    decision_log_messages: bool = _setting(
        "--decision-log-messages",
        False,
        cls=AdvancedOption,
        is_flag=True,
        chart="decisionLogMessages",
        help="Log the results of message expressions, too, which may quote any field of a pod. "
        "Default: the message or the expression of the rule in their place.",
    )
    decision_log_requests: bool = _setting(
        "--decision-log-requests",
        False,
        is_flag=True,
        chart="decisionLogRequests",
        help="Log requests of pods, too, so that diff can decide them under other rules; without values of environment "
        "variables, commands, arguments, and headers of probes.",
    )
    events: bool = _setting(
        "--events",
        False,
        is_flag=True,
        chart="events",
        help="Send Kubernetes Events on fallbacks and denials to the live cluster, at a limited rate; needs a Role.",
    )
    log_format: str = _setting(
        "--log-format",
        "line",
        type=click.Choice(["line", "json"]),
        chart="logFormat",
        help="Format of the server's log on standard error.",
    )
    tls_cert: Path | None = _setting("--tls-cert", None, type=_FILE, metavar="FILE", help="Certificate chain, PEM.")
    tls_key: Path | None = _setting("--tls-key", None, type=_FILE, metavar="FILE", help="Key of the certificate, PEM.")
    tls_dir: Path | None = _setting(
        "--tls-dir",
        None,
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Folder for a generated certificate for localhost and its CA (ca.crt), if no certificate is given. "
        "Default: the CA is in a temporary folder, and the key in no file.",
    )
    client_ca: Path | None = _setting(
        "--client-ca",
        None,
        type=_FILE,
        metavar="FILE",
        help="CAs, PEM. Every client must have a certificate of one of them, probes too (see --metrics-listen).",
    )
    reserve_for: str = _setting(
        "--reserve-for",
        "authenticated",
        cls=AdvancedOption,
        type=click.Choice(["authenticated", "all"]),
        chart="reserveFor",
        help="Callers whose requests reserve devices and cause Events: those with a certificate of --client-ca, or "
        "all. A managed control plane has no client certificate.",
    )
    tls_bootstrap: tuple[str, str] | None = _setting(
        "--tls-bootstrap",
        None,
        cls=AdvancedOption,
        type=NamespacedName("NAMESPACE/SECRET"),
        help="An existing Secret, in which the server keeps a certificate that it issues and renews itself.",
    )
    tls_service: str | None = _setting(
        "--tls-service",
        None,
        cls=AdvancedOption,
        type=ValidName(is_subdomain, "a DNS name, such as gpu-rules.gpu-rules.svc"),
        metavar="NAME.NAMESPACE.svc",
        help="DNS name that the API server calls; for --tls-bootstrap.",
    )
    webhook_name: str | None = _setting(
        "--webhook-name",
        None,
        type=OBJECT_NAME,
        help="Name of both webhook configurations. They are compared with the rules, and differences are logged. With "
        "--tls-bootstrap, their caBundle is updated too.",
    )
    offers: str | None = _setting(
        "--offers",
        None,
        type=OBJECT_NAME,
        help="Keep the GPUOffers of this name current: what nodes offer, for policies of gpu-rules native --name NAME.",
    )
    test_on_reload: bool = _setting(
        "--test-on-reload",
        False,
        is_flag=True,
        help="Run the RuleTests among changed rules, and refuse the rules if one fails.",
    )
    max_concurrent: int = _setting(
        "--max-concurrent",
        CONCURRENT_DECISIONS,
        cls=AdvancedOption,
        type=click.IntRange(1, MAX_CONCURRENT),
        metavar="NUMBER",
        chart="maxConcurrent",
        help="Maximum number of decisions about larger pods that wait or are in progress; further ones get 503.",
    )
    request_seconds: float = _setting(
        "--request-timeout",
        REQUEST_SECONDS,
        cls=AdvancedOption,
        type=Seconds(0.1, 30),
        metavar="SECONDS",
        chart="requestTimeoutSeconds",
        help="Time limit of a request, at most four fifths of the webhook's timeoutSeconds. Rules not evaluated by "
        "then fail, and their failurePolicy applies.",
    )
    receive_seconds: float = _setting(
        "--receive-seconds",
        RECEIVE_SECONDS,
        cls=AdvancedOption,
        type=Seconds(1, 600),
        metavar="SECONDS",
        help="Time limit for a request's body to arrive.",
    )
    drain_seconds: float = _setting(
        "--drain-seconds",
        DRAIN_SECONDS,
        cls=AdvancedOption,
        type=Seconds(0, 600),
        metavar="SECONDS",
        chart="drainSeconds",
        help="Time after SIGTERM during which the server answers requests while not ready.",
    )
    grace_seconds: int = _setting(
        "--grace-seconds",
        GRACE_SECONDS,
        cls=AdvancedOption,
        type=click.IntRange(1, 600),
        metavar="SECONDS",
        chart="graceSeconds",
        help="Time limit of pending requests after that.",
    )
    ready_fd: int | None = _setting(
        "--ready-fd",
        None,
        type=click.IntRange(3),
        hidden=True,
        help="File descriptor to which the URL is written once the server is ready.",
    )

    @property
    def is_live(self) -> bool:
        """True if the cluster is read from an API server."""
        return isinstance(self.cluster, Live)

    def conflict(self) -> str | None:
        """Return the message of the first conflict between options; None if there is none."""
        return next((message for message, is_wrong in _CONFLICTS if is_wrong(self)), None)


SETTINGS = tuple(ServeOption(name=it.name, default=it.default, **it.metadata) for it in fields(ServerSettings))
"""All settings."""

_CONFLICTS: tuple[tuple[str, Callable[[ServerSettings], bool]], ...] = (
    (
        "a live cluster needs --rules, such as the sets that gpu-rules sets suggest --cluster kubeconfig prints",
        lambda it: it.is_live and not it.rules,
    ),
    ("--keep-rules needs --rules", lambda it: it.keep_rules is not None and not it.rules),
    ("--tls-cert and --tls-key need each other", lambda it: (it.tls_cert is None) != (it.tls_key is None)),
    (
        "--tls-dir is for a generated certificate, not with --tls-cert",
        lambda it: it.tls_cert is not None and it.tls_dir is not None,
    ),
    (
        "--tls-bootstrap issues a certificate, not with --tls-cert or --tls-dir",
        lambda it: it.tls_bootstrap is not None and (it.tls_cert is not None or it.tls_dir is not None),
    ),
    (
        "--tls-bootstrap needs --tls-service and --webhook-name",
        lambda it: it.tls_bootstrap is not None and (it.tls_service is None or it.webhook_name is None),
    ),
    ("--tls-service needs --tls-bootstrap", lambda it: it.tls_service is not None and it.tls_bootstrap is None),
    (
        "--webhook-name needs a live cluster or --tls-bootstrap",
        lambda it: it.webhook_name is not None and it.tls_bootstrap is None and not it.is_live,
    ),
    (
        "--kubeconfig and --context need --cluster kubeconfig",
        lambda it: (it.kubeconfig is not None or it.context is not None) and it.cluster is not Live.KUBECONFIG,
    ),
    (
        "--declare needs a live cluster: --cluster in-cluster or kubeconfig",
        lambda it: it.declare is not None and not it.is_live,
    ),
    ("--decision-log-messages needs --decision-log", lambda it: it.decision_log_messages and it.decision_log is None),
    ("--decision-log-requests needs --decision-log", lambda it: it.decision_log_requests and it.decision_log is None),
    (
        "--offers needs a live cluster: --cluster in-cluster or kubeconfig",
        lambda it: bool(it.offers) and not it.is_live,
    ),
    (
        "--offers is for exported policies, which enforce everywhere: not with --mode Audit or --namespaces",
        lambda it: bool(it.offers) and (it.mode == "Audit" or bool(it.namespaces)),
    ),
    ("--events needs a live cluster: --cluster in-cluster or kubeconfig", lambda it: it.events and not it.is_live),
)
"""Combinations of options that are refused, by message; the first that applies is reported."""
