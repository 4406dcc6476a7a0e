"""Records of simulations, made by hand."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.simulation import Arrival, NodeEvent, NodeState, Simulation
from rules_engine.questions.simulate.record import AdmittedPod, Fallback, PodRecord, Record, State

GPU = "nvidia.com/gpu"
SMALL = "nvidia.com/mig-1g.10gb"
LADDER = RuleId("FallbackLadder/mig-80gb")
HERE = Location("load.yaml", 3, 1)
MINUTE = 60_000
HOUR = 60 * MINUTE


def amounts(written: Mapping[str, str | int]) -> Mapping[str, int]:
    """Return amounts in nanos."""
    return {name: Quantity.parse(str(text)).nanos for name, text in written.items()}


def recorded_node(name: str, **allocatable: str | int) -> Node:
    """A node; `gpu` and `small` stand for the names of resources."""
    names = {"gpu": GPU, "small": SMALL}
    return Node(
        name=name, allocatable={names.get(key, key): Quantity.parse(str(text)) for key, text in allocatable.items()}
    )


def admitted_pod(
    requested: Mapping[str, str | int], given: Mapping[str, str | int] | None = None, **fields: Any
) -> AdmittedPod:
    return AdmittedPod(requested=amounts(requested), given=amounts(requested if given is None else given), **fields)


def fallen(count: int = 1) -> AdmittedPod:
    """A pod that requested a MIG device and got a whole card."""
    fall = Fallback(rule=LADDER, requested=SMALL, given=GPU, devices=count)
    return admitted_pod({SMALL: count, "cpu": 1}, {GPU: count, "cpu": 1}, fallbacks=(fall,))


def recorded_pod(name: str, what: AdmittedPod, **fields: Any) -> PodRecord:
    """A pod of the first arrival. One with a node is bound when it arrived, unless `bound` says when, and runs."""
    values: dict[str, Any] = {"namespace": "ml", "arrival": 0, "priority": 0, "arrived": 0, **fields}
    if values.get("node"):
        values.setdefault("bound", values["arrived"])
        values.setdefault("state", State.RUNNING)
    return PodRecord(name=name, admitted=what, **values)


def simulation(arrivals: Iterable[str] = ("Pod/train",), **fields: Any) -> Simulation:
    made = tuple(Arrival(title=title, namespace="ml", groups=()) for title in arrivals)
    objects = ClusterObjects({}, now=datetime(2026, 11, 23, tzinfo=UTC))
    values: dict[str, Any] = {"name": "load", "seed": 1, "arrivals": made, **fields}
    return Simulation(location=HERE, cluster=Cluster(), objects=objects, **values)


def record(nodes: Iterable[Node], pods: Iterable[PodRecord], ended: int, **fields: Any) -> Record:
    values: dict[str, Any] = {"simulation": simulation(), "rules": "rules", "changes": (), **fields}
    return Record(nodes=tuple(nodes), pods=tuple(pods), ended=ended, **values)


MESSAGE = (
    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu."
    " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)


def whole_record(**fields: Any) -> Record:
    """A record with everything that one can have: each state, falls, a denial, preemption, a drain."""
    small, big = fallen(), admitted_pod({GPU: 4, "cpu": 8, "memory": "16Gi"})
    denied = admitted_pod(
        {GPU: 9}, message="Validation/limit: no more than 8 GPUs", denied_by=RuleId("Validation/limit")
    )
    volumes = admitted_pod({GPU: 1, "cpu": "500m"}, not_modelled=("volumes",))
    pods = [
        recorded_pod("old", big, arrival=None, node="b", state=State.EVICTED, ended=30 * MINUTE, by="b became Drained"),
        recorded_pod("train-1", small, node="a", state=State.SUCCEEDED, ended=HOUR),
        recorded_pod("train-2", small, node="a", arrived=MINUTE, bound=2 * MINUTE),
        recorded_pod("low", volumes, node="a", state=State.PREEMPTED, ended=MINUTE, by="ml/high"),
        recorded_pod("high", volumes, arrival=1, node="a", arrived=MINUTE, priority=100),
        recorded_pod("wait-1", big, arrival=1, arrived=2 * MINUTE, message=MESSAGE),
        recorded_pod("wait-2", big, arrival=1, arrived=3 * MINUTE, message=MESSAGE, replaces="old"),
        recorded_pod("greedy", denied, arrival=1, arrived=4 * MINUTE, state=State.DENIED),
    ]
    nodes = [recorded_node("a", gpu=4, cpu=16, memory="64Gi"), recorded_node("b", gpu=4, cpu=16, memory="64Gi")]
    changes = (NodeEvent(at=30 * MINUTE, node="b", becomes=NodeState.DRAINED),)
    values = {"simulation": simulation(("Job/train", "Deployment/web")), "changes": changes, **fields}
    return record(nodes, pods, 2 * HOUR, **values)
