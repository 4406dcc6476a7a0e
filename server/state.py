"""What a worker decides on, and whether it can."""

from collections.abc import Callable

from rules_engine.evaluation import RuleSet
from rules_engine.model.cluster import Cluster, Freshness


class State:
    """What one worker knows. Its values are replaced whole, never changed, and a request reads each of them once."""

    __slots__ = ("_stopping", "cluster", "rule_set")

    def __init__(
        self,
        rule_set: RuleSet | None = None,
        cluster: Cluster | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.rule_set = rule_set
        self.cluster = cluster
        self._stopping = stopping

    @property
    def stopping(self) -> bool:
        """Whether the server was told to end: it answers still, but wants no new requests."""
        return self._stopping()

    @property
    def not_ready(self) -> str | None:
        """Why no request should be sent here; None when the server is ready."""
        if self.stopping:
            return "the server is stopping"
        if self.rule_set is None:
            return "the rules are not compiled yet"
        if self.cluster is None or self.cluster.freshness is Freshness.NEVER:
            return "the cluster has not been read yet"
        return None
