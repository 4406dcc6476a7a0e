"""Cluster requirements: the collections of a cluster that a rule set reads; the server watches no others."""

from dataclasses import dataclass

from rules_engine.evaluation.rule_set.rule_set import RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequirements:
    """The collections that rules read; pods require nodes."""

    nodes: bool = False
    pods: bool = False
    namespaces: bool = False


def cluster_requirements(rule_set: RuleSet) -> ClusterRequirements:
    """Return the collections that the rules read, those of rules in audit mode as well."""
    rules = rule_set.rules
    pods = any(rule.reads_available for rule in rules)
    return ClusterRequirements(
        nodes=pods or any(rule.reads_nodes for rule in rules),
        pods=pods,
        namespaces=any(rule.rule.match.namespace_selector for rule in rules)
        or any("namespaceObject" in program.reads for rule in rules for program in (*rule.programs, *rule.messages)),
    )
