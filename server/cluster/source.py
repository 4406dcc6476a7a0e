"""Sources of the cluster that decisions read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the engine takes longer to import than the whole command line, which needs only Live
    from rules_engine.language.cel import Budget
    from rules_engine.model.kubernetes.cluster import Cluster
    from rules_engine.model.rules.admission import AdmissionRequest
    from rules_engine.model.rules.decision import Decision
    from rules_engine.rules.rule_set.rule_set import ClusterRequirements


class Live(Enum):
    """Configuration of a live cluster: a pod's service account, or a kubeconfig."""

    IN_CLUSTER = "in-cluster"
    KUBECONFIG = "kubeconfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """State of a collection. `contact` is when it was last known to be current, by the reflector's clock.

    `counts`: lists, watches, events, ignored (repeated events), bookmarks, checks (of the resourceVersion),
    unreadable (objects), and failures by their Cause.
    """

    name: str
    synced: bool
    contact: float
    failure: str | None
    counts: Mapping[str, int]


class ClusterSource(Protocol):
    """A cluster that may change."""

    def start(self) -> None:
        """Start reading the cluster."""

    def stop(self) -> None:
        """Stop all threads."""

    def current(self) -> "Cluster":
        """Return the current view; never waits."""

    @property
    def problems(self) -> Sequence[str]:
        """Messages of current failures to read the cluster."""

    @property
    def absent(self) -> Sequence[str]:
        """Messages of failures to read the devices of drivers and classes, without which the server is ready."""

    @property
    def health(self) -> Sequence[Health]:
        """Health of each collection read from an API server."""

    @property
    def reservations(self) -> int:
        """Number of decided pods with reserved devices, not yet bound to a node."""

    def need(self, needs: "ClusterRequirements") -> bool:
        """Also read the collections that other rules need. Return False, without effect, if they cannot be read."""

    def view_for(self, request: "AdmissionRequest") -> "Cluster":
        """Return the current view for /mutate, without what was reserved earlier for the same pod."""

    def reserve(
        self,
        request: "AdmissionRequest",
        decision: "Decision",
        budget: "Callable[[], Budget]",
        *,
        created: bool,
    ) -> str | None:
        """Reserve the devices of an admitted pod: at /mutate until /validate is called, then until it is bound.

        `created`: the pod is final, at /validate. Return the id for the pod's annotation, "" if it gets none, and None
        if no node has the devices.
        """


class FixedCluster:
    """A cluster read from a file: complete, always fresh, and without reservations."""

    problems: Sequence[str] = ()
    absent: Sequence[str] = ()
    health: Sequence[Health] = ()
    reservations = 0

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def current(self) -> "Cluster":
        return self._cluster

    def need(self, needs: "ClusterRequirements") -> bool:  # noqa: ARG002 - a file has everything
        return True

    def view_for(self, request: "AdmissionRequest") -> "Cluster":  # noqa: ARG002 - nothing is reserved
        return self._cluster

    def reserve(self, *_: object, created: bool) -> str | None:  # noqa: ARG002 - a file does not change
        return ""
