"""The objects that a diagnosis reports on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from rules_engine.model.json.lenient import controller, mapping, objects, text
from rules_engine.model.kubernetes.cluster_objects import RESOURCES, ApiObject, ClusterObjects
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.problem import did_you_mean

RECENT = timedelta(hours=1)
"""Default age up to which an Event is recent: API servers keep Events for as long (--event-ttl)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The objects that a diagnosis reports on: by default, all of them.

    The others are read as well, since they hold what a pod waits for. `pod`: a Pod, with its node, its controller and
    its volume claims. `node`: a Node, with its pods. `namespace`: the objects in a namespace. An object is in the scope
    if it is in all that are given. `since`: the age up to which an error is recent.
    """

    pod: ObjectName | None = None
    node: str = ""
    namespace: str = ""
    since: timedelta = RECENT

    def begin(self, now: datetime) -> datetime:
        """Return the time from which an error is recent."""
        return now - min(self.since, now - datetime.min.replace(tzinfo=UTC))

    @property
    def is_whole(self) -> bool:
        """True if no object is outside of the scope."""
        return self.pod is None and not self.node and not self.namespace

    def not_found(self, cluster: ClusterObjects) -> str:
        """Return a message if the pod, the node or the namespace was not found; "" otherwise.

        If namespaces were not read, one of any object is known.
        """
        if self.pod is not None and cluster.find("Pod", self.pod.name, self.pod.namespace) is None:
            known = [f"{pod.namespace}/{pod.name}" for pod in cluster.pods]
            return _not_found("Pod", f"{self.pod.namespace}/{self.pod.name}", known, cluster)
        if self.node and cluster.find("Node", self.node) is None:
            return _not_found("Node", self.node, [node.name for node in cluster.nodes], cluster)
        if self.namespace and "Namespace" in cluster.absent:
            used = {found.namespace for kind in RESOURCES for found in cluster.of(kind)} - {""}
            return "" if self.namespace in used else _not_found("Namespace", self.namespace, sorted(used), cluster)
        if self.namespace and cluster.find("Namespace", self.namespace) is None:
            known = [namespace.name for namespace in cluster.of("Namespace")]
            return _not_found("Namespace", self.namespace, known, cluster)
        return ""

    def names(self, cluster: ClusterObjects) -> Callable[[ObjectName], bool]:
        """Return a function that is True for the name of an object in the scope."""
        if self.is_whole:
            return lambda _name: True
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

    def nodes(self, cluster: ClusterObjects) -> Callable[[ObjectName], bool]:
        """Return a function that is True for the name of a node that is listed.

        These are all nodes unless the scope is a node, or a pod that is on one: what waits can depend on every node.
        """
        placed = self.pod and cluster.find("Pod", self.pod.name, self.pod.namespace)
        if not self.node and not (placed and text(placed.spec, "nodeName")):
            return lambda _name: True
        return replace(self, namespace="").names(cluster)

    def concerns(self, cluster: ClusterObjects) -> Callable[[ApiObject], bool]:
        """Return a function that is True for an object in the scope."""
        if self.is_whole:
            return lambda _object: True
        names = self.names(cluster)
        return lambda found: names(found.object_name)


def _not_found(kind: str, name: str, known: Sequence[str], cluster: ClusterObjects) -> str:
    why = f", since {RESOURCES[kind]} were not read" if kind in cluster.absent else ""
    return f"{kind} {name} not found{why}{did_you_mean(name, known)}"


def _names_around(pod: ObjectName, cluster: ClusterObjects) -> set[ObjectName]:
    """Return the names of a Pod, its node, its controller and its volume claims."""
    names = {pod}
    found = cluster.find("Pod", pod.name, pod.namespace)
    if found is None:
        return names
    node = text(found.spec, "nodeName")
    if node:
        names.add(ObjectName("Node", node))
    owner = controller(found)
    if owner is not None:
        names.add(ObjectName(text(owner, "kind"), text(owner, "name"), pod.namespace))
    for volume in objects(found.spec.get("volumes")):
        claim = text(mapping(volume.get("persistentVolumeClaim")), "claimName")
        if claim:
            names.add(ObjectName("PersistentVolumeClaim", claim, pod.namespace))
    return names
