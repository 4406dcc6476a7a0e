"""RuleTest: cases that a rule set must pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NewType

from rules_engine.model.cluster import Cluster
from rules_engine.model.json.patch import Json
from rules_engine.model.quantity import Quantity
from rules_engine.model.rules import EMPTY, RuleId
from rules_engine.model.source import Location

FilePath = NewType("FilePath", str)
"""A file's path in messages, already joined with the folder of the file that refers to it."""


@dataclass(frozen=True, slots=True)
class Decider:
    """A rule that must contribute to the decision; for a ladder also the rung that was taken or kept."""

    rule: RuleId
    rung: str | None
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expected decision; None, or an absent key, is not compared.

    `containers`: by container name, the amounts of resources in limits, or in requests where there is no limit; zero
    means absent. `annotations`: None means that the annotation must be absent. `warnings` and `message`: texts that
    must occur. `decided_by`: exactly the rules that contributed to the decision, in any order.
    """

    location: Location
    allowed: bool | None = None
    containers: Mapping[str, Mapping[str, Quantity]] = field(default_factory=lambda: MappingProxyType({}))
    annotations: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] | None = None
    message: str | None = None
    decided_by: tuple[Decider, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One pod with its expected decision; `pod` is a whole Pod, also if the author gave a template."""

    name: str
    location: Location
    pod: Json
    expect: Expectation
    namespace: str = "default"
    namespace_labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    operation: str = "CREATE"
    sub_resource: str = ""
    dry_run: bool = False
    old_pod: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTest:
    """Cases for the rules in `rules` (files or folders), decided against `cluster`."""

    name: str
    location: Location
    rules: tuple[FilePath, ...]
    cluster: Cluster = field(default_factory=Cluster)
    cases: tuple[Case, ...]
