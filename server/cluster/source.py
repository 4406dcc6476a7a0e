"""Where decisions take their cluster from."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from rules_engine.evaluation.rule_set.cluster_requirements import ClusterRequirements
from rules_engine.model.admission import AdmissionRequest
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import Decision


class Live(Enum):
    """How a live cluster is reached: as a pod in it, or as kubectl would."""

    IN_CLUSTER = "in-cluster"
    KUBECONFIG = "kubeconfig"


class CollectionHealth(Protocol):
    """How a collection of a live cluster is doing; `contact`: when it was last known to be current, monotonic.

    `counts` are by a closed set of words: lists, watches, kinds of events, causes of failure.
    """

    @property
    def name(self) -> str: ...
    @property
    def synced(self) -> bool: ...
    @property
    def contact(self) -> float: ...
    @property
    def counts(self) -> Mapping[str, int]: ...


class ClusterSource(Protocol):
    """A cluster that may change."""

    def start(self) -> None:
        """Begin to read it, if there is anything to begin."""

    def stop(self) -> None:
        """Let go of everything."""

    def current(self) -> Cluster:
        """The cluster now; never waits."""

    @property
    def problems(self) -> Sequence[str]:
        """What stands between us and the cluster, for people."""

    @property
    def health(self) -> Sequence[CollectionHealth]:
        """How each collection is doing that is read from an API server."""

    @property
    def reservations(self) -> int:
        """How many admitted pods are not yet seen on a node."""

    def need(self, needs: ClusterRequirements) -> bool:
        """Have what other rules need as well, after a wait; False, and nothing changes, where it cannot be had."""

    def admitted(self, request: AdmissionRequest, decision: Decision) -> None:
        """A pod went through /validate: what it asks for is spoken for if it was admitted."""


class FixedCluster:
    """A cluster that was read from a file: it has everything, and goes on saying what is free."""

    problems: Sequence[str] = ()
    health: Sequence[CollectionHealth] = ()
    reservations = 0

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def start(self) -> None:
        """There is nothing to begin."""

    def stop(self) -> None:
        """There is nothing to let go of."""

    def current(self) -> Cluster:
        return self._cluster

    def need(self, needs: ClusterRequirements) -> bool:  # noqa: ARG002 - whatever they are
        return True

    def admitted(self, request: AdmissionRequest, decision: Decision) -> None:
        """A file does not change."""
