"""The answer of `doctor`: findings, and an overview of the GPUs of the cluster."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Finding, FindingSeverity, NotEvaluated
from rules_engine.questions.doctor.scope import Scope
from rules_engine.report.answer import Answer


class Amounts(Output, frozen=True, kw_only=True):
    """The amounts of one resource on one node, in whole units."""

    capacity: Annotated[int | None, Meta(description="Null if the input has none.")]
    allocatable: int
    allocated: Annotated[int | None, Meta(description="Null if pods were not read.")]
    free: Annotated[
        int | None,
        Meta(description="Allocatable minus allocated: negative if pods hold more. Null if pods were not read."),
    ]


class GpuNode(Output, frozen=True, kw_only=True):
    """A node that has GPUs, by its resources or by its labels."""

    name: str
    product: Annotated[str, Meta(description='The card, from labels of the node; "" if none has it.')]
    ready: bool
    cordoned: bool
    resources: Annotated[Mapping[str, Amounts], Meta(description="GPUs and RDMA devices.")]


class UnreadyPod(Output, frozen=True, kw_only=True):
    """A pod of a DaemonSet that is not ready."""

    name: ObjectName
    node: str
    status: Annotated[str, Meta(description="As `kubectl get pods` prints it.")]


class DevicePlugin(Output, frozen=True, kw_only=True):
    """A DaemonSet of a device plugin, or another DaemonSet that GPU nodes need."""

    name: ObjectName
    desired: Annotated[int, Meta(description="The number of nodes that should run a pod.")]
    ready: Annotated[int, Meta(description="The number of nodes that run a ready pod.")]
    unready: tuple[UnreadyPod, ...]


class GpuPod(Output, frozen=True, kw_only=True):
    """A pod that holds GPUs on a node."""

    name: ObjectName
    node: str
    status: Annotated[str, Meta(description="As `kubectl get pods` prints it.")]
    amounts: Annotated[Mapping[str, int], Meta(description="GPUs and RDMA devices.")]
    since: Annotated[datetime | None, Meta(description="The time of its scheduling; null if not known.")]


class Affected(Output, frozen=True, kw_only=True):
    """Objects of a finding or an error: pods of one workload, or objects without a controller."""

    owner: Annotated[
        ObjectName | None, Meta(description="The workload that controls these pods; null for other objects.")
    ]
    objects: tuple[ObjectName, ...]

    @property
    def titles(self) -> Sequence[str]:
        """The pods of a workload as one title, other objects one by one."""
        if self.owner is None or len(self.objects) == 1:
            return [name.title for name in self.objects]
        return [f"{len(self.objects):,} pods of {self.owner.title}"]


OwnerOf = Callable[[ObjectName], ObjectName | None]
"""A function that returns the workload that controls a pod, or None."""


def affected_by_owner(names: Iterable[ObjectName], owner_of: OwnerOf) -> tuple[Affected, ...]:
    """Return different objects by their owners, in order."""
    groups: dict[ObjectName | None, list[ObjectName]] = {}
    for name in sorted({*names}):
        groups.setdefault(owner_of(name), []).append(name)
    return tuple(Affected(owner=owner, objects=tuple(objects)) for owner, objects in groups.items())


class RecentError(Output, frozen=True, kw_only=True):
    """An error in Events or in the states of containers."""

    affected: tuple[Affected, ...]
    reason: str
    message: Annotated[str, Meta(description="The message about the first object.")]
    count: Annotated[int, Meta(description="How often it occurred, for all objects.")]
    at: Annotated[datetime | None, Meta(description="The last time; null if not known.")]


class FindingGroup(Finding, frozen=True, kw_only=True):
    """A finding about all objects with the same cause; its evidence and commands are those of `object`."""

    affected: tuple[Affected, ...]
    effects: Annotated[
        tuple[Finding, ...],
        Meta(description="Other findings that this one causes on each object; none of them is worse."),
    ] = ()

    @property
    def objects(self) -> Sequence[ObjectName]:
        """All objects of the finding."""
        return [name for each in self.affected for name in each.objects]


class FindingCounts(Output, frozen=True, kw_only=True):
    """The number of findings by severity, without effects."""

    error: int
    warning: int
    info: int
    possible: Annotated[int, Meta(description="How many of all findings are not certain.")]


class UnreadKind(Output, frozen=True, kw_only=True):
    """A kind whose objects were not read, or not in all namespaces."""

    objects: Annotated[str, Meta(description="Their name in kubectl.")]
    unknown: Annotated[str, Meta(description="What is unknown without them.")]


class Diagnosis(Answer, frozen=True, kw_only=True):
    """A diagnosis of a cluster."""

    time: Annotated[
        datetime | None,
        Meta(description="Of the cluster's state: for files, the newest time in them; null: they have none."),
    ]
    scope: Scope
    rules: Annotated[str, Meta(description='The source of the active ladders; "" if none was given.')] = ""
    objects: Annotated[
        Mapping[str, int], Meta(description="The number of objects that were read, by their name in kubectl.")
    ]
    not_read: tuple[UnreadKind, ...]
    counts: FindingCounts
    pending_pods: Annotated[int, Meta(description="The number of GPU pods that are not scheduled.")]
    findings: Annotated[
        tuple[FindingGroup, ...],
        Meta(description="The worst first; for one pod, those about nodes that could serve it come first."),
    ]
    nodes: Annotated[tuple[GpuNode, ...], Meta(description="By name.")]
    device_plugins: Annotated[tuple[DevicePlugin, ...], Meta(description="By name.")]
    pods: Annotated[tuple[GpuPod, ...], Meta(description="By node.")]
    errors: Annotated[
        tuple[RecentError, ...],
        Meta(description="Recent errors of GPU nodes, GPU pods and device plugins, the newest first."),
    ]
    not_evaluated: tuple[NotEvaluated, ...]

    def has(self, least: FindingSeverity) -> bool:
        """Return True if a finding is at least as severe as `least`."""
        ranks = [*FindingSeverity]
        return any(ranks.index(group.severity) <= ranks.index(least) for group in self.findings)
