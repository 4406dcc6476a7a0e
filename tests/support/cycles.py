"""Scheduling cycles on small clusters."""

from collections.abc import Sequence

from rules_engine.cluster.scheduling.cycle import SchedulingCycle
from rules_engine.cluster.scheduling.disruption_budgets import DisruptionBudgets
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.devices import NO_DEVICES, Devices
from rules_engine.model.rules.simulation import SchedulerOptions, Strategy
from tests.support.api import NOW, Object


def cycle(
    nodes: Sequence[Object],
    namespaces: Sequence[Object] = (),
    *,
    preemption: bool = True,
    strategy: Strategy = Strategy.LEAST_ALLOCATED,
    seed: int = 1,
    devices: Devices = NO_DEVICES,
    budgets: Sequence[Object] = (),
) -> SchedulingCycle:
    view = ClusterObjects({"Node": nodes, "Namespace": namespaces}, now=NOW).view
    options = SchedulerOptions(scoring=strategy, preemption=preemption)
    read = DisruptionBudgets(ClusterObjects({"PodDisruptionBudget": budgets}, now=NOW))
    return SchedulingCycle(view.nodes, view.namespaces, options, seed, devices, read)
