"""Fields of a pod and its request that the expressions of rules read, as far as their names are constant."""

from collections.abc import Iterable

from rules_engine.cel.field_paths import Chain, chains
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.model.rules import Rule

_PODS = ("object", "oldObject")


def field_paths(rules: Iterable[CompiledRule[Rule]], *, messages: bool) -> set[Chain]:
    """Return the paths of pods and requests that rules read; `messages`: also those that only their messages read."""
    return {
        chain
        for compiled in rules
        for program in (*compiled.programs, *(compiled.messages if messages else ()))
        for chain in chains(program.checked.expression)
        if chain[0] in ("request", *_PODS)
    }
