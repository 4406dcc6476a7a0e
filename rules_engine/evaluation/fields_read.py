"""Fields of a pod and its request that the expressions of rules read, as far as their names are constant."""

from collections.abc import Iterable
from dataclasses import dataclass

from rules_engine.cel.field_paths import Chain, chains
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.model.rules import Rule

_PODS = ("object", "oldObject")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldsRead:
    """Names of members that expressions read, with all that is in them; those of object and oldObject together."""

    request: frozenset[str]
    pod: frozenset[str]
    metadata: frozenset[str]
    spec: frozenset[str]


def field_paths(rules: Iterable[CompiledRule[Rule]], *, messages: bool) -> set[Chain]:
    """Return the paths of pods and requests that rules read; `messages`: also those that only their messages read."""
    return {
        chain
        for compiled in rules
        for program in (*compiled.programs, *(compiled.messages if messages else ()))
        for chain in chains(program.checked.expression)
        if chain[0] in ("request", *_PODS)
    }


def fields_read(rules: Iterable[CompiledRule[Rule]]) -> FieldsRead | None:
    """Return the fields that rules and their messages read.

    None if one reads the request, a pod, its metadata or its spec as a whole.
    """
    found: dict[Chain, set[str]] = {("request",): set(), (): set(), ("metadata",): set(), ("spec",): set()}
    for root, *members in field_paths(rules, messages=True):
        path: Chain = tuple(members)
        if root == "request":
            if not path:
                return None
            found["request",].add(path[0])
        elif path in ((), ("metadata",), ("spec",)):
            return None
        elif path[:1] in found:
            found[path[:1]].add(path[1])
        else:
            found[()].add(path[0])
    return FieldsRead(
        request=frozenset(found["request",]),
        pod=frozenset(found[()]),
        metadata=frozenset(found["metadata",]),
        spec=frozenset(found["spec",]),
    )
