"""The objects that a diagnosis reports on."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from rules_engine.cluster.scheduling.bound_volumes import claim_names
from rules_engine.model.json.lenient import controller_reference, text_member
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES, ClusterObjects, PodObject, owner_name
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.problem import did_you_mean

RECENT_SECONDS = 3600
"""Default age up to which an Event is recent: API servers keep Events for as long (--event-ttl)."""


class Scope(Output, frozen=True, kw_only=True):
    """The objects that a diagnosis reports on: every limit must include them."""

    # Objects outside of the scope are read as well, since a pod may wait for the devices that they hold.
    pod: Annotated[
        ObjectName | None, Meta(description="With its node, its controller and its volume claims; null: no limit.")
    ] = None
    node: Annotated[str, Meta(description='With its pods; "": no limit.')] = ""
    namespace: Annotated[str, Meta(description='"": no limit.')] = ""
    since_seconds: Annotated[int, Meta(description="The age up to which an error is recent.")] = RECENT_SECONDS

    def recent_since(self, now: datetime) -> datetime:
        """Return the time from which an error is recent."""
        return now - min(timedelta(seconds=self.since_seconds), now - datetime.min.replace(tzinfo=UTC))

    def not_found_message(self, cluster: ClusterObjects) -> str:
        """Return a message if the pod, the node or the namespace was not found; "" otherwise.

        If namespaces were not read, a namespace exists if an object is in it.
        """
        if self.pod is not None and cluster.find("Pod", self.pod.name, self.pod.namespace) is None:
            candidates = [f"{pod.namespace}/{pod.name}" for pod in cluster.pods]
            return _not_found_message("Pod", f"{self.pod.namespace}/{self.pod.name}", candidates, cluster)
        if self.node and cluster.find("Node", self.node) is None:
            return _not_found_message("Node", self.node, [node.name for node in cluster.nodes], cluster)
        existing = {namespace.name for namespace in cluster.of("Namespace")}
        if "Namespace" in cluster.absent:
            existing = {item.namespace for kind in API_RESOURCES for item in cluster.of(kind)} - {""}
        if self.namespace and self.namespace not in existing:
            return _not_found_message("Namespace", self.namespace, sorted(existing), cluster)
        return ""

    def name_filter(self, cluster: ClusterObjects) -> Callable[[ObjectName], bool]:
        """Return a function that is True for the name of an object in the scope."""
        allowed: frozenset[ObjectName] | None = None
        if self.pod is not None:
            allowed = frozenset(_names_around(self.pod, cluster))
        if self.node:
            on_node = {pod.object_name for pod in cluster.pods if pod.node_name == self.node}
            on_node.add(ObjectName("Node", self.node))
            allowed = frozenset(on_node) if allowed is None else allowed & on_node
        return lambda name: (
            (allowed is None or name in allowed)
            and (
                not self.namespace or self.namespace in (name.namespace, name.name if name.kind == "Namespace" else "")
            )
        )

    def node_filter(self, cluster: ClusterObjects) -> Callable[[ObjectName], bool]:
        """Return a function that is True for the name of a node that is listed.

        All nodes are listed, since a pending pod can depend on each, unless the scope is a node or a scheduled pod.
        """
        pod = self.pod and cluster.find("Pod", self.pod.name, self.pod.namespace)
        if not self.node and not (pod and text_member(pod.spec, "nodeName")):
            return lambda _name: True
        return replace(self, namespace="").name_filter(cluster)


def _not_found_message(kind: str, name: str, candidates: Sequence[str], cluster: ClusterObjects) -> str:
    why = f", since {API_RESOURCES[kind]} were not read" if kind in cluster.absent else ""
    return f"{kind} {name} not found{why}{did_you_mean(name, candidates)}"


def _names_around(pod: ObjectName, cluster: ClusterObjects) -> set[ObjectName]:
    """Return the names of a Pod, its node, its controller and its volume claims."""
    names = {pod}
    pod_object = cluster.find("Pod", pod.name, pod.namespace)
    if not isinstance(pod_object, PodObject):
        return names
    node = text_member(pod_object.spec, "nodeName")
    if node:
        names.add(ObjectName("Node", node))
    owner = controller_reference(pod_object)
    if owner is not None:
        names.add(owner_name(owner, pod_object))
    return names | {ObjectName("PersistentVolumeClaim", claim, pod.namespace) for claim in claim_names(pod_object)}
