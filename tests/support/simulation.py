"""Small simulations, without files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rules_engine.cluster.devices.offers import with_device_offers
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.simulation import (
    Arrival,
    Distribution,
    Milliseconds,
    NodeEvent,
    NodeState,
    PodGroup,
    Simulation,
)
from rules_engine.questions.simulate.play import SimulationProgress, play_simulation
from rules_engine.questions.simulate.record import PodRecord, Record
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.rule_sources import PathSource, read_sources
from tests.support.api import GPU, NOW, pod
from tests.support.scheduling import usable_devices

ROOT = Path(__file__).parents[2]
HERE = Location("simulation.yaml", 1, 1)
NO_RULES = RuleSet()

Object = dict[str, Any]


def rules(*paths: str) -> RuleSet:
    """Read rules of the repository."""
    found = read_sources([PathSource(ROOT / path) for path in paths])
    assert not found.problems
    return found.rule_set


def always(milliseconds: Milliseconds) -> Distribution:
    return Distribution(least=milliseconds, most=milliseconds)


def load(
    name: str = "p",
    *,
    pod: Object | None = None,
    gpus: int | str = 1,
    namespace: str = "ml",
    controlled: bool = False,
    stateful: bool = False,
    parallel: int = 1,
    total: int | None = None,
    every: Milliseconds | Distribution = 0,
    run_for: Milliseconds | Distribution | None = None,
    **members: Any,
) -> Arrival:
    """Build an arrival of one group: of bare pods with GPUs, or `controlled` ones, also those of a `stateful` set."""
    made = pod if pod is not None else template(gpus)
    metadata = {**made.get("metadata", {}), **({"generateName": f"{name}-"} if controlled else {"name": name})}
    if controlled:
        metadata.pop("name", None)
    if stateful:
        metadata["name"] = f"{name}-0"
    group = PodGroup(
        name=name,
        pod={**made, "metadata": metadata},
        parallel=parallel,
        total=parallel if total is None else total,
        controlled=controlled,
        selector=members.pop("selector", None),
    )
    return Arrival(
        title=f"{'Job' if controlled else 'Pod'}/{name}",
        namespace=namespace,
        groups=(group,),
        every=every if isinstance(every, Distribution) else always(every),
        run_for=always(run_for) if isinstance(run_for, int) else run_for,
        **members,
    )


def template(gpus: int | str = 1, requests: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """Build a pod without a name."""
    made = pod(requests={**({GPU: gpus} if gpus else {}), **(requests or {})}, **spec)
    return {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}


def at(moment: Milliseconds, node: str, becomes: NodeState) -> NodeEvent:
    return NodeEvent(at=moment, node=node, becomes=becomes)


def simulation(
    nodes: Sequence[Object],
    *arrivals: Arrival,
    pods: Sequence[Object] = (),
    namespaces: Sequence[Object] = (),
    drivers: Mapping[str, Sequence[Object]] = MappingProxyType({}),
    budgets: Sequence[Object] = (),
    **members: Any,
) -> Simulation:
    """Build a simulation on objects of the API; `drivers`: DeviceClasses and other objects by kind."""
    kinds = {"Node": nodes, "Pod": pods, "Namespace": namespaces, "PodDisruptionBudget": budgets}
    objects = ClusterObjects({**kinds, **drivers}, now=NOW)
    cluster = with_device_offers(replace(objects.view, devices=usable_devices(drivers))) if drivers else objects.view
    return Simulation(name="test", location=HERE, cluster=cluster, objects=objects, arrivals=arrivals, **members)


def played(
    nodes: Sequence[Object],
    *arrivals: Arrival,
    rule_set: RuleSet = NO_RULES,
    progress: SimulationProgress | None = None,
    **members: Any,
) -> Record:
    """Play a simulation on objects of the API, without rules by default."""
    return play_simulation(simulation(nodes, *arrivals, **members), rule_set, "rules", progress=progress)


def states(record: Record) -> dict[str, str]:
    return {found.name: found.state.value for found in record.pods}


def by_name(record: Record) -> dict[str, PodRecord]:
    return {found.name: found for found in record.pods}
