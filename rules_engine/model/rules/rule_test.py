"""RuleTest: cases that a rule set must pass."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NewType

from rules_engine.model.json.patch import EMPTY, Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import RuleId

FilePath = NewType("FilePath", str)
"""A file's path as in messages, already joined with the folder of the file that refers to it."""


@dataclass(frozen=True, slots=True)
class ExpectedRule:
    """A rule that must contribute to the decision; for a ladder also the rung that the pod gets or keeps."""

    rule: RuleId
    rung: str | None
    location: Location


AmountsByContainer = Mapping[str, Mapping[str, Quantity]]
"""Amounts of resources by container; zero means absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedAudit:
    """A rule in audit mode that must apply, and its expected effects; None, or an absent key, is not compared."""

    rule: RuleId
    location: Location
    action: Action | None = None
    message: str | None = None
    rung: str | None = None
    containers: AmountsByContainer = field(default_factory=lambda: MappingProxyType({}))
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expected decision; None, or an absent key, is not compared.

    `containers`: by container name, the amounts of resources in limits, or in requests where there is no limit; in
    `requests` and `limits` each alone. `pod`: the whole pod as admitted. `annotations`: None means that the annotation
    must be absent. `warnings` and `message`: texts that must occur. `decided_by`: exactly the rules that contributed to
    the decision, in any order; `audited`: exactly the rules in audit mode that would have contributed.
    """

    location: Location
    allowed: bool | None = None
    containers: AmountsByContainer = field(default_factory=lambda: MappingProxyType({}))
    requests: AmountsByContainer = field(default_factory=lambda: MappingProxyType({}))
    limits: AmountsByContainer = field(default_factory=lambda: MappingProxyType({}))
    pod: Json = None
    annotations: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] | None = None
    message: str | None = None
    decided_by: tuple[ExpectedRule, ...] | None = None
    audited: tuple[ExpectedAudit, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One pod with its expected decision; `pod` is a whole Pod, even if the author wrote a template.

    `clusters` are the names of the clusters that the case runs on; a single cluster without a name has the name "".
    `expect` applies to all of them; `expect_on` has further expectations by the name of a cluster.
    """

    name: str
    location: Location
    pod: Json
    expect: Expectation
    expect_on: Mapping[str, Expectation] = field(default_factory=lambda: MappingProxyType({}))
    clusters: tuple[str, ...] = ("",)
    namespace: str = "default"
    namespace_labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    operation: str = "CREATE"
    sub_resource: str = ""
    dry_run: bool = False
    old_pod: Json = None

    def expectations(self, cluster: str) -> tuple[Expectation, ...]:
        """Return the expectations on a cluster."""
        return (self.expect, self.expect_on[cluster]) if cluster in self.expect_on else (self.expect,)


ObjectLoader = Callable[[], ClusterObjects]
"""A function that returns the objects of a cluster; only diagnoses call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFinding:
    """One finding that the diagnosis must make; `message` is a text that must occur in its message."""

    reason: str
    object: str
    location: Location
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDiagnosis:
    """The expected findings on each cluster of the test: all findings with these `reasons`; None: with any reason."""

    name: str
    location: Location
    expect: tuple[ExpectedFinding, ...]
    reasons: frozenset[str] | None = None
    reason_locations: Mapping[str, Location] = field(
        default_factory=lambda: MappingProxyType({}), repr=False, compare=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTest:
    """Cases for the rules in `rules` (files or folders), decided on `cluster`, or on several `clusters` by name.

    `objects` has a loader of each cluster's objects, by name; a single cluster without a name has the name "". It is
    empty without diagnoses.
    """

    name: str
    location: Location
    description: str = ""
    rules: tuple[FilePath, ...]
    cluster: Cluster = field(default_factory=Cluster)
    clusters: Mapping[str, Cluster] = field(default_factory=lambda: MappingProxyType({}))
    cases: tuple[Case, ...] = ()
    diagnoses: tuple[ExpectedDiagnosis, ...] = ()
    objects: Mapping[str, ObjectLoader] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
