"""A diagnosis: an overview of the cluster, its pending pods, and the findings."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rules_engine.diagnosis.scope import Scope
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Finding, FindingSeverity, NotEvaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The amounts of one resource on one node, in whole units.

    `capacity` is None if the input has none, and `allocated` if pods were not read.
    """

    capacity: int | None
    allocatable: int
    allocated: int | None

    @property
    def free(self) -> int | None:
        """The allocatable amount that no pod holds; negative if pods hold more than is allocatable."""
        return None if self.allocated is None else self.allocatable - self.allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNode:
    """A node that has GPUs, by its resources or by its labels, with its amounts of GPUs and RDMA devices.

    `product`: the name of its card, from its labels, or "".
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
    """GPU pods that are not scheduled, with two answers: the scheduler's message, and the finding.

    `pods`: all pods with these answers, the oldest first; `since` is the time of the oldest. `note`: why the messages
    differ or cannot be compared, such as filters that are not modelled. `evaluated`: False if no reason about nodes was
    evaluated. `blocking`: findings about nodes that could serve the pods without these findings.
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
    """An error in Events or in the states of containers; `count`: the number of its occurrences, the last one at `at`.

    `objects`: all objects with this error, in order; the message is about the first one.
    """

    objects: tuple[ObjectName, ...]
    reason: str
    message: str
    count: int
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The five sections of a one-shot diagnosis; `more_errors`: the number of older errors that are omitted."""

    nodes: tuple[GpuNode, ...]
    device_plugins: tuple[DevicePlugin, ...]
    pods: tuple[GpuPod, ...]
    pending: tuple[PendingPod, ...]
    errors: tuple[RecentError, ...]
    more_errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """Equal findings about several objects, as the finding about one of them, and the names of all, in order.

    `finding` and `effects` have the evidence and the commands for one of the objects. `effects`: other findings that
    the finding causes on each object; none is worse than the finding.
    """

    finding: Finding
    objects: tuple[ObjectName, ...]
    effects: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadKind:
    """A kind whose objects were not read, by its name in kubectl, and the facts that are unknown without them."""

    objects: str
    unknown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A whole diagnosis; findings are grouped, causes with their effects.

    `objects`: the number of objects of each kind that were read, by the kind's name in kubectl. `scope`: the objects
    that the diagnosis reports on. `rules`: the source of the active ladders, as the user wrote it, or "".
    """

    now: datetime
    scope: Scope
    objects: Mapping[str, int]
    overview: Overview
    findings: tuple[FindingGroup, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    absent: tuple[UnreadKind, ...]
    rules: str = ""

    def has(self, least: FindingSeverity) -> bool:
        """Return True if a finding is at least as severe as `least`."""
        ranks = [*FindingSeverity]
        return any(ranks.index(group.finding.severity) <= ranks.index(least) for group in self.findings)
