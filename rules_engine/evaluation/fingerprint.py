"""Fingerprint of the request fields that rules read: requests with equal fingerprints get the same decision.

The pods of one Job or Deployment differ in their names and uids, and in labels and annotations that no rule names.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from marshal import dumps
from typing import Any, TypeAlias

from rules_engine.cel.field_paths import Chain
from rules_engine.evaluation.fields_read import field_paths
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.model.admission import AdmissionRequest
from rules_engine.model.json.patch import Json
from rules_engine.model.placement import PLACEMENT_MEMBERS
from rules_engine.model.rules import SKIP_ANNOTATION, Rule

MAX_KEY_BYTES = 16 * 1024
"""Longest fingerprint that is cached: several times what an ordinary pod's containers take."""

_CONTAINER_MEMBERS = ("name", "restartPolicy", "resources")

MAX_KEY_CONTAINERS = MAX_KEY_BYTES // len(_CONTAINER_MEMBERS)
"""Containers of a pod that has a fingerprint: each member of a container takes at least a byte."""

MAX_CHAINS = 16
"""Field paths that are read separately: if there are more, their common parents are read whole."""

_SPEC = ("object", "spec")

_UNIQUE = tuple(
    [("object", "metadata", name) for name in ("name", "uid", "resourceVersion", "creationTimestamp", "managedFields")]
    + [("request", name) for name in ("uid", "name", "object", "oldObject")]
)
"""Fields that differ for every pod."""

Encode: TypeAlias = Callable[[list[Any]], bytes]
"""Serializer of JSON values: different values have different bytes; tuples are written as lists."""

_PLAIN_MARSHAL = 2
"""The last version of marshal's format whose output does not depend on reference counts."""


def marshalled(value: list[Any]) -> bytes:
    """Encode a value with the standard library."""
    return dumps(value, _PLAIN_MARSHAL)


class Fingerprint:
    """The fields of a pod's request that some rules read, but for those that only their messages read."""

    __slots__ = ("_annotations", "_encode", "_further", "_labels", "_spec", "repeats")

    def __init__(self, rules: Sequence[CompiledRule[Rule]], encode: Encode = marshalled) -> None:
        labels: set[str] = set()
        annotations = {SKIP_ANNOTATION}
        for compiled in rules:
            rule = compiled.rule
            labels.update(requirement.key for requirement in rule.match.object_selector.requirements)
            annotations |= rule.interests.annotations
        self._encode = encode
        self._labels = frozenset(labels)
        self._annotations = frozenset(annotations)
        places = _few(field_paths(rules, messages=False))
        self._spec = [chain[-1] for chain in places if chain[:-1] == _SPEC]
        """Members of spec that are read whole."""
        self._further = [chain for chain in places if chain[:-1] != _SPEC]
        self.repeats = not any(_along(chain, unique) for chain in places for unique in _UNIQUE)
        """True if two requests can have equal fingerprints: no rule reads a field that differs for every pod."""

    def key(self, request: AdmissionRequest) -> bytes | None:
        """Return the fingerprint of the request. None if it is malformed or too large: such a request is not cached.

        Each field that parsing the pod reads is either in it or checked here: none can be an error for only one of two
        pods with the same key.
        """
        pod = request.object
        metadata, spec = (pod.get("metadata"), pod.get("spec")) if isinstance(pod, dict) else (None, None)
        if not isinstance(metadata, dict) or not isinstance(spec, dict):
            return None
        labels, annotations = metadata.get("labels"), metadata.get("annotations")
        if not (isinstance(metadata.get("name", ""), str) and _all_texts(labels) and _all_texts(annotations)):
            return None
        seen: list[object] = [request.operation, request.namespace, metadata.get("namespace"), request.is_being_deleted]
        seen += map(spec.get, ("overhead", "resources", *PLACEMENT_MEMBERS))
        seen += (_among(labels, self._labels), _among(annotations, self._annotations))
        for member in ("containers", "initContainers"):
            containers = spec.get(member)
            if containers is not None:
                if not isinstance(containers, list) or len(containers) > MAX_KEY_CONTAINERS:
                    return None
                seen += (member, len(containers))
                for container in containers:
                    if not isinstance(container, dict):
                        return None
                    if member not in self._spec:
                        seen += map(container.get, _CONTAINER_MEMBERS)
        for name in self._spec:
            seen += (name in spec, spec.get(name))
        for root, *members in self._further:
            value = pod if root == "object" else request.old_object if root == "oldObject" else request.raw
            seen += _found(value, members)
        try:
            key = self._encode(seen)
        except (TypeError, ValueError):  # nested too deeply for the encoder
            return None
        return key if len(key) <= MAX_KEY_BYTES else None


def _all_texts(members: Json) -> bool:
    """Return True if labels or annotations are absent or a map of strings; most pods have few."""
    if members is None:
        return True
    if not isinstance(members, dict):
        return False
    for value in members.values():  # noqa: SIM110 - a generator would cost more than all the rest
        if type(value) is not str:
            return False
    return True


def _among(members: Json, names: Set[str]) -> list[tuple[str, Json]] | None:
    """Return an object's members with these names; None if it is not an object."""
    return [item for item in members.items() if item[0] in names] if isinstance(members, dict) else None


def _found(value: object, members: Sequence[str]) -> tuple[object, ...]:
    """Return the number of members found along a field path, and the value at which the search ended."""
    for depth, name in enumerate(members):
        if type(value) is not dict and not isinstance(value, Mapping):
            return -1, depth, value
        if name not in value:
            return (depth,)
        value = value[name]
    return len(members), value


def _few(chains: Set[Chain]) -> tuple[Chain, ...]:
    """Return the paths that are below no other; shortened, so that more is read, if they are too many."""
    for length in range(max(map(len, chains), default=0), 0, -1):
        cut = {chain[:length] for chain in chains}
        top = tuple(sorted(chain for chain in cut if not any(chain[:end] in cut for end in range(1, len(chain)))))
        if len(top) <= MAX_CHAINS:
            return top
    return ()


def _along(one: Chain, other: Chain) -> bool:
    """Return True if one path is a prefix of the other, or both are equal."""
    return all(name == other_name for name, other_name in zip(one, other, strict=False))
