"""Members of objects that the expressions of a Diagnostic read; only these are kept when objects are read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rules_engine.cel import Program
from rules_engine.cel.reads import Place, Reads
from rules_engine.cel.values.types import list_of
from rules_engine.diagnosis.diagnostic.library import CLUSTER, LISTS, OBJECTS
from rules_engine.diagnosis.diagnostic.value import ForEach
from rules_engine.evaluation.context import NamedProgram
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, Kept, keeps_path, merge_fields
from rules_engine.scheduling import FIELDS_READ as SCHEDULER_FIELDS

NAME_FIELDS: Kept = {"metadata": {"name": None, "namespace": None}}
"""Members of every object that is read: findings and references from other objects have its name."""

_CONTAINER: Kept = {"restartPolicy": None, "resources": {"requests": None, "limits": None}}
_BINDING: Kept = {"spec": {"nodeName": None}, "status": {"phase": None}}
_AMOUNTS: Mapping[str, Kept] = {
    "Node": {"status": {"allocatable": None}},
    "Pod": merge_fields(
        _BINDING,
        {"spec": {"containers": _CONTAINER, "initContainers": _CONTAINER, "overhead": None, "resources": None}},
    ),
}
_EVENTS: Mapping[str, Kept] = {
    "Event": {"involvedObject": {"kind": None, "namespace": None, "name": None, "uid": None}}
}

_METHODS: Mapping[str, Mapping[str, Kept]] = {
    "allocatable": _AMOUNTS,
    "allocated": _AMOUNTS,
    "available": _AMOUNTS,
    "total": _AMOUNTS,
    "events": _EVENTS,
    "node": {"Node": {}, "Pod": {"spec": {"nodeName": None}}},
    "pods": {"Pod": merge_fields(_BINDING, {"metadata": {"ownerReferences": None}})},
    "waitingFor": SCHEDULER_FIELDS,
}
"""Members that the functions of objects read, by the names of the functions."""

_DISPENSABLE = ("waitingFor", "Namespace")
"""A function and a kind without which it is still evaluated: few pods select namespaces by their labels."""

_SHAPES = {item.name: item for item in LISTS.values()}
_METHOD_RESULTS: Mapping[str, Place | None] = {
    **dict.fromkeys(_METHODS),
    "events": Place("Event", list_of(_SHAPES["Event"])),
    "node": Place("Node", _SHAPES["Node"]),
    "pods": Place("Pod", list_of(_SHAPES["Pod"])),
}
"""The objects that these functions return; None for functions that return other values."""

_CLUSTER = Place("", CLUSTER)


@dataclass(frozen=True, slots=True)
class FieldsRead:
    """The members that expressions read, by the kind of the objects, and the kinds without which they have no value."""

    kept: Mapping[str, Kept]
    needs: frozenset[str]


def fields_read(for_each: ForEach, variables: Mapping[str, NamedProgram], programs: Iterable[Program]) -> FieldsRead:
    """Return the fields that expressions read, including the expressions of the variables that they use."""
    each = _CLUSTER if for_each is ForEach.CLUSTER else Place(for_each.value, OBJECTS[for_each])
    checked = {name: variable.program.checked for name, variable in variables.items()}
    reads = Reads({"object": each, "cluster": _CLUSTER}, checked, {}, _METHOD_RESULTS)
    for program in programs:
        reads.add(program.checked)
    lists = reads.kept.pop(_CLUSTER.root, NO_FIELDS)
    direct = [(item.name, lists and lists[name]) for name, item in LISTS.items() if keeps_path(lists, name)]
    direct += [*reads.kept.items(), *([] if each is _CLUSTER else [(each.root, NO_FIELDS)])]
    called = [(method, kind, kept) for method in reads.called for kind, kept in _METHODS[method].items()]
    kinds: dict[str, Kept] = {}
    for kind, kept in (*direct, *((kind, kept) for _, kind, kept in called)):
        kinds[kind] = merge_fields(kinds.get(kind, NAME_FIELDS), kept)
    needs = {kind for kind, _ in direct} | {kind for method, kind, _ in called if (method, kind) != _DISPENSABLE}
    return FieldsRead(kinds, frozenset(needs))
