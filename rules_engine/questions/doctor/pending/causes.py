"""The causes for which no node can run a pod, in the order in which they must go."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rules_engine.accelerators.resources import is_gpu
from rules_engine.cluster.nodes import NodeSet, numbers_of, union
from rules_engine.cluster.scheduling import Filter, Scheduling
from rules_engine.cluster.scheduling.amounts import PODS
from rules_engine.cluster.scheduling.obstacles import Obstacle, Stage, find_candidates
from rules_engine.cluster.scheduling.requirements import Requirements
from rules_engine.cluster.scheduling.scheduling import TAINTED
from rules_engine.cluster.state_taints import state_of
from rules_engine.model.kubernetes.cluster import Taint
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.wording import MAX_JOINED, format_amount, format_count, join_names
from rules_engine.questions.doctor.holders import Holders
from rules_engine.questions.doctor.pending.devices import explain_taken, explain_unserved
from rules_engine.questions.doctor.pending.nodes import PendingNodes
from rules_engine.questions.doctor.pending.request import PendingExplanation, PendingRequest
from rules_engine.questions.doctor.pending.unoffered import explain_absent_gpus, explain_too_many_gpus
from rules_engine.questions.doctor.reasons import PendingReason

_STATES: Mapping[str, str] = {
    PendingReason.CORDON: "cordons",
    PendingReason.NOT_READY: "the condition Ready",
    PendingReason.UNDER_PRESSURE: "pressure",
    PendingReason.BEING_REMOVED: "their removal",
    PendingReason.NOT_INITIALIZED: "their initialization",
}
"""Reasons for the states of nodes, with words for what excludes a pod."""

EXCLUDED = frozenset(
    {PendingReason.TAINT, PendingReason.SELECTOR_OR_AFFINITY, PendingReason.VOLUME_ELSEWHERE, *_STATES}
)
"""Reasons for which nodes with the GPUs of a pod repel or exclude it."""

_FITS = (Filter.NODE_RESOURCES_FIT, Filter.DYNAMIC_RESOURCES)
_REQUIREMENTS = {
    Filter.NODE_AFFINITY: "its node selector or affinity",
    Filter.VOLUME_BINDING: "its volumes",
    Filter.POD_TOPOLOGY_SPREAD: "the label of its topology spread constraints",
}

_REASONS = {
    Filter.VOLUME_BINDING: PendingReason.VOLUME_ELSEWHERE,
    Filter.POD_TOPOLOGY_SPREAD: PendingReason.OTHER_FILTERS,
}
"""Reasons for which these filters exclude nodes whatever ends."""

MAX_NODES = 20
"""Nodes on which it is found out what remains when GPU pods end, in a millisecond each."""


class NodeCauses:
    """The causes for which no node can run a pod.

    `room`: the nodes that can run it, or that it needs the fewest changes to run on.
    """

    def __init__(
        self, request: PendingRequest, pod: Requirements, answer: Scheduling, view: PendingNodes, holders: Holders
    ) -> None:
        self._request = request
        self._pod = pod
        self._answer = answer
        self._view = view
        self._holders = holders
        self.obstacles = view.search.find(pod, answer)
        # The controller of a DaemonSet pins each pod to a node.
        every = answer.by_name or view.every
        # Nodes with fewer GPUs than requested count only if no node has enough: then those with the most.
        most = {name: view.largest(name, every, free=False)[0] for name in request.gpus if every}
        enough = {name: view.offering(name, min(request.gpus[name], have)) for name, have in most.items()}
        self._own, self.room, self._alike = find_candidates(self.obstacles, every, enough)
        self.held_by_others = all(each.stage is Stage.OTHERS for each in self._own)
        """True if only other pods keep the pod off the nodes of `room`."""

    @property
    def repairable(self) -> NodeSet:
        """The nodes that could run the pod if they had enough GPUs, and a good state."""
        states = (PendingReason.NOT_READY, PendingReason.UNDER_PRESSURE)
        solved = {each for each in self.obstacles if self._is_gpu(each) or each.what in states}
        return self._having(solved.__contains__) & ~self._having(lambda each: each not in solved)

    def explain_rejected(self) -> Iterator[PendingExplanation]:
        """Yield a cause if the scheduler looks at no node, since a volume claim of the pod is missing or not bound."""
        rejected = self._answer.rejected
        claims = [each.claim.partition("/")[2] for each in self._pod.volumes if each.otherwise == rejected]
        if claims:
            slots = {"claims": [each or "of an ephemeral volume" for each in claims], "claim": claims[0]}
            yield PendingExplanation(reason=PendingReason.VOLUME_CLAIMS, slots=slots, evidence=(rejected,))

    def explain(self) -> Iterator[PendingExplanation]:
        """Yield the causes in their order."""
        request, view = self._request, self._view
        gpus, others = self._lacking(Stage.CHANGE)
        absent = [name for name in (gpus if view.every else request.gpus) if not view.has(name)]
        if absent:
            yield explain_unserved(absent, view.drivers) or explain_absent_gpus(absent, view)
        if larger := {name: request.gpus[name] for name in gpus if name not in absent}:
            yield explain_taken(explain_too_many_gpus(larger, view), view.every, view.drivers)
        absent = [name for name in others if name != PODS and not view.has(name)]
        if absent:
            yield self._cause(PendingReason.OTHER_ON_NO_NODE, resources=absent)
        if too_large := [name for name in others if name not in absent]:
            yield self._explain_others(too_large, "Never")
        excluding = {each.filter for each in self._own if each.stage is Stage.CHANGE}
        if Filter.NODE_AFFINITY in excluding:
            yield self._explain_mismatch()
        if Filter.TAINT_TOLERATION in excluding:
            taints = self._taints(self.room)
            yield self._cause(PendingReason.TAINT, self._taint_lines(taints), taints=[each.text for each in taints])
        for name, reason in _REASONS.items():
            if name in excluding and self._answer.rejected not in self._answer.excluded[name]:
                yield self._explain_filters(reason, {name})
        states = dict.fromkeys(PendingReason(each.what) for each in self._own if each.stage is Stage.STATE)
        yield from map(self._explain_state, states)
        gpus, others = self._lacking(Stage.OTHERS)
        filters = {each.filter for each in self._own if each.stage is Stage.OTHERS} - {*_FITS}
        if gpus:
            yield self._explain_held(gpus)
            # Once their pods have ended, less remains.
            others, blocked = self._left_after(gpus, others, blocked=bool(filters))
            filters = filters if blocked else set()
        if others:
            yield self._explain_others(others)
        if filters:
            yield self._explain_filters(PendingReason.OTHER_FILTERS, filters)

    def _left_after(self, gpus: Sequence[str], others: Sequence[str], *, blocked: bool) -> tuple[list[str], bool]:
        """Return of which other resources nodes have too little, and if other pods are in the way, without GPU pods.

        `gpus`: the resources of these pods. `blocked`: pods are in the way. Of many nodes only the first count.
        """
        left = {*others}
        for number in numbers_of(self.room)[:MAX_NODES] if left or blocked else ():
            ended = self._view.pods_with((*gpus,), number)
            for name in [*left]:
                given = len(ended) * NANOS if name == PODS else sum(pod.get(name, 0) for pod in ended.values())
                most, free = self._view.amounts(name)[number]
                # A request beyond what the node has was a cause before.
                if free + given >= min(self._request.amounts.get(name, NANOS), most):
                    left.remove(name)
            find = partial(self._view.conflicts.find, self._pod, number)
            blocked = blocked and not (find() and not find(ended))
        return [name for name in others if name in left], blocked

    def _lacking(self, stage: Stage) -> tuple[list[str], list[str]]:
        """Return the GPU resources and the other ones of which the nodes of `room` have too little."""
        amounts, own = self._request.amounts, [each for each in self._own if each.stage is stage]
        names = {each.what for each in own if each.filter is Filter.NODE_RESOURCES_FIT}
        if any(each.filter is Filter.DYNAMIC_RESOURCES for each in own):
            served, free = [name for name in amounts if name in self._view.drivers.classes], stage is Stage.OTHERS
            short = [name for name in served if self._view.largest(name, self.room, free=free)[0] < amounts[name]]
            names.update(short or served)
        lacking = [name for name in (*amounts, PODS) if name in names]
        gpus = [name for name in lacking if name in self._request.gpus]
        return gpus, [name for name in lacking if name not in gpus]

    def _having(self, condition: Callable[[Obstacle], bool]) -> NodeSet:
        """Return the nodes with an obstacle for which a condition is true."""
        return union(nodes for each, nodes in self.obstacles.items() if condition(each))

    @property
    def _offering(self) -> NodeSet:
        """The nodes that have all GPUs that the pod requests, held by others or not."""
        return self._view.every & ~self._having(lambda each: each.stage is Stage.CHANGE and self._is_gpu(each))

    def _is_gpu(self, obstacle: Obstacle) -> bool:
        return obstacle.what in self._request.gpus or obstacle.filter is Filter.DYNAMIC_RESOURCES

    def _steps(self) -> Iterator[str]:
        """Yield a line about the nodes that offer the GPUs, and one for each obstacle that excludes some of them."""
        view, offering = self._view, self._offering
        if not offering:
            return
        yield f"nodes that offer {self._request.text}: {view.list(offering)}"
        left = offering & ~self._alike
        for obstacle, nodes in self.obstacles.items():
            if obstacle.stage is not Stage.OTHERS and (excluded := nodes & left):
                what = _REQUIREMENTS.get(obstacle.filter, f"too little {obstacle.what}")
                if obstacle.filter is Filter.TAINT_TOLERATION:
                    what = _STATES.get(obstacle.what, "taints that the pod does not tolerate")
                yield f"excluded by {what}: {view.list(excluded)}"
                left &= ~excluded

    def _taints(self, among: NodeSet, reason: str = "") -> Mapping[Taint, NodeSet]:
        """Return the untolerated taints on nodes: those that report no state, or a state of a reason."""
        repelling = self._view.scheduler.taints.repelling(self._pod.placement.tolerations)
        return {
            taint: nodes & among
            for taint, nodes in repelling.items()
            if nodes & among
            if (state.reason if (state := state_of(taint.key)) else "") == reason
        }

    def _taint_lines(self, taints: Mapping[Taint, NodeSet]) -> Iterator[str]:
        return (f"{taint.text} on {self._view.list(nodes)}" for taint, nodes in taints.items())

    def _cause(
        self, reason: PendingReason, lines: Iterable[str] = (), case: str = "", **slots: str | Sequence[str]
    ) -> PendingExplanation:
        """Return a cause with the slots that most reasons have, and evidence of what excludes nodes before it."""
        nodes = {"nodes": self._view.list(self.room), "node": self._view.names(self.room)[0]}
        return PendingExplanation(
            reason=reason,
            case=case,
            slots={"request": self._request.text, **nodes, **slots},
            evidence=(*self._steps(), *lines),
        )

    def _explain_mismatch(self) -> PendingExplanation:
        selected = ~self._having(lambda each: each.filter is Filter.NODE_AFFINITY)
        tainted = self._having(lambda each: each.what == TAINTED) & self._offering
        # Taints of the nodes of `room` are a cause of their own.
        taints = {} if tainted & self.room else self._taints(tainted & selected)
        lines = (f"nodes that match have the taint {each.text}: {self._view.list(taints[each])}" for each in taints)
        return self._cause(
            PendingReason.SELECTOR_OR_AFFINITY,
            (*self._mismatch_lines(), *lines),
            "Untainted" if tainted & ~self.room else "",
            taints=[each.text for each in taints],
        )

    def _mismatch_lines(self) -> Iterator[str]:
        view, placement, excluded = self._view, self._pod.placement, self.room
        for key, value in placement.node_selector[:MAX_JOINED]:
            matched = view.with_label(key, value) & excluded
            if matched != excluded:
                values = [f"{key}={other}" for other in view.values_of(key, excluded)]
                labels = join_names(values) or "no such label"
                yield f"node selector {key}={value}: {_match_count(matched, excluded)}; they have {labels}"
        if placement.terms is not None:
            matched = view.scheduler.selected((), placement.terms) & excluded
            if matched != excluded:
                terms = [
                    ", ".join(f"{each.key} {each.operator} {join_names(each.values)}".rstrip() for each in requirements)
                    for term in placement.terms[:MAX_JOINED]
                    for requirements in [(*term.expressions, *term.fields)]
                ]
                yield f"required node affinity {' or '.join(terms)}: {_match_count(matched, excluded)}"

    def _explain_state(self, reason: PendingReason) -> PendingExplanation:
        view, taints = self._view, self._taints(self.room, reason)
        untainted = view.search.untainted & self.room if reason is PendingReason.NOT_READY else 0
        lines = [*self._taint_lines(taints)]
        if untainted:
            lines.append(f"no taint for NotReady on {view.list(untainted)}, whose condition Ready is not True")
        return self._cause(reason, lines, states=[*view.states(taints, self.room)])

    def _explain_others(self, lacking: Sequence[str], case: str = "") -> PendingExplanation:
        view, nodes = self._view, format_count(self.room.bit_count(), "node")
        resources = [name for name in lacking if name != PODS]
        evidence = []
        for name in resources:
            most, best = view.largest(name, self.room, free=not case)
            requested = format_amount(name, self._request.amounts[name])
            of = f"a node has at most {format_amount(name, most)} beside its DaemonSets ({best})"
            if not case:
                of = f"free on 0 of {nodes}; at most {format_amount(name, most)} on one ({best})"
            evidence.append(f"{name}: {requested} requested, {of}")
        return self._cause(
            PendingReason.OTHER_RESOURCES,
            evidence,
            case,
            lacking=["room for pods" if name == PODS else name for name in lacking],
            nodes=nodes,
            resources=resources,
        )

    def _explain_held(self, gpus: Sequence[str]) -> PendingExplanation:
        """Explain GPUs that other pods hold on the nodes that the pod could use."""
        view, requested = self._view, self._request.gpus
        nodes = self._alike & self._having(lambda each: each.stage is Stage.OTHERS and self._is_gpu(each))
        short = [name for name in gpus if view.total(name, nodes) < requested[name]]
        names, reason, case, shown = short or gpus, PendingReason.ALL_ALLOCATED, "", view.names(nodes)
        if not short:
            reason, best = PendingReason.ON_NO_SINGLE_NODE, view.least_lacking(requested, gpus, nodes)
            shown = (view.scheduler.nodes[best].name,)
        elif not any(view.total(name, nodes) for name in short):
            case = "NoneFree"
        others = view.resources(nodes, free=True) if short else {}
        spare = [f"{format_amount(name, others[name])} {name}" for name in others if is_gpu(name) and name not in short]
        lines = (
            *(self._amount_line(name, nodes) for name in names),
            *(line for name in names for line in self._holders.evidence(name, shown)),
            *([f"free on these nodes: {', '.join(spare)}"] if spare else ()),
        )
        count = format_count(nodes.bit_count(), "node")
        explanation = self._cause(reason, lines, case, resources=names, nodes=count, node=shown[0])
        return explain_taken(replace(explanation, missing=tuple(names)), nodes, view.drivers)

    def _amount_line(self, name: str, nodes: NodeSet) -> str:
        view = self._view
        most, best = view.largest(name, nodes)
        allocatable, free = view.total(name, nodes, free=False), view.total(name, nodes)
        return (
            f"{name}: {format_amount(name, self._request.gpus[name])} requested; of "
            f"{format_amount(name, allocatable)} on {format_count(nodes.bit_count(), 'node')}, "
            f"{format_amount(name, free)} are free, at most {format_amount(name, most)} on one node ({best})"
        )

    def _explain_filters(self, reason: PendingReason, filters: Collection[Filter]) -> PendingExplanation:
        """Explain obstacles of other filters, with the pods that are in the way."""
        excluding = [
            (name, why if why == self._answer.rejected else f"{nodes.bit_count()} {why}")
            for name, by_reason in self._answer.excluded.items()
            if name in filters
            for why, excluded in by_reason.items()
            if (nodes := excluded & self.room)
        ]
        constraints = [
            f"topology spread constraint: maxSkew {each.max_skew} over {each.topology_key}, "
            f"of pods with {each.selector}"
            for each in self._pod.spread
        ]
        volumes = [
            f"the volume of claim {name} is on {self._view.list(nodes) or 'no node of the cluster'}"
            for each in self._pod.volumes
            for name in [each.claim.partition("/")[2]]
            for nodes in [union(self._view.scheduler.selected((), terms) for _, terms in each.candidates)]
        ]
        first = numbers_of(self.room)[0]
        names = self._view.conflicts.find(self._pod, first)
        return self._cause(
            reason,
            (
                *(constraints if Filter.POD_TOPOLOGY_SPREAD in filters else ()),
                *(volumes if Filter.VOLUME_BINDING in filters else ()),
                *([f"in its way on {self._view.scheduler.nodes[first].name}: {join_names(names)}"] if names else ()),
            ),
            exclusions=[count for _, count in excluding],
            filters=[*dict.fromkeys(name for name, _ in excluding)],
        )


def _match_count(matched: NodeSet, excluded: NodeSet) -> str:
    return f"matches {matched.bit_count()} of {excluded.bit_count()}"
