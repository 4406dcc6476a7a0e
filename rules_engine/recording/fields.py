"""Fields of a request that are recorded: those that its fingerprint has, without values of environment variables."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2s
from typing import TypeAlias

from msgspec.json import encode

from rules_engine.cel.field_paths import Chain
from rules_engine.evaluation.fields_read import field_paths
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.model.admission import AdmissionRequest
from rules_engine.model.json.lenient import items, texts
from rules_engine.model.json.patch import Json
from rules_engine.model.placement import PLACEMENT_MEMBERS
from rules_engine.model.rules import SKIP_ANNOTATION, Rule
from rules_engine.recording.pod_reads import CONTAINER_LISTS, LAST_APPLIED, Holds, PodReads

_REQUEST = ("uid", "kind", "name", "namespace", "operation", "subResource", "dryRun")
_METADATA = ("name", "generateName", "namespace", "deletionTimestamp")
_SPEC = ("overhead", "resources", *PLACEMENT_MEMBERS)
_CONTAINER = ("name", "restartPolicy", "resources")
_CONTAINERS = ("containers", "initContainers")

_ENVIRONMENT, _LAST_APPLIED = "environment", "lastApplied"
_SECRETS = {
    _ENVIRONMENT: "values of environment variables",
    _LAST_APPLIED: f"the annotation {LAST_APPLIED}",
}

_ALWAYS = frozenset(
    [("request", name) for name in _REQUEST]
    + [("object", "metadata", name) for name in _METADATA]
    + [("object", "spec", name) for name in _SPEC]
)


class Unrecorded(Enum):
    """Reasons why a decision cannot be repeated from its line."""

    REDACTED = "redacted"
    SIZE = "size"
    MALFORMED = "malformed"
    VIEW = "view"


Members: TypeAlias = dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFields:
    """The fields of requests that are recorded, beside those that every recorded request has.

    `paths` begin with object, oldObject or request; none is below another one. `members` are the recorded members of
    containers that `paths` include; None: all. `environment` and `last_applied`: rules may read values of environment
    variables, or the last applied configuration, which are never recorded: requests of pods with some are not either.
    """

    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    paths: tuple[Chain, ...] = ()
    members: frozenset[str] | None = frozenset()
    environment: bool = False
    last_applied: bool = False
    name: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        name = blake2s(encode(self.to_json()), digest_size=4).hexdigest()
        object.__setattr__(self, "name", name)

    @classmethod
    def of(cls, rules: Iterable[CompiledRule[Rule]]) -> "RecordedFields":
        """Return the fields that these rules read, but for those that only their messages read."""
        rules = tuple(rules)
        labels: set[str] = set()
        annotations = {SKIP_ANNOTATION}
        for compiled in rules:
            labels.update(requirement.key for requirement in compiled.rule.match.object_selector.requirements)
            annotations |= compiled.rule.interests.annotations
        reads = _pod_reads(rules)
        paths = field_paths(rules, messages=False)
        if ("request",) in paths:
            paths |= {("object",), ("oldObject",)}
        return cls(
            labels=frozenset(labels),
            annotations=frozenset(annotations),
            paths=_topmost(paths),
            members=reads.members,
            environment=reads.environment,
            last_applied=reads.last_applied or LAST_APPLIED in annotations,
        )

    @classmethod
    def parse(cls, members: Mapping[str, Json]) -> "RecordedFields":
        """Read the JSON of `to_json`; members that are absent or of another type are empty."""
        recorded, unrecorded = members.get("members"), texts(members.get("withoutPods"))
        return cls(
            labels=frozenset(texts(members.get("labels"))),
            annotations=frozenset(texts(members.get("annotations"))),
            paths=tuple(tuple(texts(path)) for path in items(members.get("paths"))),
            members=None if recorded is None and "members" in members else frozenset(texts(recorded)),
            environment=_ENVIRONMENT in unrecorded,
            last_applied=_LAST_APPLIED in unrecorded,
        )

    def to_json(self) -> Members:
        return {
            "labels": [*sorted(self.labels)],
            "annotations": [*sorted(self.annotations)],
            "paths": [[*path] for path in self.paths],
            "members": None if self.members is None else [*sorted(self.members)],
            "withoutPods": [name for name, read in self._secrets.items() if read],
        }

    @property
    def _secrets(self) -> Mapping[str, bool]:
        return {_ENVIRONMENT: self.environment, _LAST_APPLIED: self.last_applied}

    def missing(self, read: "RecordedFields") -> Iterator[str]:
        """Yield the fields that other rules read and that requests with these fields may not have."""
        for member, mine, others in (
            ("labels", self.labels, read.labels),
            ("annotations", self.annotations, read.annotations),
        ):
            path = ("object", "metadata", member)
            if path not in self.paths and path[:2] not in self.paths and path[:1] not in self.paths:
                yield from (f"{'.'.join(path)}[{name!r}]" for name in sorted(others - mine))
        yield from (".".join(path) for path in read.paths if not self._includes(path))
        if self.members is not None and any(map(_has_containers, read.paths)):
            if read.members is None:
                yield "all members of containers"
            else:
                yield from (f"{name} of containers" for name in sorted(read.members - self.members.union(_CONTAINER)))
        yield from (_SECRETS[name] for name, own in self._secrets.items() if read._secrets[name] > own)  # noqa: SLF001

    def _includes(self, path: Chain) -> bool:
        """Return True if a path is recorded, or below one that is."""
        if any(path[:end] in _ALWAYS or path[:end] in self.paths for end in range(1, len(path) + 1)):
            return True
        above, name = path[:3], path[3:4]
        if above == ("object", "metadata", "labels"):
            return bool(name) and name[0] in self.labels
        return above == ("object", "metadata", "annotations") and bool(name) and name[0] in self.annotations

    def reduced(self, request: AdmissionRequest) -> Members | Unrecorded:
        """Return the fields of a request that was decided, as JSON; no value in it is copied."""
        raw = request.raw
        found = {name: raw[name] for name in _REQUEST if name in raw}
        redaction = _Redaction(self.members)
        if request.is_pod or request.is_resize:
            found["object"] = self._pod(request.object, redaction)
            for path in self.paths:
                way = path[1:] if path[0] == "request" else path
                if way:
                    _copy(raw, found, way, redaction)
                else:
                    rest = {name: value for name, value in raw.items() if name not in ("object", "oldObject")}
                    found.update((name, redaction.of(value)) for name, value in rest.items())
        secret = (redaction.environment and self.environment) or (redaction.last_applied and self.last_applied)
        return Unrecorded.REDACTED if secret else found

    def _pod(self, pod: Json, redaction: "_Redaction") -> Json:
        """Return the members of a pod that every recorded request has."""
        if not isinstance(pod, dict):
            return pod
        found = _among(pod, ("metadata", "spec"))
        metadata, spec = found.get("metadata"), found.get("spec")
        if isinstance(metadata, dict):
            found["metadata"] = reduced = _among(metadata, _METADATA)
            for member, names in (("labels", self.labels), ("annotations", self.annotations)):
                values = metadata.get(member)
                if isinstance(values, dict):
                    reduced[member] = redaction.members(_among(values, names))
                elif member in metadata:
                    reduced[member] = values
        if isinstance(spec, dict):
            found["spec"] = reduced = _among(spec, _SPEC)
            for member in _CONTAINERS:
                containers = spec.get(member)
                if isinstance(containers, list):
                    reduced[member] = [
                        _among(item, _CONTAINER) if isinstance(item, dict) else item for item in containers
                    ]
                elif member in spec:
                    reduced[member] = containers
        return found


def _among(members: Members, names: Iterable[str]) -> Members:
    return {name: members[name] for name in names if name in members}


class _Redaction:
    """The redaction of one request's values: containers without values of environment variables."""

    def __init__(self, members: frozenset[str] | None) -> None:
        self._of_containers = None if members is None else members.union(_CONTAINER)
        self.environment = False
        """A value of an environment variable was omitted."""
        self.last_applied = False
        """The last applied configuration was omitted."""

    def of(self, value: Json, name: str = "") -> Json:
        """Return the value of a member without what must not be recorded."""
        if isinstance(value, list):
            if name == "env":
                return [self._variable(item) for item in value]
            if name in CONTAINER_LISTS:
                return [self._container(item) for item in value]
            return [self.of(item) for item in value]
        return self.members(value) if isinstance(value, dict) else value

    def members(self, value: Members) -> Members:
        """Return the members of an object without what must not be recorded."""
        if LAST_APPLIED in value:
            self.last_applied = True
        return {key: self.of(item, key) for key, item in value.items() if key != LAST_APPLIED}

    def _container(self, item: Json) -> Json:
        if isinstance(item, dict) and self._of_containers is not None:
            item = {key: value for key, value in item.items() if key in self._of_containers}
        return self.of(item)

    def _variable(self, item: Json) -> Json:
        if not isinstance(item, dict) or "value" not in item:
            return item
        self.environment = True
        return {key: value for key, value in item.items() if key != "value"}


def _copy(source: Members | Mapping[str, Json], target: Members, path: Chain, redaction: _Redaction) -> None:
    """Copy what is at a path of `source`, and the objects above it, as far as they exist."""
    for name in path[:-1]:
        value = source.get(name)
        if not isinstance(value, dict):
            if name in source:
                target |= redaction.members({name: value})
            return
        below = target.setdefault(name, {})
        if below is value or not isinstance(below, dict):
            return  # recorded as a whole
        source, target = value, below
    name = path[-1]
    if name in source:
        target |= redaction.members({name: source[name]})


def _topmost(paths: Set[Chain]) -> tuple[Chain, ...]:
    """Return the paths that are below no other, in order."""
    return tuple(sorted(path for path in paths if not any(path[:end] in paths for end in range(1, len(path)))))


def _has_containers(path: Chain) -> bool:
    """Return True if containers, or what has them, are at or above a path of a pod."""
    root, *members = path
    return root != "request" and members[:1] in ([], ["spec"]) and (not members[1:] or members[1] in CONTAINER_LISTS)


def _pod_reads(rules: Iterable[CompiledRule[Rule]]) -> PodReads:
    """Return the reads of all expressions but those of messages."""
    reads = PodReads()
    for compiled in rules:
        variables: dict[str, Holds] = {}
        for name, variable in compiled.variables.items():
            variables[name] = reads.add(variable.program.checked.expression, variables, compiled.rule.params)
        for program in compiled.programs[len(variables) :]:
            reads.add(program.checked.expression, variables, compiled.rule.params)
    return reads
