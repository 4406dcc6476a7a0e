"""Autoscalers that the objects of a cluster show: they may add nodes, and it is unknown which."""

from collections.abc import Iterable, Iterator

from rules_engine.model.kubernetes.cluster_objects import AUTOSCALER_STATUS, ClusterObjects, component_of, once
from rules_engine.model.wording import join_names

CLUSTER_AUTOSCALER, DECLARED = "cluster-autoscaler", "declared nodes"

_UNREAD = {
    CLUSTER_AUTOSCALER: "the templates and maximum sizes of node groups were not read",
    DECLARED: "the input does not limit their number",
}


@once
def autoscalers_of(objects: ClusterObjects) -> tuple[str, ...]:
    """Return what may add nodes to a cluster, as words for a sentence: NodePool gpu."""
    components = {component_of(event) for event in objects.events}
    pools = [f"NodePool {pool.name}" for pool in objects.of("NodePool")]
    groups = objects.of(AUTOSCALER_STATUS) or CLUSTER_AUTOSCALER in components
    return (
        *(pools or ["Karpenter"] if "karpenter" in components else pools),
        *([CLUSTER_AUTOSCALER] if groups else []),
        *([DECLARED] if objects.declared else []),
    )


def unknown_nodes(autoscalers: Iterable[str]) -> Iterator[str]:
    """Yield why it is unknown which nodes autoscalers may add, with the input that would tell."""
    names: dict[str, list[str]] = {}
    for each in autoscalers:
        unread = _UNREAD.get(each, "NodeClasses and the instance types of the cloud were not read")
        names.setdefault(unread, []).append(each)
    for unread, own in names.items():
        yield f"an autoscaler may add such a node ({join_names(own)}): {unread}"
