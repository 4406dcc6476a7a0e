"""Autoscalers that the objects of a cluster show."""

import pytest

from rules_engine.cluster.nodes.autoscalers import autoscalers_of, unknown_nodes
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.cluster_objects import AUTOSCALER_STATUS, ClusterObjects

POOLS: dict[str, Json] = {"metadata": {"name": "gpu"}}
BY_CLUSTER_AUTOSCALER: dict[str, Json] = {"source": {"component": "cluster-autoscaler"}}
BY_KARPENTER: dict[str, Json] = {"reportingComponent": "karpenter"}
OTHERS: list[dict[str, Json]] = [{"source": {"component": "kubelet"}}, {"source": 1}, {}]
STATUS: dict[str, Json] = {"metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}}


@pytest.mark.parametrize(
    ("by_kind", "words"),
    [
        ({}, ()),
        ({"Event": OTHERS}, ()),
        ({"NodePool": [POOLS]}, ("NodePool gpu",)),
        ({"NodePool": [POOLS], "Event": [BY_KARPENTER]}, ("NodePool gpu",)),
        ({"Event": [*OTHERS, BY_KARPENTER]}, ("Karpenter",)),
        ({"Event": [BY_CLUSTER_AUTOSCALER]}, ("cluster-autoscaler",)),
        ({AUTOSCALER_STATUS: [STATUS]}, ("cluster-autoscaler",)),
        ({AUTOSCALER_STATUS: [STATUS], "NodePool": [POOLS]}, ("NodePool gpu", "cluster-autoscaler")),
    ],
)
def test_an_autoscaler_is_shown_by_its_objects_or_events(
    by_kind: dict[str, list[dict[str, Json]]], words: tuple[str, ...]
) -> None:
    assert autoscalers_of(ClusterObjects(by_kind)) == words
    assert autoscalers_of(ClusterObjects(by_kind, declared=(Node(name="new"),))) == (*words, "declared nodes")


def test_a_sentence_names_the_input_that_would_tell() -> None:
    pools = [f"NodePool {name}" for name in "abcdefg"]

    sentences = [*unknown_nodes([*pools, "cluster-autoscaler", "declared nodes"])]
    assert [sentence.removeprefix("an autoscaler may add such a node ") for sentence in sentences] == [
        f"({', '.join(pools[:5])} and 2 more): NodeClasses and the instance types of the cloud were not read",
        "(cluster-autoscaler): the templates and maximum sizes of node groups were not read",
        "(declared nodes): the input does not limit their number",
    ]
    assert [*unknown_nodes([])] == []
