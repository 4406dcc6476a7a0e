"""Members of objects that the built-in reasons, the sections of the overview and the active ladders read."""

from collections.abc import Mapping

from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.fields_read import fields_read
from rules_engine.model.kubernetes.device_objects import EXTENDED_RESOURCE_CLAIM
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, Kept, merge_by_kind, merge_fields
from rules_engine.model.kubernetes.native_objects import OFFERS
from rules_engine.model.rules.admission import Endpoint
from rules_engine.scheduling import FIELDS_READ

_TERMINATED_STATE: Kept = {"exitCode": None, "finishedAt": None, "reason": None}

_CONTAINER_STATUS: Kept = {
    "name": None,
    "restartCount": None,
    "state": {"waiting": {"message": None, "reason": None}, "terminated": _TERMINATED_STATE},
    "lastState": {"terminated": _TERMINATED_STATE},
}

_CONDITION: Kept = {"message": None, "reason": None, "status": None, "type": None}

_CONTAINER: Kept = {"resources": {"limits": None, "requests": None}}

_TEMPLATE: Kept = {"spec": {"containers": _CONTAINER, "initContainers": _CONTAINER}}

_NODES: Mapping[str, Kept] = {"allNodes": None, "nodeName": None, "nodeSelector": None}

_REPLICAS: Kept = {
    "metadata": {"deletionTimestamp": None},
    "spec": {"replicas": None, "template": _TEMPLATE},
    "status": {"conditions": _CONDITION, "replicas": None},
}

_SECTION_FIELDS: Mapping[str, Kept] = {
    OFFERS: {"spec": {"omitted": None}},
    "Node": {"status": {"capacity": None, "conditions": {"lastTransitionTime": None}}},
    "Pod": {
        "metadata": {
            "annotations": None,
            "deletionTimestamp": None,
            "ownerReferences": {"controller": None, "kind": None, "name": None},
        },
        "spec": {
            "resourceClaims": {"name": None, "resourceClaimName": None, "resourceClaimTemplateName": None},
            "schedulingGates": {"name": None},
        },
        "status": {
            "conditions": merge_fields(_CONDITION, {"lastTransitionTime": None}),
            "containerStatuses": _CONTAINER_STATUS,
            "initContainerStatuses": _CONTAINER_STATUS,
            "message": None,
            "phase": None,
            "reason": None,
            "resourceClaimStatuses": {"name": None, "resourceClaimName": None},
            "startTime": None,
        },
    },
    "Event": {
        "count": None,
        "eventTime": None,
        "firstTimestamp": None,
        "involvedObject": {"kind": None, "name": None, "namespace": None, "uid": None},
        "lastTimestamp": None,
        "message": None,
        "reason": None,
        "series": {"count": None, "lastObservedTime": None},
        "type": None,
    },
    "DaemonSet": {"status": {"desiredNumberScheduled": None, "numberReady": None}},
    "ReplicaSet": _REPLICAS,
    "StatefulSet": _REPLICAS,
    "Job": {
        "metadata": {"deletionTimestamp": None},
        "spec": {"completions": None, "parallelism": None, "template": _TEMPLATE},
        "status": {"active": None, "conditions": _CONDITION, "succeeded": None},
    },
    "PersistentVolumeClaim": {"metadata": {"deletionTimestamp": None}, "status": {"phase": None}},
    "ResourceQuota": {"status": {"hard": None, "used": None}},
    "Namespace": {"metadata": {"labels": None}},
    "DeviceClass": {"spec": {"extendedResourceName": None, "selectors": {"cel": {"expression": None}}}},
    "ResourceSlice": {
        "spec": {
            **_NODES,
            "devices": {
                **_NODES,
                "allowMultipleAllocations": None,
                "attributes": None,
                "bindingConditions": None,
                "capacity": None,
                "consumesCounters": None,
                "name": None,
                "taints": {"effect": None, "key": None, "value": None},
            },
            "driver": None,
            "pool": {"generation": None, "name": None, "resourceSliceCount": None},
            "sharedCounters": None,
        }
    },
    "ResourceClaim": {
        "metadata": {
            "annotations": {EXTENDED_RESOURCE_CLAIM: None},
            "deletionTimestamp": None,
            "ownerReferences": {"controller": None, "kind": None, "name": None},
        },
        "status": {
            "allocation": {
                "devices": {"results": {"adminAccess": None, "device": None, "driver": None, "pool": None}},
                "nodeSelector": None,
            },
            "reservedFor": {"name": None, "resource": None},
        },
    },
}


BUILT_IN_FIELDS: Mapping[str, Kept] = merge_by_kind(FIELDS_READ, _SECTION_FIELDS)
"""The members by kind; other members do not change a report without Diagnostics."""


def fields_of_rules(rule_set: RuleSet) -> Mapping[str, Kept]:
    """Return the members of pods that the expressions of the active ladders read."""
    fields = fields_read(rule_set.rules_at(Endpoint.MUTATE), messages=True)
    return {"Pod": None if fields is None else fields.get("object", NO_FIELDS)}
