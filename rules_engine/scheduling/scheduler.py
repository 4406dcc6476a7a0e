"""Model of kube-scheduler's filters on the nodes and bound pods of a cluster at one moment.

Source: Kubernetes 1.36, pkg/scheduler (schedule_one.go, framework/plugins). The filters for volumes and resource
claims, nominated pods, extenders and other profiles than the default one are not modelled.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from heapq import nlargest
from typing import Final

from rules_engine.cel import Budget
from rules_engine.evaluation.nodes import NodeSet, placed_index_of, selected_nodes
from rules_engine.model.cluster import Cluster, Node
from rules_engine.model.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.json.lenient import Object, strings
from rules_engine.model.placement import NodeTerm, Placement
from rules_engine.model.pod import is_finished
from rules_engine.scheduling.amounts import PODS
from rules_engine.scheduling.filters.bound_pods import BoundPods
from rules_engine.scheduling.filters.pod_affinity import (
    Namespaces,
    RepellingTerms,
    anti_affine,
    repelled_by_pods,
    unaffine,
)
from rules_engine.scheduling.filters.spread import unspread
from rules_engine.scheduling.filters.taints import Taints
from rules_engine.scheduling.filters.topologies import Topologies
from rules_engine.scheduling.filters.usage import Usage, free_amounts, full_nodes
from rules_engine.scheduling.reasons import (
    CONFLICT,
    EXISTING_ANTI_AFFINITY,
    NO_AFFINE_POD,
    NOT_SELECTED,
    OTHER_NAME,
    OWN_ANTI_AFFINITY,
    PORTS_TAKEN,
    TAINTED,
    TOO_MANY_PODS,
    UNSCHEDULABLE,
    insufficient,
)
from rules_engine.scheduling.requirements import DEFAULT_NAMESPACE, Requirements, priority_of
from rules_engine.scheduling.scheduling import Excluded, Filter, Scheduling

NOMINATED = "pods that are nominated to nodes"
NAMESPACE_SELECTORS = "namespace selectors, since no namespaces were read"

CACHED_SELECTIONS = 1_000
"""Selectors with required node affinity whose nodes are cached: a kilobyte each with 5,000 nodes."""

MAX_COMPARISONS = 20_000_000
"""Labels of bound pods that are compared with topology spread and pod affinity, for all pods: some 20 seconds."""

_UNBOUNDED: Final = sys.maxsize
"""Cost of the search for the nodes of one placement, which is bounded itself."""


class Scheduler:
    """The filters on one state of a cluster, which never changes. All answers together cost MAX_COMPARISONS at most."""

    def __init__(
        self,
        nodes: Sequence[Node],
        bound: Iterable[PodObject],
        namespaces: Mapping[str, Mapping[str, str]] | None,
        nominated: Iterable[PodObject] = (),
    ) -> None:
        """Take the nodes, the unfinished pods that are bound to them, and the labels of namespaces, if known.

        `nominated`: unbound pods for which the scheduler makes room on a node; answers that they may change name them.
        """
        self.nodes = tuple(nodes)
        """The nodes by number."""
        names = [node.name for node in nodes]
        self._names = tuple(names)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._index = placed_index_of(Cluster(nodes=self.nodes))
        self._topologies = Topologies(self._index.places.labels, [node.labels for node in nodes])
        self._taints = Taints(nodes)
        usage = Usage()
        for pod in bound:
            usage.add(self._numbers[pod.node_name], pod)
        self._usage = usage
        self._namespaces = Namespaces(namespaces, usage.namespaces)
        self._budget = Budget(MAX_COMPARISONS, "topology spread and pod affinity")
        self._repelling = RepellingTerms(usage.terms, self._topologies, self._budget)
        self._free = free_amounts(nodes, usage)
        self.full = full_nodes(nodes, usage)
        """The nodes that have no room for one more pod, whatever it requests."""
        ranked = nlargest(2, ((priority_of(pod.spec), pod.namespace, pod.name) for pod in nominated))
        self._nominated = [(priority, namespace or DEFAULT_NAMESPACE, name) for priority, namespace, name in ranked]
        """The two of the highest priority: one of them may be the pod in question."""
        self._selected = lru_cache(CACHED_SELECTIONS)(self._selected_by)

    @cached_property
    def _pods(self) -> BoundPods:
        # On first use, since few pods have constraints that read the others.
        return BoundPods(self._usage.pods, self._budget)

    def explain(self, pod: Object) -> Scheduling:
        """Return the answer for a pod that is not bound.

        Raises PodError if it is malformed, TooLargeError if its placement exceeds the bounds of one, and CostExceeded
        if no more labels may be compared.
        """
        return self.schedule(Requirements.of(pod))

    def schedule(self, pod: Requirements) -> Scheduling:
        """Return the answer for a pod's requirements."""
        every, placement = self._index.every, pod.placement
        untolerated = self._taints.untolerated(placement.tolerations)
        repelled = untolerated.every
        selected = self._selected(placement.node_selector, placement.terms)
        fit = self._insufficient(pod)
        excluded: dict[Filter, Excluded] = {
            Filter.NODE_UNSCHEDULABLE: {UNSCHEDULABLE: untolerated.cordoned},
            Filter.NODE_NAME: {OTHER_NAME: every & ~self._named((placement.node_name,)) if placement.node_name else 0},
            Filter.TAINT_TOLERATION: {TAINTED: repelled},
            Filter.NODE_AFFINITY: {NOT_SELECTED: every & ~selected},
            Filter.NODE_PORTS: {PORTS_TAKEN: self._taken(pod)},
            Filter.NODE_RESOURCES_FIT: {_reason(resource): nodes for resource, nodes in fit.items()},
            Filter.POD_TOPOLOGY_SPREAD: unspread(
                pod, self._pods, self._topologies, every, selected=selected, repelled=repelled
            ),
            Filter.INTER_POD_AFFINITY: self._apart(pod),
        }
        excluded = {
            name: some
            for name, reasons in excluded.items()
            if (some := {why: nodes for why, nodes in reasons.items() if nodes})
        }
        return Scheduling(
            nodes=self._names,
            excluded=excluded,
            rejected=CONFLICT if pod.node_names == frozenset() else "",
            by_name=self._named(pod.node_names) if pod.node_names else None,
            untolerated=untolerated.nodes,
            waiting_for=_waiting_for(fit, every & ~_others(excluded)),
            not_modelled=(*pod.not_modelled, *self._not_modelled(pod)),
        )

    def _selected_by(self, node_selector: tuple[tuple[str, str], ...], terms: tuple[NodeTerm, ...] | None) -> NodeSet:
        placement = Placement(node_name="", node_selector=node_selector, terms=terms, tolerations=())
        return selected_nodes(self._index, placement, Budget(_UNBOUNDED))

    def _named(self, names: Iterable[str]) -> NodeSet:
        found = 0
        for name in names:
            if name in self._numbers:
                found |= 1 << self._numbers[name]
        return found

    def _taken(self, pod: Requirements) -> NodeSet:
        found = 0
        for port in pod.ports:
            found |= self._usage.nodes_with(port)
        return found

    def _insufficient(self, pod: Requirements) -> Mapping[str, NodeSet]:
        """Return the nodes without enough of each resource that the pod requests; `pods`: those that are full."""
        found = {PODS: self.full}
        for resource, amount in pod.requests.items():
            if amount > 0:
                free = self._free.get(resource)
                found[resource] = self._index.every if free is None else free.below(amount)
        return found

    def _apart(self, pod: Requirements) -> Excluded:
        """Return the nodes that pod affinity excludes; of its three parts the first that excludes a node decides."""
        unmatched = (
            unaffine(pod, self._pods, self._namespaces, self._topologies, self._index.every) if pod.affinity else 0
        )
        near = anti_affine(pod, self._pods, self._namespaces, self._topologies) & ~unmatched
        existing = repelled_by_pods(pod, self._repelling, self._namespaces) & ~(unmatched | near)
        return {NO_AFFINE_POD: unmatched, OWN_ANTI_AFFINITY: near, EXISTING_ANTI_AFFINITY: existing}

    def _not_modelled(self, pod: Requirements) -> Iterator[str]:
        if any(
            priority >= pod.priority and (namespace, name) != (pod.namespace, pod.name)
            for priority, namespace, name in self._nominated
        ):
            yield NOMINATED
        if not self._namespaces.known:
            own = (*pod.affinity, *pod.anti_affinity)
            if any(term.namespace_selector for term in (*own, *self._repelling.about(pod.labels))):
                yield NAMESPACE_SELECTORS


def _reason(resource: str) -> str:
    return TOO_MANY_PODS if resource == PODS else insufficient(resource)


def _others(excluded: Mapping[Filter, Excluded]) -> NodeSet:
    """Return the nodes that another filter than NodeResourcesFit excludes."""
    found = 0
    for name, reasons in excluded.items():
        if name is not Filter.NODE_RESOURCES_FIT:
            for nodes in reasons.values():
                found |= nodes
    return found


def _waiting_for(insufficient: Mapping[str, NodeSet], allowed: NodeSet) -> tuple[str, ...]:
    """Return the resources that keep a pod from all allowed nodes: each of them, or else all of them together."""
    left = allowed
    for nodes in insufficient.values():
        left &= ~nodes
    if left or not allowed:
        return ()
    alone = tuple([resource for resource, nodes in insufficient.items() if not allowed & ~nodes])
    return alone or tuple([resource for resource, nodes in insufficient.items() if allowed & nodes])


_VIEW: Final = "scheduler"


def scheduler_of(objects: ClusterObjects) -> Scheduler:
    """Return the scheduler of a cluster's objects, which is made once: that takes a second for 100,000 pods."""
    found = objects.views.get(_VIEW)
    if not isinstance(found, Scheduler):
        found = objects.views[_VIEW] = _scheduler_of(objects)
    return found


def _scheduler_of(objects: ClusterObjects) -> Scheduler:
    namespaces = None
    if "Namespace" not in objects.absent:
        namespaces = {found.name: strings(found.metadata.get("labels")) for found in objects.of("Namespace")}
    nodes = objects.view.nodes
    bound = (pod for name in dict.fromkeys(node.name for node in nodes) for pod in objects.pods_on(name))
    nominated = (
        pod
        for pod in objects.pods
        if pod.status.get("nominatedNodeName") and not pod.node_name and not is_finished(pod)
    )
    return Scheduler(nodes, bound, namespaces, nominated)
