"""Types of the objects that Diagnostics read."""

from collections.abc import Mapping

from rules_engine.cel.values import types
from rules_engine.cel.values.types import ObjectType, Type, list_of, object_of, shape_type
from rules_engine.diagnosis.diagnostic.value import ForEach

HIDDEN = frozenset(
    {("EnvVar", "value"), ("EnvVar", "valueFrom"), ("Container", "envFrom"), ("EphemeralContainer", "envFrom")}
)
"""Fields that are never read: a finding must not quote the environment of a container."""

NODE, POD, DAEMON_SET = shape_type("Node", HIDDEN), shape_type("Pod", HIDDEN), shape_type("DaemonSet", HIDDEN)
EVENT, NAMESPACE, RUNTIME_CLASS = (
    shape_type("Event", HIDDEN),
    shape_type("Namespace", HIDDEN),
    shape_type("RuntimeClass", HIDDEN),
)

LISTS: Mapping[str, ObjectType] = {
    "nodes": NODE,
    "pods": POD,
    "daemonSets": DAEMON_SET,
    "events": EVENT,
    "runtimeClasses": RUNTIME_CLASS,
    "namespaces": NAMESPACE,
}
"""The fields of `cluster`, each with the type of its items. A type's name is the kind of its objects."""

CLUSTER = object_of(types.CLUSTER.name, {name: list_of(item) for name, item in LISTS.items()})

OBJECTS: Mapping[ForEach, Type] = {
    ForEach.NODE: NODE,
    ForEach.POD: POD,
    ForEach.DAEMON_SET: DAEMON_SET,
    ForEach.CLUSTER: CLUSTER,
}
"""The type of `object`."""
