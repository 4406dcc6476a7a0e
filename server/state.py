"""State of the server: rules, cluster, readiness."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple, Protocol

from rules_engine.model.kubernetes.cluster import Cluster, Freshness
from rules_engine.model.rules.rule import Rule
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.native.policy import NativeRules, translate_rules
from rules_engine.rules.rule_set.rule_set import cluster_requirements
from rules_engine.server.cluster.source import ClusterSource
from rules_engine.server.timing import rfc3339


@dataclass(frozen=True, kw_only=True)
class ServedRules:
    """The active rule set. `digest`: of the rule documents; replicas with equal digests have the same rules.

    `generation` counts the sets that this process has activated, from 1. `listed`: all rules by kind, in order of
    evaluation, also rules in mode Off. `texts`: the rule files. `kept`: the files had errors at the start, and these
    were kept before.
    """

    rule_set: RuleSet
    generation: int = 1
    digest: str = ""
    texts: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    kept: bool = False
    listed: tuple[Rule, ...] = ()
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def rules_by_kind(self) -> Mapping[str, int]:
        return Counter(rule.kind for rule in self.listed)

    @cached_property
    def native(self) -> NativeRules:
        """The rules that `gpu-rules native` exports, and the others."""
        return translate_rules(self.rule_set)

    @cached_property
    def without_exported(self) -> "ServedRules":
        """The rules that stay with the webhooks of `webhook-config --native`."""
        return replace(self, rule_set=self.native.remaining(self.rule_set))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """Result of a reload. `refused` is None if the rules came into force, else one line for each problem.

    A line has place and code, and nothing from the files, since anybody may be able to read it. The log has messages
    and source lines.
    """

    at: datetime
    digest: str | None = None
    refused: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookComparison:
    """Comparison of a webhook configuration with the rules of a generation.

    `differences` is None before the first comparison. `fix_command` removes them. `problem` is the failure of the last
    read, if it failed; the other fields then hold the last result.
    """

    configuration: str
    generation: int
    at: datetime | None = None
    differences: tuple[str, ...] | None = None
    fix_command: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersStatus:
    """The GPUOffers of a name. `at`: the last write, else the start. `omitted`: reasons by rule that they leave out.

    `problem`: why they cannot be written.
    """

    name: str
    at: datetime
    omitted: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None


class ListenerCounts(NamedTuple):
    """Counts of a listener, for metrics.

    `held_bytes`: of requests being received or waiting for a decision. `waiting`: requests that wait for the thread for
    larger bodies or are answered in it. `exceeded`: by limit. `handshakes_failed`: by reason.
    """

    open_connections: int
    held_bytes: int
    waiting: int
    exceeded: Mapping[str, int]
    handshakes_failed: Mapping[str, int]


class Listening(Protocol):
    """A listener."""

    name: str

    @property
    def counts(self) -> ListenerCounts: ...


class ServerState:
    """State of the server. Values are replaced as a whole, never changed; a request reads each of them once."""

    def __init__(self, served: ServedRules, source: ClusterSource) -> None:
        self.served = served
        self.source = source
        self.audit = False
        """True in mode Audit: rules are evaluated as they are declared, and nothing of it takes effect."""
        self.namespaces: Collection[str] = ()
        """The namespaces whose requests are evaluated; empty: all."""
        self.stopping = False
        """True from the signal to stop: requests are still answered, but the server is not ready."""
        self.last_reload: Reload | None = None
        """None before the first reload."""
        self.reloads_refused = 0
        self.keep_problem: str | None = None
        """Reason for which the active rules cannot be kept for the next start."""
        self.reserves = True
        """False if no request can reserve devices: reservations need a client certificate, and none is required."""
        self.certificate_not_after: datetime | None = None
        """Expiry of the serving certificate."""
        self.certificate_from = ""
        """File or Secret of the certificate, for logs."""
        self.certificates_refused = 0
        self.webhooks: Mapping[str, WebhookComparison] | None = None
        """By endpoint, once compared; None without --webhook-name."""
        self.offers: OffersStatus | None = None
        """None without --offers."""
        self.listeners: tuple[Listening, ...] = ()
        self.last_heartbeat: Callable[[], float] | None = None
        """Time of the admission event loop's last heartbeat (time.monotonic); None if there is no such loop."""

    @property
    def in_flight(self) -> int:
        """Number of requests in the threads for larger bodies, or waiting for them."""
        return sum(listener.counts.waiting for listener in self.listeners)

    @property
    def cluster(self) -> Cluster:
        """The current view of the cluster; a request reads it once."""
        return self.source.current()

    @property
    def overpromises(self) -> bool:
        """True if rules read free devices, and no devices are reserved for pods that were just admitted."""
        return not self.audit and not self.reserves and cluster_requirements(self.served.rule_set).pods

    def expiry_problem(self, now: datetime) -> str | None:
        """Return the expiry of the serving certificate as a text; None while it is valid."""
        end = self.certificate_not_after
        return f"the certificate expired at {rfc3339(end)}" if end is not None and end < now else None

    def readiness_problem(self, now: datetime) -> str | None:
        """Return the reason for which the server is not ready; None if it is."""
        if self.stopping:
            return "the server is stopping"
        expired = self.expiry_problem(now)
        if expired is not None:
            return expired
        if self.cluster.freshness is Freshness.NEVER:
            return ": ".join(("the cluster has not been read yet", *self.source.problems[:1]))
        return None
