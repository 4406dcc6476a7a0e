"""Obstacles: all reasons why each node cannot run a pod, in the order in which they have to be removed."""

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property, lru_cache

from msgspec import Struct

from rules_engine.cluster.nodes import NodeSet, Tolerated, node_set, union
from rules_engine.cluster.scheduling.requirements import NOT_READY, UNREACHABLE, Requirements
from rules_engine.cluster.scheduling.scheduler import KubeScheduler
from rules_engine.cluster.scheduling.scheduling import NO_DEVICES, NO_TOPOLOGY, TAINTED, Filter, Scheduling
from rules_engine.cluster.state_taints import state_of
from rules_engine.model.kubernetes.cluster import Taint

CACHED_RESOURCES = 1_000
"""Resources whose nodes are cached: pods of a cluster request some dozens."""


class Stage(IntEnum):
    """Stage of an obstacle, in the order in which obstacles have to be removed.

    LACKING: the node has too few GPUs, which counts before all else; CHANGE: the obstacle stays if all pods end, so
    the pod or the node has to change; STATE: a state of the node has to end; OTHERS: other pods have to end or start.
    """

    LACKING = 0
    CHANGE = 1
    STATE = 2
    OTHERS = 3


class Obstacle(Struct, frozen=True):
    """Reason why a node cannot run a pod: `what` is a resource, the reason of a finding, or one of the scheduler."""

    stage: Stage
    filter: Filter
    what: str


class ObstacleSearch:
    """The search for the obstacles of pods on the nodes of a scheduler.

    `lasting`: the scheduler of the same nodes with only the pods that never end.
    """

    def __init__(self, scheduler: KubeScheduler, lasting: KubeScheduler) -> None:
        self._scheduler = scheduler
        self._lasting = lasting
        self._held = lru_cache(CACHED_RESOURCES)(self._find_held)

    @cached_property
    def untainted(self) -> NodeSet:
        """The nodes that are not Ready and have no taint for it yet: the scheduler may still choose them."""
        keys = {NOT_READY, UNREACHABLE}
        nodes = enumerate(self._scheduler.nodes)
        return node_set(
            [number for number, node in nodes if not (node.ready or keys & {each.key for each in node.taints})]
        )

    def find(self, pod: Requirements, answer: Scheduling) -> Mapping[Obstacle, NodeSet]:
        """Return the obstacles of a pod in the order of stages, each with its nodes; `answer`: the scheduler's."""
        found: dict[Obstacle, NodeSet] = {}

        def add(stage: Stage, name: Filter, what: str, nodes: NodeSet) -> None:
            if nodes:
                obstacle = Obstacle(stage, name, what)
                found[obstacle] = found.get(obstacle, 0) | nodes

        never = self._lasting.insufficient_nodes(pod)
        for resource, nodes in self._scheduler.insufficient_nodes(pod).items():
            add(Stage.CHANGE, Filter.NODE_RESOURCES_FIT, resource, never[resource])
            # Of a smaller request, too, others may hold some.
            held = nodes & (~never[resource] | self._held(resource))
            add(Stage.OTHERS, Filter.NODE_RESOURCES_FIT, resource, held)
        lacking = answer.every & ~self._scheduler.devices.having(pod, answer.every)
        never_free = lacking & ~self._lasting.devices.having(pod, lacking)
        add(Stage.CHANGE, Filter.DYNAMIC_RESOURCES, NO_DEVICES, never_free)
        add(Stage.OTHERS, Filter.DYNAMIC_RESOURCES, NO_DEVICES, lacking & ~never_free)
        for why, nodes in answer.excluded.get(Filter.NODE_AFFINITY, {}).items():
            add(Stage.CHANGE, Filter.NODE_AFFINITY, why, nodes)
        tolerations, cordoned = pod.placement.tolerations, answer.excluded.get(Filter.NODE_UNSCHEDULABLE, {})
        repelling = dict(self._scheduler.taints.repelling(tolerations))
        not_ready = Taint(key=NOT_READY, effect="NoSchedule")
        if not Tolerated(tolerations).includes(not_ready):
            repelling[not_ready] = repelling.get(not_ready, 0) | self.untainted
        for taint, nodes in repelling.items():
            state = state_of(taint.key)
            stage, what = (Stage.CHANGE, TAINTED) if state is None else (Stage.STATE, state.reason)
            add(stage, Filter.TAINT_TOLERATION, what, nodes)
        for nodes in cordoned.values():
            add(Stage.STATE, Filter.TAINT_TOLERATION, "NodesCordoned", nodes)
        others = (Filter.VOLUME_BINDING, Filter.POD_TOPOLOGY_SPREAD, Filter.NODE_PORTS, Filter.INTER_POD_AFFINITY)
        for name in others:
            for why, nodes in answer.excluded.get(name, {}).items():
                stays = name is Filter.VOLUME_BINDING or why == NO_TOPOLOGY
                add(Stage.CHANGE if stays else Stage.OTHERS, name, why, nodes)
        return dict(sorted(found.items(), key=lambda item: item[0].stage))

    def _find_held(self, resource: str) -> NodeSet:
        """Return the nodes of whose amount of a resource pods hold a part that end some time."""
        numbers = range(len(self._scheduler.nodes))
        free, lasting = self._scheduler.free, self._lasting.free
        return node_set([each for each in numbers if max(free(each, resource), 0) < lasting(each, resource)])


def find_candidates(
    obstacles: Mapping[Obstacle, NodeSet], every: NodeSet, offering: Mapping[str, NodeSet]
) -> tuple[tuple[Obstacle, ...], NodeSet, NodeSet]:
    """Return the fewest obstacles of the first stages that nodes have, of equal ones those whose GPUs are free.

    They come with the nodes that have them, and with those that have them apart from those of the stage OTHERS.
    `obstacles`: of a pod, in order. `offering`: the nodes that have each GPU resource of the pod, which come first.
    """
    lacking = {Obstacle(Stage.LACKING, Filter.NODE_RESOURCES_FIT, name): every & ~offering[name] for name in offering}
    groups: dict[tuple[Obstacle, ...], NodeSet] = {(): every} if every else {}
    for obstacle, excluded in (*lacking.items(), *obstacles.items()):
        parts = [(own, nodes & ~excluded) for own, nodes in groups.items()]
        parts += [((*own, obstacle), nodes & excluded) for own, nodes in groups.items()]
        groups = {own: nodes for own, nodes in parts if nodes}

    def rank(own: tuple[Obstacle, ...]) -> tuple[int, ...]:
        counts = Counter(each.stage for each in own)
        held = sum(each.what in offering or each.filter is Filter.DYNAMIC_RESOURCES for each in own)
        return (*(counts[stage] for stage in Stage), held, -groups[own].bit_count())

    def before_others(own: tuple[Obstacle, ...]) -> list[Obstacle]:
        return [each for each in own if each.stage is not Stage.OTHERS]

    best = min(groups, key=rank, default=())
    alike = union(nodes for own, nodes in groups.items() if before_others(own) == before_others(best))
    return tuple(each for each in best if each not in lacking), groups.get(best, 0), alike
