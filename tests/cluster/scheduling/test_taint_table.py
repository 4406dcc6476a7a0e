"""The table of taints that report a state of a node."""

import pytest

from rules_engine.cluster.scheduling.requirements import NOT_READY, UNREACHABLE, UNSCHEDULABLE
from rules_engine.cluster.state_taints import TABLE, state_of, without_state_taints
from rules_engine.language.yaml.documents import read_data
from rules_engine.model.json.lenient import object_items, text_member
from rules_engine.model.kubernetes.cluster import Node, Taint
from rules_engine.rules.diagnostic.catalogue import read_catalogue

ROWS = object_items(read_data(TABLE))


@pytest.mark.parametrize(
    ("key", "state", "condition", "reason"),
    [
        (UNSCHEDULABLE, "is cordoned", "", "NodesCordoned"),
        (NOT_READY, "is not Ready", "Ready", "NodesNotReady"),
        (UNREACHABLE, "is unreachable", "Ready", "NodesNotReady"),
        ("node.kubernetes.io/disk-pressure", "has DiskPressure", "DiskPressure", "NodesUnderPressure"),
        ("node.kubernetes.io/new", "has a taint by which Kubernetes reports a state", "", "NodesNotInitialized"),
        ("node.cloudprovider.kubernetes.io/shutdown", "is shut down", "Ready", "NodesNotReady"),
        ("ebs.csi.aws.com/agent-not-ready", "waits for the agent that removes its taint", "", "NodesNotInitialized"),
        ("ToBeDeletedByClusterAutoscaler", "is being removed by the cluster-autoscaler", "", "NodesBeingRemoved"),
        ("karpenter.sh/disrupted", "is being removed by Karpenter", "", "NodesBeingRemoved"),
    ],
)
def test_a_taint_reports_a_state(key: str, state: str, condition: str, reason: str) -> None:
    found = state_of(key)

    assert found is not None
    assert (found.state, found.condition, found.reason) == (state, condition, reason)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "dedicated",
        "nvidia.com/gpu",
        "node-role.kubernetes.io/control-plane",
        "node.kubernetes.iox",
        "agent-not-ready",
    ],
)
def test_other_taints_report_none(key: str) -> None:
    assert state_of(key) is None


def test_the_best_state_of_a_node_keeps_other_taints() -> None:
    own = Taint(key="dedicated", effect="NoSchedule")
    pressure = Taint(key="node.kubernetes.io/disk-pressure", effect="NoSchedule")

    assert without_state_taints(Node(name="a", taints=(pressure, own), ready=False, unschedulable=True)) == Node(
        name="a", taints=(own,)
    )


def test_each_row_is_found_by_its_key_and_has_a_reason_of_the_catalogue() -> None:
    for row in ROWS:
        key = text_member(row, "key")
        found = state_of(key.replace("*", "x"))
        assert found is not None
        assert found.key == key
        assert found.reason in read_catalogue()


def test_no_remedy_of_such_a_finding_is_a_toleration() -> None:
    for reason in {text_member(row, "reason") for row in ROWS}:
        remedies = read_catalogue()[reason].remedies
        assert remedies
        assert not any("tolerat" in each.text for each in remedies)
