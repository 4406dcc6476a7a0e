"""Hand-made answers of diffs."""

from collections.abc import Sequence
from typing import Any

from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import RuleId
from rules_engine.questions.diff.answer import DifferenceAnswer, build_answer
from rules_engine.questions.diff.comparison import WorkloadChanges
from rules_engine.questions.diff.values import (
    ContainerAmount,
    Move,
    Outcome,
    RecordedAdmissions,
    RuleEffect,
    SubmittedPods,
    WorkloadName,
    WrittenAmount,
)

GPU = "nvidia.com/gpu"
MIG2 = "nvidia.com/mig-2g.20gb"
MIG3 = "nvidia.com/mig-3g.40gb"
LADDER = RuleId("FallbackLadder/mig-80gb")
LIMIT = RuleId("Validation/limit")
INJECTION = RuleId("ResourceInjection/memory")

Pods = tuple[SubmittedPods, Outcome, Outcome]
"""Equal pods with their outcomes before and after."""


def location(file: str, line: int) -> Location:
    return Location(file, line, 7)


def submitted(
    name: str, *, kind: str = "Job", namespace: str = "ml", cluster: str = "", **fields: Any
) -> SubmittedPods:
    return SubmittedPods(
        workload=WorkloadName(cluster=cluster, namespace=namespace, kind=kind, name=name),
        request=pod_request({}, namespace=namespace, user=""),
        **fields,
    )


def amount(container: str, resource: str, request: str | None, limit: str | None = None) -> ContainerAmount:
    return ContainerAmount(container=container, resource=resource, request=request, limit=limit)


def written(resource: str, text: str) -> tuple[WrittenAmount]:
    return (WrittenAmount(container="main", resource=resource, amount=text),)


def devices(resource: str, count: int) -> tuple[ContainerAmount]:
    return (amount("main", resource, str(count), str(count)),)


def effect(rule: RuleId, place: Location, action: Action = Action.CHANGE, **fields: Any) -> RuleEffect:
    return RuleEffect(rule=rule, source=place, action=action, **fields)


def unknown(reason: str) -> Outcome:
    return Outcome(unknown=reason, allowed=None)


def kept(count: int = 1, **fields: Any) -> Outcome:
    """Return the outcome of a pod that keeps its whole cards."""
    return Outcome(resources=devices(GPU, count), gpus={GPU: count}, **fields)


def fallen(to: str, line: int, *, count: int = 1, file: str = "rules/mig.yaml") -> Outcome:
    """Return the outcome of a pod that requests MIG2 and gets another resource."""
    short = to.removeprefix("nvidia.com/").removeprefix("mig-")
    annotations = {"gpurules.io/fallback": f"2g.20gb->{short}"}
    moves, amounts = (Move(requested=MIG2, given=to),), written(to, str(count))
    rule = effect(LADDER, location(file, line), fallbacks=moves, annotations=annotations, amounts=amounts)
    return Outcome(resources=devices(to, count), annotations=annotations, gpus={to: count}, rules=(rule,))


def denied(message: str = "at most 8 GPUs", line: int = 14, **fields: Any) -> Outcome:
    rule = effect(LIMIT, location("rules/limit.yaml", line), Action.DENY, message=message)
    return Outcome(allowed=False, message=f"{LIMIT}: {message}", rules=(rule,), **fields)


def injected(memory: str | None, line: int, *, warnings: tuple[str, ...] = ()) -> Outcome:
    """Return the outcome of a pod with injected memory; None: the rule only warns."""
    resources = (*devices(GPU, 1), *(() if memory is None else (amount("main", "memory", memory, memory),)))
    amounts = () if memory is None else written("memory", memory)
    rule = effect(INJECTION, location("rules/memory.yaml", line), amounts=amounts, warnings=warnings)
    return Outcome(resources=resources, warnings=warnings, gpus={GPU: 1}, rules=(rule,))


UNKNOWN = unknown("Validation/owner reads request.userInfo")

WHOLE: Sequence[Pods] = (
    (submitted("web", kind="Deployment", count=6), fallen(MIG3, 12), fallen(GPU, 13)),
    (submitted("train", count=2), fallen(MIG3, 12), fallen(GPU, 13)),
    (submitted("greedy"), kept(16), denied()),
    (submitted("back", namespace="lab"), denied(), kept(16)),
    (submitted("other-text", namespace="lab"), denied(), denied("at most 4 GPUs", 15)),
    (submitted("more", count=3), injected("8Gi", 9), injected("16Gi", 9, warnings=("memory was doubled",))),
    (submitted("owner", count=4), UNKNOWN, UNKNOWN),
    (submitted("debug", kind="Pod", as_it_is="no controller"), kept(), injected(None, 9)),
    (submitted("same", count=300), kept(), kept()),
)
"""Pods with every kind of change."""

RECORDED = RecordedAdmissions(
    lines=1_010,
    admissions=1_000,
    replayed=980,
    later_calls=7,
    not_replayable={"it was not recorded": 9, "it is cut": 4},
    unreadable={"no JSON": 10},
)


def answer(
    pods: Sequence[Pods] = WHOLE, *, clusters: Sequence[str] = ("",), omitted: int = 0, **fields: Any
) -> DifferenceAnswer:
    grouping = WorkloadChanges(clusters)
    for each, before, after in pods:
        grouping.add(each, before, after)
    grouping.omitted += omitted
    return build_answer(grouping, **{"old": "git:main:rules", "new": "rules", "same_rules": False, **fields})
