"""Members of objects that the built-in reasons and the sections of the overview read."""

from collections.abc import Mapping

from rules_engine.model.kept_fields import Kept

_CONTAINER: Kept = {
    "name": None,
    "ports": {"containerPort": None, "hostIP": None, "hostPort": None, "protocol": None},
    "resources": {"limits": None, "requests": None},
    "restartPolicy": None,
    "restartPolicyRules": {"action": None},
}

_ENDED: Kept = {"exitCode": None, "finishedAt": None, "reason": None}

_CONTAINER_STATUS: Kept = {
    "name": None,
    "restartCount": None,
    "state": {"waiting": {"message": None, "reason": None}, "terminated": _ENDED},
    "lastState": {"terminated": _ENDED},
}

_OWNERS: Kept = {"controller": None, "kind": None, "name": None}

BUILT_IN: Mapping[str, Kept] = {
    "Node": {
        "metadata": {"labels": None},
        "spec": {"taints": None, "unschedulable": None},
        "status": {"allocatable": None, "capacity": None, "conditions": {"status": None, "type": None}},
    },
    "Pod": {
        "metadata": {"annotations": None, "deletionTimestamp": None, "labels": None, "ownerReferences": _OWNERS},
        "spec": {
            "affinity": None,
            "containers": _CONTAINER,
            "hostNetwork": None,
            "initContainers": _CONTAINER,
            "nodeName": None,
            "nodeSelector": None,
            "overhead": None,
            "resourceClaims": {"name": None},
            "resources": None,
            "schedulerName": None,
            "schedulingGates": None,
            "tolerations": None,
            "topologySpreadConstraints": None,
            "volumes": {"name": None, "persistentVolumeClaim": {"claimName": None}},
        },
        "status": {
            "conditions": {"lastTransitionTime": None, "message": None, "reason": None, "status": None, "type": None},
            "containerStatuses": _CONTAINER_STATUS,
            "initContainerStatuses": _CONTAINER_STATUS,
            "message": None,
            "phase": None,
            "reason": None,
            "startTime": None,
        },
    },
    "Event": {
        "count": None,
        "eventTime": None,
        "firstTimestamp": None,
        "involvedObject": {"kind": None, "name": None, "namespace": None},
        "lastTimestamp": None,
        "message": None,
        "reason": None,
        "series": {"count": None, "lastObservedTime": None},
        "type": None,
    },
    "DaemonSet": {"status": {"desiredNumberScheduled": None, "numberReady": None}},
    "Namespace": {"metadata": {"labels": None}},
    "PersistentVolumeClaim": {"metadata": {"deletionTimestamp": None}, "status": {"phase": None}},
}
"""The members by kind; with them alone, reports are the same."""
