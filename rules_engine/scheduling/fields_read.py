"""Members of objects that the model of the scheduler reads."""

from collections.abc import Mapping

from rules_engine.model.kubernetes.kept_fields import Kept
from rules_engine.scheduling.requirements import LIMITED_VOLUMES

_CONTAINER: Kept = {
    "name": None,
    "restartPolicy": None,
    "restartPolicyRules": {"action": None},
    "resources": {"limits": None, "requests": None},
    "ports": {"containerPort": None, "hostIP": None, "hostPort": None, "protocol": None},
}

_VOLUME: Kept = {
    "name": None,
    "persistentVolumeClaim": {"claimName": None},
    "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": None}}},
    **{member: {"readOnly": None} for member in LIMITED_VOLUMES},
}

FIELDS_READ: Mapping[str, Kept] = {
    "Node": {
        "metadata": {"name": None, "labels": None},
        "spec": {"taints": {"key": None, "effect": None, "value": None}, "unschedulable": None},
        "status": {"allocatable": None, "conditions": {"type": None, "status": None}},
    },
    "Pod": {
        "metadata": {"name": None, "namespace": None, "labels": None, "deletionTimestamp": None},
        "spec": {
            "affinity": None,
            "containers": _CONTAINER,
            "hostNetwork": None,
            "hostUsers": None,
            "initContainers": _CONTAINER,
            "nodeName": None,
            "nodeSelector": None,
            "overhead": None,
            "priority": None,
            "resourceClaims": {"name": None},
            "resources": None,
            "schedulerName": None,
            "tolerations": None,
            "topologySpreadConstraints": None,
            "volumes": _VOLUME,
        },
        "status": {
            "phase": None,
            "nominatedNodeName": None,
            "extendedResourceClaimStatus": {"resourceClaimName": None},
        },
    },
    "Namespace": {"metadata": {"name": None, "labels": None}},
}
"""The members by kind; with them alone, answers are the same."""
