"""Simulation: a load that arrives at a cluster. All times are whole milliseconds since the start of the simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import log1p

from rules_engine.model.json.lenient import Object
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import LabelSelector

Milliseconds = int

MAX_PODS = 1_000_000
"""Pods of a simulation, including pods that replace lost pods: each takes half a kilobyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A distribution of times: uniform from `least` to `most`, or exponential if it has a `mean`."""

    least: Milliseconds = 0
    most: Milliseconds = 0
    mean: Milliseconds | None = None

    def quantile(self, fraction: float) -> Milliseconds:
        """Return the time below which a fraction of all times lies; `fraction` is at least 0 and less than 1."""
        if self.mean is not None:
            return round(-self.mean * log1p(-fraction))
        return self.least + int((self.most - self.least + 1) * fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """Pods of one template in an arrival.

    `pod` is a whole Pod as /mutate receives it. `parallel` pods run at the same time; when one ends, another one
    follows, `total` pods in all. `controlled`: a controller replaces lost pods, and their names are `name` with a
    number; otherwise the group is one Pod with this name. `selector`: the selector of a ReplicaSet or StatefulSet, by
    which the scheduler spreads the pods; None for other controllers. `minimum`: the pods of it that a gang needs.
    `claims`: the volume claims that a StatefulSet makes for each pod, by volume.
    """

    name: str
    pod: Mapping[str, Json]
    parallel: int = 1
    total: int = 1
    controlled: bool = True
    selector: LabelSelector | None = None
    minimum: int = 0
    claims: Mapping[str, Object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Pods that start together or not at all: `number` gangs, each of at least `minimum` pods."""

    minimum: int = 0
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A Pod or a workload that arrives `count` times, first at `at`, then each time after `every`.

    `title` is its title in reports, such as `Job/train`. `run_for`: the time that a pod runs once it is bound; None: to
    the end. `gang`: which only preflight reads.
    """

    title: str
    namespace: str
    groups: tuple[PodGroup, ...]
    at: Milliseconds = 0
    every: Distribution = Distribution()
    count: int = 1
    run_for: Distribution | None = None
    gang: Gang = Gang()

    @property
    def pods(self) -> int:
        """The total number of arriving pods."""
        return self.count * sum(group.total for group in self.groups)


class NodeState(StrEnum):
    """States that an event can put a node in."""

    NOT_READY = "NotReady"
    READY = "Ready"
    CORDONED = "Cordoned"
    UNCORDONED = "Uncordoned"
    DRAINED = "Drained"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """A change of a node's state."""

    at: Milliseconds
    node: str
    becomes: NodeState


class Strategy(StrEnum):
    """Scoring strategies of the plugin NodeResourcesFit."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Options of kube-scheduler. `resources`: the weights of the resources that NodeResourcesFit scores, by name."""

    scoring: Strategy = Strategy.LEAST_ALLOCATED
    resources: Mapping[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    preemption: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A load and the cluster that it arrives at.

    `cluster` is the rules' view of `objects`: nodes, namespaces and the initial pods. Bound initial pods run for
    `running_for` (None: to the end); the others wait. `until` None: until nothing changes any more.
    """

    name: str
    location: Location
    cluster: Cluster
    objects: ClusterObjects = field(repr=False, compare=False)
    seed: int = 0
    arrivals: tuple[Arrival, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    running_for: Distribution | None = None
    until: Milliseconds | None = None
    scheduler: SchedulerOptions = SchedulerOptions()
