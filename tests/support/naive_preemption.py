"""A second, slow implementation of kube-scheduler's preemption: node by node, all filters again for each pod."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.support.naive_scheduler import node_reasons

Object = dict[str, Any]

_LASTING = (
    "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match pod topology spread constraints (missing required label)",
    "node(s) didn't match pod affinity rules",
)
"""Reasons that do not end when pods end."""


class Running(NamedTuple):
    """A bound pod and its start."""

    pod: Object
    start: int

    @property
    def name(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    @property
    def priority(self) -> int:
        return int(self.pod["spec"].get("priority", 0))


class Cluster(NamedTuple):
    """Everything but the pod to schedule."""

    nodes: Sequence[Object]
    running: Sequence[Running]
    namespaces: Sequence[Object]
    budgets: Sequence[Object] = ()

    def reasons(self, pod: Object, without: Sequence[Running] = ()) -> dict[str, list[str]]:
        bound = [found.pod for found in self.running if found not in without]
        return node_reasons(pod, self.nodes, bound, self.namespaces, [found.pod for found in without])


def best_candidates(pod: Object, cluster: Cluster) -> dict[str, list[str]]:
    """Return the names of the victims by node, for the nodes that are equally good."""
    found = {
        node: victims
        for node, reasons in cluster.reasons(pod).items()
        if reasons and not any(why in _LASTING for why in reasons) and (victims := _victims(pod, node, cluster))[0]
    }
    for order in (_exceeding, _highest, _sum, _number, _start):
        best = min(map(order, found.values()), default=0)
        found = {node: victims for node, victims in found.items() if order(victims) == best}
    return {node: [victim.name for victim in victims] for node, (victims, _) in found.items()}


def exceeding(pods: Sequence[Running], budgets: Sequence[Object]) -> list[Running]:
    """Return the pods that exceed a budget if all end in this order."""
    found: list[Running] = []
    for budget in budgets:
        metadata, status = budget["metadata"], budget["status"]
        wanted = budget["spec"].get("selector", {}).get("matchLabels")
        if not wanted:
            continue
        left = status["disruptionsAllowed"]
        for one in pods:
            labels = one.pod["metadata"].get("labels", {})
            disrupted = one.pod["metadata"]["name"] in status.get("disruptedPods", {})
            own = one.pod["metadata"]["namespace"] == metadata["namespace"]
            if own and labels and not disrupted and wanted.items() <= labels.items():
                left -= 1
                if left < 0 and one not in found:
                    found.append(one)
    return [one for one in pods if one in found]


def _victims(pod: Object, node: str, cluster: Cluster) -> tuple[list[Running], int]:
    """Return the victims on a node, and how many of them exceed a budget."""
    lower = [
        found
        for found in cluster.running
        if found.pod["spec"]["nodeName"] == node and found.priority < pod["spec"].get("priority", 0)
    ]
    if cluster.reasons(pod, lower)[node]:
        return [], 0
    victims = sorted(lower, key=lambda found: (-found.priority, found.start, found.name))
    spared = exceeding(victims, cluster.budgets)
    for one in [*spared, *(one for one in victims if one not in spared)]:
        others = [victim for victim in victims if victim is not one]
        if not cluster.reasons(pod, others)[node]:
            victims = others
    return victims, sum(one in spared for one in victims)


Victims = tuple[list[Running], int]


def _exceeding(victims: Victims) -> int:
    return victims[1]


def _highest(victims: Victims) -> int:
    return max(victim.priority for victim in victims[0])


def _sum(victims: Victims) -> int:
    return sum(victim.priority + 2**31 for victim in victims[0])


def _number(victims: Victims) -> int:
    return len(victims[0])


def _start(victims: Victims) -> int:
    return -min(victim.start for victim in victims[0] if victim.priority == _highest(victims))
