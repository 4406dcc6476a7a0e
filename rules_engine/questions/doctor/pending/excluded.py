"""Pods that nodes with enough GPUs repel or exclude: taints, selectors and affinity, cordons, NotReady."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.requirements import NOT_READY, UNREACHABLE, UNSCHEDULABLE
from rules_engine.model.kubernetes.cluster import Taint
from rules_engine.model.kubernetes.placement import NodeTerm
from rules_engine.model.rules.finding import Certainty
from rules_engine.model.wording import MAX_JOINED, join_names
from rules_engine.questions.doctor.pending.node_sets import NodeSets
from rules_engine.questions.doctor.pending.request import PendingExplanation, PendingRequest
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.rules.diagnostic import Slots

LIFECYCLE = (UNSCHEDULABLE, NOT_READY, UNREACHABLE)
"""Taints for cordoned nodes and for nodes that are not Ready, which have reasons of their own."""

EXCLUDED = frozenset(
    {PendingReason.TAINT, PendingReason.SELECTOR_OR_AFFINITY, PendingReason.CORDON, PendingReason.NOT_READY}
)
"""Reasons why nodes with the GPUs of a pod repel or exclude it."""

_Stage = tuple[Callable[[], NodeSet], Callable[["Exclusion", NodeSet], PendingExplanation], str]
"""The nodes that pass a stage, the explanation if no node passes, and words for the requirement."""


class Exclusion:
    """The nodes that remain for a request after each stage, and the explanation of the stage that leaves no node.

    `offering`: the nodes that offer the GPUs. `left`: the nodes that pass all stages so far. `steps`: a line for each
    stage that some nodes passed and others did not. `presumed`: True if an excluded node is not Ready but has no taint
    for that yet: the scheduler may still choose it.
    """

    def __init__(self, request: PendingRequest, sets: NodeSets, offering: NodeSet) -> None:
        self.offering = self.left = offering
        self.steps: tuple[str, ...] = (f"nodes that offer {request.text}: {_list_nodes(sets, offering)}",)
        self.explanation: PendingExplanation | None = None
        self.presumed = False
        self.request = request
        self.sets = sets
        placement = request.placement
        stages: tuple[_Stage, ...] = (
            (
                lambda: sets.nodes_tolerated_by(placement, *LIFECYCLE),
                _explain_taints,
                "taints that the pod does not tolerate",
            ),
            (lambda: sets.matching_nodes(placement), _explain_mismatch, "its node selector or affinity"),
            (lambda: sets.nodes_tolerated_by(placement, NOT_READY, UNREACHABLE), _explain_cordons, "cordons"),
            (lambda: sets.nodes_tolerated_by(placement), _explain_not_ready, "the condition Ready"),
        )
        for nodes_passing, explain, requirement in stages:
            passed = self.left & nodes_passing()
            if passed == self.left:
                continue
            excluded = self.left & ~passed
            if not passed:
                self.explanation = explain(self, excluded)
                return
            self.left = passed
            self.presumed = explain is _explain_not_ready and excluded & sets.presumed != 0
            self.steps = (*self.steps, f"excluded by {requirement}: {self.names(excluded)}")

    def names(self, nodes: NodeSet) -> str:
        """Return the first names of nodes, and the number of the others."""
        return _list_nodes(self.sets, nodes)

    def first(self, nodes: NodeSet) -> str:
        """Return the name of the first node."""
        return next(self.sets.names(nodes))


def _list_nodes(sets: NodeSets, nodes: NodeSet) -> str:
    return join_names([*islice(sets.names(nodes), MAX_JOINED)], of=nodes.bit_count())


def _explain_taints(exclusion: Exclusion, excluded: NodeSet) -> PendingExplanation:
    sets, placement = exclusion.sets, exclusion.request.placement
    taints = sets.repelling_taints(placement, excluded, *LIFECYCLE)
    texts = [taint_text(taint) for taint in taints]
    mismatch = not excluded & sets.matching_nodes(placement)
    return PendingExplanation(
        reason=PendingReason.TAINT,
        case="Mismatch" if mismatch else "",
        slots={"request": exclusion.request.text, "taints": texts, "node": exclusion.first(excluded)},
        evidence=(
            *exclusion.steps,
            *(f"{text} on {exclusion.names(nodes)}" for text, nodes in zip(texts, taints.values(), strict=True)),
            *(_mismatch_lines(exclusion, excluded) if mismatch else ()),
        ),
    )


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl prints it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _explain_mismatch(exclusion: Exclusion, excluded: NodeSet) -> PendingExplanation:
    sets, placement = exclusion.sets, exclusion.request.placement
    repelling_taints = sets.repelling_taints(placement, exclusion.offering & sets.matching_nodes(placement), *LIFECYCLE)
    taints = [taint_text(taint) for taint in repelling_taints]
    return PendingExplanation(
        reason=PendingReason.SELECTOR_OR_AFFINITY,
        case="Untainted" if len(exclusion.steps) > 1 else "",  # the stage of taints has excluded nodes
        slots={"request": exclusion.request.text, "taints": taints, "node": exclusion.first(excluded)},
        evidence=(
            *exclusion.steps,
            *_mismatch_lines(exclusion, excluded),
            *(
                f"nodes that match have the taint {taint}: {exclusion.names(nodes)}"
                for taint, nodes in zip(taints, repelling_taints.values(), strict=True)
            ),
        ),
    )


def _mismatch_lines(exclusion: Exclusion, excluded: NodeSet) -> Iterator[str]:
    sets, placement = exclusion.sets, exclusion.request.placement
    for key, value in placement.node_selector[:MAX_JOINED]:
        matched = sets.nodes_with_label(key, value) & excluded
        if matched == excluded:
            continue
        values = [f"{key}={other}" for other in sets.values_of(key, excluded)]
        labels = join_names(values) or "no such label"
        yield f"node selector {key}={value}: {_match_count(matched, excluded)}; they have {labels}"
    if placement.terms is not None:
        matched = sets.affine_nodes(placement) & excluded
        if matched != excluded:
            terms = [_term_text(term) for term in placement.terms]
            yield f"required node affinity {' or '.join(terms[:MAX_JOINED])}: {_match_count(matched, excluded)}"


def _term_text(term: NodeTerm) -> str:
    """Return the expressions of a node selector term."""
    requirements = (*term.expressions, *term.fields)
    return ", ".join(f"{each.key} {each.operator} {join_names(each.values)}".rstrip() for each in requirements)


def _match_count(matched: NodeSet, excluded: NodeSet) -> str:
    return f"matches {matched.bit_count()} of {excluded.bit_count()}"


def _explain_cordons(exclusion: Exclusion, excluded: NodeSet) -> PendingExplanation:
    return PendingExplanation(
        reason=PendingReason.CORDON, slots=_node_slots(exclusion, excluded), evidence=exclusion.steps
    )


def _node_slots(exclusion: Exclusion, excluded: NodeSet) -> Slots:
    return {
        "request": exclusion.request.text,
        "nodes": exclusion.names(excluded),
        "node": exclusion.first(excluded),
    }


def _explain_not_ready(exclusion: Exclusion, excluded: NodeSet) -> PendingExplanation:
    presumed = excluded & exclusion.sets.presumed
    taints = exclusion.sets.repelling_taints(exclusion.request.placement, excluded & ~presumed)
    evidence: Sequence[str] = [f"{taint_text(taint)} on {exclusion.names(nodes)}" for taint, nodes in taints.items()]
    if presumed:
        evidence = [
            *evidence,
            f"no taint for NotReady on {exclusion.names(presumed)}, whose condition Ready is not True",
        ]
    return PendingExplanation(
        reason=PendingReason.NOT_READY,
        slots=_node_slots(exclusion, excluded),
        certainty=Certainty.POSSIBLE if presumed else None,
        evidence=(*exclusion.steps, *evidence),
    )
