"""Cluster requirements of a rule set."""

import pytest

from rules_engine.cluster.nodes import Offered
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector, Match, Mode, Rule
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.rule_set import ClusterRequirements, KindRules, RuleSet, cluster_requirements
from tests.support.evaluation import GPU, MIG2, check, compiled, injection, ladder, rung, validation

SELECTOR = Match(namespace_selector=LabelSelector((LabelRequirement("team", ConditionKind.EXISTS),)))
NODES = ClusterRequirements(nodes=True, devices=True)
PODS = ClusterRequirements(nodes=True, devices=True, pods=True)


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        (injection(), ClusterRequirements()),
        (validation("object.metadata.name != 'available'"), ClusterRequirements()),
        (ladder(MIG2, GPU, mode=Mode.OFF, offered=Offered.AVAILABLE), ClusterRequirements()),
        (ladder(MIG2, GPU), NODES),
        (ladder(MIG2, GPU, mode=Mode.AUDIT), NODES),
        (ladder(MIG2, GPU, offered=Offered.AVAILABLE), PODS),
        (ladder(MIG2, rung(GPU, "cluster.available('a/b') > 0")), PODS),
        (validation("cluster.total('nvidia.com/gpu') > 0"), NODES),
        (validation("cluster.allocatable('nvidia.com/gpu') > 0"), NODES),
        (validation("cluster.available('nvidia.com/gpu') > 0"), PODS),
        (validation(check("true", message_expression="string(cluster.total('a/b'))")), NODES),
        (injection(match_conditions={"free": "cluster.available('a/b') > 0"}), PODS),
        (injection(variables={"all": "cluster.total('a/b')"}), NODES),
        (injection(match=SELECTOR), ClusterRequirements(namespaces=True)),
        (validation("namespaceObject.metadata.name != ''"), ClusterRequirements(namespaces=True)),
    ],
)
def test_only_collections_that_a_rule_reads_are_required(rule: Rule, needed: ClusterRequirements) -> None:
    assert cluster_requirements(compiled(rule)) == needed


def test_the_requirements_of_all_rules_add_up() -> None:
    assert cluster_requirements(compiled(ladder(MIG2, GPU), injection(match=SELECTOR))) == ClusterRequirements(
        nodes=True, devices=True, namespaces=True
    )


class ReadsClasses(CompiledRule[Rule]):
    """A rule of a kind that reads classes."""

    reads_classes = True


def test_classes_are_required_if_a_rule_reads_them() -> None:
    (group,) = (each for each in compiled(injection()).kinds if each.rules)
    rule = ReadsClasses(rule=group.rules[0].rule, variables={}, conditions=())
    rule_set = RuleSet((KindRules(group.kind, (*group.rules, rule)),))
    assert cluster_requirements(rule_set) == ClusterRequirements(classes=True)
