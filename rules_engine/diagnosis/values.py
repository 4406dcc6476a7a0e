"""Diagnosis: what the cluster looks like, its pending pods, and the findings."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rules_engine.diagnosis.scope import Scope
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Finding, FindingSeverity, NotEvaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The amounts of one resource on one node, in whole units; `allocated` is None if pods were not read."""

    capacity: int
    allocatable: int
    allocated: int | None

    @property
    def free(self) -> int | None:
        """The allocatable amount that no pod holds; negative if pods hold more than is left."""
        return None if self.allocated is None else self.allocatable - self.allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNode:
    """A node that has GPUs, by its resources or by its labels, with its amounts of GPUs and RDMA devices.

    `product`: the card, from its labels, or "".
    """

    name: str
    product: str
    ready: bool
    cordoned: bool
    resources: Mapping[str, Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadyPod:
    """A pod of a DaemonSet that is not ready, with its status as `kubectl get pods` prints it."""

    name: ObjectName
    node: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlugin:
    """A DaemonSet of a device plugin, or another DaemonSet that GPU nodes need."""

    name: ObjectName
    desired: int
    ready: int
    unready: tuple[UnreadyPod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPod:
    """A pod that holds GPUs on a node: `amounts` of GPUs and RDMA devices; `status` as `kubectl get pods` prints it."""

    name: ObjectName
    node: str
    status: str
    amounts: Mapping[str, int]
    since: datetime | None


class Agreement(StrEnum):
    """The comparison of the scheduler's recorded message with the recomputed one."""

    AGREES = "Agrees"
    DIFFERS = "Differs"
    NOT_RECORDED = "NotRecorded"
    NOT_COMPARABLE = "NotComparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod:
    """A GPU pod that is not scheduled, with the two answers: the scheduler's message, and the finding.

    `pods`: all pods for which both are the same, the first of them first. `note`: why the messages differ or cannot be
    compared, such as filters that are not modelled. `evaluated`: False if no reason about nodes was tried.
    `blocking`: the findings about nodes that could serve the pods but for these.
    """

    pods: tuple[ObjectName, ...]
    since: datetime | None
    amounts: Mapping[str, int]
    recomputed: str
    recorded: str
    agreement: Agreement
    note: str
    finding: Finding
    evaluated: bool = True
    blocking: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentError:
    """An error that Events or the states of containers report; `count`: how often, until `at`.

    `objects`: all for which the error is the same, the first of them first; the message is that of the first.
    """

    objects: tuple[ObjectName, ...]
    reason: str
    message: str
    count: int
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The five sections of a one-shot diagnosis; `more_errors`: the number of older errors that are left out."""

    nodes: tuple[GpuNode, ...]
    device_plugins: tuple[DevicePlugin, ...]
    pods: tuple[GpuPod, ...]
    pending: tuple[PendingPod, ...]
    errors: tuple[RecentError, ...]
    more_errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """Findings that say the same of several objects: that of one object, and the names of all, in order.

    Evidence and commands are those of that object. `effects`: the further findings about each object that this one
    causes, those of that object; none is worse.
    """

    finding: Finding
    objects: tuple[ObjectName, ...]
    effects: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Objects that were not read, by their name in kubectl, and what cannot be said without them."""

    objects: str
    unknown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A whole diagnosis; findings are grouped, causes with their effects.

    `objects`: how many objects of each kind were read, by the kind's name in kubectl. `scope`: the objects that it
    reports on. `rules`: the ladders in force, as they were given, or "" without rules.
    """

    now: datetime
    scope: Scope
    objects: Mapping[str, int]
    overview: Overview
    findings: tuple[FindingGroup, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    absent: tuple[Absent, ...]
    rules: str = ""

    def has(self, least: FindingSeverity) -> bool:
        """Return True if a finding is of a severity or worse."""
        ranks = [*FindingSeverity]
        return any(ranks.index(group.finding.severity) <= ranks.index(least) for group in self.findings)
