"""Changes of a workload, each simulated: with it, all pods start now."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, islice
from typing import Annotated

from msgspec import Meta

from rules_engine.accelerators.resources import is_gpu
from rules_engine.model.json.edits import apply_edits
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.output import Output
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.admission import Endpoint, pod_request
from rules_engine.model.rules.decision import resource_of
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.simulation import PodGroup
from rules_engine.model.wording import format_names
from rules_engine.questions.preflight.pod_changes import (
    ChangeKind,
    NodeNeed,
    PodChange,
    PodEdit,
    class_changes,
    find_needs,
    request_changes,
    softer_changes,
)
from rules_engine.questions.preflight.reading import SubmittedWorkload
from rules_engine.questions.preflight.state import ClusterState, SimulatedPod, Verdict
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.ladder.counts import DeviceCounts, edits_between
from rules_engine.rules.rule_set.compiled import Replacement

MAX_CHANGES = 6
"""Changes that an answer has."""

MAX_TRIES = 100
"""Simulations of a workload to find changes: one alone takes some 5 for each resource that its pods request."""

MAX_PAIRED_PODS = 50_000
"""Pods that are simulated with pairs of changes, in all tries: some 20 seconds."""


class Change(Output, frozen=True, kw_only=True):
    """A change with which all pods of a workload start."""

    kind: ChangeKind
    text: Annotated[str, Meta(description="Such as: with 1 nvidia.com/gpu.")]
    pods: Annotated[int, Meta(description="The number of pods that the workload then has.")]
    ends: Annotated[tuple[str, ...], Meta(description="The pods that end before.")] = ()
    evicted: Annotated[tuple[str, ...], Meta(description="The pods that preemption then evicts.")] = ()


class ChangeSearch:
    """The search for changes of one workload of a manifest; the other workloads stay as they are."""

    def __init__(
        self,
        state: ClusterState,
        rule_set: RuleSet,
        workloads: Sequence[SubmittedWorkload],
        number: int,
        pods: Sequence[SimulatedPod],
    ) -> None:
        """Take the number of a workload, and its pods while those of all workloads are simulated."""
        self._state = state
        self._rule_set = rule_set
        self._arrivals = [workload.arrival for workload in workloads]
        self._number = number
        self._arrival = self._arrivals[number]
        self._count_field = workloads[number].count_field
        self._pods = pods
        self._changed = sorted({pod.group for pod in pods if not pod.starts_alone})
        """The templates to change: those with pods that do not start."""
        groups = self._arrival.groups
        self._groups = [groups[index] for index in self._changed]
        every = len(self._groups) == len(groups)
        self._where = "" if every else f" in {' and '.join(group.name for group in self._groups)}"
        self._gpus = sorted({name for group in self._groups for name in _parse(group).resources if is_gpu(name)})
        waiting = [each.admitted.pod for each in pods if each.waits and not each.starts_alone and each.admitted.pod]
        self._priority = max([pod.priority for pod in waiting], default=0)
        self._needs: Sequence[NodeNeed] = ()
        if waiting:
            self._needs = find_needs(state.play.cycle, waiting[0], len(waiting))
        self._tries = 0
        self.tried: list[str] = []
        """The changes that were tried and do not help."""

    def find(self) -> Sequence[Change]:
        """Return the first MAX_CHANGES changes, the smallest first; pairs if no change helps alone."""
        denied, waits = any(pod.verdict is Verdict.DENIED for pod in self._pods), any(pod.waits for pod in self._pods)
        small, large = [*self._rung_changes()], list[PodChange]()
        if not denied:  # else the rule's message says what is wrong
            small += [PodChange.of(ChangeKind.NODES, need.text, need.apply) for need in self._needs]
            small += [*softer_changes(self._groups), *request_changes(self._groups)]
            large += self._device_changes()
            large += class_changes(self._state.simulation.objects, self._priority) if waits else ()
        tries: list[Callable[[], Change | None]] = [partial(self._try, each) for each in small]
        if not denied:
            tries += [self._fewer_pods, *(partial(self._try, each) for each in large), self._after_others_end]
        found = [*islice(filter(None, (each() for each in tries)), MAX_CHANGES)]
        return found or [*islice(self._pairs([*small, *large]), MAX_CHANGES if waits else 0)]

    def _pairs(self, changes: Sequence[PodChange]) -> Iterator[Change]:
        """Yield pairs of changes, those of the smallest ones first."""
        numbered = sorted(combinations(enumerate(changes), 2), key=lambda pair: pair[0][0] + pair[1][0])
        both = [(one, other) for (_, one), (_, other) in numbered]
        pairs = [pair for pair in both if not any({each.kind for each in pair} <= kinds for kinds in _ALTERNATIVES)]
        alone = len(self.tried)
        yield from filter(None, (self._try(*pair) for pair in pairs[: MAX_PAIRED_PODS // len(self._pods)]))
        if tried := len(self.tried) - alone:
            self.tried[alone:] = [f"{tried} pairs of these" if tried > 1 else "two of these together"]

    def _try(self, *changes: PodChange) -> Change | None:
        """Return changes with which together all pods start, each of the smallest size, that of the first one first.

        Sizes above one that helps are taken to help, too.
        """
        sizes = [each.sizes - 1 for each in changes]
        found = self._attempt(changes, sizes)
        for place, low in enumerate([0] * len(changes)):
            while found and low < sizes[place]:
                smaller = [*sizes]
                smaller[place] = (low + sizes[place]) // 2
                if helps := self._attempt(changes, smaller):
                    found, sizes = helps, smaller
                else:
                    low = smaller[place] + 1
        return found

    def _rung_changes(self) -> Iterator[PodChange]:
        for resource in self._gpus:
            for to in self._rungs(resource):
                edit = partial(_with_devices, source=resource, to=to)
                pool = f" ({to.pool})" if to.pool else ""
                text = f"with {self._amount(edit, to.resource, to.title)}{pool}"
                yield PodChange.of(ChangeKind.RUNG, text, edit)

    def _device_changes(self) -> Iterator[PodChange]:
        """Yield smaller numbers of devices."""
        for resource in self._gpus:
            most = max(_count(_parse(group), resource) for group in self._groups)
            if most > 1:
                yield PodChange(ChangeKind.DEVICES, partial(self._fewer_devices, resource, most), most - 1)

    def _fewer_devices(self, resource: str, most: int, size: int) -> tuple[str, PodEdit]:
        edit = partial(_with_devices, source=resource, to=Replacement(resource, most - 1 - size, most))
        return f"with {self._amount(edit, resource, resource)}", edit

    def _amount(self, edit: PodEdit, resource: str, title: str) -> str:
        """Return the number of devices that an edited pod requests, for each container if it has several."""
        pods = [Pod.parse(dict(edit(group.pod))) for group in self._groups]
        pod = max(pods, key=lambda pod: _count(pod, resource))
        amounts = [(each.name, each.limit_or_request(resource)) for each in pod.containers]
        each = ", ".join(f"{name}: {amount}" for name, amount in amounts if amount) if len(amounts) > 1 else ""
        return f"{_count(pod, resource)} {title}" + (f" ({each})" if each else "")

    def _rungs(self, resource: str) -> Sequence[Replacement]:
        """Return the replacements of a resource by ladders that apply to the pods, once for each title."""
        play, namespace = self._state.play, self._arrival.namespace
        decisions = [
            self._rule_set.mutate(pod_request(dict(group.pod), namespace=namespace), play.view.cluster)
            for group in self._groups
        ]
        titles: dict[RuleId, list[str]] = {}
        for step in (step for decision in decisions for step in decision.trace if not step.audit):
            if step.applies or step.reason == "already-decided":
                own = [each.resource for each in step.resources if resource_of(each.resource) == resource]
                titles.setdefault(step.rule, []).extend(own or [resource])
        found: dict[str, Replacement] = {}
        for compiled in self._rule_set.rules_at(Endpoint.MUTATE):
            for title in titles.get(compiled.rule.id, ()):
                for each in compiled.replacements(title):
                    found.setdefault(each.title, each)
        return [*found.values()]

    def _fewer_pods(self) -> Change | None:
        """Return the workload reduced to the pods that start, unless a template has no such pod."""
        field, groups = self._count_field, self._arrival.groups
        started = Counter(pod.group for pod in self._pods if pod.starts)
        if field is None or len(started) < len(groups):
            return None
        counts = ", ".join(f"{group.name}: {started[index]}" for index, group in enumerate(groups))
        fewer = tuple(replace(group, parallel=started[index]) for index, group in enumerate(groups))
        text = f"with {field}: {started[0]}" if field else f"with fewer pods at once: {counts}"
        return self._simulate(ChangeKind.REPLICAS, text, fewer)

    def _after_others_end(self) -> Change | None:
        if all(pod.verdict is not Verdict.WAITS for pod in self._pods):
            return None
        with self._state.simulated(self._arrivals, ending=self._number) as workloads:
            pods = workloads[self._number]
        ends = tuple(dict.fromkeys(victim for pod in pods for victim in pod.victims))
        if not all(pod.starts for pod in pods) or {pod.name for pod in pods}.intersection(ends):
            self.tried.append("after other pods end")
            return None
        text = f"Pod {ends[0]} ends" if len(ends) == 1 else f"{len(ends)} pods end: {format_names(ends)}"
        return Change(kind=ChangeKind.ENDS, text=f"after {text}", pods=len(pods), ends=ends)

    def _attempt(self, changes: Sequence[PodChange], sizes: Sequence[int]) -> Change | None:
        """Return changes of these sizes as one if all pods start with them."""
        variants = [each.variant(size) for each, size in zip(changes, sizes, strict=True)]
        groups = [*self._arrival.groups]
        for index in self._changed:
            for _, edit in variants:
                groups[index] = replace(groups[index], pod=edit(groups[index].pod))
        kinds, text = [each.kind for each in changes], " and ".join(text for text, _ in variants)
        kind = kinds[0] if len(kinds) == 1 else ChangeKind.COMBINED
        return self._simulate(kind, f"{text}{self._where}", tuple(groups), as_given=ChangeKind.RUNG in kinds)

    def _simulate(
        self, kind: ChangeKind, text: str, groups: tuple[PodGroup, ...], *, as_given: bool = False
    ) -> Change | None:
        """Return the change if all pods start with it, `as_given`: if no rule moves them to another resource."""
        if self._tries >= MAX_TRIES:
            return None
        self._tries += 1
        arrivals = [*self._arrivals]
        arrivals[self._number] = replace(self._arrival, groups=groups)
        with self._state.simulated(arrivals) as workloads:
            pods = workloads[self._number]
        moved = any(pod.admitted.record.fallbacks for pod in pods if pod.group in self._changed)
        if not all(pod.starts for pod in pods) or (moved and as_given):
            self.tried.append(text)
            return None
        evicted = tuple(victim for pod in pods for victim in pod.victims)
        return Change(kind=kind, text=text, pods=len(pods), evicted=evicted)


_ALTERNATIVES = ({ChangeKind.RUNG, ChangeKind.DEVICES}, {ChangeKind.NODES}, {ChangeKind.PRIORITY})
"""Kinds of changes of which one excludes another."""


def _with_devices(pod: Mapping[str, Json], source: str, to: Replacement) -> Mapping[str, Json]:
    """Return a pod with its devices of `source` replaced."""
    before = DeviceCounts.read(Pod.parse(dict(pod)), [*dict.fromkeys((source, to.resource))])
    after = before.moved({source: to})
    edits = {**edits_between(before, after, {source: to.resource}), **to.place(before.pod)}
    return as_mapping(apply_edits(dict(pod), edits))


def _count(pod: Pod, resource: str) -> int:
    """Return the number of devices of a resource that a pod requests."""
    return pod.effective_requests().get(resource, 0) // NANOS


def _parse(group: PodGroup) -> Pod:
    return Pod.parse(dict(group.pod))
