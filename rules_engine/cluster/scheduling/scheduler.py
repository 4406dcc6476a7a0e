"""Model of kube-scheduler's filters on the nodes and bound pods of a cluster.

Source: Kubernetes 1.36, pkg/scheduler (schedule_one.go, framework/plugins). Of the filters for volumes only
VolumeBinding is modelled, for claims that were looked up; nominated pods, extenders and other profiles than the
default one are not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from heapq import nlargest
from typing import Final

from rules_engine.cluster.nodes import NodeSet, node_index_with_places, node_set, select_nodes, union
from rules_engine.cluster.scheduling import scheduling as reasons
from rules_engine.cluster.scheduling.amounts import PODS
from rules_engine.cluster.scheduling.filters import pod_affinity
from rules_engine.cluster.scheduling.filters.bound_pods import BoundPods
from rules_engine.cluster.scheduling.filters.devices import STEPS_EXCEEDED, DevicesError, DeviceUse
from rules_engine.cluster.scheduling.filters.spread import exclude_by_spread
from rules_engine.cluster.scheduling.filters.taints import Taints
from rules_engine.cluster.scheduling.filters.topologies import Topologies
from rules_engine.cluster.scheduling.filters.usage import Ports, Usage
from rules_engine.cluster.scheduling.filters.volumes import Volumes
from rules_engine.cluster.scheduling.requirements import Footprint, Requirements, priority_of
from rules_engine.cluster.scheduling.scheduling import Excluded, Filter, Scheduling
from rules_engine.language.cel import Budget
from rules_engine.model.json.lenient import Object, as_mapping, as_string_map, controller_reference, text_member
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.kubernetes.devices import NO_DEVICES, Devices
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.model.kubernetes.placement import Placement
from rules_engine.model.kubernetes.pod import is_finished

NOMINATED = "pods that are nominated to nodes"
MANY_STEPS = "requests for devices that take many steps to allocate"
NAMESPACE_SELECTORS = "namespace selectors, since no namespaces were read"

CACHED_SELECTIONS = 1_000
"""Selectors with required node affinity whose nodes are cached: a kilobyte each with 5,000 nodes."""

CACHED_TALLIES = 64
"""Numbers of pods by domain that are cached: each has an item for each node at most."""

MAX_COMPARISONS = 20_000_000
"""Labels of bound pods that are compared with topology spread and pod affinity, for all pods: some 20 seconds."""

_COMPARED: Final = "topology spread and pod affinity"


class KubeScheduler:
    """The filters on the state of a cluster: its nodes, and the pods that are bound to them."""

    def __init__(
        self,
        nodes: Sequence[Node],
        namespaces: Mapping[str, Mapping[str, str]] | None,
        bound: Callable[[], Iterable[tuple[int, Footprint]]] = tuple,
        nominated: Iterable[PodObject] = (),
        *,
        devices: Devices = NO_DEVICES,
        comparisons: int | None = None,
        tallies: int = CACHED_TALLIES,
    ) -> None:
        """Take the nodes, the labels of namespaces, if known, and the pods that are bound, with their nodes' numbers.

        `bound` is called once, and again by the first answer that needs labels. `nominated`: unbound pods for which the
        scheduler makes room on a node; an answer says if they may change it. `devices`: what drivers offer.
        `comparisons`: the comparison budget per answer; None: all answers share MAX_COMPARISONS. `tallies`: numbers of
        pods by domain that are cached.
        """
        self._nodes = [*nodes]
        self._names = tuple([node.name for node in nodes])
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self.index = node_index_with_places(Cluster(nodes=tuple(nodes)))
        self.topologies = Topologies(self.index.places.labels, [node.labels for node in nodes])
        self.taints = Taints(nodes)
        self.selected = lru_cache(CACHED_SELECTIONS)(partial(select_nodes, self.index))
        """Return the nodes that a nodeSelector and terms of node affinity select."""
        self.devices = DeviceUse(devices, nodes, partial(self.selected, ()))
        # NodeResourcesFit leaves to DynamicResources what drivers serve.
        self._usage = Usage([*map(self.devices.without_served, nodes)])
        self._ports = Ports()
        self.namespaces = pod_affinity.Namespaces(namespaces)
        self._each = comparisons is not None
        self._budget = Budget(MAX_COMPARISONS if comparisons is None else comparisons, _COMPARED)
        self._repelling = pod_affinity.BoundTerms(self.topologies, self._budget)
        self._bound = bound
        self._tallies = tallies
        # Without the labels of pods, which `pods` indexes once an answer needs them.
        for number, pod in bound():
            self._count(number, pod, 1)
        ranked = nlargest(2, ((priority_of(pod.spec), pod.namespace, pod.name) for pod in nominated))
        self._nominated = [(priority, namespace or DEFAULT_NAMESPACE, name) for priority, namespace, name in ranked]
        """The two of the highest priority: one of them may be the pod in question."""
        self._volumes = Volumes(partial(self.selected, ()))
        self.allowed = lru_cache(CACHED_SELECTIONS)(self._find_allowed)
        """Return the nodes whose names, labels, taints and cordons a placement allows."""

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes by number."""
        return self._nodes

    @property
    def full(self) -> NodeSet:
        """The nodes that have no room for one more pod, whatever it requests."""
        return self._usage.full

    @cached_property
    def pods(self) -> BoundPods:
        """The pods that are bound."""
        # On first use, since few pods have constraints that read the others.
        return BoundPods(self._bound(), self.topologies, self._budget, self._tallies)

    def bind(self, number: int, pod: Footprint) -> None:
        """Add a pod to a node. It is not compared with the filters."""
        self.pods.count(number, pod, 1)
        self._count(number, pod, 1)
        self._volumes.bind(number, pod)

    def release(self, number: int, pod: Footprint) -> None:
        """Remove a pod from its node: undo a `bind`."""
        self.pods.count(number, pod, -1)
        self._count(number, pod, -1)
        self._volumes.release(number, pod)

    def _count(self, number: int, pod: Footprint, sign: int) -> None:
        self._usage.count(number, pod.requests, sign)
        self._ports.count(number, pod.ports, sign)
        for term in pod.anti_affinity:
            self._repelling.add(number, term, 1, sign)

    def change_node(self, number: int, node: Node) -> None:
        """Replace a node by one with other taints, another cordon or other amounts; its name and labels stay."""
        old = self._nodes[number]
        if (node.name, node.labels) != (old.name, old.labels):
            raise ValueError(f"the name and the labels of node {old.name} cannot change")
        self._nodes[number] = node
        self.taints.change_node(number, old, node)
        self._usage.change_node(number, self.devices.without_served(old), self.devices.without_served(node))
        if node.allocatable != old.allocatable:
            self.devices.change_node(number, node)
        self.allowed.cache_clear()

    def free(self, number: int, resource: str) -> int:
        """Return the amount of a resource left on a node, in the scheduler's units; `pods`: the pods that fit."""
        return self._usage.free(number, resource)

    def explain(self, pod: Object) -> Scheduling:
        """Return the answer for an unbound pod.

        Raises PodError if it is malformed, TooLargeError if its placement exceeds the bounds of one, and CostExceeded
        if no more labels may be compared.
        """
        metadata = as_mapping(pod.get("metadata"))
        return self.answer(Requirements.of(pod), text_member(metadata, "name"))

    def feasible(self, pod: Requirements) -> NodeSet:
        """Return the nodes that pass all filters. Raises CostExceeded and DevicesError."""
        nodes = self.feasible_without_devices(pod)
        for excluded in self.devices.exclude(pod, nodes).values():
            nodes &= ~excluded
        return nodes

    def feasible_without_devices(self, pod: Requirements) -> NodeSet:
        """Return the nodes that pass all filters but DynamicResources. Raises CostExceeded."""
        self._grant()
        by_reason = (self.insufficient_nodes(pod), self._spread_exclusions(pod), self._inter_pod_exclusions(pod))
        excluded = _union_of((*by_reason, self._volumes.exclude(pod, self.index.every)))
        return self.allowed(pod.placement) & ~(excluded | self._ports.taken(pod.ports))

    def _grant(self) -> None:
        if self._each:
            self._budget.left = self._budget.limit
            self.devices.budget.left = self.devices.budget.limit

    def _find_allowed(self, placement: Placement) -> NodeSet:
        """Return the nodes whose names, labels, taints and cordons a placement allows."""
        untolerated = self.taints.untolerated(placement.tolerations)
        nodes = self.selected(placement.node_selector, placement.terms) & ~(untolerated.every | untolerated.cordoned)
        return nodes & self._nodes_named((placement.node_name,)) if placement.node_name else nodes

    def _spread_exclusions(self, pod: Requirements) -> Excluded:
        if not pod.spread:
            return {}
        placement = pod.placement
        return exclude_by_spread(
            pod,
            self.pods,
            self.topologies,
            self.index.every,
            selected=self.selected(placement.node_selector, placement.terms),
            repelled=self.taints.untolerated(placement.tolerations).every,
        )

    def answer(self, pod: Requirements, name: str = "") -> Scheduling:
        """Return the answer for a pod's requirements; `name`: the name of a pod that may be nominated.

        Raises CostExceeded.
        """
        self._grant()
        every, placement = self.index.every, pod.placement
        untolerated = self.taints.untolerated(placement.tolerations)
        selected = self.selected(placement.node_selector, placement.terms)
        fit = self.insufficient_nodes(pod)
        # Each filter is applied to all nodes, also to nodes that another filter excludes: a diagnosis then knows which
        # filters alone keep the pod from a node.
        excluded: dict[Filter, Excluded] = {
            Filter.NODE_UNSCHEDULABLE: {reasons.UNSCHEDULABLE: untolerated.cordoned},
            Filter.NODE_NAME: {
                reasons.OTHER_NAME: every & ~self._nodes_named((placement.node_name,)) if placement.node_name else 0
            },
            Filter.TAINT_TOLERATION: {reasons.TAINTED: untolerated.every},
            Filter.NODE_AFFINITY: {reasons.NOT_SELECTED: every & ~selected},
            Filter.NODE_PORTS: {reasons.PORTS_TAKEN: self._ports.taken(pod.ports)},
            Filter.NODE_RESOURCES_FIT: {resource_reason(resource): nodes for resource, nodes in fit.items()},
            Filter.VOLUME_BINDING: self._volumes.exclude(pod, every),
            Filter.POD_TOPOLOGY_SPREAD: self._spread_exclusions(pod),
            Filter.INTER_POD_AFFINITY: self._inter_pod_exclusions(pod),
        }
        excluded = {
            name: non_empty
            for name, by_reason in excluded.items()
            if (non_empty := {why: nodes for why, nodes in by_reason.items() if nodes})
        }
        failure = ""
        # DynamicResources comes last: an error on a node that another filter excludes must not end the attempt.
        try:
            if without_devices := self.devices.exclude(pod, every & ~_union_of(excluded.values())):
                excluded[Filter.DYNAMIC_RESOURCES] = without_devices
        except DevicesError as error:
            failure = str(error)
        others = [by_reason for name, by_reason in excluded.items() if name is not Filter.NODE_RESOURCES_FIT]
        unbound = (why for why in excluded.get(Filter.VOLUME_BINDING, ()) if why not in reasons.VOLUME_NODE_REASONS)
        return Scheduling(
            nodes=self._names,
            excluded=excluded,
            failure=failure,
            rejected=reasons.CONFLICT if pod.node_names == frozenset() else next(unbound, self.devices.rejection(pod)),
            by_name=self._nodes_named(pod.node_names) if pod.node_names else None,
            waiting_for=_resources_waited_for(fit, every & ~_union_of(others)),
            not_modelled=(*pod.not_modelled, *self._not_modelled(pod, name, failure)),
        )

    def _nodes_named(self, names: Iterable[str]) -> NodeSet:
        return node_set([self._numbers[name] for name in names if name in self._numbers])

    def insufficient_nodes(self, pod: Requirements) -> Mapping[str, NodeSet]:
        """Return the nodes without enough of each resource that the pod requests; `pods`: the full nodes."""
        nodes = {PODS: self.full}
        for resource, amount in pod.requests.items():
            if amount > 0:
                nodes[resource] = self._usage.below(resource, amount)
        return nodes

    def _inter_pod_exclusions(self, pod: Requirements) -> Excluded:
        """Return the nodes that pod affinity excludes; of its three parts the first that excludes a node decides."""
        topologies, includes, unmatched = self.topologies, self.namespaces.includes, 0
        if pod.affinity:
            unmatched = pod_affinity.exclude_by_affinity(pod, self.pods, self.namespaces, topologies, self.index.every)
        affine = ((pod_affinity.AffinePods((term,), self.namespaces), term.topology_key) for term in pod.anti_affinity)
        near = union([each.nodes(self.pods, topologies, key) for each, key in affine]) & ~unmatched
        bound = [each for each in self._repelling.matching(pod.labels) if includes(each.term, pod.namespace)]
        return {
            reasons.NO_AFFINE_POD: unmatched,
            reasons.OWN_ANTI_AFFINITY: near,
            reasons.EXISTING_ANTI_AFFINITY: union([each.domains.nodes for each in bound]) & ~(unmatched | near),
        }

    def _not_modelled(self, pod: Requirements, name: str, failure: str) -> Iterator[str]:
        yield from self.devices.not_modelled(pod)
        if failure.endswith(STEPS_EXCEEDED):
            yield MANY_STEPS
        if any(
            priority >= pod.priority and (namespace, other) != (pod.namespace, name)
            for priority, namespace, other in self._nominated
        ):
            yield NOMINATED
        if not self.namespaces.known:
            bound = [each.term for each in self._repelling.matching(pod.labels)]
            if any(term.namespace_selector for term in (*pod.affinity, *pod.anti_affinity, *bound)):
                yield NAMESPACE_SELECTORS


def resource_reason(resource: str) -> str:
    """Return the reason why a node with too little of a resource is excluded; `pods`: the reason for a full node."""
    return reasons.TOO_MANY_PODS if resource == PODS else f"Insufficient {resource}"


def _union_of(excluded: Iterable[Excluded]) -> NodeSet:
    return union([nodes for by_reason in excluded for nodes in by_reason.values()])


def _resources_waited_for(insufficient: Mapping[str, NodeSet], allowed: NodeSet) -> tuple[str, ...]:
    """Return the resources that keep a pod from all allowed nodes: each one alone, or else all of them together."""
    left = allowed
    for nodes in insufficient.values():
        left &= ~nodes
    if left or not allowed:
        return ()
    alone = tuple([resource for resource, nodes in insufficient.items() if not allowed & ~nodes])
    return alone or tuple([resource for resource, nodes in insufficient.items() if allowed & nodes])


_VIEW: Final = "scheduler"

_LASTING_OWNERS = ("DaemonSet", "Node")
"""Kinds of the controllers of pods that never end: the others are the kubelet's own pods."""


def use_scheduler(objects: ClusterObjects, scheduler: KubeScheduler) -> None:
    """Cache a scheduler for a cluster's objects: it has their nodes and bound pods."""
    objects.views[_VIEW] = scheduler


def scheduler_of(objects: ClusterObjects) -> KubeScheduler:
    """Return the scheduler of a cluster's objects, built once: building takes a second for 100,000 pods."""
    scheduler = objects.views.get(_VIEW)
    if not isinstance(scheduler, KubeScheduler):
        scheduler = objects.views[_VIEW] = make_scheduler(objects)
    return scheduler


def never_ends(pod: PodObject) -> bool:
    """Return True for a pod of a DaemonSet or of a kubelet that is not being deleted: it lasts as long as its node."""
    lasts = text_member(controller_reference(pod) or {}, "kind") in _LASTING_OWNERS
    return lasts and pod.metadata.get("deletionTimestamp") is None


def make_scheduler(objects: ClusterObjects, *, lasting: bool = False) -> KubeScheduler:
    """Return a scheduler of a cluster's nodes and pods; `lasting`: as if all pods had ended that end some time."""
    namespaces = None
    if "Namespace" not in objects.absent:
        namespaces = {
            namespace.name: as_string_map(namespace.metadata.get("labels")) for namespace in objects.of("Namespace")
        }
    nodes = objects.view.nodes
    numbers = {node.name: number for number, node in enumerate(nodes)}
    nominated = (
        pod
        for pod in objects.pods
        if pod.status.get("nominatedNodeName") and not pod.node_name and not is_finished(pod)
    )

    def bound() -> Iterator[tuple[int, Footprint]]:
        return (
            (number, Footprint.read(pod))
            for name, number in numbers.items()
            for pod in objects.pods_on(name)
            if not lasting or never_ends(pod)
        )

    devices = objects.devices.unallocated if lasting else objects.devices
    return KubeScheduler(nodes, namespaces, bound, nominated, devices=devices)
