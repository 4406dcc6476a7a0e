"""GPU pods that are not scheduled, each with all causes, in the order in which they must go."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from rules_engine.accelerators.catalogue import MIG_RESOURCE
from rules_engine.accelerators.resources import is_mig, requests_gpus_by_annotation, scheduler_for
from rules_engine.cluster.creation.limit_range import LIMIT_RANGER_ANNOTATION
from rules_engine.cluster.gpu_nodes import gpus_of
from rules_engine.cluster.nodes import numbers_of
from rules_engine.cluster.nodes.autoscalers import autoscalers_of, unknown_nodes
from rules_engine.cluster.scheduling import DEFAULT_SCHEDULER, Filter, KubeScheduler
from rules_engine.cluster.scheduling.bound_volumes import with_bound_volumes
from rules_engine.cluster.scheduling.requirements import Requirements
from rules_engine.cluster.scheduling.scheduler import NAMESPACE_SELECTORS
from rules_engine.language.cel import EvaluationError
from rules_engine.model.json.lenient import as_mapping, as_string_map, controller_reference, text_member
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, NodeObject, PodObject, component_of
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, FurtherCause, Remedy
from rules_engine.questions.doctor.deciders import refused_by_autoscaler, words_about
from rules_engine.questions.doctor.gpu_objects import LONG_AGO, last_seen, parse_timestamp, resource_names
from rules_engine.questions.doctor.holders import Holders, requested_gpus
from rules_engine.questions.doctor.pending.causes import EXCLUDED, NodeCauses
from rules_engine.questions.doctor.pending.devices import explain_claims, explain_given_up
from rules_engine.questions.doctor.pending.ladders import ActiveLadders
from rules_engine.questions.doctor.pending.nodes import PendingNodes
from rules_engine.questions.doctor.pending.request import PendingExplanation, PendingRequest
from rules_engine.questions.doctor.pending.unoffered import CONFIG
from rules_engine.questions.doctor.pending.waiting import (
    explain_by_message,
    explain_claims_in_use,
    explain_gates,
    explain_unbound_claims,
    explain_unset_scheduler,
)
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.questions.doctor.wording import quote_message
from rules_engine.rules.diagnostic.catalogue import new_finding
from rules_engine.rules.evaluation import RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod:
    """A GPU pod that is not scheduled; `blocking`: findings about nodes that could run it once these are resolved."""

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

    Pods with resource claims, with annotations by which a scheduler gives them GPUs, and with resources that only
    another scheduler knows count as GPU pods. `rule_set`: the active ladders, if they are known. `concerns`: a
    function that is True for a pod to return. `findings`: the findings of Diagnostics.
    """
    answers = _Answers(cluster, scheduler, rule_set, findings)
    return tuple(
        answers.about(pod)
        for pod in cluster.pods
        if not pod.node_name and not is_finished(pod) and pod.metadata.get("deletionTimestamp") is None
        if concerns(pod) and _requests_gpus(pod)
    )


def _requests_gpus(pod: PodObject) -> bool:
    by_name = requested_gpus(pod) or pod.spec.get("resourceClaims") or requests_gpus_by_annotation(pod)
    return bool(by_name) or any(map(scheduler_for, resource_names(pod.spec)))


class _Answers:
    """Search for the answers for pods of one cluster."""

    def __init__(
        self, cluster: ClusterObjects, scheduler: KubeScheduler, rule_set: RuleSet | None, findings: Iterable[Finding]
    ) -> None:
        self._findings: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.object.kind == "Node" and finding.severity is not FindingSeverity.INFO:
                self._findings.setdefault(finding.object.name, []).append(finding)
        self._cluster = cluster
        self._ladders = None if rule_set is None else ActiveLadders(rule_set)
        self._view = PendingNodes(cluster, scheduler)
        self._holders = Holders(cluster)

    def about(self, pod: PodObject) -> PendingPod:
        """Return the answer for one pod."""
        recorded, cluster, view = _scheduler_message(pod), self._cluster, self._view
        if "Node" in cluster.absent:
            return PendingPod(finding=_finding_about(pod, explain_by_message(pod, recorded, ("nodes were not read",))))
        try:
            request, requirements = PendingRequest.of(pod), Requirements.of(with_bound_volumes(pod))
            answer = view.scheduler.answer(requirements, pod.name)
            causes = NodeCauses(request, requirements, answer, view, self._holders)
        except (PodError, TooLargeError, EvaluationError) as error:
            explanation = explain_by_message(pod, recorded, (f"the pod was not evaluated: {error}",))
            return PendingPod(finding=_finding_about(pod, explanation))
        given_up = explain_given_up(request, answer, view.drivers)
        of_nodes = [*causes.explain()] if given_up is None else [given_up]
        broken = self._broken_nodes(request, causes) if given_up is None else {}
        unknown = (*answer.not_modelled, *filter(None, [cluster.unread("Pod")]))
        autoscalers = autoscalers_of(cluster) if of_nodes else ()
        # Of several, one that is silent may add a node.
        if len(autoscalers) == 1 and refused_by_autoscaler(pod):
            autoscalers = ()
        evidence = [*unknown_nodes(autoscalers)]
        if of_nodes:
            if of_nodes[0].reason is PendingReason.OTHER_FILTERS and Filter.INTER_POD_AFFINITY in answer.excluded:
                affine = (NAMESPACE_SELECTORS, cluster.unread("Pod"))
                evidence += [f"not evaluated for affinity between pods: {each}" for each in unknown if each in affine]
            # Of nodes that are not Ready without a taint, the scheduler may choose one.
            certainty = Certainty.POSSIBLE if answer.passing or evidence else of_nodes[0].certainty
            # Once a broken node is repaired, the pod needs neither another request or selector nor another layout.
            of_nodes[0] = replace(of_nodes[0], certainty=certainty, advises=causes.held_by_others or not broken)
        unset, unbound = [*explain_unset_scheduler(pod, request, view)], [*explain_unbound_claims(pod, recorded)]
        explanations = [
            *explain_gates(pod),
            *explain_claims(pod, cluster, view.drivers, 0 if of_nodes else causes.room),
            *causes.explain_rejected(),
            *(each for each in unbound if not each.case),
            *unset,
        ]
        scheduler, words = text_member(pod.spec, "schedulerName") or DEFAULT_SCHEDULER, words_about(pod)
        if scheduler == DEFAULT_SCHEDULER:
            by_message = partial(explain_by_message, pod, recorded, unknown, answer.feasible_nodes, words)
            if not unset:
                explanations += [*of_nodes, *explain_claims_in_use(pod), *(each for each in unbound if each.case)]
        else:
            recorded = recorded or next((each.partition(": ")[2] for each in words if each.startswith(scheduler)), "")
            by_message = partial(explain_by_message, pod, recorded, (), (), words)
            known = not any(map(scheduler_for, request.amounts)) and not requests_gpus_by_annotation(pod)
            if recorded or not (of_nodes and known):
                explanations.append(by_message())
                evidence = [f"by the rules of {DEFAULT_SCHEDULER}: {each.reason}" for each in of_nodes if known]
            else:
                explanations += [replace(each, certainty=Certainty.POSSIBLE) for each in of_nodes]
        if explanations and pod.spec.get("resourceClaims"):
            evidence += [f"not evaluated: {each}" for each in answer.not_modelled]
        return PendingPod(
            finding=self._finding(pod, explanations or [by_message()], broken, recorded, (*evidence, *words)),
            blocking=tuple(finding for findings in broken.values() for finding in findings),
        )

    def _broken_nodes(self, request: PendingRequest, causes: NodeCauses) -> Mapping[str, list[Finding]]:
        """Return the nodes that could run a pod once the problems in their findings are solved."""
        return {
            node.name: self._findings[node.name]
            for number in (numbers_of(causes.repairable) if self._findings else ())
            for node, capacity in [(self._cluster.nodes[number], self._view.capacities[number])]
            if node.name in self._findings
            if all(_could_offer(node, capacity, name, nanos // NANOS) for name, nanos in request.gpus.items())
        }

    def _finding(
        self,
        pod: PodObject,
        explanations: Sequence[PendingExplanation],
        broken: Mapping[str, list[Finding]],
        recorded: str,
        further: Sequence[str],
    ) -> Finding:
        explanation, evidence, remedies = explanations[0], list[str](), list[Remedy]()
        amounts_set = text_member(as_mapping(pod.metadata.get("annotations")), LIMIT_RANGER_ANNOTATION)
        if amounts_set and explanation.reason is PendingReason.OTHER_RESOURCES:
            evidence.append(f"a LimitRange of the namespace set amounts of the pod: {quote_message(amounts_set)}")
        if broken:
            findings = [f"{name} ({', '.join(each.reason for each in about)})" for name, about in broken.items()]
            first = new_finding("NodeFindingsFirst", pod.object_name, slots={"findings": findings, "nodes": [*broken]})
            evidence.append(first.message)
            remedies += first.remedies
        excluded = explanation.reason in EXCLUDED
        missing = tuple(requested_gpus(pod)) if excluded else explanation.missing
        if self._ladders is not None and missing:
            lines, resources = self._ladders.apply(pod, missing, self._view.drivers.view, excluded=excluded)
            evidence.extend(lines)
            if resources:
                case, slots = "" if controller_reference(pod) is None else "Controlled", {"resources": resources}
                remedies += new_finding("LadderWouldMove", pod.object_name, case=case, slots=slots).remedies
        if recorded and explanation.reason is not PendingReason.SCHEDULER_MESSAGE:
            evidence.append(f"the scheduler's message: {recorded}")
        evidence += further
        first = _finding_about(pod, explanation, tuple(evidence), tuple(remedies))
        remaining = [_finding_about(pod, each) for each in explanations[1:]]
        return structs.replace(
            first,
            severity=min((first.severity, *(each.severity for each in remaining)), key=[*FindingSeverity].index),
            remaining=tuple(
                FurtherCause(reason=each.reason, message=each.message, remedies=each.remedies) for each in remaining
            ),
        )


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


def _scheduler_message(pod: PodObject) -> str:
    """Return the scheduler's message in the condition PodScheduled, else in the last Event FailedScheduling, or ""."""
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") == "False" and text_member(scheduled, "message"):
        return quote_message(text_member(scheduled, "message"))
    scheduler = text_member(pod.spec, "schedulerName") or DEFAULT_SCHEDULER
    events = [
        event
        for event in pod.cluster.events_about(pod)
        if text_member(event, "reason") == "FailedScheduling" and component_of(event) in ("", scheduler)
    ]
    return quote_message(text_member(max(events, key=lambda each: last_seen(each) or LONG_AGO, default={}), "message"))
