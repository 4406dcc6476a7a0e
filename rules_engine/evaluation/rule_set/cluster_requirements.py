"""Cluster requirements: the collections of a cluster that a rule set reads; the server watches no others."""

from collections.abc import Iterator
from dataclasses import dataclass

from rules_engine.cel import Program
from rules_engine.evaluation.rule_set.compiled import AnyCompiled, CompiledLadder, RuleSet, messages, programs
from rules_engine.model.rules import Offered


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequirements:
    """The collections that rules read; pods require nodes."""

    nodes: bool = False
    pods: bool = False
    namespaces: bool = False


def cluster_requirements(rule_set: RuleSet) -> ClusterRequirements:
    """Return the collections that the rules read, those of rules in audit mode as well."""
    rules = rule_set.rules
    # The whole rule counts: a variable may be the cluster, and another expression may call it.
    reading = [rule for rule in rules if any("cluster" in program.reads for program in _programs(rule))]
    pods = any(reads_available(rule) for rule in rules)
    return ClusterRequirements(
        nodes=pods or bool(rule_set.ladders) or bool(reading),
        pods=pods,
        namespaces=any(rule.rule.match.namespace_selector for rule in rules)
        or any("namespaceObject" in program.reads for rule in rules for program in _programs(rule)),
    )


def reads_available(rule: AnyCompiled) -> bool:
    """Return True if a rule reads free amounts: its decisions depend on the pods admitted before."""
    if isinstance(rule, CompiledLadder) and rule.rule.offered is Offered.AVAILABLE:
        return True
    # The whole rule counts: a variable may be the cluster. No expression reads free amounts without this word.
    found = [*_programs(rule)]
    return any("cluster" in program.reads for program in found) and any(
        "available" in program.source.text for program in found
    )


def _programs(rule: AnyCompiled) -> Iterator[Program]:
    """Yield every expression of a rule."""
    yield from programs(rule)
    yield from messages(rule)
