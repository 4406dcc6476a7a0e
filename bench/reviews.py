"""Pods of the benchmarks, as the API server sends them for training jobs, with defaults."""

import json
from typing import Any

UID = "7f0b5b1e-2f0e-4c0b-9a39-3e3f4f1f7a52"

MIG = "nvidia.com/mig-3g.40gb"


def review(pod: dict[str, Any], namespace: str = "gpu-training", uid: str = UID) -> bytes:
    """Return an AdmissionReview of a pod at CREATE, as the API server encodes it."""
    resource = {"group": "", "version": "v1", "resource": "pods"}
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": pod["metadata"]["name"],
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:job-controller",
            "uid": "0f7b8c30-5b6d-4a83-8f0e-1b1f4f7d3c11",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return json.dumps(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}, separators=(",", ":")
    ).encode()


def training_pod(resource: str = MIG, namespace: str = "gpu-training") -> dict[str, Any]:
    """Return a pod of a Job: a GPU container with many environment variables, a log container, an init container."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "train-0",
            "generateName": "train-",
            "namespace": namespace,
            "uid": "5c6f4c1e-6a07-4c4d-8c3a-b5a1f8fbe0f4",
            "creationTimestamp": "2025-03-01T12:00:00Z",
            "labels": {
                "app": "train",
                "team": "vision",
                "batch.kubernetes.io/controller-uid": "a2f1",
                "batch.kubernetes.io/job-name": "train",
            },
            "annotations": {"task.bkbcs.tencent.com/gpu-type": "V100", "prometheus.io/scrape": "true"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "train",
                    "uid": "a2f1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [_managed()],
        },
        "spec": {
            "volumes": [
                *({"name": f"data-{n}", "persistentVolumeClaim": {"claimName": f"data-{n}"}} for n in range(3))
            ],
            "initContainers": [_container("fetch", {"cpu": "1", "memory": "1Gi"}, 4)],
            "containers": [
                _container("main", {"cpu": "8", "memory": "64Gi", resource: "1"}, 30),
                _container("logs", {"cpu": "200m", "memory": "256Mi"}, 8),
            ],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "trainer",
            "serviceAccount": "trainer",
            "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                *(
                    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
                    for what in ("not-ready", "unreachable")
                ),
            ],
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }


def job_pods(resource: str, count: int) -> list[dict[str, Any]]:
    """Return pods of one indexed Job, which differ in name, uid, index and time."""
    pods = []
    for number in range(count):
        pod = training_pod(resource)
        index = str(number)
        pod["metadata"] |= {
            "name": f"train-{number}",
            "uid": f"5c6f4c1e-6a07-4c4d-8c3a-{number:012}",
            "creationTimestamp": f"2025-03-01T12:{number // 60 % 60:02}:{number % 60:02}Z",
        }
        pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = index
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = index
        pods.append(pod)
    return pods


def _container(name: str, amounts: dict[str, str], variables: int) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"registry.example.com/vision/{name}:1.4.2",
        "command": ["/bin/sh", "-c", "exec python -m train --config /data-0/config.yaml --epochs 90"],
        "env": [{"name": f"SETTING_{n:02}", "value": f"value-of-setting-{n:02}"} for n in range(variables)],
        "resources": {"limits": dict(amounts), "requests": dict(amounts)},
        "volumeMounts": [{"name": f"data-{n}", "mountPath": f"/data-{n}"} for n in range(3)],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _managed() -> dict[str, Any]:
    fields: dict[str, Any] = {
        f"f:{name}": {"f:image": {}, "f:resources": {".": {}, "f:limits": {}, "f:requests": {}}, "f:env": {}}
        for name in ("main", "logs", "fetch")
    }
    return {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2025-03-01T12:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {}, "f:ownerReferences": {}}, "f:spec": {"f:containers": fields}},
    }
