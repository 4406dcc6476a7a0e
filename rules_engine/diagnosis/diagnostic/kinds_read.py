"""Kinds of objects that the expressions of a Diagnostic depend on."""

from collections.abc import Iterable, Mapping

from rules_engine.cel import Program
from rules_engine.cel.reads import Place, Reads
from rules_engine.cel.values.types import list_of
from rules_engine.diagnosis.diagnostic.library import CLUSTER, LISTS, OBJECTS
from rules_engine.diagnosis.diagnostic.value import ForEach
from rules_engine.evaluation.context import NamedProgram
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, keeps_path

_METHODS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("allocatable", "allocated", "available", "total"), frozenset({"Node", "Pod"})),
    "events": frozenset({"Event"}),
    "node": frozenset({"Node"}),
    "pods": frozenset({"Pod"}),
    # Without namespaces it is still evaluated: few pods select namespaces by their labels.
    "waitingFor": frozenset({"Node", "Pod"}),
}
"""Kinds of objects that the functions of objects read."""

_SHAPES = {item.name: item for item in LISTS.values()}
_METHOD_RESULTS: Mapping[str, Place | None] = {
    **dict.fromkeys(_METHODS),
    "events": Place("Event", list_of(_SHAPES["Event"])),
    "node": Place("Node", _SHAPES["Node"]),
    "pods": Place("Pod", list_of(_SHAPES["Pod"])),
}
"""The objects that these functions return; None for functions that return other values."""

_CLUSTER = Place("", CLUSTER)


def kinds_read(for_each: ForEach, variables: Mapping[str, NamedProgram], programs: Iterable[Program]) -> frozenset[str]:
    """Return the kinds that expressions depend on, including the expressions of the variables that they use."""
    each = _CLUSTER if for_each is ForEach.CLUSTER else Place(for_each.value, OBJECTS[for_each])
    checked = {name: variable.program.checked for name, variable in variables.items()}
    reads = Reads({"object": each, "cluster": _CLUSTER}, checked, {}, _METHOD_RESULTS)
    for program in programs:
        reads.add(program.checked)
    lists = reads.kept.pop(_CLUSTER.root, NO_FIELDS)
    listed = (item.name for name, item in LISTS.items() if keeps_path(lists, name))
    own = () if each is _CLUSTER else (each.root,)
    return frozenset({*own, *listed, *reads.kept}).union(*map(_METHODS.__getitem__, reads.called))
