"""Generator of shapes.json in rules_engine, from the kubernetes client: python -m tools.shape_table"""

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes.client.models as models

TABLE = Path(__file__).parents[1] / "rules_engine" / "model" / "kubernetes" / "shapes.json"

ROOTS = ("V1Pod", "V1Namespace", "V1Node", "V1DaemonSet", "CoreV1Event", "V1RuntimeClass")

QUANTITIES = {
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "overhead",
    "size_limit",
    "divisor",
    "allocated_resources",
    "pod_fixed",
}
"""Attributes that hold quantities: the client says string."""

FILLED = {
    "Container": "image imagePullPolicy resources terminationMessagePath terminationMessagePolicy",
    "EphemeralContainer": "image imagePullPolicy resources terminationMessagePath terminationMessagePolicy",
    "ConfigMapVolumeSource": "defaultMode name",
    "ContainerPort": "protocol",
    "ContainerStateRunning": "startedAt",
    "ContainerStateTerminated": "finishedAt startedAt",
    "ContainerStatus": "lastState state",
    "DaemonSetCondition": "lastTransitionTime",
    "DaemonSet": "apiVersion kind metadata spec status",
    "DaemonSetSpec": "revisionHistoryLimit updateStrategy",
    "DaemonSetUpdateStrategy": "type",
    "DownwardAPIVolumeSource": "defaultMode",
    "Event": "apiVersion eventTime firstTimestamp kind lastTimestamp reason source type",
    "GRPCAction": "service",
    "HTTPGetAction": "path scheme",
    "HostPathVolumeSource": "type",
    "LocalObjectReference": "name",
    "Namespace": "apiVersion kind metadata spec status",
    "NamespaceCondition": "lastTransitionTime",
    "NamespaceStatus": "phase",
    "Node": "apiVersion kind metadata spec status",
    "NodeCondition": "lastHeartbeatTime lastTransitionTime",
    "NodeDaemonEndpoints": "kubeletEndpoint",
    "NodeStatus": "daemonEndpoints nodeInfo",
    "ObjectFieldSelector": "apiVersion",
    "ObjectMeta": "creationTimestamp generation name namespace resourceVersion uid",
    "Pod": "apiVersion kind metadata spec status",
    "PodCondition": "lastProbeTime lastTransitionTime",
    "PodSpec": (
        "dnsPolicy enableServiceLinks restartPolicy schedulerName securityContext serviceAccountName"
        " terminationGracePeriodSeconds"
    ),
    "PodStatus": "phase qosClass",
    "PodTemplateSpec": "metadata spec",
    "Probe": "failureThreshold periodSeconds successThreshold timeoutSeconds",
    "ProjectedVolumeSource": "defaultMode sources",
    "RuntimeClass": "apiVersion kind metadata",
    "SecretVolumeSource": "defaultMode secretName",
    "ServiceAccountTokenProjection": "expirationSeconds",
}
"""Fields that the API server fills, though its schema does not require them.

Sources: k8s.io/kubernetes/pkg/apis/core/v1/defaults.go and zz_generated.defaults.go; structs without a pointer, which
are always encoded (k8s.io/api/core/v1/types.go); fields that the validation of stored objects requires. The admission
plugin ServiceAccount is part of every cluster. Others, which fill in priority and tolerations, can be switched off.
"""

_PLAIN = {"str": "string", "int": "int", "bool": "bool", "float": "double", "object": "dyn", "datetime": "string"}
_VERSION = re.compile(r"^(?:Core|Events)?V[0-9]+(?:(?:alpha|beta)[0-9]+)?")


def _written(kind: str, attribute: str) -> str:
    """A type as the table writes it: [T] is a list, {T} a map with string keys."""
    match = re.fullmatch(r"(?i:list)\[(.*)\]", kind)
    if match:
        return f"[{_written(match[1], attribute)}]"
    match = re.fullmatch(r"(?i:dict)[(\[]str, (.*)[)\]]", kind)
    if match:
        return f"{{{_written(match[1], attribute)}}}"
    if attribute in QUANTITIES and kind == "str":
        return "quantity"
    return _PLAIN.get(kind) or _VERSION.sub("", kind)


def table() -> dict[str, Any]:
    """The shapes of all objects below the roots, and the fields of each that are always present."""
    shapes: dict[str, dict[str, str]] = {}
    present: dict[str, list[str]] = {}
    origin: dict[str, str] = {}
    left = list(ROOTS)
    while left:
        model = left.pop()
        name = _VERSION.sub("", model)
        if name in shapes:
            assert origin[name] == model, f"{name} is both {origin[name]} and {model}"
            continue
        origin[name] = model
        kinds, names = getattr(models, model).openapi_types, getattr(models, model).attribute_map
        shapes[name] = {names[attribute]: _written(kind, attribute) for attribute, kind in kinds.items()}
        required = [names[field] for field, info in getattr(models, model).model_fields.items() if info.is_required()]
        present[name] = sorted({*required, *FILLED.get(name, "").split()})
        assert shapes[name].keys() >= {*present[name]}, name
        left += [match for kind in kinds.values() for match in re.findall(r"\b(?:Core|Events)?V[0-9]\w*", kind)]
    assert FILLED.keys() <= shapes.keys()
    return {
        "from": f"kubernetes {version('kubernetes')}",
        "present": {name: present[name] for name in sorted(shapes) if present[name]},
        "shapes": {name: shapes[name] for name in sorted(shapes)},
    }


def text() -> str:
    """The table as in the file: one shape a line."""
    made = table()
    present, shapes = (
        ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in made[member].items())
        for member in ("present", "shapes")
    )
    return f'{{"from": {json.dumps(made["from"])}, "present": {{\n{present}\n}}, "shapes": {{\n{shapes}\n}}}}\n'


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
