"""Pods that nodes with enough GPUs repel or exclude: taints, selectors and affinity, cordons, NotReady."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from rules_engine.diagnosis.pending.node_sets import NodeSets
from rules_engine.diagnosis.pending.request import Explanation, Request
from rules_engine.diagnosis.reasons import PendingReason
from rules_engine.diagnosis.wording import MAX_NAMES, command, listed
from rules_engine.evaluation.nodes import NodeSet
from rules_engine.model.kubernetes.cluster import Taint
from rules_engine.model.kubernetes.placement import NodeTerm
from rules_engine.model.rules.finding import Certainty, FindingSeverity, Remedy, Risk
from rules_engine.scheduling.requirements import NOT_READY, UNREACHABLE, UNSCHEDULABLE

LIFECYCLE = (UNSCHEDULABLE, NOT_READY, UNREACHABLE)
"""Taints for cordoned nodes and for nodes that are not Ready, which have reasons of their own."""


_Stage = tuple[Callable[[], NodeSet], Callable[["Exclusion", NodeSet], Explanation], str]
"""The nodes that pass a stage, the reason if none does, and words for nodes that do not."""


class Exclusion:
    """The nodes that are left for a request after each reason, and the first reason after which none is left.

    `offering`: the nodes that offer the GPUs. `left`: those that exclude the pod for none of the reasons. `steps`: a
    line for each reason that excluded some of the nodes, if others were left. `presumed`: True if some were excluded
    that are not Ready and have no taint for it yet, so that the scheduler may still choose them.
    """

    def __init__(self, request: Request, sets: NodeSets, offering: NodeSet) -> None:
        self.offering = self.left = offering
        self.steps: tuple[str, ...] = (f"nodes that offer {request.text}: {_names(sets, offering)}",)
        self.explanation: Explanation | None = None
        self.presumed = False
        self.request = request
        self.sets = sets
        placement = request.placement
        stages: tuple[_Stage, ...] = (
            (lambda: sets.tolerated(placement, *LIFECYCLE), _tainted, "taints that the pod does not tolerate"),
            (lambda: sets.matching(placement), _unmatched, "its node selector or affinity"),
            (lambda: sets.tolerated(placement, NOT_READY, UNREACHABLE), _cordoned, "cordons"),
            (lambda: sets.tolerated(placement), _not_ready, "the condition Ready"),
        )
        for passing, explain, what in stages:
            passed = self.left & passing()
            if passed == self.left:
                continue
            excluded = self.left & ~passed
            if not passed:
                self.explanation = explain(self, excluded)
                return
            self.left = passed
            self.presumed = explain is _not_ready and excluded & sets.presumed != 0
            self.steps = (*self.steps, f"excluded by {what}: {self.names(excluded)}")

    def names(self, nodes: NodeSet) -> str:
        """Return the first of the names of nodes, and the count of the others."""
        return _names(self.sets, nodes)

    def first(self, nodes: NodeSet) -> str:
        """Return the name of the first of nodes."""
        return next(self.sets.names(nodes))


def _names(sets: NodeSets, nodes: NodeSet) -> str:
    return listed([*islice(sets.names(nodes), MAX_NAMES)], of=nodes.bit_count())


def _tainted(found: Exclusion, excluded: NodeSet) -> Explanation:
    taints = found.sets.untolerated(found.request.placement, excluded, *LIFECYCLE)
    keys = [taint_text(taint) for taint in taints]
    return Explanation(
        reason=PendingReason.TAINT,
        severity=FindingSeverity.ERROR,
        message=f"each node that offers {found.request.text} has a taint that the pod does not tolerate: "
        f"{listed(keys)}",
        cause="A node repels the pods that do not tolerate all of its taints.",
        evidence=(
            *found.steps,
            *(f"{text} on {found.names(nodes)}" for text, nodes in zip(keys, taints.values(), strict=True)),
        ),
        remedies=(
            _tolerate(keys),
            Remedy(
                text="Look at the taints of a node.",
                command=command("kubectl", "get", "node", found.first(excluded), "-o", "jsonpath={.spec.taints}"),
            ),
        ),
    )


def _tolerate(taints: Sequence[str]) -> Remedy:
    return Remedy(text=f"Add tolerations for {listed(taints)} to the pod, if it may use these nodes.", risk=Risk.MEDIUM)


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl prints it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _unmatched(found: Exclusion, excluded: NodeSet) -> Explanation:
    sets, placement = found.sets, found.request.placement
    repelling = sets.untolerated(placement, found.offering & sets.matching(placement), *LIFECYCLE)
    taints = [taint_text(taint) for taint in repelling]
    return Explanation(
        reason=PendingReason.SELECTOR_OR_AFFINITY,
        severity=FindingSeverity.ERROR,
        message=f"no node that offers {found.request.text}{_left(found)} matches the pod's node selector or affinity",
        cause="A pod runs only on nodes that match its node selector and its required node affinity.",
        evidence=(
            *found.steps,
            *_mismatches(found, excluded),
            *(
                f"nodes that match have the taint {taint}: {found.names(nodes)}"
                for taint, nodes in zip(taints, repelling.values(), strict=True)
            ),
        ),
        remedies=(
            *([_tolerate(taints)] if taints else ()),
            Remedy(text="Correct the node selector or the required node affinity of the pod.", risk=Risk.MEDIUM),
            Remedy(
                text="Look at the labels of a node that offers the GPUs.",
                command=command("kubectl", "get", "node", found.first(excluded), "--show-labels"),
            ),
        ),
    )


def _left(found: Exclusion) -> str:
    """Return a clause if earlier reasons have excluded other nodes."""
    return " and has no taint against the pod" if len(found.steps) > 1 else ""


def _mismatches(found: Exclusion, excluded: NodeSet) -> Iterator[str]:
    sets, placement = found.sets, found.request.placement
    for key, value in placement.node_selector[:MAX_NAMES]:
        matched = sets.labelled(key, value) & excluded
        if matched == excluded:
            continue
        values = [f"{key}={other}" for other in sets.values_of(key, excluded)]
        yield f"node selector {key}={value}: {_count(matched, excluded)}; they have {listed(values) or 'no such label'}"
    if placement.terms is not None:
        matched = sets.affine(placement) & excluded
        if matched != excluded:
            terms = [_text(term) for term in placement.terms]
            yield f"required node affinity {' or '.join(terms[:MAX_NAMES])}: {_count(matched, excluded)}"


def _text(term: NodeTerm) -> str:
    """Return the expressions of a node selector term."""
    found = (*term.expressions, *term.fields)
    return ", ".join(f"{each.key} {each.operator} {listed(each.values)}".rstrip() for each in found)


def _count(matched: NodeSet, excluded: NodeSet) -> str:
    return f"matches {matched.bit_count()} of {excluded.bit_count()}"


def _cordoned(found: Exclusion, excluded: NodeSet) -> Explanation:
    return Explanation(
        reason=PendingReason.CORDON,
        severity=FindingSeverity.WARNING,
        message=f"each node that offers {found.request.text} to the pod is cordoned: {found.names(excluded)}",
        cause="A cordoned node takes no new pods, as before maintenance.",
        evidence=found.steps,
        remedies=(
            Remedy(
                text="Uncordon the node when its maintenance has ended.",
                command=command("kubectl", "uncordon", found.first(excluded)),
                risk=Risk.MEDIUM,
            ),
        ),
    )


def _not_ready(found: Exclusion, excluded: NodeSet) -> Explanation:
    presumed = excluded & found.sets.presumed
    taints = found.sets.untolerated(found.request.placement, excluded & ~presumed)
    evidence: Sequence[str] = [f"{taint_text(taint)} on {found.names(nodes)}" for taint, nodes in taints.items()]
    if presumed:
        evidence = [*evidence, f"no taint for NotReady on {found.names(presumed)}, whose condition Ready is not True"]
    return Explanation(
        reason=PendingReason.NOT_READY,
        severity=FindingSeverity.ERROR,
        message=f"no node that offers {found.request.text} to the pod is Ready: {found.names(excluded)}",
        cause="The control plane taints a node whose kubelet does not report Ready, which keeps new pods off it.",
        certainty=Certainty.POSSIBLE if presumed else Certainty.CERTAIN,
        evidence=(*found.steps, *evidence),
        remedies=(
            Remedy(
                text="Look at the conditions and events of the node.",
                command=command("kubectl", "describe", "node", found.first(excluded)),
            ),
        ),
    )
