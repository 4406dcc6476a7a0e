"""Fingerprint of the request fields that rules read: requests with equal fingerprints get the same decision.

The pods of one Job or Deployment differ in their names and uids, and in labels and annotations that no rule names.
"""

from collections.abc import Callable, Sequence
from marshal import dumps
from typing import Any, TypeAlias

from rules_engine.evaluation.fields_read import fields_read
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import keeps_path, reduce_value
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.rule import Rule

MAX_KEY_BYTES = 16 * 1024
"""Longest fingerprint that is cached: several times what an ordinary pod's containers take."""

MAX_KEY_CONTAINERS = MAX_KEY_BYTES // 3
"""Most containers of a pod that is encoded: a valid one takes more than three bytes, so more exceed MAX_KEY_BYTES."""

_UNIQUE_FIELDS = (
    *(
        ("object", "metadata", name)
        for name in ("name", "uid", "resourceVersion", "creationTimestamp", "managedFields")
    ),
    ("uid",),
    ("name",),
)
"""Fields that differ for every pod: a cache keyed by one of them would never hit."""

Encode: TypeAlias = Callable[[list[Any]], bytes]
"""Serializer of JSON values: different values have different bytes; tuples are written as lists."""

_MARSHAL_VERSION = 2
"""The last version of marshal's format whose output does not depend on reference counts: from version 3 on, equal
values may have different bytes, and so different fingerprints."""


def marshal_value(value: list[Any]) -> bytes:
    """Encode a value with the standard library."""
    return dumps(value, _MARSHAL_VERSION)


class Fingerprint:
    """The fields of a pod's request that decisions read; fields that only messages read are not part of it."""

    __slots__ = ("_encode", "_kept", "repeats")

    def __init__(self, rules: Sequence[CompiledRule[Rule]], encode: Encode = marshal_value) -> None:
        self._encode = encode
        self._kept = fields_read(rules, messages=False)
        self.repeats = not any(keeps_path(self._kept, *unique) for unique in _UNIQUE_FIELDS)
        """True if requests can have equal fingerprints: no rule reads a field that differs for every pod."""

    def key(self, request: AdmissionRequest) -> bytes | None:
        """Return the fingerprint of the request; None if the request is malformed or too large to be cached."""
        # A cached decision is returned without parsing the pod. So each field whose parsing can fail is either part of
        # the key or checked here; otherwise a malformed pod could get the decision of a valid one.
        pod = request.object
        metadata, spec = (pod.get("metadata"), pod.get("spec")) if isinstance(pod, dict) else (None, None)
        if not isinstance(metadata, dict) or not isinstance(spec, dict):
            return None
        if not isinstance(metadata.get("name", ""), str):
            return None
        if not (_is_string_map(metadata.get("labels")) and _is_string_map(metadata.get("annotations"))):
            return None
        for member in ("containers", "initContainers"):
            containers = spec.get(member)
            if containers is not None and not (
                isinstance(containers, list)
                and len(containers) <= MAX_KEY_CONTAINERS
                and all(isinstance(container, dict) for container in containers)
            ):
                return None
        # Copied in the order of `_kept`, so that the order of members in the request matters only in fields kept whole.
        # A different order there costs an evaluation, never a wrong decision: the bytes differ.
        try:
            key = self._encode([reduce_value(request.raw, self._kept)])
        except (TypeError, ValueError):  # nested too deeply for the encoder
            return None
        return key if len(key) <= MAX_KEY_BYTES else None


def _is_string_map(members: Json) -> bool:
    """Return True if labels or annotations are absent or a map of strings; most pods have few."""
    if members is None:
        return True
    if not isinstance(members, dict):
        return False
    for value in members.values():  # noqa: SIM110 - a generator would cost more than the other checks together
        if type(value) is not str:
            return False
    return True
