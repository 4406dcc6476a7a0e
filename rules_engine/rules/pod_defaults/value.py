"""PodDefaults, as loaded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rules_engine.accelerators.resources import is_gpu, scheduler_for
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import CONTAINER_LISTS
from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.rule import Interests
from rules_engine.rules.entries import Entry, RuleWithEntries
from rules_engine.rules.pod_members.value import Form, Member
from rules_engine.rules.rule_set.globs import matches_any


class PodDefaultsCode(ProblemCode):
    """Codes of problems of PodDefaults."""

    IMPOSSIBLE_CONTAINER = "impossible-container"
    MOUNT_WITHOUT_VOLUME = "mount-without-volume"
    QUEUE_ON_PODS = "queue-on-pods"
    UNREACHABLE_MEMBER = "unreachable-member"
    UNKNOWN_CLASS = "unknown-class"
    UNMATCHED_SELECTOR = "unmatched-selector"
    SELECTOR_CONFLICT = "selector-conflict"


_OF_CLASSES = {"priorityClassName": ("priority", "preemptionPolicy"), "runtimeClassName": ("overhead",)}
"""Members that the API server computes from a class, by the field that names it."""


class OnConflict(Enum):
    """The action on a member that the pod already has with another value."""

    KEEP = "Keep"
    OVERWRITE = "Overwrite"


class Which(Enum):
    """The containers that get members: by what they request, or all."""

    REQUESTING = "Requesting"
    NOT_REQUESTING = "NotRequesting"
    ALL = "All"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerMembers:
    """Members of some containers: by `which`, or of the given `names`."""

    which: Which = Which.ALL
    names: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()

    @property
    def title(self) -> str:
        return ",".join(self.names) or self.which.value

    def chooses(self, name: str, *, requesting: bool) -> bool:
        """Return True for a container with this name. `requesting`: it requests a resource of the rule."""
        if self.names:
            return name in self.names
        return self.which is Which.ALL or requesting == (self.which is Which.REQUESTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsEntry(Entry):
    """Members of the pod, and members of its containers."""

    pod: tuple[Member, ...] = ()
    containers: tuple[ContainerMembers, ...] = ()

    @property
    def by_path(self) -> Mapping[str, Member]:
        """The members by their paths in the document."""
        pod = {f"pod.{'.'.join(map(str, each.field.parent))}.{each.title}": each for each in self.pod}
        groups = ((f"containers[{group.title}]", each) for group in self.containers for each in group.members)
        return {**pod, **{f"{group}.{member.title}": member for group, member in groups}}

    @property
    def settings(self) -> Mapping[str, tuple[Json, Location]]:
        return {path: (member.written, member.location) for path, member in self.by_path.items()}

    def __bool__(self) -> bool:
        return bool(self.pod or self.containers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDefaults(RuleWithEntries[DefaultsEntry]):
    """Members that pods get unless they have them."""

    kind = "PodDefaults"

    on_conflict: OnConflict = OnConflict.KEEP

    @property
    def interests(self) -> Interests:
        return Interests(writes=dict(self._writes()))

    def _writes(self) -> Iterator[tuple[tuple[str, ...], Location]]:
        for entry in self.entries:
            for member in entry.pod:
                yield (
                    (*map(str, member.field.path), *([member.name] if member.field.form is Form.MAP else ())),
                    member.location,
                )
                for name in _OF_CLASSES.get(member.field.name, ()):
                    yield ("spec", name), member.location
            for group in entry.containers:
                for member in group.members:
                    for owner in CONTAINER_LISTS:
                        yield ("spec", owner, member.field.name), member.location

    def adds(self, *fields: str) -> bool:
        """Return True if the rule has a member of one of these fields of pods."""
        return any(member.field.name in fields for entry in self.entries for member in entry.pod)

    @property
    def can_deny(self) -> bool:
        return False

    @property
    def own_expressions(self) -> Mapping[str, SourceText]:
        by_prefix = {"": self.default, **{f"namespaces.{name}.": entry for name, entry in self.namespaces.items()}}
        return {
            prefix + member.expression_path(path, part): part.expression
            for prefix, entry in by_prefix.items()
            for path, member in entry.by_path.items()
            for part in member.computed
        }

    def counts(self, resource: str) -> bool:
        """Return True for a resource by which containers are Requesting: of `match.resources`, else a GPU resource."""
        patterns: Sequence[str] = self.match.resources
        if patterns:
            return matches_any(patterns, resource)
        return is_gpu(resource) or scheduler_for(resource) is not None
