"""Kinds of objects that Diagnostics depend on."""

from pathlib import Path

import pytest

from tests.support.diagnostics import diagnostic

ALL = "DaemonSet Event Namespace Node Pod RuntimeClass"


@pytest.mark.parametrize(
    ("expression", "for_each", "needs"),
    [
        ("object.metadata.name == 'x'", "Pod", "Pod"),
        ("variables.unused == '' || variables.used", "Pod", "Event Node Pod"),
        ("object.node().value().metadata.name == 'x'", "Pod", "Node Pod"),
        ("object.pods()[0].spec.priority > 1", "Node", "Node Pod"),
        ("object.events()[0].reason == 'x'", "Node", "Event Node"),
        ("object.allocated('nvidia.com/gpu') > 0", "Node", "Node Pod"),
        ("object.waitingFor().size() > 0", "Pod", "Node Pod"),
        ("object.gpus().hasValue()", "Node", "Node"),
        ("object.devicePlugins()[0].metadata.name == ''", "Node", "Node Pod"),
        ("object.texts('XidError').size() > 0", "Node", "Node"),
        ("object.badConditions().size() > 0", "Node", "Node"),
        ("cluster.total(string(now)) > 0", "Cluster", "Node Pod"),
        ("cluster.nodes.size() > 0", "Cluster", "Node"),
        ("cluster.daemonSets[0].pods()[0].events().size() > 0", "Cluster", "DaemonSet Event Pod"),
        ("optional.of(cluster).hasValue()", "Cluster", ""),
        ("object == cluster", "Cluster", ALL),
        ("cluster.exists(k, k == 'x')", "Cluster", ALL),
        ("cluster[string(now)].size() > 0", "Cluster", ALL),
    ],
)
def test_a_condition_needs_the_kinds_that_it_reads(expression: str, for_each: str, needs: str, tmp_path: Path) -> None:
    variables = (
        "[{name: unused, expression: string(cluster.nodes.size())}, {name: used, expression: 'object.events() == []'}]"
    )
    given = f"variables: {variables}\n" if "variables" in expression else ""
    compiled = diagnostic(f"forEach: {for_each}\n{given}when: |-\n  {expression}\n", tmp_path)
    assert " ".join(sorted(compiled.needs)) == needs


def test_evidence_needs_kinds_of_its_own(tmp_path: Path) -> None:
    compiled = diagnostic("evidence: ['string(cluster.events.size())', string(now)]", tmp_path)
    assert compiled.needs == {"Node"}
    assert [line.needs for line in compiled.evidence] == [{"Event", "Node"}, {"Node"}]
