"""Builders for tests of the live cluster: views of a stand-in API server, without pauses."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from rules_engine.cluster.nodes import matching_nodes, node_index_with_places
from rules_engine.cluster.nodes.reservations import PodKey, device_usage
from rules_engine.language.cel import Budget
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.rules.rule_set.rule_set import ClusterRequirements
from rules_engine.server.cluster.connection import Configure, Connection
from rules_engine.server.cluster.live import LiveCluster
from rules_engine.server.cluster.source import Health
from rules_engine.server.cluster.store import Store
from rules_engine.server.commands import main
from tests.support.apiserver import PATIENCE_SECONDS, ApiServer

EVERYTHING = ClusterRequirements(nodes=True, pods=True, namespaces=True)
NODES = ClusterRequirements(nodes=True)
PODS = ClusterRequirements(nodes=True, pods=True)


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class View:
    """A live view of a stand-in, and the pauses that it requested."""

    live: LiveCluster
    pauses: list[float] = field(default_factory=list)

    def until(self, holds: Callable[[Cluster], Any]) -> Cluster:
        """Wait until a condition holds, and return the view."""
        assert self.live.wait_until(lambda cluster: bool(holds(cluster)), PATIENCE_SECONDS), self.live.health
        return self.live.current()

    def synced(self) -> Cluster:
        return self.until(lambda cluster: cluster.known)

    def health(self, name: str) -> Health:
        return next(health for health in self.live.health if health.name == name)

    def counted(self, name: str, count: str, least: int = 1) -> None:
        """Wait until a count of a collection is at least `least`."""
        self.until(lambda _: self.health(name).counts.get(count, 0) >= least)


def plain(api: ApiServer) -> Configure:
    """Return a configuration without credentials and TLS."""

    def configure(configuration: Any) -> None:
        configuration.host = api.url

    return configure


def capture(api: ApiServer, folder: Path) -> Path:
    """Capture the cluster of a stand-in to a file."""
    done = CliRunner().invoke(main, ["capture", "--kubeconfig", str(api.kubeconfig(folder))])
    assert done.exit_code == 0, done.output
    file = folder / "captured.json"
    file.write_text(done.stdout)
    return file


@contextmanager
def viewing(
    api: ApiServer, needs: ClusterRequirements = EVERYTHING, *, configure: Configure | None = None, **options: Any
) -> Iterator[View]:
    """Run a view; pauses after failures are recorded instead of made."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(0)  # let other threads run, as a real pause would

    options = {"wait": pause, "random": lambda: 0.0, **options}
    view = View(LiveCluster(Connection(configure or plain(api)), needs, **options), pauses)
    view.live.start()
    try:
        yield view
    finally:
        view.live.stop()


def reserve(store: Store, key: PodKey, pod: Pod, now: float) -> bool:
    """Reserve the devices of a pod on a node that it may run on in the present view, if it requests any."""
    demand = device_usage(pod.effective_requests())
    nodes = matching_nodes(node_index_with_places(store.cluster), pod.placement, Budget())
    return bool(demand) and store.reserve(key, demand, nodes, now)


def used(cluster: Cluster, node: str, resource: str) -> int:
    """Return the number of devices in use on a node."""
    return next(int(n.used[resource].whole) if resource in n.used else 0 for n in cluster.nodes if n.name == node)


def names(cluster: Cluster) -> list[str]:
    return sorted(node.name for node in cluster.nodes)


def settle(api: ApiServer, view: View) -> None:
    """Wait until every watch is open and nothing is pending that would count as contact."""
    view.synced()
    for health in view.live.health:
        api.wait_for(partial(api.watching, health.name))
        api.bookmark(health.name)
        view.counted(health.name, "bookmarks")
