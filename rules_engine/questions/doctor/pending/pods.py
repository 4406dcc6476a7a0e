"""GPU pods that are not scheduled, each with the first reason that is true."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from msgspec import structs

from rules_engine.accelerators.catalogue import MIG_RESOURCE
from rules_engine.accelerators.nodes import gpus_of
from rules_engine.accelerators.resources import is_mig
from rules_engine.cluster.nodes import NodeSet, Offered
from rules_engine.cluster.scheduling import KubeScheduler, Scheduling
from rules_engine.cluster.scheduling.requirements import NOT_READY, UNREACHABLE
from rules_engine.language.cel import EvaluationError
from rules_engine.model.json.lenient import as_mapping, as_string_map, controller_reference, text_member
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, NodeObject, PodObject
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Remedy
from rules_engine.model.wording import join_names
from rules_engine.questions.doctor.drivers import drivers_of
from rules_engine.questions.doctor.gpu_objects import LONG_AGO, last_seen, parse_timestamp
from rules_engine.questions.doctor.holders import Holders, requested_gpus
from rules_engine.questions.doctor.pending import waiting
from rules_engine.questions.doctor.pending.devices import (
    explain_claims,
    explain_given_up,
    explain_taken,
    explain_unserved,
    with_lost_devices,
)
from rules_engine.questions.doctor.pending.excluded import EXCLUDED, Exclusion
from rules_engine.questions.doctor.pending.exhausted import explain_shortage
from rules_engine.questions.doctor.pending.ladders import ActiveLadders
from rules_engine.questions.doctor.pending.node_sets import NodeSets
from rules_engine.questions.doctor.pending.request import PendingExplanation, PendingRequest
from rules_engine.questions.doctor.pending.unoffered import CONFIG, explain_unoffered_gpus
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.questions.doctor.wording import quote_message
from rules_engine.rules.diagnostic import new_finding
from rules_engine.rules.evaluation import RuleSet

LIMIT_RANGER = "kubernetes.io/limit-ranger"
"""Annotation in which the API server names the amounts that a LimitRange set (plugin/pkg/admission/limitranger)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod:
    """A GPU pod that is not scheduled, with the first reason that is true.

    `blocking`: findings about nodes that could serve the pod once these findings are resolved.
    """

    finding: Finding
    blocking: tuple[Finding, ...] = ()


def pending_pods(
    cluster: ClusterObjects,
    scheduler: KubeScheduler,
    rule_set: RuleSet | None,
    concerns: Callable[[ApiObject], bool] = lambda _: True,
    findings: Iterable[Finding] = (),
) -> tuple[PendingPod, ...]:
    """Return the GPU pods that are not scheduled.

    A pod with resource claims counts as a GPU pod. `rule_set`: the active ladders, if they are known. `concerns`: a
    function that is True for a pod to return. `findings`: the findings of Diagnostics.
    """
    answers = _Answers(cluster, scheduler, rule_set, findings)
    return tuple(
        answers.about(pod)
        for pod in cluster.pods
        if is_pending(pod) and concerns(pod) and (requested_gpus(pod) or pod.spec.get("resourceClaims"))
    )


def is_pending(pod: PodObject) -> bool:
    """Return True if the scheduler has not found a node for a pod yet."""
    return not pod.node_name and not is_finished(pod) and pod.metadata.get("deletionTimestamp") is None


@dataclass(frozen=True, slots=True)
class _NodeAnswer:
    """The reason why no node can serve a request, or the nodes on which it fits.

    `certain`: False if nodes are excluded that the scheduler may still choose. `broken`: by name of each node that
    could serve the request once its problems are solved, the findings about them.
    """

    explanation: PendingExplanation | None
    room: NodeSet
    broken: Mapping[str, list[Finding]]
    certain: bool = True


class _Answers:
    """Search for the answers for pods of one cluster. Equal requests share the search for nodes."""

    def __init__(
        self, cluster: ClusterObjects, scheduler: KubeScheduler, rule_set: RuleSet | None, findings: Iterable[Finding]
    ) -> None:
        self._findings: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.object.kind == "Node" and finding.severity is not FindingSeverity.INFO:
                self._findings.setdefault(finding.object.name, []).append(finding)
        self._cluster = cluster
        self._scheduler = scheduler
        self._ladders = None if rule_set is None else ActiveLadders(rule_set)
        self._drivers = drivers_of(cluster)
        self._sets = NodeSets(cluster)
        self._holders = Holders(cluster)
        self._place = cache(self._search)

    def about(self, pod: PodObject) -> PendingPod:
        """Return the answer for one pod."""
        recorded = _scheduler_message(pod, self._cluster)
        try:
            request, scheduling = PendingRequest.of(pod), self._scheduler.explain(pod)
            placed = self._place(request)
        except (PodError, TooLargeError, EvaluationError) as error:
            return self._unevaluated_answer(pod, recorded, f"the pod was not evaluated: {error}")
        if "Node" in self._cluster.absent:
            return self._unevaluated_answer(pod, recorded, "nodes were not read")
        explanation = self._first_explanation(pod, placed, scheduling, recorded)
        if explanation is None:
            unknown = (*scheduling.not_modelled, *filter(None, [self._cluster.unread("Pod")]))
            explanation = waiting.explain_by_message(pod, self._cluster, recorded, unknown, scheduling.feasible_nodes)
        return PendingPod(
            finding=self._finding(pod, explanation, placed.broken, recorded),
            blocking=tuple(finding for findings in placed.broken.values() for finding in findings),
        )

    def _unevaluated_answer(self, pod: PodObject, recorded: str, unknown: str) -> PendingPod:
        explanation = waiting.explain_by_message(pod, self._cluster, recorded, (unknown,))
        return PendingPod(finding=_finding_about(pod, explanation))

    def _search(self, request: PendingRequest) -> _NodeAnswer:
        sets = self._sets
        offering = sets.covering_nodes(request.gpus, Offered.ALLOCATABLE)
        broken = _broken_nodes(request, sets, self._cluster, self._findings)
        exclusion = Exclusion(request, sets, offering)
        given_up = explain_given_up(request, sets, self._drivers)
        if given_up is not None:
            return _NodeAnswer(given_up, 0, {})
        explanation = exclusion.explanation
        if not offering:
            explanation = explain_unserved(request, sets, self._drivers) or with_lost_devices(
                explain_unoffered_gpus(request, sets), self._drivers
            )
        if explanation is not None:
            # Once a broken node is repaired, the pod needs neither another request or selector nor another layout.
            return _NodeAnswer(replace(explanation, advises=False) if broken else explanation, 0, broken)
        shortage, room = explain_shortage(exclusion, self._holders)
        if shortage is not None:
            shortage = explain_taken(shortage, exclusion, self._drivers)
        return _NodeAnswer(shortage, room, broken, certain=not exclusion.presumed)

    def _first_explanation(
        self, pod: PodObject, placed: _NodeAnswer, scheduling: Scheduling, recorded: str
    ) -> PendingExplanation | None:
        """Return the first reason that is true."""
        explanation = (
            placed.explanation
            or waiting.explain_other_filters(pod, scheduling, placed.room)
            or explain_claims(pod, self._cluster, self._drivers, placed.room & scheduling.passing)
        )
        if explanation is not None and not placed.certain:
            return replace(explanation, certainty=Certainty.POSSIBLE)
        return explanation or waiting.explain_gates(pod) or waiting.explain_unbound_claims(pod, self._cluster, recorded)

    def _finding(
        self, pod: PodObject, explanation: PendingExplanation, broken: Mapping[str, list[Finding]], recorded: str
    ) -> Finding:
        evidence, remedies = [*self._further_evidence(pod, explanation)], list[Remedy]()
        if broken:
            findings = [f"{name} ({', '.join(each.reason for each in about)})" for name, about in broken.items()]
            first = new_finding("NodeFindingsFirst", pod.object_name, slots={"findings": findings, "nodes": [*broken]})
            evidence.append(first.message)
            remedies += first.remedies
        excluded = explanation.reason in EXCLUDED
        missing = tuple(requested_gpus(pod)) if excluded else explanation.missing
        if self._ladders is not None and missing:
            lines, resources = self._ladders.apply(pod, missing, self._drivers.view, excluded=excluded)
            evidence.extend(lines)
            if resources:
                case = "" if controller_reference(pod) is None else "Controlled"
                remedies += new_finding(
                    "LadderWouldMove", pod.object_name, case=case, slots={"resources": resources}
                ).remedies
        if recorded and explanation.reason is not PendingReason.SCHEDULER_MESSAGE:
            evidence.append(f"the scheduler's message: {recorded}")
        return _finding_about(pod, explanation, tuple(evidence), tuple(remedies))

    def _further_evidence(self, pod: PodObject, explanation: PendingExplanation) -> Iterator[str]:
        """Yield evidence of later reasons that are true as well."""
        gates = waiting.gates_of(pod)
        if gates and explanation.reason is not PendingReason.SCHEDULING_GATES:
            yield f"the pod also has scheduling gates: {join_names(gates)}"
        amounts_set = text_member(as_mapping(pod.metadata.get("annotations")), LIMIT_RANGER)
        if amounts_set and explanation.reason is PendingReason.OTHER_RESOURCES:
            yield f"a LimitRange of the namespace set amounts of the pod: {quote_message(amounts_set)}"


def _broken_nodes(
    request: PendingRequest, sets: NodeSets, cluster: ClusterObjects, findings: Mapping[str, list[Finding]]
) -> Mapping[str, list[Finding]]:
    """Return the nodes that could serve a request once the problems in their findings are solved."""
    placement = request.placement
    # A usable node has the GPUs free already: to solve its problems would not help.
    usable = sets.covering_nodes(request.gpus, Offered.AVAILABLE) & sets.nodes_tolerated_by(placement)
    allowed = sets.matching_nodes(placement) & sets.nodes_tolerated_by(placement, NOT_READY, UNREACHABLE) & ~usable
    allowed &= sets.covering_nodes(request.others, Offered.AVAILABLE) & ~sets.full
    return {
        node.name: findings[node.name]
        for number, (node, capacity) in enumerate(zip(cluster.nodes, sets.capacities, strict=True))
        if node.name in findings and allowed >> number & 1
        if all(_could_offer(node, capacity, resource, count) for resource, count in request.amounts.items())
    }


def _could_offer(node: NodeObject, capacity: Mapping[str, int], resource: str, count: int) -> bool:
    """Return True if a node has at least `count` free devices, or may get them by its labels."""
    if capacity.get(resource):
        view = node.cluster.node_view(node.name)
        used = view.used.get(resource) if view else None
        return capacity[resource] - (used.nanos // NANOS if used else 0) >= count
    if is_mig(resource):
        layout = as_string_map(node.metadata.get("labels")).get(CONFIG, "")
        # The name of a layout contains its profile, except for balanced and custom layouts, which may have any.
        return resource.removeprefix(MIG_RESOURCE) in layout if "g." in layout else layout not in ("", "all-disabled")
    # Only for NVIDIA cards do Diagnostics report a node that offers no device at all.
    return resource.startswith("nvidia.com/") and not any(capacity.values()) and gpus_of(node) is not None


def _finding_about(
    pod: PodObject, explanation: PendingExplanation, evidence: tuple[str, ...] = (), remedies: tuple[Remedy, ...] = ()
) -> Finding:
    """Return the finding about a pod, with further evidence and, first, further remedies."""
    finding = new_finding(
        explanation.reason,
        pod.object_name,
        case=explanation.case,
        slots=explanation.slots,
        evidence=(*explanation.evidence, *evidence),
        certainty=explanation.certainty,
        since=parse_timestamp(pod.metadata, "creationTimestamp"),
    )
    return structs.replace(finding, remedies=(*remedies, *(finding.remedies if explanation.advises else ())))


def _scheduler_message(pod: PodObject, cluster: ClusterObjects) -> str:
    """Return the scheduler's message in the condition PodScheduled, else in the last Event FailedScheduling, or ""."""
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") == "False" and text_member(scheduled, "message"):
        return quote_message(text_member(scheduled, "message"))
    events = [event for event in cluster.events_about(pod) if text_member(event, "reason") == "FailedScheduling"]
    last = max(events, key=lambda event: last_seen(event) or LONG_AGO, default=None)
    return "" if last is None else quote_message(text_member(last, "message"))
