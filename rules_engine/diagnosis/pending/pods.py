"""GPU pods that are not scheduled, each with the scheduler's message and the first reason that is true."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from rules_engine.cel import EvaluationError
from rules_engine.diagnosis.objects.drivers import drivers_of
from rules_engine.diagnosis.objects.holders import Holders, gpus_of
from rules_engine.diagnosis.objects.timestamps import LONG_AGO, last_seen, parse_timestamp
from rules_engine.diagnosis.pending import waiting
from rules_engine.diagnosis.pending.broken_nodes import broken_nodes
from rules_engine.diagnosis.pending.devices import (
    explain_claims,
    explain_given_up,
    explain_taken,
    explain_unserved,
    with_lost_devices,
)
from rules_engine.diagnosis.pending.excluded import EXCLUDED, Exclusion
from rules_engine.diagnosis.pending.exhausted import explain_shortage
from rules_engine.diagnosis.pending.ladders import ActiveLadders, recreation_remedy
from rules_engine.diagnosis.pending.node_sets import NodeSets
from rules_engine.diagnosis.pending.request import Explanation, Request
from rules_engine.diagnosis.pending.unoffered import explain_unoffered_gpus
from rules_engine.diagnosis.reasons import PendingReason
from rules_engine.diagnosis.values import Agreement, PendingPod
from rules_engine.diagnosis.wording import join_names, quote_message
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.nodes import NodeSet, Offered
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, PodObject
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Remedy
from rules_engine.scheduling import (
    DEFAULT_SCHEDULER,
    PostFilter,
    Scheduler,
    Scheduling,
    Wording,
    messages_agree,
    parse_recorded_message,
)

LIMIT_RANGER = "kubernetes.io/limit-ranger"
"""Annotation in which the API server names the amounts that a LimitRange set (plugin/pkg/admission/limitranger)."""


def pending_pods(
    cluster: ClusterObjects,
    scheduler: Scheduler,
    rule_set: RuleSet | None,
    concerns: Callable[[ApiObject], bool] = lambda _: True,
    findings: Iterable[Finding] = (),
) -> tuple[PendingPod, ...]:
    """Return the GPU pods that are not scheduled, the longest pending first; pods with equal answers are one entry.

    A pod with resource claims counts as a GPU pod. `rule_set`: the active ladders, if they are known. `concerns`: a
    function that is True for a pod to return. `findings`: the findings of Diagnostics.
    """
    answers = _Answers(cluster, scheduler, rule_set, findings)
    entries: dict[object, list[tuple[PodObject, PendingPod]]] = {}
    for pod in cluster.pods:
        if is_pending(pod) and concerns(pod) and (gpus_of(pod) or pod.spec.get("resourceClaims")):
            answer = answers.about(pod)
            entries.setdefault(_entry_key(answer), []).append((pod, answer))
    merged = map(_merge_answers, entries.values())
    return tuple(sorted(merged, key=lambda entry: (entry.since is None, entry.since or LONG_AGO)))


def is_pending(pod: PodObject) -> bool:
    """Return True if the scheduler has not found a node for a pod yet."""
    return not pod.node_name and not is_finished(pod) and pod.metadata.get("deletionTimestamp") is None


def _entry_key(answer: PendingPod) -> object:
    """Return the parts of an answer that are equal for pods of one entry: all but names, ages and commands."""
    finding = answer.finding
    finding_key = (
        finding.reason,
        finding.severity,
        finding.message,
        finding.certainty,
        finding.cause,
        finding.evidence,
        tuple(remedy.text for remedy in finding.remedies),
    )
    amounts = tuple(answer.amounts.items())
    return amounts, answer.recomputed, answer.recorded, answer.agreement, answer.note, finding_key


def _merge_answers(answers: list[tuple[PodObject, PendingPod]]) -> PendingPod:
    answers.sort(key=lambda item: (item[1].since or LONG_AGO, item[0].namespace, item[0].name))
    return replace(answers[0][1], pods=tuple(pod.object_name for pod, _ in answers))


@dataclass(frozen=True, slots=True)
class _NodeAnswer:
    """The reason why no node can serve a request, or the nodes on which it fits.

    `certain`: False if nodes are excluded that the scheduler may still choose. `broken`: the nodes that would serve it
    without the problems in their findings, with these findings.
    """

    explanation: Explanation | None
    room: NodeSet
    broken: Mapping[str, list[Finding]]
    certain: bool = True


class _Answers:
    """Search for the answers for pods of one cluster. Equal requests share the search for nodes."""

    def __init__(
        self, cluster: ClusterObjects, scheduler: Scheduler, rule_set: RuleSet | None, findings: Iterable[Finding]
    ) -> None:
        self._findings: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.object.kind == "Node" and finding.severity is not FindingSeverity.INFO:
                self._findings.setdefault(finding.object.name, []).append(finding)
        self._cluster = cluster
        self._scheduler = scheduler
        self._post_filter = PostFilter(cluster, scheduler)
        self._ladders = None if rule_set is None else ActiveLadders(rule_set)
        self._drivers = drivers_of(cluster)
        self._sets = NodeSets(cluster)
        self._holders = Holders(cluster)
        self._place = cache(self._search)

    def about(self, pod: PodObject) -> PendingPod:
        """Return the answers for one pod, as an entry of its own."""
        recorded = _scheduler_message(pod, self._cluster)
        try:
            request, scheduling = Request.of(pod), self._scheduler.explain(pod)
            placed = self._place(request)
        except (PodError, TooLargeError, EvaluationError) as error:
            return self._unevaluated_answer(pod, recorded, f"the pod was not evaluated: {error}")
        if "Node" in self._cluster.absent:
            return self._unevaluated_answer(pod, recorded, "nodes were not read")
        agreement, recomputed, note = self._compare_messages(pod, scheduling, recorded)
        certainty = Certainty.POSSIBLE if agreement is Agreement.DIFFERS else Certainty.CERTAIN
        explanation = self._first_explanation(pod, placed, scheduling, recorded) or waiting.explain_by_message(
            pod, self._cluster, recorded, scheduling.not_modelled, certainty
        )
        return PendingPod(
            pods=(pod.object_name,),
            since=parse_timestamp(pod.metadata, "creationTimestamp"),
            amounts=request.amounts,
            recomputed=recomputed,
            recorded=recorded,
            agreement=agreement,
            note=note,
            finding=self._finding(pod, explanation, placed.broken),
            blocking=tuple(finding for findings in placed.broken.values() for finding in findings),
        )

    def _unevaluated_answer(self, pod: PodObject, recorded: str, note: str) -> PendingPod:
        return PendingPod(
            pods=(pod.object_name,),
            since=parse_timestamp(pod.metadata, "creationTimestamp"),
            amounts=gpus_of(pod),
            recomputed="",
            recorded=recorded,
            agreement=Agreement.NOT_COMPARABLE if recorded else Agreement.NOT_RECORDED,
            note=note,
            finding=waiting.explain_by_message(pod, self._cluster, recorded, (note,), Certainty.CERTAIN).about(
                pod.object_name
            ),
            evaluated=False,
        )

    def _search(self, request: Request) -> _NodeAnswer:
        sets = self._sets
        offering = sets.covering_nodes(request.gpus, Offered.ALLOCATABLE)
        broken = broken_nodes(request, sets, self._cluster, self._findings)
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
            return _NodeAnswer(replace(explanation, remedies=()) if broken else explanation, 0, broken)
        shortage, room = explain_shortage(exclusion, self._holders)
        if shortage is not None:
            shortage = explain_taken(shortage, exclusion, self._drivers)
        return _NodeAnswer(shortage, room, broken, certain=not exclusion.presumed)

    def _first_explanation(
        self, pod: PodObject, placed: _NodeAnswer, scheduling: Scheduling, recorded: str
    ) -> Explanation | None:
        """Return the first reason that is true."""
        explanation = (
            placed.explanation
            or waiting.explain_other_filters(pod, scheduling, placed.room)
            or explain_claims(pod, self._cluster, self._drivers, placed.room & scheduling.passing)
        )
        if explanation is not None and not placed.certain:
            return replace(explanation, certainty=Certainty.POSSIBLE)
        return explanation or waiting.explain_gates(pod) or waiting.explain_unbound_claims(pod, self._cluster, recorded)

    def _finding(self, pod: PodObject, explanation: Explanation, broken: Mapping[str, list[Finding]]) -> Finding:
        evidence, remedies = [*self._further_evidence(pod, explanation)], list[Remedy]()
        if broken:
            nodes = [f"{name} ({', '.join(each.reason for each in about)})" for name, about in broken.items()]
            evidence.append(f"nodes that could serve the pod but for findings about them: {join_names(nodes)}")
            remedies.append(Remedy(text=f"Look at the findings about {join_names([*broken])} first."))
        excluded = explanation.reason in EXCLUDED
        missing = tuple(gpus_of(pod)) if excluded else explanation.missing
        if self._ladders is not None and missing:
            lines, resources = self._ladders.apply(pod, missing, self._drivers.view, excluded=excluded)
            evidence.extend(lines)
            if resources:
                remedies.append(recreation_remedy(pod, resources))
        return explanation.about(pod.object_name, tuple(evidence), tuple(remedies))

    def _further_evidence(self, pod: PodObject, explanation: Explanation) -> Iterator[str]:
        """Yield evidence of later reasons that are true as well."""
        gates = waiting.gates_of(pod)
        if gates and explanation.reason is not PendingReason.SCHEDULING_GATES:
            yield f"the pod also has scheduling gates: {join_names(gates)}"
        amounts_set = text_member(as_mapping(pod.metadata.get("annotations")), LIMIT_RANGER)
        if amounts_set and explanation.reason is PendingReason.OTHER_RESOURCES:
            yield f"a LimitRange of the namespace set amounts of the pod: {quote_message(amounts_set)}"

    def _compare_messages(self, pod: PodObject, scheduling: Scheduling, recorded: str) -> tuple[Agreement, str, str]:
        """Compare the recorded message with the recomputed one; return their agreement, the latter, and a note."""
        parsed = parse_recorded_message(recorded)
        recomputed = scheduling.message(Wording.ALL_TAINTS if parsed is None else parsed.wording)
        end = self._post_filter.message(pod, scheduling, claims=parsed is None or parsed.claims)
        recomputed = f"{recomputed} {end}" if end else recomputed
        notes = []
        if scheduling.feasible:
            notes.append(f"nodes that pass all filters: {join_names(scheduling.feasible_nodes)}")
        if scheduling.not_modelled:
            notes.append(f"not modelled: {', '.join(scheduling.not_modelled)}")
        if not recorded:
            agreement = Agreement.NOT_RECORDED
        elif parsed is None or text_member(pod.spec, "schedulerName") not in ("", DEFAULT_SCHEDULER):
            agreement = Agreement.NOT_COMPARABLE
            if parsed is None:
                notes.append("the recorded message is not one of the scheduler's filters")
        elif messages_agree(parsed, scheduling):
            agreement = Agreement.AGREES
        elif scheduling.not_modelled:
            agreement = Agreement.NOT_COMPARABLE
        else:
            agreement = Agreement.DIFFERS
            notes.append("the cluster may have changed since the scheduler tried")
        return agreement, recomputed, "; ".join(notes)


def _scheduler_message(pod: PodObject, cluster: ClusterObjects) -> str:
    """Return the scheduler's message in the condition PodScheduled, else in the last Event FailedScheduling, or ""."""
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") == "False" and text_member(scheduled, "message"):
        return quote_message(text_member(scheduled, "message"))
    events = [event for event in cluster.events_about(pod) if text_member(event, "reason") == "FailedScheduling"]
    last = max(events, key=lambda event: last_seen(event) or LONG_AGO, default=None)
    return "" if last is None else quote_message(text_member(last, "message"))
