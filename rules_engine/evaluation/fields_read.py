"""Members of a request that decisions read; members of its pods are below `object` and `oldObject`."""

from collections.abc import Iterable
from functools import reduce

from rules_engine.cel import Program
from rules_engine.cel.reads import Place, Reads
from rules_engine.cel.values.types import ADMISSION_REQUEST, POD
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, Kept, keep_at, merge_fields
from rules_engine.model.kubernetes.placement import PLACEMENT_MEMBERS
from rules_engine.model.rules.rule import SKIP_ANNOTATION, Rule

_ROOTS = {
    "request": Place("request", ADMISSION_REQUEST),
    **{name: Place("request", POD, (name,)) for name in ("object", "oldObject")},
}

_CONTAINER: Kept = {"name": None, "restartPolicy": None, "resources": {"limits": None, "requests": None}}

ALWAYS_READ_FIELDS: Kept = {
    "kind": dict.fromkeys(("group", "version", "kind")),
    "subResource": None,
    "operation": None,
    "namespace": None,
    "object": {
        "metadata": {
            "namespace": None,
            "deletionTimestamp": None,
            "labels": NO_FIELDS,
            "annotations": {SKIP_ANNOTATION: None},
        },
        "spec": {
            **dict.fromkeys(("overhead", "resources", *PLACEMENT_MEMBERS)),
            "containers": _CONTAINER,
            "initContainers": _CONTAINER,
        },
    },
}
"""Members of a request that every decision reads, with any rules."""


def fields_read(rules: Iterable[CompiledRule[Rule]], *, messages: bool) -> Kept:
    """Return the members that decisions by these rules read; `messages`: include members that only messages read."""
    return reduce(merge_fields, (_fields_of_rule(rule, messages=messages) for rule in rules), ALWAYS_READ_FIELDS)


def _fields_of_rule(compiled: CompiledRule[Rule], *, messages: bool) -> Kept:
    rule = compiled.rule
    labels = (requirement.key for requirement in rule.match.object_selector.requirements)
    metadata: Kept = {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(rule.interests.annotations)}
    programs = (*compiled.programs[len(compiled.variables) :], *(compiled.messages if messages else ()))
    own = merge_fields(keep_at(("object", "metadata"), metadata), {"object": rule.interests.pod_fields})
    return merge_fields(own, fields_read_by(compiled, programs))


def fields_read_by(compiled: CompiledRule[Rule], programs: Iterable[Program]) -> Kept:
    """Return the members that expressions of a rule read, directly or by its variables."""
    variables = {name: variable.program.checked for name, variable in compiled.variables.items()}
    reads = Reads(_ROOTS, variables, compiled.rule.params)
    for program in programs:
        reads.add(program.checked)
    return reads.kept.get("request", NO_FIELDS)
